package coretest

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core"
)

// TestNoneForgotten lets things happen until nothing happens by itself. Then an event that
// changes nothing makes the engine try all waiting jobs again: one that now starts, or
// evicts, had been forgotten.
func TestNoneForgotten(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw, happens := newStory, (*story).event
		if rapid.Bool().Draw(rt, "hostile") {
			draw, happens = newHostile, (*story).fightOrChange
		}
		s := draw(rt)
		for range 3 + s.up(12) {
			for range 1 + s.up(6) {
				happens(s)
			}
			s.Decide()
			if s.chance(2) {
				s.settle()
				s.tryAll()
			}
		}
	})
}

// settle lets time pass until nothing more is decided.
func (s *story) settle() {
	for quiet := 0; quiet < 3; quiet++ {
		if _, q := s.round(); !q {
			quiet = -1
		}
	}
}

// tryAll gives a node a label that no pod asks for, and fails the test if a job starts or
// evicts then.
func (s *story) tryAll() {
	i := slices.IndexFunc(s.Twin.nodes, func(n *node) bool { return n.up })
	if i < 0 {
		return
	}
	n := s.Twin.nodes[i].Node
	n.Labels = maps.Clone(n.Labels)
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels["tried"] += "again "
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
