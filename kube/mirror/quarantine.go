package mirror

import (
	"fmt"
	"reflect"
	"runtime/debug"

	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// This file leaves out the jobs on which the engine panics, as package guard says, and builds it again.

// guarded calls a function that may panic, and reports whether it did not. g is the group
// that the call concerns, unless the engine names another; nil if there is none.
func (m *driver) guarded(g *tables.Group, call func()) (ok bool) {
	if m.panics.Broken {
		return false
	}
	defer func() {
		if v := recover(); v != nil {
			m.panicked(g, v)
			ok = false
		}
	}()
	call()
	return true
}

// Broken reports whether the engine panicked and is to be built again, by the next pass.
func (m *driver) Broken() bool { return m.panics.Broken }

// panicked finds the job that caused a panic.
func (m *driver) panicked(g *tables.Group, v any) {
	// The engine may have worked on another job than the caller asked about.
	if job := m.engine.Working(); job != "" {
		g = m.GroupNamed(job)
	}
	m.panics.Broken, m.outdated = true, true
	// There is no job to blame, or one that the engine does not even know: the fault is
	// elsewhere, and leaving out more jobs does not help.
	if g == nil || g.Quarantine != nil && g.Quarantine.Untold {
		m.panics.Blameless(v, m.Now)
		m.log.Error("the engine panicked, but not on a job: rebuilding it", "panic", v, "stack", string(debug.Stack()))
		return
	}
	m.log.Error("the engine panicked: the job is quarantined", "job", g.Job, "panic", v, "stack", string(debug.Stack()))
	// The engine panics even on the places of its pods: it no longer receives them, and their
	// nodes are closed instead.
	if g.Quarantine != nil {
		g.Quarantine.Untold = true
		m.panics.Untold++
		return
	}
	g.Quarantine = &tables.Quarantine{
		Message: fmt.Sprintf("the scheduler failed while it processed this job, which is left out until it changes: %v", v),
		Asked:   g.Wishes(), Group: m.GroupWish(g), Until: m.Now + m.panics.Pause(g.ID, m.Now),
	}
	m.panics.Jobs++
	m.metrics.Quarantined(m.panics.Jobs)
	if list := tables.InOrder(g.Pods, func(*tables.Pod) bool { return true }); len(list) > 0 && !g.Waits() { // else: a condition
		m.acts.Warn = append(m.acts.Warn, act.Warning{Pod: list[0].Ref(), Reason: tables.ReasonQuarantined, Message: g.Quarantine.Message})
	}
}

// confine keeps a job in quarantine, and reports whether it stays there.
func (m *driver) confine(g *tables.Group) bool {
	q := g.Quarantine
	q.Changed = q.Changed || len(g.Pods) == 0 || !tables.SameWishes(g.Wishes(), q.Asked) || !reflect.DeepEqual(q.Group, m.GroupWish(g))
	if q.Changed && m.Now >= q.Until {
		m.release(g)
		return false
	}
	detail := q.Message
	if q.Changed {
		m.acts.Wake = min(m.acts.Wake, q.Until)
		m.later = append(m.later, g)
		detail = fmt.Sprintf("%s; it has changed, and the next attempt is at %s because it failed before", q.Message, translate.Clock(q.Until))
	}
	if !q.Untold {
		m.follow(g)
	}
	if g.Waits() {
		g.Wait(m.Now, tables.ReasonQuarantined, detail)
		m.reports.Waits(g)
	}
	return true
}

// release ends the quarantine of a job.
func (m *driver) release(g *tables.Group) {
	m.log.Info("a job leaves quarantine", "job", g.Job)
	// The engine has it as a job that it must not touch.
	if g.Submitted {
		m.tellAnew(g)
	}
	if g.Quarantine.Untold {
		m.panics.Untold--
		m.shutNodes(g)
	}
	g.Quarantine = nil
	m.panics.Jobs--
	m.metrics.Quarantined(m.panics.Jobs)
}

// shutNodes marks the nodes of a group's pods, so that they are checked again.
func (m *changes) shutNodes(g *tables.Group) {
	for _, p := range g.Pods {
		if n := m.Nodes[p.Target]; n != nil {
			m.dirtyNodes[p.Target] = n
		}
	}
}
