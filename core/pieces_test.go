package core

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// owners is a cluster in which jobs wait whose queue owns what they need, in pieces: three GPUs of each
// node are within the quota of the other queue, and the fourth is borrowed. No plan helps: what restarts
// finds no node with three free GPUs.
type owners struct {
	*Engine
	now   Time
	nodes int
	fail  func(...any)
}

func newOwners(fail func(...any), nodes, waiting int) *owners {
	p := Policy{Room: Room{MaxMoves: 16, Restarts: true}}
	p.Preempt.Reclaim = true
	e, err := New(Config{Policy: p, Levels: []string{"leaf"}})
	if err != nil {
		fail(err)
	}
	w := &owners{Engine: e, nodes: nodes, fail: fail}
	for name, nominal := range map[string]int{"other": 3 * nodes, "owner": nodes} {
		q := Quota{Model: "H800", Nominal: Milli(nominal) * WholeGPU, BorrowingLimit: Unlimited, LendingLimit: Unlimited}
		w.apply(QueueSet{Queue: Queue{Name: name, Weight: 1, Quota: []Quota{q}}})
	}
	for i := range nodes {
		w.apply(NodeAdded{Node: Node{Name: fmt.Sprint("n", i), Model: "H800", GPUs: 4, CPUMilli: 64000, MemMiB: 1 << 20, Domains: []string{fmt.Sprint(i / 32)}}})
		w.submit(fmt.Sprint("own", i), "other", 3, 1)
	}
	w.Decide(w.now)
	w.now = 60 * Second
	for i := range nodes {
		w.submit(fmt.Sprint("lent", i), "other", 1, 1)
	}
	w.Decide(w.now)
	w.now = 7200 * Second
	for i := range waiting {
		w.submit(fmt.Sprint("wait", i), "owner", 4, 2+i)
	}
	return w
}

func (w *owners) apply(ev Event) {
	if err := w.Apply(w.now, ev); err != nil {
		w.fail(err)
	}
}

func (w *owners) submit(name, queue string, gpus, cpu int) {
	j := Job{Name: name, Queue: queue, Submitted: w.now, Tasks: []Task{{Pods: 1}}}
	j.Tasks[0].GPU, j.Tasks[0].CPUMilli = Milli(gpus)*WholeGPU, int64(cpu)
	w.apply(JobSubmitted{Job: j})
}

// pass replaces a borrower by another, ten seconds after the last pass.
func (w *owners) pass(n int) []Decision {
	w.now += 10 * Second
	name := fmt.Sprint("lent", n%w.nodes)
	w.apply(JobEnded{Job: name})
	w.submit(name, "other", 1, 1)
	return w.Decide(w.now)
}

// Of many jobs that wait, at most eight are searched for in five minutes. When nothing changes, each of
// the others has its turn, and then none is searched for again.
func TestOwnersTakeTurns(t *testing.T) {
	const waiting = 24
	w := newOwners(func(a ...any) { t.Fatal(a...) }, 300, waiting)
	last := map[*class]*attempt{}
	searches := func() (n int) {
		for _, c := range w.waiting.classes {
			if a := c.attempts[forPieces]; a != last[c] {
				last[c] = a
				n++
			}
		}
		return n
	}
	w.Decide(w.now)
	total := searches()
	for i := range 360 {
		w.pass(i)
		n := searches()
		if total += n; n > roomSearches {
			t.Errorf("%d searches in one pass", n)
		}
	}
	if most := roomSearches * (1 + int(3600*Second/roomInterval)); total > most || total < waiting {
		t.Errorf("%d searches in an hour, expected at most %d", total, most)
	}
	for range waiting {
		w.now += roomInterval
		w.Decide(w.now)
	}
	if searches(); len(last) != waiting {
		t.Errorf("%d of %d jobs were searched for", len(last), waiting)
	}
	for range 100 {
		w.now += roomInterval
		w.Decide(w.now)
	}
	if n := searches(); n > 0 {
		t.Errorf("%d searches without a change", n)
	}
}

