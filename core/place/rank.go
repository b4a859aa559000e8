package place

import (
	"container/heap"
	"math"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// scorer says what it is worth to place one pod of a shape on a node that has
// room for it: the higher the better. For a shape that takes part of a device
// it also says on which. The score depends on the node and the shape alone.
type scorer interface {
	score(n *cluster.Node, sh *Shape) (worth int64, device int)
	// version changes when scores do that were given before.
	version() uint64
}

// maxRanks is how many rankings a shape keeps: queues that lack quota for some
// models have the nodes of the others ranked.
const maxRanks = 4

// none is the score of a node without room.
const none = math.MinInt64

// ranking keeps the nodes that a shape may use in a tournament by their score,
// so that the best one is known at once. Only nodes whose room has changed
// since the last look are scored again.
type ranking struct {
	by    scorer
	pools []*cluster.Pool
	place [][]int32        // of each pool's members
	seen  []int            // changes of each pool already taken in
	nodes []cluster.NodeID // by place, in order of number; ties go to the first
	// winner[i] is the best below tree node i; leaves start at half.
	winner []contender
	half   int
	open   []int32 // scratch memory of next

	epoch   uint64 // of the state
	version uint64 // of the scorer
}

// contender is a node in the tournament, by its place: its score and device.
type contender struct {
	worth  int64
	place  int32
	device int8
}

// rank returns the shape's ranking of the nodes of some pools, up to date.
func (p *Placer) rank(sh *Shape, pools []*cluster.Pool, by scorer) *ranking {
	version := by.version()
	i := slices.IndexFunc(sh.ranks, func(r *ranking) bool { return r.by == by && slices.Equal(r.pools, pools) })
	if i < 0 || sh.ranks[i].epoch != p.state.Epoch() {
		if len(sh.ranks) == maxRanks || i >= 0 {
			sh.ranks = slices.Delete(sh.ranks, max(i, 0), max(i, 0)+1)
		}
		r := p.newRanking(sh, pools, by)
		sh.ranks = append(sh.ranks, r)
		return r
	}
	r := sh.ranks[i]
	if r.version != version {
		r.version = version
		p.scoreAll(r, sh, by)
		return r
	}
	for k, pool := range r.pools {
		changed, forgotten := pool.Changed()
		if r.seen[k] < forgotten || len(changed)-(r.seen[k]-forgotten) > len(pool.Members()) {
			for _, at := range r.place[k] {
				p.rescore(r, int(at), sh, by)
			}
		} else {
			for _, c := range changed[r.seen[k]-forgotten:] {
				if int(c.Free) >= sh.GPUs { // else it had no room and has none
					p.rescore(r, int(r.place[k][c.Member]), sh, by)
				}
			}
		}
		r.seen[k] = forgotten + len(changed)
	}
	return r
}

func (p *Placer) newRanking(sh *Shape, pools []*cluster.Pool, by scorer) *ranking {
	r := &ranking{by: by, pools: append([]*cluster.Pool(nil), pools...), epoch: p.state.Epoch(), version: by.version()}
	for _, pool := range pools {
		for _, id := range pool.Members() {
			if id >= 0 {
				r.nodes = append(r.nodes, id)
			}
		}
	}
	slices.Sort(r.nodes)
	at := make([]int32, p.state.Nodes())
	for i, id := range r.nodes {
		at[id] = int32(i)
	}
	for _, pool := range pools {
		place := make([]int32, len(pool.Members()))
		for m, id := range pool.Members() {
			place[m] = -1
			if id >= 0 {
				place[m] = at[id]
			}
		}
		r.place = append(r.place, place)
	}
	r.half = 1
	for r.half < len(r.nodes) {
		r.half *= 2
	}
	r.winner = make([]contender, 2*r.half)
	for i := range r.winner {
		r.winner[i] = contender{none, -1, -1}
	}
	p.scoreAll(r, sh, by)
	return r
}

// scoreAll scores all nodes of a ranking.
func (p *Placer) scoreAll(r *ranking, sh *Shape, by scorer) {
	r.seen = r.seen[:0]
	for _, pool := range r.pools {
		changed, forgotten := pool.Changed()
		r.seen = append(r.seen, forgotten+len(changed))
	}
	for i := range r.nodes {
		worth, device := p.scoreOf(r.nodes[i], sh, by)
		r.winner[r.half+i] = contender{worth, int32(i), device}
	}
	for i := r.half - 1; i > 0; i-- {
		r.play(i)
	}
}

// scoreOf scores a node, none when it has no room.
func (p *Placer) scoreOf(id cluster.NodeID, sh *Shape, by scorer) (int64, int8) {
	if !p.hasRoom(id, sh) {
		return none, -1
	}
	worth, device := by.score(p.state.Node(id), sh)
	return worth, int8(device)
}

// hasRoom reports whether a node takes a pod of the shape, affinity aside.
func (p *Placer) hasRoom(id cluster.NodeID, sh *Shape) bool {
	n := p.state.Node(id)
	return n.Open() && n.CPU >= sh.CPU && n.Mem >= sh.Mem && n.Free() >= sh.GPUs &&
		(sh.Part == 0 || n.Parts(sh.Part) > 0) && sh.selected(p.state, id)
}

// rescore scores the node at a place again. O(log nodes).
func (p *Placer) rescore(r *ranking, i int, sh *Shape, by scorer) {
	if i < 0 {
		return // it has left the pool
	}
	worth, device := p.scoreOf(r.nodes[i], sh, by)
	now, leaf := contender{worth, int32(i), device}, &r.winner[r.half+i]
	if *leaf == now {
		return
	}
	*leaf = now
	for k := (r.half + i) / 2; k > 0; k /= 2 {
		was := r.winner[k].place
		r.play(k)
		if was != int32(i) && r.winner[k].place != int32(i) {
			return // it neither won nor wins here, nor further up
		}
	}
}

// play decides the winner at a tree node: the higher score, then the first.
func (r *ranking) play(k int) {
	w := &r.winner[2*k]
	if other := &r.winner[2*k+1]; other.worth > w.worth {
		w = other
	}
	r.winner[k] = *w
}

// best returns the best node that accept allows (nil allows all), and the
// device for a shape that takes part of one. O(1), and O(log nodes) for every
// better node that accept refuses.
func (r *ranking) best(accept func(cluster.NodeID) bool) (cluster.NodeID, int, bool) {
	if len(r.nodes) == 0 {
		return 0, 0, false
	}
	w := r.winner[1]
	if w.worth != none && accept != nil && !accept(r.nodes[w.place]) {
		w = r.next(accept)
	}
	if w.worth == none {
		return 0, 0, false
	}
	return r.nodes[w.place], int(w.device), true
}

// next returns the best that accept allows. A winner that is refused leaves the
// subtrees beside its way up, each with its own.
func (r *ranking) next(accept func(cluster.NodeID) bool) contender {
	open := &subtrees{r, append(r.open[:0], 1)}
	defer func() { r.open = open.roots }()
	for len(open.roots) > 0 {
		root := heap.Pop(open).(int32)
		w := r.winner[root]
		if accept(r.nodes[w.place]) {
			return w
		}
		for k := int32(r.half) + w.place; k > root; k /= 2 {
			if r.winner[k^1].worth != none {
				heap.Push(open, k^1)
			}
		}
	}
	return contender{none, -1, -1}
}

// subtrees is a heap of tree nodes of a ranking, the one with the best winner on
// top.
type subtrees struct {
	*ranking
	roots []int32
}

func (h *subtrees) Len() int      { return len(h.roots) }
func (h *subtrees) Swap(i, j int) { h.roots[i], h.roots[j] = h.roots[j], h.roots[i] }
func (h *subtrees) Push(root any) { h.roots = append(h.roots, root.(int32)) }

func (h *subtrees) Pop() any {
	last := len(h.roots) - 1
	root := h.roots[last]
	h.roots = h.roots[:last]
	return root
}

func (h *subtrees) Less(i, j int) bool {
	a, b := &h.winner[h.roots[i]], &h.winner[h.roots[j]]
	if a.worth != b.worth {
		return a.worth > b.worth
	}
	return a.place < b.place
}
