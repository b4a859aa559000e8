package quota

// Standing is what decides what room a queue's own jobs have below the top of the tree: as long as it holds, [Queue.NominalRoom], [Queue.OwedRoom],
// [Queue.RoomWithin] every depth but 0, [Queue.ClaimRoom] of its own and [Queue.Gains] are the same; and as long as [Ledger.AtTop] is, too,
// all that it has room for.
type Standing struct {
	top              *Queue
	settings, booked uint64
}

// Standing returns the queue's standing. It costs O(depth), and to ask whether it holds less.
func (q *Queue) Standing() Standing {
	top := q.top()
	return Standing{top, q.ledger.settings, top.bookedIn}
}

// Holds reports whether nothing has been booked in the queue's part of the tree since, and the tree and what is owed are as they were.
func (s *Standing) Holds() bool {
	return s.top != nil && s.settings == s.top.ledger.settings && s.booked == s.top.bookedIn
}

// Plain reports whether [Queue.RoomNow] of a model changes by as much as one of [Ledger.AtTop], which is returned, in the other direction, as long as the queue's standing holds:
// it counts against one account, no queue from it upwards is isolated or has a limit on what it borrows.
func (q *Queue) Plain(model string) (at int, ok bool) {
	plain := q.governed(model).plain
	return int(plain), plain >= 0
}

// plainIn is Plain, -1 if it is not.
func (q *Queue) plainIn(g *governed) int8 {
	if len(g.uses) != 1 {
		return -1
	}
	for up := q; up != nil; up = up.parent {
		if up.Mode == Isolated {
			return -1
		}
	}
	for a := g.uses[0]; a != nil; a = a.above {
		if a.above != nil && a.borrow != Unlimited || a.subtree > Unlimited/2 {
			return -1
		}
	}
	if g.accounts[0] == AnyModel {
		return 1
	}
	return 0
}

// top returns the queue above it that has no parent; the queue itself if it has none.
func (q *Queue) top() *Queue {
	for q.parent != nil && q.parent.parent != nil {
		q = q.parent
	}
	return q
}

// AtTop returns what all queues without a parent use, beyond what they keep, of a model, and of all models.
func (l *Ledger) AtTop(model string) [2]Milli {
	t := &l.atTop
	if t.bookings != l.bookings || t.model != model {
		*t = atTop{bookings: l.bookings, model: model}
		for i, m := range [...]string{model, AnyModel} {
			if a := l.root.accounts[m]; a != nil {
				t.used[i] = a.usage
			}
		}
	}
	return t.used
}

// atTop is what AtTop returned last, for a model after so many bookings.
type atTop struct {
	bookings uint64
	model    string
	used     [2]Milli
}
