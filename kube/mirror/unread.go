package mirror

import (
	"fmt"
	"runtime/debug"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/guard"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
)

// An object on which the scheduler panics, while it is cut down or put into the tables,
// would end every replica, one after the other. Instead it is left out, with an error in
// the log, a metric and, for a pod, an event, and all others go on:
//
//   - The scheduler ignores a pod that has no node until it can be read.
//   - A pod on a node is known only by what it takes, so that no other pod gets that.
//     One that was read before counts as it was read then, except for its state.
//   - A node that was read before counts as it was read then; another takes no pods.

// TakeIn calls a function that adds or removes an object, and reports whether it did not
// panic.
func (m *changes) TakeIn(o any, f func()) (ok bool) {
	defer func() {
		v := recover()
		if _, end := v.(guard.Ending); end {
			panic(v)
		}
		if ok = v == nil; !ok {
			m.Unread(o, v, debug.Stack())
		}
	}()
	f()
	return true
}

// Unread says that an object is left out.
func (m *changes) Unread(o, v any, stack []byte) {
	ref := act.Pod{}
	if x, ok := o.(metav1.Object); ok {
		ref = act.Pod{Namespace: x.GetNamespace(), Name: x.GetName(), UID: x.GetUID()}
	}
	m.log.Error("the scheduler failed while it read an object, which is left out", "type", fmt.Sprintf("%T", o), "name", ref.Namespace+"/"+ref.Name, "panic", v, "stack", string(stack))
	m.metrics.Unread()
	why := fmt.Sprintf("the scheduler failed while it read this pod, which is left out until the bug is fixed: %v", v)
	switch o.(type) {
	case *objects.Pod, *v1.Pod:
		m.acts.Warn = append(m.acts.Warn, act.Warning{Pod: ref, Reason: tables.ReasonQuarantined, Message: why})
	}
}

// Reduce leaves only the minimum in the tables of an object on which TakeIn failed.
func (m *Mirror) Reduce(o any) {
	switch o := o.(type) {
	case *objects.Pod:
		m.TakeIn(o, func() {
			// It may be in the tables in part. Only what it takes of its node is added again.
			if p := m.Pods[o.UID]; p != nil {
				m.podOver(p)
			}
			if o.Node != "" && !o.Over() {
				m.newPod(o.Stranded())
			}
		})
	case *objects.Node:
		if n := m.Nodes[o.Name]; n != nil && n.Object == nil {
			delete(m.Nodes, o.Name)
		}
	}
}
