package core

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/defrag"
	"github.com/muster-sched/muster/core/place"
)

// This file makes room for one waiting job that has enough free GPUs, but not together:
// consolidation. Running pods go to other nodes, in two ways. Those of a job that is
// [Replaceable] move by make before break (migrate.go). Other jobs that may be evicted restart
// elsewhere: they stop, and start again at once in places that the same plan keeps for them.
//
// A plan is made only if every pod that it stops has a place in it. So it comes to an end
// (preempt.go): it leaves the running jobs and what quota covers as they are, and adds one job.
//
// A pod that restarts is at its new place for the engine: nominated, counted there against
// quota, with its rank among the holdings of its queue. It is still on its old node, too,
// until the driver reports that it has gone: pod.from says where. If the new place is lost
// before that, the pod becomes one that leaves, like any other victim.

// Room bounds the plans that make room for one waiting job.
type Room struct {
	// MaxMoves is the most pods that a plan moves or restarts; 0 for no plans.
	MaxMoves int
	// Restarts allows plans that stop jobs and start them again elsewhere.
	Restarts bool
	// AssumedWait is how long the job is taken to wait if nothing is done: how long running
	// jobs will run is not known. A plan must cost less than the job's GPUs for that time. 0
	// stands for ever.
	AssumedWait Time
}

// moveTime is how long a pod that moves is taken to hold both places, for the cost of a plan.
const moveTime = 60 * Second

// roomSearches is the most searches of a pass, or in a cluster with many pods of a roomInterval,
// as each may cost milliseconds there. Classes beyond it are tried again after that, at the
// earliest after roomPause; see searchTurns for whose come first.
const (
	roomSearches = 8
	roomPause    = 30 * Second
	roomInterval = 300 * Second
)

// searchTurns divides the searches for room of a period among those who ask for them. Without that, a user with eight kinds of jobs for
// which every search is in vain could take all of them in each period, by a change that makes searches worth a try again.
type searchTurns struct {
	made int
	// by has how many each submitter has made who asked.
	by map[submitterID]int
	// owed are those who were refused every search that they asked for in the last period, and have made none since: one is kept for each.
	owed map[submitterID]bool
}

// begin begins a period.
func (t *searchTurns) begin() {
	t.made, t.owed = 0, map[submitterID]bool{}
	for id, n := range t.by {
		if n == 0 {
			t.owed[id] = true
		}
	}
	t.by = map[submitterID]int{}
}

// take takes a search, and reports whether there was one left. If not, there is none until the next period.
func (t *searchTurns) take(id submitterID) bool {
	if t.refuses(id) {
		return false
	}
	t.made++
	t.by[id]++
	delete(t.owed, id)
	return true
}

// refuses reports whether no search is left for a submitter who asks for one.
func (t *searchTurns) refuses(id submitterID) bool {
	if t.by == nil {
		t.begin()
	}
	t.by[id] += 0 // it has asked
	return t.made >= roomSearches || !t.owed[id] && t.made+len(t.owed) >= roomSearches
}

// allowSearches allows the searches for room of the next pass.
func (ns *nominations) allowSearches() {
	if ns.now < ns.roomAgain {
		return
	}
	ns.searches.begin()
	ns.roomAgain = ns.now
	pods := 0
	for m := range ns.runs.loads {
		pods += ns.runs.loads[m].pods
	}
	if pods > attemptSmall {
		ns.roomAgain = cluster.Plus(ns.now, roomInterval)
	}
}

// relocation is a pod that goes to another place.
type relocation struct {
	job  *job
	pod  int
	to   cluster.Alloc
	wave int // in which it moves
}

// roomPlan is who moves, who restarts, and where the job, or a part of it, starts.
type roomPlan struct {
	at       turn
	placed   []place.Placed
	moves    []relocation
	restarts []restart
	cost     int64 // of moves and restarts, in milli-GPU seconds
	// gone are borrowers that are evicted, if the job is covered, by cover: see pieces.go.
	gone  []victim
	cover cover
}

// restart is what restarts elsewhere together: a gang, or a pod of another job.
type restart struct {
	victim
	pods []relocation
}

