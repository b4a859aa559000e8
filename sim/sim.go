package sim

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"runtime/debug"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// Config is the input of a run.
type Config struct {
	Cluster workload.Cluster
	Jobs    workload.Jobs
	Policy  core.Policy
	// Changes, if any, are the changes of nodes and queues, in order: nodes and queues of
	// the cluster do not exist before a change adds them. Nodes then do not fail at
	// random.
	Changes []workload.Change
	// Seed determines random events: node failures.
	Seed uint64
	// Until ends the run at that time; 0 means that the run continues to the end of the
	// last job that ends by itself.
	Until core.Time
	// Estimates gives the engine each job's true run time when the job is submitted: an
	// oracle, for policies that order by estimate.
	Estimates bool
	// Advisor, if set, predicts run times: what it does not know is as the workload says.
	Advisor Advisor
	Models  Models
	// Record, if set, receives all events and decisions of the engine.
	Record Recorder
	// Ended, if set, is called when the run has ended without an error, with the engine as
	// it was then: for questions, such as [core.Engine.Consolidation].
	Ended func(*core.Engine)
	// Progress, if set, is called from time to time.
	Progress func(now core.Time, submitted, ended int)
}

// Recorder receives, in order, the start of an empty engine, every event that it accepts,
// and every pass with its decisions, which are valid during the call, as is the engine.
type Recorder interface {
	Began(now core.Time, c core.Config)
	Told(now core.Time, ev core.Event)
	Decided(now core.Time, ds []core.Decision, e core.Counter)
}

// Advisor predicts how long jobs run. Its methods are called in the order of what happens.
type Advisor interface {
	// Predict returns the expected run time of a job that is submitted now; 0 when unknown. What the job will do is not in j.
	Predict(now core.Time, j *workload.Job) (core.Time, error)
	// Ended reports that a job has ended by itself, and when it first ran whole.
	Ended(now core.Time, j *workload.Job, started core.Time) error
}

// Stats are the results of a run that its sinks do not collect.
type Stats struct {
	// Decisions counts pods bound, pods evicted and jobs rejected.
	Decisions int
	// End is the virtual time of the last event.
	End core.Time
	// Submitted, Ended and Rejected count jobs; a rejected one has not ended.
	Submitted, Ended, Rejected int
	// Defrag is what the plans of the policy's defragmentation come to.
	Defrag core.DefragTotals
	// Forecast is what HP jobs held and were expected to hold, if the policy forecasts it.
	Forecast []HPSample
	// CPU is nil without [Interference].
	CPU *CPUBesideGPU
	// Packed is nil without [Packing].
	Packed *Packed
	// Trained is nil if no job's training was measured.
	Trained *Trained
	// Failures counts what [Failures] did; nil if there are none.
	Failures *FailureStats
	// Interrupted is set if the context ended the run early.
	Interrupted bool
}

// run is a simulation in progress.
type run struct {
	Config
	engine  *core.Engine
	sinks   *beside
	stats   Stats
	rng     *rand.Rand
	exits   *rand.Rand // of evicted pods
	faults  *rand.Rand // of repairs
	sigma   float64    // of Models.Shutdown, 0 before the first eviction
	agenda  agenda
	serial  uint64
	jobs    map[string]*state
	nodes   map[string]*node
	queues  map[string]bool
	working int // runners at work that will end
	coming  int // events planned other than failures and repairs
	down    int // nodes that failed
	// recordedNodes is set if Changes add and remove nodes; unremoved are the queues to
	// remove as soon as possible.
	recordedNodes bool
	unremoved     []string
	live          []*state  // the live jobs, in no order, if pods are moved by chance
	moved         core.Time // when a job was last submitted or ended
	gone          []core.Placement
	slow          interference
	expected      forecasts
	trainings     trainings
}

