package coretest

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

var testLevels = []string{"superspine", "spine", "leaf"}

// story plays random events to a world.
type story struct {
	*World
	rt        *rapid.T
	nodes     int
	jobs      int
	quota     bool
	resources bool
	cpuOnly   bool // hostile jobs may have tasks without GPUs
	leases    int  // pods evicted after their lease
	tries     int64
}

func draw[V any](s *story, g *rapid.Generator[V]) V { return g.Draw(s.rt, "v") }

// chance is true once in n.
func (s *story) chance(n int) bool { return s.up(n) == n-1 }

// up draws from 0 to below n.
func (s *story) up(n int) int { return draw(s, rapid.IntRange(0, n-1)) }

func pick[V any](s *story, vs ...V) V { return vs[s.up(len(vs))] }

// randomPolicy draws a policy of any mode.
func randomPolicy(rt *rapid.T) core.Policy {
	s := &story{rt: rt}
	p := core.Policy{
		Queueing: core.Queueing{
			Mode: core.Mode(s.up(3)), Order: core.Order(s.up(3)), HeadWait: pick(s, 0, 5*core.Second, 60*core.Second), FairShare: s.chance(3), LendUnowned: s.chance(3),
		},
		Preempt: core.Preempt{
			Priority: core.PriorityScope(s.up(3)), Reclaim: s.chance(2), Backfill: s.chance(2),
			HPOnly: s.chance(3), Victims: core.VictimChoice(s.up(3)),
			MinRuntime: pick(s, 0, 0, 7*core.Second), Budget: pick(s, 0, 0, 3), Interval: 10 * core.Second,
		},
		Spot:    core.Spot{Period: pick(s, 0, 0, 24*core.Second, 2400*core.Second/1000)},
		Requeue: core.RequeuePolicy{Backoff: pick(s, 0, 4*core.Second), MaxBackoff: 20 * core.Second},
		Defrag: core.Defrag{Every: pick(s, 0, 0, 6*core.Second), MaxMoves: pick(s, 0, 2), MoveTime: pick(s, core.Second, 5*core.Second), MaxGPUTime: int64(pick(s, 0, 0, 10_000)), Partition: pick(s, 0, 2, 3),
			Restarts: pick(s, core.NoRestarts, core.LPRestarts, core.AllRestarts), MaxLost: pick(s, 0, 0, 5*core.Second)},
		Room: core.Room{MaxMoves: pick(s, 0, 3, 20), Restarts: !s.chance(3), AssumedWait: pick(s, 0, 5*core.Second, 60*core.Second)},
	}
	// These follow from what was drawn, so that a seed still gives the story that it gave.
	if p.Queueing.HeadWait != 0 {
		p.Requeue.Timestamp = core.EvictionTime
	}
	if p.Requeue.Backoff == 0 {
		p.Preempt.MaxSuspended = 30 * core.Second
	}
	if p.Preempt.MinRuntime != 0 {
		p.Queueing.SizeWeight = p.Preempt.MinRuntime
	}
	if p.Requeue.Backoff != 0 {
		p.Preempt.Delay = 3 * core.Second
	}
	if p.Defrag.MaxMoves != 0 {
		p.Requeue.StaleGrace = 4 * core.Second
	}
	if p.Queueing.Order == core.BySubmission && p.Room.AssumedWait != 0 {
		p.Queueing.Order = core.LongTermFairness
		if p.Room.Restarts {
			p.Fairness.Rates = []core.ModelRate{{Model: "B", Rate: 2500}}
		}
		if p.Requeue.Backoff != 0 {
			p.Fairness.HalfLife = 30 * core.Second
		}
		if p.Room.MaxMoves > 0 {
			p.Fairness.Lease = core.Time(p.Room.MaxMoves) * 2 * core.Second // 6 or 40 s
		}
		if p.Defrag.Partition != 0 {
			p.Fairness.Jobs = core.JobOrders[int(p.Defrag.Partition-2)*3+int(p.Defrag.Restarts)]
		}
	}
	if p.Queueing.Order == core.ByPriority && p.Room.AssumedWait == 5*core.Second {
		p.Queueing.Order, p.Fairness.Lease = core.ShortestRemaining, 5*core.Second
		switch p.Room.MaxMoves {
		case 3:
			p.Queueing.Order = core.FinishTimeFairness
		case 20:
			p.Queueing.Order = core.LeastAttained
			if p.Room.Restarts {
				p.Fairness.Levels = []core.Time{4 * core.Second, 20 * core.Second}
			}
		}
	}
	if p.Queueing.Order == core.ByPriority && p.Room.AssumedWait == 60*core.Second && p.Room.MaxMoves == 0 {
		p.Queueing.Order = core.DominantShare
		if p.Room.Restarts {
			p.Fairness.Rates = []core.ModelRate{{Model: "B", Rate: 2500}}
		}
	}
	if p.Queueing.Order == core.ByPriority && p.Room.AssumedWait == 60*core.Second && p.Room.MaxMoves == 3 {
		p.Queueing.Order, p.Fairness.Lease = core.GittinsIndex, 5*core.Second
		if p.Room.Restarts {
			p.Fairness.Levels = []core.Time{4 * core.Second, 20 * core.Second}
		}
		if p.Requeue.Backoff != 0 {
			p.Fairness.Distribution = []core.Time{2 * core.Second, 3 * core.Second, 9 * core.Second, 90 * core.Second}
		}
	}
	if p.Room.MaxMoves == 3 {
		p.PreferenceWeight = 2500
	}
	if p.Queueing.Order == core.ByEstimate && p.Room.MaxMoves == 3 {
		p.Queueing.Order = core.ByEstimatedGPUTime
	}
	for k := range p.Placement {
		p.Placement[k] = place.Strategy(s.up(len(place.Strategies)))
	}
	p.Models = core.ModelOrder(s.up(2))
	if s.chance(3) {
		p.Zone.Share = 0.5
	}
	if s.chance(3) {
		p.CPUOnly = core.CPUOnly{Reserve: pick[int64](s, 250, 500, 1000), GPUUse: pick[int64](s, 0, 200)}
		if s.chance(2) {
			p.CPUOnly.Strategy = new(place.Strategy)
			*p.CPUOnly.Strategy = place.Strategy(s.up(len(place.Strategies)))
		}
	}
	return p
}

