// Package elastic is how fast jobs train on any number of GPUs of several models, as they were measured, and what a scheduler knows
// of that: it is what was seen of the steps of a job. A model is fitted to them, as in Pollux (OSDI 2021), and says what other
// GPUs would be worth.
//
// The rules are those of the simulator of Sia's authors (siasosp23/artifacts, sia-simulator): a job gets at most twice the GPUs of which steps
// were seen; what it would be worth on a model of which none were seen follows from another one. Values are not rounded to hundredths.
package elastic

import (
	"fmt"
	"math"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// Pool is nodes with GPUs of a model.
type Pool struct {
	Model string
	// PerNode is a power of two.
	Nodes, PerNode int
}

// Options say on what jobs run, and how much the scheduler knows about them.
type Options struct {
	Pools []Pool
	// Profile is for how many seconds each job runs on one GPU of each pool before it is trained; 0: not at all.
	Profile float64
	// Similar says for which jobs, by their numbers, similar ones are found, if some of the same application have ended: they are not profiled,
	// and what was seen of the last of those is known from the start. nil: for none.
	Similar func(job int) bool
	// Known says that all that was measured is known.
	Known bool
}

// Apps are the applications of a simulation, and what became known of them.
type Apps struct {
	Options
	apps map[*workload.ElasticApp]*app
	// finished has the last job that ended, by application.
	finished map[*app]*Job
}

// New returns the applications of jobs that run on some pools.
func New(o Options) *Apps {
	return &Apps{Options: o, apps: map[*workload.ElasticApp]*app{}, finished: map[*app]*Job{}}
}

// Submit returns a job that is submitted, with its number. similar says that what is known of one that has ended is known of it. The error says
// what is expected of what was measured.
func (s *Apps) Submit(number int, t *workload.Training) (j *Job, similar bool, err error) {
	a := s.apps[t.App]
	if a == nil {
		if a, err = newApp(t.App, s.Pools); err != nil {
			return nil, false, err
		}
		s.apps[t.App] = a
	}
	if float64(t.Batch) < a.initBatch {
		return nil, false, fmt.Errorf("a batch of at least %g for application %s, found %d", a.initBatch, t.App.Name, t.Batch)
	}
	j = &Job{app: a, userBatch: t.Batch, pool: -1, known: newKnown(len(s.Pools)), unprofiled: make([]bool, len(s.Pools)), profile: s.Profile}
	like := s.finished[a]
	switch {
	case s.Known:
		for p, pool := range s.Pools {
			j.observeAll(p, pool.Nodes*pool.PerNode)
		}
	case like != nil && s.Similar != nil && s.Similar(number):
		j.known, similar = like.forSimilar(), true
	case s.Profile > 0:
		for p := range j.unprofiled {
			j.unprofiled[p] = true
		}
	}
	return j, similar, nil
}

// End records that a job has ended: others are like it.
func (s *Apps) End(j *Job) { s.finished[j.app] = j }

// mostGPUs is the most GPUs that a job gets.
const mostGPUs = 64

// Tasks are the ways to run the job, each as a task: by pool, and by the number of GPUs. Up to a node it is one pod, then one for each node.
func (j *Job) Tasks() []core.Task {
	var out []core.Task
	for _, c := range j.configs {
		p := j.pools[c.pool]
		per := min(c.gpus, p.PerNode)
		out = append(out, core.Task{
			Name: fmt.Sprintf("%s-%d", p.Model, c.gpus), Pods: c.gpus / per,
			Request: core.Request{GPU: core.Milli(per) * core.WholeGPU, Models: []string{p.Model}},
		})
	}
	return out
}

// goodputUnit is how many units of [Job.Goodputs] a sample a second is.
const goodputUnit = 1e6

// Goodputs are what the ways to run the job are expected to be worth, in the order of [Job.Tasks]: its goodput, in samples a second; 0 where it is not to
// run so. It gets at most twice as many GPUs as were seen (Sia §3.3). The goodput in a pool none of whose steps were seen follows from that in another
// one, as far as one GPU is faster.
func (j *Job) Goodputs() []int64 {
	j.rests = false
	out := make([]int64, len(j.configs))
	if j.toProfile() {
		for i, c := range j.configs {
			if c.gpus == 1 && j.unprofiled[c.pool] {
				out[i] = goodputUnit
			}
		}
		return out
	}
	most := 1
	for p := range j.pools {
		most = max(most, min(max(2*j.most[p], 1), mostGPUs, int(j.maxBatch/j.minLocal[p])))
	}
	from := -1
	for p := range j.pools {
		if from < 0 && j.grads != nil && j.fitted(p) != nil {
			from = p
		}
	}
	for i, c := range j.configs {
		switch {
		case c.gpus > most || from < 0 && c.gpus > 1:
		case from < 0:
			out[i] = goodputUnit
		default:
			out[i] = int64(math.Round(max(0, j.estimate(c, from)) * goodputUnit))
		}
	}
	return out
}

// estimate is the goodput that the job is expected to have on GPUs of a pool, by its model of that pool or else of another one.
func (j *Job) estimate(c config, other int) float64 {
	factor := 1.0
	if j.fitted(c.pool) != nil {
		other = c.pool
	} else {
		factor = j.speed1[c.pool] / j.speed1[other]
	}
	// The authors' simulator lets the scheduler look at batches up to the one that the user tuned.
	l := limits{j.initBatch, float64(j.userBatch), j.minLocal[other], j.maxLocal[other]}
	return factor * j.fitted(other).tune(*j.grads, j.pools[other].nodes(c.gpus), c.gpus, l).goodput
}