// state is a live job as the simulator sees it.
type state struct {
	Live
	told    *Live // what the sinks are shown
	serial  int
	placed  []core.Placement // by pod; Node is empty while it has none
	runners []runner
	// short says that the gang lost pods with a node and has had fewer than its minimum since: it does not work.
	short   bool
	done    int       // runners that have done their work
	began   core.Time // when it first ran whole; -1 before
	leaving []*leave
	moves   []*transfer // under way
	live    int         // its place in run.live
	// standing has the pods on standby, and when they go on.
	standing map[int]core.Time
	// slowdown is the share by which jobs without GPUs slow it down: see [Interference].
	slowdown float64
	speeds   bool // some task is faster on some GPU models
	// suspended is set while the job is, or its GPUs are being freed; what its runners have banked is work that it keeps if it goes on.
	suspended bool
	sharing
	training *training // nil if it was not measured
	// chance is by what the job fails; nil before it works for the first time, or if none fails.
	chance *rand.Rand
}

// runner is a unit of work: a whole gang, or one pod of another job.
type runner struct {
	pods []int
	// left is the work to do when the current turn began, at full speed.
	left    core.Time
	started core.Time
	speed   float64 // 0 while it does not work
	// banked is the work of this turn before started, at other speeds; an eviction may lose
	// it.
	banked core.Time
	// gpus and slowed are what [run.trains] counted.
	gpus, slowed float64
	endless      bool
	over         bool // it has done its work, or was withdrawn
	ends         bool // by itself, before the end of time
	// turn counts starts and stops: an end planned in an earlier turn is void.
	turn int32
}

// Run replays the workload and returns when the last job has ended, when nothing more can
// happen, when node failures prevent all remaining jobs from ending, at Until, or when
// the context ends. The sinks, which run in a goroutine of their own, have then received
// everything up to Stats.End. An error is about bad input (see workload.IsBadInput),
// comes from a sink, or names the job on which the engine failed.
func Run(ctx context.Context, c Config, sinks ...Sink) (Stats, error) {
	config := core.Config{Policy: c.Policy, Levels: c.Cluster.Levels}
	e, err := core.New(config)
	if err != nil {
		return Stats{}, err
	}
	if c.Record != nil {
		c.Record.Began(0, config)
	}
	if len(c.Changes) > 0 {
		c.Models.MTBF = 0
	}
	if c.Until == 0 {
		c.Until = core.Never
	}
	r := &run{
		Config: c, engine: e, expected: forecasts{slot: c.Policy.Spot.Period / 24}, sinks: newBeside(sinks), jobs: map[string]*state{}, nodes: map[string]*node{}, queues: map[string]bool{},
		rng: rand.New(rand.NewPCG(c.Seed, 0)), exits: rand.New(rand.NewPCG(c.Seed, 0x65786974)), // "exit"
		faults: rand.New(rand.NewPCG(c.Seed, 0x6661756c74)), // "fault"
	}
	if c.Models.Failures.on() {
		r.stats.Failures = &FailureStats{}
	}
	if c.Models.Packing.Profiles != nil {
		r.stats.Packed = &Packed{}
	}
	err = r.play(ctx)
	if failed := r.sinks.close(); err == nil {
		err = failed
	}
	return r.stats, err
}

func (r *run) play(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w\n%s", r.engine.Fault(v), debug.Stack())
		}
	}()
	if err := r.setUp(); err != nil {
		return err
	}
	if err := r.loop(ctx); err != nil {
		return err
	}
	r.stats.Defrag, r.stats.Forecast = r.engine.Defragmentation(), r.expected.rows
	if r.Ended != nil {
		r.Ended(r.engine)
	}
	r.stats.CPU = r.measured(r.stats.End)
	return r.sinks.passed(r.stats.End, r.inquire, true)
}

func (r *run) inquire() Inquiry { return r.engine.Inquire() }

// tell applies an event to the engine.
func (r *run) tell(now core.Time, ev core.Event) error {
	if err := r.engine.Apply(now, ev); err != nil {
		return err
	}
	if r.Record != nil {
		r.Record.Told(now, ev)
	}
	return nil
}

