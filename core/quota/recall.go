package quota

// recalled is how much room a queue found since the ledger changed last: many jobs ask about the same
// queue between two changes.
type recalled struct {
	bookings uint64
	rooms    []foundRoom
}

type foundRoom struct {
	account string
	within  int // the depth of [Queue.RoomWithin], or one of those below
	room    Milli
}

// What is found beside the room within a depth.
const (
	roomNow = -1 - iota
	claimRoom
	owedRoom
)

// recall returns what find returned when nothing had changed since.
func (q *Queue) recall(account string, within int, find func() Milli) Milli {
	if r := &q.recalled; r.bookings != q.ledger.bookings {
		r.bookings, r.rooms = q.ledger.bookings, r.rooms[:0]
	}
	for i := range q.recalled.rooms {
		if f := &q.recalled.rooms[i]; f.within == within && f.account == account {
			return f.room
		}
	}
	room := find()
	q.recalled.rooms = append(q.recalled.rooms, foundRoom{account, within, room})
	return room
}
