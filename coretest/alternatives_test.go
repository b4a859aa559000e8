package coretest

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
)

// TestAlternatives lets jobs that can run in several ways, and a few others, share a few nodes, while anything happens to the nodes and
// the pods, and drivers report other goodputs. The twin checks every decision.
func TestAlternatives(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { playAlternatives(rt) })
	resized := 0
	fixed(t, 20, func(rt *rapid.T) { resized += playAlternatives(rt).Evictions })
	if resized < 20 {
		t.Errorf("%d pods were told to leave, expected more", resized)
	}
}

func playAlternatives(rt *rapid.T) *Twin {
	d, _ := policy.ByName("Sia")
	p := d.Policy
	if p.Goodput.Round = 10 * core.Second; rapid.Bool().Draw(rt, "pieces stay") {
		p.Room = core.Room{}
	}
	if rapid.IntRange(0, 4).Draw(rt, "chooses") == 0 {
		p.Goodput = core.Goodput{}
	}
	s := &story{World: NewWorld(rt, core.Config{Policy: p, Levels: testLevels}), rt: rt}
	s.Must(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
	s.nodes = 4
	for i := range s.nodes {
		s.addHalf(i)
	}
	for range 40 {
		s.Now += core.Time(s.up(6)) * core.Second
		s.alternativesEvent()
		s.Decide()
		s.Check()
	}
	s.CheckReplay()
	return s.Twin
}

// addHalf adds a node: half of them have one GPU model, the others another one.
func (s *story) addHalf(i int) {
	s.Must(core.NodeAdded{Node: core.Node{Name: fmt.Sprintf("n%d", i), GPUs: 4, Model: string(rune('A' + i%2)), CPUMilli: 64000, MemMiB: 1000, Domains: []string{"z", "s0", "l0"}}})
}

func (s *story) alternativesEvent() {
	i := s.up(s.nodes)
	n := s.Twin.node(fmt.Sprintf("n%d", i))
	live := s.Twin.Live()
	switch k := s.up(16); {
	case k < 4 || len(live) == 0:
		s.submitAlternatives()
	case k < 8:
		if j, _, ok := s.somePod(leaves); ok {
			s.Must(core.PodsGone{Job: j})
		}
	case k < 10:
		s.Must(core.JobEnded{Job: pick(s, live...)})
	case k < 12:
		j := s.Twin.jobs[pick(s, live...)]
		ev := core.JobMeasured{Job: j.Name, Restart: core.Time(s.up(30)) * core.Second, Until: s.Now + core.Time(s.up(20))*core.Second}
		for range j.Tasks {
			ev.Goodputs = append(ev.Goodputs, int64(s.up(5)))
		}
		if err := s.Apply(ev); (err == nil) != j.Alternatives {
			s.fail(fmt.Errorf("goodputs of %s: %w", j.Name, err))
		}
	case k < 13:
		if j, i, ok := s.somePod(func(_ *job, p *pod) bool { return p.state == running }); ok {
			s.Must(core.PodEnded{Job: j, Pod: i, Failed: true})
		}
	case k < 14 && n.up:
		s.Must(pick[core.Event](s, core.NodeCordoned{Node: n.Name, Cordoned: !n.cordoned}, core.DeviceHealth{Node: n.Name, GPU: s.up(4), Healthy: s.chance(2)}))
	case k < 15 && !n.up:
		s.addHalf(i)
	case k < 15 && s.chance(2):
		s.Must(core.NodeLost{Node: n.Name})
	case k < 15:
		s.findAs(pick(s, live...), n)
	default:
		s.Must(core.Tick{})
	}
}

// findAs has the first pod of any of a job's tasks be found running, as after a restart of the engine: the engine takes it if the job is on no
// node, and the pod may be there.
func (s *story) findAs(name string, n *node) {
	j := s.Twin.jobs[name]
	t := s.up(len(j.Tasks))
	first := slices.IndexFunc(j.pods, func(p pod) bool { return p.task == t })
	ev := core.PodRunning{Job: name, Pod: first, Node: n.Name, Started: s.Now}
	for g := range int(j.Tasks[t].GPU / core.WholeGPU) {
		ev.GPUs = append(ev.GPUs, g)
	}
	was := j.pods[first].state
	if s.Apply(ev) == nil && was != waiting && was != withdrawn {
		s.fail(fmt.Errorf("a pod of %s is found that is on a node, or has ended", name))
	}
}

func (s *story) submitAlternatives() {
	j := core.Job{Name: fmt.Sprintf("j%d", s.jobs), Queue: "q", Gang: true, Alternatives: s.chance(4), Submitted: s.Now}
	s.jobs++
	tasks := 1
	if j.Alternatives = !j.Alternatives; j.Alternatives {
		tasks = 1 + s.up(5)
	}
	for t := range tasks {
		gpus := pick[core.Milli](s, 1000, 2000, 4000)
		task := core.Task{Name: fmt.Sprint(t), Pods: 1, Request: core.Request{GPU: gpus, Models: []string{pick(s, "A", "B")}, Speeds: []int64{int64(1000 * (1 + s.up(4)))}}}
		if gpus == 4000 {
			task.Pods = 1 + s.up(3) // up to more than there are nodes
		}
		j.Tasks = append(j.Tasks, task)
	}
	s.Must(core.JobSubmitted{Job: j})
}
