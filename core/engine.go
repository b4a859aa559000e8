// Package core decides which job runs on which GPUs, and nothing else. It has
// no clock, I/O, goroutine, lock, logger, random source or Kubernetes type:
// events go in, decisions come out, and the same events give the same
// decisions.
package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/quota"
)

// Config is what an engine is created with.
type Config struct {
	Policy Policy
	// Levels names the topology levels, widest first; the last is the leaf
	// group. "node" and "hbd" are not among them: they always exist.
	Levels []string
	// Crowd is how many kinds of jobs a user may have waiting in a queue before a pass tries again a part of them only, and the
	// next passes the rest, in turn; 0 stands for [DefaultCrowd]. Event logs do not have it: tests set it.
	Crowd int
}

// Engine is the scheduler's state and its rules. It starts empty and learns only from events.
// One goroutine owns an engine.
type Engine struct {
	policy Policy
	state  *cluster.State
	placer *place.Placer
	ledger *quota.Ledger

	jobs jobTable
	call
	decisions

	affinities   affinities
	units        units
	waiting      waiting
	runs         runs
	nominations  nominations
	moves        moves
	standbys     standbys
	suspensions  suspensions
	packs        packs
	alternatives alternatives
	staleGangs   staleGangs
	wanted       wanted
	named        named
	expected     expectedHP
	entitlement  entitlement
	shares       shares
	unowned      unowned
	longTerm     longTerm
	turns        turns
	planner      planner
	defragmenter defragmenter
	recovery     recoveries
	changes      changes
	wakes        wakes
}

// call is the current call of the engine, or the last one.
type call struct {
	now Time
	// working is the job that it is about, "" if none: see [Engine.Working].
	working string
	// inquiry is of what was asked since the call: see [Engine.Explain].
	inquiry *Inquiry
}

// decisions are what a pass returns. They are reused by the next one.
type decisions struct {
	ending []Decision  // requeues that the next Decide returns
	out    []Decision  // of the current or last pass
	places []Placement // what these refer to
}

// New returns an engine that knows no nodes, queues or jobs.
func New(c Config) (*Engine, error) {
	seen := map[string]bool{cluster.NodeLevel: true, cluster.HBDLevel: true, "": true}
	for _, l := range c.Levels {
		if seen[l] || strings.HasPrefix(l, cluster.LabelLevel) {
			return nil, fmt.Errorf("topology level %q: names must differ, not begin with %q, and be neither empty, %q nor %q", l, cluster.LabelLevel, cluster.NodeLevel, cluster.HBDLevel)
		}
		seen[l] = true
	}
	if w := c.Policy.PreferenceWeight; w < 0 || w > cluster.MaxGPUs*WholeGPU {
		return nil, fmt.Errorf("preference weight of %s GPUs, expected 0..%d", w.GPUs(), cluster.MaxGPUs)
	}
	if err := c.Policy.Packing.Check(&c.Policy); err != nil {
		return nil, fmt.Errorf("packing: expected %w", err)
	}
	if err := c.Policy.Goodput.Check(&c.Policy); err != nil {
		return nil, fmt.Errorf("goodput: expected %w", err)
	}
	state := cluster.New(c.Levels)
	e := &Engine{
		policy: c.Policy, state: state, placer: place.NewPlacer(state), ledger: quota.NewLedger(),
		jobs: jobTable{byName: map[string]*job{}}, runs: runs{state: state, models: map[string]int{}},
		wakes: wakes{Never, Never, Never}, named: named{},
	}
	e.placer.Reserve, e.placer.GPUUse, e.placer.Role = c.Policy.CPUOnly.Reserve, c.Policy.CPUOnly.GPUUse, e.role
	if e.placer.GPUUse == 0 {
		e.placer.GPUUse = 1000
	}
	e.placer.PreferenceWeight = c.Policy.PreferenceWeight
	if e.wanted = newWanted(c.Policy.Models); e.wanted.on {
		e.placer.Wanted = e.wanted.share
	}
	e.affinities = affinities{state: state, placer: e.placer, repelled: map[string][]repulsion{}}
	e.nominations = nominations{Engine: e, plans: map[cluster.NodeID][]planned{}}
	e.suspensions.Engine = e
	e.moves.Engine, e.standbys.Engine, e.packs.Engine, e.alternatives.Engine, e.staleGangs.Engine = e, e, e, e, e
	e.alternatives.next = Never
	e.expected.slot = c.Policy.Spot.Period / slots
	e.recovery = recoveries{
		Engine: e, jobs: map[string]*failures{}, strikes: map[cluster.NodeID][]Strike{}, cordoned: map[cluster.NodeID]bool{}, until: Never,
	}
	e.defragmenter = defragmenter{Engine: e, vain: map[cluster.NodeID]bool{}}
	e.entitlement = entitlement{Engine: e, stale: true}
	e.planner.Engine, e.units.Engine, e.changes.Engine, e.shares.Engine, e.unowned.Engine = e, e, e, e, e
	e.planner.looksAtAll, e.planner.fewLeads, e.planner.manyLooked = looksAtAll, fewLeads, manyLooked
	e.longTerm = newLongTerm(e)
	e.turns.Engine = e
	e.waiting = newWaiting(c.Policy.Queueing.Mode == StrictFIFO, e.units.classOf, &e.longTerm, &e.turns)
	if c.Crowd > 0 {
		e.waiting.rounds.crowd = c.Crowd
	}
	for i := range c.Policy.Mix {
		e.placer.Mix.Observe(&c.Policy.Mix[i].Request, c.Policy.Mix[i].Pods)
	}
	return e, nil
}

