package gputime

import "cmp"

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
func (l *Ledger) JobIndex(j *Job) int64 { return l.jobIndex(j, 0, Amount{}) }

func (l *Ledger) jobIndex(j *Job, more int64, extra Amount) int64 {
	l.divide()
	rate := int64(0)
	if j.wanted > 0 {
		i, _ := j.account.sizeOf(j.wanted)
		rate = j.account.sizes[i].rate
	}
	return index(j.Received(l).add(extra).plus(j.held+more, l.horizon), j.Deserved().plus(rate, l.horizon))
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
