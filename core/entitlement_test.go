package core

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-sched/muster/core/cluster"
)

// TestEntitlementByChange lets jobs of queues with quotas come, be evicted and end,
// nodes be lost and quotas change.
// What is kept of their entitlement from change to change must always be what
// dealing all quotas out again makes of it; and under fair shares, what a slow count says is within what
// queues are owed.
func TestEntitlementByChange(t *testing.T) {
	looked, narrow := [2]int{}, [2]int{}
	for seed := range uint64(1500) {
		f := newFight(t, seed)
		f.e.policy.Queueing.FairShare = seed%2 > 0
		f.e.policy.Preempt.MinRuntime = Time(seed%4) * 3 * Second
		for step := range 60 {
			f.step()
			if n := len(f.live); n > 0 && step%3 == 0 {
				f.apply(Checkpointed{Job: f.live[step%n]})
			}
			if step%3 > 0 {
				continue // several changes at once
			}
			f.e.entitlement.update()
			f.checkOwed()
			if f.e.policy.fair() {
				f.checkListed()
			}
			if step%6 > 0 {
				continue // what is kept goes through further changes
			}
			by := f.within()
			f.e.entitlement.rebuild()
			if again := f.within(); !slices.Equal(by, again) {
				t.Fatalf("seed %d, step %d: by change, then again:\n%v\n%v", seed, step, by, again)
			}
		}
		looked[0], looked[1] = looked[0]+f.looked[0], looked[1]+f.looked[1]
		narrow[0], narrow[1] = narrow[0]+f.narrow[0], narrow[1]+f.narrow[1]
	}
	if looked[0] < 10_000 || looked[1] < 10_000 {
		t.Errorf("%d searches had more victims ahead, of %d: too few to tell", looked[0], looked[1])
	}
	if narrow[0] < 1000 || narrow[1] < 100 {
		t.Errorf("%d searches left out nodes, %d of them found victims: too few to tell", narrow[0], narrow[1])
	}
	t.Log(looked, narrow)
}

// fight is jobs of three queues that want more than there is.
type fight struct {
	t    *testing.T
	e    *Engine
	rng  *rand.Rand
	now  Time
	jobs int
	live []string
	lost int // the node that is, -1 for none
	// looked counts the searches that had not found all of their victims, and the victims.
	looked [2]int
	// narrow counts the searches that left out nodes, and those of them that found victims.
	narrow [2]int
}

func newFight(t *testing.T, seed uint64) *fight {
	var p Policy
	p.Queueing.Mode = BestEffortFIFO
	p.Preempt = Preempt{Priority: InCluster, Reclaim: true}
	e, err := New(Config{Policy: p, Levels: []string{"leaf"}})
	if err != nil {
		t.Fatal(err)
	}
	f := &fight{t: t, e: e, rng: rand.New(rand.NewPCG(seed, 1)), lost: -1}
	for i := range 3 {
		f.setQueue(i)
	}
	for i := range 4 {
		f.addNode(i)
	}
	return f
}

func (f *fight) setQueue(i int) {
	q := Queue{Name: fmt.Sprint("q", i), Weight: 1 + int64(i)}
	if i == 2 && f.rng.IntN(2) == 0 {
		q.Parent = "q1"
	}
	for _, m := range []string{"A", "B", "*"} {
		if f.rng.IntN(3) > 0 {
			own := Milli(f.rng.IntN(8)) * WholeGPU
			q.Quota = append(q.Quota, Quota{Model: m, Nominal: own, BorrowingLimit: Unlimited, LendingLimit: Unlimited})
		}
	}
	if f.rng.IntN(3) == 0 {
		q.Resources = []ResourceQuota{{Resource: "cpu", Nominal: Milli(f.rng.IntN(8)) * 1000, BorrowingLimit: Unlimited, LendingLimit: Unlimited}}
	}
	f.apply(QueueSet{Queue: q})
}

