// Package defrag plans migrations that make GPU nodes free: pods leave some nodes for others
// that have GPUs in use. It is IPC, iterative partitioned consolidation (ASI §4.1,
// Algorithm 1), on the state and by the placer's own rules: selectors, taints, affinities,
// CPU and memory count as they do when pods start. It differs from the paper in two points,
// without which it vacated two thirds of the nodes that an exact solver vacates:
//
//   - Full nodes are vacated too. Eight pods of one GPU leave a full node for eight nodes that
//     have one GPU free each: these are full then, and the node is free.
//   - Pods go to nodes that cannot be vacated, for example because of a locked pod, before
//     others. Else a pod moves to a node that would be vacated next.
//
// A plan is a proposal: the caller checks each move with the placer again before it begins,
// because other pods may have started meanwhile.
package defrag

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// Options bound a plan. The zero value stands for the paper's: see [Options.Settle].
type Options struct {
	// Partition is how many nodes are consolidated with each other; 0 means 500.
	Partition int
	// Depth is the most pods in an ejection chain; 0 means 3, 1 is no ejection.
	Depth int
	// Rounds is the most rounds, each with other partitions; 0 means 5.
	Rounds int
	// MaxMoves is the most pods that the plan moves or restarts, MaxCost the most that this may
	// cost, in milli-GPU seconds; 0 means no limit.
	MaxMoves int
	MaxCost  int64
	// MoveSeconds is how long a move takes: for that time its pod holds its GPUs twice, which is
	// what it costs. UseSeconds is how long a vacated node is of use. A node is vacated if that gains
	// more GPU time than its moves and restarts cost; if UseSeconds is 0, whatever they cost.
	MoveSeconds, UseSeconds int64
	// Restarts says what stops together if a pod that cannot move restarts elsewhere, and what that
	// costs; false if it must not. Nil means that no pod restarts. For Consolidate.
	Restarts func(cluster.Owner) (Restart, bool)
	// Stop says that pods stop before they start elsewhere, so that one may go where another
	// is now. For MakeRoom.
	Stop bool
	// Seed varies the partitions.
	Seed uint64
	// Algorithm is Muster but for experiments.
	Algorithm Algorithm
}

// Settle sets fields without a value to the paper's values.
func (o *Options) Settle() {
	o.Partition = cmp.Or(o.Partition, 500)
	o.Depth = cmp.Or(o.Depth, 3)
	o.Rounds = cmp.Or(o.Rounds, 5)
}

// Pods describes the pods on nodes to a plan.
type Pods interface {
	// Movable reports whether the pod may be moved.
	Movable(cluster.Owner) bool
	// Unit describes the pod, by itself, to the placer. It is valid until the next call.
	Unit(cluster.Owner) *place.Unit
}

// Restart is what stops together, and starts again elsewhere: a gang, or a pod of another job.
type Restart struct {
	// Of is the pod, with the number -1 the gang.
	Of cluster.Owner
	// Pods is how many pods stop, Cost what that costs in milli-GPU seconds. Both count once in a
	// plan, however many of them go to other nodes.
	Pods int
	Cost int64
}

// Move is a pod that goes from a node to another, or that stops and starts again on other devices
// of its node. The devices that it gets are chosen when it moves.
type Move struct {
	Pod      cluster.Owner
	From, To cluster.NodeID
	GPU      cluster.Milli
	// For is the node that is to be vacated by this move and others; without the others, the
	// move is of no use. 0 if room is made for a job.
	For cluster.NodeID
	// Wave numbers from 0 the waves in which moves are made: those of one wave at the same
	// time, when all of the waves before it are over. Both places of a pod are held until
	// its move is over.
	Wave int
	// Restart says what stops for it; zero if the pod moves. All pods of a job that restart are in
	// the same wave, next to each other.
	Restart Restart
}

// Restarts reports whether the pod stops and starts again, rather than moves.
func (m *Move) Restarts() bool { return m.Restart.Pods > 0 }

// Plan is moves that make nodes free.
type Plan struct {
	// Moves are in the order of their waves; within one, in the order in which they were
	// found. A pod moves at most once.
	Moves []Move
	// Vacated are the nodes from which pods move and on which no GPU is used at the end, in
	// the order of their first moves.
	Vacated []cluster.NodeID
	// SlackBefore and SlackAfter count nodes of which some GPUs are used and some are free.
	SlackBefore, SlackAfter int
	// Gained is how much GPU the vacated nodes have.
	Gained cluster.Milli
}

