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

// field is the nodes of some pools, as rankings number them: leaf group by leaf group.
type field struct {
	epoch  uint64 // of the state, for which it is good
	pools  []*cluster.Pool
	nodes  []cluster.NodeID // by place; in a block in order of number
	place  []int32          // by node
	blocks []block
	block  []int32 // by place
}

// block is consecutive places of one leaf group: all of them, or mostInBlock. A search looks at
// one block in full.
type block struct {
	from, to int32
	// leaf is the group in its pool, -1 if the place of its nodes is not known; pool is the number
	// of the pool in the field. Consecutive blocks of the same group have the same first.
	leaf, pool, first int32
}

const mostInBlock = 64

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
	for k, pool := range pools {
		for leaf := range int32(pool.Leaves()) {
			f.add(p.state, int32(k), leaf)
		}
	}
	p.fields = append(p.fields, f)
	return f
}

// add adds a leaf group of a pool.
func (f *field) add(s *cluster.State, pool, leaf int32) {
	from := len(f.nodes)
	for _, id := range f.pools[pool].LeafNodes(leaf) {
		if id >= 0 {
			f.nodes = append(f.nodes, id)
		}
	}
	slices.Sort(f.nodes[from:])
	if f.pools[pool].LeafDomain(s, leaf) < 0 {
		leaf = -1
	}
	first := int32(len(f.blocks))
	for ; from < len(f.nodes); from += mostInBlock {
		b := block{int32(from), int32(min(len(f.nodes), from+mostInBlock)), leaf, pool, first}
		for i := b.from; i < b.to; i++ {
			f.place[f.nodes[i]] = i
			f.block = append(f.block, int32(len(f.blocks)))
		}
		f.blocks = append(f.blocks, b)
	}
}

// untouched reports whether no GPU of the leaf group of a block is in use. Nodes whose leaf group is
// not known are in none.
func (f *field) untouched(b int32) bool {
	blk := &f.blocks[b]
	return blk.leaf >= 0 && f.pools[blk.pool].LeafWhole(blk.leaf)
}

// ranking keeps the nodes that a shape may use in order of their score, so that the best one is
// known at once: the highest score; then, if whole leaf groups are to stay free, nodes of a group
// that is in use; then the first node. A search in a block finds its best node, a tournament the best
// block. Only nodes whose room has changed since the last look are scored again, and of those
// that have no room for the shape any more only the ones that would win: the others keep their
// scores.
type ranking struct {
	*field
	by      scorer
	keep    bool   // whether whole leaf groups are to stay free
	version uint64 // of the scorer
	seen    []int  // changes of each pool already taken in
	worth   []int64
	tops    []top // by block
	// The tournament is a binary tree of which the leaves, numbered from half, are the blocks:
	// winner[i] is the best block below tree node i, for the inner ones.
	winner []int32
	half   int32
	open   []subtree // scratch memory of next
}

// top is the best node of a block.
type top struct {
	worth     int64
	untouched bool // its leaf group, if that matters
	node      cluster.NodeID
	place     int32
}

// before reports whether t comes before o.
func (t *top) before(o *top) bool {
	if t.worth != o.worth {
		return t.worth > o.worth
	}
	if t.untouched != o.untouched {
		return o.untouched
	}
	return t.node < o.node
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
			r.touch(r.block[r.place[c.Node]])
			if int(c.Free) >= sh.GPUs {
				p.rescore(r, c.Node, sh)
			}
		}
		r.seen[k] = forgotten + len(changed)
	}
	for w := r.best(); w.worth != none && !p.hasRoom(w.node, sh); w = r.best() {
		p.rescore(r, w.node, sh)
	}
	return r
}

