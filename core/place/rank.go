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

// field is the nodes of some pools, as rankings number them.
type field struct {
	epoch uint64 // of the state, for which it is good
	pools []*cluster.Pool
	nodes []cluster.NodeID // by place, in order of number; ties go to the first
	place []int32          // by node
}

// field returns that of pools.
func (p *Placer) field(pools []*cluster.Pool) *field {
	epoch := p.state.Epoch()
	p.fields = slices.DeleteFunc(p.fields, func(f *field) bool { return f.epoch != epoch })
	for _, f := range p.fields {
		if slices.Equal(f.pools, pools) {
			return f
		}
	}
	f := &field{epoch: epoch, pools: slices.Clone(pools), place: make([]int32, p.state.Nodes())}
	for _, pool := range pools {
		for _, id := range pool.Members() {
			if id >= 0 {
				f.nodes = append(f.nodes, id)
			}
		}
	}
	slices.Sort(f.nodes)
	for i, id := range f.nodes {
		f.place[id] = int32(i)
	}
	p.fields = append(p.fields, f)
	return f
}

// ranking keeps the nodes that a shape may use in a tournament by their score,
// so that the best one is known at once. Only nodes whose room has changed since
// the last look are scored again, and of those that have no room for the shape any
// more only the ones that would win: the others keep their scores.
type ranking struct {
	*field
	by      scorer
	version uint64 // of the scorer
	seen    []int  // changes of each pool already taken in
	// worth is the scores, by place. The tournament is a binary tree of which
	// the leaves, numbered from half, are the places: winner[i] is the best
	// place below tree node i, for the inner ones.
	worth  []int64
	winner []int32
	half   int
	open   []int32 // scratch memory of next
}

// rank returns the shape's ranking of the nodes of some pools, up to date.
func (p *Placer) rank(sh *Shape, pools []*cluster.Pool, by scorer) *ranking {
	version, epoch := by.version(), p.state.Epoch()
	i := slices.IndexFunc(sh.ranks, func(r *ranking) bool {
		return r.by == by && r.epoch == epoch && slices.Equal(r.pools, pools)
	})
	if i < 0 {
		if len(sh.ranks) == maxRanks {
			sh.ranks = slices.Delete(sh.ranks, 0, 1)
		}
		r := newRanking(p.field(pools), by)
		p.scoreAll(r, sh)
		sh.ranks = append(sh.ranks, r)
		return r
	}
	r := sh.ranks[i]
	if r.version != version {
		p.scoreAll(r, sh)
		return r
	}
	for k, pool := range r.pools {
		changed, forgotten := pool.Changed()
		if r.seen[k] < forgotten || len(changed)-(r.seen[k]-forgotten) > len(pool.Members()) {
			p.scoreAll(r, sh)
			return r
		}
		for _, c := range changed[r.seen[k]-forgotten:] {
			if int(c.Free) >= sh.GPUs {
				p.rescore(r, c.Node, sh)
			}
		}
		r.seen[k] = forgotten + len(changed)
	}
	for w := r.best(1); r.at(w) != none && !p.hasRoom(r.nodes[w], sh); w = r.best(1) {
		p.rescore(r, r.nodes[w], sh)
	}
	return r
}

func newRanking(f *field, by scorer) *ranking {
	r := &ranking{field: f, by: by, half: 1, worth: make([]int64, len(f.nodes))}
	for r.half < len(r.nodes) {
		r.half *= 2
	}
	r.winner = make([]int32, r.half)
	return r
}

// scoreAll scores all nodes of a ranking.
func (p *Placer) scoreAll(r *ranking, sh *Shape) {
	r.version = r.by.version()
	r.seen = r.seen[:0]
	for _, pool := range r.pools {
		changed, forgotten := pool.Changed()
		r.seen = append(r.seen, forgotten+len(changed))
	}
	for i, id := range r.nodes {
		r.worth[i], _ = p.scoreOf(id, sh, r.by)
	}
	for i := r.half - 1; i > 0; i-- {
		r.winner[i] = r.play(i)
	}
}

// scoreOf scores a node, none when it has no room.
func (p *Placer) scoreOf(id cluster.NodeID, sh *Shape, by scorer) (worth int64, device int) {
	if !p.hasRoom(id, sh) {
		return none, -1
	}
	return by.score(p.state.Node(id), sh)
}

// hasRoom reports whether a node takes a pod of the shape, affinity aside.
func (p *Placer) hasRoom(id cluster.NodeID, sh *Shape) bool {
	n := p.state.Node(id)
	return n.Open() && n.Has(sh.need(1)) && n.Free() >= sh.GPUs &&
		(sh.Part == 0 || n.Parts(sh.Part) > 0) && sh.selected(p.state, id)
}

// rescore scores a node again. O(log nodes).
func (p *Placer) rescore(r *ranking, id cluster.NodeID, sh *Shape) {
	i := r.place[id]
	worth, _ := p.scoreOf(id, sh, r.by)
	if worth == r.worth[i] {
		return
	}
	r.worth[i] = worth
	for k := (r.half + int(i)) / 2; k > 0; k /= 2 {
		was, is := r.winner[k], r.play(k)
		r.winner[k] = is
		if was != i && is != i {
			return // it neither won nor wins here, nor further up
		}
	}
}

// best returns the place that wins below a tree node; it may be past the last.
func (r *ranking) best(k int) int32 {
	if k >= r.half {
		return int32(k - r.half)
	}
	return r.winner[k]
}

// at returns the score of a place, none past the last.
func (r *ranking) at(place int32) int64 {
	if int(place) >= len(r.worth) {
		return none
	}
	return r.worth[place]
}

// play decides the winner at an inner tree node: the higher score, then the first.
func (r *ranking) play(k int) int32 {
	a, b := r.best(2*k), r.best(2*k+1)
	if r.at(b) > r.at(a) {
		return b
	}
	return a
}

// top returns the node with the highest score that accept allows (nil allows
// all), false when none has room; accept must refuse nodes without room. O(1), and
// O(log nodes) for every better node that accept refuses.
func (r *ranking) top(accept func(cluster.NodeID) bool) (cluster.NodeID, bool) {
	w := r.best(1)
	if r.at(w) != none && accept != nil && !accept(r.nodes[w]) {
		w = r.next(accept)
	}
	if r.at(w) == none {
		return 0, false
	}
	return r.nodes[w], true
}

// next returns the best place that accept allows, one past the last when there is
// none. A winner that is refused leaves the subtrees beside its way up, each with
// its own.
func (r *ranking) next(accept func(cluster.NodeID) bool) int32 {
	open := &subtrees{r, append(r.open[:0], 1)}
	defer func() { r.open = open.roots }()
	for len(open.roots) > 0 {
		root := heap.Pop(open).(int32)
		w := r.best(int(root))
		if accept(r.nodes[w]) {
			return w
		}
		for k := int32(r.half) + w; k > root; k /= 2 {
			if r.at(r.best(int(k^1))) != none {
				heap.Push(open, k^1)
			}
		}
	}
	return int32(len(r.nodes))
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
	a, b := h.best(int(h.roots[i])), h.best(int(h.roots[j]))
	if h.at(a) != h.at(b) {
		return h.at(a) > h.at(b)
	}
	return a < b
}
