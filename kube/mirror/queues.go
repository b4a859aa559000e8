package mirror

import (
	"maps"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/feed"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// This file applies what has changed in the index of queues ([queues.Index]) to waiting jobs.

// queuesListed handles the list of all queues.
func (m *Mirror) queuesListed(list []*v1alpha1.Queue) {
	m.Queues.Replace(list)
	m.queuesChanged()
}

// queueSeen handles the current state of a queue.
func (m *Mirror) queueSeen(q *v1alpha1.Queue) {
	if m.Queues.Observe(q) {
		m.queuesChanged()
	}
}

func (m *Mirror) queueGone(name string) {
	m.Queues.Forget(name)
	m.queuesChanged()
}

func (m *Mirror) queuesChanged() {
	if m.engine == nil {
		return
	}
	m.Queues.Settle(m.tell, m.metrics.QueueGone)
	for _, g := range m.Groups {
		m.weighQueue(g)
	}
	m.Queues.Settle(m.tell, m.metrics.QueueGone) // and those that only waiting jobs kept
}

// weighQueue withdraws a waiting job from the engine if it may no longer wait in its queue.
// The engine handles any other change of a queue: a withdrawn job loses its plan, and the
// pods that leave for it would leave for nothing.
func (m *Mirror) weighQueue(g *tables.Group) {
	if g.Submitted && !g.Runs() && !g.Leaving() && g.ID.Kind != tables.Foreign && !m.MayStay(g) {
		m.withdraw(g)
	}
	if !g.Submitted {
		m.touch(g)
	}
}

// namespaceSeen handles the current state of a namespace.
func (m *Mirror) namespaceSeen(o *objects.Namespace) {
	if maps.Equal(m.Namespaces[o.Name], o.Labels) {
		return
	}
	mobility := translate.NamespaceMobility(m.Namespaces[o.Name]) != translate.NamespaceMobility(o.Labels)
	m.Namespaces[o.Name] = o.Labels
	m.aroundChanged(m.Peers.ObserveNamespace(o.Name, o.Labels))
	for _, g := range m.Groups {
		if g.ID.Namespace != o.Name {
			continue
		}
		g.Resized = g.Resized || mobility
		if m.weighQueue(g); m.Shards.Several() || mobility {
			m.touch(g)
		}
	}
}

func (m *changes) namespaceGone(name string) {
	delete(m.Namespaces, name)
	m.Peers.ForgetNamespace(name)
}

func (m *Mirror) namespacesListed(list []*objects.Namespace) {
	feed.Compare(m, m.Namespaces, list, nameOf, m.namespaceSeen, m.namespaceGone)
}
