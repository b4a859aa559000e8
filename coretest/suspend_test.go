package coretest

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core"
)

// TestSuspend lets jobs that can be suspended fight for a few nodes, whose memory is short at times, while anything happens to the
// nodes and the pods. The twin checks every decision.
func TestSuspend(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { playSuspensions(rt) })
	suspensions, resumptions := 0, 0
	fixed(t, 20, func(rt *rapid.T) {
		w := playSuspensions(rt)
		suspensions, resumptions = suspensions+w.Suspensions, resumptions+w.Resumptions
	})
	if suspensions < 5 || resumptions < 5 {
		t.Errorf("%d jobs were suspended, %d resumed; expected more", suspensions, resumptions)
	}
}

func playSuspensions(rt *rapid.T) *Twin {
	p := randomPolicy(rt)
	p.Preempt.MaxSuspended, p.Preempt.MinRuntime, p.Preempt.Priority = 20*core.Second, 0, core.InCluster
	s := &story{World: NewWorld(rt, core.Config{Policy: p, Levels: testLevels}), rt: rt}
	if s.quota = s.chance(3); s.quota {
		for _, q := range queueNames {
			s.setQueue(q)
		}
	}
	s.Must(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
	s.nodes = 3
	for i := range s.nodes {
		s.addSmall(fmt.Sprintf("n%d", i))
	}
	for range 40 {
		s.Now += core.Time(s.up(4)) * core.Second
		s.suspendEvent()
		s.Decide()
		s.Check()
	}
	s.CheckReplay()
	return s.Twin
}

func (s *story) addSmall(name string) {
	n := core.Node{
		Name: name, GPUs: 4, Model: "A", CPUMilli: 8000, MemMiB: int64(pick(s, 40, 100, 200)), MaxPods: pick(s, 0, 0, 4), Domains: []string{"z", "s0", "l0"},
		Others: others(2, 2),
	}
	nameSets(&n)
	s.Must(core.NodeAdded{Node: n})
}

// suspendEvent lets something happen to a few jobs and nodes.
func (s *story) suspendEvent() {
	name := fmt.Sprintf("n%d", s.up(s.nodes))
	n := s.Twin.node(name)
	switch k := s.up(16); {
	case k < 5:
		if name := s.submitSuspendable(); s.Twin.jobs[name].Suspend.HostMemMiB > 0 && s.chance(4) {
			s.foundSuspended(name)
		}
	case k < 9:
		if j, _, ok := s.somePod(leaves); ok {
			s.Must(core.PodsGone{Job: j})
		}
	case k < 11:
		if live := s.Twin.Live(); len(live) > 0 {
			s.Must(core.JobEnded{Job: pick(s, live...)})
		}
	case k < 12:
		if j, i, ok := s.somePod(func(_ *job, p *pod) bool { return p.state != done && p.state != withdrawn }); ok {
			p := &s.Twin.jobs[j].pods[i]
			s.Must(core.PodEnded{Job: j, Pod: i, Failed: p.on() && s.chance(2)})
		}
	case k < 13 && n.up:
		s.Must(pick[core.Event](s, core.NodeCordoned{Node: name, Cordoned: !n.cordoned}, core.DeviceHealth{Node: name, GPU: s.up(4), Healthy: s.chance(2)}))
	case k < 14 && !n.up:
		s.addSmall(name)
	case k < 14 && s.chance(2):
		s.Must(core.NodeLost{Node: name})
	default:
		s.Must(core.Tick{})
	}
}

func (s *story) submitSuspendable() string {
	j := core.Job{
		Name: fmt.Sprintf("j%d", s.jobs), Queue: "q", Class: core.Class(s.up(2)), Priority: int32(s.up(4)), Gang: s.chance(2), Submitted: s.Now,
		Checkpoint: pick(s, 0, 0, 15*core.Second),
		Suspend:    core.Suspension{Pause: core.Second, Resume: pick(s, 0, core.Second), HostMemMiB: pick[int64](s, 0, 5, 5, 20)},
	}
	if s.quota {
		j.Queue = pick(s, queueNames...)
	}
	s.jobs++
	task := core.Task{Name: "t", Pods: 1, Request: core.Request{
		GPU: pick[core.Milli](s, 500, 1000, 2000, 4000), CPUMilli: pick[int64](s, 0, 2000, 8000), MemMiB: pick[int64](s, 0, 5, 10),
		Others: pick(s, nil, nil, others(1, 0)),
	}}
	if j.Gang {
		task.Pods = 1 + s.up(3)
	}
	j.Tasks = []core.Task{task}
	s.Must(core.JobSubmitted{Job: j})
	return j.Name
}

// foundSuspended reports that an engine before suspended a new job, where its nodes have room for its images.
func (s *story) foundSuspended(name string) {
	j := s.Twin.jobs[name]
	t := &j.Tasks[0]
	ev := core.JobSuspended{Job: name, Since: s.Now - core.Time(s.up(30))*core.Second}
	more := map[string]int64{}
	for i := range j.pods {
		n := s.Twin.node(fmt.Sprintf("n%d", s.up(s.nodes)))
		more[n.Name]++
		count := int((t.GPU + core.WholeGPU - 1) / core.WholeGPU)
		at := core.Placement{Pod: i, Node: n.Name}
		at.GPUs = (1<<count - 1) << s.up(5-count)
		u, k := s.Twin.use(n), more[n.Name]
		if !n.up || u.mem+k*(t.MemMiB+j.Suspend.HostMemMiB) > n.MemMiB || n.MaxPods > 0 && u.pods+int(k) > n.MaxPods {
			return
		}
		for _, a := range n.Others {
			if x := slices.IndexFunc(t.Others, func(o core.Amount) bool { return o.Name == a.Name }); x >= 0 && u.others[a.Name]+k*t.Others[x].Value > a.Value {
				return
			}
		}
		ev.Pods = append(ev.Pods, at)
	}
	s.Must(ev)
}