func newRanking(f *field, by scorer) *ranking {
	strategy := by
	if t, ok := by.(*together); ok {
		strategy = t.scorer
	}
	_, keep := strategy.(*Mix)
	r := &ranking{field: f, by: by, keep: keep, half: 1, worth: make([]int64, len(f.nodes)), tops: make([]top, len(f.blocks))}
	for int(r.half) < len(r.blocks) {
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
	for b := range r.tops {
		r.tops[b].untouched = r.keep && r.untouched(int32(b))
		r.tops[b] = r.bestOf(int32(b))
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
	return n.Open() && n.Has(sh.needOne()) && n.Free() >= sh.GPUs &&
		(sh.Part == 0 || n.Parts(sh.Part) > 0) && sh.selected(p.state, id)
}

// rescore scores a node again. O(mostInBlock + log blocks).
func (p *Placer) rescore(r *ranking, id cluster.NodeID, sh *Shape) {
	i := r.place[id]
	worth, _ := p.scoreOf(id, sh, r.by)
	if worth == r.worth[i] {
		return
	}
	r.worth[i] = worth
	b := r.block[i]
	t := &r.tops[b]
	switch {
	case i == t.place && worth < t.worth:
		r.tops[b] = r.bestOf(b)
	case i == t.place || worth > t.worth || worth == t.worth && i < t.place:
		t.worth, t.node, t.place = worth, id, i
	default:
		return
	}
	r.replay(b)
}

// touch brings up to date whether the leaf group of a block is in use. O(1), and O(blocks of the
// group x log blocks) where that has changed.
func (r *ranking) touch(b int32) {
	if !r.keep || r.untouched(b) == r.tops[b].untouched {
		return
	}
	first := r.blocks[b].first
	end := first
	for ; int(end) < len(r.blocks) && r.blocks[end].first == first; end++ {
		r.tops[end].untouched = !r.tops[end].untouched
	}
	for k := first; k < end; k++ {
		r.replay(k)
	}
}

// bestOf returns the best node of a block.
func (r *ranking) bestOf(b int32) top {
	blk := &r.blocks[b]
	worth, at := int64(none), 0
	for i, w := range r.worth[blk.from:blk.to] {
		if w > worth {
			worth, at = w, i
		}
	}
	return r.topAt(b, worth, blk.from+int32(at))
}

// bestAfter returns the best node of a block that comes after another one of it.
func (r *ranking) bestAfter(b int32, after *top) top {
	blk := &r.blocks[b]
	worth, at := int64(none), blk.from
	for i := blk.from; i < blk.to; i++ {
		w := r.worth[i]
		if w > worth && (w < after.worth || w == after.worth && i > after.place) {
			worth, at = w, i
		}
	}
	return r.topAt(b, worth, at)
}

func (r *ranking) topAt(b int32, worth int64, place int32) top {
	return top{worth: worth, untouched: r.tops[b].untouched, node: r.nodes[place], place: place}
}

// replay decides again what a block wins. O(log blocks).
func (r *ranking) replay(b int32) {
	for k := (r.half + b) / 2; k > 0; k /= 2 {
		was, is := r.winner[k], r.play(k)
		r.winner[k] = is
		if was != b && is != b {
			return // it neither won nor wins here, nor further up
		}
	}
}

// play decides the winner at an inner tree node.
func (r *ranking) play(k int32) int32 {
	a, b := r.winnerAt(2*k), r.winnerAt(2*k+1)
	if int(b) < len(r.tops) && r.tops[b].before(&r.tops[a]) {
		return b
	}
	return a
}

// winnerAt returns the block that wins below a tree node; it may be past the last.
func (r *ranking) winnerAt(k int32) int32 {
	if k >= r.half {
		return k - r.half
	}
	return r.winner[k]
}

// noTop is what a tree node without blocks has.
var noTop = top{worth: none}

// bestBelow returns the best node below a tree node; its worth is none if no node has room.
func (r *ranking) bestBelow(k int32) *top {
	if b := r.winnerAt(k); int(b) < len(r.tops) {
		return &r.tops[b]
	}
	return &noTop
}

// best returns the best node.
func (r *ranking) best() *top { return r.bestBelow(1) }

// top returns the best node that accept allows (nil allows all), false when none has room;
// accept must refuse nodes without room. O(1), and O(mostInBlock + log blocks) for every better
// node that accept refuses.
func (r *ranking) top(accept func(cluster.NodeID) bool) (cluster.NodeID, bool) {
	w := r.best()
	if w.worth == none {
		return 0, false
	}
	if accept != nil && !accept(w.node) {
		return r.next(accept)
	}
	return w.node, true
}

// next returns the best node that accept allows. A winner that is refused leaves the subtrees
// beside its way up, each with its own winner, and what comes after it in its block.
func (r *ranking) next(accept func(cluster.NodeID) bool) (cluster.NodeID, bool) {
	open := &subtrees{append(r.open[:0], subtree{1, *r.best()})}
	defer func() { r.open = open.list }()
	for len(open.list) > 0 {
		s := heap.Pop(open).(subtree)
		if accept(s.node) {
			return s.node, true
		}
		b := r.block[s.place]
		if s.root > 0 {
			for k := r.half + b; k > s.root; k /= 2 {
				if t := r.bestBelow(k ^ 1); t.worth != none {
					heap.Push(open, subtree{k ^ 1, *t})
				}
			}
		}
		if t := r.bestAfter(b, &s.top); t.worth != none {
			heap.Push(open, subtree{0, t})
		}
	}
	return 0, false
}

// subtree is a tree node of a ranking, or with root 0 the rest of a block, and the best node in it.
type subtree struct {
	root int32
	top
}

// subtrees is a heap of subtrees, the one with the best node on top.
type subtrees struct{ list []subtree }

func (h *subtrees) Len() int           { return len(h.list) }
func (h *subtrees) Swap(i, j int)      { h.list[i], h.list[j] = h.list[j], h.list[i] }
func (h *subtrees) Less(i, j int) bool { return h.list[i].before(&h.list[j].top) }
func (h *subtrees) Push(s any)         { h.list = append(h.list, s.(subtree)) }

func (h *subtrees) Pop() any {
	last := len(h.list) - 1
	s := h.list[last]
	h.list = h.list[:last]
	return s
}
