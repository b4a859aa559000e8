package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim/elastic"
	"github.com/muster-sched/muster/workload"
)

// Jobs whose training was measured ([workload.Training]) are as fast as that says where they run. Under a policy that chooses by
// goodput ([core.Goodput]) they are submitted with all ways to run them as alternatives, and at the end of each round the
// engine is told what is known of each of them. Under other policies they run on as many GPUs as their users asked for. They keep what
// they have done when they are evicted; what a start takes is part of what was measured.

// Trained is what a run counts of jobs whose training was measured.
type Trained struct {
	// Jobs counts those that were submitted, Similar those of which a similar one was known, and Restarts the starts beyond the first one of each.
	Jobs     int `json:"jobs"`
	Similar  int `json:"similar"`
	Restarts int `json:"restarts"`
}

// trainings are the jobs whose training was measured.
type trainings struct {
	apps *elastic.Apps // nil before the first such job
	live []*state      // in the order of their submissions
	// learns is set while the end of a round is planned.
	learns bool
}

// training is the state of such a job.
type training struct {
	*elastic.Job
	at     core.Time // until when it has advanced
	starts int
	said   core.JobMeasured // what the engine was told last
}

// train gives a job that is submitted its training, if that was measured: the engine may choose how it runs.
func (r *run) train(j *workload.Job) (*training, error) {
	if j.Training == nil {
		return nil, nil
	}
	pools, err := r.pools()
	if r.trainings.apps == nil && err == nil {
		g := &r.Policy.Goodput
		o := elastic.Options{Pools: pools, Profile: g.Profile.Seconds(), Known: r.Models.Known}
		if g.Similar {
			o.Similar = func(job int) bool {
				return rand.New(rand.NewPCG(r.Seed^0x73696d, uint64(job))).Float64() < r.Models.Similar // "sim"
			}
		}
		r.trainings.apps = elastic.New(o)
	}
	if err != nil {
		return nil, &workload.Error{File: "job " + j.Name, Want: err.Error()}
	}
	t, similar, err := r.trainings.apps.Submit(r.stats.Submitted, j.Training)
	if err != nil {
		return nil, &workload.Error{File: "job " + j.Name, Want: err.Error()}
	}
	if r.stats.Trained == nil {
		r.stats.Trained = &Trained{}
	}
	r.stats.Trained.Jobs++
	if similar {
		r.stats.Trained.Similar++
	}
	j.Duration = seconds(t.Alone(pools[0].Model, int(j.GPUs()/core.WholeGPU)))
	if r.Policy.Goodput.Round > 0 {
		j.Gang, j.Alternatives, j.Tasks = true, true, t.Tasks()
	}
	return &training{Job: t}, nil
}

// pools are the GPU models of the cluster, sorted, or what is expected of them.
func (r *run) pools() ([]elastic.Pool, error) {
	var out []elastic.Pool
	for i := range r.Cluster.Nodes {
		n := &r.Cluster.Nodes[i]
		if n.GPUs == 0 {
			continue
		}
		k, ok := slices.BinarySearchFunc(out, n.Model, func(p elastic.Pool, m string) int {
			if p.Model < m {
				return -1
			}
			if p.Model > m {
				return 1
			}
			return 0
		})
		if !ok {
			out = slices.Insert(out, k, elastic.Pool{Model: n.Model, PerNode: n.GPUs})
		}
		if p := &out[k]; p.PerNode != n.GPUs || n.GPUs&(n.GPUs-1) != 0 {
			return nil, fmt.Errorf("nodes of GPU model %s with as many GPUs each, a power of two; found %d on %s", n.Model, n.GPUs, n.Name)
		}
		out[k].Nodes++
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("nodes with GPUs; found none")
	}
	return out, nil
}

// trainsFrom begins what follows from the submission of such a job: the engine is told what is known of it, now and at the end of each round in which
// jobs train.
func (r *run) trainsFrom(now core.Time, s *state) error {
	if s.training == nil {
		return nil
	}
	r.trainings.live = append(r.trainings.live, s)
	if !s.Alternatives {
		return nil
	}
	return r.tellMeasured(now, s)
}

