package place

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-sched/muster/core/cluster"
)

// TestRankings changes a cluster at random. The node that a ranking kept from
// change to change puts first must always be the one that scoring all nodes
// again does, and among those of some nodes too.
func TestRankings(t *testing.T) {
	for seed := range uint64(60) {
		c := &churn{t: t, rng: rand.New(rand.NewPCG(seed, 0)), state: cluster.New([]string{"leaf"})}
		for range 3 + c.rng.IntN(20)*[]int{1, 1, 1, 25}[seed%4] { // at times groups of several blocks
			c.addNode(fmt.Sprint("n", c.state.Nodes()))
		}
		c.state.SetSpot(1, true) // job 1 is LP, jobs 0 and 2 are not
		if seed%3 > 0 {
			c.state.SetLends(2, true)
		}
		p := NewPlacer(c.state)
		requests := []cluster.Request{
			{GPU: 1000}, {GPU: 4000, CPUMilli: 3000}, {GPU: 250, MemMiB: 4}, {CPUMilli: 2000},
			{GPU: 2000, Models: []string{"A"}}, {GPU: 500, Models: []string{"B", "A"}},
		}
		for step := range 150 {
			c.change()
			r := &requests[c.rng.IntN(len(requests))]
			p.Mix.Observe(r, 1+c.rng.IntN(3))
			sh, u := p.Shape(r), &Unit{LP: c.rng.IntN(2) == 0, Lends: seed%2 == 0}
			strategy := []Strategy{Value, Spot, FGD, BestFit, GPUPacking, GPUClustering}[c.rng.IntN(6)]
			p.Learn([]Strategy{strategy})
			some := func(id cluster.NodeID) bool { return id%3 != 0 }
			for _, accept := range []func(cluster.NodeID) bool{nil, some} {
				st := stage{pools: p.poolsInQuota(u, sh), strategy: strategy}
				if len(st.pools) == 0 {
					continue
				}
				got, _, ok := p.findBest(u, sh, st, accept)
				want, found := c.best(p.lendTogether(p.scorer(strategy, u), u, sh), p, sh, st, accept)
				if ok != found || got != want {
					t.Fatalf("seed %d, step %d: %v for %+v: node %d (%t), scored again %d (%t)", seed, step, strategy, *r, got, ok, want, found)
				}
			}
		}
	}
}

// churn is a cluster in which much changes.
type churn struct {
	t     *testing.T
	rng   *rand.Rand
	state *cluster.State
	pods  int32 // that ever were
}

func (c *churn) addNode(name string) {
	n := cluster.NodeSpec{Name: name, GPUs: []int{0, 2, 4, 8}[c.rng.IntN(4)], CPUMilli: 16000, MemMiB: 32, Domains: []string{[]string{"", "l", "l", "l", "m"}[c.rng.IntN(5)]}}
	if n.GPUs > 0 {
		n.Model = []string{"A", "B"}[c.rng.IntN(2)]
	}
	if _, err := c.state.AddNode(n); err != nil {
		c.t.Fatal(err)
	}
}

// change places or removes some pods, for good or not, or changes a node.
func (c *churn) change() {
	moves := 1 + c.rng.IntN(4)
	if c.rng.IntN(40) == 0 {
		moves = 400 // more than a pool remembers
	}
	for range moves {
		c.move()
	}
	if c.rng.IntN(4) == 0 {
		c.state.Rollback(0)
	}
	c.state.Commit()
	id := cluster.NodeID(c.rng.IntN(c.state.Nodes()))
	n := c.state.Node(id)
	switch c.rng.IntN(12) {
	case 0:
		c.state.SetCordoned(id, !n.Spec.Cordoned)
	case 1, 2:
		if n.Spec.GPUs > 0 {
			c.state.SetHealth(id, c.rng.IntN(n.Spec.GPUs), c.rng.IntN(2) == 0)
		}
	case 3:
		if n.Up && c.rng.IntN(3) == 0 {
			c.state.RemoveNode(id)
		} else if !n.Up {
			c.addNode(n.Spec.Name)
		}
	case 4:
		if c.rng.IntN(4) == 0 {
			c.state.SetZone(id, c.rng.IntN(2) == 0)
		}
	}
}

// move places a pod, or removes one.
func (c *churn) move() {
	id := cluster.NodeID(c.rng.IntN(c.state.Nodes()))
	n := c.state.Node(id)
	if !n.Up {
		return
	}
	if pods := slices.Collect(n.Pods); len(pods) > 0 && c.rng.IntN(2) == 0 {
		if c.rng.IntN(3) == 0 {
			c.state.CountEvictions(id, 1)
		}
		c.state.Remove(pods[c.rng.IntN(len(pods))].Owner, id)
		return
	}
	a := cluster.Alloc{Node: id, Share: cluster.WholeGPU, CPUMilli: int64(c.rng.IntN(3)) * 1000, MemMiB: int64(c.rng.IntN(5))}
	switch {
	case n.Spec.GPUs > 0 && c.rng.IntN(3) == 0:
		a.GPUs, a.Share = 1<<c.rng.IntN(n.Spec.GPUs), 250
	case n.Free() > 0:
		a.GPUs = c.state.PickGPUs(id, 1+c.rng.IntN(n.Free()), nil, nil)
	}
	if c.state.Holds(&a) {
		c.state.Place(cluster.Owner{Job: int32(c.rng.IntN(3)), Pod: c.pods}, a)
		c.pods++
	}
}

// best scores all nodes of a stage.
func (c *churn) best(by scorer, p *Placer, sh *Shape, st stage, accept func(cluster.NodeID) bool) (best cluster.NodeID, found bool) {
	most, wasUntouched := int64(none), false
	for id := range cluster.NodeID(c.state.Nodes()) {
		n := c.state.Node(id)
		for d := range n.Spec.GPUs {
			if f := n.FreeOn(d); (f > 0 && f < cluster.WholeGPU) != (n.Split()>>d&1 == 1) {
				c.t.Fatalf("device %d of node %d has %d milli-GPU free; those of which a part is: %b", d, id, f, n.Split())
			}
		}
		if !p.inStage(st, id) || accept != nil && !accept(id) {
			continue
		}
		untouched := st.strategy == Value && c.untouched(id)
		if worth, _ := p.scoreOf(id, sh, by); worth > most || worth == most && worth != none && wasUntouched && !untouched {
			best, most, wasUntouched, found = id, worth, untouched, true
		}
	}
	return best, found
}

// untouched reports whether the leaf group of a node is known and all GPUs of the part of it that
// is in the node's pool are free.
func (c *churn) untouched(id cluster.NodeID) bool {
	leaf := c.state.Domain(id, 0)
	for o := range cluster.NodeID(c.state.Nodes()) {
		n := c.state.Node(o)
		if n.Open() && c.state.Domain(o, 0) == leaf && c.state.Pool(o) == c.state.Pool(id) && n.Free() < bits.OnesCount64(n.Healthy()) {
			return false
		}
	}
	return leaf >= 0
}
