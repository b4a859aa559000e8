package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/muster-sched/muster/semantic/llm"
	"github.com/muster-sched/muster/semantic/track"
)

// What is printed is what encoding/json prints of the same fields.
func TestReadingsAsJSON(t *testing.T) {
	type line struct {
		File       string    `json:"file"`
		Line       int64     `json:"line_index"`
		Step       *float64  `json:"step"`
		TotalSteps *float64  `json:"total_steps"`
		Epoch      *float64  `json:"epoch"`
		StepTime   *float64  `json:"step_time_s"`
		Throughput *float64  `json:"throughput"`
		Unit       *string   `json:"throughput_unit"`
		Loss       *float64  `json:"loss"`
		NaNLoss    bool      `json:"nan_loss,omitempty"`
		Stage      llm.Stage `json:"stage,omitempty"`
	}
	known := func(v float64) *float64 {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
		return &v
	}
	rng := rand.New(rand.NewPCG(3, 3))
	number := func() float64 {
		switch rng.IntN(8) {
		case 0:
			return []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1e-6, 9.9e-7, 1e15, -1e15, 1e21, 1e20, 1e-9, 5e-324, math.MaxFloat64}[rng.IntN(14)]
		case 1:
			return math.Float64frombits(rng.Uint64())
		case 2, 3, 4:
			return float64(rng.IntN(1_000_000))
		}
		return float64(rng.IntN(1_000_000)-1000) / []float64{1000, 1e5, 1e6, 1e7}[rng.IntN(4)]
	}
	for _, stage := range []llm.Stage{"", llm.Embedded} {
		const file = "a \"<b>\".log"
		var all []*track.Reading
		for i := range 20_000 {
			x := &track.Reading{Line: int64(i), Step: number(), TotalSteps: number(), Epoch: number(), StepTime: number(), Throughput: number(), Loss: number(), HasLoss: rng.IntN(2) == 0}
			x.Unit = []string{"", "tokens/s", "a\"\u2028/s"}[rng.IntN(3)]
			all = append(all, x)
		}
		var got, want bytes.Buffer
		out := bufio.NewWriter(&got)
		if err := printReadings(out, file, stage, all); err != nil || out.Flush() != nil {
			t.Fatal(err)
		}
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		for _, x := range all {
			l := line{file, x.Line, known(x.Step), known(x.TotalSteps), known(x.Epoch), known(x.StepTime), known(x.Throughput), nil, known(x.Loss), false, stage}
			if l.Throughput != nil && x.Unit != "" {
				l.Unit = &x.Unit
			}
			l.NaNLoss = x.HasLoss && l.Loss == nil
			if err := e.Encode(l); err != nil {
				t.Fatal(err)
			}
		}
		lines := bytes.Split(want.Bytes(), []byte("\n"))
		for i, l := range bytes.Split(got.Bytes(), []byte("\n")) {
			if i >= len(lines) || !bytes.Equal(l, lines[i]) {
				t.Fatalf("line %d: %s\nwant %s", i, l, lines[min(i, len(lines)-1)])
			}
		}
	}
}
