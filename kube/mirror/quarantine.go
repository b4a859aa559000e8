package mirror

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// A bug in the engine is a panic. The job that the engine was working on is put in
// quarantine, and the engine is built again from the tables without it, so that one
// job stops neither the others nor, one by one, every replica:
//
//  1. A call of the engine that panics counts as refused, and the engine counts as
//     broken: it is not called until it has been built again, which happens at once. No
//     panic makes other jobs wait for longer than that.
//  2. Of a job in quarantine the engine knows the pods that have a place, as it knows
//     those of jobs on which another instance decides: their devices are not free. Its
//     waiting pods get a condition with the reason.
//  3. If the engine panics on that too, the job is kept from the engine altogether, and
//     the nodes of its pods accept no other pods.
//  4. The quarantine ends when what the job asks for changes: a pod is edited, comes
//     or goes, or its PodGroup changes. A job that fails again has to wait longer each
//     time before a change counts, even when it was deleted in between. Without that, a
//     user who edits such a job each second would cause a rebuild each second. A new
//     leader knows no such jobs: it finds them again.
//  5. A panic that no job can be blamed for is followed by one attempt to go on. The
//     next one soon after ends the process, as bugs elsewhere do.

const (
	// A job that fails for the second time is in quarantine for at least firstPause,
	// then for twice as long each time, at most maxPause. Failures are forgotten
	// that are longer ago than memoryOfFailures.
	firstPause       = 10 * core.Second
	maxPause         = 3600 * core.Second
	memoryOfFailures = 2 * maxPause
	// blamelessPeriod is how long after a panic that no job was blamed for a second one
	// ends the process.
	blamelessPeriod = 600 * core.Second
)

// panics is the record of panics.
type panics struct {
	// broken says that the engine panicked and was not built again since.
	broken    bool
	blameless core.Time // the last time that no job was to blame
	count     int       // jobs in quarantine
	untold    int       // those of them that the engine must not know
	failures  map[translate.Group]failures
}

// failures are how often a job was put in quarantine, and when for the last time.
type failures struct {
	times int
	last  core.Time
}

// ending is a panic that is to end the process.
type ending struct{ v any }

func (e ending) String() string { return fmt.Sprint(e.v) }

// errBroken is what an engine that panicked answers.
var errBroken = errors.New("the engine panicked: it must be rebuilt")

// guarded calls a function that may panic, and reports whether it did not. g is the group
// that the call concerns, unless the engine names another; nil if there is none.
func (m *driver) guarded(g *tables.Group, call func()) (ok bool) {
	if m.panics.broken {
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
func (m *driver) Broken() bool { return m.panics.broken }

// panicked finds the job that caused a panic.
func (m *driver) panicked(g *tables.Group, v any) {
	// The engine may have worked on another job than the caller asked about.
	if job := m.engine.Working(); job != "" {
		g = m.GroupNamed(job)
	}
	m.panics.broken, m.outdated = true, true
	// There is no job to blame, or one that the engine does not even know: the fault is
	// elsewhere, and leaving out more jobs does not help.
	if g == nil || g.Quarantine != nil && g.Quarantine.Untold {
		if m.panics.blameless > 0 && m.Now < m.panics.blameless+blamelessPeriod {
			panic(ending{v})
		}
		m.panics.blameless = m.Now
		m.log.Error("the engine panicked, but not on a job: rebuilding it", "panic", v, "stack", string(debug.Stack()))
		return
	}
	m.log.Error("the engine panicked: the job is quarantined", "job", g.Job, "panic", v, "stack", string(debug.Stack()))
	// The engine panics even on the places of its pods: it no longer receives them, and their
	// nodes are closed instead.
	if g.Quarantine != nil {
		g.Quarantine.Untold = true
		m.panics.untold++
		return
	}
	g.Quarantine = &tables.Quarantine{
		Message: fmt.Sprintf("the scheduler failed while it processed this job, which is left out until it changes: %v", v),
		Asked:   g.Wishes(), Group: m.GroupWish(g), Until: m.Now + m.panics.pause(g.ID, m.Now),
	}
	m.panics.count++
	m.metrics.Quarantined(m.panics.count)
	if list := tables.InOrder(g.Pods, func(*tables.Pod) bool { return true }); len(list) > 0 && !g.Waits() { // else: a condition
		m.acts.Warn = append(m.acts.Warn, act.Warning{Pod: list[0].Ref(), Reason: tables.ReasonQuarantined, Message: g.Quarantine.Message})
	}
}

// pause records a failure of a job, and returns its minimum time in quarantine.
func (p *panics) pause(id translate.Group, now core.Time) core.Time {
	maps.DeleteFunc(p.failures, func(_ translate.Group, f failures) bool { return now-f.last > memoryOfFailures })
	if p.failures == nil {
		p.failures = map[translate.Group]failures{}
	}
	times := p.failures[id].times + 1
	p.failures[id] = failures{times, now}
	if times == 1 {
		return 0
	}
	return min(firstPause<<min(times-2, 20), maxPause)
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
		m.reports.Waiters[g] = true
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
		m.panics.untold--
		m.shutNodes(g)
	}
	g.Quarantine = nil
	m.panics.count--
	m.metrics.Quarantined(m.panics.count)
}

// shutNodes marks the nodes of a group's pods, so that they are checked again.
func (m *changes) shutNodes(g *tables.Group) {
	for _, p := range g.Pods {
		if n := m.Nodes[p.Target]; n != nil {
			m.dirtyNodes[p.Target] = n
		}
	}
}
