package coretest

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core"
)

// TestUsersTakeTurns lets users of a few queues, most of them fair between users, compete for a few GPUs and cores. The twin refuses a
// start where a job of a user who holds less could have had the place.
func TestUsersTakeTurns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := core.Config{Policy: randomPolicy(rt), Levels: testLevels}
		c.Policy.Spot.Period, c.Policy.Zone.Share = 0, 0
		s := &story{World: NewWorld(rt, c), rt: rt}
		setQueue := func(name string) {
			s.Must(core.QueueSet{Queue: core.Queue{Name: name, Weight: 1, FairUsers: !s.chance(3)}})
		}
		setQueue("a")
		setQueue("b")
		for n := range 2 {
			s.Must(core.NodeAdded{Node: core.Node{Name: fmt.Sprint("n", n), Model: pick(s, "A", "B"), GPUs: 4, CPUMilli: 8000, MemMiB: 1024, Domains: []string{"z", "s", "l"}}})
		}
		for range 10 + s.up(40) {
			for range 1 + s.up(4) {
				s.turnsEvent(setQueue)
			}
			s.Decide()
			s.CheckIdle()
		}
		s.CheckReplay()
	})
}

// turnsEvent lets something happen that decides whose turn it is.
func (s *story) turnsEvent(setQueue func(string)) {
	switch k := s.up(16); {
	case k < 9:
		j := core.Job{Name: fmt.Sprint("j", s.jobs), Queue: pick(s, "a", "b"), User: pick(s, "", "ann", "bob"), Submitted: s.Now, Priority: int32(s.up(5) / 4)}
		t := core.Task{Name: "t", Pods: pick(s, 1, 1, 1, 2), Request: core.Request{GPU: pick[core.Milli](s, 1000, 1000, 2000, 0), CPUMilli: pick[int64](s, 0, 1000, 2000)}}
		if t.GPU == 0 {
			t.CPUMilli += 1000
		}
		j.Gang, j.Tasks = s.chance(6), []core.Task{t}
		s.jobs++
		s.Must(core.JobSubmitted{Job: j})
	case k < 12:
		if live := s.Twin.Live(); len(live) > 0 {
			s.Must(core.JobEnded{Job: pick(s, live...)})
		}
	case k < 13:
		if j, i, ok := s.somePod(leaves); ok {
			s.Must(core.PodsGone{Job: j, Pods: []int{i}})
		}
	case k < 14:
		n := fmt.Sprint("n", s.up(2))
		s.Must(core.NodeCordoned{Node: n, Cordoned: !s.Twin.node(n).cordoned})
	case k < 15:
		setQueue(pick(s, "a", "b"))
	default:
		s.Now += core.Time(1+s.up(8)) * core.Second
		s.Must(core.Tick{})
	}
}