// GPU is how much GPU the pods have together that move or restart elsewhere.
func (p *Plan) GPU() cluster.Milli {
	var sum cluster.Milli
	for i := range p.Moves {
		sum += p.Moves[i].GPU
	}
	return sum
}

// Cost returns how many pods move or restart, and what that costs in milli-GPU seconds if a move
// takes some seconds.
func (p *Plan) Cost(moveSeconds int64) (pods int, cost int64) {
	c := costs{seconds: moveSeconds, restarts: map[cluster.Owner]bool{}}
	c.add(p.Moves)
	return c.pods, c.cost
}

// costs are those of moves and restarts.
type costs struct {
	seconds  int64 // that a move takes
	pods     int
	cost     int64
	restarts map[cluster.Owner]bool // those counted
}

// add counts more moves, and returns the restarts among them that were not counted before.
func (c *costs) add(moves []Move) (fresh []cluster.Owner) {
	for i := range moves {
		switch m := &moves[i]; {
		case !m.Restarts():
			c.pods++
			c.cost += int64(m.GPU) * c.seconds
		case !c.restarts[m.Restart.Of]:
			c.restarts[m.Restart.Of] = true
			fresh = append(fresh, m.Restart.Of)
			c.pods += m.Restart.Pods
			c.cost += m.Restart.Cost
		}
	}
	return fresh
}

// Waves is in how many waves the plan is carried out.
func (p *Plan) Waves() int {
	if len(p.Moves) == 0 {
		return 0
	}
	return p.Moves[len(p.Moves)-1].Wave + 1
}

// Consolidate returns a plan that vacates as many nodes as it finds, those with the fewest
// pods first: by moves alone as far as that goes, and then others by restarts, too. The state is as
// before afterwards.
func Consolidate(s *cluster.State, pl *place.Placer, pods Pods, o Options) Plan {
	o.Settle()
	p := newPlanner(s, pl, pods, o)
	mark := s.Mark()
	p.rounds(0)
	if p.stops = o.Restarts != nil && o.Algorithm == Muster; p.stops {
		p.rounds(o.Rounds)
	}
	s.Rollback(mark)
	return p.plan()
}

// rounds vacates nodes in rounds, the first of which has this number.
func (p *planner) rounds(first int) {
	for round := range p.opt.Rounds {
		before := p.vacated
		for _, model := range p.models() {
			if p.opt.Algorithm == Eviction {
				p.scatter(model)
				continue
			}
			for _, part := range p.partition(model, first+round) {
				p.consolidate(part)
			}
		}
		if p.vacated == before && round > 0 || p.opt.Algorithm == Eviction {
			break
		}
	}
}

// planner makes a plan. It moves pods in the state, as a trial.
type planner struct {
	state  *cluster.State
	placer *place.Placer
	pods   Pods
	opt    Options

	moves   []Move
	moved   map[cluster.Owner]bool
	vacated int
	costs   costs          // of the moves that vacate nodes
	stops   bool           // pods may restart
	goal    cluster.NodeID // the node that is being vacated
	// closed are the nodes onto which no pod is moved: those that are vacated, or on trial,
	// and those that the current chain goes through. fixed are those that cannot be vacated.
	closed, fixed []bool
	part          []cluster.NodeID // where the pods that move may go
	order         []cluster.NodeID // the nodes to be vacated
	// awaited describes the pods for which room is made; see MakeRoom. Its pods may use nodes on
	// which no GPU is in use, and so may those that make room for them.
	awaited *awaited
}

func newPlanner(s *cluster.State, pl *place.Placer, pods Pods, o Options) *planner {
	return &planner{
		state: s, placer: pl, pods: pods, opt: o, moved: map[cluster.Owner]bool{}, closed: make([]bool, s.Nodes()), fixed: make([]bool, s.Nodes()),
		costs: costs{seconds: o.MoveSeconds, restarts: map[cluster.Owner]bool{}},
	}
}

