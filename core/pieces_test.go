package core

import (
	"fmt"
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
