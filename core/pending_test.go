package core

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core/quota"
)

// Whatever is filed, taken out and tried again, in whichever order: a class is in the files
// of its state and in no others, and the first class of each file is that with the first job.
func TestWaitingIsFiledByState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := map[*job]int{} // jobs of a kind are alike
		e := &Engine{}
		e.turns.Engine = e
		e.waiting = newWaiting(rapid.Bool().Draw(t, "strict"), func(j *job) classID { return classID{pods: kind[j], user: j.User} }, &e.longTerm, &e.turns)
		w := &e.waiting
		w.rounds.crowd = rapid.IntRange(1, 3).Draw(t, "crowd")
		q := quota.NewLedger()
		if err := q.Set(quota.QueueSpec{Name: "q", Weight: 1, FairUsers: rapid.Bool().Draw(t, "fair")}); err != nil {
			t.Fatal(err)
		}
		var jobs []*job
		now := Time(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += Second
			w.rounds.pass++
			pick := func() *job { return jobs[rapid.IntRange(0, len(jobs)-1).Draw(t, "job")] }
			switch step := rapid.IntRange(0, 9).Draw(t, "step"); {
			case step == 0 || len(jobs) == 0:
				j := waitingJob(uint64(len(jobs)+1), int32(rapid.IntRange(0, 2).Draw(t, "priority")))
				j.queue, _ = q.Lookup("q")
				j.User = rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "user")
				if rapid.IntRange(0, 3).Draw(t, "pauses") == 0 {
					j.notBefore = now + 3*Second
				}
				kind[j] = rapid.IntRange(0, 3).Draw(t, "kind")
				jobs = append(jobs, j)
				w.enqueue(j, now)
			case step == 1:
				w.dequeue(pick())
			case step == 2:
				w.enqueue(pick(), now)
			case step == 3:
				if c := pick().class; c != nil {
					c.models = rapid.SliceOfDistinct(rapid.IntRange(0, 2), rapid.ID[int]).Draw(t, "models")
					w.setClass(c, classState(rapid.IntRange(0, 3).Draw(t, "state")))
				}
			case step == 4:
				if c := pick().class; c != nil && w.active.has(c, c.at[0]) {
					w.postpone(c, bound{rapid.IntRange(0, 2).Draw(t, "reach"), rapid.Bool().Draw(t, "owed")})
				}
			case step == 5:
				j := pick()
				p := &j.pods[0]
				if j.class == nil && p.state == podWaiting {
					j.set(p, podRunning)
					e.turns.place(j, p, 1)
				} else if p.state == podRunning {
					e.turns.place(j, p, -1)
					j.set(p, podWaiting)
				}
			case step == 8:
				if c := pick().class; c != nil && !w.strict && (c.state == classStuck || c.state == classOverrun) {
					w.restate(c, classState(rapid.SampledFrom([]classState{classStuck, classOverrun}).Draw(t, "state")))
				}
			case step == 9:
				if c := pick().class; c != nil {
					c.models = rapid.SliceOfDistinct(rapid.IntRange(0, 2), rapid.ID[int]).Draw(t, "models")
					w.onModels(c)
				}
			case step == 6:
				for c := range w.rounds.next(headFirst) {
					w.setClass(c, classActive)
				}
			default:
				w.tryAgain(func(Term) bool { return true })
			}
			checkFiles(t, w)
		}
		// Taken out one by one, nothing is left.
		for _, j := range jobs {
			w.dequeue(j)
		}
		checkFiles(t, w)
		if n := len(w.active.items) + len(w.ready.items) + len(w.borrowers.items) + w.idle.count + len(w.paused.items); n > 0 {
			t.Errorf("%d entries are left", n)
		}
	})
}

// waitingJob is a job of one pod that waits.
func waitingJob(seq uint64, priority int32) *job {
	j := &job{Job: Job{Name: fmt.Sprint("j", seq), Tasks: []Task{{Pods: 1, Request: Request{CPUMilli: 1000}, Affinity: []Term{{}}}}}, run: -1}
	j.key = key{precedence: precedence{priority: priority}, seq: seq}
	j.addPod(0)
	return j
}

