package coretest

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// TestPreferences plays jobs that prefer nodes to clusters of nodes that differ in little else. The twin looks at every node
// for a better one; what is preferred decides neither which jobs start nor how far apart gangs are.
func TestPreferences(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := core.Policy{PreferenceWeight: rapid.SampledFrom([]core.Milli{0, 0, 500, 4000}).Draw(rt, "weight")}
		strategy := place.Strategy(rapid.IntRange(0, len(place.Strategies)-1).Draw(rt, "strategy"))
		p.Placement = core.AllKinds(strategy)
		s := &story{World: NewWorld(rt, core.Config{Policy: p, Levels: testLevels}), rt: rt}
		q := core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}}
		s.Must(q)
		for i := range 2 + s.up(7) {
			n := core.Node{
				Name: fmt.Sprint("n", i), GPUs: pick(s, 4, 4, 8), Model: pick(s, "A", "A", "B"), CPUMilli: 64000, MemMiB: 1024,
				Domains: []string{"z", "s", pick(s, "l0", "l1")}, Labels: map[string]string{"disk": pick(s, "ssd", "hdd"), "rack": pick(s, "3", "7")},
			}
			if s.chance(4) {
				n.Taints = []core.Taint{{Key: "old", Value: "x", Effect: cluster.PreferNoSchedule}}
			}
			s.Must(core.NodeAdded{Node: n})
		}
		for i := range 1 + s.up(10) {
			j := core.Job{Name: fmt.Sprint("j", i), Queue: "q", Submitted: s.Now, Gang: s.chance(2)}
			task := core.Task{Pods: 1, Request: core.Request{GPU: pick[core.Milli](s, 1000, 2000, 4000, 500, 0), CPUMilli: 1000}}
			if j.Gang {
				task.Pods += s.up(4)
			}
			if s.chance(2) {
				task.Models = []string{pick(s, "A", "B")}
			}
			if s.chance(3) {
				task.Labels = []string{pick(s, "db", "web")}
			}
			if s.chance(4) {
				task.Tolerations = []core.Toleration{{Key: "old"}}
			}
			for range s.up(3) {
				task.Prefers = append(task.Prefers, pick(s, preferences...))
			}
			j.Tasks = []core.Task{task}
			s.Now += core.Second
			s.Must(core.JobSubmitted{Job: j})
			s.Decide()
			s.CheckIdle()
		}
	})
}

// TestPreferencesDecideNothingElse submits one job to equal clusters with what it prefers and without: it starts or waits alike,
// and under strategies that count idle GPUs it leaves as many nodes whole.
func TestPreferencesDecideNothingElse(t *testing.T) {
	ssd := core.Preference{Weight: 100, Selector: []core.Requirement{{Key: "disk", Op: cluster.In, Values: []string{"ssd"}}}}
	rapid.Check(t, func(rt *rapid.T) {
		strategy := place.Strategy(rapid.IntRange(0, len(place.Strategies)-1).Draw(rt, "strategy"))
		nodes := rapid.SliceOfN(rapid.IntRange(0, 31), 1, 8).Draw(rt, "nodes")
		pods, gpus, gang := rapid.IntRange(1, 5).Draw(rt, "pods"), rapid.SampledFrom([]core.Milli{1000, 2000, 4000}).Draw(rt, "gpus"), rapid.Bool().Draw(rt, "gang")
		play := func(prefers []core.Preference) (bound int, idle map[int]int) {
			w := NewWorld(rt, core.Config{Policy: core.Policy{Placement: core.AllKinds(strategy)}, Levels: testLevels})
			w.Must(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
			left := map[string]int{}
			for i, n := range nodes {
				name := fmt.Sprint("n", i)
				w.Must(core.NodeAdded{Node: core.Node{Name: name, GPUs: 4, Model: "A", Domains: []string{"z", "s", fmt.Sprint("l", n>>1&1)}, Labels: map[string]string{"disk": []string{"ssd", "hdd"}[n&1]}}})
				left[name] = 4
				if used := n >> 2; used > 0 && used <= 4 { // some of its GPUs are in use
					w.Must(core.JobSubmitted{Job: core.Job{Name: name, Queue: "q", Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: core.Milli(used) * 1000}}}}})
					var on []int
					for g := range used {
						on = append(on, g)
					}
					w.Must(core.PodRunning{Job: name, Node: name, GPUs: on})
					left[name] -= used
				}
			}
			w.Must(core.JobSubmitted{Job: core.Job{Name: "j", Queue: "q", Gang: gang, Tasks: []core.Task{{Pods: pods, Request: core.Request{GPU: gpus}, Prefers: prefers}}}})
			for _, d := range w.Decide() {
				for _, at := range d.Pods {
					bound++
					left[at.Node] -= int(gpus / 1000)
				}
			}
			idle = map[int]int{}
			for _, n := range left {
				idle[n]++
			}
			return bound, idle
		}
		with, idleWith := play([]core.Preference{ssd})
		without, idle := play(nil)
		if with != without {
			rt.Fatalf("%v: %d pods start, without preferences %d", strategy, with, without)
		}
		if counts := strategy == place.Binpack || strategy == place.EBinpack; counts && fmt.Sprint(idle) != fmt.Sprint(idleWith) {
			rt.Fatalf("%v: idle GPUs by number of nodes %v, without preferences %v", strategy, idleWith, idle)
		}
	})
}
