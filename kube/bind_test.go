package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// gated gives a pod our scheduling gate.
func gated(p *v1.Pod) {
	p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, v1.PodSchedulingGate{Name: v1alpha1.QuotaGate})
}

// Autoscalers see a pod once its job has quota; before, and while the job is not whole,
// the gate stays on.
func TestQuotaGate(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "r1")
	w.m.queueSeen(queueObject("q", "", v1alpha1.Quota{Model: "*", Nominal: gpus(4), BorrowingLimit: new(v1alpha1.GPUs)}))
	w.m.queueSeen(queueObject("other", "", v1alpha1.Quota{Model: "*", Nominal: gpus(8)}))
	inQueue := labelled(v1alpha1.QueueLabel + "=q")
	w.pod("blocker", labelled(v1alpha1.QueueLabel+"=other"), asking(v1alpha1.GPUResource, "8"))
	w.on("blocker>n1")
	w.pod("has-quota", gated, inQueue, asking(v1alpha1.GPUResource, "4"))
	w.pod("has-none", gated, inQueue, asking(v1alpha1.GPUResource, "8"))
	w.pod("of-a-gang", gated, inQueue, gang("g", 2))
	w.settle()
	w.m.explain(10)
	w.now = w.now.Add(time.Duration(2 * firstSay))
	w.settle()
	said := map[string]string{}
	for _, x := range w.m.explain(10) {
		said[x.name] = fmt.Sprintf("%s %t", x.reason, x.ungate)
	}
	if want := map[string]string{"has-quota": "Resources true", "has-none": "ExceedsQuota false", "of-a-gang": "Collecting false"}; !maps.Equal(said, want) {
		t.Errorf("why they wait, and whether the gate is taken off: %v; want %v", said, want)
	}
	w.onBind = func(b *bindAct) bool {
		if !b.gated {
			t.Errorf("%s is bound with its gate on", b.pod.object.Name)
		}
		return true
	}
	w.gone("blocker")
	w.on("has-quota>n1")
}

// What the API server answers to a binding, and what becomes of it.
func TestBind(t *testing.T) {
	conflict := apierrors.NewConflict(v1.Resource("pods"), "p", nil)
	for name, c := range map[string]struct {
		is   func(*v1.Pod) // as the API server has the pod
		want []string      // what is asked of it
		err  func(error) bool
	}{
		"a pod that waits":  {func(*v1.Pod) {}, []string{"patch", "binding", "patch", "binding"}, func(err error) bool { return err == nil }},
		"bound already":     {func(p *v1.Pod) { p.Spec.NodeName = "n" }, []string{"patch", "binding"}, func(err error) bool { return err == nil }},
		"another":           {func(p *v1.Pod) { p.UID = "another" }, []string{"patch", "binding"}, apierrors.IsNotFound},
		"it is being ended": {func(p *v1.Pod) { p.DeletionTimestamp = &p.CreationTimestamp }, []string{"patch", "binding"}, apierrors.IsConflict},
	} {
		p := newTestPod("p", 1)
		c.is(p)
		client := fake.NewClientset(p)
		var asked []string
		client.PrependReactor("*", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			switch {
			case a.GetSubresource() == "binding":
				asked = append(asked, "binding")
				if len(asked) <= 2 {
					return true, nil, conflict
				}
				return true, nil, nil
			case a.GetVerb() == "patch":
				asked = append(asked, "patch")
			}
			return a.GetVerb() != "get", nil, nil
		})
		s := &Scheduler{client: client, metrics: newMetrics()}
		err := s.bind(context.Background(), &order{namespace: "default", name: "p", uid: types.UID("p"), node: "n", gated: true})
		if !c.err(err) || !slices.Equal(asked, c.want) {
			t.Errorf("%s: %v; asked for %q", name, err, asked)
		}
	}
}
