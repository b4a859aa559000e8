package monitor

import (
	"testing"

	"pgregory.net/rapid"
)

// A burst moves the ratio over the upper threshold, its end below the lower one; between them the
// policy stays, and the dwell time keeps it for longer.
func TestHysteresis(t *testing.T) {
	m := New(Config{Window: 100, Up: 1.5, Down: 1.2, Dwell: 250, Stall: 30})
	for i, c := range []struct {
		present, executed Time
		want              Policy
	}{
		{100, 100, Latency},
		{149, 100, Latency},
		{150, 100, Throughput}, // at 300
		{130, 100, Throughput}, // between the thresholds
		{100, 100, Throughput}, // low, but the dwell time is not over
		{120, 100, Latency},    // at 600
		{300, 100, Latency},    // high, but the dwell time is not over
		{0, 0, Latency},        // no request
		{90, 0, Throughput},    // present, and none executes
		{0, 0, Throughput},
		{0, 0, Throughput},
		{0, 0, Latency},
	} {
		if got := m.Close(Time(i+1)*100, Window{c.present, c.executed}); got != c.want {
			t.Errorf("window %d: policy %d, want %d", i+1, got, c.want)
		}
	}
}

// Whatever the windows measure, in any span the switches are at most as many as the bound says.
func TestSwitchesAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{Window: Time(rapid.IntRange(1, 50).Draw(t, "window")), Up: 1.1, Down: 1.1, Dwell: Time(rapid.IntRange(0, 200).Draw(t, "dwell")), Stall: 30}
		m := New(c)
		var switched []Time
		was := Latency
		for i := range 100 {
			now := Time(i+1) * c.Window
			p := m.Close(now, Window{Time(rapid.IntRange(0, 3).Draw(t, "present")), Time(rapid.IntRange(0, 3).Draw(t, "executed"))})
			if p != was {
				switched, was = append(switched, now), p
			}
		}
		for i := range switched {
			for j := i; j < len(switched); j++ {
				if span := switched[j] - switched[i]; j-i+1 > c.MostSwitches(span) {
					t.Fatalf("%d switches in %d ns; at most %d", j-i+1, span, c.MostSwitches(span))
				}
			}
		}
	})
}
