package core

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// From a plan's decision to its end: victims are told to leave, the job's places
// are kept for it as they become free, and when the last victim is gone the job
// is bound.

// nomination is a plan under way: a gang, or pods of another job, whose places
// are settled and that wait for victims to leave.
type nomination struct {
	job *job
	// outstanding counts victims' pods still on their nodes, planned the job's
	// pods whose places are not free yet.
	outstanding, planned int
	// victims are the jobs of which pods were told to leave for it. Of those that have
	// ended, ended says by name which nodes they left: the job may come again.
	victims []*job
	ended   map[string][]cluster.NodeID
	// within says that nominal quota covered the job when a plan for it was made.
	within bool
	// seen is how often labels had changed when its affinities were looked at last.
	seen uint64
}

// planned is a pod whose place on a node is not free yet. The node is closed
// meanwhile, so that nothing else takes it.
type planned struct {
	nomination *nomination
	pod        int
}

// nominate decides a plan: it tells the victims to leave and keeps the places
// for the job.
func (e *Engine) nominate(c claimant, placed []place.Placed, gone []victim) {
	j, now := c.job, c.now
	if len(gone) == 0 {
		// Nobody needs to leave after all.
		for i := range placed {
			e.state.Place(cluster.Owner{Job: j.slot, Pod: placed[i].Pod}, placed[i].Alloc)
		}
		e.state.Commit()
		e.bind(j, placed, now, e.howStarted(j))
		return
	}
	e.dequeue(j)
	n := j.nomination
	if n == nil {
		n = &nomination{job: j}
		j.nomination = n
		e.filling = append(e.filling, n)
	}
	n.within = n.within || c.within
	e.plansMade++
	for k := range gone {
		e.evict(&gone[k], n)
	}
	came := e.covers.planning(now)
	if c.within {
		came = entitled
	}
	for i := range placed {
		p := &j.pods[placed[i].Pod]
		p.alloc, p.came = placed[i].Alloc, came
		e.charge(j, p, 1)
		e.leaves(j, p, -1)
		if e.state.Holds(&p.alloc) {
			e.state.Place(cluster.Owner{Job: j.slot, Pod: placed[i].Pod}, p.alloc)
			j.set(p, podHeld)
			continue
		}
		j.set(p, podPlanned)
		n.planned++
		e.plans[p.alloc.Node] = append(e.plans[p.alloc.Node], planned{n, int(placed[i].Pod)})
		e.state.Expect(cluster.Owner{Job: j.slot, Pod: placed[i].Pod}, p.alloc.Node)
		e.state.Close(p.alloc.Node)
	}
	e.state.Commit()
	e.holdsChanged()
	e.touch(j)
	e.enqueue(j, now) // the other pods of a job that is no gang
}

// evict tells a victim to leave for a nomination.
func (e *Engine) evict(v *victim, n *nomination) {
	x := eviction{*v, n, slices.Collect(v.pods), v.job.exposed}
	from := len(e.places)
	for _, i := range x.pods {
		e.places = append(e.places, e.placement(v.job, i))
	}
	e.leave(&x)
	e.evictions = append(e.evictions, x)
	e.out = append(e.out, Decision{
		Op: Evict, Job: v.job.Name, Pods: e.places[from:len(e.places):len(e.places)], Reason: v.reason, For: n.job.Name,
	})
}

// leave counts the pods of a victim as leaving.
func (e *Engine) leave(x *eviction) {
	j, n := x.job, x.nomination
	for _, i := range x.pods {
		p := &j.pods[i]
		e.charge(j, p, -1)
		e.leaves(j, p, 1)
		p.leavingFor = n
		n.outstanding++
		j.left = append(j.left, leftFor{p.alloc.Node, n})
		j.set(p, podLeaving)
		e.stopped(j, p)
	}
	if !slices.Contains(n.victims, j) {
		n.victims = append(n.victims, j)
	}
	e.goes(j)
	e.quotaReturned()
	e.budget.spent += len(x.pods)
	if j.Gang && x.pod < 0 {
		e.denominate(j)
		j.begun = false
		e.dequeue(j) // pods of it that waited to join the gang
	}
}

// settleNode gives places on a node, as far as they are free now, to the pods
// they are planned for.
func (e *Engine) settleNode(node cluster.NodeID) {
	list := e.plans[node]
	for k := 0; k < len(list); {
		n, p := list[k].nomination, &list[k].nomination.job.pods[list[k].pod]
		if !e.state.Holds(&p.alloc) {
			k++
			continue
		}
		owner := cluster.Owner{Job: n.job.slot, Pod: int32(list[k].pod)}
		e.state.Unexpect(owner, node)
		e.state.Place(owner, p.alloc)
		n.job.set(p, podHeld)
		n.planned--
		list = slices.Delete(list, k, k+1)
		e.state.Open(node)
	}
	e.setPlans(node, list)
}

