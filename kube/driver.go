package kube

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/translate"
)

// rebuild derives the engine again: at the start, and when the policy, the
// topology or the GPUs of a node are others.
func (m *driver) rebuild() error {
	m.outdated = false
	if err := m.policies.Settle(); err != nil {
		return err
	}
	m.pickLevels()
	c := m.engineConfig()
	e, err := m.newEngine(c)
	if err != nil {
		return err
	}
	m.panics.broken = false
	if m.record != nil {
		m.record.Began(m.now, c)
	}
	m.engine, m.engineWakes, m.outlook = e, core.Never, outlook{}
	m.queues.rebuild(m)
	sorted := make([]*node, 0, len(m.nodes))
	for _, n := range m.nodes {
		n.known, n.sick = false, 0
		sorted = append(sorted, n)
	}
	slices.SortFunc(sorted, func(a, b *node) int { return cmp.Compare(a.object.Name, b.object.Name) })
	for _, n := range sorted {
		m.tellNode(n)
	}
	clear(m.dirtyNodes)
	clear(m.jobs)
	m.dirty = m.dirty[:0]
	groups := make([]*group, 0, len(m.groups))
	for _, g := range m.groups {
		m.startOver(g)
		g.dirty = false
		if m.ours(g) && g.inherits() {
			m.acts.said = append(m.acts.said, m.unsay(g)...)
		}
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b *group) int {
		return cmp.Or(a.created.Compare(b.created), strings.Compare(a.id.Job(), b.id.Job()))
	})
	for _, g := range groups {
		m.touch(g)
	}
	return nil
}

// decide brings the engine up to date and lets it decide. The acts are valid
// until done is called.
func (m *driver) decide(now core.Time) *acts {
	m.now = max(m.now, now)
	if m.engine == nil {
		return &m.acts
	}
	m.watchLabels()
	if m.outdated {
		if err := m.rebuild(); err != nil {
			m.log.Error("cannot rebuild the engine", "error", err)
		}
	}
	for _, g := range m.later {
		m.touch(g)
	}
	m.later = m.later[:0]
	m.provided()
	m.openArrived()
	m.settle()
	m.sweepLost()
	m.sweepDraining()
	m.countsAgain()
	m.settle()
	if m.engineWakes <= m.now {
		m.engineWakes = core.Never
		m.mustTell(core.Tick{})
	}
	var decisions []core.Decision
	if !m.guarded(nil, func() { decisions = m.engine.Decide(m.now) }) {
		if m.outdated {
			m.acts.wake = m.now // at once, with an engine that is built again
		}
		return &m.acts
	}
	if m.record != nil {
		m.record.Decided(m.now, decisions)
	}
	m.metrics.decided(decisions)
	for _, d := range decisions {
		switch d.Op {
		case core.Bind:
			m.bind(&d)
		case core.Evict, core.Requeue:
			m.evict(&d)
		case core.Wake:
			m.engineWakes = d.At
		}
	}
	// The engine decided on what pods needed before: what another needs, now that these
	// have their claims, counts from here on.
	for _, p := range m.placed {
		m.volumesChanged(m.storage.ObservePod(p.usesVolumes()))
	}
	m.placed = m.placed[:0]
	m.acts.wake = min(m.acts.wake, m.engineWakes)
	m.handOver()
	return &m.acts
}

// settle tells the engine what has changed in nodes and groups.
func (m *driver) settle() {
	m.recheck()
	for len(m.dirtyNodes) > 0 || len(m.dirty) > 0 {
		if len(m.dirtyNodes) > 0 {
			changed := make([]*node, 0, len(m.dirtyNodes))
			for _, n := range m.dirtyNodes {
				changed = append(changed, n)
			}
			clear(m.dirtyNodes)
			slices.SortFunc(changed, func(a, b *node) int { return cmp.Compare(a.object.Name, b.object.Name) })
			for _, n := range changed {
				m.tellNode(n)
			}
		}
		list := m.dirty
		m.dirty = nil
		for _, g := range list {
			g.dirty = false
			m.guarded(g, func() {
				m.advance(g)
				m.tellShield(g)
			})
		}
	}
}

// bind turns a decision into an act for each pod.
func (m *driver) bind(d *core.Decision) {
	g := m.jobs[d.Job]
	list := make([]bindAct, 0, len(d.Pods))
	for i := range d.Pods {
		at := &d.Pods[i]
		p := g.slots[at.Pod]
		p.state, p.target, p.devices, p.given, p.inFlight = podBinding, at.Node, at.GPUs, at.GPUs, true
		m.place(p, at.Node)
		if len(p.object.claims) > 0 {
			m.placed = append(m.placed, p)
		}
		m.notePod(p)
		notes := map[string]string{}
		if g.says != nil {
			notes = g.says.Notes(&p.object.attributes)
		}
		if at.GPUs != 0 {
			notes[v1alpha1.GPUsAnnotation] = translate.Devices(at.GPUs)
			if at.GPU < core.WholeGPU {
				notes[v1alpha1.ShareAnnotation] = fmt.Sprint(int64(at.GPU))
			}
		}
		if at.NICs != 0 {
			notes[v1alpha1.NICsAnnotation] = translate.Devices(at.NICs)
		}
		if d.Reason == core.Backfilled {
			notes[v1alpha1.BackfilledAnnotation] = "true"
		}
		list = append(list, bindAct{p, act.Bind{Pod: p.ref(), Node: at.Node, Annotations: notes, Gated: p.object.quotaGate}})
	}
	m.grant(list)
	for _, b := range list {
		if len(b.pod.volumes.Unbound) > 0 {
			m.provide(b)
		} else {
			m.acts.bind = append(m.acts.bind, b)
		}
	}
	g.inFlight += len(d.Pods)
	m.decidedOn(g, len(d.Pods))
	if !g.ran {
		g.ran = true
		m.metrics.bound(g.queue, max(0, m.now-timeOf(g.created)))
	}
	g.waiting = waiting{}
}

// evict turns a decision into an act for each pod. A gang that keeps too few
// pods is drained: what comes again waits until the old are gone.
func (m *changes) evict(d *core.Decision) {
	g := m.jobs[d.Job]
	if !m.decides(g) {
		return // it is up to the instance that decides on it
	}
	message := d.Detail
	if message == "" && d.For != "" {
		message = "evicted to make room for " + d.For
	}
	var list []evictAct
	for i := range d.Pods {
		p := g.slots[d.Pods[i].Pod]
		p.dismissed = true
		if p.state == podLeaving {
			continue // we, or an engine before this one, told it to before
		}
		p.state = podLeaving
		m.notePod(p)
		p.cause = evictAct{pod: p, reason: d.Reason.String(), message: message}
		switch {
		case !p.inFlight:
			list = append(list, p.cause)
		case p.withheld != nil:
			m.acts.wake = m.now // nothing was sent yet: it is given up at once
		}
	}
	if g.gang() && g.broken((*pod).runs) {
		g.draining, g.broke = true, d.Op == core.Requeue
	}
	m.sendOff(g, list)
}

// done forgets the acts, which have been carried out or sent on their way.
func (m *changes) done() {
	m.acts = acts{bind: m.acts.bind[:0], evict: m.acts.evict[:0], suspend: m.acts.suspend[:0], move: m.acts.move[:0], stay: m.acts.stay[:0], count: m.acts.count[:0], choose: m.acts.choose[:0], ask: m.acts.ask[:0], said: m.acts.said[:0], warn: m.acts.warn[:0], record: m.acts.record[:0], wake: core.Never}
}
