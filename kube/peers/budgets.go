package peers

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-sched/muster/kube/translate"
)

// What PodDisruptionBudgets allow: the Eviction API would refuse to evict a pod that
// they keep. It is found out once for all pods that are alike.

// Budget is what is kept of a PodDisruptionBudget.
type Budget struct {
	metav1.ObjectMeta
	selector labels.Selector
	// closed is set if it allows no disruption now, as far as known.
	closed bool
}

// BudgetOf cuts a PodDisruptionBudget down.
func BudgetOf(b *policyv1.PodDisruptionBudget) *Budget {
	o := &Budget{ObjectMeta: translate.Identity(&b.ObjectMeta)}
	var err error
	if o.selector, err = metav1.LabelSelectorAsSelector(b.Spec.Selector); err != nil {
		o.selector = labels.Nothing() // as the Eviction API takes it
	}
	o.closed = b.Status.DisruptionsAllowed <= 0 || b.Status.ObservedGeneration < b.Generation
	return o
}

// Kept reports whether budgets keep the pod from being evicted now.
func (p *Pod) Kept() bool { return p.sort.kept }

// Budget returns a budget as it was observed last, nil if there is none.
func (x *Index) Budget(namespace, name string) *Budget { return x.budgets[namespace][name] }

// HasBudgets reports whether there are budgets in a namespace. Where there are none, no
// pod is kept.
func (x *Index) HasBudgets(namespace string) bool { return x.budgets[namespace] != nil }

// ObserveBudget records the present state of a budget.
func (x *Index) ObserveBudget(o *Budget) Change {
	old := x.Budget(o.Namespace, o.Name)
	x.addBudget(o)
	if old != nil && old.closed == o.closed && old.selector.String() == o.selector.String() {
		return nil
	}
	return x.review(o.Namespace)
}

// ForgetBudget records that a budget was deleted.
func (x *Index) ForgetBudget(o *Budget) Change {
	of := x.budgets[o.Namespace]
	if delete(of, o.Name); len(of) == 0 {
		delete(x.budgets, o.Namespace)
	}
	return x.review(o.Namespace)
}

// ReplaceBudgets replaces all known budgets.
func (x *Index) ReplaceBudgets(list []*Budget) Change {
	namespaces := map[string]bool{}
	for n := range x.budgets {
		namespaces[n] = true
	}
	clear(x.budgets)
	for _, o := range list {
		x.addBudget(o)
		namespaces[o.Namespace] = true
	}
	var all []string
	for n := range namespaces {
		all = append(all, n)
	}
	return x.review(all...)
}

func (x *Index) addBudget(o *Budget) {
	if x.budgets[o.Namespace] == nil {
		x.budgets[o.Namespace] = map[string]*Budget{}
	}
	x.budgets[o.Namespace][o.Name] = o
}

// review determines again which pods of some namespaces are kept.
func (x *Index) review(namespaces ...string) Change {
	changed := changes{}
	for _, n := range namespaces {
		for s := range x.by[n] {
			if kept := x.keeps(s); kept != s.kept {
				s.kept = kept
				changed.add(s.pods)
			}
		}
	}
	return changed.sorted()
}

// keeps reports whether budgets prevent the eviction of pods now: a budget that selects
// them allows no disruption, or several budgets select them, which the Eviction API does
// not support.
func (x *Index) keeps(s *sort) bool {
	n := 0
	for _, o := range x.budgets[s.namespace] {
		if !o.selector.Matches(s.all()) {
			continue
		}
		if n++; o.closed || n > 1 {
			return true
		}
	}
	return false
}
