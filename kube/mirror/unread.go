package mirror

import (
	"fmt"
	"runtime/debug"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
)

// An object that makes the scheduler panic while it is cut down, or taken into the
// tables, would end every replica, one after the other. It is left out instead, with an
// error in the log, a metric and, for a pod, an event, and all others go on:
//
//   - A pod that has no node is not there for the scheduler until it can be read.
//   - A pod on a node is known only by what it takes, so that no other pod gets that.
//     One that was read before counts as it was read then, but for where it stands.
//   - A node that was read before counts as it was read then; another takes no pods.

// takeIn calls what takes an object in, or out, and reports whether it did not panic.
func (m *changes) takeIn(o any, f func()) (ok bool) {
	defer func() {
		v := recover()
		if _, end := v.(ending); end {
			panic(v)
		}
		if ok = v == nil; !ok {
			m.unread(o, v, debug.Stack())
		}
	}()
	f()
	return true
}

// unread says that an object is left out.
func (m *changes) unread(o, v any, stack []byte) {
	name := ""
	if x, ok := o.(metav1.Object); ok {
		name = x.GetNamespace() + "/" + x.GetName()
	}
	m.log.Error("the scheduler failed while it read an object, which is left out", "type", fmt.Sprintf("%T", o), "name", name, "panic", v, "stack", string(stack))
	m.metrics.Unread()
	why := fmt.Sprintf("the scheduler failed while it read this pod, which is left out until the bug is fixed: %v", v)
	switch x := o.(type) {
	case *objects.Pod:
		m.acts.warn = append(m.acts.warn, act.Warning{Pod: act.Pod{Namespace: x.Namespace, Name: x.Name, UID: x.UID}, Reason: tables.ReasonQuarantined, Message: why})
	case *v1.Pod:
		m.acts.warn = append(m.acts.warn, act.Warning{Pod: act.Pod{Namespace: x.Namespace, Name: x.Name, UID: x.UID}, Reason: tables.ReasonQuarantined, Message: why})
	}
}

// reduce has the tables hold no more of an object on which takeIn failed than they must.
func (m *Mirror) reduce(o any) {
	switch o := o.(type) {
	case *objects.Pod:
		m.takeIn(o, func() {
			// It may be in the tables in part. Only what it takes of its node is taken in again.
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