func (s *story) addNode(name string) {
	n := core.Node{Name: name, GPUs: pick(s, 0, 2, 4, 8)}
	s.describe(&n)
	if n.GPUs > 0 {
		n.Model = pick(s, "A", "A", "B")
		if s.chance(6) {
			n.Unhealthy = []int{n.GPUs - 1}
		}
	}
	nameSets(&n)
	s.Must(core.NodeAdded{Node: n, Evictions: pick(s, 0, 0, 1, 5, core.MaxEvictions)})
}

// nameSets gives a node device sets, which overlap. They follow from what was drawn of it.
func nameSets(n *core.Node) {
	if n.Sets = nil; n.GPUs == 0 || n.Labels["rack"] == "none" {
		return
	}
	all := uint64(1)<<n.GPUs - 1
	n.Sets = []core.DeviceSet{{Name: "even", Devices: all & 0x55}, {Name: "low", Devices: all >> (n.GPUs / 2)}}
	if n.Labels["disk"] == "ssd" {
		n.Sets = append(n.Sets, core.DeviceSet{Name: "one", Devices: all &^ (all >> 1)})
	}
}

// from is what a pod may want of device sets.
func from(k int, gpus int64) []core.Amount {
	switch k % 5 {
	case 0:
		return []core.Amount{{Name: "even", Value: 1}}
	case 1:
		return []core.Amount{{Name: "low", Value: gpus}}
	case 2:
		return []core.Amount{{Name: "one", Value: 1}}
	case 3:
		if gpus > 1 {
			return []core.Amount{{Name: "even", Value: gpus - 1}, {Name: "low", Value: 1}}
		}
	}
	return []core.Amount{{Name: "even", Value: gpus}}
}

