package core

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/defrag"
	"github.com/muster-sched/muster/core/place"
)

// Defrag is how the engine makes whole nodes free by moving running pods (ASI §4.1).
type Defrag struct {
	// Every is the time from one plan to the next, which waits until the moves of the one
	// before are over; 0 for no plans.
	Every Time
	// MaxGPUTime is the most GPU time, in milli-GPU times seconds, for which the pods of a plan
	// hold their GPUs twice, if each of its moves takes MoveTime; 0 for no limit. MoveTime 0
	// stands for DefaultMoveTime. A node is vacated only if until the next plan its GPUs are more
	// GPU time than that.
	MaxGPUTime int64
	MoveTime   Time
	// MaxMoves is the most pods that a plan moves, 0 for no limit; Partition, Depth and Rounds
	// bound the search, see [defrag.Options].
	MaxMoves, Partition, Depth, Rounds int
	// Algorithm is defrag.Muster but for experiments: no policy file sets it.
	Algorithm defrag.Algorithm
}

// DefaultMoveTime is how long a move is thought to take.
const DefaultMoveTime = 60 * Second

// options returns the bounds of a plan. Each plan of an engine divides the nodes into
// partitions differently.
func (d *Defrag) options(plan uint64) defrag.Options {
	move := max(1, int64(cmp.Or(d.MoveTime, DefaultMoveTime)/Second))
	o := defrag.Options{
		MaxMoves: d.MaxMoves, MoveSeconds: move, UseSeconds: int64(d.Every / Second),
		Partition: d.Partition, Depth: d.Depth, Rounds: d.Rounds, Seed: plan, Algorithm: d.Algorithm,
	}
	if d.MaxGPUTime > 0 {
		o.MaxGPU = Milli(max(1, d.MaxGPUTime/move)) // at 1 nothing moves: no node is vacated for less
	}
	return o
}

// Migration is a move of a plan. See [defrag.Move].
type Migration struct {
	Job      string
	Pod      int
	From, To string
	GPU      Milli
	// Wave numbers the waves from 0; those of a wave are made at the same time.
	Wave int
}

// Migrations is a plan of moves.
type Migrations struct {
	Moves []Migration
	// Vacated names the nodes on which no GPU is in use at the end.
	Vacated []string
	// SlackBefore and SlackAfter count nodes of which some GPUs are used and some are free.
	SlackBefore, SlackAfter int
	// Gained is how much GPU the vacated nodes have.
	Gained Milli

	// Restarts are pods that stop and start again elsewhere, those of a gang together: a pod that is
	// not in the way goes back to its node. For a plan that makes room for a job, if moves alone do
	// not.
	Restarts []Migration
	// Lost is the work that they lose, in milli-GPU times seconds. Needed is the GPU of the job for
	// which room is made, or of one pod of it.
	Lost   int64
	Needed Milli
}

// Consolidation returns the moves by which the engine would vacate nodes now. It is a question:
// it changes nothing.
func (e *Engine) Consolidation(d Defrag) Migrations {
	drawn := e.placer.Drawn()
	plan := defrag.Consolidate(e.state, e.placer, &movablePods{Engine: e}, d.options(e.defragmenter.plans))
	e.placer.Redraw(drawn)
	return e.migrations(&plan)
}

