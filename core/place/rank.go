package place

import (
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

// none is the score of a node without room.
const none = math.MinInt64

// ranking keeps the nodes that a shape may use in a tournament by their score,
// so that the best one is known at once. Only nodes whose room has changed
// since the last look are scored again.
type ranking struct {
	pools  []*cluster.Pool
	place  [][]int32        // of each pool's members
	seen   []int            // changes of each pool already taken in
	nodes  []cluster.NodeID // by place, in order of number; ties go to the first
	worth  []int64
	device []int8
	// winner[i] is the best place below tree node i; leaves start at half.
	winner []int32
	half   int

	epoch   uint64 // of the state
	version uint64 // of the scorer
}

// rank returns the shape's ranking of the nodes of some pools, up to date.
func (p *Placer) rank(sh *Shape, pools []*cluster.Pool, by scorer) *ranking {
	r := sh.rank
	if r == nil || r.epoch != p.state.Epoch() || r.version != by.version() || !slices.Equal(r.pools, pools) {
		r = p.newRanking(sh, pools, by)
		sh.rank = r
		return r
	}
	for k, pool := range r.pools {
		changed, forgotten := pool.Changed()
		if r.seen[k] < forgotten || len(changed)-(r.seen[k]-forgotten) > len(pool.Members()) {
			for _, at := range r.place[k] {
				p.rescore(r, int(at), sh, by)
			}
		} else {
			for _, m := range changed[r.seen[k]-forgotten:] {
				p.rescore(r, int(r.place[k][m]), sh, by)
			}
		}
		r.seen[k] = forgotten + len(changed)
	}
	return r
}

func (p *Placer) newRanking(sh *Shape, pools []*cluster.Pool, by scorer) *ranking {
	r := &ranking{pools: append([]*cluster.Pool(nil), pools...), epoch: p.state.Epoch(), version: by.version()}
	for _, pool := range pools {
		changed, forgotten := pool.Changed()
		r.seen = append(r.seen, forgotten+len(changed))
		for _, id := range pool.Members() {
			if id >= 0 {
				r.nodes = append(r.nodes, id)
			}
		}
	}
	slices.Sort(r.nodes)
	at := make(map[cluster.NodeID]int32, len(r.nodes))
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
	r.worth, r.device = make([]int64, len(r.nodes)), make([]int8, len(r.nodes))
	r.winner = make([]int32, 2*r.half)
	for i := range r.winner {
		r.winner[i] = -1
	}
	for i := range r.nodes {
		r.worth[i], r.device[i] = p.scoreOf(r.nodes[i], sh, by)
		r.winner[r.half+i] = int32(i)
	}
	for i := r.half - 1; i > 0; i-- {
		r.play(i)
	}
	return r
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
	if worth == r.worth[i] && device == r.device[i] {
		return
	}
	r.worth[i], r.device[i] = worth, device
	for k := (r.half + i) / 2; k > 0; k /= 2 {
		r.play(k)
	}
}

// play decides the winner at a tree node: the higher score, then the first.
func (r *ranking) play(k int) {
	a, b := r.winner[2*k], r.winner[2*k+1]
	if a < 0 || b >= 0 && r.worth[b] > r.worth[a] {
		a = b
	}
	r.winner[k] = a
}

// best returns the best node that accept allows (nil allows all), and the
// device for a shape that takes part of one. O(1) without accept, else O(nodes).
func (r *ranking) best(accept func(cluster.NodeID) bool) (cluster.NodeID, int, bool) {
	w := int32(-1)
	if accept == nil {
		if len(r.nodes) > 0 {
			w = r.winner[1]
		}
	} else {
		for i := range r.nodes {
			if r.worth[i] != none && (w < 0 || r.worth[i] > r.worth[w]) && accept(r.nodes[i]) {
				w = int32(i)
			}
		}
	}
	if w < 0 || r.worth[w] == none {
		return 0, 0, false
	}
	return r.nodes[w], int(r.device[w]), true
}
