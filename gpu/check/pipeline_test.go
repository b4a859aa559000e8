//go:build linux

package check

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/muster-sched/muster/disagg"
	"github.com/muster-sched/muster/disagg/analyze"
	"github.com/muster-sched/muster/disagg/plan"
	"github.com/muster-sched/muster/disagg/ptx"
	"github.com/muster-sched/muster/disagg/ptx/ptxtest"
	"github.com/muster-sched/muster/disagg/worker"
	"github.com/muster-sched/muster/gpu/driver"
)

// layers is a chain of kernels that need computing and kernels that need bandwidth, so that parts of a GPU with unlike
// numbers of multiprocessors run them at unlike ratios. micros has the times of both on each part.
func layers(s sizes, micros map[string]map[string]float64) *analyze.Trace {
	matrix, vector := int64(4*s.matrix*s.matrix), int64(4*s.vector)
	t := &analyze.Trace{}
	at := uint64(1) << 40
	buffer := func(name string, bytes int64) {
		t.Buffers = append(t.Buffers, analyze.Allocation{Name: name, Address: analyze.Value(fmt.Sprint(at)), Bytes: bytes, Type: "f32"})
		at += uint64(bytes) + 1<<20
	}
	buffer("w", matrix)
	buffer("table", vector)
	for i := range s.layers {
		buffer(fmt.Sprint("a", i), matrix)
		buffer(fmt.Sprint("b", i), vector)
	}
	buffer(fmt.Sprint("a", s.layers), matrix)
	whole := func(name string, bytes int64, write bool) analyze.Access {
		return analyze.Access{At: analyze.Value(name), Bytes: bytes, Read: !write, Write: write, All: write}
	}
	t.Nodes = append(t.Nodes, analyze.Call{Name: "in", Copy: &analyze.Copy{To: "a0", Bytes: matrix}, Micros: map[string]float64{"first": 1, "second": 1}})
	small := min(matrix, vector)
	for i := range s.layers {
		a, b, next := fmt.Sprint("a", i), fmt.Sprint("b", i), fmt.Sprint("a", i+1)
		t.Nodes = append(t.Nodes,
			analyze.Call{Name: fmt.Sprint("up", i), Kernel: "gemm", Grid: []int{s.matrix / 16, s.matrix / 16}, Block: []int{16, 16}, Micros: micros["gemm"],
				Args:     []analyze.Value{analyze.Value(next), analyze.Value(a), "w", analyze.Value(fmt.Sprint(s.matrix))},
				Accesses: []analyze.Access{whole(a, matrix, false), whole("w", matrix, false), whole(next, matrix, true)}},
			analyze.Call{Name: fmt.Sprint("mix", i), Kernel: "add_vectorized", Grid: []int{(s.vector + 511) / 512}, Block: []int{128}, Micros: micros["mix"],
				Args:     []analyze.Value{analyze.Value(fmt.Sprint(s.vector)), "0.5", analyze.Value(b + " table table")},
				Accesses: []analyze.Access{whole("table", vector, false), whole(b, vector, true)}},
			analyze.Call{Name: fmt.Sprint("back", i), Kernel: "saxpy", Grid: []int{int(small/4+255) / 256}, Block: []int{256}, Micros: micros["back"],
				Args:     []analyze.Value{analyze.Value(next), analyze.Value(b), "0.5", analyze.Value(fmt.Sprint(small / 4))},
				Accesses: []analyze.Access{whole(b, small, false), whole(next, small, false), whole(next, small, true)}})
	}
	return t
}

// pipelines is B4 and B5: requests in a pipeline on two unequal parts of the GPU, under the planner's plans for several
// links, which the worker makes as slow as that.
func pipelines(r *report, o driver.Options, s sizes) {
	l, err := newLab(r.t, o, s.split)
	if err != nil {
		r.t.Logf("B4, B5: not run: %v", err)
		return
	}
	r.record("B4", "multiprocessors of the first part", float64(l.parts[0]), "")
	r.record("B4", "multiprocessors of the second part", float64(l.parts[1]), "")
	p := &pair{r: r, o: o, s: s, modules: []*ptx.Module{l.module("shapes.ptx"), l.module("elementwise.ptx")}}
	micros := map[string]map[string]float64{}
	runs := l.runs(s)
	back, mix := runs[1], runs[1]
	n := min(s.matrix*s.matrix, s.vector)
	back.grid, back.args = [3]int{(n + 255) / 256, 1, 1}, append(append([]any(nil), back.args[:3]...), uint32(n))
	y, x := back.args[0].(uint64), back.args[1].(uint64)
	mix.grid, mix.block, mix.args = [3]int{(s.vector + 511) / 512, 1, 1}, [3]int{128, 1, 1}, []any{uint32(s.vector), float32(0.5), bytes.Join(ptxtest.Args(y, x, x), nil)}
	for _, x := range []struct {
		name, kernel string
		module       int
		run
	}{{"gemm", "gemm", 0, runs[0]}, {"mix", "add_vectorized", 1, mix}, {"back", "saxpy", 0, back}} {
		micros[x.name] = map[string]float64{}
		for part, label := range []string{"first", "second"} {
			k := l.kernel(part, p.modules[x.module].Source, x.kernel)
			micros[x.name][label] = l.micros(part, s.times, func() { l.launch(part, k, x.run) })
		}
		r.record("B4", x.name+", second part by first", micros[x.name]["second"]/micros[x.name]["first"], "x")
	}
	l.p.Close()
	p.trace = layers(s, micros)
	p.predictions()
	p.orders()
}