// plan returns what was found, in waves.
func (p *planner) plan() Plan {
	mark := p.state.Mark()
	plan := Plan{SlackBefore: p.slack()}
	plan.Moves = p.inWaves(p.moves)
	plan.SlackAfter = p.slack()
	seen := map[cluster.NodeID]bool{}
	for i := range plan.Moves {
		from := plan.Moves[i].From
		if !seen[from] && inUse(p.state.Node(from)) == 0 {
			plan.Vacated = append(plan.Vacated, from)
			plan.Gained += capacity(p.state.Node(from))
		}
		seen[from] = true
	}
	p.state.Rollback(mark)
	return plan
}

// inUse returns how many devices of a node are used, in part or whole.
func inUse(n *cluster.Node) int { return n.Spec.GPUs - idle(n) }

// idle returns how many devices of a node, healthy or not, no pod uses.
func idle(n *cluster.Node) int {
	taken := uint64(0)
	for h := range n.Pods {
		taken |= h.Alloc.GPUs
	}
	free := n.Spec.GPUs
	for ; taken != 0; taken &= taken - 1 {
		free--
	}
	return free
}

// capacity returns how much GPU a node has on healthy devices.
func capacity(n *cluster.Node) cluster.Milli {
	return cluster.Milli(bits.OnesCount64(n.Healthy())) * cluster.WholeGPU
}

// slack counts the nodes of which some GPUs are used and some are free.
func (p *planner) slack() int {
	count := 0
	for id := range cluster.NodeID(p.state.Nodes()) {
		if n := p.state.Node(id); n.Open() && !p.state.Lent(id) && n.FreeMilli() > 0 && inUse(n) > 0 {
			count++
		}
	}
	return count
}

// models returns the GPU models, in the order of their first pools. A pod stays on the model on
// which it runs, as its quota is for that.
func (p *planner) models() []string {
	var list []string
	for _, pool := range p.state.Pools() {
		if pool.Model != "" && !slices.Contains(list, pool.Model) {
			list = append(list, pool.Model)
		}
	}
	return list
}

// partition cuts the nodes of a model on which GPUs are used into parts, at random, and each
// round otherwise. What is free decides how many nodes can be vacated, so the nodes with free
// GPUs are half of each part, or more of the only one; full ones fill the parts up, and are left out
// beyond. Nodes on which no GPU is used are left out: to use one gains nothing.
func (p *planner) partition(model string, round int) [][]cluster.NodeID {
	draw := func(id cluster.NodeID) uint64 { return mix(p.opt.Seed<<32 ^ uint64(round)<<24 ^ uint64(id)) }
	if p.opt.Algorithm == Published {
		return p.undivided(model, draw)
	}
	var slack, full []cluster.NodeID
	for _, id := range p.nodesOf(model) {
		switch n := p.state.Node(id); {
		case inUse(n) == 0:
		case n.FreeMilli() > 0:
			slack = append(slack, id)
		default:
			full = append(full, id)
		}
	}
	shuffle := func(nodes []cluster.NodeID) {
		slices.SortFunc(nodes, func(a, b cluster.NodeID) int { return cmp.Or(cmp.Compare(draw(a), draw(b)), cmp.Compare(a, b)) })
	}
	shuffle(slack)
	shuffle(full)
	parts := (len(slack)*2 + p.opt.Partition - 1) / p.opt.Partition
	if parts == 0 {
		return nil
	}
	full = full[:min(len(full), parts*p.opt.Partition-len(slack))]
	out := make([][]cluster.NodeID, parts)
	for i := range out {
		share := func(nodes []cluster.NodeID) []cluster.NodeID {
			return nodes[i*len(nodes)/parts : (i+1)*len(nodes)/parts]
		}
		out[i] = slices.Concat(share(slack), share(full))
	}
	return out
}

// mix scrambles a number (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// consolidate vacates what it can of a partition (Algorithm 1).
func (p *planner) consolidate(part []cluster.NodeID) {
	// 1. The nodes that may be vacated, those with the fewest pods first.
	p.part = part
	p.order = p.order[:0]
	for _, id := range part {
		n := p.state.Node(id)
		now := p.mayVacate(n)
		if !p.closed[id] && now && (p.opt.Algorithm == Muster || n.FreeMilli() > 0) {
			p.order = append(p.order, id)
		}
		p.fixed[id] = !now && p.opt.Algorithm == Muster && !p.mayVacateLater(n)
	}
	p.byPods(p.order)
	if p.opt.Algorithm == Muster {
		slices.SortStableFunc(p.order, func(a, b cluster.NodeID) int {
			return cmp.Compare(inUse(p.state.Node(a)), inUse(p.state.Node(b)))
		})
	}

	// 2. One after another, as far as no pod has moved onto it meanwhile: that one stays. The
	// free GPUs of the part must be as many as a node has: they are fewer by that when it is
	// vacated, and what is used stays the same.
	var room cluster.Milli
	for _, id := range part {
		room += p.state.Node(id).FreeMilli()
	}
	for _, id := range p.order {
		n := p.state.Node(id)
		if has := capacity(n); has <= room && inUse(n) > 0 && p.mayVacate(n) && p.vacate(id) {
			room -= has
		}
	}
}

