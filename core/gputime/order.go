package gputime

import (
	"cmp"

	"github.com/muster-sched/muster/core/cluster"
)

// This file has the indexes, received / deserved, and the order that they give.

// Index returns the index of an account, in billionths. That of a queue of weight 0 is the greatest as long as it has deserved nothing, even if
// it has received nothing: it would come before all others with 0.
func (l *Ledger) Index(a *Account) int64 {
	if l.Dominant {
		return l.dominant(a).index(a.weight)
	}
	l.divide()
	if a.knows != l.version || a.indexHeld != a.held {
		deserved := a.deserved.plus(a.rate, l.horizon)
		if a.index = index(a.received.plus(a.held, l.horizon), deserved); a.weight == 0 && deserved == (Amount{}) {
			a.index = MostIndex
		}
		a.knows, a.indexHeld = l.version, a.held
	}
	return a.index
}

// JobIndex returns the index of a job, in billionths.
func (l *Ledger) JobIndex(j *Job) int64 { return l.jobIndex(j, j.held, Amount{}) }

// Swap is a change of places: Job, which waits, gets More units, and From, which runs, gives up Less. That costs Lost, the work of
// From since its last checkpoint, which took Unsaved of the time Ran that it has run for.
type Swap struct {
	Job, From    *Job
	More, Less   int64
	Lost         Amount
	Ran, Unsaved Time
}

// Repairs reports whether a change of places repairs more than it costs: with Lost counted as received by it, the job would still have a
// lower index than the other one, even when its index is raised by the part of the other's run that is lost. Plans in
// progress count as carried out. If the two are of different queues, their queues are compared, as by [Ledger.Compare].
func (l *Ledger) Repairs(s *Swap) bool {
	var behind, ahead int64
	if x, y := beside(s.Job.account, s.From.account); x == y {
		behind, ahead = l.jobIndex(s.Job, s.Job.placed+s.More, s.Lost), l.jobIndex(s.From, s.From.placed-s.Less, Amount{})
	} else {
		l.divide()
		behind = index(x.received.add(s.Lost).plus(x.placed+s.More, l.horizon), x.deserved.plus(x.rate, l.horizon))
		ahead = index(y.received.plus(max(0, y.placed-s.Less), l.horizon), y.deserved.plus(y.rate, l.horizon))
	}
	return cluster.CompareProducts(behind, int64(cluster.Plus(s.Ran, s.Unsaved)), ahead, int64(s.Ran)) < 0
}

// IndexAtEnd returns the index of a job when it ends, in billionths, if its work is done then and it has this time left. What it deserves is as it
// is now until then.
func (l *Ledger) IndexAtEnd(j *Job, work Amount, left Time) int64 {
	l.divide()
	return index(work, j.Deserved().plus(j.rate(), left))
}

// rate returns what a job deserves now.
func (j *Job) rate() int64 {
	if j.wanted == 0 {
		return 0
	}
	i, _ := j.account.sizeOf(j.wanted)
	return j.account.sizes[i].rate
}

// Work returns the amount that units receive in a time.
func Work(units int64, time Time) Amount { return Amount{}.plus(units, time) }

// jobIndex returns the index of a job that has units, and has received more beside.
func (l *Ledger) jobIndex(j *Job, units int64, more Amount) int64 {
	l.divide()
	return index(j.Received(l).add(more).plus(max(0, units), l.horizon), j.Deserved().plus(j.rate(), l.horizon))
}

// Compare is negative if the queue of a comes before that of b: if it, or the queue above it that is beside one
// above the other queue, has the lower index; or the first name, of equal indexes.
func (l *Ledger) Compare(a, b *Job) int {
	x, y := beside(a.account, b.account)
	if x == y {
		return 0
	}
	return cmp.Or(l.compare(x, y), cmp.Compare(x.Name, y.Name), cmp.Compare(x.depthOfOwn(), y.depthOfOwn()))
}

// compare compares two accounts by their indexes.
func (l *Ledger) compare(x, y *Account) int {
	if l.Dominant {
		return cmp.Or(cluster.LastIf(x.weight == 0, y.weight == 0), l.dominant(x).compare(x.parts(), l.dominant(y), y.parts()))
	}
	return cmp.Compare(l.Index(x), l.Index(y))
}

// Rivals returns the accounts by whose indexes [Ledger.Compare] compares two jobs; nil if both are of one queue.
func (l *Ledger) Rivals(a, b *Job) (x, y *Account) {
	if x, y = beside(a.account, b.account); x == y {
		return nil, nil
	}
	return x, y
}

// String names the account.
func (a *Account) String() string {
	if a.own == nil {
		return "own jobs of queue " + a.Name
	}
	return "queue " + a.Name
}

// beside returns the accounts above two accounts, or themselves, that have the same parent; the same account twice
// if they are one.
func beside(a, b *Account) (x, y *Account) {
	for a.depth > b.depth {
		a = a.parent
	}
	for b.depth > a.depth {
		b = b.parent
	}
	for a != b && a.parent != b.parent {
		a, b = a.parent, b.parent
	}
	return a, b
}