// setUp reports queues and nodes to the engine and the sinks.
func (r *run) setUp() error {
	r.planMove(0)
	if len(r.Changes) > 0 {
		return r.setUpRecorded()
	}
	for _, q := range r.Cluster.Queues {
		r.queues[q.Name] = true
		if err := r.tell(0, core.QueueSet{Queue: q}); err != nil {
			return err
		}
	}
	for i := range r.Cluster.Nodes {
		n := &node{spec: &r.Cluster.Nodes[i], group: leafOf(&r.Cluster.Nodes[i])}
		if err := r.tell(0, core.NodeAdded{Node: *n.spec}); err != nil {
			return err
		}
		if r.nodesFail() || r.Models.Interference.on() {
			n.jobs = map[*state]int{}
		}
		r.nodes[n.spec.Name] = n
		if err := r.sinks.node(0, n.spec, true); err != nil {
			return err
		}
		r.planFailure(n, 0)
	}
	return nil
}

// plan puts an event on the agenda, unless it would never happen.
func (r *run) plan(e event) {
	if e.at == core.Never {
		return
	}
	r.serial++
	e.serial = r.serial
	if !e.do.byChance() {
		r.coming++
	}
	r.agenda.push(e)
}

// loop processes everything that happens at one moment, then lets the engine decide.
func (r *run) loop(ctx context.Context) error {
	jobs := readAhead(r.Jobs)
	defer close(jobs.ended)
	job, more, err := jobs.next(ctx)
	for step := 0; ; step++ {
		if err != nil && more {
			return err
		}
		if ctx.Err() != nil {
			r.stats.Interrupted = true
			return nil
		}
		if step&1023 == 0 {
			if r.Progress != nil {
				r.Progress(r.stats.End, r.stats.Submitted, r.stats.Ended)
			}
			if !more && r.hopeless(r.stats.End) {
				return nil
			}
		}
		if !more && r.settled() {
			return nil
		}
		now := core.Never
		if len(r.agenda) > 0 {
			now = r.agenda[0].at
		}
		if len(r.Changes) > 0 {
			now = min(now, r.Changes[0].At)
		}
		if more {
			now = min(now, job.Submitted)
		}
		if now == core.Never {
			return nil
		}
		if now > r.Until {
			r.stats.End = r.Until
			return nil
		}
		r.stats.End = now
		if err := r.happenAt(now); err != nil {
			return err
		}
		if err := r.changeAt(now); err != nil {
			return err
		}
		for more && err == nil && job.Submitted <= now {
			if err := r.submit(now, job); err != nil {
				return err
			}
			job, more, err = jobs.next(ctx)
		}
		if err := r.decide(now); err != nil {
			return err
		}
		r.adjust(now)
		r.expected.sample(now, r.engine)
		if err := r.sinks.passed(now, r.inquire, false); err != nil {
			return err
		}
	}
}

// settled reports whether nothing more can happen: no job is live, or all live jobs wait
// for room that will not be freed.
func (r *run) settled() bool {
	return len(r.Changes) == 0 && (len(r.jobs) == 0 || r.working == 0 && r.coming == 0 && r.down == 0)
}