// planRound plans the end of the current round.
func (r *run) planRound(now core.Time) {
	round := r.Policy.Goodput.Round
	r.plan(event{at: (now/round + 1) * round, do: learn})
}

// learned tells the engine at the end of a round what became known of jobs.
func (r *run) learned(now core.Time) error {
	if r.trainings.learns = slices.ContainsFunc(r.trainings.live, func(s *state) bool { return s.runners[0].speed > 0 }); r.trainings.learns {
		r.planRound(now)
	}
	for _, s := range r.trainings.live {
		if w := &s.runners[0]; w.speed > 0 {
			s.training.until(now)
			if s.training.Ended() {
				continue // its end is planned for now
			}
		}
		if err := r.tellMeasured(now, s); err != nil {
			return err
		}
		if w := &s.runners[0]; w.speed > 0 {
			w.turn++
			r.planStep(now, s)
		}
	}
	return nil
}

// tellMeasured tells the engine what is known of a job, if that is something new.
func (r *run) tellMeasured(now core.Time, s *state) error {
	t := s.training
	m := core.JobMeasured{Job: s.Name, Goodputs: t.Goodputs(), Restart: seconds(s.Job.Training.App.Expected)}
	if t.Idle() > 0 {
		m.Until = now + seconds(t.Idle())
	}
	if slices.Equal(m.Goodputs, t.said.Goodputs) && m.Until == t.said.Until {
		return nil
	}
	t.said = m
	return r.tell(now, m)
}

// seconds rounds up to a time.
func seconds(s float64) core.Time {
	return core.Time(math.Min(math.Ceil(s*float64(core.Second)), float64(workload.Endless)))
}

// until lets the job train until a time.
func (t *training) until(now core.Time) {
	t.Advance((now - t.at).Seconds())
	t.at = now
}

// startTraining lets a job train where its pods are, unless it does.
func (r *run) startTraining(now core.Time, s *state) {
	w, t := &s.runners[0], s.training
	if w.speed > 0 || w.over {
		return
	}
	if t.starts++; t.starts > 1 {
		r.stats.Trained.Restarts++
	}
	t.at = now
	nodes, gpus, model := map[string]bool{}, 0, ""
	for p := range s.placed {
		if at := &s.placed[p]; at.Node != "" {
			nodes[at.Node] = true
			gpus += int(s.taskOf(p).GPU / core.WholeGPU)
			model = r.nodes[at.Node].spec.Model
		}
	}
	if s.Alternatives {
		t.Start(slices.IndexFunc(s.Tasks, func(t core.Task) bool { return t.Models[0] == model && t.Pods*int(t.GPU/core.WholeGPU) == gpus }))
	} else {
		t.StartFixed(model, len(nodes), gpus)
	}
	w.turn++
	w.started, w.speed, w.ends = now, 1, true
	r.working++
	r.planStep(now, s)
	if s.Alternatives && !r.trainings.learns {
		r.trainings.learns = true
		r.planRound(now)
	}
}

// planStep plans when the job has started, or is at the end of its epoch.
func (r *run) planStep(now core.Time, s *state) {
	if next := s.training.Next(); !math.IsInf(next, 1) {
		r.plan(event{at: now + max(1, seconds(next)), do: step, job: s, turn: s.runners[0].turn})
	}
}

// stepped ends the job, or lets it go on.
func (r *run) stepped(now core.Time, s *state, turn int32) error {
	w := &s.runners[0]
	if w.turn != turn || w.speed == 0 {
		return nil
	}
	s.training.until(now)
	if s.training.Ended() {
		r.trainings.apps.End(s.training.Job)
		return r.finish(now, s, 0, turn)
	}
	r.planStep(now, s)
	return nil
}

// rest stops the training of a job whose pods leave. It keeps what it has done.
func (r *run) rest(now core.Time, s *state) {
	s.training.until(now)
	s.training.Stop()
	r.stop(now, &s.runners[0])
}
