package mirror

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// This file reports in conditions of pods and PodGroups why jobs wait. The engine explains that
// on request (core.Engine.Explain), which is expensive; so a few jobs are explained at a time,
// in turn, and what has not changed is not written.

const (
	// reportAfter is how long a job waits before its reason is reported: most start at once.
	reportAfter = core.Second
	// reportEvery is the time between two reports of new numbers with the same reason.
	reportEvery = 30 * core.Second
)

// Explain asks the engine about at most n waiting jobs, in turn, and returns what is to be
// written.
func (m *Mirror) Explain(n int) []act.Report {
	if m.engine == nil || m.panics.broken {
		return nil
	}
	// A round explains each job once, the oldest first; a new round begins when all have been
	// explained.
	if len(m.asking) == 0 {
		for g := range m.waiters {
			if m.Reportable(g) {
				m.asking = append(m.asking, g)
			} else {
				delete(m.waiters, g)
			}
		}
		slices.SortFunc(m.asking, func(a, b *tables.Group) int { return a.Created.Compare(b.Created) })
	}
	var out []act.Report
	for ; n > 0 && len(m.asking) > 0; n-- {
		g := m.asking[0]
		m.asking = m.asking[1:]
		if m.Reportable(g) {
			out = append(out, m.report(g)...)
		}
	}
	return out
}

// report returns what to write about a group that waits:
//
//  1. The engine says why it waits. For a group that the engine does not know,
//     the reason is in the group already.
//  2. Nothing is written for a job that waits only briefly, or whose reason and numbers were
//     written already, or too recently.
//  3. An event is published when the reason is new, or the numbers after a while.
//  4. Numbers are written on the PodGroup and the first pod; the reason on every pod.
func (m *Mirror) report(g *tables.Group) []act.Report {
	if g.Submitted && g.Quarantine == nil {
		var x core.Explanation
		ok := false
		if !m.guarded(g, func() { x, ok = m.engine.Explain(g.Job) }) {
			return nil
		}
		reason, detail := x.Reason.String(), x.Detail
		if !ok || x.Waiting == 0 {
			if reason, detail = g.Unready(); reason == "" {
				return nil
			}
		} else {
			if x.Settled != core.Never {
				detail += "; the first can be evicted at " + clock(x.Settled)
			}
			if tables.WantsRoom(x.Reason) {
				detail += m.Shards.Within()
			}
			if x.Ahead > 0 {
				detail += fmt.Sprint(translate.AheadMark, x.Ahead)
			}
			detail += m.expects(g, x.Reason)
		}
		g.Wait(m.Now, reason, detail)
		m.noteGroup(g)
	}
	if g.Waiting.Reason == "" || m.Now-g.Waiting.Since < reportAfter {
		return nil
	}
	now := tables.Report{Reason: g.Waiting.Reason, Message: g.Waiting.Detail, At: m.Now}
	old := g.Reported
	if now.Reason == old.Reason && (now.Message == old.Message || m.Now-old.At < reportEvery) && !g.Unreported() {
		return nil
	}
	now.Told = old.Told
	event := ""
	if now.Reason != old.Reason || translate.WhyWaiting(now.Message) != translate.WhyWaiting(old.Message) && m.Now-old.Told >= reportEvery {
		event, now.Told = translate.WhyWaiting(now.Message), m.Now
	}
	g.Reported = now
	now.Message += m.nearest(g)
	var out []act.Report
	pg := m.PodGroupOf(g)
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

// nearest says what would free the nearest places for a job. It costs as much as an explanation,
// and is asked for only when there is something to write.
func (m *Mirror) nearest(g *tables.Group) (text string) {
	if g.Submitted && g.Quarantine == nil {
		m.guarded(g, func() { text = tables.NearestPlaces(m.engine.Nearest(g.Job, 3)) })
	}
	return text
}

// outlook is the last forecast.
type outlook struct {
	core.Forecast
	of    map[*tables.Group]bool // the groups that waited then, and whether the engine knew them
	until core.Time              // when the next is made
}

// expects returns a text that says when a job is expected to start, or why that is not known;
// it is empty for a job that does not wait for what others hold.
func (m *Mirror) expects(g *tables.Group, why core.Reason) string {
	if !tables.WantsRoom(why) && why != core.QuotaExceeded && why != core.HeldBack {
		return ""
	}
	if m.Now >= m.outlook.until {
		m.outlook = outlook{of: map[*tables.Group]bool{}, until: m.Now + reportEvery}
		m.guarded(nil, func() { m.outlook.Forecast = m.engine.Forecast() })
		for g := range m.waiters {
			m.outlook.of[g] = g.Submitted
		}
	}
	f := &m.outlook
	at, ok := f.Starts[g.Job]
	switch {
	case ok:
		return translate.StartMark + clock(at)
	case f.Cut:
		return translate.NoStartMark + "too many jobs wait to forecast all of them"
	case !f.of[g]:
		return translate.NoStartMark + "the job was created after the last forecast"
	case f.Endless > 0:
		return translate.NoStartMark + fmt.Sprintf("running jobs without a walltime, or past it: %d", f.Endless)
	}
	return translate.NoStartMark + "jobs before it have no walltime, or it needs more than running jobs will free"
}

// clock formats a time for messages. A message with the remaining time would change at every
// moment, and would be written again and again.
func clock(t core.Time) string { return time.Unix(0, int64(t)).UTC().Format(time.RFC3339) }

// warn publishes an event about unknown keys, once for each job and before it runs.
func (m *changes) warn(g *tables.Group) {
	if g.Warned || g.ID.Kind == tables.Foreign {
		return
	}
	job := ""
	if pg := m.PodGroupOf(g); pg != nil {
		job = pg.Attributes.Unknown
	}
	if g.Says != nil {
		job = cmp.Or(job, g.Says.Attributes.Unknown)
	}
	for _, p := range tables.InOrder(g.Loose, func(p *tables.Pod) bool {
		return p.State == tables.PodWaiting && cmp.Or(p.Object.Attributes.Unknown, job) != ""
	}) {
		m.acts.warn = append(m.acts.warn, act.Warning{Pod: p.Ref(), Reason: tables.UnknownKey, Message: cmp.Or(p.Object.Attributes.Unknown, job)})
		g.Warned = true
		return
	}
}