// newPieces is a cluster of nodes of four GPUs, on which a queue has more pods of one to three GPUs than it owns. Urgent jobs of
// another queue, which owns the rest and may have some of it, or more, wait.
func newPieces(t *testing.T, seed uint64) *owners {
	rng := rand.New(rand.NewPCG(seed, 3))
	p := Policy{Room: Room{MaxMoves: 16, Restarts: true}}
	p.Preempt.Reclaim, p.Preempt.MinRuntime, p.Preempt.Priority, p.Queueing.FairShare = true, 60*Second, InQueue, true
	p.Queueing.Mode = BestEffortFIFO
	e, err := New(Config{Policy: p, Levels: []string{"leaf"}})
	if err != nil {
		t.Fatal(err)
	}
	w := &owners{Engine: e, nodes: 4 + rng.IntN(9), fail: t.Fatal}
	own := w.nodes + rng.IntN(2*w.nodes)
	for name, nominal := range map[string]int{"other": 4*w.nodes - own, "owner": own} {
		q := Quota{Model: "H800", Nominal: Milli(nominal) * WholeGPU, BorrowingLimit: Unlimited, LendingLimit: Unlimited}
		w.apply(QueueSet{Queue: Queue{Name: name, Weight: 1, Quota: []Quota{q}}})
	}
	for i := range w.nodes {
		w.apply(NodeAdded{Node: Node{Name: fmt.Sprint("n", i), Model: "H800", GPUs: 4, CPUMilli: 64000, MemMiB: 1 << 20, Domains: []string{"0"}}})
	}
	jobs := 4 * w.nodes
	for i := range jobs {
		queue := "other"
		if mine := i < own; mine && rng.IntN(2) == 0 {
			queue = "owner"
		}
		w.submit(fmt.Sprint("j", i), queue, 1+rng.IntN(3), 1+rng.IntN(24)*1000)
		w.now += Second
		w.Decide(w.now)
	}
	for i := range jobs {
		if rng.IntN(4) == 0 {
			w.apply(JobEnded{Job: fmt.Sprint("j", i)})
		}
	}
	w.now += Time(rng.IntN(200)) * Second
	for i := range 6 {
		j := Job{Name: fmt.Sprint("wait", i), Queue: "owner", Submitted: w.now, Priority: 1, Tasks: []Task{{Pods: 1}}}
		j.Tasks[0].GPU, j.Tasks[0].CPUMilli = Milli(1+rng.IntN(4))*WholeGPU, int64(1+rng.IntN(40)*1000)
		w.apply(JobSubmitted{Job: j})
	}
	return w
}

// Where the cheapest victims are found first, the same plans are made as where all are looked at.
func TestPiecesByCheapest(t *testing.T) {
	made, vain, debts := 0, 0, 0
	for seed := range uint64(1000) {
		w := newPieces(t, seed)
		w.entitlement.update()
		ps := &pass{Engine: w.Engine, now: w.now}
		for i := range 6 {
			j := w.jobs.byName[fmt.Sprint("wait", i)]
			w.units.compile(j.class)
			debts += w.checkDebt(j)
			var found [2]string
			for way, all := range [2]int{-1, math.MaxInt} {
				w.planner.looksAtAll = all
				u, later := ps.units.prepare(j), outlook{Never, Never}
				c := preemptor{candidate: u, turn: anyTurn, now: w.now, later: &later, cover: w.entitlement.coverOf(u), short: u.overrun()}
				c.owes = u.lacks(c.room(nil))
				p := ps.piecesPlan(c)
				found[way] = fmt.Sprint(later)
				if p != nil {
					for k := range p.gone {
						found[way] += fmt.Sprint(" ", p.gone[k].job.Name, p.gone[k].pod, p.gone[k].reason)
					}
					for k := range p.restarts {
						found[way] += fmt.Sprint(" ", p.restarts[k].job.Name, p.restarts[k].pods[0].to)
					}
					found[way] += fmt.Sprint(p.placed, p.cost)
					made++
				} else {
					vain++
				}
				w.state.Rollback(0)
				w.planner.dropLifted()
			}
			if found[0] != found[1] {
				t.Fatalf("seed %d: for job %s, %s; if all victims are looked at, %s", seed, j.Name, found[0], found[1])
			}
		}
	}
	if made < 200 || vain < 1000 || debts < 20 {
		t.Errorf("%d plans were made, %d tries were vain, %d for a queue in debt: too few to tell", made, vain, debts)
	}
}

// checkDebt compares whether a queue is said to give back too little for a job with what it lacks when all have left, and returns how many are.
func (w *owners) checkDebt(j *job) int {
	pl := &w.planner
	pl.looksAtAll = -1
	u := w.units.prepare(j)
	c := preemptor{candidate: u, turn: anyTurn, now: w.now, later: &outlook{Never, Never}, cover: w.entitlement.coverOf(u), short: u.overrun()}
	c.owes = u.lacks(c.room(nil))
	if c.cover == uncovered || !c.owes || !pl.cheapestFirst(c) {
		return 0
	}
	s, debt := pl.borrowers(c)
	pl.lookAtAll(s)
	c.candidate = w.units.prepare(j)
	for k := range s.victims {
		pl.lift(&s.victims[k])
	}
	if byCover(s.victims) && debt != pl.indebted(c, s.victims) {
		w.fail("job ", j.Name, ": its queue is said to be in debt: ", debt)
	}
	w.state.Rollback(0)
	pl.dropLifted()
	return 1
}

// BenchmarkWaitingOwners makes passes with one change each, while owners wait whom no plan helps.
func BenchmarkWaitingOwners(b *testing.B) {
	for _, nodes := range []int{60, 1000} {
		for _, waiting := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("nodes=%d/owners=%d", nodes, waiting), func(b *testing.B) {
				w := newOwners(func(a ...any) { b.Fatal(a...) }, nodes, waiting)
				w.Decide(w.now)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					w.pass(i)
				}
			})
		}
	}
}
