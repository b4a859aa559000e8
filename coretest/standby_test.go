package coretest

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
)

// TestStandby plays random events to nodes on which several pods lend their GPUs, little CPU is left, and LP pods use the GPUs of
// more than one of them.
func TestStandby(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := &story{rt: rt}
		p := core.Policy{
			Placement: core.AllKinds(pick(draw, place.EBinpack, place.Value, place.Spot)),
			Preempt:   core.Preempt{Priority: core.InCluster},
			Queueing:  core.Queueing{Mode: core.BestEffortFIFO},
		}
		s := &story{World: NewWorld(rt, core.Config{Levels: testLevels, Policy: p}), rt: rt, nodes: 1 + draw.up(2)}
		s.Must(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
		for i := range s.nodes {
			s.Must(core.NodeAdded{Node: s.lendingNode(fmt.Sprintf("n%d", i))})
		}
		for range 60 {
			s.standbyEvent()
			s.Decide()
			s.CheckIdle()
		}
		s.CheckReplay()
	})
}

// lendingNode draws a node with little beside its GPUs.
func (s *story) lendingNode(name string) core.Node {
	return core.Node{Name: name, Model: "A", GPUs: 6, CPUMilli: int64(pick(s, 12, 24)) * 1000, MemMiB: int64(pick(s, 48, 1000)), MaxPods: pick(s, 0, 0, 0, 6)}
}

// standbyEvent lets owners come, lend and return, and borrowers come and go.
func (s *story) standbyEvent() {
	name := fmt.Sprintf("n%d", s.up(s.nodes))
	n := s.Twin.node(name)
	switch k := s.up(40); {
	case k < 6: // an owner
		s.lendJob(core.Job{Class: core.HP, Priority: int32(s.up(2)), Lends: s.chance(2)}, core.Task{
			Pods: 1, Request: core.Request{GPU: core.Milli(1+s.up(3)) * core.WholeGPU, CPUMilli: int64(s.up(7)) * 1000, MemMiB: int64(s.up(12))},
		})
	case k < 8: // HP without GPUs
		s.lendJob(core.Job{Class: core.HP}, core.Task{Pods: 1, Request: core.Request{CPUMilli: int64(1+s.up(8)) * 1000, MemMiB: int64(s.up(12))}})
	case k < 15: // a borrower
		gpu := core.Milli(1+s.up(4)) * core.WholeGPU
		if s.chance(5) {
			gpu = core.WholeGPU / 2
		}
		j := core.Job{Class: core.LP, Gang: s.chance(3)}
		if s.chance(4) {
			j.Estimate = core.Time(1+s.up(20)) * core.Second
		}
		s.lendJob(j, core.Task{Pods: 1 + s.up(2), Request: core.Request{GPU: gpu, CPUMilli: int64(s.up(7)) * 1000, MemMiB: int64(s.up(12))}})
	case k < 18:
		if live := s.Twin.Live(); len(live) > 0 {
			s.Must(core.JobEnded{Job: pick(s, live...)})
		}
	case k < 19:
		if j, i, ok := s.somePod(func(_ *job, p *pod) bool { return p.on() }); ok {
			s.Must(core.PodEnded{Job: j, Pod: i, Failed: s.chance(2)})
		}
	case k < 24:
		if j, i, ok := s.somePod(leaves); ok {
			s.Must(core.PodsGone{Job: j, Pods: []int{i}})
		}
	case k < 31:
		if j, i, ok := s.somePod(func(j *job, p *pod) bool { return j.Class == core.HP && p.state == running }); ok {
			ev := core.StandbyBegan{Job: j, Pods: []int{i}, Until: s.Now + core.Time(1+s.up(30))*core.Second, CPUMilli: int64(s.up(3)) * 500, MemMiB: int64(s.up(3))}
			_ = s.Apply(ev) // it may have no GPU, or be about to go on
		}
	case k < 34:
		if j, i, ok := s.somePod(func(_ *job, p *pod) bool { return p.standby != nil }); ok {
			s.Must(core.StandbyEnded{Job: j, Pods: []int{i}})
		}
	case k < 35:
		s.found()
	case k < 36 && n.up && s.chance(3):
		s.Must(core.NodeLost{Node: name})
	case k < 36 && !n.up:
		s.Must(core.NodeAdded{Node: s.lendingNode(name)})
	case k < 37 && n.up && s.chance(2):
		s.Must(core.NodeChanged{Node: s.lendingNode(name)})
	case k < 38 && n.up:
		s.Must(pick[core.Event](s, core.NodeCordoned{Node: name, Cordoned: !n.cordoned}, core.DeviceHealth{Node: name, GPU: s.up(n.GPUs), Healthy: !s.chance(3)}))
	default:
		s.Now += core.Time(1+s.up(8)) * core.Second
		s.Must(core.Tick{})
	}
}

// lendJob submits a job of one task.
func (s *story) lendJob(j core.Job, t core.Task) {
	s.jobs++
	j.Name, j.Queue, j.Submitted, j.Tasks = fmt.Sprintf("j%d", s.jobs), "q", s.Now, []core.Task{t}
	s.Must(core.JobSubmitted{Job: j})
}
