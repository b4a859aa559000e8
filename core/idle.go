package core

import (
	"iter"
	"slices"

	"github.com/muster-sched/muster/core/quota"
)

// idleClasses are the classes that are not to be tried for now, by queue: what a queue may use, is owed and was found uncovered in decides
// for all of its classes, and a pass may look at thousands of them several times. So what it reads of them is in one place in memory.
//
// Invariant: each queue in the list has classes, in no order; class.idleIn and class.idle are where a class is. All classes of a list have
// that queue, or none.
type idleClasses struct {
	queues []*idleQueue
	of     map[*quota.Queue]*idleQueue
	count  int
}

// idleQueue is the idle classes of a queue; nil where the queue matters to none of them.
type idleQueue struct {
	queue   *quota.Queue
	at      int   // in the list of queues
	cohort  int32 // of the queue, as far as any of them was found uncovered
	classes []idleClass
	// view and dozing are of the classes that are awake, as [pass.wake] saw them last.
	view   view
	dozing dozing
}

// all yields the idle classes, the last ones first: the one that is yielded may leave the list, or go to its end.
func (s *idleClasses) all() iter.Seq[*idleClass] {
	return func(yield func(*idleClass) bool) {
		for n := len(s.queues) - 1; n >= 0; n-- {
			q := s.queues[n]
			for i := len(q.classes) - 1; i >= 0; i-- {
				if !yield(&q.classes[i]) {
					return
				}
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
	q := s.of[c.id.queue]
	if q == nil {
		q = &idleQueue{queue: c.id.queue, at: len(s.queues)}
		s.of[c.id.queue] = q
		s.queues = append(s.queues, q)
	}
	c.idleIn, c.idle = q, len(q.classes)
	q.classes = append(q.classes, idleClass{class: c, state: c.state, first: c.first})
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
	c.idleIn = nil
	s.count--
	switch {
	case last == 0:
		end := len(s.queues) - 1
		s.queues[q.at] = s.queues[end]
		s.queues[q.at].at = q.at
		s.queues[end] = nil
		s.queues = s.queues[:end]
		delete(s.of, q.queue)
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