// pair is the two parts, with what runs on them.
type pair struct {
	r       *report
	o       driver.Options
	s       sizes
	modules []*ptx.Module
	trace   *analyze.Trace
}

// planned returns the stage time of the best plan for a link that splits kernels, not requests, and the plan.
func (p *pair) planned(gbps float64) (seconds float64, gpu [][]int) {
	p.r.t.Helper()
	g, err := analyze.Analyze("layers", p.trace, p.modules)
	must(p, err)
	profile, err := g.Profile([]string{"first", "second"})
	must(p, err)
	problem, err := profile.Problem([]string{"first", "second"}, disagg.Links{All: link(gbps)}, nil)
	must(p, err)
	best, err := plan.Best(problem, plan.Throughput, plan.Options{LinkLoad: 1})
	must(p, err)
	i := slices.IndexFunc(best.Others, func(c plan.Candidate) bool { return c.Shape == plan.PerPart })
	if i < 0 {
		p.r.t.Fatal("the planner has no plan of this shape")
	}
	split := best.Others[i]
	gpu, err = worker.Placements(disagg.NewAnswer(problem, plan.Throughput, &plan.Plan{Candidate: split, Compute: best.Compute, Transfer: best.Transfer, Held: best.Held}), p.replay())
	must(p, err)
	return split.Seconds, gpu
}

func link(gbps float64) plan.Link { return plan.Link{BytesPerSecond: gbps * 1e9 / 8, Latency: 10e-6} }

func must(p *pair, err error) {
	p.r.t.Helper()
	if err != nil {
		p.r.t.Fatal(err)
	}
}

func (p *pair) replay() *analyze.Replay {
	replay, err := analyze.NewReplay("layers", p.trace, p.modules)
	must(p, err)
	return replay
}

// run runs requests by options that change those of all experiments.
func (p *pair) run(placements [][]int, change func(*worker.Options)) (*worker.Result, error) {
	p.r.t.Helper()
	replay := p.replay()
	program, err := worker.NewProgram(replay, 2)
	must(p, err)
	data := &worker.Data{Replay: replay, Seed: 1}
	o := worker.Options{
		GPUs: []worker.Where{{}, {}}, Requests: p.s.requests, InFlight: 1, Deadline: 2 * time.Minute, Modules: []string{p.modules[0].Source, p.modules[1].Source},
		Split: p.s.split, Server: &worker.Server{Driver: p.o, Dial: worker.Dialer(nil)},
		Content: func(region int) ([]byte, error) { return data.Content(program.Regions[region]) }, Input: data.Input,
	}
	change(&o)
	return worker.Run(p.r.t.Context(), program, placements, o)
}

// stage runs requests, and returns the time for each; the filling of the pipeline is in it.
func (p *pair) stage(placements [][]int, gbps float64, inFlight int, flat bool) time.Duration {
	p.r.t.Helper()
	ran, err := p.run(placements, func(o *worker.Options) {
		input, err := o.Input(0, 0) // of all requests: to make one takes longer than to run it
		must(p, err)
		o.InFlight, o.Slow, o.Flat = inFlight, link(gbps), flat
		o.Input = func(int, int) ([]byte, error) { return input, nil }
	})
	must(p, err)
	last := time.Duration(0)
	for _, x := range ran.Requests {
		last = max(last, x.End)
	}
	return (last - ran.Requests[0].Start) / time.Duration(len(ran.Requests))
}

// predictions is B4: the planner's stage time, and the one measured.
func (p *pair) predictions() {
	near := 0
	for _, gbps := range p.s.speeds {
		seconds, gpu := p.planned(gbps)
		ratio := p.stage(gpu, gbps, 8, false).Seconds() / seconds
		if ratio > 0.9 && ratio < 1.1 {
			near++
		}
		p.r.record("B4", fmt.Sprintf("stage time by the plan's, %.0f Gbps", gbps), ratio, "x")
	}
	p.r.judge("B4", "plans whose stage time is within 10 %", float64(near), fmt.Sprintf("of %d", len(p.s.speeds)), "at least 5", near >= 5)
}

// orders is B5: one request at a time, a pipeline, and a pipeline with priorities, on one plan.
func (p *pair) orders() {
	seconds, gpu := p.planned(200)
	at := map[float64]float64{}
	speeds, ordered := 0, 0
	for _, gbps := range p.s.speeds {
		if gbps > 200 {
			continue
		}
		serial := p.stage(gpu, gbps, 1, false).Seconds()
		flat := p.stage(gpu, gbps, 8, true).Seconds()
		ranked := p.stage(gpu, gbps, 8, false).Seconds()
		at[gbps] = ranked
		p.r.record("B5", fmt.Sprintf("gain of the pipeline, %.0f Gbps", gbps), serial/flat, "x")
		p.r.record("B5", fmt.Sprintf("gain of priorities, %.0f Gbps", gbps), flat/ranked, "x")
		speeds++
		if serial > flat && flat >= ranked*0.99 {
			ordered++
		}
		if gbps == 200 {
			p.r.record("B5", "with priorities, of the plan's throughput", 100*seconds/ranked, "%")
		}
	}
	p.r.judge("B5", "speeds with one by one, pipeline, priorities in order", float64(ordered), fmt.Sprintf("of %d", speeds), "all", ordered == speeds)
	p.r.record("B5", "throughput lost at 25 Gbps, from 200", 100*(1-at[200]/at[25]), "%")
}