func (r *run) happenAt(now core.Time) error {
	for len(r.agenda) > 0 && r.agenda[0].at <= now {
		if err := r.happen(now, r.agenda.pop()); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) happen(now core.Time, e event) error {
	if !e.do.byChance() {
		r.coming--
	}
	switch e.do {
	case finish:
		return r.finish(now, e.job, e.runner, e.turn)
	case depart:
		return r.depart(now, e.job, e.leave)
	case fail:
		return r.failNode(now, e.node)
	case repair:
		return r.repairNode(now, e.node)
	case withdraw:
		return r.withdraw(now, e.job, e.runner)
	case arrive:
		return r.arrive(now, e.job, e.move)
	case ask:
		return r.askMove(now)
	case lend:
		return r.lend(now, e.job)
	case takeBack:
		return r.takeBack(now, e.job)
	case learn:
		return r.learned(now)
	case step:
		return r.stepped(now, e.job, e.turn)
	case measure:
		return r.measureBeside(now, e.job, e.with, e.turn)
	case breakDown:
		return r.breakDown(now, e.job, &e)
	case resubmit:
		return r.resubmit(now, e.job)
	case release:
		return r.unhold(now, e.job)
	case mend:
		return r.mend(now, e.node, e.turn)
	case test:
		return r.tested(now, e.node)
	}
	return r.tell(now, core.Tick{})
}

// predict asks the advisor, if there is one.
func (r *run) predict(now core.Time, j *workload.Job) error {
	if r.Advisor == nil {
		return nil
	}
	known := *j
	known.Duration, known.Outcome, known.Standby, known.Recorded = 0, workload.Completed, nil, nil
	estimate, err := r.Advisor.Predict(now, &known)
	if err == nil && estimate > 0 {
		j.Estimate = estimate
	}
	return err
}

func (r *run) submit(now core.Time, j workload.Job) error {
	if j.Submitted < now {
		return fmt.Errorf("job %s is submitted at %gs, after one at %gs: jobs must come in order", j.Name, j.Submitted.Seconds(), now.Seconds())
	}
	trained, err := r.train(&j)
	if err != nil {
		return err
	}
	if r.Estimates {
		j.Estimate = j.Duration
	}
	if err := r.predict(now, &j); err != nil {
		return err
	}
	if j.Checkpoint == 0 {
		j.Checkpoint = r.Models.Checkpoint
	}
	if j.SaveWithin == 0 {
		j.SaveWithin = r.Models.SaveWithin
	}
	if !r.asksToSave(&j.Job) {
		j.SaveWithin = 0
	}
	if j.Suspend.HostMemMiB == 0 {
		j.Suspend = r.Models.Suspend
	}
	j.Lends = j.Lends || len(j.Standby) > 0
	if !r.queues[j.Queue] {
		r.queues[j.Queue] = true
		if err := r.tell(now, core.QueueSet{Queue: core.Queue{Name: j.Queue, Weight: 1}}); err != nil {
			return err
		}
	}
	profiled, err := r.profile(&j)
	if err != nil {
		return err
	}
	spec := j.Job
	if j.Recorded != nil {
		spec = j.Recorded.Spec
		spec.Estimate, spec.Checkpoint = j.Estimate, j.Checkpoint
		spec.Suspend = core.Suspension{} // what happened to its pods is recorded
	}
	if err := r.tell(now, core.JobSubmitted{Job: spec}); err != nil {
		return err
	}
	s := &state{Live: Live{Job: j, Pods: j.Pods()}, serial: r.stats.Submitted, began: -1, sharing: profiled, training: trained}
	s.told = &Live{Job: j, Pods: s.Pods}
	s.placed = make([]core.Placement, s.Pods)
	s.slowdown = r.slowdownOf(s)
	s.speeds = slices.ContainsFunc(s.Tasks, func(t core.Task) bool { return len(t.Speeds) > 0 })
	all := make([]int, s.Pods)
	for i := range all {
		all[i] = i
	}
	if j.Gang {
		s.runners = []runner{{pods: all}}
	} else {
		s.runners = make([]runner, s.Pods)
		for i := range s.runners {
			s.runners[i].pods = all[i : i+1]
		}
	}
	for i := range s.runners {
		w := &s.runners[i]
		if w.left = j.Duration; j.Recorded != nil {
			w.left = j.Recorded.Runs[i].Duration
		}
		w.endless = w.left >= workload.Endless
	}
	r.jobs[j.Name] = s
	if r.Models.MoveEvery > 0 {
		s.live = len(r.live)
		r.live = append(r.live, s)
	}
	r.moved = now
	r.stats.Submitted++
	if err := r.trainsFrom(now, s); err != nil {
		return err
	}
	if err := r.sinks.job(now, s, told{call: tellSubmitted}, nil); err != nil || j.Recorded == nil {
		return err
	}
	return r.recorded(now, s)
}

// decide carries out a scheduling pass. Where evictions take effect at once,
// another pass follows.
func (r *run) decide(now core.Time) error {
	for again := true; again; {
		again = false
		decisions := r.engine.Decide(now)
		if r.Record != nil {
			r.Record.Decided(now, decisions, r.engine)
		}
		for _, d := range decisions {
			s := r.jobs[d.Job]
			switch d.Op {
			case core.Bind:
				if err := r.bind(now, s, &d); err != nil {
					return err
				}
			case core.Migrate:
				if err := r.migrate(now, s, &d); err != nil {
					return err
				}
			case core.Suspend:
				if err := r.suspend(now, s, &d); err != nil {
					return err
				}
				again = again || s.Suspend.Pause == 0
			case core.Resume:
				resume := r.resume
				if s.suspended {
					resume = r.goOn
				}
				if err := resume(now, s, &d); err != nil {
					return err
				}
			case core.Requeue:
				if s.suspended {
					r.drop(now, s)
					again = again || r.Models.Grace == 0
					continue
				}
				fallthrough
			case core.Evict:
				if err := r.evict(now, s, &d); err != nil {
					return err
				}
				again = again || r.Models.Grace == 0
			case core.Reject:
				if err := r.reject(now, s, &Rejection{d.Reason, d.Detail}); err != nil {
					return err
				}
			case core.Hold, core.Restart, core.Cordon, core.Uncordon, core.Test:
				if err := r.recovered(now, s, &d); err != nil {
					return err
				}
			case core.Wake:
				r.plan(event{at: d.At, do: timeout})
			}
		}
		if again {
			if err := r.happenAt(now); err != nil {
				return err
			}
		}
	}
	return nil
}

// bind starts pods and the runners that are complete with them. A gang runs from the
// start of its first pods: more pods do not make it faster.
func (r *run) bind(now core.Time, s *state, d *core.Decision) error {
	if err := r.place(now, s, d); err != nil {
		return err
	}
	if s.Gang {
		if s.short = s.short && !s.hasLeast(nil); !s.short {
			r.start(now, s, 0)
		}
		return nil
	}
	for i := range d.Pods {
		r.start(now, s, d.Pods[i].Pod)
	}
	return nil
}

// place puts pods where they are bound.
func (r *run) place(now core.Time, s *state, d *core.Decision) error {
	r.stats.Decisions += len(d.Pods)
	for i := range d.Pods {
		p := &d.Pods[i]
		s.placed[p.Pod] = *p
		r.placed(now, p, s, 1)
	}
	if d.Reason == core.Packed {
		r.joins(now, s, d.For)
	}
	s.Bound += len(d.Pods)
	if r.Advisor != nil && s.began < 0 && s.hasLeast(nil) {
		s.began = now
	}
	if err := r.sinks.job(now, s, told{call: tellBound, reason: d.Reason}, d.Pods); err != nil {
		return err
	}
	r.planStandby(now, s)
	return nil
}

func (r *run) start(now core.Time, s *state, i int) {
	if s.training != nil {
		r.startTraining(now, s)
		return
	}
	r.startAt(now+r.Models.StartDelay, s, i)
}

// startAt lets a runner work from a time on, unless it works already.
func (r *run) startAt(at core.Time, s *state, i int) {
	w := &s.runners[i]
	if w.speed > 0 || w.over {
		return
	}
	w.banked = 0
	r.workFrom(at, s, i)
}

// workFrom begins a turn of a runner: what is banked is done.
func (r *run) workFrom(at core.Time, s *state, i int) {
	w := &s.runners[i]
	w.turn++
	w.started, w.speed = at, r.speedOf(s, w.pods)
	r.trains(r.stats.End, s, w)
	takes := max(0, w.left-w.banked)
	if w.speed != 1 {
		takes = core.Time(min(math.Round(float64(takes)/w.speed), float64(workload.Endless)))
	}
	w.ends = !w.endless && takes <= core.Never-w.started
	r.planFault(w.started, takes, s, i)
	if w.ends {
		r.working++
		r.plan(event{at: w.started + takes, do: finish, job: s, runner: int32(i), turn: w.turn})
	}
}

// stop ends a turn of a runner that works.
func (r *run) stop(now core.Time, w *runner) {
	r.rests(now, w)
	w.speed = 0
	w.turn++
	if w.ends {
		r.working--
	}
}

// halt stops the runners of pods that leave before their work is done. The work since the
// last checkpoint is lost; of a job that saves its progress first, the time of that. A gang continues while it has its minimum of pods.
func (r *run) halt(now core.Time, s *state, pods []int, saves core.Time) {
	if s.Gang && s.hasLeast(pods) {
		return
	}
	for _, p := range pods {
		i := p
		if s.Gang {
			i = 0
		}
		w := &s.runners[i]
		if w.speed == 0 {
			continue
		}
		if s.training != nil {
			r.rest(now, s)
			continue
		}
		worked, kept := w.banked+core.Time(float64(max(0, now-w.started))*w.speed), core.Time(0)
		lost := saves
		switch {
		case saves > 0:
			kept = worked
		case s.Checkpoint > 0:
			kept = worked / s.Checkpoint * s.Checkpoint
			fallthrough
		default:
			lost = worked - kept
		}
		w.left -= min(kept, w.left)
		gpus := core.Milli(0)
		for _, p := range w.pods {
			gpus += core.Milli(bits.OnesCount64(s.placed[p].GPUs)) * s.placed[p].GPU
		}
		s.Lost += float64(gpus) * lost.Seconds()
		r.stop(now, w)
	}
}

// hasLeast reports whether the job has the minimum pods of each of its tasks, or all of one of its alternatives, without the
// given pods and those that are leaving.
func (s *state) hasLeast(without []int) bool {
	p := 0
	for t := range s.Tasks {
		n := 0
		for range s.Tasks[t].Pods {
			if s.placed[p].Node != "" && !slices.Contains(without, p) &&
				!slices.ContainsFunc(s.leaving, func(l *leave) bool { return slices.Contains(l.pods, p) }) {
				n++
			}
			p++
		}
		if s.Alternatives && n == s.Tasks[t].Pods {
			return true
		}
		if !s.Alternatives && n < s.Tasks[t].Minimum() {
			return false
		}
	}
	return !s.Alternatives
}

// finish ends a runner whose work is done and, with the last, the job.
func (r *run) finish(now core.Time, s *state, i, turn int32) error {
	w := &s.runners[i]
	if w.turn != turn || w.speed == 0 {
		return nil
	}
	r.stop(now, w)
	w.left = 0
	why := [...]Release{workload.Completed: Finished, workload.Failed: Failed, workload.Cancelled: Cancelled}[s.Outcome]
	return r.end(now, s, w, why)
}

// end removes a runner that no longer works from its job and, with the last runner, ends
// the job.
func (r *run) end(now core.Time, s *state, w *runner, why Release) error {
	w.over = true
	s.done++
	if err := r.release(now, s, w.pods, why, Eviction{}); err != nil {
		return err
	}
	if s.done < len(s.runners) {
		return r.tell(now, core.PodEnded{Job: s.Name, Pod: w.pods[0]})
	}
	r.forget(s)
	r.moved = now
	r.stats.Ended++
	if err := r.tell(now, core.JobEnded{Job: s.Name}); err != nil {
		return err
	}
	if r.Advisor != nil {
		if err := r.Advisor.Ended(now, &s.Job, s.began); err != nil {
			return err
		}
	}
	return r.sinks.job(now, s, told{call: tellEnded}, nil)
}

// forget takes a job off the lists of live ones.
func (r *run) forget(s *state) {
	delete(r.jobs, s.Name)
	if s.training != nil {
		r.trainings.live = slices.DeleteFunc(r.trainings.live, func(o *state) bool { return o == s })
	}
	if r.Models.MoveEvery > 0 {
		last := len(r.live) - 1
		r.live[s.live], r.live[last].live = r.live[last], s.live
		r.live = r.live[:last]
	}
}

// evict stops pods, which leave after their grace. A job that can save its progress does that first, and has its GPUs meanwhile.
func (r *run) evict(now core.Time, s *state, d *core.Decision) error {
	r.stats.Decisions += len(d.Pods)
	var pods []int
	for i := range d.Pods {
		pods = append(pods, d.Pods[i].Pod)
	}
	why := Preempted
	switch d.Reason {
	case core.PackingCancelled:
		r.stats.Packed.Cancelled++
	case core.QuotaReclaim, core.FairShareReclaim:
		why = Reclaimed
	case core.LeaseOver:
		why = LeaseOver
	case core.Resized:
		why = Resized
	case core.MemberLost, core.StaleGang:
		why = NodeLost
	case core.Consolidation, core.Requested, core.Defragmentation:
		why = Restarted
	}
	saves := r.saveTime(s, d.Reason)
	r.halt(now, s, pods, saves)
	leaves := [][]int{pods}
	if r.Models.Shutdown != (Shutdown{}) {
		leaves = leaves[:0]
		for i := range pods {
			leaves = append(leaves, pods[i:i+1:i+1]) // each at its own time
		}
	}
	for _, group := range leaves {
		takes, killed := r.shutdown()
		l := &leave{pods: group, why: why, by: Eviction{d.For, now, killed}}
		s.leaving = append(s.leaving, l)
		r.plan(event{at: now + saves + takes, do: depart, job: s, leave: l})
	}
	return r.giveUpOf(now, s, pods)
}

// depart releases evicted pods whose nodes were not lost meanwhile.
func (r *run) depart(now core.Time, s *state, l *leave) error {
	s.leaving = slices.DeleteFunc(s.leaving, func(o *leave) bool { return o == l })
	if l.images {
		return r.tell(now, core.PodsGone{Job: s.Name})
	}
	if len(l.pods) == 0 {
		return nil
	}
	if err := r.release(now, s, l.pods, l.why, l.by); err != nil {
		return err
	}
	return r.tell(now, core.PodsGone{Job: s.Name, Pods: l.pods})
}

// gone removes pods from the lists of those that are leaving: they may be bound again
// before they would have left.
func (s *state) gone(pods []int) {
	for _, l := range s.leaving {
		l.pods = slices.DeleteFunc(l.pods, func(p int) bool { return slices.Contains(pods, p) })
	}
}

// release reports that pods left their nodes; by is zero unless they were evicted.
func (r *run) release(now core.Time, s *state, pods []int, why Release, by Eviction) error {
	if err := r.giveUpOf(now, s, pods); err != nil {
		return err
	}
	gone := r.gone[:0]
	for _, i := range pods {
		p := s.placed[i]
		if p.Node == "" {
			continue
		}
		gone = append(gone, p)
		r.placed(now, &p, s, -1)
		s.placed[i] = core.Placement{}
		delete(s.standing, i)
		s.Bound--
	}
	if r.gone = gone; len(gone) == 0 {
		return nil
	}
	r.leaves(now, s)
	return r.sinks.job(now, s, told{call: tellReleased, release: why, eviction: by}, gone)
}

func (r *run) reject(now core.Time, s *state, why *Rejection) error {
	if r.recordedNodes {
		return nil // there may be other nodes later
	}
	r.forget(s)
	r.stats.Decisions++
	r.stats.Rejected++
	if err := r.tell(now, core.JobEnded{Job: s.Name}); err != nil {
		return err
	}
	return r.sinks.job(now, s, told{call: tellEnded, over: why}, nil)
}
