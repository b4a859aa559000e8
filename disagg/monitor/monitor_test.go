package monitor

import (
	"testing"

	"pgregory.net/rapid"
)

// A window that waits is enough for Throughput. The way back takes calm windows that follow each other, the last with one
// request or none: requests that overlap do not wait under Throughput, but would under Latency.
func TestHysteresis(t *testing.T) {
	m := New(Config{Window: 100, Beta: 1.2, Calm: 200, Stall: 30})
	for i, c := range []struct {
		present, executed Time
		want              Policy
	}{
		{100, 100, Latency},
		{119, 100, Latency}, // calm
		{150, 100, Throughput},
		{100, 100, Throughput}, // calm
		{130, 100, Throughput}, // and not
		{100, 100, Throughput},
		{200, 200, Throughput}, // calm twice, but two requests
		{101, 100, Throughput},
		{100, 100, Latency},
		{90, 0, Throughput}, // present, and none executes
		{0, 0, Throughput},  // no request is calm
		{0, 0, Latency},
	} {
		if got := m.Close(Window{c.present, c.executed}); got != c.want {
			t.Errorf("window %d: policy %d, want %d", i+1, got, c.want)
		}
	}
}

// With two switches at once and one more every four windows, the way back has to be paid for twice: a monitor under Latency
// can always go to Throughput.
func TestBudget(t *testing.T) {
	m := New(Config{Window: 100, Beta: 1.2, Calm: 1, Every: 400, Burst: 2, Stall: 30})
	waits, calm := Window{150, 100}, Window{100, 100}
	for i, c := range []struct {
		window Window
		want   Policy
	}{
		{waits, Throughput}, // one switch is left
		{calm, Throughput}, {calm, Throughput}, {calm, Throughput}, {calm, Latency},
		{waits, Throughput}, // nothing is left but a window's share
		{calm, Throughput}, {calm, Throughput}, {calm, Throughput},
		{calm, Throughput}, {calm, Throughput}, {calm, Throughput},
		{calm, Latency}, // 100 at the switch, 700 in seven windows
	} {
		if got := m.Close(c.window); got != c.want {
			t.Errorf("window %d: policy %d, want %d", i+1, got, c.want)
		}
	}
}

// Without calm and a budget the policy follows each window, as in the paper.
func TestWithoutHysteresis(t *testing.T) {
	m := New(Config{Window: 100, Beta: 1.5})
	for i, present := range []Time{149, 150, 149, 200} {
		if got, want := m.Close(Window{present, 100}), Policy(i%2); got != want {
			t.Errorf("window %d: policy %d, want %d", i+1, got, want)
		}
	}
}

// Whatever the windows measure, in any span the switches are at most as many as the bound says, and a window that waits
// is always followed by Throughput.
func TestSwitchesAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{Window: Time(rapid.IntRange(1, 50).Draw(t, "window")), Beta: 1.2, Calm: Time(rapid.IntRange(0, 200).Draw(t, "calm")),
			Every: Time(rapid.IntRange(0, 300).Draw(t, "every")), Burst: rapid.IntRange(2, 5).Draw(t, "burst"), Stall: 30}
		m := New(c)
		var switched []Time
		was := Latency
		for i := range 100 {
			w := Window{Time(rapid.IntRange(0, 3).Draw(t, "present")), Time(rapid.IntRange(0, 3).Draw(t, "executed"))}
			p := m.Close(w)
			if 10*w.Present >= 12*w.Executed && w.Present > 0 && p != Throughput {
				t.Fatalf("window %d waits, and the policy is Latency", i+1)
			}
			if p != was {
				switched, was = append(switched, Time(i+1)*c.Window), p
			}
		}
		for i := range switched {
			for j := i; j < len(switched); j++ {
				span := switched[j] - switched[i]
				if j-i+1 > c.MostSwitches(span) {
					t.Fatalf("%d switches in %d ns; at most %d", j-i+1, span, c.MostSwitches(span))
				}
			}
		}
	})
}

// Windows that wait and are calm in turn switch as often as the bound allows: after five at once, two in each two times Every.
func TestMostSwitchesIsReached(t *testing.T) {
	c := Config{Window: 10, Beta: 1.2, Every: 30, Burst: 5, Stall: 30}
	m := New(c)
	var switched []Time
	was := Latency
	for i := range 100 {
		w := Window{Present: 100, Executed: 100}
		if was == Latency {
			w.Present = 300
		}
		if p := m.Close(w); p != was {
			switched, was = append(switched, Time(i+1)*c.Window), p
		}
	}
	span := switched[len(switched)-1] - switched[0]
	if got, want := len(switched), c.MostSwitches(span); got != want {
		t.Errorf("%d switches in %d ns; the bound is %d", got, span, want)
	}
}
