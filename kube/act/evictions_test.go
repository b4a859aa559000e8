package act

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// Counts are written on the nodes of shards that this instance holds.
func TestNoteEvictions(t *testing.T) {
	client := fake.NewClientset()
	for _, name := range []string{"a", "b"} {
		if _, err := client.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	a := New(Config{Client: client, Holds: func(shard int) bool { return shard == 0 }})
	a.noteEvictions(t.Context(), []Evictions{{Node: "gone", Count: 1}, {Node: "a", Count: 3}, {Node: "b", Count: 4, Shard: 1}})
	for name, want := range map[string]string{"a": "3", "b": ""} {
		n, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := n.Annotations[v1alpha1.EvictionsAnnotation]; got != want {
			t.Errorf("node %s has %q, expected %q", name, got, want)
		}
	}
}

// A scheduler without the permission says so once, and does not try the other nodes in vain.
func TestMayNotNoteEvictions(t *testing.T) {
	client, tries := fake.NewClientset(), 0
	client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		tries++
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "a", nil)
	})
	var log bytes.Buffer
	a := New(Config{Client: client, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range 2 {
		a.noteEvictions(t.Context(), []Evictions{{Node: "a", Count: 3}, {Node: "b", Count: 4}})
	}
	if got := strings.Count(log.String(), "WARN"); got != 1 || tries != 2 {
		t.Errorf("%d warnings and %d requests, expected 1 and 2: %s", got, tries, log.String())
	}
}
