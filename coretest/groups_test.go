package coretest

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
)

// TestGroups plays gangs whose pods are in blocks within a leaf, and those in blocks within a spine, to small clusters. The twin
// checks where they start, and tries all places of those that wait.
func TestGroups(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := core.Policy{Placement: core.AllKinds(place.Strategy(rapid.IntRange(0, len(place.Strategies)-1).Draw(rt, "strategy")))}
		s := &story{World: NewWorld(rt, core.Config{Policy: p, Levels: testLevels}), rt: rt}
		s.Must(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
		for i := range 2 + s.up(7) {
			s.Must(core.NodeAdded{Node: core.Node{
				Name: fmt.Sprint("n", i), GPUs: pick(s, 1, 2, 2), Model: "A", CPUMilli: 64000, MemMiB: 1024, HBD: pick(s, "", "h"),
				Domains: []string{"z", pick(s, "s0", "s1"), pick(s, "l0", "l1")},
			}})
		}
		for i := range 1 + s.up(4) {
			s.Now += core.Second
			s.Must(core.JobSubmitted{Job: s.blocks(fmt.Sprint("j", i))})
			s.Decide()
			s.CheckIdle()
			if live := s.Twin.Live(); s.chance(3) && len(live) > 0 {
				s.Must(core.JobEnded{Job: pick(s, live...)})
				s.Decide()
				s.CheckIdle()
			}
		}
	})
}

// blocks draws a gang in blocks of blocks.
func (s *story) blocks(name string) core.Job {
	j := core.Job{Name: name, Queue: "q", Submitted: s.Now, Gang: true}
	outer, inner, size, gpus := 1+s.up(2), 1+s.up(2), 1+s.up(2), pick[core.Milli](s, 1000, 1000, 2000)
	wide, narrow := pick(s, "spine", "spine", "hbd"), pick(s, "leaf", "leaf", "node")
	for o := range outer {
		for i := range inner {
			first, second := fmt.Sprint(name, " in ", o), fmt.Sprint(name, " in ", o, " in ", i)
			j.Tasks = append(j.Tasks, core.Task{
				Name: fmt.Sprint(o, "-", i), Pods: size, Request: core.Request{GPU: gpus}, Labels: []string{first, second},
				Affinity: []core.Term{{Level: wide, Label: first}, {Level: narrow, Label: second}},
			})
		}
	}
	return j
}
