package kube

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/translate"
)

// A bug in the engine is a panic. The job that the engine was working on is put in
// quarantine, and the engine is built again from the tables without it, so that one
// job stops neither the others nor, one by one, every replica:
//
//  1. A call of the engine that panics is taken for one that was refused, and the
//     engine for broken: it is asked nothing until it has been built again, which is
//     at once. No panic of a job makes the others wait for longer than that.
//  2. Of a job in quarantine the engine knows the pods that have a place, as it knows
//     those of jobs on which another instance decides: their devices are not free. Its
//     waiting pods are told why they wait.
//  3. If that is too much too, the engine is not told of the job at all, and the nodes
//     of its pods take no others.
//  4. The quarantine ends when what the job asks for changes: a pod is edited, comes
//     or goes, or its PodGroup changes. A job that fails again has to wait longer each
//     time before a change counts, even when it was deleted in between. Without that,
//     one who edits such a job each second has the engine built again each second. A
//     new leader knows of none: it finds out again.
//  5. A panic that no job can be blamed for is followed by one attempt to go on. The
//     next one soon after ends the process, as bugs elsewhere do.

// ReasonQuarantined is why a job waits on which the scheduler failed.
const ReasonQuarantined = "Quarantined"

const (
	// A job that fails for the second time is in quarantine for at least firstPause,
	// then for twice as long each time, at most maxPause. Failures are forgotten
	// that are longer ago than memoryOfFailures.
	firstPause       = 10 * core.Second
	maxPause         = 3600 * core.Second
	memoryOfFailures = 2 * maxPause
	// blamelessPeriod is how long after a panic that no job was blamed for the next
	// such ends the process.
	blamelessPeriod = 600 * core.Second
)

// scheduling is what is asked of the engine.
type scheduling interface {
	Apply(now core.Time, ev core.Event) error
	Decide(now core.Time) []core.Decision
	Explain(job string) (core.Explanation, bool)
	Forecast() core.Forecast
	Working() string
}

func newEngine(c core.Config) (scheduling, error) { return core.New(c) }

// quarantine is why a job is left out, and what it asked for then.
type quarantine struct {
	message string
	asked   []wish
	group   any // what its PodGroup says
	// until is when the quarantine ends at the earliest, changed that it ends then.
	until   core.Time
	changed bool
	// untold says that the engine must not even know of its pods.
	untold bool
}

// wish is what pods ask for that are alike.
type wish struct {
	pods       int
	request    core.Request
	attributes translate.Attributes
	membership translate.Membership
	terms      []translate.Term
	priority   int32
}

