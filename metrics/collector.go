// Package metrics measures a run: how full and how fragmented the cluster was,
// and how long jobs waited (Kant, section 4). The definitions are those of
// [Summary].
package metrics

import (
	"fmt"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// Options says how to measure.
type Options struct {
	// Levels is the number of topology levels of the cluster; the last is the
	// leaf group.
	Levels int
	// From and To bound the window of the averages over time; To 0 leaves it
	// open. By default it goes from the first submission to the last event,
	// and it never goes past that.
	From, To core.Time
	// Queues are the cluster's: fairness goes by their tree and their weights.
	Queues []core.Queue
}

// Collector is a [sim.Sink] that measures. Its memory is that of the live jobs,
// of the nodes and queues, and of accumulators that do not grow; a call costs
// O(pods).
//
//   - GAR is the allocated share of the available GPUs: the healthy ones of
//     nodes that are up and not cordoned. Both sides count those alone, parts of
//     a GPU by their milli.
//   - SOR is allocated to available GPU time. The pods of a gang count from the
//     moment the gang is whole, other pods from their binding.
//   - GFR is the share of fragmented nodes among the nodes that are up and have
//     GPUs. A node is fragmented unless its healthy GPUs are all wholly free or
//     all wholly allocated.
//   - Fragmentation is what becomes of idle GPUs, and why, for pods of the shapes of
//     ASI's Fig. 13, and how many of the jobs of its Fig. 14 would fit (see core/frag).
//   - A job waits until it is first whole (see [Job]). JWTD and JTTED are taken
//     then, so they know no job that never started; JTTED is of gangs and of
//     jobs with several pods. Queueing adds all later waiting, after evictions;
//     it is of the same jobs.
//   - Fairness is what GPU time queues and jobs received of what they deserved (see [Fairness]).
//   - JCT goes from submission to end, of jobs that were not rejected.
//   - Preemptions are the evictions of all jobs (see [Job]). Migrations are
//     the pods that have moved; while they are being moved, both of their places count as
//     allocated.
type Collector struct {
	window Options
	inv    inventory
	jobs   map[*sim.Live]*Job

	now       core.Time // of the last event
	first     core.Time // submission; Never before it
	lastEnd   core.Time
	standbys  standbys
	unstarted core.Milli // held by gangs that are not whole yet
	second    core.Milli // held at the second places of pods that are being moved
	count     Jobs
	queues    queues
	unserved  unserved
	longest   longest
	asking    asking

	over          averages
	waits         [len(Classes)]Histogram
	distances     [len(Classes)]Distance
	topology      topology
	jct, queueing Histogram
	preemptions   int64
	suspensions   int64
	migrations    int64
	lost          float64 // milli-GPU seconds
	leaving       leaving
	fair          fairness
}

// leaving is how long evicted pods took to leave.
type leaving struct {
	took   Histogram
	killed int64
}

func (l *leaving) add(t core.Time, pods int, by sim.Eviction) {
	for range pods {
		l.took.Add((t - by.Told).Seconds())
	}
	if by.Killed {
		l.killed += int64(pods)
	}
}

func (l *leaving) summary() *Evictions {
	n := l.took.Count()
	return &Evictions{Pods: n, Mean: l.took.Mean(), P95: l.took.Quantile(0.95), Killed: float64(l.killed) / float64(max(1, n))}
}

// averages are what is averaged over time.
type averages struct {
	gar, gfr             share
	allocated, available float64 // GPU-seconds, for SOR
	frag                 fragmentation
	second               float64 // GPU-seconds of second places
}

var _ sim.Mover = (*Collector)(nil)

// New returns an empty Collector.
func New(o Options) *Collector {
	return &Collector{
		window: o,
		inv:    newInventory(o.Levels),
		jobs:   map[*sim.Live]*Job{},
		first:  core.Never,
		queues: queues{byName: map[string]int32{}},
		fair:   newFairness(o),
	}
}

// Node implements [sim.Sink].
func (c *Collector) Node(t core.Time, n *core.Node, up bool) error {
	c.advance(t)
	c.over.frag.settle(c.inv.tally)
	c.inv.set(n, up)
	c.fair.available(t, core.Milli(c.inv.available)*core.WholeGPU)
	return nil
}

// Submitted implements [sim.Sink].
func (c *Collector) Submitted(t core.Time, l *sim.Live) error {
	c.advance(t)
	c.first = min(c.first, t)
	j := newJob(c.count.Submitted, l)
	c.jobs[l] = j
	j.queue = c.queues.number(l.Queue)
	c.fair.submitted(t, j)
	c.unserved.add(j)
	c.count.Submitted++
	c.count.Pending++
	return nil
}

// Bound implements [sim.Sink].
func (c *Collector) Bound(t core.Time, l *sim.Live, pods []core.Placement, _ core.Reason) error {
	c.advance(t)
	j, err := c.job(l)
	if err != nil {
		return err
	}
	if j.Bound == 0 && len(pods) > 0 {
		c.count.Pending--
		c.count.Running++
	}
	c.over.frag.settle(c.inv.tally)
	for i := range pods {
		p := &pods[i]
		node, err := c.inv.hold(p, +1)
		if err != nil {
			return fmt.Errorf("bind %s: %w", l.Name, err)
		}
		c.standbys.hold(p, +1)
		j.bind(p.Pod, node)
		c.queues.held[j.queue] += amount(p)
		c.fair.hold(t, j, amount(p))
		if l.Gang && !j.whole {
			j.held += amount(p)
			c.unstarted += amount(p)
		}
	}
	j.wait(t)
	if j.missing == 0 {
		c.start(t, j)
	}
	return nil
}

// start records that j is whole.
func (c *Collector) start(t core.Time, j *Job) {
	j.whole = true
	c.unstarted -= j.held
	j.held = 0
	if j.Started >= 0 {
		return
	}
	j.Started = t
	c.unserved.remove(j)
	c.longest.add(j, t)
	class := ClassOf(j.job.GPUs())
	c.waits[class].Add((t - j.job.Submitted).Seconds())
	j.measure(&c.inv)
	if j.job.GPUs() > 0 && (j.job.Gang || j.job.Pods > 1) {
		d := &c.distances[class]
		d.Jobs++
		d.NodeRatio += float64(j.Nodes) / float64(j.FewestNodes)
		d.GroupRatio += float64(j.Groups) / float64(j.FewestGroups)
	}
	if j.job.GPUs() > 0 && j.job.Pods > 1 && j.rigid() {
		c.topology.add(j)
	}
}

// Released implements [sim.Sink].
func (c *Collector) Released(t core.Time, l *sim.Live, pods []core.Placement, why sim.Release, by sim.Eviction) error {
	c.advance(t)
	j, err := c.job(l)
	if err != nil {
		return err
	}
	c.over.frag.settle(c.inv.tally)
	for i := range pods {
		p := &pods[i]
		if kept := c.standbys.end(l, p, &c.inv); kept != nil {
			p = kept
		} else {
			c.standbys.hold(p, -1)
		}
		if _, err := c.inv.hold(p, -1); err != nil {
			return fmt.Errorf("release %s: %w", l.Name, err)
		}
		j.release(p.Pod, why)
		c.queues.held[j.queue] -= amount(&pods[i])
		c.fair.hold(t, j, -amount(&pods[i]))
		if l.Gang && !j.whole {
			j.held -= amount(p)
			c.unstarted -= amount(p)
		}
	}
	if j.Bound == 0 && len(pods) > 0 {
		j.whole = false
		c.count.Running--
		c.count.Pending++
	}
	j.wait(t)
	if evicts(why) {
		c.leaving.add(t, len(pods), by)
	}
	c.evicted(by.Told, j, why)
	c.lose(j)
	return nil
}

// evicted counts an eviction. Pods that were told to leave at one instant are one, even if
// they take different times to shut down.
func (c *Collector) evicted(told core.Time, j *Job, why sim.Release) {
	if evicts(why) && j.lastEvicted != told {
		c.preemptions++
		j.Evictions++
		j.lastEvicted = told
	}
	if why == sim.Suspended && j.lastEvicted != told {
		c.suspensions++
		j.lastEvicted = told
	}
}

func evicts(why sim.Release) bool {
	return why == sim.Preempted || why == sim.Reclaimed || why == sim.Restarted || why == sim.LeaseOver
}

// Moving implements [sim.Mover].
func (c *Collector) Moving(t core.Time, l *sim.Live, to core.Placement, _ core.Reason, _ string) error {
	c.advance(t)
	c.over.frag.settle(c.inv.tally)
	if _, err := c.job(l); err != nil {
		return err
	}
	if _, err := c.inv.hold(&to, +1); err != nil {
		return fmt.Errorf("migrate %s: %w", l.Name, err)
	}
	c.second += amount(&to)
	return nil
}

// MoveOver implements [sim.Mover].
func (c *Collector) MoveOver(t core.Time, l *sim.Live, free core.Placement, to *core.Placement) error {
	c.advance(t)
	c.over.frag.settle(c.inv.tally)
	j, err := c.job(l)
	if err != nil {
		return err
	}
	if _, err := c.inv.hold(&free, -1); err != nil {
		return fmt.Errorf("migrate %s: %w", l.Name, err)
	}
	c.second -= amount(&free)
	if to != nil {
		c.migrations++
		j.moved(to.Pod, c.inv.byName[to.Node])
	}
	return nil
}

// lose adds the work that the job lost since the last call.
func (c *Collector) lose(j *Job) {
	c.lost += j.job.Lost - j.lost
	j.lost = j.job.Lost
}

// Ended implements [sim.Sink].
func (c *Collector) Ended(t core.Time, l *sim.Live, rejected *sim.Rejection) error {
	c.advance(t)
	j, err := c.job(l)
	if err != nil {
		return err
	}
	if j.Bound != 0 {
		return fmt.Errorf("end %s: %d pods are still bound", l.Name, j.Bound)
	}
	delete(c.jobs, l)
	c.lose(j)
	c.fair.ended(t, j, rejected != nil)
	c.count.Pending--
	if j.Started >= 0 {
		c.queueing.Add(j.waited(t).Seconds())
	} else {
		c.unserved.remove(j)
	}
	if rejected != nil {
		c.count.Rejected++
		return nil
	}
	c.lastEnd = t
	c.jct.Add((t - l.Submitted).Seconds())
	switch l.Outcome {
	case workload.Completed:
		c.count.Completed++
	case workload.Failed:
		c.count.Failed++
	case workload.Cancelled:
		c.count.Cancelled++
	}
	return nil
}

func (c *Collector) job(l *sim.Live) (*Job, error) {
	j := c.jobs[l]
	if j == nil {
		return nil, fmt.Errorf("job %s is not live", l.Name)
	}
	return j, nil
}

// amount returns what p takes of all its devices together.
func amount(p *core.Placement) core.Milli { return core.Milli(gpus(p)) * p.GPU }

// topology adds up what [Topology] says.
type topology struct {
	gangs, spanning int64
	entropy         float64
	gpus, cross     core.Milli
}

func (x *topology) add(j *Job) {
	x.gangs++
	x.entropy += j.entropy
	x.gpus += j.gpus
	x.cross += j.cross
	if j.Groups > 1 {
		x.spanning++
	}
}

func (x *topology) summary() *Topology {
	return &Topology{
		Gangs: x.gangs, Spanning: x.spanning, Entropy: x.entropy / float64(max(1, x.gangs)),
		GPUs: float64(x.gpus) / float64(core.WholeGPU), CrossGPUs: float64(x.cross) / float64(core.WholeGPU),
	}
}
