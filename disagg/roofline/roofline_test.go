package roofline

import (
	"math"
	"testing"

	"github.com/muster-sched/muster/disagg"
	"github.com/muster-sched/muster/disagg/plan"
)

// The weights of the generated models are those of the published ones, in billions of bytes, and
// each has a plan on a pair.
func TestModels(t *testing.T) {
	links, err := disagg.ParseLinks([]string{"200gbps"})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range All {
		p, ok := m.Generate([]string{"A100", "L40S"}, Offline)
		if !ok {
			t.Fatal("no GPUs")
		}
		weights := 0.0
		for _, b := range p.Buffers {
			if n := len(b.Name); n < 5 || b.Name[n-5:] != "cache" && b.Name[n-5:] != "state" {
				weights += float64(b.Bytes) / 1e9
			}
		}
		want := map[string][2]float64{"llama-3-8b": {15.9, 16.2}, "gpt-oss-20b": {12.5, 14.5}, "mamba-codestral-7b": {14, 15}, "qwen2.5-vl-7b": {16, 16.6}, "sd3.5-medium": {1.5, 5}}[m.Name]
		if weights < want[0] || weights > want[1] {
			t.Errorf("%s has %.2f GB of weights, want %v", m.Name, weights, want)
		}
		q, err := p.Problem([]string{"A100", "L40S"}, links, nil)
		if err != nil {
			t.Fatal(err)
		}
		best, err := plan.Best(q, plan.Throughput, plan.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d kernels, %.2f GB, %s %.3f ms, gap %.2f %%", m.Name, len(q.Kernels), weights, best.Shape, 1e3*best.Seconds, 100*best.Gap())
		for _, c := range best.Others {
			t.Logf("  %s %.3f", c.Shape, 1e3*c.Seconds)
		}
	}
}

// Between two GPUs at 200 Gbps, plans for throughput are within 0.6 % of the bound. So they are within 2.5 % where the memories of two or
// three GPUs sum up to little more than the model needs.
func TestGaps(t *testing.T) {
	links, err := disagg.ParseLinks([]string{"200gbps"})
	if err != nil {
		t.Fatal(err)
	}
	check := func(m *Model, gpus []string, memory, most float64) {
		p, _ := m.Generate(gpus, Offline)
		q, err := p.Problem(gpus, links, nil)
		if err != nil {
			t.Fatal(err)
		}
		total, have := 0.0, 0.0
		for _, b := range q.Buffers {
			total += float64(b)
		}
		for _, g := range q.GPUs {
			have += float64(g.Memory)
		}
		for g := range q.GPUs {
			q.GPUs[g].Memory = int64(min(1, memory*total/have) * float64(q.GPUs[g].Memory))
		}
		best, err := plan.Best(q, plan.Throughput, plan.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s, %v, memory %.2f: %s, %.3f ms, gap %.3f %%", m.Name, gpus, memory, best.Shape, 1e3*best.Seconds, 100*best.Gap())
		if best.Gap() > most {
			t.Errorf("%s on %v with %.2f of the memory: gap %.3f %%, want at most %.1f %%", m.Name, gpus, memory, 100*best.Gap(), 100*most)
		}
	}
	for i := range All {
		for _, gpus := range [][]string{{"A100", "L40S"}, {"H100", "RTX6000"}, {"B200", "H100"}} {
			check(&All[i], gpus, 1000, 0.006)
		}
	}
	for _, memory := range []float64{1.8, 1.1, 1.03} {
		check(&All[0], []string{"A100", "L40S"}, memory, 0.005)
		check(&All[2], []string{"H100", "RTX6000"}, memory, 0.025)
	}
	check(&All[0], []string{"A100", "L40S", "H100"}, 1.1, 0.01)
}

// The scan of prompts is products of matrices by chunks of 256, bound by memory on both GPUs; in a decode it is an update of the
// states. Figures by hand, in microseconds.
func TestScans(t *testing.T) {
	p, _ := All[2].Generate([]string{"A100", "L40S"}, Offline)
	want := map[string][]float64{
		// 4 states of 2 MiB that come in and go out, 4080 tokens with 18432 numbers of 2 bytes, and 65536 bytes of states and products.
		"prefill.0.scan": {2 + 434.569216e6/(0.8*1935e3), 2 + 434.569216e6/(0.8*864e3)},
		// 128 states, and 128 tokens.
		"decode.0.scan": {2 + 541.589504e6/(0.8*1935e3), 2 + 541.589504e6/(0.8*864e3)},
	}
	for _, k := range p.Kernels {
		for g, us := range want[k.Name] {
			if math.Abs(k.Micros[g]-us) > 1e-3 {
				t.Errorf("%s on GPU %d: %.4f us, want %.4f", k.Name, g, k.Micros[g], us)
			}
		}
	}
}
