package optimum

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
)

// SpotTask is a task of Appendix A of ASI: pods that run at the same time. Times are in steps.
type SpotTask struct {
	HP         bool // it is never evicted
	Arrives    int
	Pods, GPUs int // GPUs of each pod
	// Milestones are the amounts of work at which its progress is saved, ascending. The last
	// is all its work: there it ends.
	Milestones []int
}

// Spot is an instance of the program of Appendix A, small enough to try all schedules. It differs
// from the printed one where that cannot be meant. In (2a) each task counts once, and not at each
// step in which it runs: as printed, work that is repeated adds to what is saved. An eviction
// counts even if the task never runs again. And an evicted task may start again in the same step,
// which (2e) forbids and schedulers do.
type Spot struct {
	Nodes []int // GPUs of each
	Steps int
	Tasks []SpotTask
	// Stay keeps pods on their nodes during a run. As printed, they may change nodes at each
	// step.
	Stay bool
	// AtOnce starts an HP task as soon as it fits beside the HP tasks that run. As printed, it
	// may wait.
	AtOnce bool
}

// SpotRun is a run of a task, from the beginning of step Start to that of End; Nodes has the pods
// on each node.
type SpotRun struct {
	Start, End int
	Nodes      []int
}

// SpotResult is what a schedule comes to.
type SpotResult struct {
	Evictions, Runs int
	Saved           int // work, times the GPUs of its task
}

// Objective is (2a): the evictions for each run, less the share of all GPU time that is saved
// work, with the weight alpha. The least is best.
func (s *Spot) Objective(r SpotResult, alpha float64) float64 {
	all := 0
	for _, g := range s.Nodes {
		all += g * s.Steps
	}
	return float64(r.Evictions)/float64(max(1, r.Runs)) - alpha*float64(r.Saved)/float64(all)
}

// saved returns the work that is saved when a task has done that much.
func (t *SpotTask) saved(work int) int {
	i, found := slices.BinarySearch(t.Milestones, work)
	switch {
	case found:
		return work
	case i == 0:
		return 0
	}
	return t.Milestones[i-1]
}

func (t *SpotTask) work() int { return t.Milestones[len(t.Milestones)-1] }

// Result returns what the runs of each task come to. An error names the constraint of the paper
// that they break, and where.
func (s *Spot) Result(runs [][]SpotRun) (SpotResult, error) {
	var r SpotResult
	used := make([][]int, s.Steps)
	for t := range used {
		used[t] = make([]int, len(s.Nodes))
	}
	for i := range s.Tasks {
		task, saved := &s.Tasks[i], 0
		free := task.Arrives // from when it can run
		for _, run := range runs[i] {
			work := saved + run.End - run.Start
			pods := 0
			for j, n := range run.Nodes {
				pods += n
				for t := run.Start; t < min(run.End, s.Steps); t++ {
					used[t][j] += n * task.GPUs
				}
			}
			switch {
			case run.Start < free || run.End <= run.Start || run.End > s.Steps:
				return r, fmt.Errorf("task %d runs from %d to %d, and can from %d to %d", i, run.Start, run.End, free, s.Steps)
			case pods != task.Pods:
				return r, fmt.Errorf("task %d runs %d pods of %d: 2c", i, pods, task.Pods)
			case work > task.work():
				return r, fmt.Errorf("task %d works %d of %d steps: 2f", i, work, task.work())
			}
			saved, free = task.saved(work), run.End
		}
		n := len(runs[i])
		if task.HP && (n > 1 || n == 1 && saved < task.work() && free < s.Steps) {
			return r, fmt.Errorf("task %d is HP and stops at %d: 2d", i, free)
		}
		r.Runs, r.Evictions, r.Saved = r.Runs+n, r.Evictions+max(0, n-1), r.Saved+saved*task.Pods*task.GPUs
		if n > 0 && saved < task.work() && free < s.Steps {
			r.Evictions++ // and it never ran again
		}
	}
	for t := range used {
		for j := range used[t] {
			if used[t][j] > s.Nodes[j] {
				return r, fmt.Errorf("node %d has %d GPUs in use of %d at %d: 2b", j, used[t][j], s.Nodes[j], t)
			}
		}
	}
	return r, nil
}

// spotState is, for each task, the saved work, and the work of its run, -1 while it does not run;
// and by node, the pods of each task, if they stay.
type spotState struct {
	saved, run []int
	at         [][]int
}

// spotSearch goes through the schedules of an instance, step by step.
type spotSearch struct {
	Spot
	step         int
	now, next    spotState
	ended        bool // some run has ended now
	evict, start []bool
	place        [][]int // by node, the pods of each task that is placed in this step
	free         []int   // GPUs, by node
}