// mayVacate reports whether all pods with GPUs of a node may be moved.
func (p *planner) mayVacate(n *cluster.Node) bool {
	for h := range n.Pods {
		if h.Alloc.GPUs != 0 && !p.movable(h.Owner) {
			return false
		}
	}
	return true
}

// mayVacateLater is mayVacate once pods may restart. So pods that move first go to other nodes.
func (p *planner) mayVacateLater(n *cluster.Node) bool {
	if p.stops || p.opt.Restarts == nil {
		return false
	}
	p.stops = true
	ok := p.mayVacate(n)
	p.stops = false
	return ok
}

// movable reports whether a pod may go to another node: once in a plan.
func (p *planner) movable(o cluster.Owner) bool {
	if p.moved[o] {
		return false
	}
	if p.pods.Movable(o) {
		return true
	}
	_, ok := p.restart(o)
	return ok
}

// restart says what stops if a pod that cannot move restarts elsewhere.
func (p *planner) restart(o cluster.Owner) (Restart, bool) {
	if !p.stops {
		return Restart{}, false
	}
	return p.opt.Restarts(o)
}

// vacate moves all pods with GPUs off a node, or none: the largest first, as it is the
// hardest to place.
func (p *planner) vacate(id cluster.NodeID) bool {
	mark, moves := p.state.Mark(), len(p.moves)
	p.closed[id], p.goal = true, id
	ok := true
	for _, h := range largestFirst(p.state.Node(id), func(h *cluster.Held) bool { return h.Alloc.GPUs != 0 }) {
		if ok = p.eject(h, p.opt.Depth); !ok {
			break
		}
	}
	if !ok || !p.worth(p.state.Node(id), moves) {
		p.undo(mark, moves)
		p.closed[id] = false
		return false
	}
	p.vacated++
	return true
}

// worth reports whether the plan is within its bounds, and the moves from the given one on gain
// more than they cost by making a node free.
func (p *planner) worth(n *cluster.Node, from int) bool {
	sum := p.costs
	fresh := sum.add(p.moves[from:])
	switch {
	case p.opt.MaxMoves > 0 && sum.pods > p.opt.MaxMoves, p.opt.MaxCost > 0 && sum.cost > p.opt.MaxCost,
		p.opt.UseSeconds > 0 && sum.cost-p.costs.cost >= int64(capacity(n))*p.opt.UseSeconds:
		for _, o := range fresh {
			delete(sum.restarts, o)
		}
		return false
	}
	p.costs = sum
	return true
}

// undo takes back the last moves.
func (p *planner) undo(mark, moves int) {
	p.state.Rollback(mark)
	for _, m := range p.moves[moves:] {
		delete(p.moved, m.Pod)
	}
	p.moves = p.moves[:moves]
}

// largestFirst lists the pods of a node of which ok holds.
func largestFirst(n *cluster.Node, ok func(*cluster.Held) bool) []cluster.Held {
	var list []cluster.Held
	for h := range n.Pods {
		if ok(h) {
			list = append(list, *h)
		}
	}
	slices.SortFunc(list, func(a, b cluster.Held) int {
		return cmp.Or(cmp.Compare(b.Alloc.GPU(), a.Alloc.GPU()), cmp.Compare(b.Alloc.CPUMilli, a.Alloc.CPUMilli), cmp.Compare(a.Owner.Job, b.Owner.Job), cmp.Compare(a.Owner.Pod, b.Owner.Pod))
	})
	return list
}

// fanOut is how many nodes are tried for one pod by moving others off them.
const fanOut = 6