func checkFiles(t *rapid.T, w *waiting) {
	for _, c := range w.classes {
		has := len(c.jobs.items) > 0
		postponed := w.borrowers.has(c, c.at[2])
		for _, f := range []struct {
			name     string
			is, want bool
		}{
			{"active", w.active.has(c, c.at[0]), has && !postponed && c.state == classActive},
			{"ready", w.ready.has(c, c.at[1]), has && !postponed && w.strict && c.state <= classStuck},
			{"line", c.line != nil, has && c.head().queue.FairUsers && (postponed || c.state == classActive || w.strict && c.state == classStuck)},
			{"idle", w.idle.any(func(i *idleClass) bool { return i.class == c }), has && c.state != classActive},
		} {
			if f.is != f.want {
				t.Fatalf("class %d in state %d with %d jobs: in %s %v, want %v", c.id.pods, c.state, len(c.jobs.items), f.name, f.is, f.want)
			}
		}
		first(t, c.jobs.items, jobBefore)
	}
	checkRounds(t, w)
	for _, l := range w.turns.lines {
		first(t, l.next.items, w.turns.turnBefore)
		if c := l.next.items; len(c) > 0 && c[0].held != c[0].user.held {
			t.Fatalf("the class whose turn it is says %d, and its user holds %d", c[0].held, c[0].user.held)
		}
	}
	for _, h := range []heap[*class]{w.active, w.ready} {
		first(t, h.items, headFirst)
	}
	checkFirsts(t, w)
	first(t, w.borrowers.items, nearerFirst)
	first(t, w.paused.items, w.paused.less)
}

// checkFirsts compares the first classes with those that a look at all classes finds.
func checkFirsts(t *rapid.T, w *waiting) {
	for model := range 4 {
		var stuck *class
		for _, c := range w.classes {
			if c.idleIn != nil && c.state == classStuck && slices.Contains(c.models, model) && (stuck == nil || headFirst(c, stuck)) {
				stuck = c
			}
		}
		if found := w.firstStuck(model); found != stuck {
			t.Fatalf("the first class that is stuck on model %d is said to be %v, expected %v", model, found, stuck)
		}
	}
	var overrun *job
	for _, c := range w.classes {
		if c.idleIn != nil && c.state == classOverrun && (overrun == nil || jobBefore(c.head(), overrun)) {
			overrun = c.head()
		}
	}
	if found := w.firstOverrun(); found != overrun {
		t.Fatalf("the first job without quota is said to be %v, expected %v", found, overrun)
	}
}

// checkRounds checks that the idle classes of each user are counted, and that those that are due are in one round, once.
func checkRounds(t *rapid.T, w *waiting) {
	idle, due, crowds := map[submitterID]int{}, map[*class]int{}, 0
	for i := range w.idle.all() {
		idle[i.class.by.id]++
	}
	for id, by := range w.rounds.submitters {
		if by.idle != idle[id] || by.idle == 0 {
			t.Fatalf("%d idle classes of %s are counted, there are %d", by.idle, id.user, idle[id])
		}
		if by.idle > w.rounds.crowd {
			crowds++
		}
		n := 0
		for _, c := range slices.Concat(by.round[by.from:], by.next) {
			if c != nil {
				due[c]++
				n++
			}
		}
		if n != by.due || by.due > 0 && !slices.Contains(w.rounds.turns, by) {
			t.Fatalf("%d classes of %s are due, counted are %d", n, id.user, by.due)
		}
	}
	if len(idle) != len(w.rounds.submitters) || crowds != w.rounds.crowds {
		t.Fatalf("%d users are known, of %d; %d are said to be many, of %d", len(w.rounds.submitters), len(idle), w.rounds.crowds, crowds)
	}
	for _, c := range w.classes {
		want := 0
		if c.due {
			want = 1
		}
		if due[c] != want || c.due && c.idleIn == nil {
			t.Fatalf("class %d is in rounds %d times, want %d", c.id.pods, due[c], want)
		}
	}
}

// first checks that no item of a heap comes before the one on top.
func first[T any](t *rapid.T, items []T, less func(a, b T) bool) {
	for _, x := range items {
		if less(x, items[0]) {
			t.Fatal("the first item of a heap is not on top")
		}
	}
}

// What a heap no longer has is not kept alive by it.
func TestHeapForgets(t *testing.T) {
	h := heap[*job]{less: jobBefore, moved: jobMoved}
	a, b := &job{key: key{seq: 1}}, &job{key: key{seq: 2}}
	h.push(a)
	h.push(b)
	h.remove(a, int(a.at))
	h.remove(b, int(b.at))
	for _, x := range h.items[:cap(h.items)] {
		if x != nil {
			t.Errorf("job %d is kept", x.key.seq)
		}
	}
}