func (e *Engine) setPlans(node cluster.NodeID, list []planned) {
	if len(list) == 0 {
		delete(e.plans, node)
		return
	}
	e.plans[node] = list
}

// fulfil binds the nominated jobs whose victims have all left, and queues again
// those whose places were lost meanwhile, or may not be theirs any more for the pods
// that have gone around them. What the engine decides itself takes nothing from
// a nominated job: see upheld.
func (e *Engine) fulfil(now Time) {
	for k := 0; k < len(e.filling); {
		n := e.filling[k]
		e.working = n.job.Name
		if n.outstanding == 0 && n.planned > 0 || !e.stillHolds(n) {
			e.dequeue(n.job)
			e.denominate(n.job)
			e.enqueue(n.job, now)
			continue
		}
		if n.outstanding > 0 {
			k++
			continue
		}
		e.filling = slices.Delete(e.filling, k, k+1)
		j := n.job
		j.nomination = nil
		from := len(e.places)
		e.setBackfilled(j, false)
		for i := range j.pods {
			if p := &j.pods[i]; p.state == podHeld {
				e.charge(j, p, -1)
				e.leaves(j, p, 1)
				e.bound(j, p, now)
				e.places = append(e.places, e.placement(j, i))
			}
		}
		j.begun = true
		e.appeared(j)
		e.released(n)
		e.out = append(e.out, Decision{Op: Bind, Job: j.Name, Pods: e.places[from:len(e.places):len(e.places)], Reason: MadeRoom})
		e.enqueue(j, now)
	}
}

// denominate gives up a job's nomination and the places kept for it.
func (e *Engine) denominate(j *job) {
	n := j.nomination
	if n == nil {
		return
	}
	j.nomination = nil
	e.filling = slices.DeleteFunc(e.filling, func(o *nomination) bool { return o == n })
	for i := range j.pods {
		e.yield(n, i)
	}
	e.state.Commit()
	e.planDropped(j)
	e.released(n)
}

// yield gives up the place kept for a pod of a nominated job, if there is one.
// The journal grows.
func (e *Engine) yield(n *nomination, i int) {
	j := n.job
	p := &j.pods[i]
	switch p.state {
	case podHeld:
		e.state.Remove(cluster.Owner{Job: j.slot, Pod: int32(i)}, p.alloc.Node)
	case podPlanned:
		e.setPlans(p.alloc.Node, slices.DeleteFunc(e.plans[p.alloc.Node], func(x planned) bool {
			return x.nomination == n && x.pod == i
		}))
		n.planned--
		e.state.Unexpect(cluster.Owner{Job: j.slot, Pod: int32(i)}, p.alloc.Node)
		e.state.Open(p.alloc.Node)
	default:
		return
	}
	e.charge(j, p, -1)
	e.leaves(j, p, 1)
	e.quotaReturned()
	j.set(p, podWaiting)
	e.unplaced(j)
	e.holdsChanged()
	e.roomFreed(p.alloc.Node)
	e.vanished(j)
}

// handOver gives the place kept for a pod to an alike one that waits.
func (e *Engine) handOver(n *nomination, from, to int) {
	p, o := &n.job.pods[from], &n.job.pods[to]
	o.alloc, o.came = p.alloc, p.came
	if p.state == podHeld {
		e.state.Remove(cluster.Owner{Job: n.job.slot, Pod: int32(from)}, p.alloc.Node)
		e.state.Place(cluster.Owner{Job: n.job.slot, Pod: int32(to)}, o.alloc)
		e.state.Commit()
	} else {
		list := e.plans[p.alloc.Node]
		list[slices.Index(list, planned{n, from})].pod = to
		e.state.Unexpect(cluster.Owner{Job: n.job.slot, Pod: int32(from)}, p.alloc.Node)
		e.state.Expect(cluster.Owner{Job: n.job.slot, Pod: int32(to)}, p.alloc.Node)
	}
	n.job.set(o, p.state)
	n.job.set(p, podWaiting)
}

// dropPlans gives up the nominations that count on a node.
func (e *Engine) dropPlans(node cluster.NodeID, now Time) {
	for _, n := range slices.Clone(e.filling) {
		for i := range n.job.pods {
			p := &n.job.pods[i]
			if (p.state == podHeld || p.state == podPlanned) && p.alloc.Node == node {
				j := n.job
				e.dequeue(j)
				e.denominate(j)
				e.enqueue(j, now)
				break
			}
		}
	}
}