func (f *fight) addNode(i int) {
	f.apply(NodeAdded{Node: Node{Name: fmt.Sprint("n", i), GPUs: 4, CPUMilli: 6000, Model: []string{"A", "B"}[i%2], Domains: []string{"l"}}})
}

// nodeOrQueue changes a quota, or loses a node or brings it back.
func (f *fight) nodeOrQueue() {
	switch {
	case f.rng.IntN(2) == 0:
		f.setQueue(f.rng.IntN(3))
	case f.lost < 0:
		f.lost = f.rng.IntN(4)
		f.apply(NodeLost{Node: fmt.Sprint("n", f.lost)})
	default:
		f.addNode(f.lost)
		f.lost = -1
	}
}

func (f *fight) apply(ev Event) {
	if err := f.e.Apply(f.now, ev); err != nil {
		f.t.Fatal(err)
	}
}

// step lets something happen, and the engine decide.
func (f *fight) step() {
	f.now += Second
	if f.rng.IntN(3) > 0 {
		f.submit()
	}
	if f.rng.IntN(20) == 0 {
		f.nodeOrQueue()
	}
	if len(f.live) > 0 && f.rng.IntN(4) == 0 {
		f.end(f.rng.IntN(len(f.live)))
	}
	if len(f.live) > 0 && f.rng.IntN(2) == 0 {
		f.endPod(f.live[f.rng.IntN(len(f.live))])
	}
	if len(f.live) > 0 && f.rng.IntN(3) == 0 {
		f.comeOrGo(f.live[f.rng.IntN(len(f.live))])
	}
	for _, name := range f.live {
		if j := f.e.jobs.byName[name]; j.count[podLeaving] > 0 && f.rng.IntN(2) == 0 {
			f.apply(PodsGone{Job: name})
		}
	}
	for _, d := range slices.Clone(f.e.Decide(f.now)) {
		if i := slices.Index(f.live, d.Job); d.Op == Reject && i >= 0 {
			f.end(i)
		}
	}
}

func (f *fight) submit() {
	t := Task{Pods: 1 + f.rng.IntN(4)}
	t.GPU = Milli(1+f.rng.IntN(2)) * WholeGPU
	t.MinPods = f.rng.IntN(t.Pods + 1)
	t.Models = [][]string{nil, {"A"}, {"B"}}[f.rng.IntN(3)]
	t.CPUMilli = int64(f.rng.IntN(3)) * 1000
	if f.rng.IntN(5) == 0 {
		t.GPU, t.Models = 0, nil
	}
	f.jobs++
	j := Job{
		Name: fmt.Sprint("j", f.jobs), Queue: fmt.Sprint("q", f.rng.IntN(3)), Priority: int32(f.rng.IntN(3)),
		Gang: f.rng.IntN(2) == 0, Submitted: f.now, Tasks: []Task{t}, Checkpoint: Time(f.jobs%3) * 2 * Second, SaveWithin: Time(f.jobs/3%2) * Second, MinRuntime: Time(f.jobs%4/3) * 5 * Second,
	}
	f.live = append(f.live, j.Name)
	f.apply(JobSubmitted{Job: j})
}

func (f *fight) end(i int) {
	f.apply(JobEnded{Job: f.live[i]})
	f.live = slices.Delete(f.live, i, i+1)
}

// endPod ends a pod of a job that is on a node, well or not.
func (f *fight) endPod(name string) {
	for i, p := range f.e.jobs.byName[name].pods {
		if (p.state == podRunning || p.state == podLeaving) && f.rng.IntN(2) == 0 {
			f.apply(PodEnded{Job: name, Pod: i, Failed: f.rng.IntN(3) == 0})
			return
		}
	}
}

