// Package objects has the parts of the API's objects that the scheduler keeps. Whole pods of a
// large cluster would take too much memory, so each is cut down as it is read: Trim keeps what
// is needed, and Bare what can be known about an object on which Trim panics.
package objects

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
)

// Namespace is what the scheduler needs of a namespace.
type Namespace struct {
	metav1.ObjectMeta
	Labels map[string]string
}

// TrimNamespace cuts a namespace down.
func TrimNamespace(n *v1.Namespace) *Namespace {
	return &Namespace{ObjectMeta: trimMeta(&n.ObjectMeta), Labels: n.Labels}
}

// TimeOf returns a time in the engine's units. A time outside the engine's bounds becomes the
// nearest one within, and never 0, which means unknown.
func TimeOf(t time.Time) core.Time {
	switch s := t.Unix(); {
	case s < 1:
		return 1
	case s >= int64(core.MaxTime/core.Second):
		return core.MaxTime
	}
	return core.Time(t.UnixNano())
}

// Key is the key of an object in its table.
func Key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// KeyOf returns the key of an object in its table.
func KeyOf[T metav1.Object](o T) types.NamespacedName { return Key(o.GetNamespace(), o.GetName()) }

// trimMeta keeps the names of an object.
func trimMeta(o *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion}
}
