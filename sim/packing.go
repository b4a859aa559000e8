package sim

import (
	"math"
	"math/rand/v2"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// Packing is how jobs slow each other down that share GPUs, by measured profiles. Each job has one: its own, if the workload says so
// ([workload.Job].Profile), or else one drawn from the seed.
type Packing struct {
	// Profiles are the measured ones; nil: the model is off, and no job is packed.
	Profiles *workload.Profiles
	// Tracked is the share, 0..1, of the jobs whose throughput can be read from their logs.
	Tracked float64
	// Settle is how long after another job has joined one its throughput is measured.
	Settle core.Time
}

// Packed is what a run with [Packing] measures.
type Packed struct {
	// Jobs counts the starts on the GPUs of another job, Cancelled those that were taken back.
	Jobs      int `json:"jobs"`
	Cancelled int `json:"cancelled"`
}

// sharing is the state of the model for a job.
type sharing struct {
	profile int
	tracked bool
	with    *state // the job that shares its GPUs; nil if it has them for itself
}

// profile gives a job its profile, by which the engine knows how the job uses its GPUs, if the job does not say so itself.
func (r *run) profile(j *workload.Job) (s sharing, err error) {
	m := &r.Models.Packing
	if m.Profiles == nil {
		return s, nil
	}
	rng := rand.New(rand.NewPCG(r.Seed^0x7061636b, uint64(r.stats.Submitted))) // "pack"
	s.profile = rng.IntN(len(m.Profiles.Solo))
	s.tracked = rng.Float64() < m.Tracked
	if name := j.Profile; name != "" {
		i, ok := m.Profiles.Find(name)
		if !ok {
			return s, &workload.Error{File: "job " + j.Name, Field: "profile", Want: "a profile of single_data.csv, found " + name}
		}
		s.profile = i
	}
	if j.Sharing == (core.Sharing{}) {
		j.Sharing = m.Profiles.Solo[s.profile].Sharing
	}
	return s, nil
}

// joins notes that a job starts on the GPUs of another one.
func (r *run) joins(now core.Time, s *state, host string) {
	h := r.jobs[host]
	s.with, h.with = h, s
	r.stats.Packed.Jobs++
	r.retime(now, h)
	if h.tracked && r.Policy.Packing.Cancel > 0 {
		r.plan(event{at: now + r.Models.Packing.Settle, do: measure, job: h, with: s, turn: s.runners[0].turn + 1})
	}
}

// leaves notes that a job no longer shares its GPUs.
func (r *run) leaves(now core.Time, s *state) {
	if s.with == nil {
		return
	}
	left := s.with
	s.with, left.with = nil, nil
	r.retime(now, left)
}

// measureBeside reports how much of its throughput a job has left beside the one that joined it, if that one is still there.
func (r *run) measureBeside(now core.Time, h, guest *state, turn int32) error {
	if h.with != guest || h.runners[0].speed == 0 || guest.runners[0].turn != turn {
		return nil
	}
	share := r.Models.Packing.Profiles.Speed(h.profile, guest.profile)
	return r.tell(now, core.JobSlowed{Job: h.Name, Share: int64(math.Round(share * 1000))})
}
