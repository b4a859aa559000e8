package coretest

import (
	"fmt"
	"iter"
	"slices"

	"github.com/muster-sched/muster/core"
)

// Twin is a second opinion on an engine: it receives the same events, and checks each decision
// by adding up all pods again. It requires that
//
//  1. no GPU, CPU or memory is allocated twice, and no GPU both whole and in part; no
//     node has more pods than it takes;
//  2. pods get what they requested, on open nodes with healthy GPUs that their
//     models, selectors, taints and affinities allow;
//  3. a gang runs with its minimum pods or not at all, within the domain that it
//     requires, and those of its pods that name no model and need GPUs on one model;
//  4. no start makes a queue exceed its quota, and Isolated queues never exceed their own; jobs
//     that must not be evicted, or not for too long, start within nominal quota;
//  5. evictions respect Foreign, Locked and NotPreemptible (unless the job was found running
//     with more than nominal quota leaves for such jobs), disruption protection, class, rank,
//     minimum run time and budget; reclaim evicts only from queues beyond their quota, for
//     queues within it;
//  6. an evicted pod is not back in its place before the job for which it left has started,
//     unless an event happened for which that plan may be given up;
//  7. a pod moves only if its job says that it can be replaced, and neither if it is locked,
//     foreign or disruption-protected; to another node of its GPU model where it could be if it were not at
//     its old place. It runs on there, and both places are taken, until the move is over;
//  8. jobs without GPUs leave the cores that the policy keeps for idle GPUs;
//  9. pods on lent GPUs are LP, may be evicted at any time and take together at most what the
//     owner lends; after the window they are told to leave at once, and the owner goes on when they
//     have left, neither sooner nor later;
//  10. of a job for which others go elsewhere, and of those, all run when they have left their
//     places, unless an event upsets the plan; none of them ranks above it. Where pods only move, that may be in
//     waves: a wave begins in the pass after the last move of the one before has ended;
//  11. no job starts on GPUs that it borrows while one waits whose queue owns them;
//  12. a job starts on the best of its models that has room: see better;
//  13. pods restart elsewhere for no job only if that was requested since the last pass, and all of
//     them run when they have left, unless an event upsets that: those that are named on another
//     node of their GPU model;
//  14. a gang that lost pods is stopped when its grace period is over, neither sooner nor later, unless it has its
//     minimum of pods by then;
//  15. jobs are held or restart, and nodes are cordoned and uncordoned, as failures and tests demand: see [Twin.recovers];
//  16. jobs are suspended, resume and stop as [Twin.suspend], [Twin.resumeSuspended] and [Twin.checkSuspended] say;
//  17. no pod starts where it prefers another node that is as good for the policy: see [Twin.preferred];
//  18. a job with alternatives starts as one of its tasks, whole, and is told to run as another one once a round at most: see [Twin.resize];
//  19. decisions are about live jobs and about pods in the right state.
type Twin struct {
	policy core.Policy
	levels []string
	nodes  []*node
	queues []core.Queue
	jobs   map[string]*job
	ended  map[string][]*left // what jobs left that have ended, by name
	spent  map[core.Time]int  // evicted pods by interval
	// quotaSet counts changes of quotas, and of usage from outside: places that were chosen
	// before such a change may exceed what is left.
	quotaSet int
	now      core.Time // of the last pass
	passes   int
	served   served // under core.LongTermFairness
	came     int    // jobs that did
	// upsets counts events for which a plan may be given up.
	upsets int
	rooms  []*roomPlan                      // plans by which pods go elsewhere, for a job or because that was requested
	asked  map[string]core.RestartRequested // since the last pass, by job
	// resized is when jobs were last told to run as other tasks.
	resized core.Time
	recovery
	had *had // what HP jobs had, if the policy forecasts it
	// shares is what the engine says that queues are owed: see quota.TestSharesAreMaxMin.
	shares map[string][]core.Share
	// Evictions counts the pods evicted so far, Suspensions the jobs suspended, Resumptions those that resumed.
	Evictions, Suspensions, Resumptions int
	// Tries is how many places of a pod are tried for one gang that waits; 1000 if it is 0.
	Tries    int
	Searches Searches
	// nominal says that only what is within nominal quota is allowed, perhaps that what may be allowed is, for all that is
	// known here: see heldUp.
	nominal, perhaps bool
}

// node is a node and its state.
type node struct {
	core.Node
	up, cordoned bool
	bad          uint64 // unhealthy GPUs
}

// podState is what a pod is doing.
type podState uint8

const (
	waiting podState = iota
	running
	leaving
	done
	withdrawn // ended before it ran
)

// pod is a pod of a job; at is where it is while it runs or leaves.
type pod struct {
	task    int
	state   podState
	at      core.Placement
	to      *core.Placement // where it is moving to
	standby *standby        // set while it lends its GPUs
	room    bool            // it moves, or moved last, so that a job gets room
	started core.Time
	left    *left // where it was evicted from last
	image   bool  // its job is suspended, and it holds an image where it was
	evicted bool  // it was told to leave for another job when it left last
	// forOwner says that it was told to leave for a pod on standby when it left last.
	forOwner bool
	again    bool // it was told to restart elsewhere when it left last: until it does, a place may be kept for it
}

