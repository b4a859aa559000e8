package reproduce

import (
	"testing"

	"github.com/muster-sched/muster/disagg"
	"github.com/muster-sched/muster/disagg/roofline"
)

// The order of the paper's three pipelines, on fewer requests than the experiment has: a pipeline serves more than
// one request at a time, priorities more than none, and none more than the optimum.
func TestTesseraPipelineOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("plans and simulates 292 kernels in 161 iterations")
	}
	profile, problem, err := tesseraProblem("200gbps", roofline.Offline)
	if err != nil {
		t.Fatal(err)
	}
	last := 0.0
	for _, policy := range []disagg.SimPolicy{disagg.SimSerial, disagg.SimFIFO, disagg.SimThroughput} {
		inFlight := tesseraInFlight
		if policy == disagg.SimSerial {
			inFlight = 1
		}
		r, _, err := runPipe(profile, problem, pipe{policy, 0.125, inFlight, tesseraConcurrent}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.rate <= 1.1*last || r.rate > r.optimum || r.idle < 0 || r.idle > 1 {
			t.Errorf("%s: %.2f requests a second after %.2f, optimum %.2f, idle %.3f", policy, r.rate, last, r.optimum, r.idle)
		}
		last = r.rate
	}
}

// A lone request takes as long as on the A100 where the planner keeps all there.
func TestTesseraLoneRequest(t *testing.T) {
	ratio, err := loneRequest("25gbps")
	if err != nil {
		t.Fatal(err)
	}
	if ratio > 1 || ratio < 0.5 {
		t.Errorf("%.3f of the A100's latency; the plan for latency is never worse", ratio)
	}
}
