package coretest

import (
	"bytes"
	"fmt"
	"iter"
	"slices"

	"github.com/muster-sched/muster/core"
)

// T is what a test offers: *testing.T, *testing.B or *rapid.T.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
}

// World is an engine with its twin, and the record of the events that both received.
type World struct {
	t      T
	Engine *core.Engine
	Twin   *Twin
	Now    core.Time
	config core.Config
	log    []step
}

// step is an event, or a pass if event is nil, and what was decided.
type step struct {
	at      core.Time
	event   core.Event
	decided string
}

// NewWorld returns a world without nodes. It fails the test whenever the twin
// disagrees with the engine.
func NewWorld(t T, c core.Config) *World {
	t.Helper()
	e, err := core.New(c)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return &World{t: t, Engine: e, Twin: NewTwin(c), config: c}
}

// Apply sends an event to the engine, asks it a question, and returns the event's error.
func (w *World) Apply(ev core.Event) error {
	if err := w.Engine.Apply(w.Now, ev); err != nil {
		return err
	}
	w.Twin.Apply(w.Now, ev)
	w.log = append(w.log, step{at: w.Now, event: ev})
	w.ask()
	return nil
}

// Set sets the time.
func (w *World) Set(now core.Time) { w.Now = now }

// Waiting yields the names of the jobs that wait, in their order.
func (w *World) Waiting() iter.Seq[string] { return w.Engine.Waiting() }

// Explain says why a job waits.
func (w *World) Explain(job string) (core.Explanation, bool) { return w.Engine.Explain(job) }

// Check is CheckIdle.
func (w *World) Check() {
	w.t.Helper()
	w.CheckIdle()
}

// Finish is CheckReplay.
func (w *World) Finish() {
	w.t.Helper()
	w.CheckReplay()
}

// Must is Apply for events that cannot be wrong.
func (w *World) Must(ev core.Event) {
	w.t.Helper()
	if err := w.Apply(ev); err != nil {
		w.fail(fmt.Errorf("%T: %w", ev, err))
	}
}

// Decide makes a pass, checks the decisions and that both sides count the same
// pods, and returns a copy of the decisions.
func (w *World) Decide() []core.Decision {
	w.t.Helper()
	ds := slices.Clone(w.decide())
	for i := range ds {
		ds[i].Pods = slices.Clone(ds[i].Pods)
	}
	w.log = append(w.log, step{at: w.Now, decided: Format(w.Now, ds)})
	w.Twin.shares = w.Engine.Shares()
	if err := w.Twin.Decide(w.Now, ds); err != nil {
		w.fail(err)
	}
	for _, name := range w.Twin.Live() {
		x, ok := w.Engine.Explain(name)
		wait, run, leave := w.Twin.Counts(name)
		if j := w.Twin.jobs[name]; j.Alternatives && run+leave == 0 {
			wait = x.Waiting // the twin does not know as which of its tasks it waits
		}
		if !ok || x.Waiting != wait || x.Running != run || x.Leaving != leave {
			w.fail(fmt.Errorf("job %s: engine counts %d waiting, %d running, %d leaving; twin %d, %d, %d",
				name, x.Waiting, x.Running, x.Leaving, wait, run, leave))
		}
		if n := w.Twin.Moving(name); x.Moving != n {
			w.fail(fmt.Errorf("job %s: engine counts %d moving; twin %d", name, x.Moving, n))
		}
		if n := w.Twin.Standby(name); x.Standby != n {
			w.fail(fmt.Errorf("job %s: engine counts %d on standby; twin %d", name, x.Standby, n))
		}
	}
	if err := w.Twin.servedAs(w.Engine.Counted(w.Now)); err != nil {
		w.fail(err)
	}
	w.checkAnswers()
	return ds
}

// checkAnswers fails the test unless an inquiry says of all jobs what Explain does, and
// none is forecast to start in the past.
func (w *World) checkAnswers() {
	w.t.Helper()
	inquiry := w.Engine.Inquire()
	for _, name := range w.Twin.Live() {
		x, _ := w.Engine.Explain(name)
		if reason, detail, waits := inquiry.Why(name); waits != (x.Waiting > 0) || reason != x.Reason || detail != x.Detail {
			w.fail(fmt.Errorf("job %s: explained by %v: %s; among others by %v: %s", name, x.Reason, x.Detail, reason, detail))
		}
	}
	for name, at := range w.Engine.Forecast().Starts {
		if x, ok := w.Engine.Explain(name); !ok || x.Waiting == 0 || at < w.Now {
			w.fail(fmt.Errorf("job %s is forecast to start at %.9gs: now it is %.9gs, pods waiting: %d", name, at.Seconds(), w.Now.Seconds(), x.Waiting))
		}
	}
}

