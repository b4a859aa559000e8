package kube

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/translate"
)

// Why jobs wait, reported in conditions of pods and PodGroups. The engine says so when it is
// asked (core.Engine.Explain), which costs; so a few jobs are asked about at a time, in turn,
// and what has not changed is not written.

const (
	// reportAfter is how long a job waits before its reason is reported: most start at once.
	reportAfter = core.Second
	// reportEvery is the time between two reports of new numbers with the same reason.
	reportEvery = 30 * core.Second
)

// explain asks the engine about at most n waiting jobs, in turn, and returns what is to be
// written.
func (m *mirror) explain(n int) []act.Report {
	if m.engine == nil || m.panics.broken {
		return nil
	}
	if len(m.asking) == 0 {
		for g := range m.waiters {
			if m.reportable(g) {
				m.asking = append(m.asking, g)
			} else {
				delete(m.waiters, g)
			}
		}
		slices.SortFunc(m.asking, func(a, b *group) int { return a.created.Compare(b.created) })
	}
	var out []act.Report
	for ; n > 0 && len(m.asking) > 0; n-- {
		g := m.asking[0]
		m.asking = m.asking[1:]
		if m.reportable(g) {
			out = append(out, m.report(g)...)
		}
	}
	return out
}

// reportable reports whether this instance reports why a group waits.
func (t *tables) reportable(g *group) bool { return t.groups[g.id] == g && g.waits() && t.ours(g) }

// report returns what is to be written of a group that waits:
//
//  1. The engine says why it waits. The reason of a group that the engine does not know
//     stands in the group already.
//  2. Nothing is written for a job that waits only briefly, or whose reason and numbers were
//     written already, or too recently.
//  3. An event is published when the reason is new, or the numbers after a while.
//  4. Numbers are written on the PodGroup and the first pod; the reason on every pod.
func (m *mirror) report(g *group) []act.Report {
	if g.submitted && g.quarantine == nil {
		var x core.Explanation
		ok := false
		if !m.guarded(g, func() { x, ok = m.engine.Explain(g.job) }) {
			return nil
		}
		reason, detail := x.Reason.String(), x.Detail
		if !ok || x.Waiting == 0 {
			if reason, detail = g.unready(); reason == "" {
				return nil
			}
		} else {
			if x.Settled != core.Never {
				detail += "; the first can be evicted at " + clock(x.Settled)
			}
			if wantsRoom(x.Reason) {
				detail += m.shards.within()
			}
			if x.Ahead > 0 {
				detail += fmt.Sprint(translate.AheadMark, x.Ahead)
			}
			detail += m.expects(g, x.Reason)
		}
		g.wait(m.now, reason, detail)
		m.noteGroup(g)
	}
	if g.waiting.reason == "" || m.now-g.waiting.since < reportAfter {
		return nil
	}
	now := said{reason: g.waiting.reason, message: g.waiting.detail, at: m.now}
	old := g.said
	if now.reason == old.reason && (now.message == old.message || m.now-old.at < reportEvery) && !g.unreported() {
		return nil
	}
	now.told = old.told
	event := ""
	if now.reason != old.reason || translate.WhyWaiting(now.message) != translate.WhyWaiting(old.message) && m.now-old.told >= reportEvery {
		event, now.told = translate.WhyWaiting(now.message), m.now
	}
	g.said = now
	var out []act.Report
	pg := m.podGroupOf(g)
	if pg != nil {
		out = append(out, act.Report{Pod: pg.ref(), PodGroup: true, Reason: now.reason, Message: now.message, Event: event, Shard: g.shard})
		event = ""
	}
	for i, p := range inOrder(g.pods, func(p *pod) bool { return p.state == podWaiting && !p.object.otherGates }) {
		if now.reason == old.reason && i > 0 && p.said == now.reason {
			continue // the numbers are on the first pod; it would be too much to write them on all
		}
		p.said = now.reason
		out = append(out, act.Report{
			Pod: p.ref(), Reason: now.reason, Message: now.message, Unschedulable: unschedulable(now.reason),
			Event: event, Since: p.object.waitingSince, Shard: g.shard,
			Ungate: p.object.quotaGate && g.submitted && !quotaShort(now.reason),
		})
		event = ""
	}
	return out
}

// outlook is the last forecast.
type outlook struct {
	core.Forecast
	of    map[*group]bool // the groups that waited then, and whether the engine knew them
	until core.Time       // when the next is made
}

// expects is a text that says when a job is expected to start, or why that is not known;
// empty for a job that does not wait for what others hold.
func (m *mirror) expects(g *group, why core.Reason) string {
	if !wantsRoom(why) && why != core.QuotaExceeded && why != core.HeldBack {
		return ""
	}
	if m.now >= m.outlook.until {
		m.outlook = outlook{of: map[*group]bool{}, until: m.now + reportEvery}
		m.guarded(nil, func() { m.outlook.Forecast = m.engine.Forecast() })
		for g := range m.waiters {
			m.outlook.of[g] = g.submitted
		}
	}
	f := &m.outlook
	at, ok := f.Starts[g.job]
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

// clock is a time as messages have it. A message with the time that is left would change all
// the time, and be written again and again.
func clock(t core.Time) string { return time.Unix(0, int64(t)).UTC().Format(time.RFC3339) }

// wantsRoom reports whether a job waits for room on nodes.
func wantsRoom(why core.Reason) bool {
	switch why {
	case core.Resources, core.Stranded, core.InsufficientCPU, core.InsufficientMemory, core.InsufficientPods, core.InsufficientOther,
		core.TopologyTooTight, core.Affinity:
		return true
	}
	return false
}

// unschedulable reports whether more nodes could help a job that waits for a reason:
// autoscalers make room for pods that are Unschedulable.
func unschedulable(reason string) bool {
	switch reason {
	case core.Resources.String(), core.Stranded.String(), core.InsufficientCPU.String(), core.InsufficientMemory.String(), core.InsufficientPods.String(),
		core.InsufficientOther.String(), core.NoNode.String(), core.TopologyTooTight.String(), core.Affinity.String():
		return true
	}
	return false
}

// quotaShort reports whether a job waits for quota.
func quotaShort(reason string) bool {
	return slices.Contains([]string{core.QuotaExceeded.String(), core.MinRuntime.String(), core.ExceedsQuota.String()}, reason)
}

// UnknownKey is the reason of the event of a pod that has a label or annotation, or whose
// PodGroup or owner has one, that begins as Muster's do and is none of them.
const UnknownKey = "UnknownKey"

// warn publishes an event about unknown keys, once for each job and before it runs.
func (m *changes) warn(g *group) {
	if g.warned || g.id.Kind == others {
		return
	}
	job := ""
	if pg := m.podGroupOf(g); pg != nil {
		job = pg.attributes.Unknown
	}
	if g.says != nil {
		job = cmp.Or(job, g.says.Attributes.Unknown)
	}
	for _, p := range inOrder(g.loose, func(p *pod) bool { return p.state == podWaiting && cmp.Or(p.object.attributes.Unknown, job) != "" }) {
		m.acts.warn = append(m.acts.warn, act.Warning{Pod: p.ref(), Reason: UnknownKey, Message: cmp.Or(p.object.attributes.Unknown, job)})
		g.warned = true
		return
	}
}

// statusPeriod is the time between two rounds of questions about waiting jobs, explained the
// number of jobs in a round at most: a question costs a millisecond or two in the largest
// clusters.
const (
	statusPeriod = 250 * time.Millisecond
	explained    = 20
)
