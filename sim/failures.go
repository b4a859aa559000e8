package sim

import (
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// This file lets jobs fail while their nodes are up, as SchedMate's simulator does (§5.3): a job that failed goes on later from its last checkpoint.
// What differs with a Failure Handler is when, and where. Without one, the job is gone until its owner notices and submits it again. With
// one, the engine is told why it failed, and decides by the policy's [core.Recovery]. A fault may stay on its node: jobs that start there
// fail again, until the node is repaired.
//
// Gangs and jobs of one pod fail. Each has its own random numbers, so that its first run fails after the same time of work whatever else happens. Each time
// that it begins to work, or goes on at another speed, the next ones are drawn: the times are exponential, so that nothing is owed from before.

// Failures is how often jobs fail, and what is noticed. The zero value is never.
type Failures struct {
	Kinds []workload.FailureKind
	// Rate multiplies how often all kinds happen.
	Rate float64
	// Detected is the share of failures, 0..1, whose cause is found at once. It counts only if the policy recovers.
	Detected float64
	// Owner is the mean time after which the owner of a job that failed, or is held, submits or releases it.
	Owner core.Time
	// Faulty is the mean time for which a node stays faulty that takes jobs, and Repair for which one does that was cordoned.
	Faulty, Repair core.Time
	// Test is how long a test of a node takes. It finds every fault.
	Test core.Time
}

func (f *Failures) on() bool { return len(f.Kinds) > 0 && f.Rate > 0 }

// FailureStats counts failures and what was decided about them.
type FailureStats struct {
	Failures   int `json:"failures"`
	Detected   int `json:"detected"`
	Faults     int `json:"faults_on_nodes"` // that stayed there
	Restarted  int `json:"restarted"`
	Held       int `json:"held"`
	Cordoned   int `json:"cordoned"`
	Uncordoned int `json:"repaired"`
	Tested     int `json:"tested,omitempty"`
	Passed     int `json:"passed_tests,omitempty"`
	// GPUHours is the GPU time of the runs that ended in failures.
	GPUHours float64 `json:"failed_gpu_hours"`
}

// A Healer is a [Sink] that receives, too, what becomes of jobs that failed. Nodes that are cordoned, and those that are repaired, are
// nodes that changed.
type Healer interface {
	Sink
	Recovered(t core.Time, j *Live, what Recovered) error
}

// Recovered is what becomes of a job that failed.
type Recovered uint8

// What becomes of jobs that failed.
const (
	ToRestart Recovered = iota // it may start again
	ToHold                     // it may not
	ToRelease                  // it may again
)

func (r Recovered) String() string { return [...]string{"restart", "hold", "unhold"}[r] }

// fault is what is to happen to a job.
type fault struct {
	kind *workload.FailureKind
	pod  int
}

// fails reports whether the job may fail.
func (r *run) fails(s *state) bool {
	return r.Models.Failures.on() && s.Recorded == nil && (s.Gang || s.Pods == 1) && s.GPUs() > 0
}

// planFault plans the failure of a job whose runner began to work at a time, unless its work is done before.
func (r *run) planFault(at, takes core.Time, s *state, i int) {
	if !r.fails(s) {
		return
	}
	if s.chance == nil {
		h := fnv.New64a()
		h.Write([]byte(s.Name))
		s.chance = rand.New(rand.NewPCG(r.Seed, h.Sum64()))
	}
	f, w := &r.Models.Failures, &s.runners[i]
	// 1. The kinds compete. All numbers are drawn, whatever comes of them.
	gpus := float64(s.GPUs()) / float64(core.WholeGPU)
	first, x := math.Inf(1), fault{pod: w.pods[s.chance.IntN(len(w.pods))]}
	for k := range f.Kinds {
		if in := s.chance.ExpFloat64() * f.Kinds[k].GPUHours * 3600 / gpus / f.Rate; in < first {
			first, x.kind = in, &f.Kinds[k]
		}
	}

	// 2. A faulty node may come first.
	again := s.chance.ExpFloat64()
	for _, p := range w.pods {
		n := r.nodes[s.placed[p].Node]
		if n == nil || n.faulty == nil {
			continue
		}
		if in := again * n.faulty.Again.Seconds(); in < first {
			first, x = in, fault{n.faulty, p}
		}
	}
	if first < takes.Seconds() {
		r.plan(event{at: at + core.Time(first*float64(core.Second)), do: breakDown, job: s, runner: int32(i), turn: w.turn, fault: x})
	}
}

// breakDown lets a job fail.
func (r *run) breakDown(now core.Time, s *state, e *event) error {
	w := &s.runners[e.runner]
	if w.turn != e.turn || w.speed == 0 {
		return nil
	}
	f, x := &r.Models.Failures, e.fault
	r.stats.Failures.Failures++
	r.stats.Failures.GPUHours += float64(s.GPUs()) / float64(core.WholeGPU) * (now - w.started).Seconds() / 3600
	name := s.placed[x.pod].Node
	r.halt(now, s, w.pods, 0)
	if s.chance.Float64() < x.kind.Stays {
		r.spoil(now, r.nodes[name], x.kind)
	}
	if detected := s.chance.Float64() < f.Detected; !detected || r.Policy.Recovery.Mode != core.Recover {
		return r.abandon(now, s, w)
	}
	r.stats.Failures.Detected++
	s.short = s.Gang
	if err := r.release(now, s, []int{x.pod}, Crashed, Eviction{}); err != nil {
		return err
	}
	if err := r.tell(now, core.PodEnded{Job: s.Name, Pod: x.pod, Failed: true}); err != nil {
		return err
	}
	return r.tell(now, core.JobDiagnosed{Job: s.Name, Class: x.kind.Class, Suspects: []string{name}, Confidence: 1000, Remedy: x.kind.Remedy})
}

// abandon ends a job that failed for the engine, until its owner submits it again.
func (r *run) abandon(now core.Time, s *state, w *runner) error {
	s.gone(w.pods)
	if err := r.release(now, s, w.pods, Crashed, Eviction{}); err != nil {
		return err
	}
	if err := r.tell(now, core.JobEnded{Job: s.Name}); err != nil {
		return err
	}
	r.plan(event{at: now + r.owner(s), do: resubmit, job: s})
	return nil
}

// owner returns after what time the owner of a job acts.
func (r *run) owner(s *state) core.Time {
	return core.Time(s.chance.ExpFloat64() * float64(r.Models.Failures.Owner))
}

// resubmit lets the owner of a job that failed submit it again.
func (r *run) resubmit(now core.Time, s *state) error {
	spec := s.Job.Job
	spec.Submitted = now
	return r.tell(now, core.JobSubmitted{Job: spec})
}

// unhold lets the owner of a held job release it.
func (r *run) unhold(now core.Time, s *state) error {
	if r.jobs[s.Name] != s {
		return nil
	}
	if err := r.tell(now, core.JobReleased{Job: s.Name}); err != nil {
		return err
	}
	return r.sinks.job(now, s, told{call: tellRecovered, recovered: ToRelease}, nil)
}

// spoil makes a node faulty until it is repaired.
func (r *run) spoil(now core.Time, n *node, k *workload.FailureKind) {
	if n.faulty != nil {
		return
	}
	r.stats.Failures.Faults++
	n.faulty = k
	n.faults++
	r.plan(event{at: r.faultAfter(now, r.Models.Failures.Faulty), do: mend, node: n, turn: n.faults})
}

// closed plans the repair of a node that was cordoned for failures.
func (r *run) closed(now core.Time, name string) {
	n := r.nodes[name]
	n.closed = true
	r.down++
	n.faults++
	r.plan(event{at: r.faultAfter(now, r.Models.Failures.Repair), do: mend, node: n, turn: n.faults})
}

// mend repairs a node, unless another repair of it was planned since.
func (r *run) mend(now core.Time, n *node, turn int32) error {
	if n.faults != turn {
		return nil
	}
	n.faulty = nil
	if !n.closed {
		return nil
	}
	r.opened(n)
	r.stats.Failures.Uncordoned++
	if err := r.tell(now, core.NodeCordoned{Node: n.spec.Name}); err != nil {
		return err
	}
	return r.nodeIs(now, n.spec.Name, func(n *core.Node) { n.Cordoned = false })
}

// opened notes that a node takes pods again that was cordoned for failures.
func (r *run) opened(n *node) {
	n.closed = false
	r.down--
}

// tested ends a test of a node.
func (r *run) tested(now core.Time, n *node) error {
	if !n.closed {
		return nil // it was repaired meanwhile
	}
	r.stats.Failures.Tested++
	return r.tell(now, core.NodeTested{Node: n.spec.Name, Passed: n.faulty == nil})
}

// faultAfter is [run.after] with the random numbers of faults.
func (r *run) faultAfter(now, mean core.Time) core.Time {
	return now + core.Time(r.faults.ExpFloat64()*float64(mean))
}

// recovered carries out a decision about a failure.
func (r *run) recovered(now core.Time, s *state, d *core.Decision) error {
	if r.stats.Failures == nil {
		return nil // no job fails, so none was diagnosed
	}
	switch d.Op {
	case core.Restart:
		r.stats.Failures.Restarted++
		return r.sinks.job(now, s, told{call: tellRecovered, recovered: ToRestart}, nil)
	case core.Hold:
		r.stats.Failures.Held++
		r.plan(event{at: now + r.owner(s), do: release, job: s})
		return r.sinks.job(now, s, told{call: tellRecovered, recovered: ToHold}, nil)
	case core.Cordon:
		r.stats.Failures.Cordoned++
		r.closed(now, d.Node)
		return r.nodeIs(now, d.Node, func(n *core.Node) { n.Cordoned = true })
	case core.Test:
		r.plan(event{at: now + r.Models.Failures.Test, do: test, node: r.nodes[d.Node]})
	case core.Uncordon:
		r.stats.Failures.Passed++
		n := r.nodes[d.Node]
		n.faults++ // no repair is needed
		r.opened(n)
		return r.nodeIs(now, d.Node, func(n *core.Node) { n.Cordoned = false })
	}
	return nil
}
