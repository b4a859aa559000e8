package quota

// recalled is how much room a queue found since the ledger changed last: many jobs ask about the same
// queue between two changes.
type recalled struct {
	bookings uint64
	account  string // what the first one asked about: most jobs of a queue ask about the same
	found    uint32 // a bit for each of the rooms
	rooms    [depthRoom + 8]Milli

	// What its own jobs are owed and have is another matter: what other queues use does not change that.
	settings, booked uint64
	ofAccount        string
	foundOwn         uint32
	own              [ownRooms]Milli
}

// What is found: rooms by their numbers, the last ones [Queue.RoomWithin] the depths from 0 on.
const (
	roomNow = iota
	nominalRoom
	depthRoom
)

// What is found of its own jobs alone.
const (
	claimRoom = iota
	owedRoom
	ownRooms
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

// recallOwn returns what find returned when neither what the queue's own jobs use nor what they are owed had changed since.
func (q *Queue) recallOwn(account string, room int, find func() Milli) Milli {
	r := &q.recalled
	if r.settings != q.ledger.settings || r.booked != q.booked {
		r.settings, r.booked, r.ofAccount, r.foundOwn = q.ledger.settings, q.booked, account, 0
	}
	if account != r.ofAccount {
		return find()
	}
	if r.foundOwn>>room&1 == 0 {
		r.own[room] = find()
		r.foundOwn |= 1 << room
	}
	return r.own[room]
}
