package sim

import (
	"fmt"
	"math"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// Models describes how the simulated cluster differs from that of the trace.
type Models struct {
	// StartDelay is the time from binding to the start of work.
	StartDelay core.Time
	// Grace is the time that evicted pods take to terminate; with Shutdown, the time after
	// which those that have not terminated are killed.
	Grace core.Time
	// Shutdown is how long evicted pods take to shut down; the zero value means Grace.
	Shutdown Shutdown
	// HandOver is the time from the start of the new instance of a pod that is moved until
	// the old one is gone: it holds both places for StartDelay and HandOver.
	HandOver core.Time
	// MoveEvery is the mean time between requests to move a pod of a random job to another
	// node, as drains and their users make them; exponential. If it is 0, there are none.
	MoveEvery core.Time
	// SpreadCost is the relative slowdown of communication for a gang that spans several
	// leaf groups: 0.27 at ASI (§4.1, allreduce); CommShare is the
	// share of a gang's run time that is communication, 0..1.
	SpreadCost, CommShare float64
	// Speed is the relative speed of GPU models; 1 for models not listed. Trace durations
	// apply at speed 1. A gang runs at the speed of its slowest GPU.
	Speed map[string]float64
	// Interference is how jobs without GPUs slow down training beside them.
	Interference Interference
	// Packing is how jobs slow each other down that share GPUs.
	Packing Packing
	// Similar is the share of the jobs, 0..1, of which a similar one is found if one of the same application has ended, under policies that ask for that; and
	// Known says that all that was measured of trainings is known from the start.
	Similar float64
	Known   bool
	// MTBF is the mean time between failures of one node, Repair the mean time until it
	// is back; both are exponential. If MTBF is 0, no node fails.
	MTBF, Repair core.Time
	// Failures is how jobs fail while their nodes are up.
	Failures Failures
	// Suspend is what it takes to suspend jobs for which the workload does not say it.
	Suspend core.Suspension
	// Checkpoint is the checkpoint interval of jobs for which the workload gives none; 0
	// means that they do not save progress.
	Checkpoint core.Time
	// SaveWithin is how long jobs take to save their progress when they are asked to, for which the workload does not say it.
	SaveWithin core.Time
}

// node is a node as the simulator sees it.
type node struct {
	spec  *core.Node
	group string
	// jobs counts the placed pods by job; it is kept only if nodes may be lost or there is
	// interference.
	jobs  map[*state]int
	cores coreUse // if there is interference
	// faulty is the fault that stayed on the node, closed that the engine cordoned it; faults counts both.
	faulty *workload.FailureKind
	closed bool
	faults int32
}

// speedOf returns the speed at which placed pods work together.
func (r *run) speedOf(s *state, pods []int) float64 {
	m := &r.Models
	if len(m.Speed) == 0 && m.CommShare == 0 && s.slowdown == 0 && !s.speeds && s.with == nil && len(s.Combinations) == 0 {
		return 1
	}
	speed, group, spread, slowed := math.Inf(1), "", false, false
	for _, i := range pods {
		if s.placed[i].Node == "" {
			continue
		}
		n := r.nodes[s.placed[i].Node]
		v, ok := m.Speed[n.spec.Model]
		if !ok {
			v = 1
		}
		if s.speeds {
			v *= float64(s.taskOf(i).SpeedOn(n.spec.Model)) / 1000
		}
		speed = min(speed, v)
		spread = spread || group != "" && group != n.group
		group = n.group
		slowed = slowed || n.cores.dominant
	}
	if slowed {
		speed *= 1 - s.slowdown
	}
	if s.with != nil {
		speed *= m.Packing.Profiles.Speed(s.profile, s.with.profile)
	}
	switch {
	case len(s.Combinations) > 0:
		speed *= r.combinedRate(s, pods)
	case spread:
		speed /= 1 + m.CommShare*m.SpreadCost
	}
	return speed
}

// taskOf returns the task of a pod.
func (s *state) taskOf(pod int) *core.Task {
	for t := range s.Tasks {
		if pod -= s.Tasks[t].Pods; pod < 0 {
			return &s.Tasks[t]
		}
	}
	panic("sim: a pod of no task")
}

// leafOf returns the leaf group of a node; a node whose position is unknown is a group by
// itself.
func leafOf(n *core.Node) string {
	path := ""
	for _, d := range n.Domains {
		path += "/" + d
	}
	if len(n.Domains) == 0 || slices.Contains(n.Domains, "") {
		return "node " + n.Name
	}
	return path
}

// after returns now plus a random time with the given mean, or Never if the result is out
// of range.
func (r *run) after(now, mean core.Time) core.Time {
	wait := r.rng.ExpFloat64() * float64(mean)
	if wait >= float64(core.Never-now) {
		return core.Never
	}
	return now + core.Time(wait)
}

// planFailure plans the next failure of a node.
func (r *run) planFailure(n *node, now core.Time) {
	if r.Models.MTBF > 0 {
		r.plan(event{at: r.after(now, r.Models.MTBF), do: fail, node: n})
	}
}

// nodesFail reports whether nodes may be lost.
func (r *run) nodesFail() bool { return r.Models.MTBF > 0 || r.recordedNodes }

// failNode removes a node and its pods until the node is repaired.
func (r *run) failNode(now core.Time, n *node) error {
	r.down++
	if err := r.loseNode(now, n); err != nil {
		return err
	}
	r.plan(event{at: r.after(now, r.Models.Repair), do: repair, node: n})
	return nil
}

// loseNode removes a node and its pods.
func (r *run) loseNode(now core.Time, n *node) error {
	if n.closed { // it comes back as it was when it was new
		spec := *n.spec
		spec.Cordoned = false
		n.spec, n.closed = &spec, false
		r.down--
	}
	hit := make([]*state, 0, len(n.jobs))
	for s := range n.jobs {
		hit = append(hit, s)
	}
	slices.SortFunc(hit, func(a, b *state) int { return a.serial - b.serial })
	for _, s := range hit {
		if err := r.giveUp(now, s, func(m *transfer) bool { return m.to.Node == n.spec.Name }); err != nil {
			return err
		}
		var gone []int
		for i := range s.placed {
			if s.placed[i].Node == n.spec.Name {
				gone = append(gone, i)
			}
		}
		r.halt(now, s, gone, 0)
		s.short = s.Gang && !s.hasLeast(gone)
		s.gone(gone)
		if err := r.release(now, s, gone, NodeLost, Eviction{}); err != nil {
			return err
		}
	}
	if err := r.tell(now, core.NodeLost{Node: n.spec.Name}); err != nil {
		return err
	}
	return r.sinks.node(now, n.spec, false)
}

// hopeless reports whether failures prevent all remaining jobs from ending: in ten times
// the run time of the longest job, none was submitted or ended.
func (r *run) hopeless(now core.Time) bool {
	if r.Models.MTBF == 0 && !r.Models.Failures.on() {
		return false
	}
	longest := core.Time(0)
	for _, s := range r.jobs {
		longest = max(longest, s.Duration)
	}
	return (now-r.moved)/10 > longest
}

func (r *run) repairNode(now core.Time, n *node) error {
	r.down--
	if err := r.tell(now, core.NodeAdded{Node: *n.spec}); err != nil {
		return err
	}
	r.planFailure(n, now)
	return r.sinks.node(now, n.spec, true)
}

// combinedRate returns how fast a job that lists combinations of GPU models works where its pods are.
func (r *run) combinedRate(s *state, pods []int) float64 {
	// 1. The model of each task, and how far apart its pods are.
	models, apart := make([]string, len(s.Tasks)), 0
	var first *core.Node
	for _, i := range pods {
		if s.placed[i].Node == "" {
			continue
		}
		n := r.nodes[s.placed[i].Node].spec
		if first == nil {
			first = n
		}
		apart = max(apart, levelsApart(first, n))
		for t, before := 0, 0; t < len(s.Tasks); t++ {
			if before += s.Tasks[t].Pods; i < before {
				models[t] = n.Model
				break
			}
		}
	}
	// 2. The combination that this is.
	for c := range s.Combinations {
		listed := s.Combinations[c].Models
		is := true
		for t, m := range listed {
			is = is && (m == "" || models[t] == "" || m == models[t])
		}
		if is {
			return float64(s.Combinations[c].Rate(apart)) / 1000
		}
	}
	panic(fmt.Sprintf("sim: job %s runs on %v, which is none of its combinations", s.Name, models))
}

// levelsApart returns how many levels of the topology lie between two nodes: 0 within one leaf group or HBD.
func levelsApart(a, b *core.Node) int {
	if a.Name == b.Name || a.HBD != "" && a.HBD == b.HBD {
		return 0
	}
	common := 0
	for common < min(len(a.Domains), len(b.Domains)) && a.Domains[common] != "" && a.Domains[common] == b.Domains[common] {
		common++
	}
	return max(len(a.Domains), len(b.Domains)) - common
}
