package mirror

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/reports"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// Engine is what decides, nil until all objects have been listed once. It belongs to the mirror: no other code changes it.
func (m *driver) Engine() Engine { return m.engine }

// rebuild derives the engine from the tables: at the start, and when the policy, the
// topology or the GPUs of a node change:
//
//  1. The policy and the levels of the topology that count now make a new engine.
//  2. The engine receives the queues, then the nodes, by name, with the evictions that engines
//     before it counted, and with what they decided about failures.
//  3. All groups start over: settle reports them, first those that lend GPUs, for others may be on
//     these, then the oldest first.
//
// The conditions that an earlier instance wrote on waiting pods are cleared if the pods have
// a place by now.
func (m *driver) rebuild() error {
	m.outdated, m.torn = false, false
	if err := m.Policies.Settle(); err != nil {
		return err
	}
	m.pickLevels()
	c := m.EngineConfig()
	e, err := m.newEngine(c)
	if err != nil {
		return err
	}
	if m.engine != nil {
		m.reports.KeepAll(m.engine)
	}
	m.panics.Broken = false
	if m.record != nil {
		m.record.Began(m.Now, c)
	}
	old := m.engine
	m.engine, m.engineWakes, m.reports.Outlook = e, core.Never, reports.Outlook{}
	clear(m.Queues.Told) // all of them, for the engine is new
	m.Queues.Settle(m.tell, m.metrics.QueueGone)
	for _, ev := range m.QueuesGoOn() {
		m.mustTell(ev)
	}
	sorted := make([]*tables.Node, 0, len(m.Nodes))
	for name, n := range m.Nodes {
		if old != nil {
			n.Evictions = max(n.Evictions, old.Evictions(name))
		}
		n.Known, n.Sick, n.Suspect = false, 0, n.Suspect && c.Policy.Recovery.Mode == core.Recover
		sorted = append(sorted, n)
	}
	slices.SortFunc(sorted, func(a, b *tables.Node) int { return cmp.Compare(a.Object.Name, b.Object.Name) })
	for _, n := range sorted {
		m.tellNode(n)
	}
	if m.failures != nil {
		m.mustTell(m.failures())
	}
	clear(m.dirtyNodes)
	clear(m.Jobs)
	m.dirty = m.dirty[:0]
	groups := make([]*tables.Group, 0, len(m.Groups))
	for _, g := range m.Groups {
		m.startOver(g)
		g.Dirty = false
		if m.Ours(g) && g.Inherits() {
			m.acts.Report = append(m.acts.Report, g.ClearReports(m.PodGroupOf(g))...)
		}
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b *tables.Group) int {
		return cmp.Or(cmp.Compare(b.Lenders(), a.Lenders()), a.Created.Compare(b.Created), strings.Compare(a.ID.Job(), b.ID.Job()))
	})
	for _, g := range groups {
		m.touch(g)
	}
	return nil
}

// decide makes a pass. The acts are valid until done is called:
//
//  1. An engine that is outdated, or that panicked, is built again.
//  2. The engine receives what changed since the last pass (settle). Pods whose volumes are
//     ready, and nodes that came from another shard, count from now on.
//  3. Pods on lost or drained nodes are evicted, or the engine is asked to restart them elsewhere,
//     which changes groups again.
//  4. The engine decides, and its decisions become acts.
//  5. Shards with no act in flight are handed over.
func (m *driver) decide(now core.Time) *tables.Acts {
	m.Now = max(m.Now, now)
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
	// The engine first receives what changed since the last pass. The sweeps ask which pods are
	// on which nodes, and change groups; so the engine is brought up to date again before it
	// decides.
	m.provided()
	m.openArrived()
	m.askDevices()
	m.admitTerms()
	m.Settle()
	m.sweepLost()
	m.sweepDraining()
	m.countsAgain()
	m.Settle()
	if m.Queues.Gone {
		m.Queues.Remove(m.tell, m.metrics.QueueGone) // those of which the last job has ended
	}
	m.lenders.Sweep()
	if m.engineWakes <= m.Now {
		m.engineWakes = core.Never
		m.mustTell(core.Tick{})
	}
	m.bindBack()
	requested := m.requestMoves()
	var decisions []core.Decision
	if !m.guarded(nil, func() { decisions = m.engine.Decide(m.Now) }) {
		if m.outdated {
			m.acts.Wake = m.Now // at once, with an engine that is built again
		}
		for _, p := range requested {
			p.Asked = "" // the next engine receives the requests
		}
		return &m.acts
	}
	if m.record != nil {
		m.record.Decided(m.Now, decisions, m)
	}
	m.metrics.Decided(decisions)
	m.apply(decisions)
	m.notRestarted()
	m.bindDoubles()
	for _, p := range requested {
		if p.Transfer == nil && !p.Returns && !m.panics.Broken {
			m.refuse(p, "the pod cannot be moved now: other pods took the place, or need the pod where it is")
		}
	}
	for _, ev := range m.after {
		m.mustTell(ev)
		m.acts.Wake = min(m.acts.Wake, m.Now+core.Second) // for what waits for those places
	}
	m.after = m.after[:0]
	// The engine decided on what pods needed before: what another needs, now that these
	// have their claims, counts from here on.
	for _, p := range m.placed {
		m.volumesChanged(m.Storage.ObservePod(p.UsesVolumes()))
	}
	m.placed = m.placed[:0]
	m.acts.Wake = min(m.acts.Wake, m.engineWakes)
	m.handOver()
	return &m.acts
}

