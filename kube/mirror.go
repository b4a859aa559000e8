package kube

import (
	"fmt"
	"log/slog"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/lease"
	"github.com/muster-sched/muster/kube/lost"
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

	draining map[string]*node   // to be emptied
	moving   map[types.UID]*pod // out of their owners' hands
	// uncounted are the pods that were to be evicted, and have not been.
	uncounted map[types.UID]act.Pod
	arrived   map[string]*node // that came from another shard and take no pods yet
	// handed are the shards that are given up, until nothing is under way there.
	handed []handOver
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
	lost    *lost.Index // the nodes that are not ready
}

// acts is what is to be written to the API since the last pass, in order.
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
	// choose has the volume claims into which a node is to be written.
	choose []act.SelectNode
	// ask has the groups whose object is to be read: how large is the gang?
	ask []*group
	// release has the claims whose devices are to be given back.
	release []translate.ClaimWrite
	// report has what is to be written of jobs that waited and start.
	report []act.Report
	// warn has the events about what users wrote on pods.
	warn []act.Warning
	// record has what counts of pods until they end, to be written into their statuses.
	record []act.Record
	// wake is when to decide again, [core.Never] for no need.
	wake core.Time
}

// values returns the acts as they are carried out, which refer to no table.
func (a *acts) values() act.Acts {
	out := act.Acts{
		Release: slices.Clone(a.release), Select: slices.Clone(a.choose), Move: slices.Clone(a.move), Stay: slices.Clone(a.stay), Count: slices.Clone(a.count),
		Report: slices.Clone(a.report), Record: slices.Clone(a.record), Warn: slices.Clone(a.warn),
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
	// others is what pods of other schedulers take, which the engine does not know pod by
	// pod.
	others  translate.Amounts
	count   int // such pods
	pods    map[types.UID]*pod
	sick    uint64 // devices that are unhealthy to the engine
	counted stats.Node
	// shard is the shard it is in, once that is known (sharded). opens is the earliest time
	// at which it takes pods. closed says that it takes none, whatever its shard.
	shard           int
	sharded, closed bool
	opens           core.Time
}

// mirrorConfig is what a mirror is made of.
type mirrorConfig struct {
	// Policy counts where no SchedulingPolicy named PolicyName says another; Builtins finds
	// those that such objects start from, nil for none.
	Policy     core.Policy
	PolicyName string
	Builtins   v1alpha1.Builtins
	// Levels are the levels of the topology, widest first; nil for those of the object named
	// Topology or, without a name, the oldest.
	Levels   []translate.Level
	Topology string
	// Lost says when the pods of nodes that are not ready are evicted.
	Lost lost.Config
	// Shards are those that instances share; nil for one that is ours.
	Shards []lease.Shard
	Log    *slog.Logger
	// Metrics, Record and Traced receive what happens; each may be nil. Traced is called once
	// for each job that runs for the first time, when enough of it runs.
	Metrics *metrics
	Record  Recorder
	Traced  func(*Journey)
}

func newMirror(c mirrorConfig) *mirror {
	m := &mirror{driver: driver{newEngine: newEngine, record: c.Record, changes: changes{
		tables: newTables(c.Policy, c.Levels), log: c.Log, metrics: c.Metrics, traced: c.Traced, dirtyNodes: map[string]*node{}, waiters: map[*group]bool{}, acts: acts{wake: core.Never},
		draining: map[string]*node{}, moving: map[types.UID]*pod{},
		uncounted: map[types.UID]act.Pod{}, arrived: map[string]*node{},
	}}}
	m.census = newCensus(&m.tables)
	m.policies.Name, m.topologies.Name, m.lost.Config = c.PolicyName, c.Topology, c.Lost
	if c.Builtins != nil {
		m.policies.Builtins = c.Builtins
	}
	if c.Shards != nil {
		m.shards = newShardTable(c.Shards)
	}
	return m
}

func newTables(policy core.Policy, levels []translate.Level) tables {
	return tables{
		nodes: map[string]*node{}, pods: map[types.UID]*pod{}, groups: map[translate.Group]*group{}, jobs: map[string]*group{},
		podGroups: map[types.NamespacedName]*podGroupObject{}, namespaces: map[string]map[string]string{}, priorities: settings.Classes{},
		queues: newQueues(), policies: settings.NewPolicies(policy), topologies: settings.NewTopologies(levels), shards: oneShard(),
		peers: peers.New(), storage: storage.New(), devices: devices.New(), lost: lost.New(),
	}
}

// at has the mirror know the time. It never goes back.
func (m *changes) at(now core.Time) { m.now = max(m.now, now) }

// takeActs returns what is to be written since it was called last, and when to decide again.
func (m *changes) takeActs() (todo act.Acts, wake core.Time) {
	todo, wake = m.acts.values(), m.acts.wake
	m.done()
	return todo, wake
}

// tell gives the engine an event. An event that it refuses shows a fault of the tables; the
// caller decides what to do then.
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

// mustTell is tell for events that only a bug can make wrong.
func (m *driver) mustTell(ev core.Event) {
	if err := m.tell(ev); err != nil && !m.panics.broken {
		m.log.Error("the engine refused an event", "event", fmt.Sprintf("%T", ev), "error", err)
	}
}

// touch has a group looked at before the next pass.
func (m *changes) touch(g *group) {
	m.noteGroup(g)
	if !g.dirty {
		g.dirty = true
		m.dirty = append(m.dirty, g)
	}
}

// place records on which node a pod is, or is to be.
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
