package reproduce

import (
	"testing"

	"github.com/muster-sched/muster/disagg"
	"github.com/muster-sched/muster/disagg/monitor"
	"github.com/muster-sched/muster/disagg/pipeline"
)

// On a minute of bursts the monitor is better than each fixed policy, and than without hysteresis and without requests apart by a
// fifth at least; the same arrivals come again.
func TestTesseraMonitor(t *testing.T) {
	w := online{"bursts", burstArrivals(60*pipeline.Second, 1)}
	if again := burstArrivals(60*pipeline.Second, 1); len(again) != len(w.arrivals) || again[len(again)-1] != w.arrivals[len(w.arrivals)-1] {
		t.Fatal("the same seed gives other arrivals")
	}
	b, err := newMonitorBench()
	if err != nil {
		t.Fatal(err)
	}
	serve := func(by way) served {
		s, err := b.serve(&w, by)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ours := serve(way{monitor: &monitor.Default, apart: true})
	for _, policy := range []disagg.SimPolicy{disagg.SimLatency, disagg.SimThroughput, disagg.SimReplicas} {
		if fixed := serve(way{fixed: policy}); ours.switches == 0 || ours.perToken > fixed.perToken {
			t.Errorf("the monitor switches %d times and takes %.2f ms a token; %s %.2f", ours.switches, ours.perToken, policy, fixed.perToken)
		}
	}
	follows := serve(way{monitor: &monitor.Config{Window: monitor.Default.Window, Beta: monitor.Default.Beta, Stall: monitor.Default.Stall}})
	if 1.2*ours.perToken > follows.perToken {
		t.Errorf("%.2f ms a token; without hysteresis and apart %.2f", ours.perToken, follows.perToken)
	}
}
