package workload

import (
	"cmp"
	"math"
	"slices"

	"github.com/muster-sched/muster/core"
)

// mostHours bounds the memory for demand: it is measured in the first three
// years of a workload.
const mostHours = 3 * 366 * 24

// meter measures how many GPUs jobs hold, averaged by the hour. Its entry i is the
// difference between the means of hour i and of the hour before.
type meter []float64

// add counts the GPUs of a job that holds them as c says.
func (m *meter) add(c *counted) {
	m.step(c.from, c.gpus)
	m.step(c.from+c.hours, -c.gpus)
}

// step changes the GPUs held from a time on, in hours. Only a part of the change counts
// for the hour that contains this time.
func (m *meter) step(at, gpus float64) {
	if at >= mostHours {
		return
	}
	hour := int(at)
	if missing := hour + 2 - len(*m); missing > 0 {
		*m = append(*m, make([]float64, missing)...)
	}
	after := at - float64(hour)
	(*m)[hour] += gpus * (1 - after)
	(*m)[hour+1] += gpus * after
}

// each calls f with the first hours and the GPUs held in them.
func (m meter) each(hours int, f func(hour int, gpus float64)) {
	held := 0.0
	for hour := range hours {
		if hour < len(m) {
			held += m[hour]
		}
		f(hour, max(0, held)) // not what rounding leaves below 0
	}
}

// result returns the mean and the maximum of the first hours.
func (m meter) result(hours int) (mean, peak float64) {
	m.each(hours, func(_ int, gpus float64) {
		mean += gpus / float64(hours)
		peak = max(peak, gpus)
	})
	return mean, peak
}

// Week is the demand of a kind over the hours of a week, averaged over the weeks
// of the workload, whose zero is the first midnight. It ends with the last hour
// that the workload has. Submitted are the GPUs of the jobs submitted in an
// hour, Running those that jobs would hold if none waited.
type Week struct {
	Kind      string    `json:"kind"`
	Submitted []float64 `json:"submitted"`
	Running   []float64 `json:"running"`
}

const hoursOfWeek = 7 * 24

// hourOfWeek returns the hour of the week at a time in seconds.
func hourOfWeek(s float64) int { return int(math.Mod(s/3600, hoursOfWeek)) }

// week returns the demand of the kinds that have jobs, in their order.
func (d *describer) week(s *Summary) []Week {
	var weeks []Week
	for k, name := range core.Kinds {
		r := d.kinds.rows[name]
		if r == nil {
			continue
		}
		var submitted, running, seen [hoursOfWeek]float64
		r.all.each(s.DemandHours, func(hour int, gpus float64) {
			at := hourOfWeek(s.FirstSeconds + float64(hour)*3600)
			running[at] += gpus
			seen[at]++
		})
		last := 0
		for at, n := range seen {
			if n > 0 {
				submitted[at], running[at] = d.submitted[k][at]/n, running[at]/n
				last = at
			}
		}
		weeks = append(weeks, Week{name, slices.Clone(submitted[:last+1]), slices.Clone(running[:last+1])})
	}
	return weeks
}

// Allocation is the share of a cluster's GPUs of a model, or of "all", that jobs would
// hold on average if none waited: HP jobs, and all jobs. Jobs that accept several models
// count only in "all".
type Allocation struct {
	Name  string  `json:"name"`
	Nodes int     `json:"nodes"`
	GPUs  int     `json:"gpus"`
	HP    float64 `json:"hp"`
	All   float64 `json:"all"`
}

// Over sets Allocation for a cluster.
func (s *Summary) Over(c *Cluster) {
	list := []Allocation{{Name: "all"}}
	for _, pool := range pools(c.Nodes) {
		a := Allocation{Name: c.Nodes[pool[0]].Model, Nodes: len(pool)}
		for _, n := range pool {
			a.GPUs += c.Nodes[n].GPUs
		}
		list[0].Nodes += a.Nodes
		list[0].GPUs += a.GPUs
		if a.GPUs > 0 {
			list = append(list, a)
		}
	}
	slices.SortStableFunc(list[1:], func(a, b Allocation) int { return cmp.Compare(b.GPUs, a.GPUs) })
	list[0].fill(&s.All)
	for i := range list[1:] {
		a := &list[1+i]
		for k := range s.Models {
			if s.Models[k].Name == a.Name {
				a.fill(&s.Models[k])
			}
		}
	}
	s.Allocation = list
}

// fill sets the shares of the GPUs that a demand makes up.
func (a *Allocation) fill(s *Share) {
	a.HP, a.All = ratio(s.HPMeanGPUs, float64(a.GPUs)), ratio(s.MeanGPUs, float64(a.GPUs))
}