// panics is what is remembered of them.
type panics struct {
	// broken says that the engine panicked and was not built again since.
	broken    bool
	blameless core.Time // the last time that no job was to blame
	count     int       // jobs in quarantine
	untold    int       // and of those, such that the engine must not know of
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

// guarded calls what may panic and reports whether it did not. g is the group that it
// is about, unless the engine says more; nil when there is none.
func (m *driver) guarded(g *group, call func()) (ok bool) {
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

// broken reports whether the engine panicked and is to be built again, by the next pass.
func (m *driver) broken() bool { return m.panics.broken }

// panicked finds the job that caused a panic.
func (m *driver) panicked(g *group, v any) {
	if job := m.engine.Working(); job != "" {
		g = m.groupNamed(job)
	}
	m.panics.broken, m.outdated = true, true
	if g == nil || g.quarantine != nil && g.quarantine.untold {
		if m.panics.blameless > 0 && m.now < m.panics.blameless+blamelessPeriod {
			panic(ending{v})
		}
		m.panics.blameless = m.now
		m.log.Error("the engine panicked, but not on a job: rebuilding it", "panic", v, "stack", string(debug.Stack()))
		return
	}
	m.log.Error("the engine panicked: the job is quarantined", "job", g.job, "panic", v, "stack", string(debug.Stack()))
	if g.quarantine != nil {
		g.quarantine.untold = true
		m.panics.untold++
		return
	}
	g.quarantine = &quarantine{
		message: fmt.Sprintf("the scheduler failed while it processed this job, which is left out until it changes: %v", v),
		asked:   g.wishes(), group: m.groupWish(g), until: m.now + m.panics.pause(g.id, m.now),
	}
	m.panics.count++
	m.metrics.quarantined(m.panics.count)
	if list := inOrder(g.pods, func(*pod) bool { return true }); len(list) > 0 && !g.waits() { // else they are told why they wait
		m.acts.warn = append(m.acts.warn, act.Warning{Pod: list[0].ref(), Reason: ReasonQuarantined, Message: g.quarantine.message})
	}
}

// groupNamed finds the group of an engine's job.
func (t *tables) groupNamed(job string) *group {
	if g := t.jobs[job]; g != nil {
		return g
	}
	for _, g := range t.groups {
		if g.job == job {
			return g
		}
	}
	return nil
}

// pause notes that a job fails, and returns for how long it is in quarantine at least.
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
func (m *driver) confine(g *group) bool {
	q := g.quarantine
	q.changed = q.changed || len(g.pods) == 0 || !sameWishes(g.wishes(), q.asked) || !reflect.DeepEqual(q.group, m.groupWish(g))
	if q.changed && m.now >= q.until {
		m.release(g)
		return false
	}
	detail := q.message
	if q.changed {
		m.acts.wake = min(m.acts.wake, q.until)
		m.later = append(m.later, g)
		detail = fmt.Sprintf("%s; it has changed, and the next attempt is at %s because it failed before", q.message, clock(q.until))
	}
	if !q.untold {
		m.follow(g)
	}
	if g.waits() {
		g.wait(m.now, ReasonQuarantined, detail)
		m.waiters[g] = true
	}
	return true
}

// release ends the quarantine of a job.
func (m *driver) release(g *group) {
	m.log.Info("a job leaves quarantine", "job", g.job)
	if g.submitted {
		m.tellAnew(g)
	}
	if g.quarantine.untold {
		m.panics.untold--
		m.shutNodes(g)
	}
	g.quarantine = nil
	m.panics.count--
	m.metrics.quarantined(m.panics.count)
}

// shutNodes has the nodes of a group's pods looked at again.
func (m *changes) shutNodes(g *group) {
	for _, p := range g.pods {
		if n := m.nodes[p.target]; n != nil {
			m.dirtyNodes[p.target] = n
		}
	}
}

// untoldOn reports whether pods are on a node that the engine must not know of.
func (m *driver) untoldOn(n *node) bool {
	if m.panics.untold > 0 {
		for _, p := range n.pods {
			if p.group != nil && p.group.quarantine != nil && p.group.quarantine.untold {
				return true
			}
		}
	}
	return false
}

// wishes returns what pods of the group ask for, and how many do.
func (g *group) wishes() []wish {
	var list []wish
	for _, p := range g.pods {
		w := wish{0, p.object.request, p.object.attributes, p.object.membership, p.object.terms, p.object.priority}
		w.attributes.LastCheckpoint = time.Time{}
		at := slices.IndexFunc(list, func(x wish) bool { return x.alike(w) })
		if at < 0 {
			at, list = len(list), append(list, w)
		}
		list[at].pods++
	}
	return list
}

// alike reports whether pods ask for the same, however many do.
func (w wish) alike(x wish) bool {
	w.pods = x.pods
	return reflect.DeepEqual(&w, &x)
}

// sameWishes reports whether two lists are equal but for their order.
func sameWishes(a, b []wish) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(w wish) bool {
		return !slices.ContainsFunc(b, func(x wish) bool { return x.pods == w.pods && x.alike(w) })
	})
}

// groupWish is what the group's PodGroup says.
func (t *tables) groupWish(g *group) any {
	pg := t.podGroupOf(g)
	if pg == nil {
		return nil
	}
	priority := int32(0)
	if pg.priority != nil {
		priority = *pg.priority
	}
	return [...]any{pg.min, pg.attributes, pg.required, pg.whole, priority}
}
