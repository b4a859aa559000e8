package cluster

import (
	"cmp"
	"slices"
	"sort"
)

// Room is how much room a domain has: Slots is how many pods of some number of whole GPUs
// its open nodes can hold, by GPUs alone, Free how many GPUs are free there.
type Room struct {
	Domain      int32
	Slots, Free int32
}

// Compare orders domains from the one with the least room.
func (r Room) Compare(o Room) int {
	return cmp.Or(cmp.Compare(r.Slots, o.Slots), cmp.Compare(r.Free, o.Free), cmp.Compare(r.Domain, o.Domain))
}

// byRoom is the domains of a level in order of their room for pods of one size. It is made
// when it is first requested. Changes of nodes only note which domains are stale: trials
// change much that no search ever looks at.
type byRoom struct {
	gpus  int
	order []Room
	of    []Room // by number of the domain in the pool, as it stands in order
}

// Tightest returns the domain of a level with the least room among those that have room for
// a number of pods of gpus whole devices (at least one), by GPUs alone; false if none has.
// O(log domains + stale domains x log domains).
func (p *Pool) Tightest(level, gpus, pods int) (Room, bool) {
	order := p.levels[level].byRoom(p, level, gpus).order
	i := sort.Search(len(order), func(i int) bool { return int(order[i].Slots) >= pods })
	if i == len(order) {
		return Room{}, false
	}
	return order[i], true
}

// byRoom returns the domains in order of their room for pods of a number of GPUs.
func (l *poolLevel) byRoom(p *Pool, level, gpus int) *byRoom {
	// 1. All orders are brought up to date together, as they share the list of stale domains.
	for _, d := range l.stale {
		l.isStale[d] = false
		for _, o := range l.orders {
			o.move(d, p.room(level, int(d), o.gpus))
		}
	}
	l.stale = l.stale[:0]
	for _, o := range l.orders {
		if o.gpus == gpus {
			return o
		}
	}
	// 2. An order that is new.
	o := &byRoom{gpus: gpus}
	for d := range l.domain {
		o.of = append(o.of, p.room(level, d, gpus))
	}
	o.order = slices.Clone(o.of)
	slices.SortFunc(o.order, Room.Compare)
	l.orders = append(l.orders, o)
	l.isStale = append(l.isStale, make([]bool, len(l.domain)-len(l.isStale))...)
	return o
}

// room returns the room of the i-th domain of a level.
func (p *Pool) room(level, i, gpus int) Room {
	fit, free := p.DomainSlots(level, i, gpus)
	return Room{p.levels[level].domain[i], int32(fit), int32(free)}
}

// move gives a domain its place by the room that it has now.
func (o *byRoom) move(d int32, now Room) {
	was := o.of[d]
	if now == was {
		return
	}
	o.of[d] = now
	from, _ := slices.BinarySearchFunc(o.order, was, Room.Compare)
	to, _ := slices.BinarySearchFunc(o.order, now, Room.Compare)
	if to > from {
		to-- // its old place, before the new one, becomes free
		copy(o.order[from:to], o.order[from+1:to+1])
	} else {
		copy(o.order[to+1:from+1], o.order[to:from])
	}
	o.order[to] = now
}

// touch notes that the room of a domain changed.
func (l *poolLevel) touch(d int32) {
	if len(l.orders) > 0 && !l.isStale[d] {
		l.isStale[d] = true
		l.stale = append(l.stale, d)
	}
}

// forget drops the orders, as a domain is new.
func (l *poolLevel) forget() { l.orders, l.stale, l.isStale = nil, nil, nil }
