package core

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// tenants is a full cluster whose queues have more jobs than run. It is large enough for searches to pause.
type tenants struct {
	*Engine
	t    *testing.T
	rng  *rand.Rand
	now  Time
	jobs []string // those that have not ended
	made int
	// queues is how many have jobs: with few there are few classes, and fewer changes make searches worth a try.
	queues int
	// often says that every pass looks at all classes that wait, visits that it tries what is hopeless, too. log is what passes decided.
	often, visits bool
	log           []string
}

// newTenants makes twelve queues that own so many GPUs on average.
func newTenants(t *testing.T, seed uint64, p Policy, own, queues int, often, visits bool) *tenants {
	return newTenantsOf(t, seed, p, 12, own, queues, often, visits)
}

// newTenantsOf makes so many queues, in trees of four.
func newTenantsOf(t *testing.T, seed uint64, p Policy, all, own, queues int, often, visits bool) *tenants {
	e, err := New(Config{Policy: p, Levels: []string{"leaf"}})
	if err != nil {
		t.Fatal(err)
	}
	w := &tenants{Engine: e, t: t, rng: rand.New(rand.NewPCG(seed, 1)), queues: queues, often: often, visits: visits}
	for i := range all {
		q := Queue{Name: fmt.Sprint("q", i), Weight: int64(1 + i%3), FairUsers: i%5 == 4, Quota: []Quota{{Model: "H800", Nominal: Milli(i%4*own*2/3) * WholeGPU, BorrowingLimit: Unlimited, LendingLimit: Unlimited}}}
		if i%4 > 0 {
			q.Parent = fmt.Sprint("q", i-i%4)
		}
		w.apply(QueueSet{Queue: q})
	}
	for i := range 160 {
		w.apply(NodeAdded{Node: Node{Name: fmt.Sprint("n", i), Model: "H800", GPUs: 8, CPUMilli: 64000, MemMiB: 1 << 20, Domains: []string{fmt.Sprint(i / 8)}}})
	}
	for range 1600 {
		w.come()
	}
	w.rest()
	return w
}

func (w *tenants) apply(ev Event) {
	if err := w.Apply(w.now, ev); err != nil {
		w.t.Fatal(err)
	}
}

// come submits a job.
func (w *tenants) come() {
	shape := [...][2]int{{1, 1}, {1, 1}, {1, 2}, {1, 4}, {1, 8}, {2, 8}, {4, 4}}[w.rng.IntN(7)]
	w.made++
	j := Job{Name: fmt.Sprint("j", w.made), Queue: fmt.Sprint("q", w.rng.IntN(w.queues)), Gang: shape[0] > 1, Submitted: w.now, Class: Class(w.rng.IntN(2)), User: fmt.Sprint("u", w.made%2)}
	j.Tasks = []Task{{Pods: shape[0]}}
	j.Tasks[0].GPU, j.Tasks[0].CPUMilli = Milli(shape[1])*WholeGPU, 1000
	w.jobs = append(w.jobs, j.Name)
	w.apply(JobSubmitted{Job: j})
}

// rest lets passes follow until one evicts nothing. What is evicted leaves at once.
func (w *tenants) rest() {
	for again := true; again; {
		again = false
		var gone []PodsGone
		if w.often {
			w.wakes.retry = w.now
		}
		if w.visits {
			for c := range w.waiting.idle.all() {
				c.epoch, c.class.idleIn.calm = 0, calm{}
			}
		}
		for _, d := range w.Decide(w.now) {
			if d.Op != Wake {
				w.log = append(w.log, fmt.Sprint(w.now, d.Op, d.Job, d.Reason, d.Pods))
			}
			if d.Op == Evict || d.Op == Requeue {
				g := PodsGone{Job: d.Job}
				for _, p := range d.Pods {
					g.Pods = append(g.Pods, p.Pod)
				}
				gone, again = append(gone, g), true
			}
		}
		for _, g := range gone {
			w.apply(g)
		}
	}
}

// step lets time go on for less than most, and a job end or come, or a node be cordoned or not.
func (w *tenants) step(most Time) {
	w.now += Time(w.rng.Int64N(int64(most)))
	switch k := w.rng.IntN(20); {
	case k == 0 && w.queues == 12: // all searches are worth a try then
		w.apply(NodeCordoned{Node: fmt.Sprint("n", w.rng.IntN(160)), Cordoned: w.rng.IntN(2) > 0})
	case k < 10:
		i := w.rng.IntN(len(w.jobs))
		w.apply(JobEnded{Job: w.jobs[i]})
		w.jobs[i] = w.jobs[len(w.jobs)-1]
		w.jobs = w.jobs[:len(w.jobs)-1]
	default:
		w.come()
	}
}

// asleepPolicy returns one of six policies, the last twelve of 24 times with fair shares.
func asleepPolicy(seed uint64) Policy {
	p := Policy{Room: Room{MaxMoves: 16, Restarts: true}}
	p.Preempt.Reclaim, p.Preempt.Priority, p.Preempt.MinRuntime = true, InCluster, 60*Second
	p.Queueing.Mode = [...]Mode{BestEffortFIFO, Backfill, StrictFIFO}[seed%3]
	p.Preempt.Backfill, p.Queueing.HeadWait = p.Queueing.Mode == Backfill, 1800*Second
	p.Queueing.FairShare = seed >= 12
	return p
}

