package place

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core/cluster"
)

// group is a leaf group of a random cluster as a placement finds it.
type group struct {
	nodes []cluster.NodeID
	slots int // pods that fit
	whole bool
}

// TestLeastEntropy compares the leaf groups of gangs of one task with all other ways to
// divide their pods: none has less entropy, and none of the same leaves more groups whole.
func TestLeastEntropy(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		up := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "v") }
		s := cluster.New([]string{"leaf"})
		gpus := 1 << up(4)
		groups := make([]group, 2+up(4))
		slots := 0
		for i := range groups {
			g := &groups[i]
			g.whole = true
			for range 1 + up(4) {
				id, err := s.AddNode(cluster.NodeSpec{Name: fmt.Sprint("n", s.Nodes()), Model: "A", GPUs: 8, Domains: []string{fmt.Sprint("l", i)}})
				if err != nil {
					rt.Fatal(err)
				}
				if busy := up(9) * up(2); busy > 0 {
					s.Place(cluster.Owner{Job: 9}, cluster.Alloc{Node: id, GPUs: 1<<busy - 1, Share: cluster.WholeGPU})
					s.Commit()
					g.whole = false
				}
				g.nodes = append(g.nodes, id)
				g.slots += s.Node(id).Free() / gpus
			}
			slots += g.slots
		}
		if slots == 0 {
			return
		}
		p := NewPlacer(s)
		sh := p.Shape(&cluster.Request{GPU: cluster.Milli(gpus) * cluster.WholeGPU})
		u := &Unit{Strategy: EBinpack, Whole: true, Required: -1, Preferred: -1, Tasks: []Task{{Shape: sh, Pods: make([]int32, 1+up(slots))}}}
		for i := range u.Tasks[0].Pods {
			u.Tasks[0].Pods[i] = int32(i)
		}
		placed, ok := p.Gang(u)
		if !ok {
			rt.Fatalf("%d pods of %d GPUs found no room in %d slots", len(u.Tasks[0].Pods), gpus, slots)
		}
		pods := make([]int, len(groups))
		for i := range placed {
			pods[s.Domain(placed[i].Alloc.Node, 0)]++
		}
		got := worthOf(groups, pods, gpus)
		best := got
		divide(groups, len(placed), func(other []int) {
			if w := worthOf(groups, other, gpus); w.concentration > best.concentration || w.concentration == best.concentration && w.whole > best.whole {
				best = w
			}
		})
		// Of groups that each hold the gang, the tightest is taken, whole or not.
		if got.concentration != best.concentration || got.used > 1 && got.whole != best.whole {
			rt.Fatalf("%d pods of %d GPUs in %+v as %v: %+v, best is %+v", len(placed), gpus, groups, pods, got, best)
		}
	})
}

// worth is what a division of pods among groups is worth: the sum of NLogN, which is
// greater for less entropy, the groups that stay whole and those that are used.
type worth struct {
	concentration int64
	whole, used   int
}

func worthOf(groups []group, pods []int, gpus int) worth {
	var w worth
	for i, n := range pods {
		w.concentration += NLogN(n * gpus)
		if groups[i].whole && n == 0 {
			w.whole++
		}
		if n > 0 {
			w.used++
		}
	}
	return w
}

// divide calls try with every way to divide pods among groups.
func divide(groups []group, pods int, try func([]int)) {
	of := make([]int, len(groups))
	var from func(i, left int)
	from = func(i, left int) {
		if i == len(groups) {
			if left == 0 {
				try(of)
			}
			return
		}
		for of[i] = 0; of[i] <= min(left, groups[i].slots); of[i]++ {
			from(i+1, left-of[i])
		}
		of[i] = 0
	}
	from(0, pods)
}
