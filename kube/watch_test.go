package kube

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/muster-sched/muster/kube/act"
)

// What the API server serves is asked again while there is no answer, for a while. An answer that
// says no is one.
func TestServedIsAskedAgain(t *testing.T) {
	for name, x := range map[string]struct {
		fails int // -1 for ever
		with  error
		ok    bool
		asked int // -1 for many
	}{
		"at once":           {0, nil, true, 1},
		"after a few":       {3, errors.New("connection refused"), true, 4},
		"while overloaded":  {2, apierrors.NewTooManyRequests("", 1), true, 3},
		"never":             {-1, errors.New("connection refused"), false, -1},
		"it is not allowed": {-1, apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "", nil), false, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newTenure(t, nil)
			client, asked := s.client.(*fake.Clientset), 0
			client.Resources = []*metav1.APIResourceList{{GroupVersion: "a/v1", APIResources: []metav1.APIResource{{Name: "things"}}}}
			client.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
				asked++
				return x.fails < 0 || asked <= x.fails, nil, x.with
			})
			began := time.Now()
			served, err := s.served(t.Context(), "a/v1")
			if x.ok != (err == nil) || x.ok && !served["things"] {
				t.Errorf("%s: %v, %v", name, served, err)
			}
			if x.asked >= 0 && asked != x.asked || x.asked < 0 && asked < 10 {
				t.Errorf("%s: it was asked %d times", name, asked)
			}
			if took := time.Since(began); x.asked < 0 && (took < act.Patience || took > act.Patience+5*time.Second) {
				t.Errorf("%s: it took %v", name, took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // who is asked to end does not wait
		s := newTenure(t, nil)
		s.client.(*fake.Clientset).PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("connection refused")
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.served(ctx, "a/v1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ends with %v", err)
		}
	})
}
