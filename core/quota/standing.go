package quota

// Standing is what decides what room a queue's own jobs have below the top of the tree: as long as it is the same, so are
// [Queue.NominalRoom], [Queue.OwedRoom], [Queue.RoomWithin] every depth but 0, and [Queue.ClaimRoom] of its own. What is taken and given back
// leaves the same one elsewhere in the tree.
type Standing struct {
	// settings and booked are of what the queue owns, is owed and uses; accounts is the use of its accounts and those above, from the queue up, but at the
	// top. bookings is of the ledger, where there are more.
	settings, booked, bookings uint64
	accounts                   [mostStanding]standing
}

type standing struct{ usage, counted Milli }

// mostStanding is two accounts at each of three depths.
const mostStanding = 6

// Standing returns the queue's standing for a model.
func (q *Queue) Standing(model string) Standing {
	s, n := Standing{settings: q.ledger.settings, booked: q.booked}, 0
	for _, a := range q.governed(model).uses {
		for ; a.above != nil; a = a.above {
			if n == len(s.accounts) {
				s.bookings = q.ledger.bookings
				return s
			}
			s.accounts[n] = standing{a.usage, a.counted}
			n++
		}
	}
	return s
}
