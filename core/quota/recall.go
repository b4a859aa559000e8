package quota

// recalled is how much room a queue found since the ledger changed last: many jobs ask about the same
// queue between two changes.
type recalled struct {
	bookings uint64
	account  string // what the first one asked about: most jobs of a queue ask about the same
	found    uint32 // a bit for each of the rooms
	rooms    [depthRoom + 8]Milli
}

// What is found: rooms by their numbers, the last ones [Queue.RoomWithin] the depths from 0 on.
const (
	roomNow = iota
	claimRoom
	owedRoom
	nominalRoom
	depthRoom
)

// recall returns what find returned when nothing had changed since.
func (q *Queue) recall(account string, room int, find func() Milli) Milli {
	r := &q.recalled
	if r.bookings != q.ledger.bookings {
		r.bookings, r.account, r.found = q.ledger.bookings, account, 0
	}
	if account != r.account || room >= len(r.rooms) {
		return find()
	}
	if r.found>>room&1 == 0 {
		r.rooms[room] = find()
		r.found |= 1 << room
	}
	return r.rooms[room]
}
