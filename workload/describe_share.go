package workload

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core"
)

// Share is the part of a workload that has a property.
type Share struct {
	Name     string  `json:"name"`
	Jobs     int     `json:"jobs"`
	GPUHours float64 `json:"gpu_hours"`
	// JobShare and GPUShare are Jobs and GPUHours over those of the workload.
	JobShare float64 `json:"job_share"`
	GPUShare float64 `json:"gpu_share"`
	// HPJobShare and HPGPUShare are the share of HP jobs in Jobs and in GPUHours.
	HPJobShare float64 `json:"hp_job_share"`
	HPGPUShare float64 `json:"hp_gpu_share"`
	// Demand is zero where it is not measured.
	Demand
}

// Demand is the number of GPUs that jobs would hold if none waited, averaged by the hour:
// the mean, the mean of HP jobs alone, and the maximum of an hour. Hours after the last
// submission, in which jobs only end, are left out.
type Demand struct {
	MeanGPUs   float64 `json:"mean_gpus,omitempty"`
	HPMeanGPUs float64 `json:"hp_mean_gpus,omitempty"`
	PeakGPUs   float64 `json:"peak_gpus,omitempty"`
}

// counted is what a tally counts for a job: when it starts, in hours since the first
// submission, how many hours it runs, and how many GPUs it holds.
type counted struct {
	class             core.Class
	from, hours, gpus float64
}

// tally counts jobs, GPU-hours and demand by a property.
type tally struct {
	rows map[string]*tallied
	// metered is the number of names for which demand is measured; the first names are.
	metered int
}

// meteredNames bounds the memory for demand: at most 200 kB per name.
const meteredNames = 200

// tallied is a row of a tally; the meters are nil where demand is not measured.
type tallied struct {
	Share
	hpJobs  int
	hpHours float64
	all, hp *meter
}

func newTally(metered int) tally { return tally{make(map[string]*tallied), metered} }

func (t *tally) add(name string, c *counted) {
	r := t.rows[name]
	if r == nil {
		r = &tallied{Share: Share{Name: name}}
		if len(t.rows) < t.metered {
			r.all, r.hp = &meter{}, &meter{}
		}
		t.rows[name] = r
	}
	r.Jobs++
	r.GPUHours += c.gpus * c.hours
	if r.all != nil {
		r.all.add(c)
	}
	if c.class != core.HP {
		return
	}
	r.hpJobs++
	r.hpHours += c.gpus * c.hours
	if r.hp != nil {
		r.hp.add(c)
	}
}

// shares returns the counts as shares of the workload, in order.
func (t *tally) shares(of *Summary, order func(a, b Share) int) []Share {
	list := make([]Share, 0, len(t.rows))
	for _, r := range t.rows {
		s := r.Share
		s.JobShare = float64(s.Jobs) / float64(of.Jobs)
		s.HPJobShare = float64(r.hpJobs) / float64(s.Jobs)
		s.GPUShare = ratio(s.GPUHours, of.GPUHours)
		s.HPGPUShare = ratio(r.hpHours, s.GPUHours)
		if r.all != nil {
			mean, peak := r.all.result(of.DemandHours)
			hp, _ := r.hp.result(of.DemandHours)
			s.Demand = Demand{mean, hp, peak}
		}
		list = append(list, s)
	}
	slices.SortFunc(list, order)
	return list
}

// ratio is a over b, or 0 when b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func mostFirst(a, b Share) int {
	return cmp.Or(cmp.Compare(b.GPUHours, a.GPUHours), cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Name, b.Name))
}
