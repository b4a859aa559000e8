package kube

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/peers"
	"github.com/muster-sched/muster/kube/settings"
	"github.com/muster-sched/muster/kube/stats"
	"github.com/muster-sched/muster/kube/storage"
	"github.com/muster-sched/muster/kube/translate"
)

// mirror keeps the engine's picture of the cluster equal to the API's. It turns objects
// into events and decisions into acts, and does no I/O: one goroutine gives it what was
// observed and has carried out what it answers.
//
// It has four layers. Each embeds the one below it and can reach none above:
//
//	mirror   takes in objects and outcomes, and reports why jobs wait
//	driver   tells the engine what changed, and takes in what it decides
//	changes  marks what the engine has to be told, and collects acts
//	tables   what is known; answers questions
type mirror struct {
	driver
	asking []*group // those of which the reason is to be asked for next
}

// driver tells the engine what changed, and takes in what it decides. The engine is derived
// from the tables and can be built again at any time (rebuild).
type driver struct {
	changes
	record Recorder // nil for none
	// engine is nil until all objects have been listed once; engineWakes is when
	// it asked to be called.
	engine      scheduling
	engineWakes core.Time
	newEngine   func(core.Config) (scheduling, error)
	panics      panics
	outlook     outlook
	placed      []*pod // with claims, by the decisions that are being taken in
}

// changes is what the engine has to be told before it decides, and what is to be written to
// the API. Its methods change the tables, mark and collect; they cannot reach the engine.
type changes struct {
	tables
	census
	log     *slog.Logger
	metrics *metrics
	traced  func(*Journey) // called for each job that runs for the first time; nil for none
	acts    acts

	dirty      []*group         // to be looked at again before the next decision
	later      []*group         // to be looked at again when their pause is over
	dirtyNodes map[string]*node // their capacity may have changed
	// outdated says that the engine is to be built again before it decides: the policy or
	// the levels are others.
	outdated bool
	waiters  map[*group]bool // of which pods wait, and some that wait no more

	lost     Lost
	zones    map[string]*zone   // by name
	outage   bool               // no node was ready at the last look
	unready  map[string]*node   // not ready, and not emptied yet
	draining map[string]*node   // to be emptied
	moving   map[types.UID]*pod // out of their owners' hands
	// uncounted are the pods that were to be evicted, and have not been.
	uncounted map[types.UID]act.Pod
	arrived   map[string]*node // that came from another shard and take no pods yet
}

// tables is what the API says, what is under way, and what this instance decides on. Its
// methods answer questions, and change nothing: they can reach neither the engine nor the
// acts.
type tables struct {
	now core.Time

	nodes      map[string]*node
	pods       map[types.UID]*pod
	groups     map[translate.Group]*group
	jobs       map[string]*group // those that the engine knows, by the job's name
	podGroups  map[types.NamespacedName]*podGroupObject
	namespaces map[string]map[string]string // labels
	queues     queues
	shards     shardTable
	seen       int // jobs that were created

	policies   *settings.Policies
	topologies *settings.Topologies
	priorities settings.Classes

	peers   *peers.Index
	storage *storage.Index
	devices *devices.Index
}

// acts is what is to be done for decisions, in order.
type acts struct {
	bind  []bindAct
	evict []evictAct
	// suspend has the groups of which all pods are to leave.
	suspend []suspendAct
	// move has the pods that are to leave for another node.
	move []act.Move
	// stay has the pods of drained nodes that are locked.
	stay []act.Stay
	// count has the pods that were to be evicted, and are to be counted again.
	count []act.Pod
	// choose has the claims that are to be told a node.
	choose []act.SelectNode
	// ask has the groups whose object is to be asked how large the gang is.
	ask []*group
	// release has the claims whose devices are to be given back.
	release []act.Claim
	// said is what is to be written of jobs that waited and start.
	said []act.Report
	// warn is what people are to be told of what they wrote on pods.
	warn []act.Warning
	// record has what is to be written of pods that counts until they end.
	record []act.Record
	// wake is when to decide again, [core.Never] for no need.
	wake core.Time
}

// values returns the acts as they are carried out, which refer to no table.
func (a *acts) values() act.Acts {
	out := act.Acts{
		Release: slices.Clone(a.release), Select: slices.Clone(a.choose), Move: slices.Clone(a.move), Stay: slices.Clone(a.stay), Count: slices.Clone(a.count),
		Report: slices.Clone(a.said), Record: slices.Clone(a.record), Warn: slices.Clone(a.warn),
	}
	for i := range a.bind {
		out.Bind = append(out.Bind, a.bind[i].Bind)
	}
	for i := range a.evict {
		out.Evict = append(out.Evict, a.evict[i].value())
	}
	for i := range a.suspend {
		out.Suspend = append(out.Suspend, a.suspend[i].value())
	}
	for _, g := range a.ask {
		out.Read = append(out.Read, act.ReadGang{Group: g.id, Object: *g.object})
	}
	return out
}

