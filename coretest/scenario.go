package coretest

import (
	"cmp"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/policy"
)

// Cluster is what a scenario is played on: a [World], or what has an engine
// inside it.
type Cluster interface {
	// Set sets the time.
	Set(now core.Time)
	// Apply takes in what has happened. An error says why it cannot have happened.
	Apply(ev core.Event) error
	// Decide returns what is decided now.
	Decide() []core.Decision
	// Waiting yields the names of the jobs that wait, in their order; Explain
	// says why one does.
	Waiting() iter.Seq[string]
	Explain(job string) (core.Explanation, bool)
	// Check fails the test if the last decisions cannot be right; it is called after every
	// pass. Finish is called at the end.
	Check()
	Finish()
}

// Scenario plays one scenario file on an engine. -rewrite accepts what it
// decides.
func Scenario(t *testing.T, path string) {
	ScenarioOn(t, path, func(t *testing.T, c core.Config) Cluster { return NewWorld(t, c) })
}

// ScenarioOn plays one scenario file on a cluster that start makes, and fails
// the test unless it decides what the file says.
func ScenarioOn(t *testing.T, path string, start func(*testing.T, core.Config) Cluster) {
	s := &scenario{file: t, t: t, start: start}
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		s.t = t
		out, err := s.block(d)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return out
	})
	if s.on != nil {
		s.on.Finish()
	}
}

// scenario is a file being played.
type scenario struct {
	file, t *testing.T // of the file, and of the current block
	start   func(*testing.T, core.Config) Cluster
	on      Cluster
	now     core.Time
	out     strings.Builder // of the current block
	// pending says that there were events since the last pass.
	pending bool
}

// block carries out the commands of a block, one a line. It makes a pass when
// time goes on, and at the end before questions.
func (s *scenario) block(d *datadriven.TestData) (string, error) {
	s.out.Reset()
	lines := []string{commandLine(d)}
	for text := range strings.SplitSeq(d.Input, "\n") {
		if text = strings.TrimSpace(text); text != "" && text[0] != '#' {
			lines = append(lines, text)
		}
	}
	var parsed []*line
	for _, text := range lines {
		parsed = append(parsed, parseLine(text))
	}
	for i := 0; i < len(parsed); i++ {
		l := parsed[i]
		tasks := parsed[i+1:]
		n := 0
		for n < len(tasks) && tasks[n].cmd == "task" {
			n++
		}
		if s.pending && (l.cmd == "waiting" || l.cmd == "explain") {
			s.pass()
		}
		if err := s.command(l, tasks[:n]); err != nil {
			return "", err
		}
		i += n
	}
	if s.pending {
		s.pass()
	}
	return s.out.String(), nil
}

// commandLine puts the first line of a block together again.
func commandLine(d *datadriven.TestData) string {
	parts := []string{d.Cmd}
	for _, a := range d.CmdArgs {
		switch len(a.Vals) {
		case 0:
			parts = append(parts, a.Key)
		case 1:
			parts = append(parts, a.Key+"=("+a.Vals[0]+")")
		default:
			parts = append(parts, a.Key+"=("+strings.Join(a.Vals, ",")+")")
		}
	}
	return strings.Join(parts, " ")
}

// pass lets the engine decide.
func (s *scenario) pass() {
	s.pending = false
	s.out.WriteString(Format(s.now, s.on.Decide()))
	s.on.Check()
}

// command carries out one command, with the task lines below it.
func (s *scenario) command(l *line, tasks []*line) error {
	if l.cmd == "policy" {
		if s.on != nil {
			return fmt.Errorf("policy must be the first command")
		}
		c := readPolicy(l)
		if err := l.finish(); err != nil {
			return err
		}
		s.begin(c)
		return nil
	}
	if s.on == nil {
		s.begin(readPolicy(parseLine("policy")))
	}
	if at := l.time("at", s.now); at < s.now {
		l.wrong("time does not go back")
	} else if at > s.now {
		if s.pending {
			s.pass()
		}
		s.now = at
		s.on.Set(at)
	}
	switch l.cmd {
	case "waiting":
		for name := range s.on.Waiting() {
			x, _ := s.on.Explain(name)
			fmt.Fprintf(&s.out, "wait %s: %s: %s%s\n", name, x.Reason, x.Detail, settled(&x))
		}
		return l.finish()
	case "explain":
		s.explain(l)
		return l.finish()
	}
	evs := events(l, tasks, s.now)
	for _, t := range tasks {
		if l.cmd != "submit" {
			t.wrong("a task belongs to a submit")
		}
		if err := t.finish(); err != nil {
			return err
		}
	}
	if err := l.finish(); err != nil {
		return err
	}
	s.pending = true
	for _, ev := range evs {
		if err := s.on.Apply(ev); err != nil {
			fmt.Fprintf(&s.out, "error: %v\n", err)
		}
	}
	return nil
}

