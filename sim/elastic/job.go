package elastic

import (
	"math"
	"slices"

	"github.com/muster-sched/muster/workload"
)

// Job is a training: how far it is, and what the scheduler has learned of it. Times are in seconds.
type Job struct {
	*app
	userBatch int // that its user tuned
	profile   float64

	// pool and gpus are where it runs, on so many nodes; pool is -1 if it does not run.
	pool, gpus, onNodes int
	// times are those of its steps there.
	times []workload.StepTime
	// fixed says that it keeps the batch that its user tuned.
	fixed bool
	// batch and steps are how it splits its batch.
	batch, steps int
	// idle is for how many seconds from now on its GPUs compute nothing, as it restarts or is profiled.
	idle float64

	epoch    int
	progress float64

	known
	// unprofiled says on which pools it must be profiled before it may run; profiling says that it is being profiled, rests that it has been: it
	// waits for what follows from that.
	unprofiled       []bool
	profiling, rests bool
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
func (j *Job) observeAll(pool, gpus int) {
	for k, n := range j.sizes[pool] {
		if n > gpus {
			break
		}
		for _, s := range j.at[pool][k] {
			j.observe(pool, j.pools[pool].nodes(n), n, int(s.Batch), s.Step, s.Sync)
		}
	}
	j.startGradients()
}

// startGradients records the gradients of an untrained model.
func (j *Job) startGradients() {
	if j.grads == nil {
		sqr, variance := j.app.gradients(j.initBatch, 0)
		j.observeGradients(gradients{sqr, variance})
	}
}

func (j *Job) toProfile() bool { return slices.Contains(j.unprofiled, true) }

// Start starts the job as one of [Job.Tasks]. Its GPUs are idle for as long as a restart takes or, as long as it must be profiled there, for the profile beside.
func (j *Job) Start(task int) {
	c := j.configs[task]
	j.pool, j.gpus, j.onNodes, j.times = c.pool, c.gpus, j.pools[c.pool].nodes(c.gpus), c.times
	j.idle, j.rests = j.Restart, false
	if j.profiling = j.unprofiled[c.pool]; j.profiling {
		j.idle += j.profile
	}
	j.tuneBatch()
}

// StartFixed starts the job on as many GPUs as its user asked for, of a model, on some nodes, with the batch that its user tuned. If just that was not
// measured, it is as fast as on the GPUs that are most like these.
func (j *Job) StartFixed(model string, nodes, gpus int) {
	j.pool = slices.IndexFunc(j.pools, func(p Pool) bool { return p.Model == model })
	j.gpus, j.onNodes, j.times, j.fixed = gpus, nodes, j.nearest(model, nodes, gpus), true
	j.idle = j.Restart
	j.batch, j.steps = split(float64(j.userBatch), gpus, j.initBatch, j.times[len(j.times)-1].Batch)
}

// Stop takes the job off its GPUs. It keeps what it has done.
func (j *Job) Stop() { j.pool, j.profiling, j.idle = -1, false, 0 }

// Idle is for how long from now on its GPUs compute nothing, as it starts or is profiled.
func (j *Job) Idle() float64 { return j.idle }

// Ended reports whether it has done its work.
func (j *Job) Ended() bool { return j.epoch == j.epochs() }

// tuneBatch chooses the batch size, from what is known.
func (j *Job) tuneBatch() {
	if j.fixed {
		return
	}
	low, high := j.minLocal[j.pool], j.times[len(j.times)-1].Batch
	if p := j.fitted(j.pool); p != nil && j.grads != nil {
		t := p.tune(*j.grads, j.onNodes, j.gpus, limits{j.initBatch, j.maxBatch, low, high})
		j.batch, j.steps = t.batch, t.steps
	} else {
		total := max(j.initBatch, low*float64(j.gpus))
		j.batch, j.steps = split(total, j.gpus, j.initBatch, high)
	}
	j.batch = max(1, min(j.batch, int(high), int(j.maxBatch)/(j.gpus*j.steps)))
}

// Next is after how long the job has started, or is at the end of an epoch; infinite if it does not run, or rests.
func (j *Job) Next() float64 {
	switch {
	case j.pool < 0 || j.rests || j.Ended():
		return math.Inf(1)
	case j.idle > 0:
		return j.idle
	}
	_, rate := j.rate()
	return (j.app.progress(j.epoch+1) - j.progress) / rate
}

// Advance lets the job run for some seconds, less those in which its GPUs are idle.
func (j *Job) Advance(seconds float64) {
	if j.pool < 0 || j.rests {
		return
	}
	idle := min(j.idle, seconds)
	j.idle -= idle
	left := seconds - idle
	if j.profiling && j.idle == 0 {
		j.profiling, j.unprofiled[j.pool], j.rests = false, false, true
		j.observeAll(j.pool, 1)
		return
	}
	for left > 0 && !j.Ended() {
		left = j.train(left)
		j.tuneBatch()
	}
}

// rate is how fast the job gets on now, in progress a second, and its gradients.
func (j *Job) rate() (gradients, float64) {
	total := float64(j.gpus * j.batch * j.steps)
	sqr, variance := j.app.gradients(total, j.epoch)
	g := gradients{sqr, variance}
	step, sync := stepOf(j.times, float64(j.batch))
	return g, g.gain(total/j.initBatch) / (step + float64(j.steps-1)*max(0, step-sync)) / max(1, j.Slower)
}

// train lets the job train to the end of its epoch, for at most the given seconds, and returns how many are left. What its steps take and
// how its gradients are is observed.
func (j *Job) train(seconds float64) (left float64) {
	g, rate := j.rate()
	if !j.fixed {
		step, sync := stepOf(j.times, float64(j.batch))
		j.observe(j.pool, j.onNodes, j.gpus, j.batch, step, sync)
		j.observeGradients(g)
	}
	next := j.app.progress(j.epoch + 1)
	if j.progress+rate*seconds < next {
		j.progress += rate * seconds
		return 0
	}
	took := min(seconds, (next-j.progress)/rate)
	j.progress = next
	j.epoch++
	return seconds - took
}

// Alone is how long the job would take from its start to its end on as many GPUs, of a model, on the fewest nodes.
func (j *Job) Alone(model string, gpus int) float64 {
	p := slices.IndexFunc(j.pools, func(p Pool) bool { return p.Model == model })
	c := &Job{app: j.app, userBatch: j.userBatch}
	c.StartFixed(model, j.pools[p].nodes(gpus), gpus)
	took := c.idle
	c.idle = 0
	for !c.Ended() {
		n := c.Next()
		took += n
		c.Advance(n * (1 + 1e-12))
	}
	return took
}
