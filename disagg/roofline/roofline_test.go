package roofline

import (
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
