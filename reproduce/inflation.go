package reproduce

import (
	"context"
	"fmt"
	"math"
	"math/rand"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// filling is the cluster filled once: by which policy, with the pods of which
// list in the order of which seed, and what it came to.
type filling struct {
	list   string
	pool   []workload.Job
	policy core.Policy
	seed   int64
	ratio  inflation
}

// fillAll does every filling, as many at once as there are cores. They share
// nothing that changes.
func fillAll(ctx context.Context, o *Options, cluster *workload.Cluster, capacity int64, fills []filling) error {
	said := ""
	say := func(i int) {
		if what := fills[i].list + ": " + fills[i].policy.Name; what != said {
			o.say("%s", what)
			said = what
		}
	}
	return inParallel(ctx, len(fills), say, func(i int) (err error) {
		f := &fills[i]
		pods, nodes := inflate(f.pool, cluster.Nodes, capacity, f.seed)
		f.ratio, err = fill(cluster.Levels, nodes, pods, f.policy, capacity)
		return err
	})
}

// simulatorWatches is how many watches the simulator starts before it shuffles
// the nodes; each draws how long it will last.
const simulatorWatches = 10

// inflate returns the arrivals of the inflation experiment (Weng et al., ATC
// 2023, §6.1, as their simulator does it): the pods in random order, then random
// ones of them again until 1.3 times the capacity (milli-GPU) has been asked
// for. Then it shuffles the nodes: the first of them wins where scores are equal.
// pool and nodes are sorted by name. math/rand's first generator is part of the
// experiment's definition.
func inflate(pool []workload.Job, nodes []core.Node, capacity int64, seed int64) ([]workload.Job, []core.Node) {
	r := rand.New(rand.NewSource(seed))
	r.Int()
	pods := slices.Clone(pool)
	r.Shuffle(len(pods), func(i, k int) { pods[i], pods[k] = pods[k], pods[i] })
	asked := int64(0)
	for i := range pods {
		asked += int64(pods[i].GPUs())
	}
	for {
		p := pool[r.Intn(len(pool))]
		if float64(asked+perGPU(&p)) > 1.3*float64(capacity) {
			break
		}
		p.Name = fmt.Sprintf("%s-tuned-%d", p.Name, len(pods)-len(pool))
		pods = append(pods, p)
		asked += int64(p.GPUs())
	}
	for range simulatorWatches {
		r.Float64()
	}
	shuffled := make([]core.Node, len(nodes))
	for i, at := range r.Perm(len(nodes)) {
		shuffled[at] = nodes[i]
	}
	return pods, shuffled
}

// perGPU returns the milli-GPU that a pod takes of each of its devices.
func perGPU(j *workload.Job) int64 { return int64(min(j.Tasks[0].GPU, core.WholeGPU)) }

// inflation is the GPU allocation ratio, in per cent, by the demand that has
// arrived, in whole per cent of the capacity.
type inflation map[int]float64

// fill lets pods arrive one by one; one that finds no room is gone for good.
func fill(levels []string, nodes []core.Node, pods []workload.Job, p core.Policy, capacity int64) (inflation, error) {
	e, err := core.New(core.Config{Policy: p, Levels: levels})
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		if err := e.Apply(0, core.NodeAdded{Node: nodes[i]}); err != nil {
			return nil, err
		}
	}
	if err := e.Apply(0, core.QueueSet{Queue: core.Queue{Name: workload.DefaultQueue, Weight: 1}}); err != nil {
		return nil, err
	}
	y := inflation{}
	arrived, used := int64(0), int64(0)
	for i := range pods {
		j := pods[i].Job
		j.Queue, j.Submitted, j.Priority, j.Class = workload.DefaultQueue, 0, 0, core.HP
		if err := e.Apply(0, core.JobSubmitted{Job: j}); err != nil {
			return nil, err
		}
		bound := false
		for _, d := range e.Decide(0) {
			bound = bound || d.Op == core.Bind && d.Job == j.Name
		}
		arrived += int64(j.GPUs())
		if bound {
			used += int64(j.GPUs())
		} else if err := e.Apply(0, core.JobEnded{Job: j.Name}); err != nil {
			return nil, err
		}
		y[int(math.Round(100*float64(arrived)/float64(capacity)))] = 100 * float64(used) / float64(capacity)
	}
	return y, nil
}