// consolidate makes a plan by which the job, which has enough free GPUs, starts where others are
// now, while all of those go on elsewhere, and decides it. It reports whether it made one.
func (ps *pass) consolidate(j candidate) bool {
	this, worth := ps.planner.again(j.job, ps.now, forRoom)
	if !worth {
		return false
	}
	if !ps.maySearch(j.job) {
		ps.wakes.retryAt(ps.now, ps.searchAgain())
		return false
	}
	ps.entitlement.update()
	due := Never
	for _, restarts := range []bool{false, true} {
		if restarts && !ps.policy.Room.Restarts {
			break
		}
		if !restarts && ps.jobs.replaceable == 0 {
			continue // none could move
		}
		if p := ps.roomPlan(ps.units.prepare(j.job), ps.policy.Room, restarts, &due); p != nil {
			if ps.nominations.relocate(j.job, p) {
				return true
			}
		}
	}
	ps.failed(j.job, forRoom, this, outlook{due, Never})
	return false
}

// maySearch reports whether another search for room is allowed for a job now, and counts it. If not,
// searchAgain says when it may be.
func (ps *pass) maySearch(j *job) bool { return ps.nominations.searches.take(submitterOf(j)) }

func (ps *pass) searchAgain() Time { return max(ps.nominations.roomAgain, ps.now+roomPause) }

// enoughFree reports whether the policy makes room for jobs, and the job has enough free GPUs by
// count. Pods of a job that starts pod by pod may have a plan already: then it waits for that, as a
// failed move gives up the places of all, also those for which victims leave.
func (ps *pass) enoughFree(j candidate) bool {
	need := j.needed()
	return ps.policy.Room.MaxMoves > 0 && need > 0 && j.nomination == nil && ps.planner.freeFor(j.class) >= need
}

// mayConsolidate reports whether moves may make room for a job. False is certain.
func (ps *pass) mayConsolidate(j candidate) bool {
	if !ps.enoughFree(j) {
		return false
	}
	_, worth := ps.planner.again(j.job, ps.now, forRoom)
	return worth
}

// roomPlan looks for a plan within bounds, of moves alone or with restarts; nil if there is none. It
// lowers due to the time at which more may restart than now.
func (ps *pass) roomPlan(j candidate, bounds Room, restarts bool, due *Time) *roomPlan {
	if !j.unit.Whole {
		onePod(j.unit)
	}
	pods := &relocatable{
		movablePods: movablePods{Engine: ps.Engine}, of: j.job, now: ps.now, restarts: restarts,
		cover: ps.entitlement.coverOf(j), near: ps.affinities.constrain(j.job), most: bounds.MaxMoves, limit: bounds.mostCost(j), due: due,
	}
	drawn := ps.placer.Drawn()
	found, ok := defrag.MakeRoom(ps.state, ps.placer, pods, j.unit, defrag.Options{MaxMoves: bounds.MaxMoves, Stop: restarts})
	var p *roomPlan
	if ok {
		p = ps.relocations(j, pods, found.Moves, &roomPlan{at: anyTurn})
		ps.state.Rollback(0)
	}
	ps.placer.Redraw(drawn)
	return p
}

// mostCost returns what a plan for the job may cost, in milli-GPU seconds.
func (r *Room) mostCost(j candidate) int64 {
	if r.AssumedWait == 0 {
		return int64(Never)
	}
	return gpuTime(j.needed(), r.AssumedWait)
}

// gpuTime returns milli-GPU seconds.
func gpuTime(gpu Milli, t Time) int64 { return cluster.Times(int(gpu), int64(t/1e6)) / 1e3 }

