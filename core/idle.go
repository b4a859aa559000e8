package core

import (
	"iter"
	"slices"

	"github.com/muster-sched/muster/core/quota"
)

// idleClasses are the classes that are not to be tried for now, by queue and GPU model: what a queue may use, is owed and was found uncovered in decides
// for all of them, and a pass may look at thousands several times. So what it reads of them is in one place in memory.
//
// Invariant: each list has classes, in no order; class.idleIn and class.idle are where a class is.
type idleClasses struct {
	queues []*idleQueue
	of     map[idleID]*idleQueue
	count  int
}

// idleID is what the classes of a list have in common: the queue, nil where that matters to none of them; the model, and whether they are pinned,
// where it can be said simply what they need.
type idleID struct {
	queue  *quota.Queue
	model  string
	pinned bool
}

// idleQueue is a list of idle classes.
type idleQueue struct {
	idleID
	at      int   // in the list of lists
	cohort  int32 // of the queue, as far as any of them was found uncovered
	classes []idleClass
	seen    seen
	calm    calm
}

// all yields the idle classes, the last ones first: the one that is yielded may leave the list, or go to its end.
func (s *idleClasses) all() iter.Seq[*idleClass] {
	return func(yield func(*idleClass) bool) {
		for n := len(s.queues) - 1; n >= 0; n-- {
			for c := range s.queues[n].all() {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// all yields the classes of a list, the last ones first: the one that is yielded may leave the list, or go to its end.
func (q *idleQueue) all() iter.Seq[*idleClass] {
	return func(yield func(*idleClass) bool) {
		for i := len(q.classes) - 1; i >= 0; i-- {
			if !yield(&q.classes[i]) {
				return
			}
		}
	}
}

// any reports whether something is true of an idle class.
func (s *idleClasses) any(is func(*idleClass) bool) bool {
	for c := range s.all() {
		if is(c) {
			return true
		}
	}
	return false
}

// add lists a class that is idle from now on.
func (s *idleClasses) add(c *class) {
	id := idleID{queue: c.id.queue}
	if need, simple := c.simple(); simple {
		id.model, id.pinned = need.model, c.head().pinned
	}
	q := s.of[id]
	if q == nil {
		q = &idleQueue{idleID: id, at: len(s.queues)}
		s.of[id] = q
		s.queues = append(s.queues, q)
	}
	c.idleIn, c.idle = q, len(q.classes)
	q.classes, q.calm = append(q.classes, newIdle(c)), calm{}
	s.count++
}

// remove takes a class off the list, and reports whether it was there.
func (s *idleClasses) remove(c *class) bool {
	q := c.idleIn
	if q == nil {
		return false
	}
	last := len(q.classes) - 1
	q.classes[c.idle] = q.classes[last]
	q.classes[c.idle].class.idle = c.idle
	q.classes[last] = idleClass{}
	q.classes = q.classes[:last]
	c.idleIn, q.seen.pass = nil, 0
	s.count--
	switch {
	case last == 0:
		end := len(s.queues) - 1
		s.queues[q.at] = s.queues[end]
		s.queues[q.at].at = q.at
		s.queues[end] = nil
		s.queues = s.queues[:end]
		delete(s.of, q.idleID)
	case cap(q.classes) > 1024 && last < cap(q.classes)/8:
		q.classes = slices.Clone(q.classes) // each place takes a quarter of a KiB
	}
	return true
}

// idleAs returns what is kept of a class that is idle, nil if it is not.
func (c *class) idleAs() *idleClass {
	if c.idleIn == nil {
		return nil
	}
	return &c.idleIn.classes[c.idle]
}
