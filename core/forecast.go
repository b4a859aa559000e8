package core

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/quota"
)

// Forecast is when jobs that wait will start if running jobs end by their estimates, jobs start
// in their order, no other job comes, and no pod is evicted.
type Forecast struct {
	// Starts has by name the jobs for which that is known: when the gang starts, or the next
	// pod of another job.
	Starts map[string]Time
	// Endless counts the running jobs whose end is not known: they have no estimate, or have run
	// for longer.
	Endless int
	// Cut says that not all jobs were considered, because too many wait or run.
	Cut bool
}

// At most this many waiting jobs are looked at, and this many attempts made to place one, so
// that a forecast costs no more than a large pass.
const (
	forecastJobs  = 1000
	forecastTries = 2000
)

// Forecast says when the jobs that wait will start. It simulates what will come on the state
// and takes that back: later decisions are as without it. Times are exact to a hundredth of the
// time until then, or half a second.
func (e *Engine) Forecast() Forecast {
	e.unowned.lend()
	// 1. The jobs that wait, and when running pods end. If no end is known, nothing is.
	f := forecaster{Engine: e, Forecast: Forecast{Starts: map[string]Time{}}}
	waiting := 0
	for _, c := range e.waiting.classes {
		waiting += len(c.jobs.items)
	}
	if waiting == 0 {
		return f.Forecast
	}
	f.endings()
	if f.ends.items == nil {
		return f.Forecast
	}
	if e.turns.lines != nil {
		f.queued = e.firstOfEach(forecastJobs)
	} else {
		f.queued = e.firstInOrder(forecastJobs, nil)
	}
	e.sortByOrder(f.queued)
	f.queued, f.Cut = f.queued[:min(len(f.queued), forecastJobs)], waiting > forecastJobs

	// 2. Ends and starts are simulated, and taken back: on the state, in the ledger, in the pods,
	// and the numbers that a strategy has drawn at random.
	drawn := e.placer.Drawn()
	e.working = ""
	f.play()
	f.undo()
	e.placer.Redraw(drawn)
	e.working = ""
	return f.Forecast
}

// forecaster is the state of a forecast.
type forecaster struct {
	*Engine
	Forecast
	queued  []*job // those that wait, in order
	ends    heap[ending]
	tries   int
	booked  []booking
	counted []counting
	begun   []*pod
}

// ending is when a pod is expected to end, or, if moved, to be gone from its old place.
type ending struct {
	at    Time
	job   *job
	pod   int
	moved bool
}

// counting is a pod that was counted as running, or no longer.
type counting struct {
	job *job
	pod *pod
	by  int
}

// booking is an amount of a GPU model or resource that was booked to a queue (or, negative, given back).
type booking struct {
	queue   *quota.Queue
	account string
	amount  Milli
}

// endings lists when running pods end, as far as that is known. Evicted pods end now, and
// pods that are being moved leave their old places now.
func (f *forecaster) endings() {
	f.ends = heap[ending]{moved: func(ending, int) {}, less: func(a, b ending) bool {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.job.key.seq, b.job.key.seq), cmp.Compare(a.pod, b.pod)) < 0
	}}
	var list []ending
	for _, j := range f.runs.jobs {
		known := false
		for i := range j.pods {
			p := &j.pods[i]
			if at := cluster.Plus(p.started, j.Estimate); p.state == podRunning && p.standby() == nil && j.Estimate > 0 && at > f.now {
				list, known = append(list, ending{at, j, i, false}), true
			}
		}
		if !known {
			f.Endless++
		}
	}
	if list == nil {
		return
	}
	for _, j := range f.jobs.byName {
		for i := 0; j.count[podLeaving] > 0 && i < len(j.pods); i++ {
			if j.pods[i].state == podLeaving {
				list = append(list, ending{f.now, j, i, false})
			}
		}
	}
	for _, n := range f.nominations.all {
		for i := range n.job.pods {
			if n.job.pods[i].from() != nil {
				list = append(list, ending{f.now, n.job, i, true})
			}
		}
	}
	for _, m := range f.moves.all {
		if !m.later {
			list = append(list, ending{f.now, m.job, m.pod, true})
		}
	}
	slices.SortFunc(list, func(a, b ending) int {
		if f.ends.less(a, b) {
			return -1
		}
		return 1
	})
	f.ends.items = list // in order, it is a heap
}

// play lets pods end and jobs start, in the order of time, until no further pod ends.
func (f *forecaster) play() {
	for len(f.ends.items) > 0 && len(f.queued) > 0 && f.tries < forecastTries {
		// Pods that end at nearly the same time, such as those of one job, are one step: to try
		// all jobs after each of them would cost too much.
		t := f.ends.items[0].at
		until := cluster.Plus(t, max((t-f.now)/100, Second/2))
		for len(f.ends.items) > 0 && f.ends.items[0].at <= until {
			x := f.ends.items[0]
			f.ends.remove(x, 0)
			t = x.at
			f.end(x)
		}
		f.pass(t)
	}
}