func (s *scenario) explain(l *line) {
	x, ok := s.on.Explain(l.name)
	if !ok {
		fmt.Fprintf(&s.out, "job %s is unknown\n", l.name)
		return
	}
	fmt.Fprintf(&s.out, "%s: %d running, %d waiting, %d leaving; ", l.name, x.Running, x.Waiting, x.Leaving)
	if x.Moving > 0 {
		fmt.Fprintf(&s.out, "%d moving; ", x.Moving)
	}
	if x.Standby > 0 {
		fmt.Fprintf(&s.out, "%d on standby; ", x.Standby)
	}
	fmt.Fprintf(&s.out, "%d ahead; since %s\n", x.Ahead, seconds(x.Since))
	if x.Waiting > 0 {
		fmt.Fprintf(&s.out, "%s: %s%s\n", x.Reason, x.Detail, settled(&x))
		if x.Turn != "" {
			fmt.Fprintf(&s.out, "%s\n", x.Turn)
		}
	} else if x.Stops != core.Never {
		fmt.Fprintf(&s.out, "its gang stops at %s\n", seconds(x.Stops))
	}
}

// begin makes the cluster. There is a queue "q" without a quota, for jobs that
// name none.
func (s *scenario) begin(c core.Config) {
	s.on = s.start(s.file, c)
	if err := s.on.Apply(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}}); err != nil {
		s.t.Fatal(err)
	}
}

