package metrics

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
)

// fragmentation sums up over time what a tally says. It does so when the tally is about to
// change and not for every event, of which most change nothing.
type fragmentation struct {
	dt     core.Time                 // for how long the tally was as it is, not summed up yet
	total  float64                   // seconds
	splits [][frag.NumCauses]float64 // of the shapes, then of the jobs
	fits   [][2]float64
}

// settle sums up until now. It must be called before the tally changes.
func (f *fragmentation) settle(t *frag.Tally) {
	if f.dt == 0 {
		return
	}
	if f.splits == nil {
		f.splits, f.fits = make([][frag.NumCauses]float64, len(t.Shapes)+len(t.Jobs)), make([][2]float64, len(t.Jobs))
	}
	dt := f.dt.Seconds()
	f.dt = 0
	f.total += dt
	for k := range t.Splits {
		add(&f.splits[k], &t.Splits[k], dt)
	}
	for k := range t.Gangs {
		add(&f.splits[len(t.Splits)+k], &t.Gangs[k], dt)
	}
	for k, fit := range t.Fits {
		f.fits[k][0] += float64(fit.Within) * dt
		f.fits[k][1] += float64(fit.Across) * dt
	}
}

func add(sum *[frag.NumCauses]float64, s *frag.Split, dt float64) {
	for c, gpu := range s {
		if gpu != 0 {
			sum[c] += float64(gpu) * dt
		}
	}
}

// means returns the averages over time; nil if no time has passed.
func (f *fragmentation) means(t *frag.Tally) *Fragmentation {
	if f.total == 0 {
		return nil
	}
	all := &Fragmentation{}
	for k, name := range shapes(t) {
		gpus := func(causes ...frag.Cause) float64 {
			sum := 0.0
			for _, c := range causes {
				sum += f.splits[k][c]
			}
			return sum / f.total / float64(core.WholeGPU)
		}
		s := ShapeSplit{
			Shape: name, Allocatable: gpus(frag.Allocatable), Fractional: gpus(frag.Fractional), Stranded: gpus(frag.Stranded), CPU: gpus(frag.CPU),
			Topology: gpus(frag.Topology), Other: gpus(frag.Memory, frag.Pods, frag.Other, frag.Gang), Unusable: gpus(frag.Cordoned, frag.Tainted, frag.Unhealthy),
		}
		s.IdleGPUs = s.Allocatable + s.Fractional + s.Stranded + s.CPU + s.Topology + s.Other + s.Unusable
		all.Shapes = append(all.Shapes, s)
	}
	for k, j := range t.Jobs {
		all.Jobs = append(all.Jobs, JobFit{j.String(), f.fits[k][0] / f.total, f.fits[k][1] / f.total})
	}
	return all
}

// Idle returns the nodes that are not lost, with what is idle of them. They are valid until
// the next event.
func (c *Collector) Idle() []frag.Node {
	var all []frag.Node
	for i := range c.inv.nodes {
		if n := &c.inv.nodes[i]; n.up {
			all = append(all, n.frag)
		}
	}
	return all
}
