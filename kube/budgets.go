package kube

import (
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-sched/muster/core"
)

// What PodDisruptionBudgets allow. A job is shielded while one of its pods may not
// be evicted: the Eviction API would refuse, and who waits for the pod to leave
// would wait for as long as the budget holds. It is found out for a sort of pods
// at once.

// budgets are the PodDisruptionBudgets there are, by namespace and name.
type budgets map[string]map[string]*budgetObject

// budgetObject is what the scheduler needs of a PodDisruptionBudget.
type budgetObject struct {
	metav1.ObjectMeta
	selector labels.Selector
	// closed says that it lets no pod go now, as far as known.
	closed bool
}

func trimBudget(b *policyv1.PodDisruptionBudget) *budgetObject {
	o := &budgetObject{ObjectMeta: trimMeta(&b.ObjectMeta)}
	var err error
	if o.selector, err = metav1.LabelSelectorAsSelector(b.Spec.Selector); err != nil {
		o.selector = labels.Nothing() // as the Eviction API takes it
	}
	o.closed = b.Status.DisruptionsAllowed <= 0 || b.Status.ObservedGeneration < b.Generation
	return o
}

func (m *mirror) budgetSeen(o *budgetObject) {
	old := m.budgets[o.Namespace][o.Name]
	m.budgets.add(o)
	if old == nil || old.closed != o.closed || old.selector.String() != o.selector.String() {
		m.reviewBudgets(o.Namespace)
	}
}

func (m *mirror) budgetGone(o *budgetObject) {
	of := m.budgets[o.Namespace]
	if delete(of, o.Name); len(of) == 0 {
		delete(m.budgets, o.Namespace)
	}
	m.reviewBudgets(o.Namespace)
}

// budgetsListed takes in all budgets there are.
func (m *mirror) budgetsListed(list []*budgetObject) {
	before := m.budgets
	m.budgets = budgets{}
	for _, o := range list {
		m.budgets.add(o)
	}
	for namespace := range m.budgets {
		m.reviewBudgets(namespace)
	}
	for namespace := range before {
		if m.budgets[namespace] == nil {
			m.reviewBudgets(namespace)
		}
	}
}

func (b budgets) add(o *budgetObject) {
	if b[o.Namespace] == nil {
		b[o.Namespace] = map[string]*budgetObject{}
	}
	b[o.Namespace][o.Name] = o
}

// keep reports whether pods of a sort may not be evicted now: a budget that means
// them lets none go, or several mean them, which the Eviction API does not support.
func (b budgets) keep(s *sort) bool {
	n := 0
	for _, o := range b[s.namespace] {
		if !o.selector.Matches(s.all()) {
			continue
		}
		if n++; o.closed || n > 1 {
			return true
		}
	}
	return false
}

// reviewBudgets finds out anew which pods of a namespace may not be evicted.
func (m *mirror) reviewBudgets(namespace string) {
	for s := range m.around.by[namespace] {
		kept := m.budgets.keep(s)
		if kept == s.kept {
			continue
		}
		s.kept = kept
		for _, p := range s.pods {
			if p.group != nil {
				m.touch(p.group)
			}
		}
	}
}

// budgetHolds reports whether a budget keeps a pod from leaving its node. One that
// has not started may always leave.
func (p *pod) budgetHolds() bool {
	return p.runs() && p.sort.kept && p.object.phase != v1.PodPending
}

// tellShield tells the engine whether the job of a group may be evicted for others,
// as far as budgets go, where that has changed.
func (m *mirror) tellShield(g *group) {
	if !g.submitted || g.id.Kind == others || !m.ours(g) {
		return
	}
	shielded := false
	if m.budgets[g.id.Namespace] != nil {
		for _, p := range g.pods {
			if p.budgetHolds() {
				shielded = true
				break
			}
		}
	}
	if shielded != g.shielded {
		g.shielded = shielded
		m.mustTell(core.JobShielded{Job: g.job, Shielded: shielded})
	}
}
