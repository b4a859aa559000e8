package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// crowded is a full cluster, and so many jobs that wait: of two queues, three sizes and three priorities. Every tenth asks for more
// than there is.
func crowded(t *testing.T, p Policy, fair bool, jobs int) *Engine {
	t.Helper()
	e, err := New(Config{Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(ev Event) {
		t.Helper()
		if err := e.Apply(e.now, ev); err != nil {
			t.Fatal(err)
		}
	}
	apply(NodeAdded{Node: Node{Name: "n", Model: "H800", GPUs: 8}})
	for _, q := range []string{"a", "b"} {
		apply(QueueSet{Queue: Queue{Name: q, Weight: 1, FairUsers: fair}})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	job := func(name, queue string, gpus, priority int) Job {
		return Job{Name: name, Queue: queue, User: fmt.Sprint("u", rng.IntN(3)), Priority: int32(priority), Tasks: []Task{{Pods: 1, Request: Request{GPU: Milli(gpus) * WholeGPU}}}}
	}
	apply(JobSubmitted{Job: job("runs", "a", 8, 9)})
	e.Decide(e.now)
	for i := range jobs {
		gpus := 1 << rng.IntN(3)
		if i%10 == 9 {
			gpus = 9
		}
		e.now += Time(rng.IntN(3)) * Second
		apply(JobSubmitted{Job: job(fmt.Sprint("j", i), string("ab"[rng.IntN(2)]), gpus, rng.IntN(3))})
	}
	e.Decide(e.now)
	return e
}

// The first jobs in the order are those that sorting all of them finds.
func TestFirstInOrder(t *testing.T) {
	for _, order := range []Order{BySubmission, LongTermFairness, LeastAttained} {
		e := crowded(t, Policy{Queueing: Queueing{Order: order}}, false, 300)
		var all []*job
		for _, j := range e.jobs.byName {
			if j.class != nil {
				all = append(all, j)
			}
		}
		e.sortByOrder(all)
		for _, n := range []int{1, 7, 200, 300, 1000} {
			some := e.firstInOrder(n, nil)
			e.sortByOrder(some)
			if !slices.Equal(some, all[:min(n, len(all))]) {
				t.Errorf("%v: the first %d differ", order, n)
			}
		}
	}
}

// A job is told how many come before it that can start, as long as they are few.
func TestAheadOfMany(t *testing.T) {
	for _, fair := range []bool{false, true} {
		e := crowded(t, Policy{}, fair, 3000)
		ahead, most := 0, 0
		var all []*job
		for name := range e.Waiting() {
			all = append(all, e.jobs.byName[name])
		}
		for i, j := range all {
			if x, ok := e.Explain(j.Name); !ok || x.Ahead != min(ahead, MostAhead) {
				t.Fatalf("fair %v: %d jobs are ahead of number %d, expected %d", fair, x.Ahead, i, min(ahead, MostAhead))
			}
			if j.GPUs() <= 8*WholeGPU {
				ahead++
			}
			most = max(most, ahead)
		}
		if most < 2*MostAhead {
			t.Errorf("only %d jobs wait", most)
		}
		// What happens changes the answer.
		before, _ := e.Explain(all[5].Name)
		if err := e.Apply(e.now, JobEnded{Job: all[0].Name}); err != nil {
			t.Fatal(err)
		}
		if after, _ := e.Explain(all[5].Name); after.Ahead != before.Ahead-1 {
			t.Errorf("fair %v: %d are ahead, after one of %d has ended", fair, after.Ahead, before.Ahead)
		}
	}
}

// The first items of a heap cost as many comparisons, however many there are.
func TestAscending(t *testing.T) {
	compared := 0
	h := heap[int]{moved: func(int, int) {}, less: func(a, b int) bool { compared++; return a < b }}
	const n, few = 100_000, 20
	for _, x := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		h.push(x)
	}
	compared = 0
	next := 0
	for x := range h.ascending() {
		if x != next {
			t.Fatalf("item %d is %d", next, x)
		}
		if next++; next == few {
			break
		}
	}
	if compared > few*20 {
		t.Errorf("the first %d of %d items took %d comparisons", few, n, compared)
	}
	next = 0
	for x := range h.ascending() {
		if x != next {
			t.Fatalf("item %d is %d", next, x)
		}
		next++
	}
	if next != n {
		t.Errorf("%d of %d items", next, n)
	}
}
