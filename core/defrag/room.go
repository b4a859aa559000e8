package defrag

import (
	"cmp"
	"iter"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// awaited is a unit for which room is made.
type awaited struct {
	unit *place.Unit
	// one describes the pod of it that is being placed, by itself; task is its only task.
	one    place.Unit
	task   [1]place.Task
	number [1]int32
}

// describe returns a pod of the unit as it will stand on a node.
func (a *awaited) describe(t int, pod int32) cluster.Held {
	a.number[0] = pod
	a.task[0] = a.unit.Tasks[t]
	a.task[0].Pods = a.number[:]
	a.one = *a.unit
	a.one.Tasks, a.one.Whole = a.task[:], false
	sh := a.unit.Tasks[t].Shape
	alloc := cluster.Alloc{GPUs: 1<<sh.GPUs - 1, Share: cluster.WholeGPU, CPUMilli: sh.CPU, MemMiB: sh.Mem}
	if sh.Part > 0 {
		alloc.GPUs, alloc.Share = 1, sh.Part
	}
	return cluster.Held{Owner: cluster.Owner{Job: a.unit.Job, Pod: pod}, Alloc: alloc}
}

// mostDomains is the most domains of a model that are tried for one unit.
const mostDomains = 8

// MakeRoom returns a plan after which a unit fits that does not fit now: the whole of it, or
// one pod if it starts pod by pod. It is for a unit that waits only because what is free is in
// pieces, or in other domains than the one that it requires. Of the models and domains in which
// there is a way, at most mostDomains of each model, the one in which the least GPU moves is
// taken; of several, the first. ok is false if none was found. The state is as before
// afterwards.
func MakeRoom(s *cluster.State, pl *place.Placer, pods Pods, u *place.Unit, o Options) (best Plan, ok bool) {
	o.Settle()
	p := newPlanner(s, pl, pods, o)
	p.awaited = &awaited{unit: u}
	for _, model := range p.models() {
		if !accepts(u, model) {
			continue
		}
		p.enter(model)
		for _, domain := range p.domains(u, model) {
			p.moves = nil
			clear(p.moved)
			if !p.makeRoom(u, domain) || o.MaxMoves > 0 && len(p.moves) > o.MaxMoves {
				continue
			}
			if plan, fits := p.roomPlan(u); fits && (!ok || plan.GPU() < best.GPU()) {
				best, ok = plan, true
			}
		}
	}
	return best, ok
}

// Effect fills in what the moves of a plan of MakeRoom change, but for the GPU that moves: the
// nodes that are vacated, and those of which some GPUs are used and some are free.
func Effect(s *cluster.State, pl *place.Placer, pods Pods, plan *Plan) {
	p := newPlanner(s, pl, pods, Options{})
	p.moves, p.awaited = plan.Moves, &awaited{unit: &place.Unit{Job: -1}}
	*plan = p.plan()
}

// accepts reports whether all pods of a unit that wait may be on a model.
func accepts(u *place.Unit, model string) bool {
	return !slices.ContainsFunc(largestTasks(u), func(t int) bool { return !slices.Contains(u.Tasks[t].Models(), model) })
}

// roomPlan puts the moves in waves, and reports whether the unit fits after them.
func (p *planner) roomPlan(u *place.Unit) (Plan, bool) {
	plan := Plan{Moves: p.moves}
	mark := p.state.Mark()
	if !p.opt.Stop {
		plan.Moves = p.inWaves(p.moves)
		p.state.Rollback(mark)
	}
	for _, m := range plan.Moves {
		p.state.Remove(m.Pod, m.From)
	}
	for _, m := range plan.Moves {
		if len(p.placer.PodOn(p.pods.Unit(m.Pod), m.To)) == 0 {
			p.state.Rollback(mark)
			return plan, false
		}
	}
	fits := false
	if u.Whole {
		_, fits = p.placer.Gang(u)
	} else {
		fits = len(p.placer.Pods(u)) > 0
	}
	p.state.Rollback(mark)
	return plan, fits
}

// domains lists, for a unit that requires a level, the domains in which enough GPUs would be
// free if all movable pods left, those first with the most free; for another, the
// whole cluster, as all open nodes of the model.
func (p *planner) domains(u *place.Unit, model string) [][]cluster.NodeID {
	type domain struct {
		nodes []cluster.NodeID
		free  cluster.Milli
	}
	var need cluster.Milli
	for _, t := range largestTasks(u) {
		if !u.Whole {
			need = u.Tasks[t].GPU()
			break
		}
		need += cluster.Milli(len(u.Tasks[t].Pods)) * u.Tasks[t].GPU()
	}
	var list []*domain
	at := map[int32]*domain{}
	nodes := p.part
	if u.Required >= 0 {
		nodes = p.nodesOf(model)
	}
	for _, id := range nodes {
		where := int32(0)
		if u.Required >= 0 {
			where = p.state.Domain(id, u.Required)
			if where < 0 || u.Joins && where != u.Home {
				continue
			}
		}
		d := at[where]
		if d == nil {
			d = &domain{}
			at[where] = d
			list = append(list, d)
		}
		d.nodes = append(d.nodes, id)
		d.free += p.state.Node(id).FreeMilli()
	}
	list = slices.DeleteFunc(list, func(d *domain) bool { return d.free < need && !p.mayFree(d.nodes, need-d.free) })
	slices.SortStableFunc(list, func(a, b *domain) int { return cmp.Compare(b.free, a.free) })
	var out [][]cluster.NodeID
	for _, d := range list[:min(len(list), mostDomains)] {
		out = append(out, d.nodes)
	}
	return out
}

// mayFree reports whether the movable pods of some nodes have that much GPU.
func (p *planner) mayFree(nodes []cluster.NodeID, gpu cluster.Milli) bool {
	for _, id := range nodes {
		for h := range p.state.Node(id).Pods {
			if h.Alloc.GPUs != 0 && p.pods.Movable(h.Owner) {
				if gpu -= h.Alloc.GPU(); gpu <= 0 {
					return true
				}
			}
		}
	}
	return false
}

// enter settles where the pods that leave may go: the open nodes of a model. Of more than a
// partition, only nodes with free GPUs count, also for a unit that may be anywhere: a search among
// the full ones costs more than the rest of a pass, and seldom finds a cheap plan.
func (p *planner) enter(model string) {
	p.part = p.part[:0]
	open := 0
	for id := range p.openNodes(model) {
		if open++; p.state.Node(id).FreeMilli() > 0 {
			p.part = append(p.part, id)
		}
	}
	if open <= p.opt.Partition {
		p.part = p.nodesOf(model)
	}
	for _, id := range p.part {
		p.fixed[id] = !p.mayVacate(p.state.Node(id))
	}
}

// nodesOf lists the open nodes of a model.
func (p *planner) nodesOf(model string) []cluster.NodeID {
	return slices.Collect(p.openNodes(model))
}

// openNodes yields the open nodes of a model.
func (p *planner) openNodes(model string) iter.Seq[cluster.NodeID] {
	return func(yield func(cluster.NodeID) bool) {
		for _, pool := range p.state.Pools() {
			if pool.Model != model || pool.Lent {
				continue
			}
			for _, id := range pool.Members() {
				if id >= 0 && p.state.Node(id).Open() && !yield(id) {
					return
				}
			}
		}
	}
}

// makeRoom settles the pods of a unit, the largest first, on nodes of a domain: where they fit,
// else where they fit when others have left. Those may go to any node of the model. The state is
// as before afterwards; the moves are what was found.
func (p *planner) makeRoom(u *place.Unit, domain []cluster.NodeID) bool {
	mark, ok := p.state.Mark(), true
	for _, t := range largestTasks(u) {
		for _, pod := range u.Tasks[t].Pods {
			if ok = p.settle(p.awaited.describe(t, pod), domain); !ok || !u.Whole {
				break
			}
		}
		if !ok || !u.Whole {
			break
		}
	}
	p.state.Rollback(mark)
	return ok
}

// largestTasks lists the tasks of a unit of which pods wait, that with the largest pods first.
func largestTasks(u *place.Unit) []int {
	var tasks []int
	for t := range u.Tasks {
		if len(u.Tasks[t].Pods) > 0 {
			tasks = append(tasks, t)
		}
	}
	slices.SortStableFunc(tasks, func(a, b int) int { return cmp.Compare(u.Tasks[b].GPU(), u.Tasks[a].GPU()) })
	return tasks
}

// settle places a pod of the awaited unit, as eject places one that moves.
func (p *planner) settle(h cluster.Held, domain []cluster.NodeID) bool {
	if to, ok := p.tightest(h, domain); ok {
		return p.put(h, to)
	}
	list := p.candidates(h, domain)
	for _, c := range list {
		if p.through(h, c.node, p.opt.Depth, false) {
			return true
		}
	}
	for _, c := range list {
		if p.through(h, c.node, p.opt.Depth, true) {
			return true
		}
	}
	return false
}
