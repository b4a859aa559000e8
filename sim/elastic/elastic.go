// Package elastic simulates jobs that train on any number of GPUs of several models, under Sia (SOSP 2023): in each round each of them
// gets a configuration by [goodput.Choose], and is as fast as it was measured to be. What the scheduler knows is what it has seen of the steps of a job:
// a model is fitted to them, as in Pollux (OSDI 2021), and says what other configurations would be worth.
//
// The rules are those of the simulator of Sia's authors (siasosp23/artifacts, sia-simulator); what we leave out is said in [Run].
package elastic

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/goodput"
	"github.com/muster-sched/muster/workload"
)

// Pool is nodes with GPUs of a model.
type Pool struct {
	Model string
	// PerNode is a power of two.
	Nodes, PerNode int
}

// Options say how jobs are scheduled, and how much the scheduler knows about them.
type Options struct {
	Pools []Pool
	// Round is the time between decisions, in seconds, above 0.
	Round     float64
	Objective goodput.Objective
	// Restart is how long the GPUs of a job that starts are idle, in seconds, and Expected what the scheduler takes that to be; by application,
	// 30 for others.
	Restart, Expected map[string]float64
	// Slower is how much longer than measured the steps of an application take, 1 or more: what lies between steps.
	Slower map[string]float64

	// Profile is for how many seconds each job runs on one GPU of each pool before it is trained; 0: not at all.
	Profile float64
	// Similar says for which jobs similar ones are found, if some of the same application have ended: they are not profiled, and what
	// was seen of the last of those is known from the start. nil: for none.
	Similar func(job int) bool
	// Known says that all that was measured is known.
	Known bool
}

const defaultRestart = 30

// Outcome is what became of the jobs.
type Outcome struct {
	// Took is the time from each job's submission to its end, in seconds, in the order of the jobs.
	Took []float64
	// Makespan is when the last job ended, in seconds.
	Makespan float64
	// GPUSeconds is what all jobs held.
	GPUSeconds float64
	// Restarts is how often jobs started beyond their first start; Similar is for how many jobs similar ones were found.
	Restarts, Similar int
	// Mean and Most are how many jobs there were at a time that had not ended, over the rounds.
	Mean float64
	Most int
}

// Run simulates jobs until all have ended. Jobs that change their nodes but not their configuration do not restart, as in the authors' simulator.
func Run(m *workload.Elastic, jobs []workload.ElasticJob, o Options) (out Outcome, err error) {
	r := &run{Options: o, finished: map[string]*job{}}
	for _, p := range o.Pools {
		r.free = append(r.free, p.Nodes*p.PerNode)
	}
	if err := r.open(m, jobs); err != nil {
		return out, err
	}
	for rounds := 1; ; rounds++ {
		r.round(float64(rounds)*o.Round, &out)
		if r.left == 0 {
			out.Mean /= float64(rounds)
			break
		}
	}
	for _, j := range r.jobs {
		out.Took = append(out.Took, j.ended-j.submitted)
		out.Makespan = max(out.Makespan, j.ended)
		out.GPUSeconds += j.gpuSeconds
		out.Restarts += j.starts - 1
	}
	return out, nil
}

// run is the state of a simulation.
type run struct {
	Options
	free []int // GPUs by pool
	jobs []*job
	// active are the jobs that were submitted and have not ended, in the order of their submissions; next is the first that was not submitted.
	active []*job
	next   int
	left   int // jobs that have not ended
	// finished has the last job that ended, by application.
	finished map[string]*job
}

// open makes the jobs, or says which cannot be simulated.
func (r *run) open(m *workload.Elastic, jobs []workload.ElasticJob) error {
	apps := map[string]*app{}
	for _, w := range jobs {
		a := apps[w.App]
		if a == nil {
			measured := m.App(w.App)
			if measured == nil {
				return fmt.Errorf("job %s: expected an application that was measured, found %q", w.Name, w.App)
			}
			var err error
			if a, err = newApp(measured, r.Pools, &r.Options); err != nil {
				return err
			}
			apps[w.App] = a
		}
		j := &job{ElasticJob: w, app: a, submitted: float64(w.Submitted) / float64(core.Second), pool: -1, ended: -1, known: newKnown(len(r.Pools))}
		if float64(w.Batch) < a.initBatch {
			return fmt.Errorf("job %s: expected a batch of at least %g, found %d", w.Name, a.initBatch, w.Batch)
		}
		j.unprofiled = make([]bool, len(r.Pools))
		r.jobs = append(r.jobs, j)
	}
	r.left = len(r.jobs)
	return nil
}