// comeOrGo withdraws a pod that does not run, or adds pods to a job: in place of
// an ended one, or new ones of a role that is there or new.
func (f *fight) comeOrGo(name string) {
	j := f.e.jobs.byName[name]
	ev := PodsAdded{Job: name, Task: j.Tasks[f.rng.IntN(len(j.Tasks))]}
	for i := range j.pods {
		p := &j.pods[i]
		switch {
		case f.rng.IntN(3) > 0:
		case p.state >= podDone && j.Tasks[p.task].Name == ev.Task.Name:
			ev.Pods = append(ev.Pods, i)
		case p.state == podWaiting || p.state == podHeld || p.state == podPlanned:
			f.apply(PodEnded{Job: name, Pod: i})
			return
		}
	}
	switch {
	case len(ev.Pods) > 0:
	case f.rng.IntN(2) == 0:
		ev.Task.Name, ev.Task.MinPods = fmt.Sprint("t", len(j.Tasks)), Elastic
		fallthrough
	default:
		ev.Pods = []int{len(j.pods), len(j.pods) + 1}
	}
	f.apply(ev)
}

// checkOwed counts what is within what queues are owed, as the words of the rule say: first what is within
// nominal quota, then in the order of jobs the minimum of a gang as one, and each other pod by itself.
func (f *fight) checkOwed() {
	if !f.e.policy.fair() {
		return
	}
	type account struct{ queue, model string }
	left := map[account]Milli{}
	var jobs []*job
	for _, name := range f.live {
		jobs = append(jobs, f.e.jobs.byName[name])
	}
	slices.SortFunc(jobs, byKey)
	use := func(j *job, pods []int) map[account]Milli {
		uses := map[account]Milli{}
		for _, i := range pods {
			use := func(of string, amount Milli) {
				a := account{j.Queue, of}
				if uses[a] += amount; left[a] == 0 {
					q, _ := f.e.ledger.Lookup(a.queue)
					left[a] = q.Claim(a.model) + 1e6 // so that none is 0 once it is known
				}
			}
			p := &j.pods[i]
			if gpu := j.gpu(p); gpu > 0 && f.e.ledger.LimitsGPUs() {
				use(f.e.state.Pool(p.alloc.Node).Model, gpu)
			}
			for _, r := range j.queue.Limits() {
				if takes := j.Tasks[p.task].Takes(r); takes > 0 {
					use(r, takes)
				}
			}
		}
		return uses
	}
	for _, nominal := range []bool{true, false} {
		for _, j := range jobs {
			var units [][]int
			var minimum []int
			for i := range j.pods {
				switch p := &j.pods[i]; {
				case !p.placed():
				case j.Gang && !p.extra:
					minimum = append(minimum, i)
				default:
					units = append(units, []int{i})
				}
			}
			if minimum != nil {
				units = append([][]int{minimum}, units...)
			}
			whole := true
			for _, u := range units {
				p := &j.pods[u[0]]
				if p.within != nominal {
					whole = whole && (p.within || minimum == nil || u[0] != minimum[0])
					continue
				}
				uses, fits := use(j, u), whole
				for a, gpu := range uses {
					fits = fits && left[a]-1e6 >= gpu
				}
				if fits = fits || nominal; fits {
					for a, gpu := range uses {
						left[a] -= gpu
					}
				} else if minimum != nil && u[0] == minimum[0] {
					whole = false
				}
				for _, i := range u {
					if j.pods[i].owed != fits {
						f.t.Fatalf("pod %d of job %s is owed %v, expected %v", i, j.Name, j.pods[i].owed, fits)
					}
				}
			}
		}
	}
}

// checkListed compares what a search finds among the pods that are listed by cover with what it finds if it looks at
// every pod, for each job that waits; and says of those that need no search that none would make room.
func (f *fight) checkListed() {
	f.t.Helper()
	for _, name := range f.live {
		j := f.e.jobs.byName[name]
		if j.class == nil {
			continue
		}
		f.e.units.compile(j.class)
		for _, inDebt := range []bool{false, true} {
			w := f.e.units.prepare(j)
			f.checkListedFor(preemptor{candidate: w, turn: anyTurn, now: f.now, cover: f.e.entitlement.coverOf(w), short: w.overrun(), inDebt: inDebt, later: &outlook{Never, Never}})
		}
	}
}