// describe sets what may change of a node.
func (s *story) describe(n *core.Node) {
	n.CPUMilli, n.MemMiB = int64(pick(s, 4, 16))*1000, int64(pick(s, 64, 256))
	n.MaxPods = pick(s, 0, 0, 1, 3)
	n.Others = pick(s, nil, nil, others(2, 0), others(1, 8), others(4, 3))
	n.Domains, n.HBD = []string{"z", pick(s, "s0", "s1"), pick(s, "l0", "l1")}, pick(s, "", "h0", "h1")
	n.Labels, n.Taints = map[string]string{"disk": pick(s, "ssd", "hdd"), "rack": pick(s, "7", "12", "-3", "none")}, nil
	n.Blind = n.Labels["disk"] == "ssd" // follows from what was drawn
	if s.chance(6) {
		n.Domains[2] = ""
	}
	if zone := s.up(3); zone > 0 {
		n.Labels["zone"] = fmt.Sprint(zone)
	}
	if s.chance(6) {
		n.Taints = []core.Taint{{Key: "team", Value: "x", Effect: pick(s, "", "out")}}
	}
	if n.Labels["rack"] == "12" {
		n.Taints = append(n.Taints, core.Taint{Key: "old", Value: "x", Effect: cluster.PreferNoSchedule})
	}
}

// preferences are what pods may prefer.
var preferences = []core.Preference{
	{Weight: 50, Selector: []core.Requirement{{Key: "disk", Op: cluster.In, Values: []string{"ssd"}}}},
	{Weight: -10, Selector: []core.Requirement{{Key: "rack", Op: cluster.Gt, Values: []string{"5"}}}},
	{Weight: 20, Level: "leaf", Label: "db"}, {Weight: -30, Level: "node", Label: "web"}, {Weight: 100, Level: "hbd", Label: "web"}, {Weight: 100, Level: "leaf", Label: "db", Group: true}, {Weight: 60, Level: "node", Label: "web", Group: true},
}

// others is so many RDMA adapters and FPGAs.
func others(hcas, fpgas int64) []core.Amount {
	return []core.Amount{{Name: "fpga", Value: fpgas}, {Name: "rdma/hca", Value: hcas}}
}

var queueNames = []string{"a", "b", "c", "b1", "b2"}

func (s *story) setQueue(name string) {
	q := core.Queue{Name: name, Weight: pick[int64](s, 1, 1, 2, 5, 0), Priority: pick[int32](s, 0, 0, 0, 1)}
	if len(name) == 2 {
		q.Parent = name[:1]
	}
	if s.chance(4) {
		q.Mode = 1
	}
	if s.quota && !s.chance(4) {
		for _, m := range []string{"A", "B", "*"} {
			if s.chance(2) {
				continue
			}
			x := core.Quota{Model: m, Nominal: core.Milli(s.up(7)) * 1000, BorrowingLimit: core.Unlimited, LendingLimit: core.Unlimited}
			if s.chance(3) {
				x.BorrowingLimit = core.Milli(s.up(4)) * 1000
			}
			if s.chance(3) {
				x.LendingLimit = core.Milli(s.up(4)) * 1000
			}
			q.Quota = append(q.Quota, x)
		}
	}
	if s.resources && !s.chance(4) {
		q.Resources = s.resourceQuotas()
	}
	if s.chance(5) {
		q.MaxRunning = core.Running{Jobs: s.up(4), GPU: core.Milli(s.up(9)) * 1000}
		q.MaxRunningPerUser = core.Running{Jobs: s.up(3), GPU: core.Milli(s.up(3)) * 2000}
	}
	q.FairUsers = q.Weight == 2 || len(name) == 2 && q.Mode == 0 // follows from what was drawn
	s.Must(core.QueueSet{Queue: q})
}

// resourceQuotas draws quotas of some resources.
func (s *story) resourceQuotas() []core.ResourceQuota {
	var out []core.ResourceQuota
	for resource, unit := range []core.Milli{1000, 20, 1} {
		if s.chance(2) {
			continue
		}
		x := core.ResourceQuota{
			Resource: []string{"cpu", "memory", "rdma/hca"}[resource], Nominal: core.Milli(s.up(9)) * unit,
			BorrowingLimit: core.Unlimited, LendingLimit: core.Unlimited,
		}
		if s.chance(3) {
			x.BorrowingLimit = core.Milli(s.up(5)) * unit
		}
		if s.chance(3) {
			x.LendingLimit = core.Milli(s.up(5)) * unit
		}
		out = append(out, x)
	}
	return out
}

