package pause

import (
	"context"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/muster-sched/muster/api/v1alpha1"
	together "github.com/muster-sched/muster/checkpoint/pause"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/objects"
)

// What is decided on a gang is in the condition of the pod that leads, and of no other while that is there. A coordinator that has lost
// its place to another one decides nothing.
func TestStore(t *testing.T) {
	ctx := context.Background()
	client := fake.NewClientset()
	h := New(Config{Client: client})
	gang := func() *work {
		w := &work{lead: "a"}
		for _, name := range []string{"a", "b"} {
			m := &member{Pod: act.Pod{Namespace: "x", Name: name, UID: types.UID(name)}, had: &objects.Had{Lead: "a"}}
			m.said = v1.PodCondition{Type: v1alpha1.PausedCondition, Status: v1.ConditionFalse, Reason: v1alpha1.PausedPausing}
			w.pods = append(w.pods, m)
		}
		return w
	}
	for _, m := range gang().pods {
		if _, err := client.CoreV1().Pods("x").Create(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: m.Name, UID: m.UID}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	stored := func(name string) string {
		p, err := client.CoreV1().Pods("x").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return string(decidedOn(p))
	}

	w, before := gang(), uint64(time.Now().UnixNano())
	first := h.store(ctx, w)
	s, err := first.Load()
	if err != nil || s.Epoch < before || s.Goal != together.None {
		t.Errorf("nothing was decided: %+v, %v", s, err)
	}
	s.Epoch, s.Goal = 7, together.Gate
	if err := first.Save(s); err != nil {
		t.Fatal(err)
	}
	if err := first.Save(s); err != nil {
		t.Errorf("what is stored already: %v", err)
	}
	if got := stored("a"); !strings.Contains(got, `"epoch":7`) || !strings.Contains(got, `"Gate"`) || stored("b") != "" {
		t.Errorf("stored on a: %s, on b: %s", got, stored("b"))
	}

	// The next instance goes on from there, and the first one decides nothing more.
	next := gang()
	p, err := client.CoreV1().Pods("x").Get(ctx, "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	next.pods[0].had = objects.PauseOf(p).Had
	second := h.store(ctx, next)
	if s, err = second.Load(); err != nil || s.Epoch != 7 {
		t.Errorf("the next instance finds %+v, %v", s, err)
	}
	s.Epoch, s.Goal = 8, together.Release
	if err := second.Save(s); err != nil {
		t.Fatal(err)
	}
	if err := first.Save(together.State{Epoch: 8, Goal: together.Save}); err == nil || !strings.Contains(err.Error(), "another instance") {
		t.Errorf("the first one may decide still: %v", err)
	}
	if got := stored("a"); !strings.Contains(got, `"Release"`) {
		t.Errorf("stored on a: %s", got)
	}

	// When the pod that leads is gone, the next one has it; when all are gone, nothing is left to decide.
	for i, name := range []string{"a", "b"} {
		if err := client.CoreV1().Pods("x").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.Epoch++
		if err := second.Save(s); err != nil {
			t.Errorf("%s is gone: %v", name, err)
		}
		if i == 0 && !strings.Contains(stored("b"), `"epoch":9`) {
			t.Errorf("stored on b: %s", stored("b"))
		}
	}

	over, stop := context.WithCancel(ctx)
	stop()
	if err := h.store(over, gang()).Save(s); err == nil {
		t.Error("an instance that ends has decided something")
	}
}
