package metrics

import (
	"fmt"
	"math/bits"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
)

// standbys measures what pods on standby lend, and what of it others use.
//
// Invariant: lent has the lent devices of each node and harvested what pods hold of them.
type standbys struct {
	lent      map[string]uint64
	kept      map[standing]*core.Placement // what a pod on standby holds
	devices   int
	harvested core.Milli
	// hours and used are GPU-seconds of both.
	hours, used float64
	resumed     Histogram
	longest     float64
	any         bool
}

// standing is a pod on standby.
type standing struct {
	job *sim.Live
	pod int
}

var _ sim.Lender = (*Collector)(nil)

// Standby implements [sim.Lender].
func (c *Collector) Standby(t core.Time, l *sim.Live, kept core.Placement) error {
	c.advance(t)
	c.over.frag.settle(c.inv.tally)
	s := &c.standbys
	if s.lent == nil {
		s.lent, s.kept, s.any = map[string]uint64{}, map[standing]*core.Placement{}, true
	}
	t0 := l.Tasks[taskOf(l, kept.Pod)]
	full := kept
	full.CPUMilli, full.MemMiB = t0.CPUMilli, t0.MemMiB
	if _, err := c.inv.hold(&full, -1); err != nil {
		return fmt.Errorf("standby %s: %w", l.Name, err)
	}
	warm := kept
	warm.GPUs = 0
	if _, err := c.inv.hold(&warm, +1); err != nil {
		return fmt.Errorf("standby %s: %w", l.Name, err)
	}
	s.lent[kept.Node] |= kept.GPUs
	s.devices += bits.OnesCount64(kept.GPUs)
	s.kept[standing{l, kept.Pod}] = &warm
	return nil
}

// Recovered implements [sim.Healer]: time goes on until then.
func (c *Collector) Recovered(t core.Time, _ *sim.Live, _ sim.Recovered) error {
	c.advance(t)
	return nil
}

// taskOf returns the number of the task of a pod.
func taskOf(l *sim.Live, pod int) int {
	for t := range l.Tasks {
		if pod -= l.Tasks[t].Pods; pod < 0 {
			return t
		}
	}
	return 0
}

// Resumed implements [sim.Lender].
func (c *Collector) Resumed(t core.Time, l *sim.Live, pod core.Placement, told core.Time) error {
	c.advance(t)
	c.over.frag.settle(c.inv.tally)
	kept := c.standbys.end(l, &pod, &c.inv)
	if kept == nil {
		return fmt.Errorf("resume %s: pod %d is not on standby", l.Name, pod.Pod)
	}
	if _, err := c.inv.hold(kept, -1); err != nil {
		return fmt.Errorf("resume %s: %w", l.Name, err)
	}
	if _, err := c.inv.hold(&pod, +1); err != nil {
		return fmt.Errorf("resume %s: %w", l.Name, err)
	}
	took := (t - told).Seconds()
	c.standbys.resumed.Add(took)
	c.standbys.longest = max(c.standbys.longest, took)
	return nil
}

// end ends the standby of a pod, and returns what it held meanwhile; nil if it was on none. What
// others hold of its devices is harvested no longer.
func (s *standbys) end(l *sim.Live, p *core.Placement, inv *inventory) *core.Placement {
	key := standing{l, p.Pod}
	kept := s.kept[key]
	if kept == nil {
		return nil
	}
	n := &inv.nodes[inv.byName[p.Node]]
	for rest := p.GPUs; rest != 0; rest &= rest - 1 {
		s.harvested -= core.WholeGPU - n.frag.Free[bits.TrailingZeros64(rest)]
	}
	delete(s.kept, key)
	s.lent[p.Node] &^= p.GPUs
	s.devices -= bits.OnesCount64(p.GPUs)
	return kept
}

// hold counts a pod that comes (by 1) or goes (by -1), as far as it is on lent devices.
func (s *standbys) hold(p *core.Placement, by core.Milli) {
	if s.any {
		s.harvested += by * p.GPU * core.Milli(bits.OnesCount64(p.GPUs&s.lent[p.Node]))
	}
}

// add records that the state lasted for dt.
func (s *standbys) add(dt core.Time) {
	if s.devices > 0 {
		s.hours += float64(s.devices) * dt.Seconds()
		s.used += float64(s.harvested) / float64(core.WholeGPU) * dt.Seconds()
	}
}

func (s *standbys) summary() *Standby {
	if !s.any {
		return nil
	}
	out := &Standby{
		GPUHours: s.hours / 3600, Harvested: s.used / 3600, Resumptions: s.resumed.Count(), Mean: s.resumed.Mean(),
		P95: s.resumed.Quantile(0.95), Max: s.longest,
	}
	if s.hours > 0 {
		out.Ratio = s.used / s.hours
	}
	return out
}