// checkListedFor is checkListed for one job.
func (f *fight) checkListedFor(c preemptor) {
	f.t.Helper()
	pl, name := &f.e.planner, c.Name
	list, all := &search{all: true, due: Never}, &search{all: true, due: Never}
	pl.trial++
	pl.gatherListed(list, &c, false)
	pl.trial++
	for _, v := range f.e.runs.jobs {
		for i := range v.pods {
			if pl.mayYield(&c, f.e.jobs.evictable[v.slot]) {
				pl.mayAddVictim(all, &c, v, i)
			}
		}
	}
	list.sort()
	all.sort()
	if !slices.Equal(list.victims, all.victims) || list.due != all.due {
		f.t.Fatalf("for job %s the list has %v due at %v, all pods have %v due at %v", name, list.victims, list.due, all.victims, all.due)
	}
	f.checkAhead(c, list)
	f.checkNarrow(c)
	may := pl.mayClear(c, searchOf{})
	if pl.dropSearches(); may {
		return
	}
	c.candidate = f.e.units.prepare(c.job)
	if all.all && pl.roomWith(c.unit, all) {
		f.t.Fatalf("%v would make room for job %s, which is said to be vain", all.victims, name)
	}
	if c.later.more != Never && c.later.more != all.due {
		f.t.Fatalf("for job %s more is said to be due at %v, expected %v", name, c.later.more, all.due)
	}
	for less := c; !c.inDebt && less.cover > uncovered; {
		less.cover--
		for _, less.inDebt = range []bool{false, true} {
			less.later = &outlook{Never, Never}
			if pl.mayClear(less, searchOf{}) || less.later.more < c.later.more {
				f.t.Fatalf("for job %s a search is said to be vain, but not if it is covered less", name)
			}
			pl.dropSearches()
		}
	}
}

// checkNarrow compares the victims on the cheapest node for a pod where a search leaves out nodes with those of a search that does not.
func (f *fight) checkNarrow(c preemptor) {
	f.t.Helper()
	pl := &f.e.planner
	if pl.policy.Preempt.Victims != LeastWork || c.unit.Whole && len(c.unit.Tasks[0].Pods) > 1 {
		return
	}
	var found [2][]victim
	for i := range found {
		pl.manyLooked = [...]int{0, math.MaxInt}[i]
		c.candidate = f.e.units.prepare(c.job)
		if !c.unit.Whole {
			onePod(c.unit)
		}
		c.later = &outlook{Never, Never}
		s := &search{all: true, due: Never}
		pl.lookAhead(s, c, nil)
		pl.lookAtMore(s, 1)
		for _, o := range pl.cheapestNode(c.unit, s) {
			found[i] = append(found[i], s.victims[o.victim])
		}
		if i == 0 && s.ahead.near != nil {
			if f.narrow[0]++; len(found[0]) > 0 {
				f.narrow[1]++
			}
			whole := &search{all: true, due: Never}
			if due := f.dueNear(&c, s.ahead.near); len(found[0]) == 0 && c.later.more > due {
				f.t.Fatalf("for job %s more is said to be due at %v where it looks, expected %v", c.Name, c.later.more, due)
			}
			pl.lookAtAll(s)
			pl.lookAhead(whole, c, nil)
			if pl.lookAtAll(whole); !slices.Equal(s.victims, whole.victims) || s.due != whole.due || s.partial() {
				f.t.Fatalf("for job %s a search that has left out nodes finds %v in the end, another one %v", c.Name, s.victims, whole.victims)
			}
		}
		pl.state.Rollback(0)
		pl.dropLifted()
	}
	if !slices.Equal(found[0], found[1]) {
		f.t.Fatalf("for job %s the cheapest victims on one node are %v; with all nodes, %v", c.Name, found[0], found[1])
	}
}

