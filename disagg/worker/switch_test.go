package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/muster-sched/muster/disagg/monitor"
)

// What a window measures, by hand: three requests of which one executes.
func TestMeter(t *testing.T) {
	now := time.Duration(0)
	m := newMeter(func() time.Duration { return now })
	at := func(ms int) { now = time.Duration(ms) * time.Millisecond }
	window := func(present, executed int) {
		t.Helper()
		want := monitor.Window{Present: monitor.Time(present) * 1e6, Executed: monitor.Time(executed) * 1e6}
		if got := m.close(); got != want {
			t.Errorf("at %s: %+v, want %+v", now, got, want)
		}
	}
	m.add(1)
	end := m.start(0)
	at(4)
	m.add(2)
	at(10)
	window(4+3*6, 10) // it has not ended: all of it counts
	at(16)
	end()
	m.add(-1)
	end = m.start(0) // this one is slower, as another runs beside it
	other := m.start(1)
	at(20)
	window(3*6+2*4, 6+4+4)
	at(36)
	end() // after 20 ms, of which it executed 16
	other()
	m.add(-2)
	at(40)
	window(2*16, 12+16)
	at(50)
	window(0, 0)
	if len(m.segments) != 0 {
		t.Errorf("%d iterations are kept", len(m.segments))
	}
}

// For latency the first request runs alone. For throughput all run: the first goes on under its placement, the second takes the
// next one and all others the last; when one ends, those behind it change.
func TestGate(t *testing.T) {
	g := newGate(3)
	for request := 7; request <= 10; request++ {
		g.arrive(request)
	}
	enter := func(request int) (int, int, error) {
		ctx, stop := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("waits"))
		defer stop()
		return g.enter(ctx, request)
	}
	expect := func(request, placement, rank int) {
		t.Helper()
		if p, r, err := enter(request); err != nil || p != placement || r != rank {
			t.Errorf("request %d: placement %d, rank %d, %v; want %d, %d", request, p, r, err, placement, rank)
		}
	}
	waits := func(request int) {
		t.Helper()
		if _, _, err := enter(request); err == nil || err.Error() != "waits" {
			t.Errorf("request %d starts: %v", request, err)
		}
	}
	expect(7, 0, 0)
	waits(8)
	g.use(monitor.Throughput)
	expect(8, 1, 1)
	expect(9, 2, 2)
	expect(10, 2, 3)
	expect(7, 0, 0)
	g.use(monitor.Throughput)
	g.end(8)
	expect(9, 1, 1)
	g.use(monitor.Latency)
	waits(9)
	expect(7, 0, 0)
	g.end(7)
	expect(9, 0, 0)
	if n := g.count(); n != 2 {
		t.Errorf("%d switches, want 2", n)
	}
}
