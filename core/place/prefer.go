package place

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// This file chooses between nodes by what pods prefer: labels of nodes, pods to be near to or away from, and no soft taints
// that they do not tolerate.
//
// A node's score for a pod is the sum of the weights of its preferences that hold there, less [cluster.MaxWeight] for each
// such taint. It decides between placements that are equally good for the strategy:
//
//   - of a pod, nodes with as many idle GPUs and, where the strategy looks at leaf groups, in groups that are equally full; for
//     strategies that score nodes, nodes of the same worth. Of a pod that names no GPU model, and whose models have no order by
//     speed or by what others want, first the model of which a node with room has the highest score;
//   - of a gang, domains with as much room; of the leaf groups in them, those that give it the same entropy and have as
//     much room; of the nodes of a group, those with as many idle GPUs. A domain's score is that of its best nodes that
//     hold the pods.
//
// With [Placer.PreferenceWeight], of a pod's nodes and of a gang's domains, the one comes first that has the least idle GPUs
// (as far as the strategy packs, or the most where it spreads; or the least difference from the node of the highest worth) less
// the weight for each 100 points of its score. Ties go on as above, and at last to the first node.
//
// Preferences decide nothing else: neither whether a job starts, nor how near to each other the pods of a gang are, nor which
// pods are evicted or moved. It costs O(nodes) for each pod or domain that is chosen, and nothing without preferences.

// Preference is a compiled preference.
type Preference struct {
	cluster.Preference
	Level int // of the state, for those about pods
}

// prefers reports whether nodes differ in their score for pods of the task.
func (t *Task) prefers() bool { return len(t.Prefers) > 0 || t.Shape.soft != nil }

// prefers reports whether a task of the unit with pods to be placed has preferences.
func (u *Unit) prefers() bool {
	return slices.ContainsFunc(u.Tasks, func(t Task) bool { return len(t.Pods) > 0 && t.prefers() })
}

// likes returns the score of a node for a pod of the task, as the other pods are now.
func (p *Placer) likes(t *Task, id cluster.NodeID) int64 {
	score := -cluster.MaxWeight * t.Shape.soft[p.state.Pool(id)]
	for i := range t.Prefers {
		o := &t.Prefers[i]
		if o.Label == "" {
			if o.Holds(p.state.Node(id).Spec.Labels) {
				score += int64(o.Weight)
			}
			continue
		}
		if d := p.state.Domain(id, o.Level); d >= 0 {
			score += int64(o.Weight) * int64(min(p.state.Labelled(o.Label, o.Level, d), cluster.MostCounted))
		}
	}
	return score
}

// trade returns what counts of idle GPUs, in thousandths for each point of a score, against a score.
func (p *Placer) trade(idle cluster.Milli, score int64) int64 {
	return int64(idle)*cluster.MaxWeight - int64(p.PreferenceWeight)*score
}

// liked is the best node so far, by keys of which the least come first, and its score after them.
type liked struct {
	id    cluster.NodeID
	gpus  uint64
	key   [4]int64
	score int64
	found bool
}

// offer takes a node that is better than the best so far.
func (l *liked) offer(id cluster.NodeID, gpus uint64, key [4]int64, score int64) {
	if !l.found || cmp.Or(slices.Compare(key[:], l.key[:]), cmp.Compare(l.score, score)) < 0 {
		*l = liked{id, gpus, key, score, true}
	}
}

// classOf says which pools pods come to first, whatever they prefer: 0 first.
func classOf(pool *cluster.Pool) int64 {
	c := int64(hardTaints(pool))
	if pool.Lent {
		c += 1 << 32
	}
	return c
}

// likedWhole is [Placer.whole] for a task with preferences. O(nodes).
func (p *Placer) likedWhole(gpus int, need cluster.Need, st stage, order cluster.LeafOrder, step int, accept func(cluster.NodeID) bool) (cluster.NodeID, bool) {
	var best liked
	free := p.freeInLeaves(st.pools)
	for _, pool := range st.pools {
		class := classOf(pool)
		for leaf := range int32(pool.Leaves()) {
			full := int64(pool.LeafFree(leaf))
			if d := pool.LeafDomain(p.state, leaf); d >= 0 {
				full = free[d]
			}
			switch order {
			case cluster.FirstLeaf:
				full = 0
			case cluster.EmptiestLeaf:
				full = -full
			}
			for _, id := range pool.LeafNodes(leaf) {
				if id < 0 {
					continue
				}
				if n := p.state.Node(id); n.Open() && n.Free() >= gpus && n.Has(need) && (accept == nil || accept(id)) {
					score := p.likes(st.prefers, id)
					best.offer(id, 0, [4]int64{p.trade(cluster.Milli(step*n.Free())*cluster.WholeGPU, score), class, full}, score)
				}
			}
		}
	}
	return best.id, best.found
}

