package kube

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/translate"
)

// Groups of which all pods are to leave, by the suspension of their owner (act.Suspend),
// and the place in the queue that is kept for the pods it makes later.

// suspendAct asks to make all pods of a group leave.
type suspendAct struct {
	group   *group
	members map[types.UID]bool // all its pods, also those without a place
	evict   []evictAct
}

// keepPlace is how long a group without pods is kept after its owner was
// resumed: its new pods wait in the old place.
const keepPlace = 10 * 60 * core.Second

// parked is a group without pods that are to come again.
type parked struct {
	// until is when it is forgotten, [core.Never] while its owner is suspended.
	until core.Time
}

// maySuspend reports whether the group can be stopped whole: none of its pods is to stay.
func (t *tables) maySuspend(g *group) bool {
	return !g.runs() && t.suspendable(g)
}

// suspendable reports whether the owners of all pods of a group are of kinds that
// can be suspended.
func (t *tables) suspendable(g *group) bool {
	if g.id.Kind == others || len(g.pods) == 0 {
		return false
	}
	for _, p := range g.pods {
		if p.object.owner == nil {
			return false
		}
		if _, ok := translate.SuspensionOf(schema.FromAPIVersionAndKind(p.object.owner.APIVersion, p.object.owner.Kind).GroupKind()); !ok {
			return false
		}
	}
	return true
}

// suspend turns the evictions of a group's pods into one act.
func (m *changes) suspend(g *group, list []evictAct) {
	x := suspendAct{group: g, members: make(map[types.UID]bool, len(g.pods)), evict: list}
	for uid := range g.pods {
		x.members[uid] = true
	}
	g.parked = &parked{until: core.Never}
	m.acts.suspend = append(m.acts.suspend, x)
}

// unpark takes in that the owner of a group could not be suspended.
func (m *changes) unpark(id translate.Group) {
	if g := m.groups[id]; g != nil {
		g.parked = nil
		m.touch(g)
	}
}

// value is the act without the tables.
func (a *suspendAct) value() act.Suspend {
	x := act.Suspend{Group: a.group.id, Since: a.group.created, Members: a.members}
	known := map[types.UID]bool{}
	for _, p := range a.group.pods {
		if owner := p.object.owner; !known[owner.UID] {
			known[owner.UID] = true
			x.Owners = append(x.Owners, *owner)
		}
	}
	for i := range a.evict {
		x.Pods = append(x.Pods, a.evict[i].value())
	}
	return x
}

// resumed takes in that a group's owner is not suspended by us any more.
func (m *changes) resumed(id translate.Group) {
	if g := m.groups[id]; g != nil && g.parked != nil {
		g.parked.until = m.now + keepPlace
		m.touch(g)
	}
}

// park keeps the place in the queue of a group whose owner was found suspended.
func (m *changes) park(id translate.Group, since time.Time) {
	if id.Kind == others || id.Kind == translate.ByItself {
		return // no owner makes such a group's pods
	}
	g := m.groups[id]
	if g == nil {
		g = &group{id: id, job: id.Job(), created: since, pods: map[types.UID]*pod{}, loose: map[types.UID]*pod{}}
		m.groups[id] = g
	}
	if since.Before(g.created) {
		g.created = since
	}
	g.parked = &parked{until: core.Never}
}

// stays reports whether a group without pods is kept for now.
func (m *changes) stays(g *group) bool {
	if g.quarantine != nil {
		return true // until it ends
	}
	if g.parked == nil || g.parked.until <= m.now {
		return false
	}
	if g.parked.until != core.Never {
		m.later = append(m.later, g)
		m.acts.wake = min(m.acts.wake, g.parked.until)
	}
	return true
}

// evictAct asks to make a pod leave.
type evictAct struct {
	pod     *pod
	reason  string
	message string
	shard   int // of the pod's group; for a pod that has none any more, of the one it had
}

// value is the act without the tables. A budget does not protect a pod that runs on
// borrowed quota from the quota's owner.
func (e *evictAct) value() act.Evict {
	o := e.pod.object
	x := act.Evict{
		Pod: e.pod.ref(), Reason: e.reason, Message: e.message, Counted: o.counts || o.uncounted, Shard: e.shard,
		DespiteBudgets: e.reason == core.QuotaReclaim.String(),
	}
	if g := e.pod.group; g != nil {
		x.Shard = g.shard
	}
	if o.slow && e.reason != act.Drained {
		x.Grace = new(int64(act.MaxGrace / time.Second))
	}
	return x
}