// left is a place that a pod left for a job; upsets and starts are what [Twin.upsets] and the
// job's starts were then.
type left struct {
	at             core.Placement
	job            *job
	upsets, starts int
}

// job is a live job.
type job struct {
	core.Job
	pods       []pod
	started    core.Time // when it last had no pod running before
	backfilled bool
	// adopted jobs may be incomplete: the driver found them so.
	adopted bool
	// lacks is how many pods of each task the gang lacks of its minimum, since pods were added
	// to it while it ran.
	lacks     []int
	suspended *suspended // nil if it is not
	// left is what an earlier job of the name left.
	left                []*left
	rejected            bool
	disruptionProtected bool
	// exposed jobs were found running with more than nominal quota leaves for those that must
	// not borrow, and are not protected; of doubtful ones, the twin does not know.
	exposed, doubtful bool
	nominated         bool        // others were evicted for it since it was bound last
	failed            bool        // a start of it failed once: it may be paused
	starts            int         // how often it started where others had made room
	restarts          core.Reason // why it was told to restart elsewhere for no other job, and has not yet; else Placed
	saved             core.Time   // when it saved its progress last, as it reported
	quotaSet          int         // Twin.quotaSet when others were evicted for it last
	stale             *core.Time  // since when the gang has had fewer pods than its minimum, if it may for a while
	// ordered is the time by which it is ordered, less the bonus for its size; of jobs that are unordered, the twin does not
	// know.
	ordered   core.Time
	bonus     core.Time
	unordered bool
	number    int  // of its arrival
	estimated bool // an estimate came later
	// estimate is by what it is ordered, where estimates decide that: as it was when it was estimated last.
	estimate int64
	// width is its GPUs then, where they decide between equal ones.
	width    core.Milli
	expected core.Time // its estimate
	keeps    core.Time // until when it keeps what it runs on: see core.JobMeasured
	served   serviceOf
}

// NewTwin returns a twin of an engine with this configuration.
func NewTwin(c core.Config) *Twin {
	return &Twin{policy: c.Policy, served: newServed(), levels: c.Levels, jobs: map[string]*job{}, ended: map[string][]*left{}, spent: map[core.Time]int{}, asked: map[string]core.RestartRequested{}, recovery: newRecovery()}
}

