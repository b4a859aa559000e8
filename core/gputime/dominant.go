package gputime

import (
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// This file orders queues by what they hold now: dominant resource fairness (Ghodsi et al., NSDI 2011, Algorithm 1), at every level of the
// tree. The dominant share of a queue is the greatest of its shares of all GPUs, CPU and memory that there are.

// Beside is what jobs hold beside GPUs: CPU in milli-cores, memory in MiB.
type Beside struct{ CPU, Mem int64 }

// SetBeside says what there is beside GPUs.
func (l *Ledger) SetBeside(there Beside) { l.beside = there }

// HoldBeside counts an amount as held by a job from now on, or a negative one no longer.
func (l *Ledger) HoldBeside(j *Job, amount Beside) { j.account.holdBeside(amount) }

// holdBeside counts an amount as held, at all levels.
func (a *Account) holdBeside(amount Beside) {
	for ; a != nil; a = a.parent {
		a.beside.CPU += amount.CPU
		a.beside.Mem += amount.Mem
	}
}

// share is a part of what there is. There may be less than is held, as nodes are lost.
type share struct{ held, there int64 }

// dominant returns the greatest share of an account.
func (l *Ledger) dominant(a *Account) share {
	most := share{0, 1}
	for _, s := range []share{{a.held, l.units}, {a.beside.CPU, l.beside.CPU}, {a.beside.Mem, l.beside.Mem}} {
		if s.held > 0 && s.compare(1, most, 1) > 0 {
			most = s
		}
	}
	return most
}

// compare compares two shares for their weights, exactly: shares that are equal in different resources must be equal here. Of nothing, any
// part is more than all of something.
func (s share) compare(weight int64, o share, of int64) int {
	x, y := product(s.held, o.there, of), product(o.held, s.there, weight)
	return slices.Compare(x[:], y[:])
}

// product returns a x b x c, none of which is negative, the highest 64 bits first.
func product(a, b, c int64) [3]uint64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	carry, low := bits.Mul64(low, uint64(c))
	high, middle := bits.Mul64(high, uint64(c))
	middle, more := bits.Add64(middle, carry, 0)
	return [3]uint64{high + more, middle, low}
}

// index returns the share for a weight in billionths, rounded down, for people.
func (s share) index(weight int64) int64 {
	if weight == 0 {
		return MostIndex
	}
	if s.held/4 >= s.there {
		return 4 * billion / weight // or more
	}
	return cluster.Part(billion, s.held, s.there) / weight
}