// RoomFor returns moves after which a waiting job could start: all of a gang, or one pod of
// another job. If there are none, and restarts says so, pods may also restart elsewhere. found is
// false if there is no such plan, or if the job can start without. An error says that no pod of the
// job waits, or that its queue lacks quota, which no move changes. It is a question: it changes
// nothing.
func (e *Engine) RoomFor(name string, d Defrag, restarts bool) (plan Migrations, found bool, err error) {
	j, err := e.job(name)
	if err != nil {
		return plan, false, err
	}
	if j.nomination != nil {
		return plan, false, fmt.Errorf("job %s: its places are reserved already, and others leave them", name)
	}
	if j.class == nil || j.waiting() == 0 {
		return plan, false, fmt.Errorf("job %s: no pod of it waits", name)
	}
	e.units.compile(j.class)
	c := e.units.prepare(j)
	if c.overrun() {
		return plan, false, fmt.Errorf("job %s: its queue does not have the quota; no move changes that", name)
	}
	needed := c.needed()
	drawn := e.placer.Drawn()
	moves, found := defrag.MakeRoom(e.state, e.placer, &movablePods{Engine: e}, c.unit, d.options(0))
	if found {
		defrag.Effect(e.state, e.placer, &movablePods{Engine: e}, &moves)
	}
	e.placer.Redraw(drawn)
	plan = e.migrations(&moves)
	if ps := (&pass{e, e.now}); !found && restarts && ps.planner.freeFor(j.class) >= needed {
		e.entitlement.update()
		due := Never
		bounds := Room{MaxMoves: cmp.Or(d.MaxMoves, math.MaxInt), Restarts: true}
		if p := ps.roomPlan(e.units.prepare(j), bounds, true, &due); p != nil {
			e.restartsOf(&plan, p)
			found = true
		}
	}
	plan.Needed = needed
	return plan, found, nil
}

// restartsOf adds to an answer the moves and restarts of a plan.
func (e *Engine) restartsOf(plan *Migrations, p *roomPlan) {
	describe := func(r *relocation) Migration {
		at := &r.job.pods[r.pod]
		return Migration{Job: r.job.Name, Pod: r.pod, From: e.state.Node(at.alloc.Node).Spec.Name, To: e.state.Node(r.to.Node).Spec.Name, GPU: r.job.gpu(at)}
	}
	for i := range p.moves {
		plan.Moves = append(plan.Moves, describe(&p.moves[i]))
	}
	for k := range p.restarts {
		plan.Lost += p.restarts[k].cost
		for i := range p.restarts[k].pods {
			plan.Restarts = append(plan.Restarts, describe(&p.restarts[k].pods[i]))
		}
	}
}

// migrations puts a plan in words.
func (e *Engine) migrations(plan *defrag.Plan) Migrations {
	out := Migrations{SlackBefore: plan.SlackBefore, SlackAfter: plan.SlackAfter, Gained: plan.Gained}
	for _, m := range plan.Moves {
		out.Moves = append(out.Moves, Migration{
			Job: e.jobs.slots[m.Pod.Job].Name, Pod: int(m.Pod.Pod), From: e.state.Node(m.From).Spec.Name, To: e.state.Node(m.To).Spec.Name, GPU: m.GPU, Wave: m.Wave,
		})
	}
	for _, id := range plan.Vacated {
		out.Vacated = append(out.Vacated, e.state.Node(id).Spec.Name)
	}
	return out
}

// movablePods answers a plan's questions about the pods on nodes.
type movablePods struct {
	*Engine
	// units caches descriptions, because the same few pods are requested again and again.
	units map[cluster.Owner]*place.Unit
}

func (m *movablePods) Movable(o cluster.Owner) bool {
	return m.moves.mayMove(m.jobs.slots[o.Job], int(o.Pod))
}

func (m *movablePods) Unit(o cluster.Owner) *place.Unit {
	u := m.units[o]
	if u == nil {
		if m.units == nil {
			m.units = map[cluster.Owner]*place.Unit{}
		}
		u = m.moves.unit(m.jobs.slots[o.Job], int(o.Pod))
		m.units[o] = u
	}
	return u
}

// defragmenter carries out plans, wave by wave.
type defragmenter struct {
	*Engine
	due    Time   // of the next plan
	plans  uint64 // made so far
	totals DefragTotals
	// left are the moves of the current plan that have not begun. Those for a node that cannot
	// become free are dropped: other pods started there, or one of its pods can no longer move.
	left []leftMove
	vain map[cluster.NodeID]bool
}