// dueNear returns when the first pod on some nodes, a bit each, may be evicted that may not yet.
func (f *fight) dueNear(c *preemptor, near []uint64) Time {
	pl, s := &f.e.planner, &search{all: true, due: Never}
	pl.trial++
	for _, v := range f.e.runs.jobs {
		for i := range v.pods {
			node := v.pods[i].alloc.Node
			if v.pods[i].placed() && near[node/64]>>(node%64)&1 == 1 && pl.mayYield(c, f.e.jobs.evictable[v.slot]) {
				pl.mayAddVictim(s, c, v, i)
			}
		}
	}
	return s.due
}

// checkAhead compares a search that finds the cheapest victims first with one that has found all.
func (f *fight) checkAhead(c preemptor, all *search) {
	f.t.Helper()
	pl := &f.e.planner
	if pl.policy.Preempt.Victims != LeastWork {
		return
	}
	some := &search{all: true, due: Never}
	pl.lookAhead(some, c, nil)
	pl.lookAtMore(some, 1)
	rest := pl.others(some)
	slices.SortFunc(rest, func(a, b victim) int { return a.cheaper(&b) })
	if !slices.Equal(slices.Concat(some.victims, rest), all.victims) {
		f.t.Fatalf("for job %s the victims are said to be %v and %v of %v", c.Name, some.victims, rest, all.victims)
	}
	for few := range 3 {
		pl.fewLeads = [...]int{1, 3, fewLeads}[few]
		s := &search{all: true, due: Never}
		for pl.lookAhead(s, c, nil); s.partial(); pl.lookAtMore(s, 1+few) {
			f.looked[0]++
			if n := len(s.victims); n > len(all.victims) || !slices.Equal(s.victims, all.victims[:n]) {
				f.t.Fatalf("for job %s the cheapest victims are said to be %v of %v", c.Name, s.victims, all.victims)
			}
			if n := len(s.victims); n > 0 && !s.cheapest(nothing().plus(&s.victims[n-1])) {
				f.t.Fatalf("for job %s a victim is said to be cheaper than %v, which comes before it", c.Name, s.victims[n-1])
			}
			f.checkOn(s, all)
			pay := slices.DeleteFunc(slices.Clone(all.victims), func(v victim) bool { return !pl.paysFor(&v, &c) })
			if few == 2 && !slices.Equal(pl.payers(s, &c), pay) {
				f.t.Fatalf("for job %s the victims that pay are said not to be %v", c.Name, pay)
			}
		}
		f.looked[1] += len(s.victims)
		if !slices.Equal(s.victims, all.victims) || s.due != all.due {
			f.t.Fatalf("for job %s the cheapest first are %v due at %v, all are %v due at %v", c.Name, s.victims, s.due, all.victims, all.due)
		}
	}
}

// checkOn compares what a search that finds the cheapest victims first says of each node with what one says that has found all, where the job
// may be.
func (f *fight) checkOn(s, all *search) {
	f.t.Helper()
	on := map[cluster.NodeID][]victim{}
	for _, v := range all.victims {
		for i := range v.pods {
			node := v.job.pods[i].alloc.Node
			if n := len(on[node]); n == 0 || on[node][n-1] != v {
				on[node] = append(on[node], v)
			}
		}
	}
	for node, want := range on {
		if s.ahead.by.class.pools&poolBit(f.e.state.Node(node)) == 0 {
			continue // no plan puts the job there
		}
		if found := f.e.planner.victimsOn(s, node); !slices.Equal(found, want) {
			f.t.Fatalf("of node %d the search has %v, expected %v", node, found, want)
		}
	}
}

// within lists the pods with places, and whether they are within quota.
func (f *fight) within() []string {
	var all []string
	for _, name := range f.live {
		j := f.e.jobs.byName[name]
		for i := range j.pods {
			if p := &j.pods[i]; p.placed() {
				all = append(all, fmt.Sprint(name, ".", i, " ", p.within, " ", p.owed, " ", j.Gang && p.extra))
			}
		}
	}
	return all
}