// relocations adds to a plan the places of all pods that go elsewhere, and of the job, as a trial.
// nil if one of them has none, or the plan costs too much.
func (ps *pass) relocations(j candidate, pods *relocatable, found []defrag.Move, p *roomPlan) *roomPlan {
	if !pods.restarts {
		return ps.inWaves(j, pods, found, p)
	}
	// 1. A pod that can be replaced, and whose new place is free now, moves: it holds both. The
	// others restart, with their gangs.
	var stop []defrag.Move
	for _, m := range found {
		v, i := ps.jobs.slots[m.Pod.Job], int(m.Pod.Pod)
		if ps.moves.mayMove(v, i) {
			if to, ok := ps.moves.on(v, i, m.To); ok {
				p.moves = append(p.moves, relocation{v, i, to, 0})
				ps.state.Place(m.Pod, to)
				p.cost += gpuTime(v.gpu(&v.pods[i]), moveTime)
				continue
			}
		}
		if !pods.mayRestart(v, i) {
			return nil
		}
		p.stop(v, i)
		stop = append(stop, m)
	}
	if !ps.nominations.upheld() {
		return nil
	}

	// 2. All leave their old places. Pods of a gang that are not in the way come back to theirs.
	evicted := 0
	for _, m := range p.moves {
		if slices.ContainsFunc(p.restarts, func(r restart) bool { return r.job == m.job && (r.pod < 0 || r.pod == m.pod) }) {
			return nil // its gang cannot stop meanwhile
		}
		ps.state.Remove(cluster.Owner{Job: m.job.slot, Pod: int32(m.pod)}, m.job.pods[m.pod].alloc.Node)
	}
	for k := range p.restarts {
		r := &p.restarts[k]
		r.cost, _ = r.job.lost(ps.now, r.pod)
		p.cost += r.cost
		for i := range r.victim.pods {
			r.pods = append(r.pods, relocation{r.job, i, r.job.pods[i].alloc, 0})
			ps.state.Remove(cluster.Owner{Job: r.job.slot, Pod: int32(i)}, r.job.pods[i].alloc.Node)
			evicted++
		}
	}
	for k := range p.restarts {
		for _, r := range p.restarts[k].pods {
			if !slices.ContainsFunc(stop, func(m defrag.Move) bool { return m.Pod == cluster.Owner{Job: r.job.slot, Pod: int32(r.pod)} }) {
				if !ps.nominations.comesBack(&r) {
					return nil
				}
				ps.state.Place(cluster.Owner{Job: r.job.slot, Pod: int32(r.pod)}, r.to)
			}
		}
	}
	if p.cost >= pods.limit || len(p.moves)+evicted > pods.most {
		return nil
	}
	for k := range p.gone {
		for range p.gone[k].pods {
			evicted++
		}
	}
	later := outlook{*pods.due, Never}
	if !ps.planner.affordsEvictions(evicted, preemptor{now: ps.now, later: &later}) {
		*pods.due = later.more
		return nil
	}

	// 3. Those in the way find their new places, then the job its own.
	for _, m := range stop {
		v, i := ps.jobs.slots[m.Pod.Job], int(m.Pod.Pod)
		placed := ps.placer.PodOn(pods.Unit(m.Pod), m.To)
		if len(placed) == 0 {
			return nil
		}
		p.restarting(v, i).to = placed[0].Alloc
	}
	return ps.startsAfter(j, p)
}

// startsAfter adds to a plan under trial where the job starts; nil if it does not.
func (ps *pass) startsAfter(j candidate, p *roomPlan) *roomPlan {
	u := ps.units.prepareTurn(j.job, p.at).unit
	var placed []place.Placed
	if u.Whole {
		placed, _ = ps.placer.Gang(u)
	} else {
		onePod(u)
		placed = ps.placer.Pods(u)
	}
	if len(placed) == 0 || !affords(ps.state, j.job, placed, u.Room) {
		return nil
	}
	p.placed = slices.Clone(placed)
	ps.nominations.weigh(draft{job: j.job, placed: p.placed, gone: p.gone})
	ok := ps.nominations.upheld()
	ps.nominations.weigh(draft{})
	if !ok {
		return nil
	}
	return p
}

// stop adds a pod, or its gang, to those that restart.
func (p *roomPlan) stop(v *job, i int) {
	r := restart{victim: victim{job: v, pod: i, reason: Consolidation}}
	if v.Gang {
		r.pod = -1
	}
	if !slices.ContainsFunc(p.restarts, func(o restart) bool { return o.job == v && o.pod == r.pod }) {
		p.restarts = append(p.restarts, r)
	}
}

// restarting returns the relocation of a pod that restarts, nil if it does not.
func (p *roomPlan) restarting(v *job, i int) *relocation {
	for k := range p.restarts {
		if r := &p.restarts[k]; r.job == v {
			if at := slices.IndexFunc(r.pods, func(x relocation) bool { return x.pod == i }); at >= 0 {
				return &r.pods[at]
			}
		}
	}
	return nil
}

// relocatable answers the questions of a search for room about the pods on nodes.
type relocatable struct {
	movablePods
	of       *job
	now      Time
	restarts bool
	cover    cover // what would cover the job
	lifted   bool  // a trial has taken victims off their nodes
	near     bool  // it has affinities, or others have some to it
	most     int   // pods that the plan may move or restart
	limit    int64 // what it may cost, in milli-GPU seconds
	due      *Time // when more may restart
}

