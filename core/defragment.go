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
	// MaxGPUTime is the most GPU time, in milli-GPU times seconds, that a plan costs: its pods
	// hold their GPUs twice, if each of its moves takes MoveTime; 0 for no limit. MoveTime 0
	// stands for DefaultMoveTime. A node is vacated only if until the next plan its GPUs are more
	// GPU time than that costs.
	MaxGPUTime int64
	MoveTime   Time
	// Restarts says which jobs may also restart elsewhere, of those that save their progress: they
	// stop, and start again in places that are kept for them. What that costs counts as the cost of
	// moves does: their GPUs for MoveTime, and the work since the last checkpoint, which is at most
	// MaxLost old (0: no limit).
	Restarts RestartScope
	MaxLost  Time
	// MaxMoves is the most pods that a plan moves or restarts, 0 for no limit; Partition, Depth and
	// Rounds bound the search, see [defrag.Options].
	MaxMoves, Partition, Depth, Rounds int
	// Algorithm is defrag.Muster but for experiments: no policy file sets it.
	Algorithm defrag.Algorithm
}

// DefaultMoveTime is how long a move is thought to take.
const DefaultMoveTime = 60 * Second

// RestartScope says which jobs restart elsewhere by scheduled plans.
type RestartScope uint8

const (
	// NoRestarts: pods move only.
	NoRestarts RestartScope = iota
	// LPRestarts: LP jobs may restart.
	LPRestarts
	// AllRestarts: HP jobs may, too.
	AllRestarts
)

func (s RestartScope) String() string { return [...]string{"Never", "LP", "All"}[s] }

// moveSeconds is how long a move is thought to take.
func (d *Defrag) moveSeconds() int64 {
	return max(1, int64(cmp.Or(d.MoveTime, DefaultMoveTime)/Second))
}

// options returns the bounds of a plan. Each plan of an engine divides the nodes into
// partitions differently.
func (d *Defrag) options(plan uint64) defrag.Options {
	return defrag.Options{
		MaxMoves: d.MaxMoves, MaxCost: d.MaxGPUTime, MoveSeconds: d.moveSeconds(), UseSeconds: int64(d.Every / Second),
		Partition: d.Partition, Depth: d.Depth, Rounds: d.Rounds, Seed: plan, Algorithm: d.Algorithm,
	}
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
	// not in the way goes back to its node. A plan that makes room for a job has some if moves alone
	// do not; their waves are 0, and they restart after the moves.
	Restarts []Migration
	// Lost is the work that they lose, in milli-GPU times seconds. Needed is the GPU of the job for
	// which room is made, or of one pod of it.
	Lost   int64
	Needed Milli
}

