package audit

import (
	"maps"
	"slices"
)

// A pod that makes room for a job by restarting elsewhere has a place kept for it: see
// docs/defragmentation.md. It starts again when the last pod that the plan moves or stops, and whose place it
// needs, has left; with all pods of its job that the plan stopped, on the same GPU model. Until
// then its queue is charged for it. The decisions do not say which places are kept, but each of
// these follows from when and how it is bound.
//
// So has a pod that restarts as requested, or so that a node becomes free: its release names no other
// job. Only the pods of its own job leave for that plan, and its place was free when it was decided, or one
// of theirs: no other pod has left it since.

// roomPlan is what was decided at one instant to make room for one job, or to restart one. If its moves
// begin at the instant at which the last ones for that job ended, they are the next wave of the same plan.
type roomPlan struct {
	by   string
	told int64
	// own says that it restarts the job for no other one.
	own bool
	// rank is that of the job, nil if it ended before the first pod left.
	rank *rank
	// last is when a pod of the plan left a place last, moving how many pods still hold two.
	last   int64
	moving int
	pods   int  // that it and the waves before have moved or stopped, as far as is known
	binds  int  // of pods of the job when the first did
	failed bool // a pod of it did not move
	// shifts is how often nodes had changed when the first pod left.
	shifts counted
}

// planKey says for whom and when a plan was decided.
type planKey struct {
	by   string
	own  bool
	told int64
}

// rank orders jobs by class, HP first, and priority, highest first.
type rank struct {
	class    string
	priority int64
}

// above reports whether jobs of rank r go before those of rank o.
func (r rank) above(o rank) bool {
	return r.class == "HP" && o.class != "HP" || r.class == o.class && r.priority > o.priority
}

// promise is the place that is kept for a pod.
type promise struct {
	plan    *roomPlan
	told    int64
	was     pod  // where it was: its queue is charged for it
	charged bool // still
}

// planOf returns the plan by which a pod leaves or moves for a job; told is when it was decided.
func (a *auditor) planOf(forJob []byte, told int64) *roomPlan {
	key := planKey{string(forJob), false, told}
	p, by := a.plans[key], a.jobs[key.by]
	if p == nil {
		a.forgetPlans(told)
		p = &roomPlan{by: key.by, told: told, shifts: a.shifts}
		if by != nil {
			p.rank, p.binds = &by.rank, by.binds.n
			a.follows(p, by)
		}
		a.plans[key] = p
	}
	if by != nil && told == a.now && by.binds.n != p.binds {
		p.pods, p.binds = 0, by.binds.n // another plan at that instant, for another pod
	}
	p.pods++
	if r := a.summary.Rules; r != nil && p.pods == r.RoomMoves+1 {
		a.breach(Restart, "%d pods go elsewhere for %s by the plan of %s, expected at most %d", p.pods, p.by, seconds(told), r.RoomMoves)
	}
	return p
}

// follows counts what the waves before have moved for the job, and checks that they are over. If the job ran
// before, it may have left meanwhile, and a new plan needs not wait for the moves of an old one.
func (a *auditor) follows(p *roomPlan, by *job) {
	was := by.room
	by.room = p
	switch {
	case was == nil || was.told >= p.told || was.binds != p.binds || was.upset(a, was.told):
	case was.moving == 0 && was.last == p.told:
		p.pods = was.pods
	case was.moving > 0 && p.binds == 0:
		a.breach(Move, "pods make room for %s at %s, and %d of those that began at %s still move", p.by, seconds(p.told), was.moving, seconds(was.told))
	}
}

// ownPlan returns the plan by which a job restarts for no other one.
func (a *auditor) ownPlan(j *job, told int64) *roomPlan {
	key := planKey{j.name, true, told}
	p := a.plans[key]
	if p == nil {
		a.forgetPlans(told)
		p = &roomPlan{by: j.name, own: true, shifts: a.shifts}
		a.plans[key] = p
	}
	return p
}

// what says what a pod did that left by the plan.
func (p *roomPlan) what() string {
	if p.own {
		return "was told to restart"
	}
	return "made room for " + p.by
}

// upset reports whether a place of the plan may have been lost.
func (p *roomPlan) upset(a *auditor, told int64) bool {
	return p.failed || a.shifts.since(p.shifts, told)
}

// restart notes that a pod left for a job, or for none, and starts again elsewhere. Its queue stays
// charged.
func (a *auditor) restart(j *job, p *pod, was pod, d *decision) {
	var plan *roomPlan
	if len(d.forJob) == 0 {
		plan = a.ownPlan(j, d.told)
	} else {
		plan = a.planOf(d.forJob, d.told)
	}
	plan.last = d.t
	switch r := a.summary.Rules; {
	case plan.own:
	case r != nil && !r.RoomRestarts:
		a.breach(Restart, "%s restarts elsewhere at %s, which the policy does not allow", d.pod, seconds(d.t))
	case plan.rank != nil && j.rank.above(*plan.rank):
		a.breach(Restart, "%s restarts elsewhere at %s for %s, which ranks lower", d.pod, seconds(d.t), plan.by)
	}
	p.promise = &promise{plan: plan, told: d.told, was: was, charged: true}
	a.promised[p.promise] = j
	j.promised = append(j.promised, p.promise)
	if plan.upset(a, d.told) {
		a.discharge(p.promise, j)
	}
}