// Best returns what a best schedule comes to, by [Spot.Objective]. The cost is exponential.
func (s *Spot) Best(alpha float64) SpotResult {
	n, nodes := len(s.Tasks), len(s.Nodes)
	grid := func() [][]int {
		g := make([][]int, nodes)
		for j := range g {
			g[j] = make([]int, n)
		}
		return g
	}
	x := spotSearch{
		Spot: *s, now: spotState{make([]int, n), make([]int, n), grid()}, next: spotState{make([]int, n), make([]int, n), grid()},
		evict: make([]bool, n), start: make([]bool, n), place: grid(), free: make([]int, nodes),
	}
	x.Nodes = slices.Sorted(slices.Values(s.Nodes))
	// A search that keeps only the most promising states finds a good schedule. Then only states
	// are needed that may lead to a better one.
	good := x.search(alpha, 100, math.Inf(1))
	return x.search(alpha, math.MaxInt, s.Objective(good, alpha)+1e-9) // rounding
}

// search returns the best result of schedules that go through at most width states a step, without
// those that lead to no objective of atMost or less.
func (x *spotSearch) search(alpha float64, width int, atMost float64) SpotResult {
	none := spotState{make([]int, len(x.Tasks)), slices.Repeat([]int{-1}, len(x.Tasks)), x.next.at}
	for j := range none.at {
		clear(none.at[j])
	}
	// The objective grows with the evictions: of schedules that lead to the same state only the
	// fewest matter.
	states := map[string]int{x.key(&none): 0}
	type promise struct {
		key string
		at  float64
	}
	for x.step = range x.Steps {
		best := make([]promise, 0, len(states))
		for key, evictions := range states {
			x.read(key)
			if at := x.Objective(x.hope(evictions), alpha); at <= atMost {
				best = append(best, promise{key, at})
			}
		}
		slices.SortFunc(best, func(a, b promise) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.key, b.key)) })
		next := map[string]int{}
		for _, p := range best[:min(width, len(best))] {
			x.read(p.key)
			evictions := states[p.key]
			x.choose(0, func() {
				key, now := x.after(), evictions
				for _, e := range x.evict {
					if e {
						now++
					}
				}
				if known, ok := next[key]; !ok || now < known {
					next[key] = now
				}
			})
		}
		states = next
	}
	var all []SpotResult
	for key, evictions := range states {
		x.read(key)
		all = append(all, x.result(evictions))
	}
	return slices.MinFunc(all, func(a, b SpotResult) int {
		return cmp.Or(cmp.Compare(x.Objective(a, alpha), x.Objective(b, alpha)), cmp.Compare(a.Evictions, b.Evictions), cmp.Compare(a.Runs, b.Runs), cmp.Compare(b.Saved, a.Saved))
	})
}

// hope is no worse than what any schedule comes to that goes on from here: all tasks run, and
// each saves what it could alone.
func (x *spotSearch) hope(evictions int) SpotResult {
	r := SpotResult{Evictions: evictions, Runs: evictions + len(x.Tasks)}
	for i := range x.Tasks {
		t := &x.Tasks[i]
		work := x.now.saved[i] + max(0, x.now.run[i]) + x.Steps - max(x.step, t.Arrives)
		r.Saved += t.saved(min(work, t.work())) * t.Pods * t.GPUs
	}
	return r
}

// result is what the schedules come to that end now.
func (x *spotSearch) result(evictions int) SpotResult {
	r := SpotResult{Evictions: evictions, Runs: evictions}
	for i := range x.Tasks {
		t := &x.Tasks[i]
		if x.now.run[i] >= 0 || x.now.saved[i] == t.work() {
			r.Runs++ // that did not end in an eviction
		}
		r.Saved += t.saved(x.now.saved[i]+max(0, x.now.run[i])) * t.Pods * t.GPUs
	}
	return r
}

// key writes a state. Nodes of one size are alike.
func (x *spotSearch) key(s *spotState) string {
	var b []byte
	for i := range s.saved {
		b = append(b, byte(s.saved[i]), byte(s.run[i]+1))
	}
	nodes := make([][]byte, len(s.at))
	for j := range s.at {
		nodes[j] = []byte{byte(x.Nodes[j])}
		for _, pods := range s.at[j] {
			nodes[j] = append(nodes[j], byte(pods))
		}
	}
	slices.SortFunc(nodes, bytes.Compare)
	return string(append(b, bytes.Join(nodes, nil)...))
}

// read sets the state, and ends the runs whose work is done.
func (x *spotSearch) read(key string) {
	s, n := &x.now, len(x.Tasks)
	x.ended = false
	for j := range s.at {
		for i := range s.at[j] {
			s.at[j][i] = int(key[2*n+j*(n+1)+1+i])
		}
	}
	for i := range x.Tasks {
		s.saved[i], s.run[i] = int(key[2*i]), int(key[2*i+1])-1
		if s.run[i] >= 0 && s.saved[i]+s.run[i] == x.Tasks[i].work() {
			x.ended = true
			s.saved[i], s.run[i] = x.Tasks[i].work(), -1
			for j := range s.at {
				s.at[j][i] = 0
			}
		}
	}
}

