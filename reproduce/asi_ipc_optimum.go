package reproduce

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/defrag"
	"github.com/muster-sched/muster/internal/optimum"
)

// optimumNodes is the size of the instances that the paper solves exactly, optimumTries how many
// there are here.
const (
	optimumNodes = 25
	optimumTries = 12
)

// vacated counts nodes that plans vacate, by algorithm, and that the optimum does.
type vacated struct {
	by   [3]int
	best int
	note string // nothing was counted; why
}

// nearOptimum compares plans for small clusters with the optimum.
func nearOptimum(ctx context.Context, o *Options) (v vacated, err error) {
	solver, ok := optimum.Solver()
	if !ok {
		v.note = "The rows on clusters of 25 nodes need the solver CBC (Debian: coinor-cbc), which is not installed."
		return v, nil
	}
	o.say("%d clusters of %d nodes, and the optimum of each", optimumTries, optimumNodes)
	for seed := range uint64(optimumTries) {
		if err := ctx.Err(); err != nil {
			return v, err
		}
		c := newSmallCluster(seed)
		for a := range v.by {
			plan, err := c.plan(defrag.Algorithm(a))
			if err != nil {
				return v, err
			}
			v.by[a] += len(plan.Vacated)
		}
		fewest, err := optimum.FewestNodes(solver, c.nodes, c.pods)
		if err != nil {
			return v, err
		}
		v.best += c.used() - fewest
	}
	v.note = fmt.Sprintf("The clusters of 25 nodes are random: nodes of 8 GPUs and 128 cores, of which 50 to 90 %% of the GPUs are used; pods of 1 to 8 GPUs with\n"+
		"4 to 24 cores for each; 10 to 40 %% of them locked. The optimum vacates %d nodes in %d clusters.", v.best, optimumTries)
	return v, nil
}

// rows are without a figure of the paper, which tells only how long its solver takes.
func (v *vacated) rows() []Row {
	var rows []Row
	for a, name := range []string{"Muster", "as published", "evictions"} {
		if v.best > 0 {
			rows = append(rows, Row{
				Figure: fmt.Sprintf("clusters of 25 nodes: vacated nodes, of the optimum: %s", name), Bound: "none",
				Ours: 100 * float64(v.by[a]) / float64(v.best), Unit: "%", Within: true,
			})
		}
	}
	return rows
}

// smallCluster is a cluster that has been in use for a while.
type smallCluster struct {
	nodes []optimum.Node
	pods  []optimum.Pod
}

func newSmallCluster(seed uint64) smallCluster {
	r := rand.New(rand.NewPCG(seed, 1))
	var c smallCluster
	for range optimumNodes {
		c.nodes = append(c.nodes, optimum.Node{GPUs: 8, Cores: 128})
	}
	load, locked := 0.5+float64(seed%5)/10, []float64{0.4, 0.1, 0.25}[seed%3]
	left := append([]optimum.Node(nil), c.nodes...)
	for used, misses := int64(0), 0; float64(used) < load*optimumNodes*8 && misses < 1000; {
		g := []int64{1, 1, 1, 1, 2, 2, 4, 4, 8}[r.IntN(9)]
		p := optimum.Pod{GPUs: g, Cores: g * []int64{4, 8, 12, 16, 24}[r.IntN(5)], Node: r.IntN(optimumNodes), Locked: r.Float64() < locked}
		if n := &left[p.Node]; n.GPUs >= p.GPUs && n.Cores >= p.Cores {
			n.GPUs, n.Cores, used = n.GPUs-p.GPUs, n.Cores-p.Cores, used+g
			c.pods = append(c.pods, p)
		} else {
			misses++
		}
	}
	return c
}

// used counts the nodes with pods.
func (c *smallCluster) used() int {
	on := map[int]bool{}
	for _, p := range c.pods {
		on[p.Node] = true
	}
	return len(on)
}

// plan has an engine plan for the cluster.
func (c *smallCluster) plan(a defrag.Algorithm) (core.Migrations, error) {
	e, err := core.New(core.Config{})
	if err != nil {
		return core.Migrations{}, err
	}
	tell := func(ev core.Event) {
		if err == nil {
			err = e.Apply(0, ev)
		}
	}
	tell(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
	for i, n := range c.nodes {
		tell(core.NodeAdded{Node: core.Node{Name: fmt.Sprintf("n%d", i), GPUs: int(n.GPUs), Model: "H20", CPUMilli: 1000 * n.Cores}})
	}
	next := make([]int, len(c.nodes)) // the first free device
	for i, p := range c.pods {
		j := core.Job{Name: fmt.Sprintf("j%d", i), Queue: "q", Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: core.Milli(p.GPUs) * core.WholeGPU, CPUMilli: 1000 * p.Cores}}}}
		if !p.Locked {
			j.Mobility = core.Replaceable
		}
		tell(core.JobSubmitted{Job: j})
		run := core.PodRunning{Job: j.Name, Node: fmt.Sprintf("n%d", p.Node)}
		for range p.GPUs {
			run.GPUs = append(run.GPUs, next[p.Node])
			next[p.Node]++
		}
		tell(run)
	}
	if err != nil {
		return core.Migrations{}, err
	}
	return e.Consolidation(core.Defrag{Algorithm: a}), nil
}
