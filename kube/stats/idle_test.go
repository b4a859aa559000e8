package stats

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
)

// A census that nodes joined and left says what a count of the nodes that are there says.
func TestIdleByTopology(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		levels := r.IntN(3) > 0
		c, there := New("others"), map[int]bool{}
		var nodes []frag.Node
		var counted []Node
		for k := range 60 {
			spec := &core.Node{Name: fmt.Sprint(k), Model: "H800", GPUs: 8, CPUMilli: []int64{96_000, 192_000, 8_000}[r.IntN(3)], MemMiB: 1}
			if levels {
				spec.Domains = []string{"s", []string{"a", "b", ""}[r.IntN(3)]}
			}
			n := frag.Empty(spec)
			n.Take(uint64(r.IntN(2)), 1000, 0, 0, 1)
			nodes = append(nodes, n)
			one := Node{There: 1, Open: 1, Model: Model{Model: "H800", GPUs: 8, Free: 8000}, Levels: levels}
			one.Domain, _ = frag.Path(spec, len(spec.Domains)-1)
			for k := range Shapes {
				one.Idle = append(one.Idle, Shapes[k].Split(&n))
			}
			for k := range Jobs {
				one.Idle = append(one.Idle, Jobs[k].Shape.Split(&n))
			}
			counted = append(counted, one)
		}
		for range 150 {
			k, by := r.IntN(len(nodes)), 1
			if there[k] {
				by = -1
			}
			there[k] = by > 0
			c.AddNode(&counted[k], by)
		}
		var left []frag.Node
		for k := range nodes {
			if there[k] {
				left = append(left, nodes[k])
			}
		}
		level := frag.Across
		if levels {
			level = 1
		}
		for k, j := range Jobs {
			want := frag.Diagnose(left, j.Shape, frag.Within{Pods: j.Pods, Level: level}).Split
			if got := c.Stats(nil).Models[0].Idle[len(Shapes)+k]; got != want {
				t.Fatalf("%s: got %v, want %v", j, got, want)
			}
		}
	}
}