func (s *story) submit() {
	j := core.Job{
		Name: fmt.Sprintf("j%d", s.jobs), Queue: pick(s, queueNames...), User: pick(s, "", "ann", "bob"), Kind: core.Kind(s.up(4)), Class: core.Class(s.up(2)),
		Priority: int32(s.up(3)), Gang: s.chance(2), Submitted: s.Now, Estimate: core.Time(s.up(3)) * core.Second,
		NotPreemptible: s.chance(8), Locked: s.chance(8), Mobility: s.mobility(), Checkpoint: core.Time(s.up(2)) * 5 * core.Second,
		SaveWithin: core.Time(s.jobs%3) * 3 * core.Second, MinRuntime: pick(s, 0, 0, 0, 11*core.Second), NeverOnLent: s.chance(8),
	}
	s.jobs++
	if j.NeverOnLent {
		j.StaleGrace = core.Time(len(j.Name)-3) * 6 * core.Second
	}
	j.NeverRestarts = s.chance(8)
	tasks := 1
	if s.chance(4) {
		tasks = 2
	}
	for k := range tasks {
		t := core.Task{Name: fmt.Sprint("t", k), Pods: 1 + s.up(4)}
		if j.Gang && s.chance(3) {
			t.MinPods = s.up(t.Pods + 1)
		}
		if k > 0 && s.chance(4) {
			t.MinPods = core.Elastic
		}
		t.GPU = pick[core.Milli](s, 1000, 1000, 2000, 4000, 8000, 250, 600, 0)
		t.CPUMilli = int64(pick(s, 0, 0, 1, 3)) * 1000
		t.MemMiB = int64(pick(s, 0, 0, 20, 60))
		t.Others = pick(s, nil, nil, nil, others(1, 0), others(0, 3), others(2, 1))
		t.Models = pick(s, nil, nil, []string{"A"}, []string{"B"}, []string{"B", "A"})
		if len(t.Models) == 2 && s.chance(2) {
			t.Speeds = []int64{pick[int64](s, 500, 1000), pick[int64](s, 500, 800)}
		}
		if s.chance(5) {
			t.Selector = []core.Requirement{s.requirement()}
		}
		for s.chance(6) {
			t.AnyOf = append(t.AnyOf, []core.Requirement{s.requirement(), s.requirement()}[:1+s.up(2)])
		}
		if s.chance(4) {
			t.Tolerations = []core.Toleration{{Key: pick(s, "team", ""), Effect: pick(s, "", "", "out")}}
		}
		t.Picker = core.Picker((s.jobs + k) % 4 % 3)
		if n := s.jobs + 2*k; n%3 == 0 && t.GPU >= core.WholeGPU && t.Picker != core.NodePicks { // by the number of the job, too
			t.From = from(n/3, int64(t.GPU/core.WholeGPU))
		}
		t.Labels, t.Affinity = s.terms()
		for k := s.jobs; k%3 == 0 && len(t.Prefers) < 3; k++ { // by the number of the job: draws stay as they were
			t.Prefers = append(t.Prefers, preferences[(s.jobs+k)/3%len(preferences)])
		}
		j.Tasks = append(j.Tasks, t)
	}
	if s.chance(3) {
		j.Topology.Required = pick(s, "leaf", "spine", "node", "hbd")
	}
	if j.Gang && s.chance(3) {
		j.Topology.Preferred = pick(s, "leaf", "spine", "node", "hbd")
	}
	if j.Gang && s.chance(3) {
		j.Topology.Closeness = pick[int64](s, 50, 250, 1500)
	}
	combine(&j, s.jobs)
	j.Lends = j.Class == core.HP && s.jobs%3 == 0
	if s.jobs%2 == 0 {
		j.Suspend = core.Suspension{Pause: core.Second, Resume: core.Second, HostMemMiB: int64(1 + s.jobs%40)}
	}
	s.Must(core.JobSubmitted{Job: j})
}

