package sim

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/muster-sched/muster/core"
)

// Interference is how jobs without GPUs slow down training on their nodes (ASI §5.2): on a node
// that is CPU-job-dominant, as jobs without GPUs use more cores there than jobs with GPUs. A
// training job with a pod on such a node is slower by a share that is its own: log-normal over the
// jobs, with this median and 90th percentile, at most 0.9. Median 0 means no slowdown.
type Interference struct {
	Median, P90 float64
	// GPUJobsUse is the share, 0..1, that jobs with GPUs use of the cores that they request. Jobs
	// without GPUs use all.
	GPUJobsUse float64
}

// Check reports what is wrong.
func (m *Interference) Check() error {
	switch {
	case !(m.Median >= 0 && m.Median <= m.P90 && m.P90 < 1):
		return fmt.Errorf("expected shares below 1, the median not above the 90th percentile; found %v and %v", m.Median, m.P90)
	case m.Median == 0 && m.P90 > 0:
		return fmt.Errorf("expected a median above 0; found %v and %v", m.Median, m.P90)
	case !(m.GPUJobsUse >= 0 && m.GPUJobsUse <= 1):
		return fmt.Errorf("expected a share of cores from 0 to 1; found %v", m.GPUJobsUse)
	}
	return nil
}

func (m *Interference) on() bool { return m.P90 > 0 }

// CPUBesideGPU is what a run with [Interference] measures, from its start to its end.
type CPUBesideGPU struct {
	// CPUOnlyCoreHours is the work of jobs without GPUs on all nodes.
	CPUOnlyCoreHours float64 `json:"cpu_only_core_hours"`
	// TrainingGPUHours is the GPU time of training, SlowedGPUHours the part of it that was lost
	// to jobs without GPUs: the GPU time of each job times its slowdown.
	TrainingGPUHours float64 `json:"training_gpu_hours"`
	SlowedGPUHours   float64 `json:"slowed_gpu_hours"`
	// Dominant is the share of the nodes with GPUs that were CPU-job-dominant, on average.
	Dominant float64 `json:"cpu_dominant_nodes"`
	// Utilization is the median over the nodes with GPUs of the share of their cores in use, on
	// average over time.
	Utilization float64 `json:"cpu_utilization_p50"`
}

// coreUse is what jobs use of the cores of a node, in thousandths of a core.
type coreUse struct {
	cpuOnly, withGPU int64
	dominant, noted  bool
	// used is the milli-core seconds until since.
	used  float64
	since core.Time
}

// interference is the state of the model in a run.
type interference struct {
	flipped []*node // since the last adjust, each once
	// The integrals until since, in milli-GPU seconds, node seconds and milli-core seconds, and what they
	// grow by.
	training, slowed, dominant, cpuOnly gauge
}

// gauge is a quantity and its integral over time.
type gauge struct {
	now, sum float64
	since    core.Time
}

func (g *gauge) add(now core.Time, by float64) {
	g.sum += g.now * max(0, now-g.since).Seconds()
	g.now, g.since = g.now+by, now
}

// slowdownOf draws the share by which dominant nodes slow the job down; 0 if it does not train on
// GPUs.
func (r *run) slowdownOf(s *state) float64 {
	m := &r.Models.Interference
	if !m.on() || s.Kind != core.Training || s.GPUs() == 0 {
		return 0
	}
	const z90 = 1.2815515655446004
	z := rand.New(rand.NewPCG(r.Seed^0x637075, uint64(s.serial))).NormFloat64()
	return min(m.Median*math.Exp(z*math.Log(m.P90/m.Median)/z90), 0.9)
}