// bindAct asks to bind a pod.
type bindAct struct {
	pod *pod
	act.Bind
}

// node is a node of the cluster.
type node struct {
	object *nodeObject
	gone   bool // deleted; it stays until its pods have left
	told   core.Node
	known  bool // the engine knows it
	// others is what pods of other schedulers take, which the engine is not
	// told of pod by pod.
	others translate.Amounts
	count  int // such pods
	pods   map[types.UID]*pod
	sick   uint64 // devices that the engine takes for unhealthy
	// down says that it is not ready, since when this instance has seen it so, and
	// lost that it has been so for too long.
	down, lost bool
	since      core.Time
	zone       *zone // in which it is counted, zoned its name; nil when it is not
	zoned      string
	counted    stats.Node
	// shard is the shard it is in, once that is known (sharded); opens is when it
	// takes pods at the earliest. closed says that it takes none, whoever decides.
	shard           int
	sharded, closed bool
	opens           core.Time
}

func newMirror(policy core.Policy, levels []translate.Level, log *slog.Logger) *mirror {
	m := &mirror{driver: driver{newEngine: newEngine, changes: changes{
		tables: newTables(policy, levels), log: log, dirtyNodes: map[string]*node{}, waiters: map[*group]bool{}, acts: acts{wake: core.Never},
		zones: map[string]*zone{}, unready: map[string]*node{}, draining: map[string]*node{}, moving: map[types.UID]*pod{},
		uncounted: map[types.UID]act.Pod{}, arrived: map[string]*node{},
	}}}
	m.census = newCensus(&m.tables)
	return m
}

func newTables(policy core.Policy, levels []translate.Level) tables {
	return tables{
		nodes: map[string]*node{}, pods: map[types.UID]*pod{}, groups: map[translate.Group]*group{}, jobs: map[string]*group{},
		podGroups: map[types.NamespacedName]*podGroupObject{}, namespaces: map[string]map[string]string{}, priorities: settings.Classes{},
		queues: newQueues(), policies: settings.NewPolicies(policy), topologies: settings.NewTopologies(levels), shards: oneShard(),
		peers: peers.New(), storage: storage.New(), devices: devices.New(),
	}
}

// tell gives the engine an event. What the engine refuses is a fault of the
// tables: it is logged, and the caller decides.
func (m *driver) tell(ev core.Event) error {
	err := errBroken
	if m.guarded(nil, func() { err = m.engine.Apply(m.now, ev) }); err != nil {
		return err
	}
	if m.record != nil {
		m.record.Told(m.now, ev)
	}
	return nil
}

// mustTell is tell where nothing but a fault of ours can be wrong.
func (m *driver) mustTell(ev core.Event) {
	if err := m.tell(ev); err != nil && !m.panics.broken {
		m.log.Error("the engine refused an event", "event", fmt.Sprintf("%T", ev), "error", err)
	}
}

// rebuild derives the engine anew: at the start, and when the policy, the
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

// done forgets the acts, which have been carried out or sent on their way.
func (m *changes) done() {
	m.acts = acts{bind: m.acts.bind[:0], evict: m.acts.evict[:0], suspend: m.acts.suspend[:0], move: m.acts.move[:0], stay: m.acts.stay[:0], count: m.acts.count[:0], choose: m.acts.choose[:0], ask: m.acts.ask[:0], said: m.acts.said[:0], warn: m.acts.warn[:0], record: m.acts.record[:0], wake: core.Never}
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

// touch has a group looked at before the next decision.
func (m *changes) touch(g *group) {
	m.noteGroup(g)
	if !g.dirty {
		g.dirty = true
		m.dirty = append(m.dirty, g)
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
// pods is drained: what comes anew waits until the old are gone.
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

// place notes where a pod is, or is to be.
func (m *changes) place(p *pod, name string) {
	n := m.nodes[name]
	if n == nil {
		n = &node{object: &nodeObject{}, gone: true, pods: map[types.UID]*pod{}}
		n.object.Name = name
		m.nodes[name] = n
	}
	n.pods[p.object.UID] = p
	m.noteNode(n)
}

// unplace takes a pod off its node.
func (m *driver) unplace(p *pod, name string) {
	n := m.nodes[name]
	if n == nil {
		return
	}
	delete(n.pods, p.object.UID)
	for _, o := range inOrder(n.pods, func(o *pod) bool { return o.unbooked() > 0 }) {
		m.enlist(o) // there may be GPUs for it now
	}
	m.noteNode(n)
	if n.gone && len(n.pods) == 0 || m.devices.Publishes(name) || m.panics.untold > 0 {
		m.dirtyNodes[name] = n
	}
}