// combine lets some gangs of two tasks list combinations of models, by their number.
func combine(j *core.Job, number int) {
	alike := func(t core.Task) bool { return t.GPU == 0 || t.MinPods != 0 || len(t.Models) < 2 && t.Models != nil }
	if !j.Gang || len(j.Tasks) != 2 || slices.ContainsFunc(j.Tasks, alike) || number%4 == 0 {
		return
	}
	j.Topology.Closeness = 0
	for t := range j.Tasks {
		j.Tasks[t].Models, j.Tasks[t].Speeds = []string{"A", "B"}, nil
	}
	j.Combinations = []core.Combination{{Models: []string{"A", "B"}, Rates: []int64{2000, 1000}, Price: 1000}, {Models: []string{"B", "B"}, Rates: []int64{1500}, Price: 1000}}
	if number%4 == 1 {
		j.Combinations = append(j.Combinations[:1], core.Combination{Models: []string{"B", "A"}, Rates: []int64{900, 1800}, Price: 500})
	}
}

// mobility draws how pods can be moved: most can be replaced.
func (s *story) mobility() core.Mobility { return core.Mobility(min(s.up(4), 1)) }

// move asks for some pod to be moved, wherever it may be, or says how a move ended.
func (s *story) move() {
	if j, i, ok := s.somePod(moves); ok && s.chance(2) {
		s.Must(pick[core.Event](s, core.PodMoved{Job: j, Pod: i}, core.PodMoved{Job: j, Pod: i}, core.MoveFailed{Job: j, Pod: i}))
		return
	}
	if s.chance(2) {
		s.restart()
		return
	}
	for range 3 {
		if j, i, ok := s.somePod(runs); ok {
			_ = s.Apply(core.MoveRequested{Job: j, Pod: i, Node: pick(s, "", "", pick(s, s.Twin.nodes...).Name)}) // many cannot
		}
	}
}

// restart asks for some pods of a job to restart elsewhere, wherever they may be.
func (s *story) restart() {
	for range 3 {
		j, i, ok := s.somePod(runs)
		if !ok {
			return
		}
		ev := core.RestartRequested{Job: j, Pods: []int{i}}
		for k := range s.Twin.jobs[j].pods {
			if k != i && s.chance(2) {
				ev.Pods = append(ev.Pods, k)
			}
		}
		if s.chance(2) {
			for range ev.Pods {
				ev.Nodes = append(ev.Nodes, pick(s, "", pick(s, s.Twin.nodes...).Name))
			}
		}
		if s.Apply(ev) == nil { // many cannot
			return
		}
	}
}

// role draws the name of one of a job's tasks, or none.
func (s *story) role(name string) string {
	j := s.Twin.jobs[name]
	if t := s.up(len(j.Tasks) + 1); t > 0 {
		return j.Tasks[t-1].Name
	}
	return ""
}

// terms draws the labels of pods, and which they keep to or from.
func (s *story) terms() (labels []string, terms []core.Term) {
	if s.chance(4) {
		labels = []string{pick(s, "db", "web")}
	}
	if s.chance(5) {
		terms = []core.Term{{Level: s.termLevel(), Label: pick(s, "db", "web"), Anti: s.chance(2)}}
	}
	if s.chance(5) {
		label := pick(s, "db", "web")
		if !s.chance(4) {
			labels = []string{label}
		}
		terms = append(terms, core.Term{
			Level: s.termLevel(), Label: label, MaxSkew: 1 + s.up(2), MinDomains: s.up(3), AnyTaint: s.chance(2), AnyLabel: s.chance(3),
		})
	}
	return labels, terms
}

// termLevel draws a level of a term: also a label that all nodes have, and one that some have.
func (s *story) termLevel() string {
	return pick(s, "node", "node", "leaf", "leaf", "hbd", "hbd", cluster.LabelLevel+"disk", cluster.LabelLevel+"zone")
}

// requirement draws what a node's labels must be.
func (s *story) requirement() core.Requirement {
	if s.chance(3) {
		return core.Requirement{Key: "rack", Op: pick(s, cluster.Gt, cluster.Lt), Values: []string{pick(s, "5", "10")}}
	}
	return core.Requirement{Key: "disk", Op: cluster.Op(s.up(4)), Values: []string{"ssd"}}
}