// Movable reports whether a pod may go elsewhere for the job.
func (r *relocatable) Movable(o cluster.Owner) bool {
	v := r.jobs.slots[o.Job]
	if r.near && v.labelled() {
		return false // the job could not count on its labels while it moves
	}
	if r.now < v.stays && r.moves.couldMove(v, &v.pods[o.Pod]) {
		*r.due = min(*r.due, v.stays)
	}
	return r.moves.mayMove(v, int(o.Pod)) || r.restarts && r.mayRestart(v, int(o.Pod))
}

// Unit describes a pod to the placer. One that stops may start again on other devices of its node.
func (r *relocatable) Unit(o cluster.Owner) *place.Unit {
	described := r.units[o] != nil
	u := r.movablePods.Unit(o)
	if !described && r.restarts && r.mayRestart(r.jobs.slots[o.Job], int(o.Pod)) {
		u.Left = u.Left[:len(u.Left)-1] // see moves.unit: its own node is the last
	}
	return u
}

// mayRestart reports whether a pod, or its gang, may stop and start again elsewhere for the job.
// It must rank no higher, and what is within the quota of another tenant, or what that is owed, stops only for a job
// that is covered as well. A job of which pods wait restarts nowhere, so neither does the job itself; nor one
// with labels or affinities (labelled says both): its new place could be gone by the time at which it
// starts.
func (r *relocatable) mayRestart(v *job, i int) bool {
	p := &v.pods[i]
	if p.state != podRunning || r.of.NeverPreempts || r.of.key.compare(v.key.precedence) > 0 || !r.couldRestart(v) {
		return false
	}
	if r.lifted && slices.ContainsFunc(v.pods, func(p pod) bool { return p.lifted }) {
		return false // it loses pods by the same plan
	}
	if v.Gang && v.onLent(r.state) || v.queue != r.of.queue && r.cover < p.cover() {
		return false
	}
	started, pod := p.started, i
	if v.Gang {
		started, pod = v.started, -1
	}
	if at := cluster.Plus(started, max(r.policy.Preempt.MinRuntime, v.MinRuntime)); r.now < at {
		*r.due = min(*r.due, at)
		return false
	}
	if work, _ := v.lost(r.now, pod); work < r.limit {
		return true
	}
	if v.Checkpoint > 0 { // it loses less after the next one
		age := r.now - max(started, v.saved)
		*r.due = min(*r.due, cluster.Plus(r.now, v.Checkpoint-age%v.Checkpoint))
	}
	return false
}

// onLent reports whether a pod of the job is on devices that are lent: it may have to leave them
// at any time.
func (j *job) onLent(s *cluster.State) bool {
	return slices.ContainsFunc(j.pods, func(p pod) bool { return p.state == podRunning && s.Lent(p.alloc.Node) })
}

// relocate decides a plan, and reports whether it could.
func (ns *nominations) relocate(j *job, p *roomPlan) bool {
	n := ns.nominated(j)
	n.room, n.covered[p.cover] = true, true

	// 1. Pods move.
	for _, r := range p.moves {
		m := &move{job: r.job, pod: r.pod, to: r.to, why: Consolidation, room: j.Name, lead: n, wave: r.wave}
		if r.wave > 0 {
			ns.moves.await(m)
		} else if ns.moves.begin(m) != nil {
			for _, m := range slices.Clone(ns.moves.all) {
				if m.lead == n {
					ns.moves.abandon(m)
				}
			}
			ns.denominate(j)
			ns.waiting.enqueue(j, ns.now)
			return false
		}
		ns.changes.moveBegun(r.job)
	}
	for _, m := range ns.moves.all {
		if m.lead == n && !m.told && !m.later {
			ns.moves.decide(m)
		}
	}

	// 2. Jobs stop, and places are kept for them.
	for k := range p.restarts {
		ns.restart(&p.restarts[k], n, Consolidation)
		ns.planner.budget.spent += len(p.restarts[k].pods)
	}

	// 3. Borrowers leave.
	for k := range p.gone {
		ns.evict(&p.gone[k], n)
	}
	if len(p.gone) > 0 {
		ns.plansMade++
	}

	// 4. The job's places are kept, too: for one within quota as in nominate.
	came := ns.entitlement.planning(ns.now)
	if p.cover == byNominal {
		came = entitled
	}
	ns.keep(n, p.placed, came)
	ns.waiting.enqueue(j, ns.now) // the other pods of a job that is no gang
	return true
}

// toward counts the moves that make room for a nominated job.
func (ms *moves) toward(n *nomination) int {
	count := 0
	for _, m := range ms.all {
		if m.lead == n {
			count++
		}
	}
	return count
}
