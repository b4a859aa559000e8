package elastic

import (
	"slices"

	"github.com/muster-sched/muster/workload"
)

// job is a training: how far it is, and what the scheduler has learned of it.
type job struct {
	workload.ElasticJob
	*app
	submitted float64 // seconds

	// pool and gpus are where it runs; pool is -1 if it does not run.
	pool, gpus int
	// batch and steps are how it splits its batch.
	batch, steps int
	// idle is for how many seconds from now on its GPUs compute nothing, as it restarts or is profiled.
	idle float64
	// starts counts how often it started.
	starts int

	epoch      int
	progress   float64
	now, ended float64 // seconds; ended is -1 while it has not
	gpuSeconds float64

	known
	// unprofiled says on which pools it must be profiled before it may run; profiling says that it is being profiled.
	unprofiled []bool
	profiling  bool
}

// known is what is known about a job: the steps that it, or a similar one, made in each pool, and its gradients.
type known struct {
	seen  [][]observation
	once  map[[4]int]bool // pool, nodes, GPUs, batch
	most  []int           // GPUs of a step, by pool
	model []*params       // by pool; nil if no step was seen
	stale []bool          // by pool: steps were seen since the model was fitted
	// grads are the last gradients, first the first ones; nil if there are none.
	grads, first *gradients
}

func newKnown(pools int) known {
	return known{
		seen: make([][]observation, pools), once: map[[4]int]bool{}, most: make([]int, pools), model: make([]*params, pools), stale: make([]bool, pools),
	}
}

// forSimilar is what is known about a job from a similar one that has ended: its steps, and the gradients with which it began.
func (k *known) forSimilar() known {
	c := newKnown(len(k.seen))
	for i := range k.seen {
		c.seen[i] = slices.Clip(k.seen[i])
	}
	for key := range k.once {
		c.once[key] = true
	}
	copy(c.most, k.most)
	copy(c.model, k.model)
	copy(c.stale, k.stale)
	c.grads, c.first = k.first, k.first
	return c
}

// observe adds a step. The same one is not added twice.
func (k *known) observe(pool, nodes, gpus, batch int, step, sync float64) {
	key := [4]int{pool, nodes, gpus, batch}
	if k.once[key] {
		return
	}
	k.once[key] = true
	k.seen[pool] = append(k.seen[pool], observation{nodes, gpus, batch, max(step-sync, step/1000), step})
	k.most[pool] = max(k.most[pool], gpus)
	k.stale[pool] = true
}

// observeGradients records those of the last step.
func (k *known) observeGradients(g gradients) {
	if k.grads = &g; k.first == nil {
		k.first = &g
	}
}

// fitted returns the model of a pool, nil if none of its steps were seen.
func (k *known) fitted(pool int) *params {
	if k.stale[pool] {
		p := fit(k.seen[pool], k.model[pool])
		k.model[pool], k.stale[pool] = &p, false
	}
	return k.model[pool]
}

// observeAll adds the steps of a pool that were measured of at most a number of GPUs.
func (j *job) observeAll(pool, gpus int) {
	for k, n := range j.sizes[pool] {
		if n > gpus {
			return
		}
		for _, s := range j.at[pool][k] {
			j.observe(pool, j.pools[pool].nodes(n), n, int(s.Batch), s.Step, s.Sync)
		}
	}
	j.startGradients()
}

// startGradients records the gradients of an untrained model.
func (j *job) startGradients() {
	if j.grads == nil {
		sqr, variance := j.app.gradients(j.initBatch, 0)
		j.observeGradients(gradients{sqr, variance})
	}
}

// measured returns the step times where the job runs.
func (j *job) measured() []workload.StepTime {
	return j.at[j.pool][slices.Index(j.sizes[j.pool], j.gpus)]
}

// runOn starts the job, or restarts it, on GPUs of a pool; on none if that is -1.
func (j *job) runOn(pool, gpus int) {
	if j.pool == pool && j.gpus == gpus {
		return
	}
	if j.pool, j.gpus = pool, gpus; pool < 0 {
		return
	}
	j.idle = j.restart
	j.starts++
	j.tuneBatch()
}

// tuneBatch chooses the batch size, from what is known.
func (j *job) tuneBatch() {
	nodes, times := j.pools[j.pool].nodes(j.gpus), j.measured()
	low, high := j.minLocal[j.pool], times[len(times)-1].Batch
	if p := j.fitted(j.pool); p != nil && j.grads != nil {
		t := p.tune(*j.grads, nodes, j.gpus, limits{j.initBatch, j.maxBatch, low, high})
		j.batch, j.steps = t.batch, t.steps
	} else {
		total := max(j.initBatch, low*float64(j.gpus))
		j.batch, j.steps = split(total, j.gpus, j.initBatch, high)
	}
	j.batch = max(1, min(j.batch, int(high), int(j.maxBatch)/(j.gpus*j.steps)))
}

// advance lets the job run for some seconds, less those in which its GPUs are idle.
func (j *job) advance(seconds float64) {
	if j.pool < 0 {
		j.now += seconds
		return
	}
	idle := min(j.idle, seconds)
	j.idle -= idle
	j.now += idle
	j.gpuSeconds += seconds * float64(j.gpus)
	left := seconds - idle
	if j.profiling && j.idle == 0 {
		j.profiling, j.unprofiled[j.pool] = false, false
		j.observeAll(j.pool, 1)
		j.now += left
		return
	}
	for left > 0 && j.ended < 0 {
		left = j.train(left)
		j.tuneBatch()
	}
	if j.ended >= 0 {
		j.gpuSeconds -= left * float64(j.gpus)
	}
	j.now += left
}

// train lets the job train to the end of its epoch, for at most the given seconds, and returns how many are left. What its steps take and
// how its gradients are is observed.
func (j *job) train(seconds float64) (left float64) {
	total := float64(j.gpus * j.batch * j.steps)
	sqr, variance := j.app.gradients(total, j.epoch)
	g := gradients{sqr, variance}
	step, sync := stepOf(j.measured(), float64(j.batch))
	j.observe(j.pool, j.pools[j.pool].nodes(j.gpus), j.gpus, j.batch, step, sync)
	j.observeGradients(g)
	rate := g.gain(total/j.initBatch) / (step + float64(j.steps-1)*max(0, step-sync)) / j.slow
	next := j.app.progress(j.epoch + 1)
	if j.progress+rate*seconds < next {
		j.progress += rate * seconds
		j.now += seconds
		return 0
	}
	took := min(seconds, (next-j.progress)/rate)
	j.now += took
	j.progress = next
	if j.epoch++; j.epoch == j.epochs() {
		j.ended = j.now
	}
	return seconds - took
}