// Apply takes in ev, which happened at now. now never goes back. An error says what is wrong
// with the event; the engine is unchanged then.
func (e *Engine) Apply(now Time, ev Event) error {
	if now < e.now {
		return fmt.Errorf("time goes back from %.9gs to %.9gs", e.now.Seconds(), now.Seconds())
	}
	e.inquiry = nil
	e.expected.advance(now)
	e.longTerm.advance(now)
	err := e.apply(now, ev)
	e.working = ""
	if err == nil {
		e.now = now
		if _, tick := ev.(Tick); !tick {
			e.alternatives.vain = false
		}
	}
	return err
}

// Working names the job that a call of the engine was about when it panicked: it is the first
// to suspect. It is empty if the call was about none. After a panic, no other method of the
// engine may be called.
func (e *Engine) Working() string { return e.working }

func (e *Engine) apply(now Time, ev Event) error {
	switch ev := ev.(type) {
	case JobSubmitted:
		return e.submit(now, ev.Job)
	case *JobSubmitted:
		return e.submit(now, ev.Job)
	case JobEnded:
		return e.end(ev.Job)
	case PodsAdded:
		return e.addPods(now, ev)
	case PodEnded:
		return e.podEnded(now, ev, false)
	case GangStale:
		return e.staleGangs.found(now, ev)
	case PodsGone:
		return e.podsGone(now, ev)
	case BindFailed:
		return e.podEnded(now, PodEnded{Job: ev.Job, Pod: ev.Pod, Failed: true}, true)
	case MoveRequested:
		return e.requestMove(ev)
	case RestartRequested:
		return e.requestRestart(ev)
	case PodMoved:
		return e.podMoved(now, ev)
	case StandbyBegan:
		return e.beginStandby(now, ev)
	case StandbyEnded:
		return e.endStandby(now, ev)
	case MoveFailed:
		return e.moveFailed(now, ev)
	case PodRunning:
		return e.adopt(now, ev)
	case JobSuspended:
		return e.suspensions.found(now, ev)
	case NodeAdded:
		return e.addNode(ev.Node, ev.Evictions)
	case NodeChanged:
		return e.changeNode(now, ev.Node)
	case NodeLost:
		return e.loseNode(now, ev.Node)
	case NodeCordoned:
		return e.cordon(now, ev)
	case DeviceHealth:
		return e.setHealth(now, ev)
	case QueueSet:
		return e.changeQueues(func() error { return e.ledger.Set(ev.Queue) }, func() { e.longTerm.setQueue(&ev.Queue) })
	case QueueRemoved:
		return e.changeQueues(func() error { return e.ledger.Remove(ev.Queue) }, func() { e.longTerm.removeQueue(ev.Queue) })
	case JobRelabelled:
		return e.relabel(now, ev)
	case JobShielded:
		return e.setDisruptionProtected(ev)
	case JobEstimated:
		return e.estimate(now, ev)
	case JobMeasured:
		return e.alternatives.measured(ev)
	case JobSlowed:
		return e.slow(ev)
	case Checkpointed:
		return e.checkpoint(now, ev)
	case JobDiagnosed:
		return e.recovery.diagnosed(now, ev)
	case JobReleased:
		e.recovery.released(now, ev)
		return nil
	case NodeTested:
		return e.recovery.nodeTested(ev)
	case FailuresFound:
		return e.recovery.foundBefore(now, ev)
	case GPUTimeCounted:
		return e.longTerm.counted(now, ev)
	case Tick:
		if now >= e.wakes.pending {
			e.wakes.pending = Never
		}
		return nil
	}
	return fmt.Errorf("event %T is unknown", ev)
}

