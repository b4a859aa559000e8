package metrics

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core"
)

// This file has the users of queues: what they received, and what they deserved of what the own jobs of their queue did.

// userOf returns the account of a user from t on, among those who request or hold something.
func (a *account) userOf(name string, t core.Time) *account {
	u := a.byUser[name]
	if u == nil {
		u = &account{name: name, weight: 1}
		if a.byUser == nil {
			a.byUser = map[string]*account{}
		}
		a.byUser[name] = u
		a.everyone = append(a.everyone, u)
	}
	if u.wanted == 0 && u.held == 0 && !slices.Contains(a.users, u) {
		u.settled, u.rate = t, 0
		a.users = append(a.users, u)
	}
	return u
}

// settleUsers adds what the users of a queue received and deserved up to t. Those who neither request nor hold anything are no longer among
// them.
func (f *fairness) settleUsers(a *account, t core.Time) {
	if a == nil {
		return
	}
	for _, u := range a.users {
		f.settleUser(a, u, t)
	}
	a.users = slices.DeleteFunc(a.users, func(u *account) bool { return u.wanted == 0 && u.held == 0 })
}

// settleUser adds what a user of a queue received and deserved up to t.
func (f *fairness) settleUser(a, u *account, t core.Time) {
	owed, lacked := u.deserved, u.lacks()
	f.settle(u, t)
	a.usersOwed, a.usersLacked = a.usersOwed+u.deserved-owed, a.usersLacked+u.lacks()-lacked
}

// lacks is what an account did not receive of what it deserved.
func (a *account) lacks() float64 { return max(a.deserved-a.received, 0) }

// named reports whether a job of the queue names its user: without any, there are none to compare.
func (a *account) named() bool {
	return a != nil && len(a.byUser) > 0 && (len(a.byUser) > 1 || a.byUser[""] == nil)
}

// unfairnessOfUsers is the share of the GPU time that users deserved so far which they did not receive.
func (f *fairness) unfairnessOfUsers() float64 {
	owed, lacked := 0.0, 0.0
	for _, q := range f.tenants {
		if q.named() {
			owed, lacked = owed+q.usersOwed, lacked+q.usersLacked
		}
	}
	return over(lacked, owed)
}

// users adds the users of queues to the summary, by queue and name.
func (f *fairness) users(out *Fairness) {
	var index []float64
	owed, met := 0.0, 0.0
	for _, q := range f.tenants {
		if !q.named() {
			continue
		}
		for _, u := range q.everyone {
			if u.deserved == 0 && u.received == 0 {
				continue
			}
			x := f.queue(u)
			out.ByUser = append(out.ByUser, UserFairness{
				Queue: q.name, User: u.name, Jobs: u.jobs, Received: x.Received, Deserved: x.Deserved, Index: x.Index, Met: x.Met, Rho: x.Rho,
			})
			if u.deserved > 0 {
				index = append(index, x.Index)
			}
			owed, met = owed+u.deserved, met+u.met
		}
	}
	if len(index) == 0 {
		return
	}
	slices.SortFunc(out.ByUser, func(a, b UserFairness) int { return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.User, b.User)) })
	x := spreadOf(index)
	out.Users = &UsersFairness{
		Users: len(index), Unfairness: f.unfairnessOfUsers(), Mean: over(f.ofUsers, f.time),
		Min: x.Min, Max: x.Max, MaxMin: x.MaxMin, Gini: x.Gini, Met: over(met, owed),
	}
}
