package mirror

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// This file stops whole groups by suspending their owner (act.Suspend), and keeps their place
// in the queue for the pods that the owner makes later.

// keepPlace is how long a group without pods is kept after its owner was
// resumed: its new pods wait in the old place.
const keepPlace = 10 * 60 * core.Second

// suspend turns the evictions of a group's pods into one act.
func (m *changes) suspend(g *tables.Group, list []tables.Eviction) {
	x := tables.Suspension{Group: g, Members: make(map[types.UID]bool, len(g.Pods)), Evict: list}
	for uid := range g.Pods {
		x.Members[uid] = true
	}
	g.Parked = &tables.Parked{Until: core.Never}
	m.acts.Suspend = append(m.acts.Suspend, x)
}

// Leave evicts pods of a group without a decision of the engine, which knows that they leave or finds them gone.
func (m *changes) Leave(list []*tables.Pod, reason, message string) {
	var g *tables.Group
	var leaving []tables.Eviction
	for _, p := range list {
		if p.State == tables.PodLeaving || p.Group == nil || !m.Decides(p.Group) {
			continue
		}
		m.metrics.Evicted(reason)
		p.State, p.Cause = tables.PodLeaving, tables.Eviction{Of: p, Reason: reason, Message: message}
		m.NotePod(p)
		if g = p.Group; !p.InFlight { // else there is nothing to evict yet (bound)
			leaving = append(leaving, p.Cause)
		}
	}
	if g == nil {
		return
	}
	if g.Gang() && g.Submitted && g.Broken((*tables.Pod).Runs) {
		g.Draining, g.Broke = true, false
	}
	m.sendOff(g, leaving)
}

// adoptPaused tells the engine about a job that was suspended before, and reports whether it takes it so. If not, its pods leave: as those of
// a gang that has lost a pod meanwhile do.
func (m *driver) adoptPaused(g *tables.Group) bool {
	list, ev, ok := g.FoundPaused()
	if !ok {
		return false
	}
	if whole := len(list) >= g.Min; !whole || m.tell(ev) != nil && !m.panics.Broken {
		m.Leave(list, tables.NotPaused, "its processes are paused, and its job can no longer be")
		return false
	}
	g.Ran = true
	for _, p := range list {
		m.keepRecord(p)
		m.NotePod(p)
	}
	return true
}

// unpark handles a failure to suspend the owner of a group.
func (m *changes) unpark(id translate.Group) {
	if g := m.Groups[id]; g != nil {
		g.Parked = nil
		m.touch(g)
	}
}

// resumed handles that a group's owner is no longer suspended by us.
func (m *changes) resumed(id translate.Group) {
	if g := m.Groups[id]; g != nil && g.Parked != nil {
		g.Parked.Until = m.Now + keepPlace
		if r := g.Returning; r != nil && r.Until != core.Never {
			r.Until = m.Now + returnWithin
		}
		m.touch(g)
	}
}

// park keeps the place in the queue of a group whose owner was found suspended.
func (m *changes) park(id translate.Group, since time.Time) {
	if id.Kind == tables.Foreign || id.Kind == translate.ByItself {
		return // no owner makes such a group's pods
	}
	g := m.Groups[id]
	if g == nil {
		g = &tables.Group{ID: id, Job: id.Job(), Created: since, Pods: map[types.UID]*tables.Pod{}, Loose: map[types.UID]*tables.Pod{}}
		m.AddGroup(g)
	}
	if since.Before(g.Created) {
		g.Created = since
	}
	g.Parked = &tables.Parked{Until: core.Never}
}

// stays reports whether a group without pods is kept for now.
func (m *changes) stays(g *tables.Group) bool {
	if g.Quarantine != nil {
		return true // until it ends
	}
	if g.Parked == nil || g.Parked.Until <= m.Now {
		return false
	}
	if g.Parked.Until != core.Never {
		m.later = append(m.later, g)
		m.acts.Wake = min(m.acts.Wake, g.Parked.Until)
	}
	return true
}
