package interp

import "math/bits"

// waiting is what a thread waits for: a barrier of the block, or other lanes of its warp.
type waiting interface{ waiting() }

// collective is an instruction that lanes of a warp carry out together.
type collective struct {
	mask   *arg // of the lanes; nil is all lanes that have not exited
	loose  bool // without .sync: those that happen to be there
	member func(lanes *[32]*thread, mask uint32)
}

// barrier is a barrier of the block.
type barrier struct {
	id, count arg
	all       bool // of all threads; otherwise count says how many
	cluster   bool
	done      func(t *thread, threads []*thread)
}

func (*collective) waiting() {}
func (*barrier) waiting()    {}

func (t *thread) at() *inst { return &t.frame.f.code[t.pc-1] }

// meet lets go the threads for which all that they wait for have come, and reports whether any.
func (b *block) meet() (met bool) {
	for w := 0; w < len(b.threads); w += 32 {
		for meetWarp(b.threads[w:min(w+32, len(b.threads))]) {
			met = true
		}
	}
	return b.meetBarriers() || met
}

// meetWarp carries out one collective instruction of a warp, if one can be.
func meetWarp(warp []*thread) bool {
	var seen uint32
	busy := false
	live := uint32(0)
	for _, t := range warp {
		busy = busy || t.state == runs
		if t.state != exited {
			live |= 1 << t.lane
		}
	}
	for _, first := range warp {
		if first.state != waits || seen>>first.lane&1 == 1 {
			continue
		}
		op, ok := first.at().wait.(*collective)
		if !ok {
			continue
		}
		var lanes [32]*thread
		group := uint32(0)
		for _, t := range warp {
			if t.state == waits && t.at() == first.at() && (op.mask == nil || t.val(*op.mask) == first.val(*op.mask)) {
				lanes[t.lane] = t
				group |= 1 << t.lane
			}
		}
		seen |= group
		need := live
		switch {
		case op.loose && busy:
			continue
		case op.loose:
			need = group
		case op.mask != nil:
			need = uint32(first.val(*op.mask)) & live
		}
		if need&^group != 0 || need>>first.lane&1 == 0 {
			continue
		}
		op.member(&lanes, need)
		for m := need; m != 0; m &= m - 1 {
			lanes[bits.TrailingZeros32(m)].state = runs
		}
		return true
	}
	return false
}

func (b *block) meetBarriers() (met bool) {
	live := 0
	groups := map[uint64][]*thread{}
	for _, t := range b.threads {
		if t.state != exited {
			live++
		}
		if t.state != waits {
			continue
		}
		if op, ok := t.at().wait.(*barrier); ok {
			id := t.val(op.id)
			if op.cluster {
				id = 1 << 32
			}
			groups[id] = append(groups[id], t)
		}
	}
	for id, group := range groups { // they have no thread in common, so that the order does not matter
		op := group[0].at().wait.(*barrier)
		need := live
		if !op.all {
			need = int(group[0].val(op.count))
		}
		if len(group)+b.arrived[id] < need {
			continue
		}
		delete(b.arrived, id)
		for _, t := range group {
			if op := t.at().wait.(*barrier); op.done != nil {
				op.done(t, group)
			}
		}
		for _, t := range group {
			for _, w := range t.later {
				t.set(w.d, w.v)
			}
			t.later, t.state = nil, runs
		}
		met = true
	}
	return met
}