// DefragTotals is what the plans that an engine has made come to, as they were made: some moves
// may have been dropped since.
type DefragTotals struct {
	// Plans counts those with moves; one that would vacate no node with a benefit has none.
	Plans, Moves, Vacated int
	// Cost is the GPU time for which pods hold their GPUs twice, Gain that of the vacated nodes
	// until the next plan, both in milli-GPU times seconds.
	Cost, Gain int64
}

func (t *DefragTotals) add(plan *defrag.Plan, d *Defrag) {
	if len(plan.Moves) == 0 {
		return
	}
	t.Plans++
	t.Moves += len(plan.Moves)
	t.Vacated += len(plan.Vacated)
	t.Cost += int64(plan.GPU()) * int64(cmp.Or(d.MoveTime, DefaultMoveTime)/Second)
	t.Gain += int64(plan.Gained) * int64(d.Every/Second)
}

// Defragmentation returns what the plans so far come to.
func (e *Engine) Defragmentation() DefragTotals { return e.defragmenter.totals }

// leftMove is a move that has not begun.
type leftMove struct {
	defrag.Move
	job *job // a slot may have another job since
}

// run begins the moves of the next wave, when those before it are over, and plans again when it
// is time. The moves are decided in the same pass.
func (d *defragmenter) run(now Time) {
	every := d.policy.Defrag.Every
	if every == 0 || d.underWay() {
		return // the event that ends the last move brings the next pass
	}
	if d.due == 0 { // a new engine receives nodes and pods one by one
		d.due = cluster.Plus(now, every)
	}
	if len(d.left) == 0 && now >= d.due {
		d.plan(now)
	}
	for len(d.left) > 0 && !d.underWay() {
		d.wave()
	}
	d.moves.tell()
	if len(d.left) == 0 {
		d.wakes.at(now, d.due)
	}
}

// underWay reports whether moves of a plan are in progress.
func (d *defragmenter) underWay() bool {
	return slices.ContainsFunc(d.moves.all, func(m *move) bool { return m.why == Defragmentation })
}

func (d *defragmenter) plan(now Time) {
	d.due = cluster.Plus(now, d.policy.Defrag.Every)
	plan := defrag.Consolidate(d.state, d.placer, &movablePods{Engine: d.Engine}, d.policy.Defrag.options(d.plans))
	d.plans++
	d.totals.add(&plan, &d.policy.Defrag)
	clear(d.vain)
	for _, m := range plan.Moves {
		d.left = append(d.left, leftMove{m, d.jobs.slots[m.Pod.Job]})
	}
}

// wave begins the moves of one wave. Since the plan was made pods have come and gone: each move
// is checked again.
func (d *defragmenter) wave() {
	wave := d.left[0].Wave
	for len(d.left) > 0 && d.left[0].Wave == wave {
		m := d.left[0]
		d.left = d.left[1:]
		if !d.vain[m.For] && !d.begin(m) {
			d.vain[m.For] = true
		}
	}
}

// begin begins a move, and reports whether it can be made and serves its purpose.
func (d *defragmenter) begin(m leftMove) bool {
	if d.jobs.slots[m.Pod.Job] != m.job || int(m.Pod.Pod) >= len(m.job.pods) {
		return false
	}
	if p := &m.job.pods[m.Pod.Pod]; p.state != podRunning || p.alloc.Node != m.From {
		return false
	}
	for h := range d.state.Node(m.For).Pods {
		if j := d.jobs.slots[h.Owner.Job]; h.Alloc.GPUs != 0 && j.pods[h.Owner.Pod].move == nil && !d.moves.mayMove(j, int(h.Owner.Pod)) {
			return false // it will not be free
		}
	}
	to, ok := d.moves.on(m.job, int(m.Pod.Pod), m.To)
	return ok && d.migrate(m.job, int(m.Pod.Pod), to, Defragmentation, "") == nil
}
