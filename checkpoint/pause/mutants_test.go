package pause

import (
	"testing"
	"time"

	"github.com/muster-sched/muster/checkpoint"
)

// variant breaks the machines, or the way in which they are driven. The zero value does not.
type variant struct {
	name string

	ignoresEpochOfRequests, ignoresEpochOfReplies, membersForget, repliesAtOnce bool

	decided  func(c *Coordinator, before State) // changes a decision
	persists func(State) bool
	next     func(*Member, []checkpoint.Phase) ([]Step, Outcome)
}

// leasing gives the steps under a goal, to a phase, a lease or none.
func leasing(g Goal, to checkpoint.Phase, lease time.Duration) func(*Member, []checkpoint.Phase) ([]Step, Outcome) {
	return func(m *Member, observed []checkpoint.Phase) ([]Step, Outcome) {
		steps, end := m.Next(observed)
		for i := range steps {
			if m.Goal == g && steps[i].To == to {
				steps[i].Lease = lease
			}
		}
		return steps, end
	}
}

func doneAtOnce(g Goal) func(*Coordinator, State) {
	return func(c *Coordinator, before State) { c.Done = c.Done || c.Goal == g && before.Goal != g }
}

var mutants = []variant{
	{name: "members obey requests of any epoch", ignoresEpochOfRequests: true},
	{name: "members forget their epoch when they are killed", membersForget: true},
	{name: "members reply before they have reached the goal", repliesAtOnce: true},
	{name: "the coordinator counts replies of any epoch", ignoresEpochOfReplies: true},
	{name: "the coordinator does not store that it keeps", persists: func(s State) bool { return s.Goal != Keep }},
	{name: "the coordinator does not store that it releases", persists: func(s State) bool { return s.Goal != Release }},
	{name: "the coordinator does not store that it restores", persists: func(s State) bool { return s.Goal != Restore }},
	{name: "a pause is reported when it is decided", decided: doneAtOnce(Keep)},
	{name: "a release is reported when it is decided", decided: doneAtOnce(Release)},
	{name: "keep before all have saved", decided: func(c *Coordinator, _ State) {
		if c.Goal == Save {
			c.Goal = Keep
		}
	}},
	{name: "resume without restoring first", decided: func(c *Coordinator, before State) {
		if c.Goal == Restore {
			c.Goal = Release
		}
	}},
	{name: "the vote ends the lease", next: leasing(Save, checkpoint.Saved, 0)},
	{name: "gates close without a lease", next: leasing(Gate, checkpoint.Gated, 0)},
	{name: "a resume that may fail has a lease", next: leasing(Restore, checkpoint.Gated, time.Second)},
	{name: "a resume that is undone has a lease", next: leasing(Keep, checkpoint.Saved, time.Second)},
	{name: "keep pauses a process that went on", next: func(m *Member, observed []checkpoint.Phase) ([]Step, Outcome) {
		if m.Goal == Keep && observed[0] == checkpoint.Running && !m.procs[0].inStep {
			m.procs[0].inStep = true
			return []Step{{Epoch: m.Epoch, To: checkpoint.Gated}}, Busy
		}
		return m.Next(observed)
	}},
	{name: "keep does not look whether the lease ran out", next: func(m *Member, observed []checkpoint.Phase) ([]Step, Outcome) {
		if m.Goal == Keep && observed[0] == checkpoint.Running && !m.procs[0].inStep {
			return nil, Reached
		}
		return m.Next(observed)
	}},
}

// The model tells right from wrong: each broken variant has a counterexample.
func TestExploreFindsMutants(t *testing.T) {
	for _, v := range mutants {
		m := &model{shape{members: 2, procs: 1, path: 3, retries: 1, epochs: 8}, v}
		n, found := m.explore(1_000_000)
		if found == nil {
			t.Errorf("%s: nothing found in %d worlds", v.name, n)
			continue
		}
		t.Logf("%s: after %d worlds, %v", v.name, n, found)
	}
}
