package quota

import (
	"maps"

	"github.com/muster-sched/muster/core/cluster"
)

// LendUnowned lends to all queues what the cluster has beyond all that they own: capacity is by GPU
// model, by [AnyModel] for all models together, and by the accounts of resources. It reports whether
// there is more of anything to lend than before. It costs O(queues x accounts) if anything has changed
// since the last call.
func (l *Ledger) LendUnowned(capacity map[string]Milli) (more bool) {
	if l.lent != nil && maps.Equal(l.lent, capacity) {
		return false
	}
	l.lent, l.divided = maps.Clone(capacity), nil
	l.bookings++
	unowned := make(map[string]Milli, len(l.root.accounts))
	for name, a := range l.root.accounts {
		left := capacity[name]
		for _, q := range l.order {
			left -= q.owns(name)
		}
		unowned[name] = max(0, left)
		a.subtree += unowned[name] - l.unowned[name]
		more = more || unowned[name] > l.unowned[name]
	}
	l.unowned = unowned
	return more
}

// owns returns what a queue owns of an account itself. Of all models together that is at least what it
// owns of each.
func (q *Queue) owns(account string) (sum Milli) {
	nominal, listed := q.Nominal(account)
	if listed || account != AnyModel {
		return nominal
	}
	for i := range q.Quota {
		sum = cluster.Plus(sum, q.Quota[i].Nominal)
	}
	return sum
}