// ask asks the engine one of all possible questions, another one after each event.
func (w *World) ask() {
	switch len(w.log) % 3 {
	case 0:
		w.Engine.Forecast()
	case 1:
		inquiry := w.Engine.Inquire()
		var names []string
		for name := range w.Engine.Waiting() {
			names = append(names, name)
		}
		why := func(name string) core.Reason {
			reason, _, _ := inquiry.Why(name)
			return reason
		}
		if err := w.Twin.inOrder(names, why); err != nil {
			w.fail(err)
		}
	case 2:
		if live := w.Twin.Live(); len(live) > 0 {
			w.Engine.Explain(live[len(w.log)%len(live)])
		}
	}
}

// decide is Engine.Decide; should it panic, the test fails with the history.
func (w *World) decide() []core.Decision {
	w.t.Helper()
	var panicked any
	var ds []core.Decision
	func() {
		defer func() { panicked = recover() }()
		ds = w.Engine.Decide(w.Now)
	}()
	if panicked != nil {
		w.fail(fmt.Errorf("panic: %v", panicked))
	}
	return ds
}

// CheckIdle fails the test if a job waits that could start: under StrictFIFO one that no other holds up. It may be asked
// after a pass, when no evictions are under way.
func (w *World) CheckIdle() {
	w.t.Helper()
	if w.TakeTurns(); !w.Twin.Settled() {
		return
	}
	strict := w.config.Policy.Queueing.Mode == core.StrictFIFO
	waiting := slices.Collect(w.Engine.Waiting())
	why := func(name string) core.Reason {
		x, _ := w.Engine.Explain(name)
		return x.Reason
	}
	for _, name := range waiting {
		x, _ := w.Engine.Explain(name)
		if x.Reason == core.BackOff {
			continue
		}
		if x.Reason == core.HPExpected {
			if err := w.Twin.mayBePutOff(name); err != nil {
				w.fail(err)
			}
			continue
		}
		if strict && x.Reason == core.NoNode && w.Twin.jobs[name].rejected {
			continue
		}
		if how := w.Twin.Startable(name); how != "" && !(strict && w.Twin.limited() && w.Twin.heldUp(name, waiting, why)) {
			w.fail(fmt.Errorf("job %s waits (%v: %s) but %s", name, x.Reason, x.Detail, how))
		}
		if strict && !w.Twin.limited() && x.Reason != core.MemberLost {
			return
		}
	}
}

// TakeTurns makes passes until all jobs have had their turns: see [core.Config].Crowd.
func (w *World) TakeTurns() {
	w.t.Helper()
	for passes := 0; w.Engine.Due() > 0; passes++ {
		if passes > 1000 {
			w.fail(fmt.Errorf("%d kinds of jobs are still to have their turns after %d passes", w.Engine.Due(), passes))
		}
		w.Decide()
	}
}

// CheckReplay sends the same events to another engine and fails the test unless it decides the
// same, byte for byte. That engine is asked no questions: they must not matter to later
// decisions.
func (w *World) CheckReplay() {
	w.t.Helper()
	e, err := core.New(w.config)
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	for i, s := range w.log {
		if s.event != nil {
			if err := e.Apply(s.at, s.event); err != nil {
				w.t.Fatalf("replay of event %d: %v", i, err)
			}
			continue
		}
		if got := Format(s.at, e.Decide(s.at)); got != s.decided {
			w.t.Fatalf("replay of step %d decided\n%sbefore it was\n%s", i, got, s.decided)
		}
	}
}

// History is everything that happened, one line each.
func (w *World) History() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%+v\n", w.config.Policy)
	for _, s := range w.log {
		if s.event != nil {
			fmt.Fprintf(&b, "%v %T%+v\n", seconds(s.at), s.event, s.event)
			continue
		}
		b.WriteString(s.decided)
	}
	return b.String()
}

func (w *World) fail(err error) {
	w.t.Helper()
	w.t.Fatalf("%v\nhistory:\n%s", err, w.History())
}