// freeInLeaves returns how many GPUs are free in each leaf group, by its domain, in all the pools: a soft taint makes another
// pool of its nodes, and does not make the group fuller.
func (p *Placer) freeInLeaves(pools []*cluster.Pool) map[int32]int64 {
	free := map[int32]int64{}
	for _, pool := range pools {
		for leaf := range int32(pool.Leaves()) {
			if d := pool.LeafDomain(p.state, leaf); d >= 0 {
				free[d] += int64(pool.LeafFree(leaf))
			}
		}
	}
	return free
}

// likedShared returns the device in use for a pod that takes part of one, for a task with preferences. O(devices).
func (p *Placer) likedShared(sh *Shape, st stage, fit func(cluster.NodeID) bool) (cluster.NodeID, uint64, bool) {
	var best liked
	for _, pool := range st.pools {
		for _, id := range pool.Members() {
			if id < 0 || !p.state.Node(id).Open() || !fit(id) {
				continue
			}
			n, score := p.state.Node(id), p.likes(st.prefers, id)
			for d := range n.Spec.GPUs {
				if free := n.FreeOn(d); n.Healthy()>>d&1 == 1 && free >= sh.Part && free < cluster.WholeGPU {
					if st.strategy == Spread {
						free = -free
					}
					best.offer(id, 1<<d, [4]int64{classOf(pool), p.trade(free, score)}, score)
				}
			}
		}
	}
	return best.id, best.gpus, best.found
}

// likedInRank returns the node of a ranking for a task with preferences, in place of the first that accept allows. O(nodes).
func (p *Placer) likedInRank(r *ranking, t *Task, first cluster.NodeID, accept func(cluster.NodeID) bool) cluster.NodeID {
	var best liked
	for i, id := range r.nodes {
		if r.worth[i] == none || !p.hasRoom(id, t.Shape) || accept != nil && !accept(id) {
			continue
		}
		score, key := p.likes(t, id), [4]int64{0, -r.worth[i]}
		if p.PreferenceWeight > 0 {
			more := p.state.Node(id).FreeMilli() - p.state.Node(first).FreeMilli()
			key[0] = p.trade(max(more, -more), score)
		}
		if r.tops[r.block[i]].untouched {
			key[2] = 1
		}
		// Nodes are numbered by block: of equal ones, the first by its number.
		if !best.found || cmp.Or(slices.Compare(key[:], best.key[:]), cmp.Compare(best.score, score), cmp.Compare(id, best.id)) < 0 {
			best = liked{id, 0, key, score, true}
		}
	}
	return best.id
}

// likedMost returns a filter for the nodes of a stage that have the highest score of those with room that accept allows; accept
// itself without preferences.
func (p *Placer) likedMost(sh *Shape, st stage, accept func(cluster.NodeID) bool) func(cluster.NodeID) bool {
	if st.prefers == nil {
		return accept
	}
	allowed := func(id cluster.NodeID) bool { return p.hasRoom(id, sh) && (accept == nil || accept(id)) }
	var best liked
	for _, pool := range st.pools {
		for _, id := range pool.Members() {
			if id >= 0 && allowed(id) {
				best.offer(id, 0, [4]int64{}, p.likes(st.prefers, id))
			}
		}
	}
	return func(id cluster.NodeID) bool { return allowed(id) && p.likes(st.prefers, id) == best.score }
}

