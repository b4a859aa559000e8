package coretest

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
)

// TestPreferredGroups submits one gang to equal clusters: with groups that it requires, with groups that it prefers, and without
// groups. If the first starts, each group of the second is in one domain, too; and the second starts if, and only if, the third
// does.
func TestPreferredGroups(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		strategy := rapid.SampledFrom([]place.Strategy{place.EBinpack, place.EBinpack, place.Binpack, place.ESpread, place.Spread}).Draw(rt, "strategy")
		used := rapid.SliceOfN(rapid.IntRange(0, 4), 2, 9).Draw(rt, "used")
		groups, pods, level := rapid.IntRange(1, 3).Draw(rt, "groups"), rapid.IntRange(1, 4).Draw(rt, "pods"), rapid.SampledFrom([]string{"leaf", "spine", "node"}).Draw(rt, "level")
		gpus := rapid.SampledFrom([]core.Milli{1000, 2000, 4000}).Draw(rt, "gpus")
		domain := func(node int) string { // of the level
			switch level {
			case "leaf":
				return fmt.Sprint("l", node%4)
			case "spine":
				return fmt.Sprint("s", node%4/2)
			}
			return fmt.Sprint(node)
		}
		const required, preferred, none = 0, 1, 2
		play := func(how int) map[int]map[string]bool { // the domains of each group; nil if the gang waits
			w := NewWorld(rt, core.Config{Policy: core.Policy{Placement: core.AllKinds(strategy)}, Levels: testLevels})
			w.Must(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
			at := map[string]int{}
			for i, u := range used {
				name := fmt.Sprint("n", i)
				at[name] = i
				w.Must(core.NodeAdded{Node: core.Node{Name: name, GPUs: 4, Model: "A", Domains: []string{"z", fmt.Sprint("s", i%4/2), fmt.Sprint("l", i%4)}}})
				if u > 0 {
					w.Must(core.JobSubmitted{Job: core.Job{Name: name, Queue: "q", Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: core.Milli(u) * 1000}}}}})
					on := []int{0, 1, 2, 3}[:u]
					w.Must(core.PodRunning{Job: name, Pod: 0, Node: name, GPUs: on})
				}
			}
			j := core.Job{Name: "j", Queue: "q", Gang: true}
			for g := range groups {
				label := fmt.Sprint("g", g)
				task := core.Task{Name: label, Pods: pods, Request: core.Request{GPU: gpus}}
				if how != none {
					task.Labels = []string{label}
				}
				switch how {
				case required:
					task.Affinity = []core.Term{{Level: level, Label: label}}
				case preferred:
					task.Prefers = []core.Preference{{Weight: 100, Level: level, Label: label, Group: true}}
				}
				j.Tasks = append(j.Tasks, task)
			}
			w.Must(core.JobSubmitted{Job: j})
			for _, d := range w.Decide() {
				if d.Op == core.Bind && d.Job == "j" {
					in := map[int]map[string]bool{}
					for _, p := range d.Pods {
						if in[p.Pod/pods] == nil {
							in[p.Pod/pods] = map[string]bool{}
						}
						in[p.Pod/pods][domain(at[p.Node])] = true
					}
					return in
				}
			}
			return nil
		}
		is := play(preferred)
		if got, want := is != nil, play(none) != nil; got != want {
			rt.Fatalf("it starts: %t; without groups: %t", got, want)
		}
		if play(required) == nil {
			return
		}
		for g, in := range is {
			if len(in) != 1 {
				rt.Fatalf("group %d is in %v, though each could be in one %s", g, in, level)
			}
		}
	})
}
