package plan

import "math"

// network is a flow network whose capacities change and whose shape does not. Its minimum cut
// is found by Dinic's algorithm, in integers, so that the value is exact and no rounding keeps
// the search going.
type network struct {
	nodes int // the last two are the source and the sink
	head  []int32
	next  []int32 // of each half edge, the next of the same node; e^1 is its reverse
	to    []int32
	cap   []int64
	level []int32
	at    []int32 // the half edge at which the search of a node goes on
	queue []int32
}

func newNetwork(inner int) *network {
	n := inner + 2
	f := &network{nodes: n, head: make([]int32, n), level: make([]int32, n), at: make([]int32, n), queue: make([]int32, 0, n)}
	for i := range f.head {
		f.head[i] = -1
	}
	return f
}

// connect adds an edge and its reverse, and returns the first's number. Capacities are 0.
func (f *network) connect(u, v int) int {
	for _, e := range [2][2]int{{u, v}, {v, u}} {
		f.to = append(f.to, int32(e[1]))
		f.cap = append(f.cap, 0)
		f.next = append(f.next, f.head[e[0]])
		f.head[e[0]] = int32(len(f.to) - 1)
	}
	return len(f.to) - 2
}

// maxFlow saturates the network and returns the value of the minimum cut. After it, level is -1
// for the nodes on the sink's side.
func (f *network) maxFlow() (flow int64) {
	s, t := int32(f.nodes-2), int32(f.nodes-1)
	for f.layer(s, t) {
		copy(f.at, f.head)
		for {
			pushed := f.push(s, t, math.MaxInt64)
			if pushed == 0 {
				break
			}
			flow += pushed
		}
	}
	return flow
}

// layer numbers the nodes by their distance from s, and reports whether t has one.
func (f *network) layer(s, t int32) bool {
	for i := range f.level {
		f.level[i] = -1
	}
	f.level[s] = 0
	f.queue = append(f.queue[:0], s)
	for i := 0; i < len(f.queue); i++ {
		u := f.queue[i]
		for e := f.head[u]; e >= 0; e = f.next[e] {
			if v := f.to[e]; f.cap[e] > 0 && f.level[v] < 0 {
				f.level[v] = f.level[u] + 1
				f.queue = append(f.queue, v)
			}
		}
	}
	return f.level[t] >= 0
}

func (f *network) push(u, t int32, most int64) (pushed int64) {
	if u == t {
		return most
	}
	for ; f.at[u] >= 0; f.at[u] = f.next[f.at[u]] {
		e := f.at[u]
		v := f.to[e]
		if f.cap[e] == 0 || f.level[v] != f.level[u]+1 {
			continue
		}
		d := f.push(v, t, min(most-pushed, f.cap[e]))
		f.cap[e] -= d
		f.cap[e^1] += d
		if pushed += d; pushed == most {
			return pushed
		}
	}
	return pushed
}

// cutter minimizes a weighted sum of loads over plans on two GPUs, as a minimum cut: an item on
// the source's side is on GPU 0.
type cutter struct {
	in       *instance
	net      *network
	terminal []int // of each item, the edge from the source; the next connects the sink
	between  []int // of each arc, the edge
}

func newCutter(in *instance) *cutter {
	c := &cutter{in: in, net: newNetwork(in.items)}
	for i := range in.items {
		c.terminal = append(c.terminal, c.net.connect(in.items, i))
		c.net.connect(i, in.items+1)
	}
	for i := range in.arcs {
		c.between = append(c.between, c.net.connect(in.arcs[i].from, in.arcs[i].to))
	}
	return c
}

// solve returns an optimal plan and a lower bound of the optimum. Capacities are rounded down to
// a 2^-44th of their sum, so the bound is below the optimum by 2^-32 of it at most.
func (c *cutter) solve(e *energy) ([]int, float64) {
	in := c.in
	sum, base := 0.0, 0.0
	for _, x := range e.item {
		sum += x
	}
	for i := range e.arc {
		sum += e.arc[i]
	}
	if sum == 0 {
		return make([]int, in.items), 0
	}
	scale := math.Ldexp(1, 44) / sum
	for i := range in.items {
		on0, on1 := e.item[2*i], e.item[2*i+1]
		least := min(on0, on1)
		base += least
		t := c.terminal[i]
		c.net.cap[t], c.net.cap[t+1] = int64((on1-least)*scale), 0
		c.net.cap[t+2], c.net.cap[t+3] = int64((on0-least)*scale), 0
	}
	for i, b := range c.between {
		c.net.cap[b], c.net.cap[b+1] = int64(e.arc[4*i+1]*scale), int64(e.arc[4*i+2]*scale)
	}
	flow := c.net.maxFlow()
	at := make([]int, in.items)
	for i := range at {
		if c.net.level[i] < 0 {
			at[i] = 1
		}
	}
	return at, (base + float64(flow)/scale) * (1 - 1e-12)
}
