// Package reports says why jobs wait, in conditions and events of pods and PodGroups, and computes
// the statuses of Muster's own objects. It asks the engine and the tables, and decides nothing.
//
// The engine explains a job on request (core.Engine.Explain), which is expensive; so a few jobs
// are explained at a time, in turn, and what has not changed is not written.
package reports

import (
	"fmt"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
	"github.com/muster-sched/muster/internal/fit"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/fair"
	"github.com/muster-sched/muster/kube/stats"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

const (
	// After is how long a job waits before its reason is reported: most start at once.
	After = core.Second
	// Every is the time between two reports of new numbers with the same reason.
	Every = 30 * core.Second
	// MaxEvents is how many events are published about the jobs of a namespace in a minute: each is a write, and conditions say the same.
	MaxEvents = 100
	// Quiet is how long a gang waits for its pods before a Warning event says so: its owner may be creating them.
	Quiet = 30 * core.Second
)

// Engine is the part of the engine that is asked.
type Engine interface {
	Explain(job string) (core.Explanation, bool)
	Nearest(job string, most int) []frag.Finding
	Forecast() core.Forecast
	Shares() map[string][]core.Share
	ResourceUsage() map[string][]stats.Usage
	Overbooked() []core.Overbooked
	Evictions(node string) int
	QueueTimes(now core.Time) []core.QueueTime
	JobTime(now core.Time, job string) (core.Served, bool)
	StaleSince(job string) (core.Time, bool)
	Standings(now core.Time) map[string]core.Standing
	UsersHold() map[string][]core.UserHolds
}

// Reporter reports why jobs wait. Its memory is about one cluster; it is not safe for
// concurrent use.
type Reporter struct {
	*tables.Tables
	Census *tables.Census
	// Guarded calls a function that asks the engine about a group, nil for none, and reports
	// whether it did not panic.
	Guarded func(g *tables.Group, call func()) bool
	Outlook Outlook

	// waiters are the groups with waiting pods, and some that no longer have any: those to explain next come first. A namespace
	// whose jobs are many does not delay what others are told.
	waiters fair.Queue[*tables.Group]
	waits   map[*tables.Group]bool // those in waiters
	most    int                    // see fit.Map
	noted   core.Time              // when counts of evictions were written last
	events  eventCount
	ledger  ledgerTurn
	// standings are where queues stood at a time.
	standings map[string]core.Standing
	stood     core.Time
}

// eventCount counts the events about the jobs of each namespace within a minute.
type eventCount struct {
	since core.Time
	of    map[string]int
}

// more counts an event, and reports whether it may be published.
func (c *eventCount) more(namespace string, now core.Time) bool {
	if c.of == nil || now-c.since >= 60*core.Second {
		c.since, c.of = now, map[string]int{}
	}
	c.of[namespace]++
	return c.of[namespace] <= MaxEvents
}

// gonePerLook bounds how many groups that no longer wait are dropped for each that may be explained at once: when a tenant's jobs end, all of them do.
const gonePerLook = 50

// Waiters is how many groups are among those to be explained.
func (r *Reporter) Waiters() int { return len(r.waits) }

// Waits says that a group may have waiting pods.
func (r *Reporter) Waits(g *tables.Group) {
	if r.waits == nil {
		r.waits = map[*tables.Group]bool{}
	}
	if !r.waits[g] {
		r.waits[g] = true
		r.waiters.Put(g.ID.Namespace, g)
	}
}

// Explain asks the engine about at most n waiting jobs, and returns what is to be written. Namespaces take turns, and in
// each its jobs.
func (r *Reporter) Explain(e Engine, n int) []act.Report {
	var out []act.Report
	var asked []*tables.Group
	for looks := gonePerLook * n; len(asked) < n && looks > 0; looks-- {
		g, ok := r.waiters.Take()
		if !ok {
			break
		}
		if !r.Reportable(g) {
			delete(r.waits, g)
			r.waits = fit.Map(r.waits, &r.most)
			continue
		}
		out, asked = append(out, r.Report(e, g)...), append(asked, g)
	}
	for _, g := range asked {
		r.waiters.Put(g.ID.Namespace, g)
	}
	return out
}

// Report returns what to write about a group that waits:
//
//  1. The engine says why it waits. For a group that the engine does not know,
//     the reason is in the group already.
//  2. Nothing is written for a job that waits only briefly, or whose reason and numbers were
//     written already, or too recently.
//  3. An event is published when the reason is new, or the numbers after a while.
//  4. Numbers are written on the PodGroup and the first pod; the reason on every pod.
func (r *Reporter) Report(e Engine, g *tables.Group) []act.Report {
	if g.Submitted && g.Quarantine == nil {
		var x core.Explanation
		ok := false
		if !r.Guarded(g, func() { x, ok = e.Explain(g.Job) }) {
			return nil
		}
		reason, detail := x.Reason.String(), ""
		if !ok || x.Waiting == 0 {
			if reason, detail = g.Unready(); reason == "" {
				return nil
			}
		} else {
			detail = r.detailOf(e, g, &x)
		}
		g.Wait(r.Now, reason, detail)
		r.Census.NoteGroup(g)
	}
	if g.Waiting.Reason == "" || r.Now-g.Waiting.Since < After {
		return nil
	}
	now := tables.Report{Reason: g.Waiting.Reason, Message: g.Waiting.Detail, At: r.Now}
	if g.Ran && !g.Worked && !g.Runs() {
		now.Message += translate.RequeuedMark
	}
	old := g.Reported
	// A job that waits for its pods, or for other jobs, is as its author wants it.
	calm := now.Reason == tables.ReasonDependency || now.Reason == tables.ReasonCollecting && r.Now-g.Waiting.Since < Quiet
	late := now.Reason == tables.ReasonCollecting && !calm && old.Told < g.Waiting.Since
	if !late && now.Reason == old.Reason && (now.Message == old.Message || r.Now-old.At < Every) && !g.Unreported() {
		return nil
	}
	now.Told = old.Told
	event := ""
	if changed := now.Reason != old.Reason || translate.WhyWaiting(now.Message) != translate.WhyWaiting(old.Message) && r.Now-old.Told >= Every; !calm && (changed || late) && r.events.more(g.ID.Namespace, r.Now) {
		event, now.Told = translate.WhyWaiting(now.Message), r.Now
	}
	g.Reported = now
	now.Message += r.nearest(e, g)
	var out []act.Report
	pg := r.PodGroupOf(g)
	if pg != nil {
		out = append(out, act.Report{Pod: pg.Ref(), PodGroup: true, Reason: now.Reason, Message: now.Message, Event: event, Shard: g.Shard})
		event = ""
	}
	for i, p := range tables.InOrder(g.Pods, func(p *tables.Pod) bool { return p.State == tables.PodWaiting && !p.Object.OtherGates }) {
		if now.Reason == old.Reason && i > 0 && p.Said == now.Reason {
			continue // the numbers are on the first pod; writing them on all pods would cost too much
		}
		p.Said = now.Reason
		out = append(out, act.Report{
			Pod: p.Ref(), Reason: now.Reason, Message: now.Message, Unschedulable: tables.Unschedulable(now.Reason),
			Event: event, Since: p.Object.WaitingSince, Shard: g.Shard,
			Ungate: p.Object.QuotaGate && g.Submitted && !tables.QuotaShort(now.Reason),
		})
		event = ""
	}
	return out
}

// detailOf returns why a group waits, with what is expected of it, each part after its mark.
func (r *Reporter) detailOf(e Engine, g *tables.Group, x *core.Explanation) string {
	detail := x.Detail
	if x.Reason == core.NoNode || x.Reason == core.Affinity {
		detail += r.Excluded(g)
	}
	if x.Settled != core.Never {
		detail += "; the first can be evicted at " + translate.Clock(x.Settled)
	}
	if x.Delayed != core.Never {
		detail += "; it evicts no pods before " + translate.Clock(x.Delayed)
	}
	if x.Stops != core.Never {
		detail += "; its gang has too few pods, and stops at " + translate.Clock(x.Stops)
	}
	if tables.WantsRoom(x.Reason) {
		detail += r.Shards.Within()
	}
	if x.Turn != "" {
		detail += translate.TurnMark + x.Turn
	}
	if x.Ahead > 0 {
		detail += translate.AheadMark + core.AheadText(x.Ahead)
	}
	detail += r.expects(e, g, x)
	detail += r.queueText(g)
	return detail
}

// nearest says what would free the nearest places for a job. It costs as much as an explanation,
// and is asked for only when there is something to write.
func (r *Reporter) nearest(e Engine, g *tables.Group) (text string) {
	if g.Submitted && g.Quarantine == nil {
		r.Guarded(g, func() { text = tables.NearestPlaces(e.Nearest(g.Job, 3)) })
	}
	return text
}

// Outlook is the last forecast of an engine. The zero value makes Reporter ask for one.
type Outlook struct {
	core.Forecast
	Made  core.Time
	Until core.Time // when the next is made
}

// queueText says in which queue a group waits, if its pods do not say so: an object above them does, or a PodGroup.
func (r *Reporter) queueText(g *tables.Group) string {
	for _, p := range g.Pods {
		if r.QueueOf(g, p.Object.Attributes) == g.Queue {
			return ""
		}
	}
	return translate.QueueMark + g.Queue
}

// expects returns a text that says when a job is expected to start, or to evict others, or why that is not known;
// it is empty for a job that does not wait for what others hold.
func (r *Reporter) expects(e Engine, g *tables.Group, x *core.Explanation) string {
	why := x.Reason
	if x.EvictsAt != core.Never {
		return translate.EvictsMark + translate.Clock(x.EvictsAt) + translate.EvictsSeparator + x.EvictsText()
	}
	if !tables.WantsRoom(why) && why != core.QuotaExceeded && why != core.MustNotBorrow && why != core.HeldBack && why != core.MaxRunning {
		return ""
	}
	if r.Now >= r.Outlook.Until {
		r.Outlook = Outlook{Made: r.Now, Until: r.Now + Every}
		r.Guarded(nil, func() { r.Outlook.Forecast = e.Forecast() })
	}
	f := &r.Outlook
	at, ok := f.Starts[g.Job]
	switch {
	case ok:
		return translate.StartMark + translate.Clock(at)
	case f.Cut:
		return translate.NoStartMark + "too many jobs wait to forecast all of them"
	case x.Since > f.Made:
		return translate.NoStartMark + "the job was created after the last forecast"
	case f.Endless > 0:
		return translate.NoStartMark + fmt.Sprintf("running jobs without a walltime, or past it: %d", f.Endless)
	}
	return translate.NoStartMark + "jobs before it have no walltime, or it needs more than running jobs will free"
}
