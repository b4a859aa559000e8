package mirror

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/kube/peers"
)

// budget is a disruption budget of the namespace default that lets so many pods go
// which have the labels.
func budget(name string, allowed int32, pairs ...string) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 1}}
	b.Spec.Selector = selecting(pairs...)
	b.Status.ObservedGeneration, b.Status.DisruptionsAllowed = 1, allowed
	return b
}

func (w *world) budget(b *policyv1.PodDisruptionBudget) {
	inBudgets((*peers.Index).ObserveBudget)(w.m, peers.BudgetOf(b))
}

// budgeted is a world in which two pods, dear and cheap, take a node, and a third of
// a higher priority has come at the time at which it may have the place of either.
// Nothing has been decided on it yet: it would have that of cheap.
func budgeted(t *testing.T) *world {
	w := newWorld(t)
	w.node("n", "")
	half := asking("cpu", "1", "nvidia.com/gpu", "4")
	w.pod("dear", half, labelled("app=dear"))
	w.on("dear>n")
	w.pod("cheap", half, labelled("app=cheap"))
	w.on("cheap>n")
	w.now = w.now.Add(time.Hour)
	w.pod("high", half, func(p *v1.Pod) { p.Spec.Priority = new(int32(9)) })
	return w
}

// left fails the test unless those of dear and cheap are there that are named.
func (w *world) left(want string) {
	w.t.Helper()
	w.settle()
	got := ""
	for _, name := range []string{"dear", "cheap"} {
		if w.pods["default/"+name] != nil {
			got += name + " "
		}
	}
	if got != want {
		w.t.Errorf("left are %q, expected %q", got, want)
	}
}

// Who is evicted for another depends on what the budgets let go.
func TestBudgets(t *testing.T) {
	relabel := func(w *world) { w.pod("cheap", labelled("app=other")) }
	for name, c := range map[string]struct {
		happens func(*world)
		left    string
	}{
		"none":          {func(w *world) {}, "dear "},
		"closed":        {func(w *world) { w.budget(budget("b", 0, "app=cheap")) }, "cheap "},
		"with room":     {func(w *world) { w.budget(budget("b", 1, "app=cheap")) }, "dear "},
		"of all pods":   {func(w *world) { w.budget(budget("b", 0)) }, "dear cheap "},
		"not looked at": {func(w *world) { b := budget("b", 1, "app=cheap"); b.Generation = 2; w.budget(b) }, "cheap "},
		"of no pods":    {func(w *world) { b := budget("b", 0); b.Spec.Selector = nil; w.budget(b) }, "dear "},
		"elsewhere":     {func(w *world) { b := budget("b", 0, "app=cheap"); b.Namespace = "other"; w.budget(b) }, "dear "},
		"two that mean it": {func(w *world) {
			w.budget(budget("b", 1, "app=cheap"))
			w.budget(budget("c", 1))
		}, "cheap "},
		"opened":        {func(w *world) { w.budget(budget("b", 0, "app=cheap")); w.budget(budget("b", 1, "app=cheap")) }, "dear "},
		"closed later":  {func(w *world) { w.budget(budget("b", 1, "app=cheap")); w.budget(budget("b", 0, "app=cheap")) }, "cheap "},
		"of others now": {func(w *world) { w.budget(budget("b", 0, "app=cheap")); w.budget(budget("b", 0, "app=dear")) }, "dear "},
		"deleted": {func(w *world) {
			w.budget(budget("b", 0, "app=cheap"))
			inBudgets((*peers.Index).ForgetBudget)(w.m, peers.BudgetOf(budget("b", 0, "app=cheap")))
		}, "dear "},
		"pod with other labels": {func(w *world) { w.budget(budget("b", 0, "app=cheap")); relabel(w) }, "dear "},
		"pod that gets labels":  {func(w *world) { w.budget(budget("b", 0, "app=other")); relabel(w) }, "cheap "},
		"pod that has not started": {func(w *world) {
			w.budget(budget("b", 0, "app=cheap"))
			w.pod("cheap", func(p *v1.Pod) { p.Status.Phase = v1.PodPending })
		}, "dear "},
		"listed": {func(w *world) {
			inBudgets((*peers.Index).ReplaceBudgets)(w.m, []*peers.Budget{peers.BudgetOf(budget("b", 0, "app=cheap"))})
		}, "cheap "},
		"listed no more": {func(w *world) {
			w.budget(budget("b", 0, "app=cheap"))
			inBudgets((*peers.Index).ReplaceBudgets)(w.m, nil)
		}, "dear "},
		"the engine is built again": {func(w *world) {
			w.budget(budget("b", 0))
			w.settle()
			if err := w.m.rebuild(); err != nil {
				w.t.Fatal(err)
			}
		}, "dear cheap "},
	} {
		t.Run(name, func(t *testing.T) {
			w := budgeted(t)
			c.happens(w)
			w.left(c.left)
		})
	}
}

// Who waits because budgets let nobody go says so, and starts when one does.
func TestBudgetOpens(t *testing.T) {
	w := budgeted(t)
	w.budget(budget("b", 0))
	w.waits("high", "Resources", "jobs of lower rank that must not be evicted now hold 8 GPUs")
	w.left("dear cheap ")
	w.budget(budget("b", 0, "app=cheap"))
	w.left("cheap ")
	w.on("high>n")
}

// A pod that starts comes under its budget, and one that is bound later too.
func TestBudgetOfPodsThatStart(t *testing.T) {
	phase := func(to v1.PodPhase) change[*v1.Pod] { return func(p *v1.Pod) { p.Status.Phase = to } }
	w := newWorld(t)
	w.budget(budget("b", 0, "app=a"))
	w.node("n", "")
	w.pod("cheap", labelled("app=a"), asking("cpu", "1", "nvidia.com/gpu", "8"), phase(v1.PodPending))
	w.on("cheap>n")
	w.pod("cheap", phase(v1.PodRunning))
	w.now = w.now.Add(time.Hour)
	w.pod("high", func(p *v1.Pod) { p.Spec.Priority = new(int32(9)) })
	w.left("cheap ")
	w.waits("high", "Resources", "hold 8 GPUs")
}

// A gang stays whole while one of its pods may not go.
func TestBudgetOfAGang(t *testing.T) {
	w := newWorld(t)
	w.node("n", "")
	half := asking("cpu", "1", "nvidia.com/gpu", "4")
	w.pod("dear", half, gang("g", 2), labelled("app=a"))
	w.pod("cheap", half, gang("g", 2))
	w.on("dear,cheap>n,n")
	w.budget(budget("b", 0, "app=a"))
	w.now = w.now.Add(time.Hour)
	w.pod("high", half, func(p *v1.Pod) { p.Spec.Priority = new(int32(9)) })
	w.left("dear cheap ")
	w.budget(budget("b", 1, "app=a"))
	w.left("")
	w.on("high>n")
}

// A budget of pods that have no place yet keeps nobody.
func TestBudgetOfPodsThatWait(t *testing.T) {
	w := newWorld(t)
	w.node("n", "")
	half := asking("cpu", "1", "nvidia.com/gpu", "4")
	w.pod("dear", half, gang("g", 2))
	w.pod("cheap", half, gang("g", 2))
	w.on("dear,cheap>n,n")
	w.pod("third", half, gang("g", 2), labelled("app=a"))
	w.on("third>")
	w.budget(budget("b", 0, "app=a"))
	w.now = w.now.Add(time.Hour)
	w.pod("high", half, func(p *v1.Pod) { p.Spec.Priority = new(int32(9)) })
	w.left("")
	w.on("high>n")
}
