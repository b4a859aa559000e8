package snapshot

import (
	"fmt"
	"math/bits"
	"runtime/debug"

	"github.com/muster-sched/muster/core"
)

// Answer contains what the engine would do, pass by pass.
type Answer struct {
	Rounds []Round `json:"rounds"`
}

// Round is the outcome of one scheduling pass.
type Round struct {
	Decisions []Decision `json:"decisions"`
	// Waiting lists the jobs of which pods still wait, in the order in which
	// they would be served.
	Waiting []Waiting `json:"waiting"`
}

// Decision is a decision about one pod.
type Decision struct {
	// Op is bind, evict or migrate; then Node is where the pod goes.
	Op     string `json:"op"`
	Job    string `json:"job"`
	Pod    string `json:"pod"`
	Node   string `json:"node"`
	GPUs   []int  `json:"gpus"`
	Reason string `json:"reason"`
	// For names the job that an eviction makes room for.
	For string `json:"-"`
}

// Waiting says why a job waits.
type Waiting struct {
	Job    string `json:"job"`
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

// Run runs a number of scheduling passes of the engine, one second apart. Between passes,
// only the decisions take effect: pods start where they were bound, and evicted pods
// leave, as do those that are being deleted already. No job ends, and time does not jump.
func Run(s Snapshot, rounds int) (Answer, error) {
	a := Answer{Rounds: []Round{}}
	err := play(s, func(r *runner) error {
		for range rounds {
			round, err := r.round()
			if err != nil {
				return err
			}
			a.Rounds = append(a.Rounds, round)
		}
		return nil
	})
	if err != nil {
		return Answer{}, err
	}
	return a, nil
}

// runner is an engine with the state of a snapshot.
type runner struct {
	s      *Snapshot
	engine *core.Engine
	now    core.Time
	// outcomes are those of the last round's decisions, by the next pass: pods that were
	// asked to stop are gone, and pods have moved. wake is when the engine next wants a tick.
	outcomes []core.Event
	wake     core.Time
	job      map[string]*Job
	left     int // how many of the pods that are being deleted leave by the next pass
}

// play gives a new engine the state of the snapshot and calls f. A panic of the engine
// becomes an error that names the job.
func play(s Snapshot, f func(*runner) error) (err error) {
	engine, err := core.New(core.Config{Policy: s.Policy, Levels: s.Levels})
	if err != nil {
		return err
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w\n%s", engine.Fault(v), debug.Stack())
		}
	}()
	r := &runner{s: &s, engine: engine, now: s.Now, wake: core.Never, job: map[string]*Job{}}
	for _, q := range s.Queues {
		if err := engine.Apply(r.now, core.QueueSet{Queue: q}); err != nil {
			return err
		}
	}
	for _, n := range s.Nodes {
		if err := engine.Apply(r.now, core.NodeAdded{Node: n}); err != nil {
			return err
		}
	}
	for i := range s.Jobs {
		if err := r.submit(&s.Jobs[i]); err != nil {
			return err
		}
	}
	for i := range s.Leaving {
		if err := r.submit(&s.Leaving[i]); err != nil {
			return err
		}
	}
	s.Counted.At = r.now
	if err := engine.Apply(r.now, s.Counted); err != nil {
		return err
	}
	return f(r)
}

func (r *runner) submit(j *Job) error {
	r.job[j.Name] = j
	if err := r.engine.Apply(r.now, core.JobSubmitted{Job: j.Job}); err != nil {
		return err
	}
	for _, p := range j.Running {
		if err := r.engine.Apply(r.now, p); err != nil {
			return err
		}
	}
	if j.Gang && len(j.Running) > 0 {
		if err := r.engine.Apply(r.now, core.GangStale{Job: j.Name, Since: j.StaleSince}); err != nil {
			return err
		}
	}
	if j.Saved > 0 && len(j.Running) > 0 {
		return r.engine.Apply(r.now, core.Checkpointed{Job: j.Name, At: j.Saved})
	}
	return nil
}

// round applies the effects of the last round's decisions and makes the next pass.
func (r *runner) round() (Round, error) {
	for _, ev := range r.outcomes {
		if err := r.engine.Apply(r.now, ev); err != nil {
			return Round{}, err
		}
	}
	if r.wake <= r.now {
		r.wake = core.Never
		if err := r.engine.Apply(r.now, core.Tick{}); err != nil {
			return Round{}, err
		}
	}
	r.outcomes = r.outcomes[:0]
	for ; r.left < len(r.s.Leaving); r.left++ {
		r.outcomes = append(r.outcomes, core.JobEnded{Job: r.s.Leaving[r.left].Name})
	}
	round := Round{Decisions: []Decision{}, Waiting: []Waiting{}}
	for _, d := range r.engine.Decide(r.now) {
		r.take(&round, d)
	}
	for job := range r.engine.Waiting() {
		if e, ok := r.engine.Explain(job); ok {
			round.Waiting = append(round.Waiting, Waiting{job, e.Reason.String(), e.Detail + settled(&e, r.now)})
		}
	}
	r.now += core.Second
	return round, nil
}

// take records a decision in the round, and its effects before the next round.
func (r *runner) take(round *Round, d core.Decision) {
	switch d.Op {
	case core.Bind:
		round.add(r.job[d.Job], "bind", d)
	case core.Resume: // no pod of a snapshot is on standby
		round.add(r.job[d.Job], "resume", d)
	case core.Evict, core.Requeue, core.Suspend:
		op := "evict"
		if d.Op == core.Suspend {
			op = "suspend"
		}
		round.add(r.job[d.Job], op, d)
		gone := core.PodsGone{Job: d.Job}
		for _, p := range d.Pods {
			gone.Pods = append(gone.Pods, p.Pod)
		}
		r.outcomes = append(r.outcomes, gone)
	case core.Migrate:
		round.add(r.job[d.Job], "migrate", d)
		for _, p := range d.Pods {
			r.outcomes = append(r.outcomes, core.PodMoved{Job: d.Job, Pod: p.Pod})
		}
	case core.Wake:
		r.wake = min(r.wake, d.At)
	}
}

func (round *Round) add(j *Job, op string, d core.Decision) {
	for _, p := range d.Pods {
		round.Decisions = append(round.Decisions, Decision{
			Op: op, Job: j.Name, Pod: j.Pod(p.Pod), Node: p.Node, GPUs: devices(p.GPUs), Reason: d.Reason.String(), For: d.For,
		})
	}
}

// devices lists the members of a device set.
func devices(set uint64) []int {
	all := []int{}
	for ; set != 0; set &= set - 1 {
		all = append(all, bits.TrailingZeros64(set))
	}
	return all
}