// eject moves a pod to another node of the partition, if need be by moving others off that
// first: a chain of at most depth pods one after another. It reports whether it did.
//
// ASI's Fig. 15 is the example: three nodes have one GPU free each, and none takes a pod of
// three. A pod of one goes from the second to the third, a pod of two from the first to the
// second, and then the first has three free.
func (p *planner) eject(h cluster.Held, depth int) bool {
	p.state.Remove(h.Owner, h.Alloc.Node)
	return p.resettle(h, depth)
}

// resettle is eject for a pod that is off its node already.
func (p *planner) resettle(h cluster.Held, depth int) bool {
	p.moved[h.Owner] = true

	// 1. The node with the least room that takes it.
	if to, ok := p.tightest(h, p.part); ok {
		p.put(h, to)
		return true
	}

	// 2. One that takes it when others have left. Those that leave go first, so that their
	// moves come before this one.
	if depth > 1 {
		for _, c := range p.candidates(h, p.part) {
			if p.through(h, c.node, depth, false) {
				return true
			}
		}
	}
	delete(p.moved, h.Owner)
	return false
}

// tightest returns the node of the part that takes a pod: one that cannot be vacated
// before others, then the one with the least free GPU, with the least free CPU, the first.
func (p *planner) tightest(h cluster.Held, part []cluster.NodeID) (cluster.NodeID, bool) {
	best, found := cluster.NodeID(0), false
	u := p.unit(h.Owner)
	for _, id := range part {
		n := p.state.Node(id)
		if p.closed[id] || n.FreeMilli() < h.Alloc.GPU() || n.CPU < h.Alloc.CPUMilli || n.Mem < h.Alloc.MemMiB {
			continue
		}
		if b := p.state.Node(best); found {
			if c := cmp.Or(p.compareFixed(id, best), cmp.Compare(n.FreeMilli(), b.FreeMilli()), cmp.Compare(n.CPU, b.CPU), cmp.Compare(id, best)); c > 0 {
				continue
			}
		}
		if (p.awaited != nil || inUse(n) > 0) && p.placer.Takes(u, id) {
			best, found = id, true
		}
	}
	return best, found
}

// compareFixed orders nodes that cannot be vacated before others.
func (p *planner) compareFixed(a, b cluster.NodeID) int {
	switch {
	case p.fixed[a] == p.fixed[b]:
		return 0
	case p.fixed[a]:
		return -1
	}
	return 1
}

// candidate is a node that may take a pod when others have left it.
type candidate struct {
	node cluster.NodeID
	// gpu and cpu are what it lacks for the pod.
	gpu cluster.Milli
	cpu int64
}

// candidates lists nodes of the part that may take a pod when others have left them, at
// most fanOut: in the order of tightest, but for what they lack in place of what is free.
func (p *planner) candidates(h cluster.Held, part []cluster.NodeID) []candidate {
	list := make([]candidate, 0, fanOut+1)
	for _, id := range part {
		n := p.state.Node(id)
		if p.closed[id] || inUse(n) == 0 {
			continue
		}
		c := candidate{id, max(0, h.Alloc.GPU()-n.FreeMilli()), max(0, h.Alloc.CPUMilli-n.CPU)}
		at, _ := slices.BinarySearchFunc(list, c, func(a, b candidate) int {
			return cmp.Or(p.compareFixed(a.node, b.node), cmp.Compare(a.gpu, b.gpu), cmp.Compare(a.cpu, b.cpu), cmp.Compare(a.node, b.node))
		})
		if at == fanOut || !p.mayYield(n, c, h) {
			continue
		}
		if list = slices.Insert(list, at, c); len(list) > fanOut {
			list = list[:fanOut]
		}
	}
	return list
}

// mayYield reports whether what may leave a node is as much as it lacks for a pod. For a pod that
// moves, smaller ones alone leave: a larger one would be looking for a place that the pod itself
// did not find.
func (p *planner) mayYield(n *cluster.Node, lack candidate, h cluster.Held) bool {
	var gpu cluster.Milli
	var cpu int64
	some := false
	for x := range n.Pods {
		if p.yields(&x.Alloc, &h) && p.movable(x.Owner) {
			gpu, cpu, some = gpu+x.Alloc.GPU(), cpu+x.Alloc.CPUMilli, true
		}
	}
	return some && gpu >= lack.gpu && cpu >= lack.cpu
}

// yields reports whether a pod may leave for another one: it is smaller, or the other one is
// of the unit for which room is made, which may have fewer nodes to choose from.
func (p *planner) yields(a *cluster.Alloc, h *cluster.Held) bool {
	return smaller(a, &h.Alloc) || p.awaits(h.Owner)
}

