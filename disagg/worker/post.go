package worker

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/muster-sched/muster/disagg/analyze"
	"github.com/muster-sched/muster/gpu/driver"
)

// Post is a segment of a request that is to run.
type Post struct {
	Code, Slot, Level int
	Once              *Code          // its code, instead of one that was defined
	Count             uint32         // how many segments the slot has run, with this one
	Inputs            map[int][]byte // by step, what copies from the host bring
}

// Ended is what a site says when a segment has ended there.
type Ended struct {
	Outputs map[int][]byte // by step, what copies to the host brought
}

// Post runs a segment, and returns when it has ended at this site. Several may run at once, each in a slot of its own.
func (x *site) Post(q Post) (Ended, error) {
	code, graphs := q.Once, map[int][]int(nil)
	if code != nil {
		if err := x.checkCode(code); err != nil {
			return Ended{}, err
		}
	}
	x.mu.Lock()
	if code == nil && q.Code >= 0 && q.Code < len(x.codes) {
		code, graphs = x.codes[q.Code], x.cut[q.Code]
	}
	if len(x.links) == 0 || code == nil || q.Slot < 0 || q.Slot >= x.Slots || q.Level < 0 {
		x.mu.Unlock()
		return Ended{}, fmt.Errorf("expected a segment of this run; found number %d in slot %d", q.Code, q.Slot)
	}
	later := map[int]bool{} // operations that a later one submits, the last of their graph
	for last, ops := range graphs {
		for _, i := range ops {
			later[i] = i != last
		}
	}
	used := map[stream]bool{}
	for i := range code.Ops {
		o := &code.Ops[i]
		if o.site(x.Sites) != x.Me {
			continue
		}
		x.bring(o, &q)
		if later[i] {
			continue
		}
		s := x.streamOf(placed{o.stream(), q.Slot, q.Level})
		first := o
		if ops := graphs[i]; ops != nil {
			first = &code.Ops[ops[0]]
		}
		for _, k := range first.Waits {
			x.process.Do("wait %d %d", s, x.eventOf(q.Slot, k, x.own(code.Ops[k].stream())))
		}
		switch {
		case graphs[i] != nil:
			x.process.Replay(x.graphOf(code, graphs[i], &q, s), s)
		case o.Kind == Initialize || o.Kind == Execute:
			x.process.Do("%s", strings.Join(x.commands(o, q.Slot, s), "\n"))
		default:
			x.links[o.stream()].post(o, &q, s)
		}
		if o.Recorded {
			x.process.Do("record %d %d", x.eventOf(q.Slot, i, x.own(o.stream())), s)
		}
		used[o.stream()] = true
	}
	done := make(chan struct{}, len(used))
	for at := range used {
		x.process.Notify(x.streamOf(placed{at, q.Slot, q.Level}), func() { done <- struct{}{} })
	}
	x.mu.Unlock()
	x.process.Flush()
	for range used {
		select {
		case <-done:
		case <-x.ctx.Done():
			return Ended{}, context.Cause(x.ctx)
		}
	}
	return Ended{Outputs: x.outputs(code, q.Slot)}, nil
}

// bring puts what a copy from the host takes into the host's memory.
func (x *site) bring(o *Op, q *Post) {
	if step := &x.Steps[o.Step]; o.Kind == Execute && step.FromHost() {
		at := x.host(q.Slot) + o.Host
		copy(x.process.Host[at:at+int64(step.To.To-step.To.From)], q.Inputs[o.Step])
	}
}

// commands are those of an operation on a GPU, for a slot, on a stream.
func (x *site) commands(o *Op, slot, s int) (all []string) {
	if o.Kind == Initialize {
		for _, r := range o.Bytes {
			all = append(all, x.within(slot, o.GPU, s, r, x.Slots, o.GPU, r.From))
		}
		return all
	}
	step := &x.Steps[o.Step]
	host := x.host(slot) + o.Host
	args := append([]byte(nil), step.Args...)
	for _, at := range step.Pointers {
		binary.LittleEndian.PutUint64(args[at:], x.address(o.GPU, slot, pointer(args, at)))
	}
	switch n := step.To.To - step.To.From; {
	case step.Kernel != "":
		return []string{driver.Launch(x.kernels[o.GPU][step.Kernel], s, step.Grid, step.Block, step.Shared, args)}
	case step.Routine != "":
		var words []string
		for i, a := range analyze.Routine(step.Routine) {
			format := "%d"
			if a == analyze.Scalar {
				format = "@%016x"
			}
			words = append(words, fmt.Sprintf(format, pointer(args, 8*i)))
		}
		return []string{driver.Call(x.calls[o.GPU][step.Routine], s, x.spaces[o.GPU][slot], workspace, words)}
	case step.Fill:
		return []string{fmt.Sprintf("fill %d %d 0 %d", s, x.address(o.GPU, slot, step.To.From), n)}
	case step.FromHost():
		return []string{fmt.Sprintf("put %d %d %d %d", s, x.address(o.GPU, slot, step.To.From), host, n)}
	case step.ToHost():
		return []string{fmt.Sprintf("get %d %d %d %d", s, host, x.address(o.GPU, slot, step.From.From), step.From.To-step.From.From)}
	default:
		return []string{x.within(slot, o.GPU, s, step.To, slot, o.GPU, step.From.From)}
	}
}

// within is the command that copies a range of the trace's addresses to a GPU's memory for a slot, from another slot or GPU.
func (x *site) within(slot, to, s int, r analyze.Range, fromSlot, from int, source uint64) string {
	return fmt.Sprintf("peer %d %d %d %d %d %d", s, x.gpus[to].Number, x.address(to, slot, r.From), x.gpus[from].Number, x.address(from, fromSlot, source), r.To-r.From)
}

func (x *site) outputs(code *Code, slot int) map[int][]byte {
	all := map[int][]byte{}
	for i := range code.Ops {
		o := &code.Ops[i]
		if step := &x.Steps[o.Step]; o.Kind == Execute && o.site(x.Sites) == x.Me && step.ToHost() {
			at := x.host(slot) + o.Host
			all[o.Step] = append([]byte(nil), x.process.Host[at:at+int64(step.From.To-step.From.From)]...)
		}
	}
	return all
}