func (w *Twin) node(name string) *node {
	for _, n := range w.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// on reports whether the pod is on its node.
func (p *pod) on() bool { return p.state == running || p.state == leaving }

// places yields where the pod takes something: while it moves, at both places.
func (p *pod) places() iter.Seq[*core.Placement] {
	return func(yield func(*core.Placement) bool) {
		if p.on() && yield(&p.at) && p.to != nil {
			yield(p.to)
		}
	}
}

// running counts the pods that run.
func (j *job) running() int {
	n := 0
	for i := range j.pods {
		if j.pods[i].state == running {
			n++
		}
	}
	return n
}

// minimum returns how many pods of a task a gang runs with at least.
func minimum(t *core.Task) int {
	if t.MinPods == 0 {
		return t.Pods
	}
	return max(t.MinPods, 0)
}

// startsOver says that the gang needs its minimum to start, unless it restarts elsewhere as it was.
func (j *job) startsOver() {
	if j.restarts == core.Placed {
		clear(j.lacks)
	}
}

// members counts the pods of each task that run or are done.
func (j *job) members() []int {
	have := make([]int, len(j.Tasks))
	for i := range j.pods {
		if s := j.pods[i].state; s == running || s == done {
			have[j.pods[i].task]++
		}
	}
	return have
}

// whole reports whether the gang has its minimum pods, done ones included, or as
// many as it had when some were added last.
func (j *job) whole() bool {
	for t, have := range j.members() {
		if have+j.lacks[t] < minimum(&j.Tasks[t]) {
			return false
		}
	}
	return true
}

// Decide checks the decisions of one pass and takes them in as carried out.
func (w *Twin) Decide(now core.Time, ds []core.Decision) error {
	w.lapse(now)
	w.serve(now)
	w.now = now
	w.passes++
	planned := map[string]int{} // evictions of this pass, by the job they are for
	for k := range ds {
		d := &ds[k]
		if (d.Op == core.Evict || d.Op == core.Suspend) && d.Reason != core.Requested && d.Reason != core.Defragmentation {
			planned[d.For] += len(d.Pods)
		}
	}
	due := w.staleDue(now)
	w.recovers(now)
	plans := map[string]map[string]bool{} // queues within quota before a plan
	over := map[string]bool{}             // queues that may have more than they are owed before it
	paid := map[string]bool{}             // jobs whose evictions were counted
	passed := map[int][]*job{}            // jobs that come before one that started, by decision
	for k := range ds {
		d := &ds[k]
		if d.Op == core.Wake {
			if d.At <= now {
				return fmt.Errorf("wake at %v is not later than %v", d.At, now)
			}
			continue
		}
		if d.Op == core.Hold || d.Op == core.Restart || d.Op == core.Cordon || d.Op == core.Uncordon || d.Op == core.Test {
			if err := w.recovered(d); err != nil {
				return fmt.Errorf("%v of %s%s: %w", d.Op, d.Job, d.Node, err)
			}
			continue
		}
		j := w.jobs[d.Job]
		if j == nil {
			return fmt.Errorf("%v of %q, which is no live job", d.Op, d.Job)
		}
		if d.Op != core.Requeue { // of those that it stops nobody returns
			w.closeLent(now)
		}
		var err error
		switch d.Op {
		case core.Bind:
			if err = w.chosen(j, d); err != nil {
				break
			}
			passed[k] = w.passedBy(j)
			if err = w.notPutOff(j, d, now); err == nil {
				err = w.bind(j, d, now)
			}
			if err == nil {
				err = w.again(j, d)
			}
			clear(plans) // what follows is another plan, after a start that may have taken quota
		case core.Resume:
			if d.Reason != core.StandbyReturns {
				err = w.resumeSuspended(j, d, now)
				clear(plans)
				break
			}
			err = w.resume(j, d, now)
		case core.Evict, core.Suspend:
			if d.Reason == core.StandbyReturns {
				err = w.evictGuests(j, d)
				break
			}
			if d.Reason == core.Resized {
				err = w.resize(j, d, now)
				break
			}
			if d.Reason == core.Requested {
				err = w.restartAsked(j, d)
				break
			}
			if d.Reason == core.Defragmentation {
				err = w.restartScheduled(j, d, now)
				break
			}
			if plans[d.For] == nil {
				plans[d.For] = map[string]bool{}
				for i := range w.queues {
					plans[d.For][w.queues[i].Name] = w.withinNominal(w.queues[i].Name)
					over[w.queues[i].Name] = w.shares != nil && !w.keepsToShare(w.queues[i].Name)
				}
			}
			if !paid[d.For] {
				paid[d.For] = true
				err = w.pay(planned[d.For], now)
			}
			if err == nil && (k == 0 || ds[k-1].Op != core.Evict && ds[k-1].Op != core.Suspend || ds[k-1].For != d.For) {
				err = w.reclaimsWithin(d.For, ds[k:])
			}
			if err == nil {
				err = w.evict(j, d, plans[d.For], over, now)
			}
			if err == nil && d.Op == core.Suspend {
				err = w.suspend(j, d, now)
			}
		case core.Migrate:
			if err = w.migrate(j, d); err == nil {
				err = w.moves(j, d)
			}
		case core.Requeue:
			if d.Reason == core.Suspended {
				err = w.stopSuspended(j, d)
				break
			}
			err = w.stop(j, d)
			switch {
			case err != nil:
			case !j.Gang:
				err = fmt.Errorf("it is no gang")
			case d.Reason == core.StaleGang && !due[j]:
				err = fmt.Errorf("its grace period is not over")
			case d.Reason == core.StaleGang && j.running() > 0:
				err = fmt.Errorf("pods of it run on")
			}
			if delete(due, j); d.Reason == core.StaleGang {
				w.upsets++ // what left for it may come back
			}
		case core.Reject:
			switch {
			case j.rejected:
				err = fmt.Errorf("it was rejected before")
			case slices.ContainsFunc(j.pods, func(p pod) bool { return p.on() || p.state == done }):
				err = fmt.Errorf("pods of it run, or have")
			}
			j.rejected = true
		}
		if err != nil {
			return fmt.Errorf("%v of job %s: %w", d.Op, d.Job, err)
		}
	}
	clear(w.asked)
	if len(w.recovery.expected) > 0 {
		return fmt.Errorf("no %v of %s%s", w.recovery.expected[0].Op, w.recovery.expected[0].Job, w.recovery.expected[0].Node)
	}
	for j := range due {
		return fmt.Errorf("gang %s runs with too few pods after its grace period", j.Name)
	}
	w.closeLent(now)
	if err := w.checkStandby(now); err != nil {
		return err
	}
	if err := w.checkSuspended(now); err != nil {
		return err
	}
	for _, j := range w.jobs {
		if n := j.running(); j.Gang && !j.adopted && n > 0 && j.stale == nil && !j.whole() {
			return fmt.Errorf("gang %s runs with %d pods, fewer than its minimum", j.Name, n)
		}
	}
	if err := w.ownersFirst(ds); err != nil {
		return err
	}
	if err := w.nonePassed(ds, passed); err != nil {
		return err
	}
	return w.roomsMade()
}

// Counts returns how many pods of a live job wait, run and leave.
func (w *Twin) Counts(name string) (wait, run, leave int) {
	j := w.jobs[name]
	for i := range j.pods {
		switch j.pods[i].state {
		case waiting:
			wait++
		case running:
			run++
		case leaving:
			leave++
		}
	}
	return wait, run, leave
}

// Moving returns how many pods of a live job are being moved.
func (w *Twin) Moving(name string) int {
	n := 0
	for i := range w.jobs[name].pods {
		if w.jobs[name].pods[i].to != nil {
			n++
		}
	}
	return n
}

// Live returns the names of the live jobs, sorted.
func (w *Twin) Live() []string {
	var out []string
	for name := range w.jobs {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