// somePod returns a pod in a state, drawn among all; false when there is none.
func (s *story) somePod(ok func(*job, *pod) bool) (string, int, bool) {
	type ref struct {
		job string
		pod int
	}
	var refs []ref
	for _, name := range s.Twin.Live() {
		j := s.Twin.jobs[name]
		for i := range j.pods {
			if ok(j, &j.pods[i]) {
				refs = append(refs, ref{name, i})
			}
		}
	}
	if len(refs) == 0 {
		return "", 0, false
	}
	r := refs[s.up(len(refs))]
	return r.job, r.pod, true
}

func runs(_ *job, p *pod) bool { return p.state == running }
func leaves(j *job, p *pod) bool {
	return p.state == leaving || p.image && j.suspended.told
}
func moves(_ *job, p *pod) bool { return p.to != nil }

// event lets something happen.
func (s *story) event() {
	name := fmt.Sprintf("n%d", s.up(s.nodes))
	n := s.Twin.node(name)
	switch k := s.up(32); {
	case k < 6:
		s.submit()
	case k < 9:
		if live := s.Twin.Live(); len(live) > 0 {
			s.Must(core.JobEnded{Job: pick(s, live...)})
		}
	case k < 10:
		if j, i, ok := s.somePod(func(j *job, p *pod) bool { return p.on() }); ok {
			failed := s.chance(2)
			s.Must(core.PodEnded{Job: j, Pod: i, Failed: failed, Lost: !failed && s.config.Policy.Requeue.StaleGrace > 0})
		}
	case k < 11:
		if j, i, ok := s.somePod(runs); ok {
			s.Must(core.BindFailed{Job: j, Pod: i})
		}
	case k < 15:
		if j, i, ok := s.somePod(leaves); ok {
			ev := core.PodsGone{Job: j}
			if s.chance(2) {
				ev.Pods = []int{i}
			}
			s.Must(ev)
		}
	case k < 16:
		switch {
		case n != nil && n.up && s.chance(2):
			s.Must(core.NodeLost{Node: name})
		case n == nil || !n.up:
			s.addNode(name)
		}
	case k < 17:
		if n != nil && n.up {
			s.Must(core.NodeCordoned{Node: name, Cordoned: !n.cordoned})
		}
	case k < 18:
		if n != nil && n.up && n.GPUs > 0 {
			s.Must(core.DeviceHealth{Node: name, GPU: s.up(n.GPUs), Healthy: s.chance(2)})
		}
	case k < 19:
		if s.chance(3) {
			s.setQueue(pick(s, queueNames...))
		} else if live := s.Twin.Live(); len(live) > 0 {
			j := pick(s, live...)
			labels, terms := s.terms()
			s.Must(pick[core.Event](s, core.Checkpointed{Job: j, At: core.Time(s.up(int(s.Now/core.Second)+1)) * core.Second}, core.JobEstimated{Job: j, Estimate: core.Time(s.up(4)) * core.Second},
				core.JobShielded{Job: j, Shielded: !s.chance(3)}, core.JobRelabelled{Job: j, Task: s.role(j), Labels: labels, Affinity: terms}))
		}
	case k < 20:
		s.found()
	case k < 21:
		s.withdraw()
	case k < 22:
		if s.Twin.fairOrder() && s.chance(2) {
			s.recount()
			return
		}
		s.addPods()
	case k < 23:
		if n != nil && n.up {
			changed := n.Node
			s.describe(&changed)
			nameSets(&changed)
			s.Must(core.NodeChanged{Node: changed})
		}
	case k < 26:
		s.move()
	case k < 30:
		s.standby()
	default:
		s.Now += core.Time(1+s.up(8)) * core.Second
		s.Must(core.Tick{})
	}
}

