package pipeline

import "container/heap"

// mostConcurrent is the largest number of kernels on a GPU, and parts is divisible by each number
// up to it: work in units of 1/parts nanoseconds can be shared without a remainder.
const (
	mostConcurrent = 8
	parts          = 840
)

// rank orders what waits for a GPU or a link. Transfers into the next iteration have the second
// class, as in §IV of the paper.
type rank struct {
	class, request int // request is 0 without priorities
	ready          int // a number, in the order in which things became ready
}

func (a rank) less(b rank) bool {
	switch {
	case a.class != b.class:
		return a.class < b.class
	case a.request != b.request:
		return a.request < b.request
	}
	return a.ready < b.ready
}

// ranked is a heap of what waits.
type ranked[T interface{ rank() rank }] []T

func (h ranked[T]) Len() int           { return len(h) }
func (h ranked[T]) Less(i, j int) bool { return h[i].rank().less(h[j].rank()) }
func (h ranked[T]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *ranked[T]) Push(x any)        { *h = append(*h, x.(T)) }
func (h *ranked[T]) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

// launch is a kernel that is ready or runs.
type launch struct {
	r            *request
	kernel       int
	at           rank
	left         int64 // work, in units of 1/parts nanoseconds
	counted      Time  // work that the monitor counted in earlier windows
	ready, start Time
}

func (l *launch) rank() rank { return l.at }

// gpu runs some kernels at once, each at an equal share of its speed.
type gpu struct {
	queue    ranked[*launch]
	resident []*launch // in the order in which they started
	since    Time      // what is left of the residents is as of then
	version  int       // of the resident set: ends that were scheduled before it changed are void
	busy     Time
}

// advance brings what is left up to date.
func (g *gpu) advance(now Time) {
	if n := int64(len(g.resident)); n > 0 {
		share := int64(now-g.since) * (parts / n)
		for _, l := range g.resident {
			l.left -= share
		}
		g.busy += now - g.since
	}
	g.since = now
}

// ends returns when the first of the residents ends: a nanosecond that has begun counts whole.
func (g *gpu) ends() Time {
	least := g.resident[0].left
	for _, l := range g.resident[1:] {
		least = min(least, l.left)
	}
	per := parts / int64(len(g.resident))
	return g.since + Time((max(0, least)+per-1)/per)
}

// fill starts kernels while there is room, and reports whether any started.
func (g *gpu) fill(now Time, most int) bool {
	if len(g.queue) == 0 || len(g.resident) == most {
		return false
	}
	g.advance(now)
	for len(g.queue) > 0 && len(g.resident) < most {
		l := heap.Pop(&g.queue).(*launch)
		l.start = now
		g.resident = append(g.resident, l)
	}
	g.version++
	return true
}

// finish removes and returns the residents that have ended.
func (g *gpu) finish(now Time) (ended []*launch) {
	g.advance(now)
	kept := g.resident[:0]
	for _, l := range g.resident {
		if l.left <= 0 {
			ended = append(ended, l)
		} else {
			kept = append(kept, l)
		}
	}
	g.resident = kept
	g.version++
	return ended
}

// transfer is bytes on their way to another GPU.
type transfer struct {
	r               *request
	edge, from, to  int
	iteration       int
	at              rank
	takes           Time
	ready, start    Time
	counts          Time // what the monitor counted in earlier windows
	counted, landed bool // a kernel waits for it; it has arrived
}

func (t *transfer) rank() rank { return t.at }

// port is the receiving side of a GPU's link, which takes one transfer at a time. A transfer
// holds it for its latency too, as the planner counts.
type port struct {
	queue    ranked[*transfer]
	carrying *transfer
	sending  bool // with shared links
	busy     Time
}