// apply turns decisions into acts.
func (m *driver) apply(decisions []core.Decision) {
	for _, d := range decisions {
		switch d.Op {
		case core.Migrate:
			if !m.migrate(&d) {
				m.after = append(m.after, core.MoveFailed{Job: d.Job, Pod: d.Pods[0].Pod})
			}
		case core.Bind:
			m.bind(&d)
		case core.Evict, core.Requeue:
			m.evict(&d)
		case core.Resume:
			m.touch(m.Jobs[d.Job]) // a job that was suspended takes pods again
			m.lenders.Resume(m.Jobs[d.Job], d.Pods)
		case core.Cordon, core.Uncordon:
			m.Suspect(&d)
		case core.Wake:
			m.engineWakes = d.At
		}
	}
}

// Settle tells the engine which nodes and groups have changed, until none has: reporting a
// group may change a node, and reporting a node may change groups.
func (m *driver) Settle() {
	m.recheck()
	// Nodes come first: a group may have pods on one that is new.
	for len(m.dirtyNodes) > 0 || len(m.dirty) > 0 {
		if len(m.dirtyNodes) > 0 {
			changed := make([]*tables.Node, 0, len(m.dirtyNodes))
			for _, n := range m.dirtyNodes {
				changed = append(changed, n)
			}
			clear(m.dirtyNodes)
			slices.SortFunc(changed, func(a, b *tables.Node) int { return cmp.Compare(a.Object.Name, b.Object.Name) })
			for _, n := range changed {
				m.tellNode(n)
			}
		}
		list := m.dirty
		m.dirty = nil
		for _, g := range list {
			g.Dirty = false
			m.guarded(g, func() {
				m.advance(g)
				m.tellShield(g)
			})
		}
		if m.torn {
			if err := m.rebuild(); err != nil {
				m.log.Error("cannot rebuild the engine", "error", err)
				return
			}
		}
	}
}

// bind turns a decision into an act for each pod.
func (m *driver) bind(d *core.Decision) {
	g := m.Jobs[d.Job]
	pods, places := make([]*tables.Pod, 0, len(d.Pods)), make([]core.Placement, 0, len(d.Pods))
	for i := range d.Pods {
		if p := g.Slots[d.Pods[i].Pod]; p != nil {
			pods, places = append(pods, p), append(places, d.Pods[i])
		} else {
			bindVacant(g, &d.Pods[i])
		}
	}
	if len(pods) > 0 {
		m.send(g, pods, places, d.Reason)
	}
}