// Nominal quota is dealt out in the order of jobs. The queue owns 4 GPUs; the jobs were
// submitted in the order in which they are listed, each pod takes gpus.
func TestQuotaIsDealtOutInOrder(t *testing.T) {
	type found struct {
		gpus, pods int
		gang       bool
		min        int
		priority   int32
		locked     bool
		started    Time
		want       string // for each pod: w within quota, - beyond
	}
	for name, jobs := range map[string][]found{
		"what does not fit is passed over":           {{gpus: 3, pods: 1, want: "w"}, {gpus: 2, pods: 1, want: "-"}, {gpus: 1, pods: 1, want: "w"}},
		"a higher priority comes first":              {{gpus: 3, pods: 1, want: "-"}, {gpus: 3, pods: 1, priority: 1, want: "w"}},
		"pods of a job that is no gang are units":    {{gpus: 1, pods: 5, want: "wwww-"}},
		"the minimum of a gang is one unit":          {{gpus: 1, pods: 2, want: "ww"}, {gpus: 1, pods: 3, gang: true, want: "---"}, {gpus: 1, pods: 1, want: "w"}},
		"pods beyond the minimum are units":          {{gpus: 1, pods: 5, gang: true, min: 2, want: "wwww-"}},
		"and not better off than their gang":         {{gpus: 1, pods: 3, want: "www"}, {gpus: 1, pods: 3, gang: true, min: 2, want: "---"}},
		"who must not borrow comes first":            {{gpus: 3, pods: 1, want: "-"}, {gpus: 2, pods: 1, locked: true, want: "w"}},
		"what came with a larger job gets no quota":  {{gpus: 5, pods: 1, want: "-"}, {gpus: 2, pods: 1, want: "-"}},
		"nor does what came later":                   {{gpus: 5, pods: 1, want: "-"}, {gpus: 2, pods: 1, started: 9, want: "-"}},
		"what came before a larger job keeps it":     {{gpus: 5, pods: 1, started: 9, want: "-"}, {gpus: 2, pods: 1, started: 1, want: "w"}},
		"what ranks above a larger job gets its own": {{gpus: 5, pods: 1, want: "-"}, {gpus: 2, pods: 1, priority: 1, want: "w"}},
	} {
		e, err := New(Config{Policy: Policy{Preempt: Preempt{Reclaim: true}}})
		if err != nil {
			t.Fatal(err)
		}
		apply := func(ev Event) {
			t.Helper()
			if err := e.Apply(10, ev); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		apply(QueueSet{Queue{Name: "q", Weight: 1, Quota: []Quota{{Model: "A", Nominal: 4 * WholeGPU}}}})
		free := 0 // the next free device
		apply(NodeAdded{Node: Node{Name: "n", Model: "A", GPUs: 64}})
		for i, f := range jobs {
			j := Job{
				Name: fmt.Sprint("j", i), Queue: "q", Gang: f.gang, Priority: f.priority, Locked: f.locked, Submitted: Time(i),
				Tasks: []Task{{Pods: f.pods, MinPods: f.min, Request: Request{GPU: Milli(f.gpus) * WholeGPU}}},
			}
			apply(JobSubmitted{j})
			for p := range f.pods {
				var devices []int
				for range f.gpus {
					devices, free = append(devices, free), free+1
				}
				apply(PodRunning{Job: j.Name, Pod: p, Node: "n", GPUs: devices, Started: f.started})
			}
		}
		e.entitlement.update()
		for i, f := range jobs {
			got := ""
			for _, p := range e.jobs.byName[fmt.Sprint("j", i)].pods {
				got += map[bool]string{true: "w", false: "-"}[p.within]
			}
			if got != f.want {
				t.Errorf("%s: the pods of job %d are %s, want %s", name, i, got, f.want)
			}
		}
	}
}
