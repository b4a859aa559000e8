//go:build linux

package check

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/muster-sched/muster/disagg/analyze"
	"github.com/muster-sched/muster/disagg/ptx"
	"github.com/muster-sched/muster/disagg/worker"
	"github.com/muster-sched/muster/gpu/driver"
)

// partition is B6: a step of many short kernels as one graph on one part of the GPU, and cut into graphs on two parts; and on
// one part with calls of cuBLAS in place of a kernel. What counts is that all steps write the same bytes, and the CPU time of
// the driver's calls for a step.
func partition(r *report, l *lab, o driver.Options, s sizes) {
	s.matrix, s.vector, s.layers, s.requests = 16, 512, s.deep, s.steps
	p := &pair{r: r, o: o, s: s, modules: []*ptx.Module{l.module("shapes.ptx"), l.module("elementwise.ptx")}, trace: layers(s, nil)}
	steps := p.replay().Steps
	whole, halves, turns := make([]int, len(steps)), make([]int, len(steps)), make([]int, len(steps))
	for i := 1; i < len(steps); i++ { // three steps are a layer, after the input
		layer := (i - 1) / 3
		halves[i], turns[i] = 2*layer/s.layers, layer%2
	}
	var want [][]byte
	launching := func(what string, gpu []int, graphs bool) (us float64) {
		r.t.Helper()
		var mu sync.Mutex
		wrote := make([][]byte, s.requests)
		ran, err := p.run([][]int{gpu}, func(o *worker.Options) {
			o.Graphs, o.InFlight = graphs, 2
			o.Keep = func(request int, memory []byte) error {
				mu.Lock()
				defer mu.Unlock()
				wrote[request] = memory
				return nil
			}
		})
		if err != nil {
			r.t.Logf("B6: %s: %v", what, err)
		} else {
			us = 1e6 * ran.Driver.Seconds() / float64(s.requests)
			r.record("B6", "launching a step, "+what, us, "us")
		}
		if !graphs {
			want = wrote
			return us
		}
		same := 0
		for i := range want {
			if len(wrote[i]) > 0 && bytes.Equal(wrote[i], want[i]) {
				same++
			}
		}
		r.judge("B6", "same bytes as kernel by kernel, "+what, float64(same), fmt.Sprintf("of %d", len(want)), "all", same == len(want))
		return us
	}
	launching("kernel by kernel", whole, false)
	one := launching("one graph", whole, true)
	two := launching("two graphs on two parts", halves, true)
	launching("a graph a layer", turns, true)
	ratio := 0.0 // of nothing that ran
	if one > 0 {
		ratio = two / one
	}
	r.judge("B6", "launching two graphs, by one", ratio, "x", "at most 2", ratio > 0 && ratio <= 2)
	for i := range p.trace.Nodes {
		c := &p.trace.Nodes[i]
		if c.Kernel != "gemm" {
			continue
		}
		size := analyze.Value(fmt.Sprint(s.matrix))
		p.trace.Nodes[i] = analyze.Call{Name: c.Name, Library: "cublasSgemm", Values: map[string]analyze.Value{"m": size, "n": size, "k": size, "A": c.Args[2], "B": c.Args[1], "C": c.Args[0]}}
	}
	if launching("with cuBLAS, call by call", whole, false) > 0 {
		launching("with cuBLAS, one graph", whole, true)
	}
}