// likedRoom is [Placer.roomFor] for a task with preferences. O(nodes of the group).
func (p *Placer) likedRoom(u *Unit, t *Task, n int, e entry, accept func(cluster.NodeID) bool) (cluster.NodeID, bool) {
	var best liked
	need := t.need(n)
	for _, id := range e.pool.LeafNodes(e.leaf) {
		if id < 0 {
			continue
		}
		node := p.state.Node(id)
		if !node.Open() || node.Free() < n*t.GPUs || !node.Has(need) || accept != nil && !accept(id) {
			continue
		}
		score := p.likes(t, id)
		key := [4]int64{p.trade(cluster.Milli(node.Free())*cluster.WholeGPU, score)}
		if u.Strategy == Spot {
			key[1] = -p.spotScorer(u).tie(node)
		}
		best.offer(id, 0, key, score)
	}
	return best.id, best.found
}

// like adds to a candidate what the pods of the unit prefer there.
func (p *Placer) like(u *Unit, sp space, level int, c *candidate) {
	pods := 0
	within := p.within(level, c.domain)
	for t := range u.Tasks {
		task := &u.Tasks[t]
		pods += len(task.Pods)
		if len(task.Pods) == 0 || !task.prefers() {
			continue
		}
		var nodes []cluster.NodeID
		for _, pool := range sp[t] {
			switch level {
			case anyLevel:
				nodes = append(nodes, pool.Members()...)
			case cluster.NodeLevelNum:
				if id := cluster.NodeID(c.domain); p.state.Pool(id) == pool {
					nodes = append(nodes, id)
				}
			default:
				for _, leaf := range pool.DomainLeaves(level, c.domain) {
					nodes = append(nodes, pool.LeafNodes(leaf)...)
				}
			}
		}
		c.liked += p.likedOn(u, task, nodes, within)
	}
	if p.PreferenceWeight > 0 {
		idle := cluster.Milli(max(u.Tasks[0].GPUs, 1)) * cluster.WholeGPU
		c.traded = p.trade(cluster.Milli(c.slots)*idle, c.liked/int64(max(pods, 1)))
	}
}

// likedOn returns the sum of the scores of the pods of a task on the best of some nodes that hold them. Nodes that within
// refuses do not count (nil refuses none), nor do negative numbers.
func (p *Placer) likedOn(u *Unit, t *Task, nodes []cluster.NodeID, within func(cluster.NodeID) bool) int64 {
	type room struct {
		score int64
		pods  int
	}
	var rooms []room
	for _, id := range nodes {
		if id >= 0 && (within == nil || within(id)) {
			if k := p.takes(u, t, id, later); k > 0 {
				rooms = append(rooms, room{p.likes(t, id), k})
			}
		}
	}
	slices.SortFunc(rooms, func(a, b room) int { return cmp.Compare(b.score, a.score) })
	sum, left := int64(0), len(t.Pods)
	for _, r := range rooms {
		k := min(left, r.pods)
		sum += int64(k) * r.score
		left -= k
	}
	return sum
}

// likedModels returns the models of a shape in the order in which a pod with preferences tries them: those that name none
// take first the model of which a node with room has the highest score.
func (p *Placer) likedModels(u *Unit, sh *Shape, models []model) []model {
	i := slices.IndexFunc(u.Tasks, func(t Task) bool { return t.Shape == sh && t.prefers() })
	if i < 0 || len(models) < 2 || sh.Named || p.orders(sh) {
		return models
	}
	score := map[string]int64{}
	for _, m := range models {
		score[m.name] = p.likedOfModel(u, &u.Tasks[i], m)
	}
	out := slices.Clone(models)
	slices.SortStableFunc(out, func(a, b model) int { // nodes without GPUs stay first for pods that need none
		return cmp.Or(cluster.LastIf(a.name != "", b.name != ""), cmp.Compare(score[b.name], score[a.name]))
	})
	return out
}

// likedOfModel returns the highest score of a node of a model with room for a pod of the task; a very low one if none has.
func (p *Placer) likedOfModel(u *Unit, t *Task, m model) int64 {
	var best liked
	for _, pools := range [2][]*cluster.Pool{m.general, m.zone} {
		for _, pool := range pools {
			for _, id := range pool.Members() {
				if id >= 0 && t.uses(pool, u) && p.hasRoom(id, t.Shape) {
					best.offer(id, 0, [4]int64{}, p.likes(t, id))
				}
			}
		}
	}
	if !best.found {
		return none
	}
	return best.score
}
