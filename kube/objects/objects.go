// Package objects is what the scheduler keeps of the API's objects. A cluster has more pods
// than memory should hold whole, so each is cut down as it is read off the wire: Trim keeps
// what is needed, and Bare what can be known of one on which Trim panics.
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

// TimeOf is a time as the engine counts it. Objects may say any, or none: what is
// outside the engine's bounds is the nearest within, and never 0, which is unknown.
func TimeOf(t time.Time) core.Time {
	switch s := t.Unix(); {
	case s < 1:
		return 1
	case s >= int64(core.MaxTime/core.Second):
		return core.MaxTime
	}
	return core.Time(t.UnixNano())
}

// Key is how an object is found in its table.
func Key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// KeyOf is how an object is found in its table.
func KeyOf[T metav1.Object](o T) types.NamespacedName { return Key(o.GetNamespace(), o.GetName()) }

// trimMeta keeps what names an object.
func trimMeta(o *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion}
}