// end takes a pod off its node.
func (f *forecaster) end(x ending) {
	p := &x.job.pods[x.pod]
	node := p.alloc.Node
	if p.from() != nil && x.moved {
		node = p.from().Node
	} else if m := p.move(); m != nil && !m.later && !x.moved {
		node = p.move().to.Node // it is gone from the other one since the forecast began
	}
	f.state.Remove(cluster.Owner{Job: x.job.slot, Pod: int32(x.pod)}, node)
	if x.moved {
		return
	}
	f.run(x.job, p, -1)
	if p.state != podLeaving { // its queue has that quota back already
		f.book(x.job, p, -1)
	}
}

func (f *forecaster) book(j *job, p *pod, by Milli) {
	add := func(account string, amount Milli) {
		if amount != 0 {
			j.queue.Add(account, amount)
			f.booked = append(f.booked, booking{j.queue, account, amount})
		}
	}
	add(f.state.Pool(p.alloc.Node).Model, by*j.gpu(p))
	for _, r := range j.queue.Counted() {
		add(r, by*j.Tasks[p.task].Takes(r))
	}
}

// run counts a pod as running, or with -1 no longer, where queues bound that.
func (f *forecaster) run(j *job, p *pod, by int) {
	if f.ledger.Bounded() {
		f.count(j, p, by)
		f.counted = append(f.counted, counting{j, p, by})
	}
}

// pass lets the jobs start that fit at t, in their order, those that would borrow last, as a
// scheduling pass does.
func (f *forecaster) pass(t Time) {
	strict := false
	if f.ledger.Limited() {
		for b := own; b != unbound; b = f.units.looser(b) {
			f.round(t, &strict, func(j *job) bool { return !b.before(f.units.boundOf(j, own)) })
		}
	}
	f.round(t, &strict, func(*job) bool { return true })
}

// round starts the jobs whose turn it is. If one job of a class does not fit, no other job of
// the class does.
func (f *forecaster) round(t Time, strict *bool, turn func(*job) bool) {
	failed := map[*class]bool{}
	left := f.queued[:0]
	for _, j := range f.queued {
		if *strict || failed[j.class] || f.tries >= forecastTries || !turn(j) {
			left = append(left, j)
			continue
		}
		if !f.start(j, t, strict) {
			failed[j.class] = true
			left = append(left, j)
		}
	}
	f.queued = left
}

// start starts what it can of a job at t, and reports whether that is all of it. It sets strict
// if no job may pass this one.
func (f *forecaster) start(j *job, t Time, strict *bool) bool {
	// 1. Quota, then room by count. A job without quota holds up no others.
	f.units.compile(j.class)
	w := f.units.prepare(j)
	u := w.unit
	if _, crowded := w.crowded(); crowded || w.overrun() || j.suspended != nil {
		return false
	}
	*strict = f.policy.Queueing.Mode == StrictFIFO
	if !f.placer.MayFit(u) {
		return false
	}

	// 2. Places, as the engine would choose them.
	f.tries++
	f.Cut = f.Cut || f.tries >= forecastTries
	mark := f.state.Mark()
	var placed []place.Placed
	if u.Whole {
		placed, _ = f.placer.Gang(u)
	} else {
		placed = f.placer.Pods(u)
	}
	if n := j.runnable(placed); n < len(placed) {
		f.state.Rollback(mark)
		placed = placeAgain(f.state, j, placed[:n])
	}
	if len(placed) > 0 && !affords(f.state, j, placed, u.Room) {
		f.state.Rollback(mark)
		placed = affordable(f.state, j, u, placed)
	}
	if len(placed) == 0 {
		return false
	}

	// 3. It starts. Its pods count as podHeld, so that no sum over running pods changes.
	if _, ok := f.Starts[j.Name]; !ok {
		f.Starts[j.Name] = t
	}
	for k := range placed {
		i := int(placed[k].Pod)
		p := &j.pods[i]
		p.alloc, p.state = placed[k].Alloc, podHeld
		f.begun = append(f.begun, p)
		f.book(j, p, 1)
		f.run(j, p, 1)
		if j.Estimate > 0 {
			f.ends.push(ending{cluster.Plus(t, j.Estimate), j, i, false})
		}
	}
	whole := u.Whole || !slices.ContainsFunc(j.pods, func(p pod) bool { return p.state == podWaiting })
	*strict = *strict && !whole
	return whole
}

// undo takes back what was simulated.
func (f *forecaster) undo() {
	f.state.Rollback(0)
	for _, p := range f.begun {
		p.state, p.alloc = podWaiting, cluster.Alloc{}
	}
	f.nominations.holdsChanged() // it may have counted those pods as kept
	for _, b := range f.booked {
		b.queue.Add(b.account, -b.amount)
	}
	for _, c := range f.counted {
		f.count(c.job, c.pod, -c.by)
	}
}
