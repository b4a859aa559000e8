package mirror

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/feed"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/settings"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// This file turns Queue objects into the engine's queues.

// queuesListed handles the list of all queues.
func (m *Mirror) queuesListed(list []*v1alpha1.Queue) {
	clear(m.Queues.Objects)
	for _, q := range list {
		m.Queues.Objects[q.Name] = q
	}
	m.queuesChanged()
}

// queueSeen handles the current state of a queue.
func (m *Mirror) queueSeen(q *v1alpha1.Queue) {
	old := m.Queues.Objects[q.Name]
	m.Queues.Objects[q.Name] = q
	if old == nil || !reflect.DeepEqual(old.Spec, q.Spec) {
		m.queuesChanged()
	}
}

func (m *Mirror) queueGone(name string) {
	delete(m.Queues.Objects, name)
	m.queuesChanged()
}

func (m *Mirror) queuesChanged() {
	if m.engine == nil {
		return
	}
	m.tellQueues()
	for _, g := range m.Groups {
		m.weighQueue(g)
	}
	m.tellQueues() // and those that only waiting jobs kept
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

// tellQueues tells the engine which queues are new, changed or deleted: parents are added
// before children, and removed after them. A queue with live jobs is removed with the last
// of them.
func (m *driver) tellQueues() {
	q := &m.Queues
	clear(q.Verdict)
	want := []core.Queue{{Name: tables.OthersQueue, Weight: 1}}
	if q.Objects[tables.DefaultQueue] == nil {
		want = append(want, core.Queue{Name: tables.DefaultQueue, Weight: 1})
	}
	names := make([]string, 0, len(q.Objects))
	for name := range q.Objects {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(q.Depth(a), q.Depth(b)), strings.Compare(a, b))
	})
	for _, name := range names {
		o := q.Objects[name]
		switch parent := o.Spec.Parent; {
		case q.Depth(name) > len(q.Objects):
			q.Verdict[name] = settings.Verdict{Reason: v1alpha1.QueueCycle, Message: "the queue is its own ancestor"}
		case parent != "" && (q.Objects[parent] == nil || q.Verdict[parent].Reason != ""):
			q.Verdict[name] = settings.Verdict{Reason: v1alpha1.QueueParentNotFound, Message: fmt.Sprintf("parent %s does not exist or is not ready", parent)}
		default:
			want = append(want, o.Spec.Queue(name))
		}
	}
	m.contain(want)
	q.Wanted = map[string]bool{}
	for _, w := range want {
		q.Wanted[w.Name] = true
		if old, ok := q.Told[w.Name]; ok && reflect.DeepEqual(old, w) {
			continue
		}
		if err := m.tell(core.QueueSet{Queue: w}); err != nil {
			q.Verdict[w.Name] = settings.Verdict{Reason: v1alpha1.QueueInvalid, Message: err.Error()}
			continue
		}
		q.Told[w.Name] = w
	}
	m.removeQueues()
	for _, name := range slices.Sorted(maps.Keys(q.Told)) {
		old := q.Told[name]
		if gone := disowned(old); !q.Wanted[name] && q.Objects[name] == nil && !reflect.DeepEqual(old, gone) && m.tell(core.QueueSet{Queue: gone}) == nil {
			q.Told[name] = gone
		}
	}
}

// contain makes the amounts of queues those that each owns beside the queues below it.
func (m *driver) contain(queues []core.Queue) {
	m.Queues.Beyond = v1alpha1.Contain(queues, func(name string) bool {
		o := m.Queues.Objects[name]
		return o != nil && o.Spec.QuotaScope == "Subtree"
	})
}

// disowned returns a queue as it is when its object is gone: it owns nothing, and its jobs borrow what they have.
func disowned(q core.Queue) core.Queue {
	q.Quota, q.Resources = slices.Clone(q.Quota), slices.Clone(q.Resources)
	for i := range q.Quota {
		q.Quota[i] = core.Quota{Model: q.Quota[i].Model, BorrowingLimit: core.Unlimited, LendingLimit: core.Unlimited}
	}
	for i := range q.Resources {
		q.Resources[i] = core.ResourceQuota{Resource: q.Resources[i].Resource, BorrowingLimit: core.Unlimited, LendingLimit: core.Unlimited}
	}
	return q
}

// removeQueues removes deleted queues from the engine, as far as the engine allows it: those of which jobs live stay,
// and Gone says so.
func (m *driver) removeQueues() {
	q := &m.Queues
	for again := true; again; {
		again, q.Gone = false, false
		// A parent goes after its last child: so all are tried until none goes.
		for _, name := range slices.Sorted(maps.Keys(q.Told)) {
			if q.Wanted[name] {
				continue
			}
			if q.Gone = true; m.tell(core.QueueRemoved{Queue: name}) == nil {
				delete(q.Told, name)
				m.metrics.QueueGone(name)
				again = true
			}
		}
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
