package elastic

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/muster-sched/muster/core/goodput"
	"github.com/muster-sched/muster/workload"
)

// app is how an application really runs, by its measurements: what the scheduler does not know.
type app struct {
	*workload.ElasticApp
	pools []Pool
	// initBatch and maxBatch are the smallest and the largest batch size of all GPUs that was measured.
	initBatch, maxBatch float64
	// minLocal and maxLocal are those of one GPU, by pool.
	minLocal, maxLocal []float64
	// at has the step times of each configuration of each pool, in the order of [goodput.Sizes].
	sizes [][]int
	at    [][][]workload.StepTime
	// speed1 is the samples a second of one GPU, with its largest batch, by pool.
	speed1 []float64
	// configs are the ways to run a job, by pool and number of GPUs.
	configs []config
}

// config is a way to run a job: GPUs of a pool, and how long its steps take there, in the order of the batch sizes.
type config struct {
	pool, gpus int
	times      []workload.StepTime
}

// newApp looks up the configurations of each pool, or says which is not known.
func newApp(m *workload.ElasticApp, pools []Pool) (*app, error) {
	a := &app{ElasticApp: m, pools: pools}
	a.initBatch, a.maxBatch = float64(m.Runs[0].Batch), float64(m.Runs[len(m.Runs)-1].Batch)
	for _, p := range pools {
		one := m.Steps[workload.ElasticPlace{Model: p.Model, Nodes: 1, GPUs: 1}]
		if len(one) == 0 {
			return nil, fmt.Errorf("step times of one GPU of model %s for application %s, found none", p.Model, m.Name)
		}
		last := one[len(one)-1]
		a.minLocal, a.maxLocal = append(a.minLocal, one[0].Batch), append(a.maxLocal, last.Batch)
		a.speed1 = append(a.speed1, last.Batch/slices.MaxFunc(one, func(x, y workload.StepTime) int { return cmp.Compare(x.Step, y.Step) }).Step)
		sizes := goodput.Sizes(p.Nodes, p.PerNode)
		at := make([][]workload.StepTime, len(sizes))
		for k, n := range sizes {
			if at[k] = a.steps(p, n); len(at[k]) == 0 {
				return nil, fmt.Errorf("step times of %d GPUs of model %s for application %s, found none", n, p.Model, m.Name)
			}
		}
		a.sizes, a.at = append(a.sizes, sizes), append(a.at, at)
	}
	most := 1
	for p := range pools {
		most = max(most, min(mostGPUs, int(a.maxBatch/a.minLocal[p])))
	}
	for p := range pools {
		for k, n := range a.sizes[p] {
			if n <= most {
				a.configs = append(a.configs, config{p, n, a.at[p][k]})
			}
		}
	}
	return a, nil
}

// nodes is on how many nodes of a pool so many GPUs are.
func (p *Pool) nodes(gpus int) int { return (gpus + p.PerNode - 1) / p.PerNode }

// steps returns the step times of a number of GPUs of a pool. Of whole nodes that were not measured, they are between those of fewer and of more nodes.
func (a *app) steps(p Pool, gpus int) []workload.StepTime {
	place := func(nodes int) []workload.StepTime {
		return a.Steps[workload.ElasticPlace{Model: p.Model, Nodes: nodes, GPUs: nodes * gpus / p.nodes(gpus)}]
	}
	nodes := p.nodes(gpus)
	if s := place(nodes); len(s) > 0 || nodes < 2 {
		return s
	}
	low, high := nodes-1, nodes+1
	for low > 0 && len(place(low)) == 0 {
		low--
	}
	for high <= 2*nodes && len(place(high)) == 0 {
		high++
	}
	if low == 0 || high > 2*nodes {
		return nil
	}
	var out []workload.StepTime
	share := float64(nodes-low) / float64(high-low)
	more := place(high)
	for _, s := range place(low) {
		if s.Batch > more[len(more)-1].Batch {
			break
		}
		step, sync := stepOf(more, s.Batch)
		out = append(out, workload.StepTime{Batch: s.Batch, Step: s.Step + share*(step-s.Step), Sync: s.Sync + share*(sync-s.Sync)})
	}
	return out
}

// nearest returns the step times of a number of GPUs of a model on some nodes; if those were not measured, of the number that is nearest, and of that
// the number of nodes; of equals, of the fewest.
func (a *app) nearest(model string, nodes, gpus int) []workload.StepTime {
	var best []workload.StepTime
	least := [4]int{math.MaxInt}
	for p, times := range a.Steps {
		off := func(x, y int) int { return max(x-y, y-x) }
		if by := [4]int{off(p.GPUs, gpus), off(p.Nodes, nodes), p.GPUs, p.Nodes}; p.Model == model && slices.Compare(by[:], least[:]) < 0 {
			least, best = by, times
		}
	}
	return best
}

// stepOf returns the times of a step with a batch size, between those of the nearest that were measured.
func stepOf(times []workload.StepTime, batch float64) (step, sync float64) {
	i, ok := slices.BinarySearchFunc(times, batch, func(s workload.StepTime, b float64) int { return cmp.Compare(s.Batch, b) })
	switch {
	case ok || i == 0:
		return times[i].Step, times[i].Sync
	case i == len(times):
		return times[i-1].Step, times[i-1].Sync
	}
	l, h := times[i-1], times[i]
	share := (batch - l.Batch) / (h.Batch - l.Batch)
	return l.Step + share*(h.Step-l.Step), l.Sync + share*(h.Sync-l.Sync)
}

// epochs is after how many epochs a job ends.
func (a *app) epochs() int { return len(a.Runs[0].Epochs) }

// progress is how far a job is after some epochs: the least of the batch sizes.
func (a *app) progress(epochs int) float64 {
	if epochs == 0 {
		return 0
	}
	p := math.Inf(1)
	for _, r := range a.Runs {
		p = min(p, r.Epochs[epochs-1].Progress)
	}
	return p
}

// gradients returns the square and the variance of the gradients in an epoch, between the nearest batch sizes.
func (a *app) gradients(batch float64, epoch int) (sqr, variance float64) {
	i, ok := slices.BinarySearchFunc(a.Runs, batch, func(r workload.ElasticRun, b float64) int { return cmp.Compare(float64(r.Batch), b) })
	i = min(i, len(a.Runs)-1)
	h := a.Runs[i].Epochs[epoch]
	if ok || i == 0 {
		return h.GradSqr, h.GradVar
	}
	l := a.Runs[i-1].Epochs[epoch]
	share := (batch - float64(a.Runs[i-1].Batch)) / float64(a.Runs[i].Batch-a.Runs[i-1].Batch)
	return l.GradSqr + share*(h.GradSqr-l.GradSqr), l.GradVar + share*(h.GradVar-l.GradVar)
}