// smaller reports whether a pod is easier to place than another.
func smaller(a, b *cluster.Alloc) bool {
	return a.GPU() < b.GPU() || a.GPU() == b.GPU() && a.CPUMilli < b.CPUMilli
}

// through puts a pod, which is on no node, on one off which others are moved first. back says that
// these stop before they start again, so that they may go where they were, to other devices: only
// pods that share a device do. Whole devices gain nothing by it, but for positions, and what they
// drove away in turn made plans longer.
func (p *planner) through(h cluster.Held, to cluster.NodeID, depth int, back bool) bool {
	mark, moves := p.state.Mark(), len(p.moves)

	// 1. Who leaves: the smallest pod that makes room by itself, else the smallest
	// together, less those without which there is room as well.
	u := p.unit(h.Owner)
	list := largestFirst(p.state.Node(to), func(x *cluster.Held) bool {
		return p.yields(&x.Alloc, &h) && p.movable(x.Owner) && (!back || !p.opt.Stop || x.Alloc.Share < cluster.WholeGPU)
	})
	slices.Reverse(list)
	var leave []cluster.Held
	for _, x := range list {
		p.state.Remove(x.Owner, to)
		fits := p.placer.Takes(u, to)
		p.state.Rollback(mark)
		if fits {
			leave = []cluster.Held{x}
			break
		}
	}
	if leave == nil {
		fits := false
		for _, x := range list {
			p.state.Remove(x.Owner, to)
			leave = append(leave, x)
			if fits = p.placer.Takes(u, to); fits {
				break
			}
		}
		p.state.Rollback(mark)
		if !fits {
			return false
		}
		leave = p.needed(h, to, leave)
	}

	// 2. If they may come back, the pod goes first. Two pods have half of a device each, on different
	// ones, and a pod of a whole device gets one of them.
	if back {
		for _, x := range leave {
			p.state.Remove(x.Owner, to)
		}
		ok := p.put(h, to)
		for i := len(leave) - 1; ok && i >= 0; i-- {
			ok = p.resettle(leave[i], depth-1)
		}
		if !ok {
			p.undo(mark, moves)
		}
		return ok
	}

	// 3. Else they find places elsewhere, the largest first; then the pod takes theirs.
	p.closed[to] = true
	ok := true
	for i := len(leave) - 1; ok && i >= 0; i-- {
		ok = p.eject(leave[i], depth-1)
	}
	p.closed[to] = false
	if ok = ok && p.put(h, to); !ok {
		p.undo(mark, moves)
		return false
	}
	return true
}

// put places a pod on a node, if that takes it: as a move, unless it is one for which room is
// made.
func (p *planner) put(h cluster.Held, to cluster.NodeID) bool {
	if len(p.placer.PodOn(p.unit(h.Owner), to)) == 0 {
		return false
	}
	if !p.awaits(h.Owner) {
		m := Move{Pod: h.Owner, From: h.Alloc.Node, To: to, GPU: h.Alloc.GPU(), For: p.goal}
		if p.stops && !p.pods.Movable(h.Owner) {
			m.Restart, _ = p.restart(h.Owner)
		}
		p.moves = append(p.moves, m)
	}
	return true
}

// unit describes a pod by itself to the placer.
func (p *planner) unit(o cluster.Owner) *place.Unit {
	if p.awaits(o) {
		return &p.awaited.one
	}
	return p.pods.Unit(o)
}

// awaits reports whether a pod is one of those for which room is made.
func (p *planner) awaits(o cluster.Owner) bool {
	return p.awaited != nil && o.Job == p.awaited.unit.Job
}

// needed drops from those that leave a node the ones without which a pod fits as well.
func (p *planner) needed(h cluster.Held, to cluster.NodeID, leave []cluster.Held) []cluster.Held {
	u := p.unit(h.Owner)
	for i := 0; i < len(leave); {
		mark := p.state.Mark()
		for k := range leave {
			if k != i {
				p.state.Remove(leave[k].Owner, to)
			}
		}
		fits := p.placer.Takes(u, to)
		p.state.Rollback(mark)
		if fits {
			leave = slices.Delete(leave, i, i+1)
		} else {
			i++
		}
	}
	return leave
}
