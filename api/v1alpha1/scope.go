package v1alpha1

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/quota"
)

// Contain turns the amounts of queues whose quotaScope is Subtree into what each of them owns beside the queues
// below it, which is how the engine has all queues. queues are all that there are, each once; subtree says of which
// of them the amounts are those of the queue with all below it. It returns what is to be said of a queue of which
// those below own more than it has: they own that all the same, and it owns nothing beside them.
//
// Amounts are compared model by model and resource by resource; to "*" counts what queues own of any model. What a
// queue can borrow is what its amounts together are more than what it owns with the queues below it.
func Contain(queues []core.Queue, subtree func(name string) bool) map[string]string {
	index := make(map[string]int, len(queues))
	for i := range queues {
		index[queues[i].Name] = i
	}
	depth := func(i int) int {
		d := 0
		for p, ok := index[queues[i].Parent]; ok && d <= len(queues); p, ok = index[queues[p].Parent] {
			d++
		}
		return d
	}
	order := make([]int, len(queues))
	depths := make([]int, len(queues))
	for i := range queues {
		order[i], depths[i] = i, depth(i)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(depths[b], depths[a]), cmp.Compare(a, b)) })

	below, said := make([]map[string]core.Milli, len(queues)), map[string]string{}
	for _, i := range order {
		q, owned := &queues[i], below[i]
		if owned == nil {
			owned = map[string]core.Milli{}
		}
		all, any := owned[quota.AnyModel], false
		sum := core.Milli(0)
		contain := func(account string, nominal, borrows *core.Milli) {
			theirs := owned[account]
			if !subtree(q.Name) {
				owned[account] = cluster.Plus(theirs, *nominal)
				return
			}
			if theirs > *nominal && said[q.Name] == "" {
				own := quota.AmountText(account, theirs) + " of " + quota.AccountText(account)
				if theirs >= quota.MaxQuota {
					own = quota.AccountText(account) + " without limit"
				}
				said[q.Name] = fmt.Sprintf("the queues below own %s, more than its %s: it owns none beside them", own, quota.AmountText(account, *nominal))
			}
			owned[account] = max(theirs, *nominal)
			if *borrows != core.Unlimited {
				*borrows = max(0, cluster.Plus(*nominal, *borrows)-owned[account])
			}
			if *nominal < quota.MaxQuota {
				*nominal = max(0, *nominal-theirs)
			}
		}
		q.Quota, q.Resources = slices.Clone(q.Quota), slices.Clone(q.Resources)
		for k := range q.Quota {
			e := &q.Quota[k]
			contain(e.Model, &e.Nominal, &e.BorrowingLimit)
			any = any || e.Model == quota.AnyModel
			sum = cluster.Plus(sum, e.Nominal)
		}
		if !any {
			owned[quota.AnyModel] = cluster.Plus(all, sum)
		}
		for k := range q.Resources {
			e := &q.Resources[k]
			contain(cluster.AccountOf(e.Resource), &e.Nominal, &e.BorrowingLimit)
		}
		if up, ok := index[q.Parent]; ok && q.Parent != "" {
			if below[up] == nil {
				below[up] = map[string]core.Milli{}
			}
			for account, amount := range owned {
				below[up][account] = cluster.Plus(below[up][account], amount)
			}
		}
	}
	return said
}

// QueueWarnings says where queues own more than there is, each text once, with the first queue of which it is said.
func QueueWarnings(queues []Queue) []string {
	first, more := map[string]string{}, map[string]int{}
	for i := range queues {
		c := meta.FindStatusCondition(queues[i].Status.Conditions, ExceedsCapacityCondition)
		if c == nil || c.Status != metav1.ConditionTrue {
			continue
		}
		if name := first[c.Message]; name == "" || queues[i].Name < name {
			first[c.Message] = queues[i].Name
		}
		more[c.Message]++
	}
	var out []string
	for _, text := range slices.Sorted(maps.Keys(first)) {
		others := ""
		if n := more[text] - 1; n > 0 {
			others = fmt.Sprintf(" and %d more", n)
		}
		out = append(out, fmt.Sprintf("queue %s%s: %s", first[text], others, text))
	}
	return out
}
