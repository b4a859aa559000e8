package core

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// This file carries out plans: victims are evicted, the job's places are kept for it as they
// become free, and when the last victim is gone, the job is bound.

// nominations are the plans in progress, what they hold and what others may count on meanwhile
// (hold.go), and what the current pass has decided (recall.go).
//
// Invariant: a job is in all as long as its nomination is set; a pod of it is podHeld if the
// state has it in its place, and podPlanned if it is in plans and its node is closed.
type nominations struct {
	*Engine
	all []*nomination
	// plans are the planned pods by node.
	plans map[cluster.NodeID][]planned
	// going are the labelled jobs with leaving pods, and some that had such pods. away counts by
	// domain the pods with a label that are not there yet or are leaving; nil if it must be
	// counted again.
	going []*job
	away  map[labelOn]map[int32]int
	draft draft // the plan under trial, empty between trials: see weigh
	// evictions are those of this pass, plansMade is for how many plans.
	evictions []eviction
	plansMade int
	// asked are the restarts that were requested since the last pass.
	asked []restartAsked
	// searches are those for room until roomAgain: see allowSearches.
	searches  searchTurns
	roomAgain Time
}

// nomination is a plan in progress: a gang, or pods of another job, whose places are chosen and
// which wait for victims to leave.
type nomination struct {
	job *job
	// outstanding counts victims' pods still on their nodes, planned the job's
	// pods whose places are not free yet.
	outstanding, planned int
	// victims are the live jobs of which pods were evicted for it. ended has by name which nodes
	// those left that have ended, since such a job may be submitted again.
	victims []*job
	ended   map[string][]cluster.NodeID
	// covered says what covered the job when plans for it were made.
	covered [byNominal + 1]bool
	// seen is how often labels had changed when its affinities were checked last.
	seen uint64
	// lead is the plan for which the job restarts elsewhere, this one if no other job waits for that,
	// nil if it waits itself; why is the reason of its restart, and old is how many of its pods are
	// still at their old places. See room.go and restart.go.
	lead *nomination
	why  Reason
	old  int
	// room says that others move or restart for it, and that no victims leave: see room.go.
	room bool
	// later counts the moves for it that wait for their wave: see waves.go.
	later int
}

// planned is a pod whose place on a node is not free yet. The node is closed meanwhile, so that
// no other pod takes the place.
type planned struct {
	nomination *nomination
	pod        int
}

// nominate decides a plan: it evicts the victims and keeps the places for the job.
func (ns *nominations) nominate(p *plan) {
	j, now, placed, gone := p.job, p.now, p.placed, p.gone
	if len(gone) == 0 {
		// All victims turned out not to be in the way: the job starts.
		for i := range placed {
			ns.state.Place(cluster.Owner{Job: j.slot, Pod: placed[i].Pod}, placed[i].Alloc)
		}
		ns.state.Commit()
		ns.bind(j, placed, now, ns.waiting.howStarted(j))
		return
	}

	// 1. The job is nominated. If it is no gang, it may have a nomination for other pods.
	n := ns.nominated(j)
	n.covered[p.cover] = true
	ns.plansMade++

	// 2. Its victims are evicted.
	for k := range gone {
		ns.evict(&gone[k], n)
	}

	// 3. Its pods count against quota from now on, as if they ran: before all others if they
	// are within nominal quota, else after all that are there. A place that is free is held. If
	// one is not, its node is closed for all others: else a small pod could start in each gap
	// that a victim leaves, and the place would never become free.
	came := ns.entitlement.planning(now)
	if p.cover == byNominal {
		came = entitled
	}
	ns.keep(n, placed, came)
	ns.waiting.enqueue(j, now) // the other pods of a job that is no gang
}

// nominated takes a job from among the waiting and returns its nomination, a new one if it has
// none.
func (ns *nominations) nominated(j *job) *nomination {
	ns.waiting.dequeue(j)
	if j.nomination == nil {
		j.nomination = &nomination{job: j}
		ns.all = append(ns.all, j.nomination)
	}
	return j.nomination
}

// keep keeps places for pods of a nominated job, which count as having come at a time.
func (ns *nominations) keep(n *nomination, placed []place.Placed, came Time) {
	j := n.job
	for i := range placed {
		p := &j.pods[placed[i].Pod]
		p.alloc, p.came = placed[i].Alloc, came
		j.charge(ns.state, p, 1)
		j.leaves(ns.state, p, -1)
		ns.keepPlace(n, int(placed[i].Pod))
	}
	ns.state.Commit()
	ns.holdsChanged()
	ns.changes.placesChanged(j)
}

