package place

import "github.com/muster-sched/muster/core/cluster"

// spotRank ranks nodes as SpotGPU does (ASI, §4.2, non-preemptive scheduling). Three criteria in
// order, each breaks the ties of the one before:
//
//  1. task packing: the least idle GPU;
//  2. homogeneous co-location: HP pods on nodes that host HP pods, LP pods on nodes that host none;
//  3. eviction history: LP pods where the fewest LP pods were evicted, HP pods where the most were.
//
// Remaining ties go to the first node. CPU-only pods are ranked alike: they go where the fewest
// GPUs need their CPU.
type spotRank struct {
	state *cluster.State
	spot  bool // for LP pods
}

func (r *spotRank) version() uint64 { return 0 }

// MaxEvictions is the count of evictions from which nodes rank alike.
const MaxEvictions = 1<<20 - 1

func (r *spotRank) score(n *cluster.Node, sh *Shape) (int64, int) {
	return -int64(n.FreeMilli())<<21 + r.tie(n), n.TightestDevice(sh.Part)
}

// tie is the second criterion, a bit, and the third below it: the higher the better.
func (r *spotRank) tie(n *cluster.Node) int64 {
	evictions, alike := int64(min(r.state.EvictionsFrom(n), MaxEvictions)), int64(0)
	if r.state.HostsHP(n) != r.spot {
		alike = 1
	}
	if r.spot {
		evictions = MaxEvictions - evictions
	}
	return alike<<20 | evictions
}

// spotScorer returns the ranking for the class of a unit.
func (p *Placer) spotScorer(u *Unit) *spotRank {
	i := 0
	if u.LP {
		i = 1
	}
	if p.spot[i] == nil {
		p.spot[i] = &spotRank{p.state, u.LP}
	}
	return p.spot[i]
}

// likestWhole returns the node that SpotGPU ranks first among those with the fewest free GPUs, at
// least a number, and with what is needed beside GPUs. O(nodes with that many free).
func (p *Placer) likestWhole(u *Unit, gpus int, need cluster.Need, pools []*cluster.Pool) (cluster.NodeID, bool) {
	none, found := p.likest(u, func(id cluster.NodeID) bool { return p.state.Node(id).Has(need) })
	for f := gpus; f <= cluster.MaxGPUs; f++ {
		for _, pool := range pools {
			if f <= pool.MaxGPUs {
				p.state.FindFunc(pool, f, cluster.FirstLeaf, none)
			}
		}
		if id, ok := found(); ok {
			return id, true
		}
	}
	return 0, false
}

// likest returns a filter for searches among nodes with equally many free GPUs, of which the
// search takes the first that the filter accepts: it accepts none, and notes in found the one
// that SpotGPU ranks first, with what the filter accept allows (nil allows all).
func (p *Placer) likest(u *Unit, accept func(cluster.NodeID) bool) (none func(cluster.NodeID) bool, found func() (cluster.NodeID, bool)) {
	by, best, first, any := p.spotScorer(u), int64(0), cluster.NodeID(0), false
	none = func(id cluster.NodeID) bool {
		if accept != nil && !accept(id) {
			return false
		}
		if worth := by.tie(p.state.Node(id)); !any || worth > best || worth == best && id < first {
			best, first, any = worth, id, true
		}
		return false
	}
	return none, func() (cluster.NodeID, bool) { return first, any }
}