// send binds pods of a group to places.
func (m *driver) send(g *tables.Group, pods []*tables.Pod, places []core.Placement, why core.Reason) {
	list := make([]tables.Binding, 0, len(pods))
	for i, p := range pods {
		at := &places[i]
		p.State, p.Target, p.Devices, p.Given, p.InFlight = tables.PodBinding, at.Node, at.GPUs, at.GPUs, true
		m.place(p, at.Node)
		if len(p.Object.Claims) > 0 {
			m.placed = append(m.placed, p)
		}
		m.NotePod(p)
		notes := map[string]string{}
		if g.Says != nil {
			notes = g.Says.Notes(&p.Object.Attributes)
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
		if why == core.Backfilled {
			notes[v1alpha1.BackfilledAnnotation] = "true"
		}
		list = append(list, tables.Binding{Of: p, Bind: act.Bind{Pod: p.Ref(), Node: at.Node, Annotations: notes, Gated: p.Object.QuotaGate}})
	}
	m.grant(list)
	for _, b := range list {
		if len(b.Of.Volumes.Unbound) > 0 {
			m.provide(b)
		} else {
			m.acts.Bind = append(m.acts.Bind, b)
		}
	}
	g.InFlight += len(pods)
	g.Journey.Decide(m.Clock(), len(pods))
	if !g.Ran {
		g.Ran = true
		m.metrics.Bound(g.Queue, max(0, m.Now-objects.TimeOf(g.Created)))
	}
	g.Waiting = tables.Waiting{}
}

// evict turns a decision into an act for each pod. A gang that keeps too few pods is drained:
// its new pods wait until the old ones are gone.
func (m *changes) evict(d *core.Decision) {
	g := m.Jobs[d.Job]
	if !m.Decides(g) {
		return // the instance that decides on it evicts
	}
	message := d.Detail
	reason, restarts := d.Reason.String(), d.Restarts()
	x, asked := m.restarting[g]
	switch {
	case asked && d.Reason == core.Requested:
		reason, message = x.reason, x.message
	case d.Reason == core.Defragmentation:
		message = "stops so that its node becomes free, and starts again in a place that is reserved for it"
	case message != "" || d.For == "":
	case restarts:
		message = "stops to make room for " + d.For + ", and starts again in a place that is reserved for it"
	default:
		message = "evicted to make room for " + d.For
	}
	var list []tables.Eviction
	for i := range d.Pods {
		p := g.Slots[d.Pods[i].Pod]
		if p == nil {
			m.evictVacant(g, d.Pods[i].Pod)
			continue
		}
		if p.Dismissed = true; restarts {
			m.restarts(g, p)
		}
		if p.State == tables.PodLeaving {
			continue // this instance evicted it already, perhaps for an earlier engine
		}
		p.State = tables.PodLeaving
		m.NotePod(p)
		p.Cause = tables.Eviction{Of: p, Reason: reason, Message: message}
		// A binding that was sent has to be answered first. Then there is a pod to evict (bound).
		switch {
		case !p.InFlight:
			list = append(list, p.Cause)
		case p.Withheld != nil:
			m.acts.Wake = m.Now // nothing was sent yet: the next pass gives the binding up
		}
	}
	if g.Gang() && !restarts && g.Broken((*tables.Pod).Runs) {
		g.Draining, g.Broke = true, d.Op == core.Requeue
	}
	m.sendOff(g, list)
}

// Engine is the part of the engine that the mirror uses.
type Engine interface {
	Apply(now core.Time, ev core.Event) error
	Decide(now core.Time) []core.Decision
	Working() string
	Expected() []core.Expected
	core.Counter
	reports.Engine
}

// Counted returns what the engine has counted, nothing if it panics.
func (m *driver) Counted(now core.Time) (is core.GPUTimeCounted) {
	m.guarded(nil, func() { is = m.engine.Counted(now) })
	return is
}

// Failures returns what the engine decided about failures, nothing if it panics.
func (m *driver) Failures() (is core.FailuresFound) {
	m.guarded(nil, func() { is = m.engine.Failures() })
	return is
}

func newEngine(pauses bool) func(core.Config) (Engine, error) {
	return func(c core.Config) (Engine, error) { return core.New(tables.Engine(c, pauses)) }
}

// Recorder is called in order, in the goroutine that decides: when an empty engine begins, for every event that it accepts, and
// for every pass with its decisions, which are valid during the call, as is what says what the engine has counted.
type Recorder interface {
	Began(now core.Time, c core.Config)
	Told(now core.Time, ev core.Event)
	Decided(now core.Time, ds []core.Decision, e core.Counter)
}
