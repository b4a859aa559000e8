package gputime

import (
	"cmp"

	"github.com/muster-sched/muster/core/cluster"
)

// This file has the indexes, received / deserved, and the order that they give.

// Index returns the index of an account, in billionths.
func (l *Ledger) Index(a *Account) int64 {
	l.divide()
	if a.knows != l.version || a.indexHeld != a.held {
		a.index = index(a.received.plus(a.held, l.horizon), a.deserved.plus(a.rate, l.horizon))
		a.knows, a.indexHeld = l.version, a.held
	}
	return a.index
}

// JobIndex returns the index of a job, in billionths.
func (l *Ledger) JobIndex(j *Job) int64 { return l.jobIndex(j, j.held, Amount{}) }

// Behind reports whether a job that waits would have received less than one that runs even if they changed places: if it had
// more units and had received lost beside, which is what that costs; and the other one had less units. Plans in
// progress count as carried out. If the two are of different queues, their queues are compared, as by [Ledger.Compare].
func (l *Ledger) Behind(j *Job, more int64, lost Amount, o *Job, less int64) bool {
	x, y := beside(j.account, o.account)
	if x == y {
		return l.jobIndex(j, j.placed+more, lost) < l.jobIndex(o, o.placed-less, Amount{})
	}
	l.divide()
	return index(x.received.add(lost).plus(x.placed+more, l.horizon), x.deserved.plus(x.rate, l.horizon)) <
		index(y.received.plus(max(0, y.placed-less), l.horizon), y.deserved.plus(y.rate, l.horizon))
}

// Work returns the amount of so many milli-GPU x seconds on a model of this rate.
func Work(milliSeconds, rate int64) Amount {
	return Amount{}.plus(milliSeconds, Time(rate)*cluster.Second)
}

// jobIndex returns the index of a job that has units, and has received more beside.
func (l *Ledger) jobIndex(j *Job, units int64, more Amount) int64 {
	l.divide()
	rate := int64(0)
	if j.wanted > 0 {
		i, _ := j.account.sizeOf(j.wanted)
		rate = j.account.sizes[i].rate
	}
	return index(j.Received(l).add(more).plus(max(0, units), l.horizon), j.Deserved().plus(rate, l.horizon))
}

// Compare is negative if the queue of a comes before that of b: if it, or the queue above it that is beside one
// above the other queue, has the lower index; or the first name, of equal indexes.
func (l *Ledger) Compare(a, b *Job) int {
	x, y := beside(a.account, b.account)
	if x == y {
		return 0
	}
	return cmp.Or(cmp.Compare(l.Index(x), l.Index(y)), cmp.Compare(x.Name, y.Name), cmp.Compare(x.depthOfOwn(), y.depthOfOwn()))
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