// role returns what a job is to jobs without GPUs on its nodes.
func (e *Engine) role(slot int32) place.Role {
	switch j := e.jobs.slots[slot]; {
	case j.GPUs() == 0:
		return place.NoGPUs
	case j.Kind == Training:
		return place.Trains
	}
	return place.Bystander
}

// Fault returns as an error that a call of the engine panicked, and which job it was about.
func (e *Engine) Fault(panicked any) error {
	if e.working == "" {
		return fmt.Errorf("the engine failed, which is a bug: %v", panicked)
	}
	return fmt.Errorf("the engine failed while it worked on job %s, which is a bug: %v", e.working, panicked)
}

// changeQueues changes the ledger, and what depends on the quotas; then does what follows from the change.
func (e *Engine) changeQueues(change func() error, then func()) error {
	limited, resources, bounded, fair := e.ledger.Limited(), e.ledger.Counted(), e.ledger.Bounded(), e.ledger.FairUsers()
	if err := change(); err != nil {
		return err
	}
	then()
	e.bookResources(resources)
	e.changes.quotasChanged()
	if bounded = bounded || e.ledger.Bounded(); bounded {
		e.recount()
	}
	if e.ledger.FairUsers() != fair {
		e.turns.recount()
	}
	// The first quota makes jobs of different queues no longer alike; when the last one is
	// removed, they are alike again.
	if e.ledger.Limited() != limited || bounded {
		e.waiting.reclassify(e.jobs.slots, e.now)
	}
	return nil
}

// bookResources books what jobs take of the resources of which no queue had a quota before: the
// ledger knows the use of those only of which one has. It costs O(pods) if there are any.
func (e *Engine) bookResources(before []string) {
	for _, r := range before {
		if !slices.Contains(e.ledger.Counted(), r) {
			e.ledger.Forget(r)
		}
	}
	for _, r := range e.ledger.Counted() {
		if slices.Contains(before, r) {
			continue
		}
		for _, j := range e.jobs.slots {
			if j != nil {
				e.bookResource(j, r)
			}
		}
	}
}

// job finds a live job.
func (e *Engine) job(name string) (*job, error) {
	e.working = name
	j := e.jobs.byName[name]
	if j == nil {
		return nil, fmt.Errorf("job %s is unknown", name)
	}
	return j, nil
}

// node finds a node that is up.
func (e *Engine) node(name string) (cluster.NodeID, error) {
	id, ok := e.state.Lookup(name)
	if !ok || !e.state.Node(id).Up {
		return 0, fmt.Errorf("node %s is unknown or lost", name)
	}
	return id, nil
}
