package coretest

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core"
)

// hostile is a policy that evicts whenever it may.
func hostile(rt *rapid.T) core.Policy {
	p := randomPolicy(rt)
	p.Queueing.HeadWait, p.Queueing.FairShare = 0, rapid.Bool().Draw(rt, "shares")
	p.Preempt = core.Preempt{Priority: core.InCluster, Reclaim: true, Backfill: true, Delay: p.Preempt.Delay, MaxSuspended: p.Preempt.MaxSuspended}
	if p.Queueing.Mode == core.StrictFIFO {
		p.Queueing.Mode = core.Backfill
	}
	return p
}

// anyScope is hostile, and priority decides among all jobs or among those of a queue.
func anyScope(rt *rapid.T) core.Policy {
	p := hostile(rt)
	p.Preempt.Priority = rapid.SampledFrom([]core.PriorityScope{core.InCluster, core.InCluster, core.InQueue}).Draw(rt, "scope")
	return p
}

// inTurn is anyScope and, in a third of the cases, the queues take turns by what they received, their jobs come in any of the orders that these may have,
// and priority evicts none, so that leases decide.
func inTurn(rt *rapid.T) core.Policy {
	p := anyScope(rt)
	if rapid.IntRange(0, 2).Draw(rt, "turns") == 0 {
		p.Queueing.Order, p.Fairness.Lease, p.Preempt.Priority = core.LongTermFairness, 1000*core.Second, core.NoPriority
		p.Fairness.Jobs = rapid.SampledFrom(core.JobOrders).Draw(rt, "jobs")
	}
	return p
}

// newHostile returns a small cluster whose queues own more, and less, than it
// has.
func newHostile(rt *rapid.T, p core.Policy) *story {
	s := &story{World: NewWorld(rt, core.Config{Policy: p, Levels: testLevels, Crowd: crowd(p)}), rt: rt, quota: true}
	s.resources = s.chance(3)
	for _, q := range queueNames {
		s.setQueue(q)
	}
	s.nodes = 1 + s.up(4)
	for i := range s.nodes {
		cpu := int64(0)
		if s.resources {
			cpu = int64(2+s.up(8)) * 1000
		}
		n := core.Node{
			Name: fmt.Sprintf("n%d", i), CPUMilli: cpu, GPUs: 1 + s.up(4), Model: pick(s, "A", "A", "B"), MaxPods: pick(s, 0, 0, 2), Domains: []string{"z", "s", pick(s, "l0", "l1")},
			Others: others(int64(s.up(4)), 2), MemMiB: int64(i) * 2,
		}
		nameSets(&n)
		s.Must(core.NodeAdded{Node: n})
	}
	return s
}

// fight submits a job that wants what others have.
func (s *story) fight() {
	j := core.Job{
		Name: fmt.Sprintf("j%d", s.jobs), Queue: pick(s, queueNames...), Class: core.Class(s.up(2)), Priority: int32(s.up(3)),
		Gang: s.chance(2), Submitted: s.Now, Checkpoint: core.Time(s.up(2)) * 5 * core.Second, NotPreemptible: s.chance(12),
		Mobility:   s.mobility(),
		SaveWithin: core.Time(s.jobs%3) * 2 * core.Second,
		MinRuntime: pick(s, 0, 0, 0, 3*core.Second), Estimate: core.Time(s.jobs%5) * 4 * core.Second,
	}
	s.jobs++
	if s.jobs%2 == 0 {
		j.Suspend = core.Suspension{Pause: core.Second, HostMemMiB: 1}
	}
	for k := range 1 + s.up(2) {
		t := core.Task{Name: fmt.Sprint("t", k), Pods: 1 + s.up(3)}
		t.GPU = pick[core.Milli](s, 1000, 1000, 2000, 3000, 500, 300)
		t.Models = pick(s, nil, []string{"A", "B"}, []string{"B", "A"}, []string{"A"}, []string{"B"})
		t.Others = pick(s, nil, nil, nil, others(1, 0), others(1, 1))
		if n := s.jobs + 2*k; n%3 == 0 && t.GPU >= core.WholeGPU {
			t.From = from(n/3, int64(t.GPU/core.WholeGPU))
		}
		if s.resources {
			t.CPUMilli = pick[int64](s, 0, 1000, 1000, 2000, 4000)
			if s.cpuOnly && s.chance(3) {
				t.GPU, t.Models, t.From = 0, nil, nil
			}
		}
		if s.chance(3) {
			t.Labels = []string{pick(s, "x", "y")}
		}
		if s.chance(4) {
			t.Affinity = []core.Term{{Level: pick(s, "node", "leaf", "spine"), Label: pick(s, "x", "y"), Anti: !s.chance(3), MaxSkew: 0}}
		} else if s.chance(8) {
			t.Affinity = []core.Term{{Level: pick(s, "node", "leaf"), Label: pick(s, "x", "y"), MaxSkew: 1}}
		}
		if j.Gang {
			t.MinPods = s.up(t.Pods + 1)
		}
		if k > 0 && s.chance(4) {
			t.MinPods = core.Elastic
		}
		j.Tasks = append(j.Tasks, t)
	}
	s.Must(core.JobSubmitted{Job: j})
}

