package quota

import (
	"maps"
	"slices"
)

// Usage is what a queue and all below it own, use and borrow of a GPU model, or of all
// models together: [AnyModel].
type Usage struct {
	Model string
	// Nominal and Used are sums over the queue and all below it. Borrowed is the part of
	// Used that is the quota of others.
	Nominal, Used, Borrowed Milli
}

// Usage returns, by queue, what it and all below it own, use and borrow of each model of
// which there is quota or use, in the order of the models' names. It costs
// O(queues x models).
func (l *Ledger) Usage() map[string][]Usage {
	out := make(map[string][]Usage, len(l.order))
	for _, q := range l.root.children {
		q.sumUp(out)
	}
	return out
}

// sums is what a queue and all below it own and use of a model.
type sums struct {
	nominal, used Milli
	listed        bool // one of the queues has a quota for the model
}

// sumUp adds the usage of the queue and of each one below it to out. It returns the sums
// for the queue, by model.
func (q *Queue) sumUp(out map[string][]Usage) map[string]sums {
	// 1. What the queue itself owns and uses, and what those below it do.
	all := map[string]sums{}
	for _, e := range q.Quota {
		all[e.Model] = sums{nominal: e.Nominal, listed: true}
	}
	for model, gpu := range q.own {
		if gpu != 0 {
			a := all[model]
			a.used = gpu
			all[model] = a
		}
	}
	for _, c := range q.children {
		for model, b := range c.sumUp(out) {
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