// round lets jobs run until now, and decides where they run from then on.
func (r *run) round(now float64, out *Outcome) {
	for _, j := range r.active {
		if j.advance(r.Round); j.ended >= 0 {
			r.left--
			r.finished[j.App] = j
		}
	}
	r.active = slices.DeleteFunc(r.active, func(j *job) bool { return j.ended >= 0 })
	for ; r.next < len(r.jobs) && r.jobs[r.next].submitted <= now; r.next++ {
		j := r.jobs[r.next]
		j.now = now
		r.submit(r.next, j, out)
		r.active = append(r.active, j)
	}
	out.Mean += float64(len(r.active))
	out.Most = max(out.Most, len(r.active))

	// Jobs whose GPUs are idle keep them; the others get what is free.
	free := slices.Clone(r.free)
	var choosing []*job
	var tables [][]goodput.Config
	for _, j := range r.active {
		if j.pool >= 0 && j.idle > 0 {
			free[j.pool] -= j.gpus
			continue
		}
		choosing, tables = append(choosing, j), append(tables, r.configs(j, now))
	}
	for i, c := range goodput.Choose(free, tables) {
		j := choosing[i]
		if c == goodput.None {
			j.runOn(-1, 0)
			continue
		}
		j.runOn(tables[i][c].Model, tables[i][c].GPUs)
		if j.unprofiled[j.pool] && !j.profiling {
			j.profiling, j.idle = true, j.restart+r.Profile
		}
	}
}

// submit says what is known about a job from the start.
func (r *run) submit(i int, j *job, out *Outcome) {
	similar := r.finished[j.App]
	switch {
	case r.Known:
		for p := range r.Pools {
			j.observeAll(p, r.free[p])
		}
	case similar != nil && r.Similar != nil && r.Similar(i):
		j.known = similar.forSimilar()
		out.Similar++
	case r.Profile > 0:
		for p := range j.unprofiled {
			j.unprofiled[p] = true
		}
	}
}

// most64 is the most GPUs that a job gets.
const most64 = 64

// configs are the configurations of a job and what they are worth, the one that it has first. It gets at most twice as many GPUs as were seen
// (Sia §3.3). The goodput in a pool none of whose steps were seen follows from that in another one, as far as one GPU is faster (§3.3).
func (r *run) configs(j *job, now float64) []goodput.Config {
	if slices.Contains(j.unprofiled, true) {
		return r.toProfile(j)
	}
	most := 1
	for p := range r.Pools {
		most = max(most, min(max(2*j.most[p], 1), most64, int(j.maxBatch/j.minLocal[p])))
	}
	from := -1
	for p := range r.Pools {
		if from < 0 && j.grads != nil && j.fitted(p) != nil {
			from = p
		}
	}
	var out []goodput.Config
	var values []float64
	least := 0.0
	for p := range r.Pools {
		for _, n := range j.sizes[p] {
			if n > most || from < 0 && n > 1 {
				break
			}
			v := 1.0
			if from >= 0 {
				v = r.estimate(j, p, from, n)
			}
			if v <= 0 {
				continue
			}
			if least == 0 || v < least {
				least = v
			}
			out, values = append(out, goodput.Config{Model: p, GPUs: n}), append(values, v)
		}
	}
	cost := r.Expected[j.App]
	if cost == 0 {
		cost = defaultRestart
	}
	factor := goodput.RestartFactor(now-j.submitted, max(0, j.starts-1), cost)
	has := 0
	for i := range out {
		v := values[i] / least
		if same := j.pool == out[i].Model && j.gpus == out[i].GPUs; same {
			has = i
		} else if j.pool >= 0 {
			v *= factor
		}
		out[i].Value = r.Objective.Value(v)
	}
	if has > 0 {
		first := out[has]
		copy(out[1:has+1], out[:has])
		out[0] = first
	}
	return out
}

// estimate is the goodput that a job is expected to have on GPUs of a pool, by its model of that pool or else of another one.
func (r *run) estimate(j *job, pool, other, gpus int) float64 {
	factor := 1.0
	if j.fitted(pool) != nil {
		other = pool
	} else {
		factor = j.speed1[pool] / j.speed1[other]
	}
	// The authors' simulator lets the scheduler look at batches up to the one that the user tuned.
	l := limits{j.initBatch, float64(j.Batch), j.minLocal[other], j.maxLocal[other]}
	return factor * j.fitted(other).tune(*j.grads, r.Pools[other].nodes(gpus), gpus, l).goodput
}

// toProfile are one GPU of each pool on which a job was not profiled.
func (r *run) toProfile(j *job) []goodput.Config {
	var out []goodput.Config
	for p, is := range j.unprofiled {
		if is {
			out = append(out, goodput.Config{Model: p, GPUs: 1, Value: r.Objective.Value(1)})
		}
	}
	return out
}
