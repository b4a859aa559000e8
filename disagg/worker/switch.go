package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/muster-sched/muster/disagg/monitor"
)

// gate lets requests start iterations. With a monitor, placement 0 is for latency, and then only the request that came
// first runs. For throughput all run, by their order: the first under placement 0, and those for which none is left under the
// last. At a change each request goes on with its iteration, and starts the next under the other placement: no request waits for
// another, as their iterations depend on nothing of each other.
type gate struct {
	mu         sync.Mutex
	placements int // between which a monitor chooses, or 0
	active     []int
	now        monitor.Policy
	switches   int
	changed    chan struct{} // closed at each change
}

func newGate(placements int) *gate {
	return &gate{placements: placements, changed: make(chan struct{})}
}

// change wakes all that wait.
func (g *gate) change() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// arrive adds a request that may run now.
func (g *gate) arrive(request int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.active = append(g.active, request)
}

// end removes a request.
func (g *gate) end(request int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.active = slices.DeleteFunc(g.active, func(k int) bool { return k == request })
	g.change()
}

// enter waits until a request may start an iteration, and returns the placement, and the request's rank: how many have come
// before it and have not ended. Without a monitor the placement is -1.
func (g *gate) enter(ctx context.Context, request int) (placement, rank int, err error) {
	for {
		g.mu.Lock()
		rank = slices.Index(g.active, request)
		if g.placements == 0 || g.now == monitor.Throughput || rank == 0 {
			g.mu.Unlock()
			return min(rank, g.placements-1), rank, nil
		}
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, 0, context.Cause(ctx)
		}
	}
}

// count is how often the policy has changed.
func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.switches
}

// use puts a policy in force.
func (g *gate) use(policy monitor.Policy) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now != policy {
		g.now = policy
		g.switches++
		g.change()
	}
}

// meter measures what the monitor has to know of a window: how long requests were present, and how long they executed.
// An iteration executes for the least time that one of the same segment took; the rest of its time it waits for others. A nil
// meter measures nothing.
type meter struct {
	mu       sync.Mutex
	now      func() time.Duration
	present  int
	since    time.Duration // of the last change of present
	sum      time.Duration // of present, in the window
	least    map[int]time.Duration
	segments []*measured
	began    time.Duration // of the window
}

type measured struct {
	segment    int
	start, end time.Duration
	ended      bool
}

func newMeter(now func() time.Duration) *meter {
	return &meter{now: now, least: map[int]time.Duration{}}
}

// add changes how many requests are present.
func (m *meter) add(n int) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.now()
	m.sum += time.Duration(m.present) * (t - m.since)
	m.present, m.since = m.present+n, t
}

// start begins to measure an iteration; what it returns ends that.
func (m *meter) start(segment int) (end func()) {
	if m == nil {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &measured{segment: segment, start: m.now()}
	m.segments = append(m.segments, s)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		s.end, s.ended = m.now(), true
		if least, ok := m.least[segment]; !ok || s.end-s.start < least {
			m.least[segment] = s.end - s.start
		}
	}
}

// close ends a window.
func (m *meter) close() monitor.Window {
	m.add(0)
	m.mu.Lock()
	defer m.mu.Unlock()
	var executed time.Duration
	t := m.now()
	for _, s := range m.segments {
		end := t
		if s.ended {
			end = s.end
		}
		if least, ok := m.least[s.segment]; ok {
			end = min(end, s.start+least)
		}
		executed += max(0, end-max(s.start, m.began))
	}
	w := monitor.Window{Present: monitor.Time(m.sum), Executed: monitor.Time(executed)}
	m.segments = slices.DeleteFunc(m.segments, func(s *measured) bool { return s.ended })
	m.sum, m.began = 0, t
	return w
}

// watch lets the monitor choose at the end of each window, until the context ends.
func watch(ctx context.Context, c monitor.Config, m *meter, g *gate) {
	chooses := monitor.New(c)
	t := time.NewTicker(time.Duration(c.Window))
	defer t.Stop()
	for {
		select {
		case <-t.C:
			g.use(chooses.Close(m.close()))
		case <-ctx.Done():
			return
		}
	}
}
