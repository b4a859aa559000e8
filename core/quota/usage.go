package quota

import (
	"cmp"
	"maps"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// Usage is what a queue and all below it own, use and borrow of a GPU model, of all
// models together, [AnyModel], or of a resource, by its account.
type Usage struct {
	Model string
	// Nominal and Used are sums over the queue and all below it. Borrowed is the part of
	// Used that is the quota of others.
	Nominal, Used, Borrowed Milli
}

// Usage returns, by queue, what it and all below it own, use and borrow of each model of
// which there is quota or use, in the order of the models' names. It costs
// O(queues x models).
func (l *Ledger) Usage() map[string][]Usage { return l.usage(false) }

// ResourceUsage is Usage of the resources that limit a queue or one below it.
func (l *Ledger) ResourceUsage() map[string][]Usage { return l.usage(true) }

func (l *Ledger) usage(resources bool) map[string][]Usage {
	out := make(map[string][]Usage, len(l.order))
	for _, q := range l.root.children {
		q.sumUp(resources, out)
	}
	return out
}

// sums is what a queue and all below it own and use of a model.
type sums struct {
	nominal, used Milli
	listed        bool // one of the queues has a quota for the model
}

// sumUp adds the usage of the queue and of each one below it to out: of GPUs, or of resources. It
// returns the sums for the queue, by account.
func (q *Queue) sumUp(resources bool, out map[string][]Usage) map[string]sums {
	// 1. What the queue itself owns and uses, and what those below it do.
	all := map[string]sums{}
	for e := range q.entries {
		if _, ok := cluster.ResourceOf(e.account); ok == resources {
			all[e.account] = sums{nominal: e.nominal, listed: true}
		}
	}
	for i := range q.own {
		model, used := q.own[i].account, q.own[i].Milli
		_, ok := cluster.ResourceOf(model)
		if used != 0 && ok == resources && (!resources || q.Owner(model) != nil) {
			a := all[model]
			a.used = used
			all[model] = a
		}
	}
	for _, c := range q.children {
		for model, b := range c.sumUp(resources, out) {
			a := all[model]
			all[model] = sums{a.nominal + b.nominal, a.used + b.used, a.listed || b.listed}
		}
	}

	// 2. A quota over all models together is used by the use of each of them.
	_, hasAny := all[AnyModel]
	usedOfAll := Milli(0)
	for _, a := range all {
		usedOfAll += a.used
	}

	// 3. Borrowed is what is used beyond the quota. If neither the queue nor one below it
	// has a quota that limits the model, but one above has, all use is borrowed from that.
	for _, model := range slices.Sorted(maps.Keys(all)) {
		a := all[model]
		u := Usage{Model: model, Nominal: a.nominal, Used: a.used}
		if model == AnyModel {
			u.Used = usedOfAll
		}
		ownedAbove := !hasAny && (q.Owner(model) != nil || q.Owner(AnyModel) != nil)
		if a.listed || ownedAbove {
			u.Borrowed = max(0, u.Used-u.Nominal)
		}
		out[q.Name] = append(out[q.Name], u)
	}
	return all
}

// Borrower is a queue whose jobs use more of an account than it owns, and how much more.
type Borrower struct {
	Queue  string
	Amount Milli
}

// Borrowers lists the other queues that borrow of an account, those that borrow most first, then by name: beyond the
// nominal quota against which their jobs count, or all that those use that count against none. It costs O(queues).
func (q *Queue) Borrowers(account string) []Borrower {
	var out []Borrower
	for _, o := range q.ledger.order {
		a := o.accounts[account]
		if o == q || a == nil {
			continue
		}
		amount := Milli(0)
		switch o.Owner(account) {
		case o:
			amount = a.counted - a.nominal
		case nil:
			for i := range o.own {
				if accounts, _ := o.governing(o.own[i].account); slices.Contains(accounts, account) {
					amount += o.own[i].Milli
				}
			}
		}
		if amount > 0 {
			out = append(out, Borrower{o.Name, amount})
		}
	}
	slices.SortFunc(out, func(a, b Borrower) int {
		return cmp.Or(cmp.Compare(b.Amount, a.Amount), cmp.Compare(a.Queue, b.Queue))
	})
	return out
}