// recount says that queues and jobs have received and deserved other amounts, or those that the engine has counted.
func (s *story) recount() {
	ev := s.Engine.Counted(s.Now)
	if s.chance(2) {
		ev.At = s.Now - core.Time(s.up(60))*core.Second
		served := func() core.Served {
			return core.Served{Received: fmt.Sprintf("%d%015d", s.up(100), s.up(10)), Deserved: pick(s, "", fmt.Sprintf("%d000000000000000", s.up(100)))}
		}
		for i := range ev.Queues {
			ev.Queues[i].All, ev.Queues[i].Own = served(), served()
		}
		for i := range ev.Jobs {
			ev.Jobs[i].Served = served()
		}
	}
	s.Must(ev)
}

// standby lets some pods of a job lend their GPUs for a while, or asks for them back.
func (s *story) standby() {
	lends := func(_ *job, p *pod) bool { return p.standby != nil }
	if j, i, ok := s.somePod(lends); ok && s.chance(4) {
		s.Must(core.StandbyEnded{Job: j, Pods: pick(s, nil, []int{i})})
		return
	}
	for range 3 {
		if j, i, ok := s.somePod(runs); ok {
			ev := core.StandbyBegan{
				Job: j, Pods: pick(s, nil, []int{i}, []int{i}), Until: s.Now + core.Time(s.up(30))*core.Second,
				CPUMilli: int64(pick(s, 0, 0, 500)), MemMiB: int64(pick(s, 0, 0, 20)),
			}
			if s.Apply(ev) == nil { // many cannot
				return
			}
		}
	}
}

// withdraw lets a pod that does not run end.
func (s *story) withdraw() {
	if j, i, ok := s.somePod(func(_ *job, p *pod) bool { return p.state == waiting }); ok {
		s.Must(core.PodEnded{Job: j, Pod: i})
	}
}

// addPods lets pods join a job, in place of ended ones and as new ones, in a role
// that is there or a new one.
func (s *story) addPods() {
	live := s.Twin.Live()
	if len(live) == 0 {
		return
	}
	j := s.Twin.jobs[pick(s, live...)]
	if j.suspended != nil {
		return
	}
	ev := core.PodsAdded{Job: j.Name}
	t := s.up(len(j.Tasks) + 1)
	if t < len(j.Tasks) {
		ev.Task = j.Tasks[t]
		for i := range j.pods {
			if p := &j.pods[i]; p.task == t && (p.state == done || p.state == withdrawn) && !s.chance(3) {
				ev.Pods = append(ev.Pods, i)
			}
		}
	} else {
		ev.Task = j.Tasks[s.up(len(j.Tasks))]
		ev.Task.Name = fmt.Sprint("t", t)
		if was := ev.Task.GPU; ev.Task.From != nil {
			pick(s, 0, 0, 0, 0) // draws stay as they were
		} else {
			ev.Task.GPU = pick[core.Milli](s, 1000, 2000, 500, was)
		}
		ev.Task.Labels, ev.Task.Affinity = s.terms()
	}
	for next := len(j.pods); len(ev.Pods) == 0 || s.chance(2); next++ {
		ev.Pods = append(ev.Pods, next)
	}
	if t == len(j.Tasks) {
		ev.Task.MinPods = pick(s, core.Elastic, 0, s.up(len(ev.Pods)+1))
	}
	s.Must(ev)
}