// keepPlace holds the place of a pod if it is free, and else plans it. The journal grows.
func (ns *nominations) keepPlace(n *nomination, i int) {
	p, owner := &n.job.pods[i], cluster.Owner{Job: n.job.slot, Pod: int32(i)}
	if n.later == 0 && ns.free(p, p.alloc.Node) {
		ns.state.Place(owner, p.alloc)
		ns.set(n.job, p, podHeld)
		return
	}
	ns.set(n.job, p, podPlanned)
	n.planned++
	ns.plans[p.alloc.Node] = append(ns.plans[p.alloc.Node], planned{n, i})
	ns.state.Expect(owner, p.alloc.Node)
	ns.state.Close(p.alloc.Node)
}

// free reports whether the place of a pod on a node is free for it. If it is still on that
// node, no other place there is.
func (ns *nominations) free(p *pod, node cluster.NodeID) bool {
	return (p.from() == nil || p.from().Node != node) && ns.state.Holds(&p.alloc)
}

// evict decides that a victim leaves for a nomination.
func (ns *nominations) evict(v *victim, n *nomination) {
	x := eviction{*v, n, slices.Collect(v.pods), v.job.exposed}
	from := len(ns.places)
	for _, i := range x.pods {
		ns.places = append(ns.places, ns.placement(v.job, i))
	}
	ns.leave(&x)
	ns.evictions = append(ns.evictions, x)
	ns.out = append(ns.out, Decision{
		Op: Evict, Job: v.job.Name, Pods: ns.places[from:len(ns.places):len(ns.places)], Reason: v.reason, For: n.job.Name,
	})
}

// leave counts the pods of a victim as leaving.
func (ns *nominations) leave(x *eviction) {
	j, n := x.job, x.nomination
	for _, i := range x.pods {
		p := &j.pods[i]
		j.charge(ns.state, p, -1)
		j.leaves(ns.state, p, 1)
		p.tied().leavingFor = n
		n.outstanding++
		j.left = append(j.left, leftFor{ns.state.Home(p.alloc.Node), n})
		ns.set(j, p, podLeaving)
		ns.stopped(j, p)
	}
	if !slices.Contains(n.victims, j) {
		n.victims = append(n.victims, j)
	}
	ns.goes(j)
	ns.changes.quotaReturned()
	ns.planner.budget.spent += len(x.pods)
	if j.Gang && x.pod < 0 {
		ns.denominate(j)
		j.begun = false
		ns.waiting.dequeue(j) // pods of it that waited to join the gang
	}
}

// settleNode gives places on a node that a pod has left, as far as they are free now, to the pods for which they
// are planned, and places on its home if it is lent: the pod may have drawn from there.
func (ns *nominations) settleNode(node cluster.NodeID) {
	if home := ns.state.Home(node); home != node {
		ns.settleNode(home)
	}
	list := ns.plans[node]
	for k := 0; k < len(list); {
		n, p := list[k].nomination, &list[k].nomination.job.pods[list[k].pod]
		if n.later > 0 || !ns.free(p, node) {
			k++
			continue
		}
		owner := cluster.Owner{Job: n.job.slot, Pod: int32(list[k].pod)}
		ns.state.Unexpect(owner, node)
		ns.state.Place(owner, p.alloc)
		ns.set(n.job, p, podHeld)
		n.planned--
		list = slices.Delete(list, k, k+1)
		ns.state.Open(node)
	}
	ns.setPlans(node, list)
}

func (ns *nominations) setPlans(node cluster.NodeID, list []planned) {
	if len(list) == 0 {
		delete(ns.plans, node)
		return
	}
	ns.plans[node] = list
}

