package worker

import "strings"

// graphs cuts the operations of each GPU into graphs, at the events that order them with transfers: only the first of a graph
// waits for other streams, and only the last is waited for. So one that is launched at the place of its last operation waits
// for what came before its first, and the order of submission still has no cycle. A lone operation is no graph. The graphs
// are by their last operations.
func (c *Code) graphs() map[int][]int {
	all, open := map[int][]int{}, map[int][]int{} // open are those that may go on, by GPU
	end := func(gpu int) {
		if ops := open[gpu]; len(ops) > 1 {
			all[ops[len(ops)-1]] = ops
		}
		delete(open, gpu)
	}
	for i := range c.Ops {
		o := &c.Ops[i]
		if o.Kind != Initialize && o.Kind != Execute {
			continue
		}
		if len(o.Waits) > 0 {
			end(o.GPU)
		}
		open[o.GPU] = append(open[o.GPU], i)
		if o.Recorded {
			end(o.GPU)
		}
	}
	for gpu := range open {
		end(gpu)
	}
	return all
}

// captured is a graph of a code, which has other addresses in each slot.
type captured struct{ code, slot, last int }

// graphOf returns the driver's graph of operations, and makes it when they run for the first time. Iterations that do the
// same, at the same addresses, have the same graph.
func (x *site) graphOf(code *Code, ops []int, q *Post, s int) int {
	at := captured{q.Code, q.Slot, ops[len(ops)-1]}
	n, ok := x.graphs[at]
	if ok {
		return n
	}
	on := func(s int) (all []string) {
		for _, i := range ops {
			all = append(all, x.commands(&code.Ops[i], q.Slot, s)...)
		}
		return all
	}
	key := strings.Join(on(-1), "\n") // whatever the stream
	if n, ok = x.same[key]; !ok {
		n = x.process.Graph(s, on(s))
		x.same[key] = n
	}
	x.graphs[at] = n
	return n
}
