package plan

import "math"

// network is a flow network whose capacities change and whose shape does not. Its minimum cut
// is found by Dinic's algorithm, in integers, so that the value is exact and no rounding keeps
// the search going. Source and sink are no nodes: a node has an excess instead, so that a phase begins
// at the nodes that still have some, which soon are few.
type network struct {
	first    []int32 // the half edges of node i are first[i] to first[i+1]-1
	to, back []int32 // of each half edge, where it leads, and its reverse
	cap      []int64
	// excess is what a node may still get from the source; below 0, what it may still give to the sink.
	excess []int64
	level  []int32
	at     []int32 // the half edge at which the search of a node goes on
	queue  []int32
}

// newNetwork returns the network of arcs, and of each arc the half edge from its first item.
func newNetwork(in *instance) (f *network, edge []int32) {
	n, half := in.items, 2*len(in.arcs)
	f = &network{first: make([]int32, n+1), to: make([]int32, half), back: make([]int32, half), cap: make([]int64, half), excess: make([]int64, n), level: make([]int32, n), at: make([]int32, n), queue: make([]int32, 0, n)}
	edge = make([]int32, len(in.arcs))
	for i, arcs := range in.incident {
		f.first[i+1] = f.first[i] + int32(len(arcs))
		f.at[i] = f.first[i]
	}
	for a := range in.arcs {
		u, v := in.arcs[a].from, in.arcs[a].to
		e, r := f.at[u], f.at[v]
		f.at[u]++
		f.at[v]++
		f.to[e], f.back[e], f.to[r], f.back[r] = int32(v), r, int32(u), e
		edge[a] = e
	}
	return f, edge
}

// maxFlow saturates the network and returns the flow. After it, level is -1 for the nodes on the
// sink's side of the minimum cut.
func (f *network) maxFlow() (flow int64) {
	for f.layer() {
		copy(f.at, f.first)
		for u := range f.excess {
			if f.excess[u] > 0 {
				pushed := f.push(int32(u), f.excess[u])
				f.excess[u] -= pushed
				flow += pushed
			}
		}
	}
	return flow
}

// layer numbers the nodes by their distance from the nearest with an excess, up to the nearest that
// may give to the sink, and reports whether there is one.
func (f *network) layer() bool {
	f.queue = f.queue[:0]
	for i, x := range f.excess {
		f.level[i] = -1
		if x > 0 {
			f.level[i] = 0
			f.queue = append(f.queue, int32(i))
		}
	}
	last := int32(math.MaxInt32)
	for i := 0; i < len(f.queue); i++ {
		u := f.queue[i]
		if f.excess[u] < 0 {
			last = f.level[u]
		}
		if f.level[u] >= last {
			continue
		}
		for e := f.first[u]; e < f.first[u+1]; e++ {
			if v := f.to[e]; f.cap[e] > 0 && f.level[v] < 0 {
				f.level[v] = f.level[u] + 1
				f.queue = append(f.queue, v)
			}
		}
	}
	return last != math.MaxInt32
}

// push sends up to most from a node toward the sink, and returns how much arrived.
func (f *network) push(u int32, most int64) (pushed int64) {
	if f.excess[u] < 0 {
		pushed = min(most, -f.excess[u])
		f.excess[u] += pushed
		return pushed
	}
	for ; f.at[u] < f.first[u+1]; f.at[u]++ {
		e := f.at[u]
		v := f.to[e]
		if f.cap[e] == 0 || f.level[v] != f.level[u]+1 {
			continue
		}
		d := f.push(v, min(most-pushed, f.cap[e]))
		f.cap[e] -= d
		f.cap[f.back[e]] += d
		if pushed += d; pushed == most {
			return pushed
		}
	}
	return pushed
}

// cutter minimizes a weighted sum of loads over plans on two GPUs, as a minimum cut: an item on
// the source's side is on GPU 0.
type cutter struct {
	in   *instance
	net  *network
	edge []int32 // of each arc, the half edge from its first item
}

func newCutter(in *instance) *cutter {
	net, edge := newNetwork(in)
	return &cutter{in: in, net: net, edge: edge}
}

// solve returns an optimal plan and a lower bound of the optimum. Capacities are rounded down to
// a 2^-44th of their sum, so the bound is below the optimum by 2^-32 of it at most.
func (c *cutter) solve(cost *energy) ([]int, float64) {
	in := c.in
	sum, base := 0.0, 0.0
	for _, x := range cost.item {
		sum += x
	}
	for i := range cost.arc {
		sum += cost.arc[i]
	}
	if sum == 0 {
		return make([]int, in.items), 0
	}
	scale := math.Ldexp(1, 44) / sum
	for i := range in.items {
		on0, on1 := cost.item[2*i], cost.item[2*i+1]
		base += min(on0, on1)
		c.net.excess[i] = int64((on1 - on0) * scale)
	}
	for i, e := range c.edge {
		c.net.cap[e], c.net.cap[c.net.back[e]] = int64(cost.arc[4*i+1]*scale), int64(cost.arc[4*i+2]*scale)
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