// churn lets pods of live jobs come, or go before they run, and a node change.
func (s *story) churn() {
	switch s.up(10) {
	case 8, 9:
		s.move()
	case 0:
		s.withdraw()
	case 1:
		s.addPods()
	case 2:
		n := pick(s, s.Twin.nodes...).Node
		n.Domains = []string{"z", "s", pick(s, "l0", "l1")}
		n.Taints = pick(s, nil, nil, []core.Taint{{Key: "team", Value: "x"}})
		s.Must(core.NodeChanged{Node: n})
	}
}

// round lets time pass, some of the leaving pods go and a move end, and returns how many
// were evicted.
func (s *story) round() (evicted int, quiet bool) {
	s.Now += core.Second
	s.Must(core.Tick{})
	for _, name := range s.Twin.Live() {
		if _, _, leave := s.Twin.Counts(name); (leave > 0 || s.Twin.stopping(name)) && !s.chance(3) {
			s.gone(name)
		}
	}
	quiet = s.Twin.Settled()
	if j, i, ok := s.somePod(moves); ok {
		quiet = false
		s.Must(pick[core.Event](s, core.PodMoved{Job: j, Pod: i}, core.MoveFailed{Job: j, Pod: i}))
	}
	for _, d := range s.Decide() {
		if (d.Op == core.Evict || d.Op == core.Suspend) && d.Reason != core.Requested {
			evicted += len(d.Pods)
		}
		if d.Reason == core.LeaseOver {
			s.leases += len(d.Pods)
		}
		quiet = quiet && d.Op == core.Wake
	}
	return evicted, quiet
}

// gone reports that evicted pods have left. A gang that has no other pods may end then, and be
// submitted again under its name.
func (s *story) gone(name string) {
	j := s.Twin.jobs[name]
	if wait, run, _ := s.Twin.Counts(name); !j.Gang || wait+run > 0 || s.chance(2) {
		s.Must(core.PodsGone{Job: name})
		return
	}
	s.Must(core.JobEnded{Job: name})
	s.Must(core.JobSubmitted{Job: j.Job})
}

// calm lets time pass and evicted pods leave until nothing else happens for eight rounds, and returns how many were
// evicted. It fails the test if that takes more evictions than ten times the pods.
func (s *story) calm() (evicted, pods int) {
	for _, name := range s.Twin.Live() {
		pods += len(s.Twin.jobs[name].pods)
	}
	for quiet := 0; quiet < 8; {
		n, q := s.round()
		if evicted += n; evicted > 10*pods {
			s.fail(fmt.Errorf("%d evictions among %d pods, and no end", evicted, pods))
		}
		if quiet++; !q {
			quiet = 0
		}
	}
	s.CheckIdle()
	return evicted, pods
}

