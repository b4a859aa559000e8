package frag_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
)

// The engine places as many pods of a shape as the package says are allocatable, and as many
// gangs, across domains and within one.
func TestEngineAgrees(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		up := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "v") }
		shape := frag.Shape{GPU: []core.Milli{500, 1000, 2000, 4000}[up(4)], CPUMilli: int64(up(4)), MemMiB: int64(up(3))}
		y := newYard(rt, up)
		for k := range 3 + up(6) { // what runs already
			r := core.Request{GPU: []core.Milli{0, 250, 1000, 2000, 3000}[up(5)], CPUMilli: int64(up(4)), MemMiB: int64(up(3))}
			y.submit(core.Job{Name: fmt.Sprint("other", k), Tasks: []core.Task{{Name: "t", Pods: 1 + up(3), Request: r}}})
		}
		pods := frag.Diagnose(y.nodes, shape, frag.Within{}).Split[frag.Allocatable] / shape.GPU
		request := core.Request{GPU: shape.GPU, CPUMilli: shape.CPUMilli, MemMiB: shape.MemMiB, Models: []string{"A", "B"}}

		gang := core.Job{Gang: true, Priority: 1} // before those that wait
		var want int
		switch size := 1 + up(4); up(3) {
		case 0: // single pods
			gang.Tasks = []core.Task{{Name: "t", Pods: 1, Request: request}}
			want = int(pods)
		case 1:
			gang.Tasks = []core.Task{{Name: "t", Pods: size, Request: request}}
			want = int(frag.Diagnose(y.nodes, shape, frag.Within{Pods: size, Level: frag.Across, Mixed: true}).Split[frag.Allocatable]/shape.GPU) / size
		case 2:
			gang.Tasks = []core.Task{{Name: "t", Pods: size, Request: request}}
			gang.Topology.Required = "leaf"
			want = int(frag.Diagnose(y.nodes, shape, frag.Within{Pods: size, Level: 1, Mixed: true}).Split[frag.Allocatable]/shape.GPU) / size
			if size == 1 {
				want = int(pods) // on nodes of unknown leaf group too
				gang.Topology.Required = ""
			}
		}
		got := 0
		for gang.Name = "gang0"; y.submit(gang) > 0; got++ {
			gang.Name = fmt.Sprint("gang", got+1)
		}
		if got != want {
			rt.Fatalf("%s, %d pods, %+v: %d started, want %d", shape, gang.Tasks[0].Pods, gang.Topology, got, want)
		}
	})
}

// yard is an engine and the nodes as the package sees them.
type yard struct {
	rt     *rapid.T
	engine *core.Engine
	nodes  []frag.Node
	byName map[string]int
}

func newYard(rt *rapid.T, up func(int) int) *yard {
	e, err := core.New(core.Config{Levels: []string{"spine", "leaf"}})
	if err != nil {
		rt.Fatal(err)
	}
	y := &yard{rt, e, nil, map[string]int{}}
	y.apply(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
	for k := range 1 + up(6) {
		n := core.Node{
			Name: fmt.Sprint("n", k), Model: []string{"A", "B"}[up(2)], GPUs: 1 + up(5), CPUMilli: int64(up(12)), MemMiB: int64(up(12)), MaxPods: max(0, up(8)-3),
			Domains: []string{"s", []string{"", "a", "b"}[up(3)]}, Cordoned: up(8) == 0,
		}
		if up(4) == 0 {
			n.Unhealthy = []int{up(n.GPUs)}
		}
		y.byName[n.Name] = len(y.nodes)
		y.nodes = append(y.nodes, frag.Empty(&n))
		y.apply(core.NodeAdded{Node: n})
	}
	return y
}

func (y *yard) apply(ev core.Event) {
	if err := y.engine.Apply(0, ev); err != nil {
		y.rt.Fatal(err)
	}
}

// submit submits a job and returns how many of its pods are bound at once.
func (y *yard) submit(j core.Job) int {
	j.Queue = "q"
	y.apply(core.JobSubmitted{Job: j})
	bound := 0
	for _, d := range y.engine.Decide(0) {
		if d.Op != core.Bind {
			continue
		}
		for _, p := range d.Pods {
			y.nodes[y.byName[p.Node]].Take(p.GPUs, p.GPU, p.CPUMilli, p.MemMiB, 1)
			bound++
		}
	}
	return bound
}
