//go:build linux

package worker

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Of random traces under random plans, each operation of a GPU is in one graph at most; graphs are in the order of their
// streams, only their first operation waits, only their last is waited for, and none can be longer.
func TestGraphsAreCutAtEvents(t *testing.T) {
	graphs := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		trace := random(r)
		p, err := NewProgram(trace, 2)
		if err != nil {
			t.Fatal(err)
		}
		var gpu []int
		for range trace.Steps {
			gpu = append(gpu, r.IntN(2))
		}
		p.Add(gpu)
		state := p.first()
		for segment := range p.Segments {
			code := p.Compile(segment, state, gpu, []int{0, 0})
			all := code.graphs()
			first := map[int]int{} // of the graph of each operation
			for last, ops := range all {
				graphs++
				if len(ops) < 2 || ops[len(ops)-1] != last {
					t.Fatalf("seed %d: graph %v by %d", seed, ops, last)
				}
				for _, i := range ops {
					if _, twice := first[i]; twice {
						t.Fatalf("seed %d: operation %d is in two graphs", seed, i)
					}
					first[i] = ops[0]
				}
			}
			for g := range 2 {
				before := -1 // the operation before on this GPU
				for i := range code.Ops {
					if o := &code.Ops[i]; o.stream() != (stream{g, g}) {
						continue
					}
					if before >= 0 {
						cut := len(code.Ops[i].Waits) > 0 || code.Ops[before].Recorded
						a, inA := first[before]
						b, inB := first[i]
						if together := inA && inB && a == b; together == cut {
							t.Fatalf("seed %d: operations %d and %d of GPU %d are in one graph: %t; an event is between: %t", seed, before, i, g, together, cut)
						}
					}
					before = i
				}
			}
			state = code.after
		}
	}
	if graphs == 0 {
		t.Error("no graph: the test shows nothing")
	}
}

// With graphs requests write the same bytes, on one machine and on two. A GPU's graphs are what is between transfers, and
// run at the priority of their stream.
func TestGraphs(t *testing.T) {
	for _, network := range []bool{false, true} {
		r := layer(t, 2)
		r.o.Graphs, r.o.Requests = true, 6
		if network {
			apart(t, r, nil)
		}
		_, kept, err := r.run(t, t.Context(), r.on(split))
		if err != nil {
			t.Fatal(err)
		}
		for i := range kept {
			if !slices.Equal(kept[i], r.alone(t, i)) {
				t.Errorf("request %d wrote other bytes", i)
			}
		}
		nodes, priorities := map[string]int{}, map[string]int{}
		for _, line := range r.logged(t, "graph") { // device, priority and nodes
			f := strings.Fields(line)
			nodes[f[0]+" "+f[2]]++
			priorities[f[1]]++
		}
		// Of each request and iteration, feed, up and append; and add and result.
		if len(nodes) != 2 || nodes["0 3"] != 3*6 || nodes["1 2"] != 3*6 || len(priorities) != 3 {
			t.Errorf("graphs by GPU and nodes %v, by priority %v", nodes, priorities)
		}
		if kernels := r.logged(t, "kernel"); len(kernels) != 4*3*6 {
			t.Errorf("%d kernels ran", len(kernels))
		}
		for _, x := range r.o.Server.sites { // append has another address in each iteration; add and result have the same ones
			if want := map[bool]int{false: 3 * (3 + 1), true: 3 * 3}[network]; len(x.same) != want {
				t.Errorf("the site made %d graphs for three slots; expected %d", len(x.same), want)
			}
		}
	}
}
