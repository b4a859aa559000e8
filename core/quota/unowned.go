package quota

import (
	"fmt"
	"maps"
	"slices"

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
	l.lent, l.divided, l.lastDivision = maps.Clone(capacity), nil, nil
	l.bookings++
	l.settings++
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

// Overbooked is a model, [AnyModel] or a resource, by its account, of which queues own more than there is.
type Overbooked struct {
	Account         string
	Owned, Capacity Milli
}

// String says so.
func (o Overbooked) String() string {
	return fmt.Sprintf("the queues own %s of %s, and the nodes have %s",
		AmountText(o.Account, o.Owned), AccountText(o.Account), AmountText(o.Account, o.Capacity))
}

// Overbooked lists what queues own more of than capacity has, in the order of the accounts. What a queue owns without
// limit does not count. It costs O(queues x accounts).
func (l *Ledger) Overbooked(capacity map[string]Milli) []Overbooked {
	var out []Overbooked
	for _, account := range slices.Sorted(maps.Keys(l.root.accounts)) {
		o := Overbooked{Account: account, Capacity: capacity[account]}
		for _, q := range l.order {
			if owned := q.owns(account); owned < MaxQuota {
				o.Owned = cluster.Plus(o.Owned, owned)
			}
		}
		if o.Owned > o.Capacity {
			out = append(out, o)
		}
	}
	return out
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
