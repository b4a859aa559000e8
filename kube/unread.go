package kube

import (
	"fmt"
	"runtime/debug"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/translate"
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
	m.metrics.unread()
	why := fmt.Sprintf("the scheduler failed while it read this pod, which is left out until the bug is fixed: %v", v)
	switch x := o.(type) {
	case *podObject:
		m.acts.warn = append(m.acts.warn, act.Warning{Pod: act.Pod{Namespace: x.Namespace, Name: x.Name, UID: x.UID}, Reason: ReasonQuarantined, Message: why})
	case *v1.Pod:
		m.acts.warn = append(m.acts.warn, act.Warning{Pod: act.Pod{Namespace: x.Namespace, Name: x.Name, UID: x.UID}, Reason: ReasonQuarantined, Message: why})
	}
}

// reduce has the tables hold no more of an object on which takeIn failed than they must.
func (m *mirror) reduce(o any) {
	switch o := o.(type) {
	case *podObject:
		m.takeIn(o, func() {
			if p := m.pods[o.UID]; p != nil {
				m.podOver(p)
			}
			if o.node != "" && !o.over() {
				m.newPod(o.stranded())
			}
		})
	case *nodeObject:
		if n := m.nodes[o.Name]; n != nil && n.object == nil {
			delete(m.nodes, o.Name)
		}
	}
}

// barePod is what is known of a pod that cannot be read.
func barePod(p *v1.Pod) *podObject {
	o := &podObject{
		ObjectMeta: trimMeta(&p.ObjectMeta), created: p.CreationTimestamp.Time, started: p.CreationTimestamp.Time,
		node: p.Spec.NodeName, phase: p.Status.Phase, deleting: p.DeletionTimestamp != nil, unread: true,
	}
	func() {
		defer func() { _ = recover() }() // it may be what cannot be read
		o.amounts = translate.Requests(p)
		o.request.GPU = translate.Held(p)
		if gpus, err := translate.ParseDevices(p.Annotations[v1alpha1.GPUsAnnotation]); err == nil {
			o.gpus = gpus
		}
		o.share = translate.Share(p)
	}()
	return o
}

// asBefore is a pod that cannot be read any more: as it was, but for where it stands.
func (o *podObject) asBefore(before *podObject) *podObject {
	x := *before
	x.ObjectMeta, x.node, x.phase, x.deleting = o.ObjectMeta, o.node, o.phase, o.deleting
	return &x
}

// bareNode is what is known of a node that cannot be read.
func bareNode(n *v1.Node) *nodeObject {
	return &nodeObject{ObjectMeta: trimMeta(&n.ObjectMeta), wrong: "the scheduler failed while it read this node", unread: true}
}
