package mirror

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/coretest"
)

// tape keeps what a mirror records. When the test ends it tells another engine the
// same, which must decide the same: nothing reaches an engine unrecorded.
type tape struct{ steps []step }

// step is one of an engine that begins, an event and a pass.
type step struct {
	now     core.Time
	begin   *core.Config
	event   core.Event
	decided string
}

func newTape(t tester) *tape {
	p := &tape{}
	t.Cleanup(func() { p.play(t) })
	return p
}

func (p *tape) Began(now core.Time, c core.Config) {
	p.steps = append(p.steps, step{now: now, begin: &c})
}

func (p *tape) Told(now core.Time, ev core.Event) {
	p.steps = append(p.steps, step{now: now, event: ev})
}

func (p *tape) Decided(now core.Time, ds []core.Decision, _ core.Counter) {
	p.steps = append(p.steps, step{now: now, decided: coretest.Format(now, ds)})
}

func (p *tape) play(t tester) {
	var e *core.Engine
	for i := range p.steps {
		var err error
		switch s := &p.steps[i]; {
		case s.begin != nil:
			e, err = core.New(*s.begin)
		case s.event != nil:
			err = e.Apply(s.now, s.event)
		default:
			if got := coretest.Format(s.now, e.Decide(s.now)); got != s.decided {
				t.Fatalf("the record of step %d has\n%s, which gives\n%s", i, s.decided, got)
			}
		}
		if err != nil {
			t.Fatalf("the record of step %d cannot be: %v", i, err)
		}
	}
}
