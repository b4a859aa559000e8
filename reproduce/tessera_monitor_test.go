package reproduce

import (
	"testing"

	"github.com/muster-sched/muster/disagg/monitor"
	"github.com/muster-sched/muster/disagg/pipeline"
)

// On a minute of bursts the monitor is better than the plan for latency, and switches no more often than its bound; the same
// arrivals come again.
func TestTesseraMonitor(t *testing.T) {
	if testing.Short() {
		t.Skip("plans and simulates some ten thousand iterations")
	}
	w := online{"bursts", burstArrivals(60*pipeline.Second, 1)}
	if again := burstArrivals(60*pipeline.Second, 1); len(again) != len(w.arrivals) || again[len(again)-1] != w.arrivals[len(w.arrivals)-1] {
		t.Fatal("the same seed gives other arrivals")
	}
	b, err := newMonitorBench()
	if err != nil {
		t.Fatal(err)
	}
	low, err := b.serve(&w, fixedLatency, nil)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := b.serve(&w, "", &monitor.Default)
	if err != nil {
		t.Fatal(err)
	}
	if ours.switches == 0 || ours.perToken > low.perToken {
		t.Errorf("the monitor switches %d times and takes %.2f ms a token, the plan for latency %.2f", ours.switches, ours.perToken, low.perToken)
	}
}