// after returns the state after this step.
func (x *spotSearch) after() string {
	for i := range x.Tasks {
		saved, run := x.now.saved[i], x.now.run[i]
		if x.evict[i] {
			saved, run = x.Tasks[i].saved(saved+run), -1
		}
		if x.start[i] {
			run = 0
		}
		for j := range x.next.at {
			x.next.at[j][i] = 0
			switch {
			case !x.Stay || run < 0:
			case x.start[i]:
				x.next.at[j][i] = x.place[j][i]
			default:
				x.next.at[j][i] = x.now.at[j][i]
			}
		}
		if run >= 0 {
			run++
		}
		x.next.saved[i], x.next.run[i] = saved, run
	}
	return x.key(&x.next)
}

// choose tries all decisions on the tasks from i on. It leaves out what no best schedule needs: a
// start that could be a step earlier, as nothing made room in this one; and an eviction that could
// be a step later, as nothing starts in its place.
func (x *spotSearch) choose(i int, found func()) {
	if i == len(x.Tasks) {
		evicts := slices.Contains(x.evict, true)
		for i := range x.Tasks {
			if x.start[i] && !x.ended && !evicts && x.Tasks[i].Arrives < x.step {
				return
			}
		}
		if !evicts || slices.Contains(x.start, true) {
			x.placements(found)
		}
		return
	}
	t := &x.Tasks[i]
	with := func(evict, start bool) {
		x.evict[i], x.start[i] = evict, start
		x.choose(i+1, found)
		x.evict[i], x.start[i] = false, false
	}
	with(false, false)
	switch {
	case x.waits(i):
		with(false, true)
	case x.now.run[i] >= 0 && !t.HP:
		with(true, false)
		if x.Stay { // it may start elsewhere
			with(true, true)
		}
	}
}

// waits reports whether a task could run and does not.
func (x *spotSearch) waits(i int) bool {
	return x.now.run[i] < 0 && x.Tasks[i].Arrives <= x.step && x.now.saved[i] < x.Tasks[i].work()
}

// placements calls found with each placement of the pods that the decision starts; if pods do not
// stay, once if there is one of all that run.
func (x *spotSearch) placements(found func()) {
	var started, run, hp []int
	for i, t := range x.Tasks {
		if x.start[i] {
			started = append(started, i)
		}
		if x.start[i] || x.now.run[i] >= 0 && !x.evict[i] {
			run = append(run, i)
			if t.HP {
				hp = append(hp, i)
			}
		}
	}
	copy(x.free, x.Nodes)
	if !x.Stay {
		for i := range x.Tasks {
			if x.evict[i] && x.pack(append(run, i)) || x.late(i) && x.pack(append(hp, i)) {
				return
			}
		}
		if x.pack(run) {
			found()
		}
		return
	}
	for _, i := range run {
		if !x.start[i] {
			x.take(i, x.now.at, 1)
		}
	}
	x.spread(started, func() bool {
		if !x.idle() {
			found()
		}
		return false
	})
}

// late reports whether the decision leaves an HP task waiting that must not wait if it fits.
func (x *spotSearch) late(i int) bool {
	return x.AtOnce && x.Tasks[i].HP && x.waits(i) && !x.start[i]
}

// take takes the GPUs of a task's pods times n.
func (x *spotSearch) take(i int, at [][]int, n int) {
	for j := range x.free {
		x.free[j] -= n * at[j][i] * x.Tasks[i].GPUs
	}
}

// idle reports whether the placement leaves room for a task that was evicted from there, or, but
// for LP tasks, for an HP task that waits.
func (x *spotSearch) idle() bool {
	back := func(i int) bool {
		for j, free := range x.free {
			if free < x.now.at[j][i]*x.Tasks[i].GPUs {
				return false
			}
		}
		return true
	}
	room := func(i int) bool {
		pods := 0
		for j, free := range x.Nodes {
			for k, t := range x.Tasks {
				switch {
				case !t.HP:
				case x.start[k]:
					free -= x.place[j][k] * t.GPUs
				default:
					free -= x.now.at[j][k] * t.GPUs
				}
			}
			pods += free / x.Tasks[i].GPUs
		}
		return pods >= x.Tasks[i].Pods
	}
	for i := range x.Tasks {
		if x.evict[i] && !x.start[i] && back(i) || x.late(i) && room(i) {
			return true
		}
	}
	return false
}

// pack reports whether the nodes hold all the tasks.
func (x *spotSearch) pack(tasks []int) bool {
	copy(x.free, x.Nodes)
	return x.spread(tasks, func() bool { return true })
}

// spread calls found with each placement of the tasks, until it returns true.
func (x *spotSearch) spread(tasks []int, found func() bool) bool {
	if len(tasks) == 0 {
		return found()
	}
	i := tasks[0]
	var from func(j, pods int) bool
	from = func(j, pods int) bool {
		if j == len(x.Nodes) {
			return pods == 0 && x.spread(tasks[1:], found)
		}
		for n := min(pods, x.free[j]/x.Tasks[i].GPUs); n >= 0; n-- {
			x.place[j][i] = n
			x.free[j] -= n * x.Tasks[i].GPUs
			stop := from(j+1, pods-n)
			x.free[j] += n * x.Tasks[i].GPUs
			if stop {
				return true
			}
		}
		return false
	}
	return from(0, x.Tasks[i].Pods)
}
