package monitor

import (
	"testing"

	"pgregory.net/rapid"
)

// Waiting adds up until it is worth a switch, and a calm window forgets it. The policy changes back only after
// calm windows that follow each other.
func TestHysteresis(t *testing.T) {
	m := New(Config{Window: 100, Beta: 1.2, Wait: 50, Calm: 200, Stall: 30})
	for i, c := range []struct {
		present, executed Time
		want              Policy
	}{
		{100, 100, Latency},
		{150, 100, Latency},    // 30 beyond
		{119, 100, Latency},    // calm
		{150, 100, Latency},    // 30
		{140, 100, Throughput}, // and 20
		{110, 100, Throughput}, // calm
		{130, 100, Throughput}, // and not
		{110, 100, Throughput},
		{100, 100, Latency}, // calm twice
		{90, 0, Throughput}, // present, and none executes
		{0, 0, Throughput},  // no request is calm
		{0, 0, Latency},
	} {
		if got := m.Close(Window{c.present, c.executed}); got != c.want {
			t.Errorf("window %d: policy %d, want %d", i+1, got, c.want)
		}
	}
}

// Without wait and calm the policy follows each window, as in the paper.
func TestWithoutHysteresis(t *testing.T) {
	m := New(Config{Window: 100, Beta: 1.5})
	for i, present := range []Time{149, 150, 149, 200} {
		if got, want := m.Close(Window{present, 100}), Policy(i%2); got != want {
			t.Errorf("window %d: policy %d, want %d", i+1, got, want)
		}
	}
}

// Whatever the windows measure, in any span the switches are at most as many as the bound says, and each switch
// to throughput has its waiting before it.
func TestSwitchesAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{Window: Time(rapid.IntRange(1, 50).Draw(t, "window")), Beta: 1.2, Wait: Time(rapid.IntRange(0, 5).Draw(t, "wait")), Calm: Time(rapid.IntRange(0, 200).Draw(t, "calm")), Stall: 30}
		m := New(c)
		var switched []Time
		was, waited, up := Latency, Time(0), 0
		for i := range 100 {
			w := Window{Time(rapid.IntRange(0, 3).Draw(t, "present")), Time(rapid.IntRange(0, 3).Draw(t, "executed"))}
			waited += max(0, w.Present-w.Executed)
			p := m.Close(w)
			if p != was {
				switched, was = append(switched, Time(i+1)*c.Window), p
				up += int(p)
			}
		}
		if waited < Time(up)*c.Wait {
			t.Fatalf("%d switches to throughput after waiting of %d ns; each comes after %d", up, waited, c.Wait)
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

// Windows that wait once after each calm time switch as often as the bound allows.
func TestMostSwitchesIsReached(t *testing.T) {
	c := Config{Window: 10, Beta: 1.2, Calm: 30, Stall: 30}
	m := New(c)
	var switched []Time
	was := Latency
	for i := range 100 {
		w := Window{}
		if i%4 == 0 {
			w = Window{Present: 3, Executed: 1}
		}
		if p := m.Close(w); p != was {
			switched, was = append(switched, Time(i+1)*c.Window), p
		}
	}
	first := 1 // a switch to latency: the next comes a window later
	for last := first + 1; last < len(switched); last += 2 {
		span := switched[last] - switched[first]
		if got, want := last-first+1, c.MostSwitches(span); got != want {
			t.Errorf("%d switches in %d ns; the bound is %d", got, span, want)
		}
	}
	if len(switched) != 50 {
		t.Errorf("%d switches in 100 windows; want 50", len(switched))
	}
}