// TestNoLoop lets hostile mixes of jobs settle: evicted pods leave and time passes, and nothing
// else happens. Evictions must come to an end: see the proof in core/preempt.go. Where leases end as time passes, all of them have
// when it begins, and no other one does before it is over.
func TestNoLoop(t *testing.T) {
	most := 0
	rapid.Check(t, func(rt *rapid.T) {
		p := inTurn(rt)
		if p.Fairness.Lease > 0 {
			p.Fairness.Lease, p.Fairness.HalfLife, p.Spot.Period = 1000*core.Second, 0, 0
		}
		s := newHostile(rt, p)
		s.cpuOnly = true
		for range 3 + s.up(20) {
			s.fight()
			s.churn()
			if s.chance(3) {
				s.round()
			}
		}
		if s.chance(3) {
			// The queues own more than there is from now on.
			s.Must(core.NodeLost{Node: "n0"})
			s.Decide() // a gang that broke is told to stop, and no pod of it moves any longer
		}
		s.Now += 2 * p.Fairness.Lease
		evicted, pods := s.calm()
		most = max(most, evicted*100/pods)
	})
	t.Logf("at most %d evictions per 100 pods after the last event", most)
}

// TestNoLoopAfterLeases: of two queues that both want all GPUs, one has had them for longer than a lease. Its jobs leave for
// the others, each once, in whatever order pods go and moves end.
func TestNoLoopAfterLeases(t *testing.T) {
	fixed(t, 20, func(rt *rapid.T) {
		p := core.Policy{Queueing: core.Queueing{Mode: core.BestEffortFIFO, Order: core.LongTermFairness}}
		p.Fairness.Lease = 1000 * core.Second
		s := &story{World: NewWorld(rt, core.Config{Policy: p, Levels: testLevels}), rt: rt}
		s.Must(core.QueueSet{Queue: core.Queue{Name: "a", Weight: 1}})
		s.Must(core.QueueSet{Queue: core.Queue{Name: "b", Weight: 1}})
		for i := range 2 {
			s.Must(core.NodeAdded{Node: core.Node{Name: fmt.Sprint("n", i), GPUs: 4, Model: "A", Domains: []string{"z", "s", "l"}}})
		}
		for i := range 4 {
			task := core.Task{Name: "t", Pods: 2}
			task.GPU = 1000
			s.Must(core.JobSubmitted{Job: core.Job{Name: fmt.Sprint("a", i), Queue: "a", Gang: s.chance(2), Submitted: s.Now, Tasks: []core.Task{task}}})
		}
		s.round()
		for i := range 4 {
			task := core.Task{Name: "t", Pods: 1}
			task.GPU = pick[core.Milli](s, 1000, 2000)
			s.Must(core.JobSubmitted{Job: core.Job{Name: fmt.Sprint("b", i), Queue: "b", Gang: s.chance(2), Submitted: s.Now, Tasks: []core.Task{task}}})
		}
		s.Now += 2 * p.Fairness.Lease
		if s.calm(); s.leases == 0 {
			s.fail(fmt.Errorf("no pod left after its lease"))
		}
	})
}

// TestEvictionsBounded goes on for long: jobs come and end all the time. What is
// evicted must stay within a few times what happens.
func TestEvictionsBounded(t *testing.T) {
	most := 0
	rapid.Check(t, func(rt *rapid.T) {
		s := newHostile(rt, anyScope(rt))
		s.cpuOnly = true
		events, evicted := 0, 0
		for range 100 {
			if s.chance(2) {
				s.fight()
				s.churn()
				events++
			}
			if live := s.Twin.Live(); len(live) > 12 || len(live) > 0 && s.chance(4) {
				s.Must(core.JobEnded{Job: pick(s, live...)})
				events++
			}
			n, _ := s.round()
			evicted += n
		}
		events += s.leases // pods take turns for as long as there are leases
		most = max(most, evicted*100/events)
		if evicted > 6*events {
			s.fail(fmt.Errorf("%d evictions for %d arrivals and ends, and %d after leases", evicted, events, s.leases))
		}
	})
	t.Logf("at most %d evictions per 100 arrivals and ends", most)
}