// discharge takes from the charge of a queue what is kept for a pod.
func (a *auditor) discharge(x *promise, j *job) {
	if x.charged {
		x.charged = false
		delete(a.promised, x)
		a.charge(j, x.was.node, &x.was, -1)
	}
}

// shifted notes that a node changes: places that are kept may be lost with it, and with them what
// queues are charged for.
func (a *auditor) shifted(t int64) {
	a.shifts.add(t)
	for x, j := range a.promised { // sums do not depend on the order
		a.discharge(x, j)
	}
}

// again checks how a pod that restarts is bound.
func (a *auditor) again(j *job, x *promise, p *pod, d *decision) {
	why := string(d.reason)
	kept := why == consolidation || why == requested || why == defragmentation
	switch {
	case x == nil && kept:
		a.breach(Restart, "%s is bound at %s to a place kept for its restart, and did not restart", d.pod, seconds(d.t))
		return
	case x == nil:
		return
	}
	a.discharge(x, j)
	j.promised = slices.DeleteFunc(j.promised, func(o *promise) bool { return o == x })
	upset := x.plan.upset(a, x.told)
	if why == defragmentation {
		a.mayRestart(j, d)
	}
	switch {
	case upset:
	case !kept || x.plan.own == (why == consolidation):
		a.breach(Restart, "%s %s, and is bound at %s to another place than is kept for it", d.pod, x.plan.what(), seconds(d.t))
	case d.t > x.plan.last:
		a.breach(Restart, "%s %s, and starts at %s, though all had left at %s", d.pod, x.plan.what(), seconds(d.t), seconds(x.plan.last))
	case p.amount() > 0 && p.node.model != x.was.node.model:
		a.breach(Restart, "%s %s, and goes from a %s to a %s", d.pod, x.plan.what(), x.was.node.model, p.node.model)
	}
	if x.plan.own && kept && !upset && p.milli == wholeGPU {
		if g := p.node.freedSince(p.gpus, x.told, j); g >= 0 {
			a.breach(Restart, "%s restarts at %s on GPU %d of %s, which was in use at %s, when a place was to be kept for it", d.pod, seconds(d.t), g, p.node.name, seconds(x.told))
		}
	}
	if kept && len(j.promised) > 0 && !j.resuming {
		j.resuming = true
		a.resuming = append(a.resuming, j)
	}
}

// mayRestart checks that a job restarts so that a node becomes free only if the policy says so.
func (a *auditor) mayRestart(j *job, d *decision) {
	r := a.summary.Rules
	if r != nil && (r.DefragRestarts == "" || r.DefragRestarts == "LP" && j.class != "LP") {
		a.breach(Restart, "%s restarts at %s so that a node is free, and is %s: the policy allows %q", d.pod, seconds(d.t), j.class, r.DefragRestarts)
	}
}

// restarted checks, when an instant is over, that the jobs that started again did so with all
// pods that one plan stopped.
func (a *auditor) restarted() {
	for _, j := range a.resuming {
		j.resuming = false
		for _, x := range j.promised {
			if !x.plan.upset(a, x.told) {
				a.breach(Restart, "%s %s and starts again at %s without %d of its pods", j.name, x.plan.what(), seconds(a.now), len(j.promised))
				break
			}
		}
	}
	a.resuming = a.resuming[:0]
}

// waits checks at t, the end of the run, that no pod of a job still waits for a place that is kept
// for it, unless other pods of the plan may not have left yet.
func (a *auditor) waits(j *job, t int64) {
	for _, x := range j.promised {
		r := a.summary.Rules
		over := r != nil && x.plan.moving == 0 && float64(t-x.told) > r.EvictGrace*1e9
		if over && !x.plan.upset(a, x.told) {
			a.breach(Restart, "%s %s at %s, and has not started again", j.name, x.plan.what(), seconds(x.told))
		}
	}
}

// moveBegins and moveEnds follow a move that makes room for a job.
func (a *auditor) moveBegins(p *pod, d *decision) {
	if string(d.reason) != consolidation {
		return
	}
	p.room = a.planOf(d.forJob, d.t)
	p.room.moving++
}

func (a *auditor) moveEnds(p *pod, t int64, moved bool) {
	if p.room == nil {
		return
	}
	p.room.moving--
	p.room.last = t
	p.room.failed = p.room.failed || !moved
	p.room = nil
}

// forgetPlans drops the plans of which no pod can leave after t, when there are many.
func (a *auditor) forgetPlans(t int64) {
	if r := a.summary.Rules; r != nil && len(a.plans) >= 1000 {
		maps.DeleteFunc(a.plans, func(k planKey, p *roomPlan) bool { return p.moving == 0 && float64(t-k.told) > r.EvictGrace*1e9 })
	}
}

// The reasons of a bind or a move by such a plan.
const (
	consolidation   = "Consolidation"
	requested       = "Requested"
	defragmentation = "Defragmentation"
)
