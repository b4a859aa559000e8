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

// filling is one filling of the cluster: the policy, the list of pods, the seed of their
// order, and the result.
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
// ones of them again until 1.3 times the capacity (milli-GPU) is asked for, or
// less some random ones if they ask for more. Then it shuffles the nodes: the
// first of them wins where scores are equal. pool and nodes are sorted by name,
// and some of the pool ask for GPUs. math/rand's first generator is part of the
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
	if most := 1.3 * float64(capacity); float64(asked) > most {
		pods = thin(r, pods, asked, most)
	} else {
		pods = grow(r, pods, pool, asked, most)
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

// grow adds random pods of the pool until the next would ask for more than most.
func grow(r *rand.Rand, pods, pool []workload.Job, asked int64, most float64) []workload.Job {
	for i := 0; ; i++ {
		p := pool[r.Intn(len(pool))]
		if float64(asked+perGPU(&p)) > most {
			return pods
		}
		p.Name = fmt.Sprintf("%s-tuned-%d", p.Name, i)
		pods = append(pods, p)
		asked += int64(p.GPUs())
	}
}

// thin takes random pods away until the others ask for no more than most.
func thin(r *rand.Rand, pods []workload.Job, asked int64, most float64) []workload.Job {
	for float64(asked) > most {
		i := r.Intn(len(pods))
		asked -= int64(pods[i].GPUs())
		pods = slices.Delete(pods, i, i+1)
	}
	return pods
}

// perGPU returns the milli-GPU that a pod takes of each of its devices.
func perGPU(j *workload.Job) int64 { return int64(min(j.Tasks[0].GPU, core.WholeGPU)) }

// inflation is the GPU allocation ratio, in per cent, over the demand that has
// arrived, rounded to whole per cent of the capacity: of each, how many pods
// arrived and the sum of the ratios after them.
type inflation map[int]struct {
	pods int
	sum  float64
}

func (y inflation) add(arrived, ratio float64) {
	x := y[int(math.Round(arrived))]
	x.pods++
	x.sum += ratio
	y[int(math.Round(arrived))] = x
}

// at returns the mean ratio at this many per cent of arrivals or, where no pod
// arrived then, as near to it as one did; 0 if none ever did.
func (y inflation) at(arrived int) float64 {
	for d := 0; len(y) > 0; d++ {
		low, high := y[arrived-d], y[arrived+d]
		if n := low.pods + high.pods; n > 0 {
			return (low.sum + high.sum) / float64(n)
		}
	}
	return 0
}

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
		y.add(100*float64(arrived)/float64(capacity), 100*float64(used)/float64(capacity))
	}
	return y, nil
}
