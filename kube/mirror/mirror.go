// Package mirror keeps an engine's picture of a cluster equal to the API's, and turns what the
// engine decides into writes to the API. It does no I/O, and is not safe for concurrent use: one
// goroutine takes facts out of the mailbox, calls Decide and carries out Acts. A pod passes
// through the files in this order:
//
//	feeds.go                           what watches observe becomes facts in the mailbox
//	mirror.go                          the layers, and what one is made of
//	nodes.go pods.go groups.go gang.go nodes, pods and jobs are taken in
//	queues.go settings.go              our own objects, and PriorityClasses
//	terms.go volumes.go devices.go     what the indexes answer otherwise now
//	submit.go admitted.go              how jobs reach the engine, and what counts until they end
//	driver.go                          a pass: changes go to the engine, its decisions are applied
//	returning.go                       who starts again elsewhere, so that a job has room
//	move.go drain.go restart.go        who moves to another node, or leaves one that is drained
//	loss.go overcommit.go              who leaves nodes that are lost, and GPUs given twice
//	suspend.go                         what is to be written to the API
//	outcomes.go                        what became of it
//	quarantine.go unread.go            what a panic costs: of the engine, and while an object is read
//	shards.go                          how shards are taken and given up
package mirror

import (
	"fmt"
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/guard"
	"github.com/muster-sched/muster/kube/journey"
	"github.com/muster-sched/muster/kube/lease"
	"github.com/muster-sched/muster/kube/lost"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/reports"
	"github.com/muster-sched/muster/kube/standby"
	"github.com/muster-sched/muster/kube/stats"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// Mirror keeps the engine's picture of the cluster equal to the API's. It turns objects
// into events and decisions into acts, and does no I/O: one goroutine passes observations
// to it and carries out the acts that it returns.
//
// It has four layers. Each embeds the one below it and can reach none above:
//
//	Mirror         handles objects and outcomes
//	driver         tells the engine what changed, and applies what it decides
//	changes        marks what the engine must receive, and collects acts
//	tables.Tables  what is known; answers questions
type Mirror struct {
	driver
}

// driver tells the engine what changed, and applies what it decides. The engine is derived
// from the tables and can be built again at any time (rebuild).
type driver struct {
	changes
	record Recorder // nil for none
	// engine is nil until all objects have been listed once; engineWakes is when
	// it asked to be called.
	engine      Engine
	engineWakes core.Time
	newEngine   func(core.Config) (Engine, error)
	failures    func() core.FailuresFound // of engines before; nil for none
	panics      guard.Panics
	reports     reports.Reporter
	lenders     standby.Lenders
	placed      []*tables.Pod // with claims, by the decisions that are being applied
}

// changes is what the engine must receive before it decides, and what must be written to the
// API. Its methods change the tables, mark and collect; they cannot reach the engine.
type changes struct {
	tables.Tables
	tables.Census
	log     *slog.Logger
	metrics *stats.Metrics
	traced  func(*journey.Journey) // called for each job that runs for the first time; nil for none
	acts    tables.Acts

	dirty      []*tables.Group         // to be brought up to date before the next decision
	later      []*tables.Group         // to be brought up to date when their pause is over
	dirtyNodes map[string]*tables.Node // their capacity may have changed
	// outdated says that the engine must be built again before it decides, because the policy
	// or the levels have changed.
	outdated bool
	// torn says that the job of a pod that lends its GPUs must be submitted again.
	torn bool

	draining map[string]*tables.Node   // to be emptied
	moving   map[types.UID]*tables.Pod // out of their owners' hands
	asked    map[types.UID]*tables.Pod // that users ask to move
	holding  map[types.UID]*tables.Pod // gone, while their claims still have devices
	// transfers are the pods that the engine moves, and some that it no longer does; doubles are
	// to be bound by the next pass.
	transfers map[types.UID]*tables.Pod
	doubles   []*tables.Pod
	// returning are the groups with pods that restart elsewhere, and some that no longer have any;
	// back are pods that came back, to be bound by the next pass.
	returning map[*tables.Group]bool
	back      []comeback
	// restarting are the groups that the engine was asked to restart elsewhere in this pass.
	restarting map[*tables.Group]restart
	// after is what to tell the engine when its decisions are applied: they are valid until the
	// next event.
	after []core.Event
	// uncounted are the pods that were to be evicted, and have not been.
	uncounted map[types.UID]act.Pod
	arrived   map[string]*tables.Node // that came from another shard and take no pods yet
	// handed are the shards that are given up, until no act of theirs is in flight.
	handed []handOver
}

// Config is what a mirror is made of.
type Config struct {
	// Policy counts unless a SchedulingPolicy named PolicyName exists; Builtins finds the
	// policies that such objects start from, nil for none.
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
	Metrics *stats.Metrics
	Record  Recorder
	Traced  func(*journey.Journey)
	// ClosedQueues is [tables.Queues].Closed.
	ClosedQueues bool
	// Pauses says that there are agents, which pause the processes of pods and have them save themselves (kube/pause).
	Pauses bool
	// Sleeper stops the processes of pods on standby; nil: they stop by themselves.
	Sleeper standby.Sleeper
	// Failures returns what engines before decided about failures; nil for nothing.
	Failures func() core.FailuresFound
}

// New returns a mirror that has observed nothing. It decides from when it takes a shard.
func New(c Config) *Mirror {
	m := &Mirror{driver: driver{newEngine: newEngine(c.Pauses), record: c.Record, failures: c.Failures, changes: changes{
		Tables: tables.New(c.Policy, c.Levels), log: c.Log, metrics: c.Metrics, traced: c.Traced, acts: tables.Acts{Wake: core.Never},
		dirtyNodes: map[string]*tables.Node{}, draining: map[string]*tables.Node{}, moving: map[types.UID]*tables.Pod{}, asked: map[types.UID]*tables.Pod{}, holding: map[types.UID]*tables.Pod{},
		transfers: map[types.UID]*tables.Pod{}, uncounted: map[types.UID]act.Pod{}, returning: map[*tables.Group]bool{}, restarting: map[*tables.Group]restart{},
		arrived: map[string]*tables.Node{},
	}}}
	m.Census = tables.NewCensus(&m.Tables)
	m.reports = reports.Reporter{Tables: &m.Tables, Census: &m.Census, Guarded: m.guarded}
	m.lenders = standby.Lenders{Tables: &m.Tables, Census: &m.Census, Log: c.Log, Metrics: c.Metrics, Tell: m.tell, MustTell: m.mustTell, Say: m.sayStandby, Sleeper: c.Sleeper}
	m.Policies.Name, m.Topologies.Name, m.Lost.Config = c.PolicyName, c.Topology, c.Lost
	m.Queues.Closed, m.Agents = c.ClosedQueues, c.Pauses
	if c.Builtins != nil {
		m.Policies.Builtins = c.Builtins
	}
	if c.Shards != nil {
		m.Shards = tables.NewShardTable(c.Shards)
	}
	return m
}

// At sets the time. It never goes back.
func (m *changes) At(now core.Time) { m.Now = max(m.Now, now) }

// Decide makes a pass; Acts then returns what to write.
func (m *Mirror) Decide(now core.Time) { m.decide(now) }

// Explain asks the engine about at most n waiting jobs, in turn, and returns what is to be
// written.
func (m *Mirror) Explain(n int) []act.Report {
	if m.engine == nil || m.panics.Broken {
		return nil
	}
	return m.reports.Explain(m.engine, n)
}

// Statuses returns the objects of our own whose status has changed.
func (m *Mirror) Statuses(now metav1.Time) []act.Status {
	m.Count()
	m.Fit()
	if m.engine == nil {
		return nil
	}
	return m.reports.Statuses(m.engine, now)
}

// Memory returns what is to be written so that the next engine knows it: counts of evictions, and ledgers.
func (m *Mirror) Memory() act.Acts {
	if m.engine == nil || m.panics.Broken {
		return act.Acts{}
	}
	return act.Acts{Evictions: m.reports.Evictions(m.engine), Ledgers: m.reports.WriteLedger(m.engine)}
}

// Acts returns what is to be written since it was called last, and when to decide again.
func (m *changes) Acts() (todo act.Acts, wake core.Time) {
	todo, wake = m.acts.Values(m.Notice()), m.acts.Wake
	m.acts.Drop()
	return todo, wake
}

// tell applies an event to the engine. An event that the engine refuses shows an error in
// the tables; the caller decides what to do then.
func (m *driver) tell(ev core.Event) error {
	err := guard.ErrBroken
	if m.guarded(nil, func() { err = m.engine.Apply(m.Now, ev) }); err != nil {
		return err
	}
	if m.record != nil {
		m.record.Told(m.Now, ev)
	}
	return nil
}

// mustTell is tell for events that only a bug can make wrong.
func (m *driver) mustTell(ev core.Event) {
	if err := m.tell(ev); err != nil && !m.panics.Broken {
		m.log.Error("the engine refused an event", "event", fmt.Sprintf("%T", ev), "error", err)
	}
}

// Tell tells the engine what no watched object shows.
func (m *Mirror) Tell(ev core.Event) { m.mustTell(ev) }

// touch marks a group, so that it is brought up to date before the next pass.
func (m *changes) touch(g *tables.Group) {
	m.NoteGroup(g)
	if !g.Dirty {
		g.Dirty = true
		m.dirty = append(m.dirty, g)
	}
}

// complete reports the journey of a job, which is over.
func (m *changes) complete(g *tables.Group) {
	j := g.Journey
	g.Journey = nil
	m.traced(&j.Journey)
}

// sayStandby writes the condition Standby on a pod.
func (m *changes) sayStandby(x act.Report) { m.acts.Standby = append(m.acts.Standby, x) }

// place records the node on which a pod is, or will be.
func (m *changes) place(p *tables.Pod, name string) {
	n := m.Nodes[name]
	if n == nil {
		n = &tables.Node{Object: &objects.Node{}, Gone: true, Pods: map[types.UID]*tables.Pod{}}
		n.Object.Name = name
		m.Nodes[name] = n
	}
	n.Pods[p.Object.UID] = p
	m.NoteNode(n)
	if n.Sick != 0 { // unusable ones are chosen among those that are free now
		m.dirtyNodes[name] = n
	}
}

// unplace takes a pod off its node.
func (m *driver) unplace(p *tables.Pod, name string) {
	n := m.Nodes[name]
	if n == nil {
		return
	}
	delete(n.Pods, p.Object.UID)
	if p.HasDevices() { // else thousands that their author put there would each look at all others
		for _, o := range n.Unbooked() {
			m.enlist(o) // there may be GPUs for it now
		}
	}
	m.NoteNode(n)
	if n.Sick != 0 || n.Gone && len(n.Pods) == 0 || m.Devices.Publishes(name) || m.panics.Untold > 0 {
		m.dirtyNodes[name] = n
	}
}

func nameOf[T metav1.Object](o T) string { return o.GetName() }