// Of no class that is asleep would a try decide anything.
func TestAsleep(t *testing.T) {
	seen, calms := [2]int{}, 0
	for seed := range uint64(24) {
		w := newTenants(t, seed, asleepPolicy(seed), [...]int{75, 105, 150, 120}[seed%4], [...]int{12, 3}[seed/6%2], false, false) // of 107
		for range 1000 {
			w.step([...]Time{30 * Second, Second / 10}[seed/6%2])
			ps := &pass{Engine: w.Engine, now: w.now}
			w.entitlement.update()
			before := w.wakes
			for list := range ps.idleLists() {
				q := ps.withRoom(list)
				calm := ps.isCalm(&q)
				for c := range list.all() {
					if calm && !ps.unsearched(&q, c) {
						t.Fatalf("seed %d, at %v: a search is worth a try for a class of a list that is calm", seed, w.now)
					} else if calm {
						calms++
					}
					if ps.look(&q, c) != asleep {
						continue
					}
					state, _, hopeless := ps.hopeless(c.class, c.class.head())
					if !hopeless || state != c.class.state {
						t.Fatalf("seed %d, at %v: a class in state %d is asleep; a try would find %d, and nothing else to do: %v", seed, w.now, c.class.state, state, hopeless)
					}
					if seen[0]++; state == classStuck {
						seen[1]++
					}
				}
			}
			w.wakes = before
			w.rest()
		}
	}
	if seen[0] < 10_000 || seen[1] < 1000 || calms < 1000 {
		t.Errorf("%d classes were asleep, %d of them found no room, %d were in lists that are calm: too few to tell", seen[0], seen[1], calms)
	}
	t.Log(seen, calms)
}

// Of a list that is as it was, what was found of its classes that are awake holds.
func TestKnownLists(t *testing.T) {
	lists, dozing, moved := 0, 0, 0
	for seed := range uint64(24) {
		w := newTenantsOf(t, seed, asleepPolicy(seed), 60, [...]int{15, 21, 30, 24}[seed%4], [...]int{60, 5}[seed/6%2], false, false)
		w.waiting.known = func(ps *pass, list *idleQueue) {
			lists++
			if room := list.room(); list.seen.room != room {
				t.Fatalf("seed %d, at %v: the room is said to be %d, it is %d", seed, w.now, list.seen.room, room)
			}
			q, asleepNow := ps.withRoom(list), 0
			for i := range list.classes {
				c := &list.classes[i]
				if !c.awake || !ps.waiting.untried(c) {
					continue
				}
				if b := ps.boundFor(&q, c.gpu, c.bound); b != c.bound {
					t.Fatalf("seed %d, at %v: a class is said to be bound by %v, it is by %v", seed, w.now, c.bound, b)
				}
				if !c.dozes {
					moved++
					continue
				}
				asleepNow++
				if found := ps.look(&q, c); found != asleep {
					t.Fatalf("seed %d, at %v: a class is said to be asleep, it is %v", seed, w.now, found)
				}
			}
			if dozing += asleepNow; asleepNow != list.seen.dozing {
				t.Fatalf("seed %d, at %v: %d classes are said to be asleep until their turns, %d are", seed, w.now, list.seen.dozing, asleepNow)
			}
		}
		for range 150 {
			for range 8 {
				w.step([...]Time{30 * Second, Second / 10}[seed/6%2])
			}
			w.rest()
		}
	}
	t.Log(lists, dozing, moved)
	if lists < 50_000 || dozing < 5000 || moved < 50_000 {
		t.Errorf("%d lists were as they were, with %d classes asleep and %d others: too few to tell", lists, dozing, moved)
	}
}

// Passes that visit all classes that wait decide the same as those that leave out the ones that are asleep.
func TestVisitsDecideNothing(t *testing.T) {
	events := 1000
	if testing.Short() {
		events = 300
	}
	for seed := range uint64(24) {
		var logs [2][]string
		for i, visits := range []bool{false, true} {
			w := newTenants(t, seed, asleepPolicy(seed), [...]int{75, 105, 150, 120}[seed%4], [...]int{12, 3}[seed/6%2], true, visits)
			for range events {
				w.step([...]Time{30 * Second, Second / 10}[seed/6%2])
				w.rest()
			}
			logs[i] = w.log
		}
		for i := range min(len(logs[0]), len(logs[1])) {
			if logs[0][i] != logs[1][i] {
				t.Fatalf("seed %d: decision %d is %s; if all classes are visited, it is %s", seed, i, logs[0][i], logs[1][i])
			}
		}
		if len(logs[0]) != len(logs[1]) || len(logs[0]) < events/2 {
			t.Fatalf("seed %d: %d decisions, %d if all classes are visited", seed, len(logs[0]), len(logs[1]))
		}
	}
}
