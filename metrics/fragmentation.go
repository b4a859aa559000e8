package metrics

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
)

// fragmentation sums up over time what a tally says. It does so when the tally is about to
// change and not for every event, of which most change nothing.
type fragmentation struct {
	dt     core.Time // for how long the tally was as it is, not summed up yet
	total  float64   // seconds
	splits [][frag.NumCauses]float64
	fits   [][2]float64
}

// settle sums up until now. It must be called before the tally changes.
func (f *fragmentation) settle(t *frag.Tally) {
	if f.dt == 0 {
		return
	}
	if f.splits == nil {
		f.splits, f.fits = make([][frag.NumCauses]float64, len(t.Shapes)), make([][2]float64, len(t.Jobs))
	}
	dt := f.dt.Seconds()
	f.dt = 0
	f.total += dt
	for k := range t.Splits {
		for c, gpu := range t.Splits[k] {
			if gpu != 0 {
				f.splits[k][c] += float64(gpu) * dt
			}
		}
	}
	for k, fit := range t.Fits {
		f.fits[k][0] += float64(fit.Within) * dt
		f.fits[k][1] += float64(fit.Across) * dt
	}
}

// means returns the averages over time; nil if no time has passed.
func (f *fragmentation) means(t *frag.Tally) *Fragmentation {
	if f.total == 0 {
		return nil
	}
	all := &Fragmentation{}
	for k, sh := range t.Shapes {
		gpus := func(causes ...frag.Cause) float64 {
			sum := 0.0
			for _, c := range causes {
				sum += f.splits[k][c]
			}
			return sum / f.total / float64(core.WholeGPU)
		}
		s := ShapeSplit{
			Shape: sh.String(), Allocatable: gpus(frag.Allocatable), Fractional: gpus(frag.Fractional), Stranded: gpus(frag.Stranded), CPU: gpus(frag.CPU),
			Other: gpus(frag.Memory, frag.Pods, frag.Other), Unusable: gpus(frag.Cordoned, frag.Tainted, frag.Unhealthy),
		}
		s.IdleGPUs = s.Allocatable + s.Fractional + s.Stranded + s.CPU + s.Other + s.Unusable
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