// coresTaken counts the cores of a pod of a job on a node, as it comes (by 1) or leaves (by -1).
func (r *run) coresTaken(now core.Time, n *node, s *state, milli int64, by int64) {
	c := &n.cores
	m := &r.Models.Interference
	c.used += (float64(c.cpuOnly) + m.GPUJobsUse*float64(c.withGPU)) * (now - c.since).Seconds()
	c.since = now
	if s.GPUs() == 0 {
		c.cpuOnly += by * milli
		r.slow.cpuOnly.add(now, float64(by*milli))
	} else {
		c.withGPU += by * milli
	}
	was := c.dominant
	c.dominant = n.spec.GPUs > 0 && float64(c.cpuOnly) > m.GPUJobsUse*float64(c.withGPU)
	if was == c.dominant {
		return
	}
	if c.dominant {
		r.slow.dominant.add(now, 1)
	} else {
		r.slow.dominant.add(now, -1)
	}
	if !c.noted {
		c.noted = true
		r.slow.flipped = append(r.slow.flipped, n)
	}
}

// adjust lets the training jobs go on at their new speed on whose nodes jobs without GPUs began,
// or ceased, to use more cores than the others.
func (r *run) adjust(now core.Time) {
	for _, n := range r.slow.flipped {
		n.cores.noted = false
		var on []*state
		for s := range n.jobs {
			if s.slowdown > 0 {
				on = append(on, s)
			}
		}
		slices.SortFunc(on, func(a, b *state) int { return a.serial - b.serial })
		for _, s := range on {
			r.retime(now, s)
		}
	}
	r.slow.flipped = r.slow.flipped[:0]
}

// retime lets a job go on at another speed, if it works and that has changed.
func (r *run) retime(now core.Time, s *state) {
	for i := range s.runners {
		w := &s.runners[i]
		if w.speed == 0 || s.training != nil || w.speed == r.speedOf(s, w.pods) {
			continue
		}
		w.banked += core.Time(float64(max(0, now-w.started)) * w.speed)
		r.stop(now, w)
		r.workFrom(max(now, w.started), s, i)
	}
}

// trains counts the GPUs of a training runner that begins to work, at its slowdown.
func (r *run) trains(now core.Time, s *state, w *runner) {
	if s.slowdown == 0 {
		return
	}
	for _, p := range w.pods {
		if at := &s.placed[p]; at.Node != "" {
			w.gpus += float64(core.Milli(bits.OnesCount64(at.GPUs)) * at.GPU)
			if r.nodes[at.Node].cores.dominant {
				w.slowed = s.slowdown
			}
		}
	}
	r.slow.training.add(now, w.gpus)
	r.slow.slowed.add(now, w.gpus*w.slowed)
}

// rests takes back what trains counted.
func (r *run) rests(now core.Time, w *runner) {
	if w.gpus != 0 {
		r.slow.training.add(now, -w.gpus)
		r.slow.slowed.add(now, -w.gpus*w.slowed)
		w.gpus, w.slowed = 0, 0
	}
}

// measured returns what the run measured until now; nil if the model is off.
func (r *run) measured(now core.Time) *CPUBesideGPU {
	m := &r.Models.Interference
	if !m.on() || now == 0 {
		return nil
	}
	var use []float64
	for i := range r.Cluster.Nodes {
		n := r.nodes[r.Cluster.Nodes[i].Name]
		if n.spec.GPUs == 0 || n.spec.CPUMilli == 0 {
			continue
		}
		c := n.cores
		c.used += (float64(c.cpuOnly) + m.GPUJobsUse*float64(c.withGPU)) * (now - c.since).Seconds()
		use = append(use, c.used/now.Seconds()/float64(n.spec.CPUMilli))
	}
	for _, g := range []*gauge{&r.slow.training, &r.slow.slowed, &r.slow.dominant, &r.slow.cpuOnly} {
		g.add(now, 0)
	}
	const hour = 1000 * 3600 // of thousandths
	out := &CPUBesideGPU{
		CPUOnlyCoreHours: r.slow.cpuOnly.sum / hour, TrainingGPUHours: r.slow.training.sum / hour, SlowedGPUHours: r.slow.slowed.sum / hour,
	}
	if len(use) > 0 {
		slices.Sort(use)
		out.Dominant = r.slow.dominant.sum / now.Seconds() / float64(len(use))
		out.Utilization = use[len(use)/2]
	}
	return out
}
