package mirror

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// groupOf returns the group of a pod, and makes it if necessary.
func (m *changes) groupOf(p *tables.Pod) *tables.Group {
	o := p.Object
	id := o.Membership.Group
	if !o.Ours {
		id = translate.Group{Namespace: o.Namespace, Kind: tables.Foreign, Name: o.Name}
	}
	g := m.Groups[id]
	if g == nil {
		g = &tables.Group{ID: id, Job: id.Job(), Created: o.Created, Pods: map[types.UID]*tables.Pod{}, Loose: map[types.UID]*tables.Pod{}}
		m.AddGroup(g)
		if o.Ours {
			m.Seen++
		}
	}
	if len(g.Pods) == 0 && !g.Submitted {
		g.Membership = tables.Membership{
			Native: o.Membership.Native, Objects: o.Membership.Objects, Kind: o.Membership.Kind, Stage: o.Membership.Stage,
		}
	}
	if len(g.Pods) == 0 && g.Parked != nil && g.Parked.Until != core.Never {
		g.Parked = nil
	}
	g.Observe(&o.Membership)
	if o.Created.Before(g.Created) {
		g.Created = o.Created
	}
	return g
}

// startOver is reset for a group that is to be submitted as it is: pods that were evicted
// and still exist keep draining, and a gang that has waited long enough for its pods no
// longer waits.
func (m *changes) startOver(g *tables.Group) {
	for _, p := range g.Pods {
		m.NotePod(p)
	}
	draining, broke, soft := g.Draining || g.Returning != nil && g.Gang(), g.Broke, g.Soft
	g.Reset()
	g.Soft = soft
	if g.Leaving() {
		g.Draining, g.Broke = draining, broke
	}
}

// advance brings the engine's job up to date with the group.
func (m *driver) advance(g *tables.Group) {
	m.NoteGroup(g)
	// 1. What counts of the PodGroup, and the shard: both may change whose group it is.
	g.SettleTerms(m.PodGroupOf(g))
	m.regroup(g)
	// 2. The engine receives the changes of pods that it knows.
	if g.Resized && g.Submitted {
		m.tellAnew(g)
	}
	m.tellSurroundings(g)
	// 3. Of a group that this instance must not decide on, the engine knows only the pods that
	// have a place: their devices are not free.
	if g.Quarantine != nil && m.confine(g) {
		return
	}
	if !m.Ours(g) {
		m.follow(g)
		return
	}
	// 4. An evicted group waits until all of its pods have left. Then it is withdrawn, and
	// starts again as a whole.
	if g.Draining {
		if g.Leaving() {
			if !g.Submitted { // the engine is new: it must know what they hold
				m.submit(g)
			}
			// Waiting pods start with the gang again, not beside those that leave.
			for _, p := range tables.InOrder(g.Pods, func(p *tables.Pod) bool { return p.State == tables.PodWaiting && p.Slot >= 0 }) {
				m.leaveSlot(p)
			}
			return
		}
		// A gang that fell apart may do so again at once, so it pauses. One that made room for
		// another did nothing wrong.
		if g.Broke {
			g.Failures++
			g.NotBefore = m.Now + m.Pause(g.Failures)
		} else {
			g.Failures = 0
		}
		m.withdraw(g)
	}
	// 5. A group without pods is forgotten, unless its pods restart elsewhere, or its place in the
	// queue is kept.
	m.await(g)
	if len(g.Pods) == 0 {
		m.without(g)
		return
	}
	// 6. The needs of its new pods are determined: their devices and volumes.
	for _, p := range g.Loose {
		m.resolve(p)
	}
	m.warn(g)
	if len(g.Loose) > 0 || !g.Submitted {
		m.reports.Waits(g)
	}
	// 7. A gang that waits leaves the engine when pods that it needs are gone or no longer ready.
	// The engine would make room for a gang that cannot start.
	if g.Submitted && g.Gang() && !g.Runs() && g.Returning == nil && g.Few((*tables.Pod).Stands) != "" {
		m.withdraw(g)
	}
	if g.Submitted && g.Native && m.PodGroupOf(g) == nil && !g.Runs() {
		m.withdraw(g)
	}
	m.readAnew(g)
	// 8. The group is submitted if nothing blocks it; pods that came later join it, or are the
	// doubles of pods that are moved, or come back as those that restart elsewhere.
	if !g.Submitted {
		if reason, detail := m.blocked(g); reason != "" {
			m.stall(g, reason, detail)
			return
		}
		m.keepDraining(g)
		m.submit(g)
		return
	}
	m.pair(g)
	m.add(g, m.comeBack(g))
}

// keepDraining has a gang drain that is to be submitted while all its pods on nodes leave. An engine
// counts these as running, and would start the waiting ones beside them: fewer than the minimum, and
// alone when the others have left.
func (m *changes) keepDraining(g *tables.Group) {
	for _, p := range g.Ending() {
		p.State, g.Draining = tables.PodLeaving, true
		m.NotePod(p)
	}
}

// without handles a group that has no pods.
func (m *driver) without(g *tables.Group) {
	if g.Returning != nil {
		return
	}
	m.withdraw(g)
	if !m.stays(g) {
		m.forget(g)
	}
}

// forget forgets a group without pods.
func (m *changes) forget(g *tables.Group) {
	m.unfollow(g)
	m.Forget(g)
}

// withdraw ends the engine's job; the pods stay.
func (m *driver) withdraw(g *tables.Group) {
	if g.Submitted {
		m.reports.Keep(m.engine, g)
		m.mustTell(core.JobEnded{Job: g.Job})
		delete(m.Jobs, g.Job)
	}
	for _, p := range g.Pods {
		m.NotePod(p)
	}
	g.Worked = false
	g.Reset()
}