// readPolicy makes a configuration: a built-in policy (Backfill without a
// minimum run time unless named) and what the scenario changes in it.
func readPolicy(l *line) core.Config {
	name := l.name
	if name == "" {
		name = "Backfill"
	}
	doc, ok := policy.ByName(name)
	if !ok {
		l.wrong("policy %s is not built in", name)
	}
	p := doc.Policy
	if l.name == "" {
		p.Preempt.MinRuntime = 0
	}
	p.Queueing.Order = core.Order(l.oneOf("order", []string{"priority", "estimate", "submission", "longterm", "gputime", "remaining", "attained", "finish", "dominant", "gittins"}, int(p.Queueing.Order)))
	p.Fairness.Lease = l.time("lease", p.Fairness.Lease)
	if i := l.oneOf("jobs", []string{"longterm", "submission", "remaining", "attained", "finish", "gittins"}, -1); i >= 0 {
		p.Fairness.Jobs = core.JobOrders[i]
	}
	for i, w := range l.list("attained") {
		if i == 0 {
			p.Fairness.Levels = nil
		}
		p.Fairness.Levels = append(p.Fairness.Levels, l.duration("attained", w))
	}
	for _, w := range l.list("takes") {
		p.Fairness.Distribution = append(p.Fairness.Distribution, l.duration("takes", w))
	}
	p.Fairness.HalfLife = l.time("halflife", p.Fairness.HalfLife)
	for _, w := range l.list("rates") {
		model, v := l.pair("rates", w, ":")
		p.Fairness.Rates = append(p.Fairness.Rates, core.ModelRate{Model: model, Rate: l.thousandths("rates", v)})
	}
	p.Queueing.HeadWait = l.time("headwait", p.Queueing.HeadWait)
	p.Queueing.FairShare = l.switched("fairshare", p.Queueing.FairShare)
	p.Queueing.LendUnowned = l.switched("unowned", p.Queueing.LendUnowned)
	p.Queueing.SizeWeight = l.time("sizeweight", p.Queueing.SizeWeight)
	if i := l.oneOf("place", place.Strategies[:], -1); i >= 0 {
		p.Placement = core.AllKinds(place.Strategy(i))
	}
	for k, kind := range core.Kinds {
		p.Placement[k] = place.Strategy(l.oneOf(kind, place.Strategies[:], int(p.Placement[k])))
	}
	p.Models = core.ModelOrder(l.oneOf("models", []string{core.Fastest.String(), core.LeastWanted.String()}, int(p.Models)))
	if i := l.oneOf("cpuonly", place.Strategies[:], -1); i >= 0 {
		s := place.Strategy(i)
		p.CPUOnly.Strategy = &s
	}
	p.PreferenceWeight = core.Milli(l.milli("preferenceweight", int64(p.PreferenceWeight)))
	p.CPUOnly.Reserve = int64(l.number("reserve", int(p.CPUOnly.Reserve)))
	p.CPUOnly.GPUUse = int64(l.number("gpuuse", int(p.CPUOnly.GPUUse)))
	if z := pairs(l, "zone"); z != nil {
		p.Zone.Share = 0
		for p.Zone.Key, p.Zone.Value = range z {
		}
	}
	if w := l.word("share", ""); w != "" {
		f, err := strconv.ParseFloat(w, 64)
		if err != nil {
			l.wrong("share=%s: a number is expected", w)
		}
		p.Zone.Share = f
	}
	p.Zone.Exclusive = l.flag("exclusive") || p.Zone.Exclusive
	p.Preempt.Priority = core.PriorityScope(l.oneOf("priority", []string{"off", "queue", "on"}, int(p.Preempt.Priority)))
	p.Preempt.Reclaim = l.switched("reclaim", p.Preempt.Reclaim)
	p.Preempt.Backfill = l.switched("backfill", p.Preempt.Backfill)
	p.Preempt.MinRuntime = l.time("minruntime", p.Preempt.MinRuntime)
	p.Preempt.MaxMinRuntime = l.time("maxminruntime", p.Preempt.MaxMinRuntime)
	p.Preempt.Unprotected = l.flag("unprotected") || p.Preempt.Unprotected
	p.Preempt.ProtectedQueues = append(p.Preempt.ProtectedQueues, l.list("protected")...)
	p.Preempt.Delay = l.time("delay", p.Preempt.Delay)
	p.Preempt.MaxSuspended = l.time("maxsuspended", p.Preempt.MaxSuspended)
	p.Preempt.HPOnly = l.switched("hponly", p.Preempt.HPOnly)
	p.Preempt.Victims = core.VictimChoice(l.oneOf("victims", []string{"LeastWork", "LeastWorkPerGPU", "Random"}, int(p.Preempt.Victims)))
	p.Preempt.Budget = l.number("budget", p.Preempt.Budget)
	p.Preempt.Interval = l.time("interval", p.Preempt.Interval)
	p.Spot.Period = l.time("forecast", p.Spot.Period)
	p.Requeue.Backoff = l.time("backoff", p.Requeue.Backoff)
	p.Requeue.MaxBackoff = l.time("maxbackoff", p.Requeue.MaxBackoff)
	p.Requeue.StaleGrace = l.time("stalegrace", p.Requeue.StaleGrace)
	p.Requeue.Timestamp = core.Timestamp(l.oneOf("timestamp", []string{"submission", "eviction"}, int(p.Requeue.Timestamp)))
	r := &p.Recovery
	r.Mode = core.RecoveryMode(l.oneOf("recovery", []string{"off", "dryrun", "on"}, int(r.Mode)))
	r.MinConfidence = l.milli("minconfidence", r.MinConfidence)
	r.MaxRestarts = l.number("maxrestarts", r.MaxRestarts)
	r.Window = l.time("window", cmp.Or(r.Window, 24*3600*core.Second))
	r.Strikes = l.number("strikes", cmp.Or(r.Strikes, 2))
	r.MaxCordoned = l.milli("maxcordoned", cmp.Or(r.MaxCordoned, 1000))
	r.Tests = l.flag("tests") || r.Tests
	p.Defrag.Every = l.time("defrag", p.Defrag.Every)
	p.Defrag.MaxMoves = l.number("maxmoves", p.Defrag.MaxMoves)
	p.Defrag.MoveTime = l.time("movetime", core.Second) // scenarios are short
	p.Defrag.MaxGPUTime = int64(l.number("maxgputime", 0)) * int64(core.WholeGPU)
	p.Defrag.Restarts = core.RestartScope(l.oneOf("defragrestarts", []string{"never", "lp", "all"}, int(p.Defrag.Restarts)))
	p.Defrag.MaxLost = l.time("maxlost", p.Defrag.MaxLost)
	p.Goodput.Round = l.time("round", p.Goodput.Round)
	p.Goodput.Restart = l.time("goodputrestart", p.Goodput.Restart)
	p.Room.MaxMoves = l.number("room", p.Room.MaxMoves)
	p.Room.Restarts = l.switched("restarts", p.Room.Restarts)
	p.Room.AssumedWait = l.time("assumedwait", p.Room.AssumedWait)
	levels := l.list("levels")
	if levels == nil {
		levels = []string{"superspine", "spine", "leaf"}
	}
	return core.Config{Policy: p, Levels: levels}
}

// settled says when the first job will have run for its minimum time, and when the job may evict others.
func settled(x *core.Explanation) string {
	said := ""
	if x.Settled != core.Never {
		said = fmt.Sprintf(" (the first at %s)", seconds(x.Settled))
	}
	if x.EvictsAt != core.Never {
		said += fmt.Sprintf("; at %s it evicts %s", seconds(x.EvictsAt), x.EvictsText())
	}
	if x.Delayed != core.Never {
		said += fmt.Sprintf("; it evicts no pods before %s", seconds(x.Delayed))
	}
	if x.Stops != core.Never {
		said += fmt.Sprintf("; its gang stops at %s", seconds(x.Stops))
	}
	return said
}