// Consolidation returns the moves and restarts by which the engine would vacate nodes now. Which
// jobs may restart is as the engine's policy says. It is a question: it changes nothing.
func (e *Engine) Consolidation(d Defrag) Migrations {
	drawn := e.placer.Drawn()
	d.Restarts, d.MaxLost = e.policy.Defrag.Restarts, e.policy.Defrag.MaxLost
	plan := e.defragmenter.consolidate(&d)
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
	if x, crowded := c.crowded(); crowded {
		return plan, false, fmt.Errorf("job %s: %s; no move changes that", name, x)
	}
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
	if ps := (&pass{Engine: e, now: e.now}); !found && restarts && ps.planner.freeFor(j.class) >= needed {
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
	for left := plan.Moves; len(left) > 0; {
		n := defrag.AtOnce(left)
		for _, m := range left[:n] {
			x := Migration{
				Job: e.jobs.slots[m.Pod.Job].Name, Pod: int(m.Pod.Pod), From: e.state.Node(m.From).Spec.Name, To: e.state.Node(m.To).Spec.Name, GPU: m.GPU, Wave: m.Wave,
			}
			if m.Restarts() {
				out.Restarts = append(out.Restarts, x)
			} else {
				out.Moves = append(out.Moves, x)
			}
		}
		if left[0].Restarts() {
			e.comeBack(&out, left[:n])
		}
		left = left[n:]
	}
	for _, id := range plan.Vacated {
		out.Vacated = append(out.Vacated, e.state.Node(id).Spec.Name)
	}
	return out
}

// lostBy returns the work that is lost if a job restarts with these moves.
func (e *Engine) lostBy(moves []defrag.Move) (lost int64) {
	for i := range moves {
		of := moves[i].Restart.Of
		work, _ := e.jobs.slots[of.Job].lost(e.now, int(of.Pod))
		if lost += work; of.Pod < 0 {
			break // the gang stops once
		}
	}
	return lost
}

// comeBack adds the pods of a gang that restart with others and come back to their nodes, and the
// work that the restart loses.
func (e *Engine) comeBack(out *Migrations, moves []defrag.Move) {
	j := e.jobs.slots[moves[0].Pod.Job]
	out.Lost += e.lostBy(moves)
	for i := range j.pods {
		p := &j.pods[i]
		if !j.Gang || p.state != podRunning || slices.ContainsFunc(moves, func(m defrag.Move) bool { return int(m.Pod.Pod) == i }) {
			continue
		}
		at := e.state.Node(p.alloc.Node).Spec.Name
		out.Restarts = append(out.Restarts, Migration{Job: j.Name, Pod: i, From: at, To: at, GPU: j.gpu(p), Wave: moves[0].Wave})
	}
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
	// Plans counts those with moves or restarts; one that would vacate no node with a benefit has
	// none. Moves and Restarts count pods.
	Plans, Moves, Restarts, Vacated int
	// Cost is the GPU time for which pods hold their GPUs twice, or do not work, Lost the work that
	// restarts lose, and Gain the GPU time of the vacated nodes until the next plan, in milli-GPU
	// times seconds.
	Cost, Lost, Gain int64
}

func (t *DefragTotals) add(plan *defrag.Plan, d *defragmenter) {
	if len(plan.Moves) == 0 {
		return
	}
	t.Plans++
	t.Vacated += len(plan.Vacated)
	pods, cost := plan.Cost(d.policy.Defrag.moveSeconds())
	moves, lost := 0, int64(0)
	for left := plan.Moves; len(left) > 0; left = left[defrag.AtOnce(left):] {
		if left[0].Restarts() {
			lost += d.lostBy(left[:defrag.AtOnce(left)])
		} else {
			moves++
		}
	}
	t.Moves += moves
	t.Restarts += pods - moves
	t.Lost += lost
	t.Cost += cost - lost
	t.Gain += int64(plan.Gained) * int64(d.policy.Defrag.Every/Second)
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

// underWay reports whether moves or restarts of a plan are in progress.
func (d *defragmenter) underWay() bool {
	return slices.ContainsFunc(d.moves.all, func(m *move) bool { return m.why == Defragmentation }) ||
		slices.ContainsFunc(d.nominations.all, func(n *nomination) bool { return n.lead == n && n.why == Defragmentation })
}

func (d *defragmenter) plan(now Time) {
	d.due = cluster.Plus(now, d.policy.Defrag.Every)
	plan := d.consolidate(&d.policy.Defrag)
	d.plans++
	d.totals.add(&plan, d)
	clear(d.vain)
	for _, m := range plan.Moves {
		d.left = append(d.left, leftMove{m, d.jobs.slots[m.Pod.Job]})
	}
}

// consolidate makes a plan, and changes nothing.
func (d *defragmenter) consolidate(bounds *Defrag) defrag.Plan {
	o := bounds.options(d.plans)
	if bounds.Restarts != NoRestarts {
		o.Restarts = (&restartable{defragmenter: d, bounds: bounds, known: map[cluster.Owner]defrag.Restart{}}).of
	}
	return defrag.Consolidate(d.state, d.placer, &movablePods{Engine: d.Engine}, o)
}

// wave begins the moves and restarts of one wave. Since the plan was made pods have come and gone:
// each is checked again.
func (d *defragmenter) wave() {
	for wave := d.left[0].Wave; len(d.left) > 0 && d.left[0].Wave == wave; {
		n := 1 // the pods of a job that restart do so together
		for d.left[0].Restarts() && n < len(d.left) && d.left[n].Restarts() && d.left[n].job == d.left[0].job {
			n++
		}
		now := d.left[:n]
		d.left = d.left[n:]
		now = slices.DeleteFunc(now, func(m leftMove) bool { return d.vain[m.For] || d.inVain(&m) })
		if len(now) > 0 && !d.begin(now) {
			for k := range now {
				d.vain[now[k].For] = true
			}
		}
	}
}

// inVain reports whether a move can no longer be made, or does not free its node, and notes that.
func (d *defragmenter) inVain(m *leftMove) bool {
	p := &m.job.pods[m.Pod.Pod]
	if p.state != podRunning || p.alloc.Node != m.From || d.staysInUse(m.For) {
		d.vain[m.For] = true
	}
	return d.vain[m.For]
}

// staysInUse reports whether a pod with GPUs will stay on a node.
func (d *defragmenter) staysInUse(node cluster.NodeID) bool {
	for h := range d.state.Node(node).Pods {
		j, i := d.jobs.slots[h.Owner.Job], int(h.Owner.Pod)
		p := &j.pods[i]
		leaves := p.move() != nil || p.from() != nil && p.from().Node == node
		if h.Alloc.GPUs != 0 && !leaves && !d.moves.mayMove(j, i) && !d.mayRestart(j, i, &d.policy.Defrag) {
			return true
		}
	}
	return false
}

// begin begins a move, or a restart with all moves by it, and reports whether it could.
func (d *defragmenter) begin(moves []leftMove) bool {
	m := &moves[0]
	if m.Restarts() {
		return d.restart(moves)
	}
	to, ok := d.moves.on(m.job, int(m.Pod.Pod), m.To)
	return ok && d.migrate(m.job, int(m.Pod.Pod), to, Defragmentation, "") == nil
}