// found reports that a waiting pod runs where it could be.
func (s *story) found() {
	name, i, ok := s.somePod(func(_ *job, p *pod) bool { return p.state == waiting })
	if !ok || s.chance(2) {
		return
	}
	j := s.Twin.jobs[name]
	t := &j.Tasks[j.pods[i].task]
	for _, n := range s.Twin.nodes {
		if !n.up || n.cordoned || s.Twin.suits(j, t, n) != nil {
			continue
		}
		ev := core.PodRunning{Job: name, Pod: i, Node: n.Name, Started: s.Now}
		u := s.Twin.use(n)
		if lent := s.Twin.lent(n.Name); lent != 0 && s.chance(2) && s.Twin.lentSlot(j, t, n) && t.GPU >= core.WholeGPU {
			_, _, open := s.Twin.loans(n)
			beside := s.chance(3) // one GPU of its own, as if the owner had ended
			for g := range u.gpu {
				switch {
				case open>>g&1 == 1:
					u.gpu[g] = 0
				case !beside || u.gpu[g] > 0:
					u.gpu[g] = core.WholeGPU
				default:
					beside = false
				}
			}
			for _, p := range s.Twin.guestsAt(n.Name) {
				for g := range u.gpu {
					u.gpu[g] += core.Milli(p.at.GPUs>>g&1) * core.WholeGPU
				}
			}
		}
		need := core.WholeGPU - min(t.GPU, core.WholeGPU)
		for g := 0; g < n.GPUs && core.Milli(len(ev.GPUs))*core.WholeGPU < t.GPU; g++ {
			if u.gpu[g] <= need && n.bad>>g&1 == 0 {
				ev.GPUs = append(ev.GPUs, g)
			}
		}
		// The GPUs may be too few, or kept for a job for which others leave: an error,
		// then.
		if s.Apply(ev) == nil {
			if s.config.Policy.Requeue.StaleGrace > 0 && s.Now > core.Second {
				s.Must(core.GangStale{Job: name, Since: s.Now - core.Second})
			}
			return
		}
	}
}

// newStory returns a world with queues and a few nodes.
func newStory(rt *rapid.T) *story { return storyOf(rt, randomPolicy(rt)) }

// crowd lets jobs take turns in a part of the stories: it follows from what was drawn for the policy.
func crowd(p core.Policy) int {
	if p.Requeue.Backoff != 0 {
		return 2
	}
	return 0
}

// storyOf is newStory with a policy.
func storyOf(rt *rapid.T, p core.Policy) *story {
	c := core.Config{Policy: p, Levels: testLevels, Crowd: crowd(p)}
	c.Policy.Preempt.ProtectedQueues = rapid.SampledFrom([][]string{nil, nil, {"a", "b"}}).Draw(rt, "protected")
	s := &story{World: NewWorld(rt, c), rt: rt}
	s.quota, s.resources = s.chance(2), s.chance(3)
	for _, q := range queueNames {
		s.setQueue(q)
	}
	s.nodes = 1 + s.up(5)
	for i := range s.nodes {
		s.addNode(fmt.Sprintf("n%d", i))
	}
	return s
}

// TestRandom plays random events to small clusters with all features. The twin
// checks every decision; no job may wait that could start; the same events give the same
// decisions.
func TestRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newStory(rt)
		for range 10 + s.up(40) {
			for range 1 + s.up(3) {
				s.event()
			}
			s.Decide()
			s.CheckIdle()
		}
		s.CheckReplay()
	})
}

// TestPermuted sends two engines the same queues and jobs in different orders. Except where
// the order of arrival breaks a tie, they must decide the same.
func TestPermuted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newStory(rt)
		p := s.config.Policy
		p.Preempt = core.Preempt{} // ties between victims go by the order of arrival
		for k := range p.Placement {
			p.Placement[k] = place.Strategy(s.up(int(place.Consolidate) + 1)) // without those that draw lots
		}
		var jobs []core.Job
		for range 1 + s.up(12) {
			s.submit()
			j := s.Twin.jobs[fmt.Sprintf("j%d", s.jobs-1)].Job
			j.Submitted = core.Time(s.jobs) // no two at once
			jobs = append(jobs, j)
		}
		play := func(backwards bool) string {
			w := NewWorld(rt, core.Config{Policy: p, Levels: testLevels})
			queues, jobs := slices.Clone(s.Twin.queues), slices.Clone(jobs)
			if backwards {
				slices.Reverse(queues[3:]) // children of one parent
				slices.Reverse(jobs)
			}
			for _, q := range queues {
				w.Must(core.QueueSet{Queue: q})
			}
			for _, n := range s.Twin.nodes {
				w.Must(core.NodeAdded{Node: n.Node})
			}
			for _, j := range jobs {
				w.Must(core.JobSubmitted{Job: j})
			}
			ds := slices.DeleteFunc(w.Decide(), func(d core.Decision) bool { return d.Op != core.Bind })
			return Format(0, ds)
		}
		if a, b := play(false), play(true); a != b {
			s.fail(fmt.Errorf("decided\n%sand, told in another order,\n%s", a, b))
		}
	})
}
