package act

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-helpers/storage/volume"
)

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
		err := New(Config{Client: client}).bind(t.Context(), &Bind{Pod: podNamed("p"), Node: "n", Gated: true})
		if !c.err(err) || !slices.Equal(asked, c.want) {
			t.Errorf("%s: %v; asked for %q", name, err, asked)
		}
	}
}

// Each binding is answered once, those that fail because the pod is gone, and those that
// are refused, too. What was not begun when the actor is closed is not done.
func TestBindingsAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, out := fake.NewClientset(newTestPod("p", 1), newTestPod("q", 1)), &reported{}
		client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			switch a.(clienttesting.CreateAction).GetObject().(*v1.Binding).Name {
			case "gone":
				return true, nil, apierrors.NewNotFound(v1.Resource("pods"), "gone")
			case "q":
				return true, nil, apierrors.NewForbidden(v1.Resource("pods"), "q", nil)
			}
			return true, nil, nil
		})
		a := New(Config{Client: client, Outcomes: out})
		ctx, end := context.WithCancel(t.Context())
		a.Start(ctx, 1)
		for _, name := range []string{"p", "gone", "q"} {
			a.Do(t.Context(), Acts{Bind: []Bind{{Pod: podNamed(name), Node: "n"}}})
		}
		synctest.Wait()
		out.expect(t, "bound p true false", "bound gone false true", "bound q false false")
		end()
		a.Close()
		a.Do(t.Context(), Acts{Bind: []Bind{{Pod: podNamed("late"), Node: "n"}}})
		synctest.Wait()
		out.expect(t)
	})
}

// A binding is tried again while the API server is overloaded, and no longer than
// Patience.
func TestBindIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, asked := fake.NewClientset(newTestPod("p", 1)), 0
		client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			asked++
			return true, nil, apierrors.NewTooManyRequests("later", 0)
		})
		began := time.Now()
		err := New(Config{Client: client}).bind(t.Context(), &Bind{Pod: podNamed("p"), Node: "n"})
		if took := time.Since(began); !apierrors.IsTooManyRequests(err) || asked < 10 || took < Patience || took > Patience+5*time.Second {
			t.Errorf("%v after %d attempts and %v", err, asked, took)
		}
	})
}

// After a binding without an answer the pod is read, as often as it takes, before anything
// counts as free.
func TestBindWithoutAnAnswer(t *testing.T) {
	unknown := errors.New("connection reset by peer")
	for name, c := range map[string]struct {
		is      func(*v1.Pod)
		bound   bool
		isErr   func(error) bool
		unknown int // how often the pod cannot be read
	}{
		"it was bound":     {func(p *v1.Pod) { p.Spec.NodeName = "n" }, true, func(err error) bool { return err == nil }, 40},
		"it was not":       {func(*v1.Pod) {}, false, func(err error) bool { return errors.Is(err, unknown) }, 40},
		"it was read once": {func(*v1.Pod) {}, false, func(err error) bool { return errors.Is(err, unknown) }, 0},
		"it is another":    {func(p *v1.Pod) { p.UID = "another" }, false, apierrors.IsNotFound, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newTestPod("p", 1)
				c.is(p)
				client, left := fake.NewClientset(p), c.unknown
				client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, unknown })
				client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					left--
					return left >= 0, nil, unknown
				})
				began := time.Now()
				err := New(Config{Client: client}).bind(t.Context(), &Bind{Pod: podNamed("p"), Node: "n"})
				if took := time.Since(began); !c.isErr(err) || took < time.Duration(c.unknown)*readAgain {
					t.Errorf("%v after %v", err, took)
				}
			})
		})
	}
}

// The node of a pod is written into its volume claim, or removed; that it could not be
// written is reported.
func TestSelectNode(t *testing.T) {
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "c"}}
	client, out := fake.NewClientset(c), &reported{}
	a := New(Config{Client: client, Outcomes: out})
	is := func(want string) {
		t.Helper()
		c, err := client.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "c", metav1.GetOptions{})
		if err != nil || c.Annotations[volume.AnnSelectedNode] != want {
			t.Errorf("the claim is for node %q (%v); want %q", c.Annotations[volume.AnnSelectedNode], err, want)
		}
	}
	x := SelectNode{UID: "c", Node: "n", Pod: "p"}
	x.Claim.Namespace, x.Claim.Name = "default", "c"
	a.selectNode(t.Context(), x)
	is("n")
	x.Node = ""
	a.selectNode(t.Context(), x)
	is("")
	out.expect(t)
	x.Node, x.Claim.Name = "n", "gone"
	a.selectNode(t.Context(), x)
	out.expect(t, "node of p not selected")
}
