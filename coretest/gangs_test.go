package coretest

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core"
)

// gangPolicy is a random policy that evicts and moves nothing, so that no place is ever kept and the twin knows
// all there is to know.
func gangPolicy(rt *rapid.T) core.Policy {
	p := randomPolicy(rt)
	p.Preempt, p.Defrag, p.Room, p.Fairness.Lease = core.Preempt{}, core.Defrag{}, core.Room{}, 0
	p.Requeue = core.RequeuePolicy{Timestamp: p.Requeue.Timestamp}
	return p
}

// newGangs returns a small cluster of several GPU models, in which each queue may have a quota of each.
func newGangs(rt *rapid.T) *story {
	s := &story{World: NewWorld(rt, core.Config{Policy: gangPolicy(rt), Levels: testLevels}), rt: rt, quota: true}
	s.Twin.Tries = 1 << 20
	for _, q := range queueNames {
		s.setQueue(q)
	}
	s.nodes = 2 + s.up(3)
	for i := range s.nodes {
		n := core.Node{
			Name: fmt.Sprintf("n%d", i), GPUs: 1 + s.up(3), Model: pick(s, "A", "A", "B", "C"), MaxPods: pick(s, 0, 0, 2, 3), HBD: pick(s, "", "h0", "h1"),
			Domains: []string{"z", pick(s, "s0", "s1"), pick(s, "l0", "l1")}, CPUMilli: int64(pick(s, 2, 4)) * 1000, MemMiB: 64,
		}
		nameSets(&n)
		s.Must(core.NodeAdded{Node: n})
	}
	return s
}

// gang submits a gang of several tasks.
func (s *story) gang() {
	j := core.Job{
		Name: fmt.Sprintf("j%d", s.jobs), Queue: pick(s, queueNames...), Class: core.Class(s.up(2)), Gang: !s.chance(6), Submitted: s.Now,
		NotPreemptible: s.chance(6),
	}
	s.jobs++
	for k := range 1 + s.up(3) {
		t := core.Task{Name: fmt.Sprint("t", k), Pods: 1 + s.up(3)}
		t.GPU = pick[core.Milli](s, 1000, 1000, 2000, 500, 0)
		t.CPUMilli = int64(pick(s, 0, 0, 1)) * 1000
		if t.GPU > 0 {
			t.Models = pick(s, nil, nil, []string{"A"}, []string{"B", "A"}, []string{"C", "B"}, []string{"A", "B", "C"})
		}
		if n := s.jobs + k; n%4 == 0 && t.GPU >= core.WholeGPU {
			t.From = from(n/4, int64(t.GPU/core.WholeGPU))
		}
		if s.chance(3) {
			t.MinPods = s.up(t.Pods + 1)
		}
		for _, label := range []string{"x", "y"} {
			if s.chance(3) {
				t.Labels = append(t.Labels, label)
			}
		}
		for range s.up(3) {
			term := core.Term{Level: pick(s, "node", "leaf", "hbd", "spine"), Label: pick(s, "x", "y")}
			switch s.up(5) {
			case 0, 1:
				term.Anti = true
			case 2:
				term.MaxSkew, term.MinDomains = 1+s.up(2), s.up(3)
			}
			t.Affinity = append(t.Affinity, term)
		}
		j.Tasks = append(j.Tasks, t)
	}
	if s.chance(4) {
		j.Topology.Required = pick(s, "leaf", "spine", "hbd")
	}
	s.Must(core.JobSubmitted{Job: j})
}

// TestGangsWaitForRoom plays gangs of several tasks, with affinities among them and to others, on small clusters of
// several GPU models under quotas. After each pass all places of all pods of each gang that waits are tried: none may
// be found.
func TestGangsWaitForRoom(t *testing.T) {
	play := func(rt *rapid.T) Searches {
		s := newGangs(rt)
		for range 6 + s.up(20) {
			switch live := s.Twin.Live(); {
			case s.chance(3) && len(live) > 0:
				s.Must(core.JobEnded{Job: pick(s, live...)})
			case s.chance(6):
				if j, i, ok := s.somePod(func(_ *job, p *pod) bool { return p.on() }); ok {
					s.Must(core.PodEnded{Job: j, Pod: i})
				}
			case s.chance(8):
				s.setQueue(pick(s, queueNames...))
			default:
				s.gang()
			}
			s.Now += core.Second
			s.Decide()
			s.CheckIdle()
		}
		if n := s.Twin.Searches.GivenUp; n > 0 {
			s.fail(fmt.Errorf("%d searches for a place were given up", n))
		}
		return s.Twin.Searches
	}
	rapid.Check(t, func(rt *rapid.T) { play(rt) })
	var all Searches
	fixed(t, 40, func(rt *rapid.T) { all.add(play(rt)) })
	t.Logf("searches: %+v", all)
	if all.Hard < 100 {
		t.Errorf("searches for a place: %+v; expected that many are of gangs of several tasks with affinities and several models under quota", all)
	}
}