// fulfil binds the nominated jobs whose victims have all left. It queues those again that an
// event has deprived of a place, or of pods near which they must be. No decision of the engine
// does that: see upheld.
func (ns *nominations) fulfil(now Time) {
	for k := 0; k < len(ns.all); {
		n := ns.all[k]
		ns.working = n.job.Name
		// 1. An event has taken one of its places, or its affinities no longer hold there: it waits
		// again.
		by := n // the plan by whose victims its places become free
		if n.lead != nil {
			by = n.lead
		}
		lost := by.outstanding == 0 && n.planned > 0
		if lost || !ns.stillHolds(n) {
			ns.waiting.dequeue(n.job)
			ns.denominate(n.job)
			ns.waiting.enqueue(n.job, now)
			continue
		}
		// 2. Some of its victims have not left yet. A job that restarts elsewhere waits for its own
		// pods to leave, and for its places.
		if n.lead == nil && n.outstanding > 0 || n.old+n.planned > 0 {
			k++
			continue
		}
		// 3. All its places are free and held: it is bound.
		ns.all = slices.Delete(ns.all, k, k+1)
		j := n.job
		j.nomination = nil
		from := len(ns.places)
		ns.runs.setBackfilled(j, false)
		for i := range j.pods {
			if p := &j.pods[i]; p.state == podHeld {
				j.charge(ns.state, p, -1)
				j.leaves(ns.state, p, 1)
				ns.bound(j, p, now)
				ns.places = append(ns.places, ns.placement(j, i))
			}
		}
		j.begun = true
		ns.changes.podsAppeared(j)
		ns.released(n)
		ns.out = append(ns.out, Decision{Op: Bind, Job: j.Name, Pods: ns.places[from:len(ns.places):len(ns.places)], Reason: n.bindReason()})
		ns.waiting.enqueue(j, now)
	}
}

// denominate gives up a job's nomination and the places kept for it.
func (ns *nominations) denominate(j *job) {
	n := j.nomination
	if n == nil {
		return
	}
	j.nomination = nil
	ns.all = slices.DeleteFunc(ns.all, func(o *nomination) bool { return o == n })
	for i := range j.pods {
		ns.yield(n, i)
	}
	ns.state.Commit()
	ns.changes.planDropped(j)
	ns.moves.giveUp(n)
	ns.released(n)
}

// yield gives up the place that is kept for a pod of a nominated job, if any. The
// journal grows.
func (ns *nominations) yield(n *nomination, i int) {
	j := n.job
	p := &j.pods[i]
	switch p.state {
	case podHeld:
		ns.state.Remove(cluster.Owner{Job: j.slot, Pod: int32(i)}, p.alloc.Node)
	case podPlanned:
		ns.setPlans(p.alloc.Node, slices.DeleteFunc(ns.plans[p.alloc.Node], func(x planned) bool {
			return x.nomination == n && x.pod == i
		}))
		n.planned--
		ns.state.Unexpect(cluster.Owner{Job: j.slot, Pod: int32(i)}, p.alloc.Node)
		ns.state.Open(p.alloc.Node)
	default:
		return
	}
	j.charge(ns.state, p, -1)
	j.leaves(ns.state, p, 1)
	ns.changes.quotaReturned()
	ns.changes.roomFreed(p.alloc.Node)
	if p.from() != nil { // it goes on leaving, without a place
		ns.longTerm.hold(j, p, -1) // until it is podLeaving
		p.alloc, p.tied().from = *p.from(), nil
		n.old--
		ns.set(j, p, podLeaving)
	} else {
		ns.set(j, p, podWaiting)
	}
	ns.unplaced(j)
	ns.holdsChanged()
	ns.changes.podsVanished(j)
}

// handOver gives the place that is kept for a pod to an identical one of the job that waits.
func (ns *nominations) handOver(n *nomination, from, to int) {
	p, o := &n.job.pods[from], &n.job.pods[to]
	o.alloc, o.came = p.alloc, p.came
	if p.state == podHeld {
		ns.state.Remove(cluster.Owner{Job: n.job.slot, Pod: int32(from)}, p.alloc.Node)
		ns.state.Place(cluster.Owner{Job: n.job.slot, Pod: int32(to)}, o.alloc)
		ns.state.Commit()
	} else {
		list := ns.plans[p.alloc.Node]
		list[slices.Index(list, planned{n, from})].pod = to
		ns.state.Unexpect(cluster.Owner{Job: n.job.slot, Pod: int32(from)}, p.alloc.Node)
		ns.state.Expect(cluster.Owner{Job: n.job.slot, Pod: int32(to)}, p.alloc.Node)
	}
	ns.set(n.job, o, p.state)
	ns.set(n.job, p, podWaiting)
}

// dropPlans gives up the nominations that count on a node, or on what pods on it lend: all, or only
// those with waves to come.
func (ns *nominations) dropPlans(node cluster.NodeID, inWaves bool, now Time) {
	for _, n := range slices.Clone(ns.all) {
		if j := n.job; ns.needs(n, node) && (n.later > 0 || !inWaves) {
			ns.waiting.dequeue(j)
			ns.denominate(j)
			ns.waiting.enqueue(j, now)
		}
	}
}
