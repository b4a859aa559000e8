package metrics

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
)

// Sample is the state of the cluster at T, as in timeseries.csv. See [Collector] for what
// the counts mean; a pending job has no pod bound.
type Sample struct {
	T core.Time
	// Allocated GPUs are among the Available ones.
	Allocated       core.Milli
	Available       int64
	FragmentedNodes int64
	GPUNodes        int64
	Pending         int64
	Running         int64
}

// GAR returns the allocated share of the available GPUs, 0 when there are none.
func (s Sample) GAR() float64 {
	if s.Available == 0 {
		return 0
	}
	return float64(s.Allocated) / float64(core.WholeGPU) / float64(s.Available)
}

// GFR returns the share of fragmented nodes among those with GPUs, 0 when there
// are none.
func (s Sample) GFR() float64 {
	if s.GPUNodes == 0 {
		return 0
	}
	return float64(s.FragmentedNodes) / float64(s.GPUNodes)
}

// Sample returns the state after the last event.
func (c *Collector) Sample() Sample {
	return Sample{
		T:               c.now,
		Allocated:       c.inv.allocated,
		Available:       c.inv.available,
		FragmentedNodes: c.inv.fragmented,
		GPUNodes:        c.inv.gpuNodes,
		Pending:         c.count.Pending,
		Running:         c.count.Running,
	}
}

// Job returns what is known of a live job, its waiting brought up to t, and
// false when it is not live. Nodes, Groups and the fewest possible are 0 as
// long as it has not started.
func (c *Collector) Job(t core.Time, l *sim.Live) (Job, bool) {
	j := c.jobs[l]
	if j == nil {
		return Job{}, false
	}
	now := *j
	now.Waited = j.waited(t)
	return now, true
}

// Live returns the live jobs in the order of their submission.
func (c *Collector) Live() []*sim.Live {
	live := slices.Collect(maps.Keys(c.jobs))
	slices.SortFunc(live, func(a, b *sim.Live) int {
		return cmp.Compare(c.jobs[a].Number, c.jobs[b].Number)
	})
	return live
}

// advance accounts for the time from the last event to t.
func (c *Collector) advance(t core.Time) {
	from, to := max(c.now, c.window.From, c.first), t
	if c.window.To > 0 {
		to = min(to, c.window.To)
	}
	c.now = max(c.now, t)
	if from >= to {
		return
	}
	c.over.add(&c.inv, c.unstarted, c.second, to-from)
	c.standbys.add(to - from)
}

// add records that the state lasted for dt.
func (a *averages) add(inv *inventory, unstarted, second core.Milli, dt core.Time) {
	a.gar.add(int64(inv.allocated), inv.available*int64(core.WholeGPU), dt)
	a.gfr.add(inv.fragmented, inv.gpuNodes, dt)
	a.allocated += float64(inv.allocated-unstarted) / float64(core.WholeGPU) * dt.Seconds()
	a.available += float64(inv.available) * dt.Seconds()
	a.frag.dt += dt
	a.second += float64(second) / float64(core.WholeGPU) * dt.Seconds()
}

// averages returns the averages of the window. A run that is over in an instant, as when
// all jobs arrive at once and none ends, has the figures of that instant.
func (c *Collector) averages() *averages {
	if c.first != c.now || c.window.From > 0 || c.window.To > 0 {
		c.over.frag.settle(c.inv.tally)
		return &c.over
	}
	var instant averages
	instant.add(&c.inv, c.unstarted, c.second, core.Second)
	instant.frag.settle(c.inv.tally)
	return &instant
}

// Summary returns what was measured up to the last event. What a Collector
// cannot know (policy, seed, decisions, wall clock, memory) is left to the
// caller.
func (c *Collector) Summary() Summary {
	over := c.averages()
	s := Summary{
		Window:            c.averaged(),
		Jobs:              c.count,
		GAR:               over.gar.ratios(),
		GFR:               over.gfr.ratios(),
		JWTD:              c.jwtd(),
		JTTED:             c.jtted(),
		Topology:          c.topology.summary(),
		JCT:               c.jct.times(),
		Queueing:          c.queued(),
		Preemptions:       c.preemptions,
		Suspensions:       c.suspensions,
		Migrations:        c.migrations,
		MigrationGPUHours: over.second / 3600,
		LostGPUHours:      c.lostGPUHours(),
		Evictions:         c.leaving.summary(),
		Standby:           c.standbys.summary(),
		Fragmentation:     over.frag.means(c.inv.tally),
		Fairness:          c.fair.summary(c.now),
	}
	if over.available > 0 {
		s.SOR = over.allocated / over.available
	}
	if c.first != core.Never {
		s.VirtualSeconds = (c.now - c.first).Seconds()
	}
	if c.lastEnd > 0 {
		s.MakespanSeconds = (c.lastEnd - c.first).Seconds()
	}
	return s
}

// averaged returns the window that the averages over time are of.
func (c *Collector) averaged() Window {
	if c.first == core.Never {
		return Window{Is: "empty: no job was submitted"}
	}
	from, to := max(c.window.From, c.first), c.now
	w := Window{Is: "first submission to last event"}
	if c.window.From > 0 || c.window.To > 0 {
		w.Is = "as given, between first submission and last event"
	}
	if c.window.To > 0 {
		to = min(to, c.window.To)
	}
	w.From, w.To = from.Seconds(), max(from, to).Seconds()
	return w
}

func (c *Collector) jwtd() []Waiting {
	all := []Waiting{}
	for class := range Classes {
		if h := &c.waits[class]; h.Count() > 0 {
			all = append(all, Waiting{Class: Classes[class], Jobs: h.Count(), Times: h.times()})
		}
	}
	return all
}

func (c *Collector) jtted() []Distance {
	all := []Distance{}
	for class, d := range c.distances {
		if n := float64(d.Jobs); n > 0 {
			all = append(all, Distance{
				Class: Classes[class], Jobs: d.Jobs,
				NodeRatio: d.NodeRatio / n, GroupRatio: d.GroupRatio / n,
			})
		}
	}
	return all
}

// queued adds the jobs that started and live still to those that ended.
func (c *Collector) queued() Times {
	h := c.queueing.clone()
	for _, l := range c.Live() {
		if j := c.jobs[l]; j.Started >= 0 {
			h.Add(j.waited(c.now).Seconds())
		}
	}
	return h.times()
}

func (c *Collector) lostGPUHours() float64 {
	lost := c.lost
	for _, l := range c.Live() {
		lost += l.Lost - c.jobs[l].lost
	}
	return lost / float64(core.WholeGPU) / 3600
}

func gpus(p *core.Placement) int { return bits.OnesCount64(p.GPUs) }
