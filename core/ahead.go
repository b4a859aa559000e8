package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core/place"
)

// This file says what will become of a job that waits: how many jobs are tried before it, and when it evicts others
// that must run for their minimum time first.

// MostAhead is up to how many jobs before one are counted: beyond that the number says no more to a user, and to count them all
// would take the longer the more wait.
const MostAhead = 1000

// AheadText is a number of jobs that come before one, as [Explanation].Ahead counts them.
func AheadText(n int) string {
	if n >= MostAhead {
		return fmt.Sprint(MostAhead, " or more")
	}
	return fmt.Sprint(n)
}

// ahead counts the waiting jobs that come before one in the order, at most [MostAhead], without those that can never start as
// things are: even an empty cluster would not hold them, or their queue could never hold what they need.
func (q *Inquiry) ahead(j *job) int {
	if q.e.turns.lines != nil {
		return q.aheadInTurns(j)
	}
	if q.order == nil {
		q.order = q.e.firstInOrder(MostAhead, q.neverStarts)
	}
	n := 0
	for _, o := range q.order {
		if o != j && q.e.comesBefore(o, j) {
			n++
		}
	}
	return n
}

// aheadInTurns is ahead where users take turns: the place of a job depends on all those that take turns with it.
func (q *Inquiry) aheadInTurns(j *job) int {
	if q.order == nil {
		q.order = q.e.firstOfEach(MostAhead)
		q.e.sortByOrder(q.order)
	}
	order := q.order
	if !slices.Contains(order, j) {
		if j.class != nil && !q.neverStarts(j.class) {
			return MostAhead // as many jobs of its class come first
		}
		order = append(slices.Clone(order), j)
		q.e.sortByOrder(order)
	}
	n := 0
	for _, o := range order {
		if o == j || n == MostAhead {
			break
		}
		if !q.neverStarts(o.class) {
			n++
		}
	}
	return n
}

// firstInOrder returns the first jobs of those that wait, at most n, without those of classes to be left out: nil for none. The
// last of them is on top. It costs a look at each class, and little for each job that it returns.
func (e *Engine) firstInOrder(n int, leftOut func(*class) bool) []*job {
	first := heap[*job]{less: func(a, b *job) bool { return e.comesBefore(b, a) }, moved: func(*job, int) {}}
	among := func(j *job) bool { return len(first.items) < n || e.comesBefore(j, first.items[0]) }
	for _, c := range e.waiting.classes {
		if len(c.jobs.items) == 0 || !among(c.head()) || leftOut != nil && leftOut(c) {
			continue
		}
		for j := range c.jobs.ascending() {
			if !among(j) {
				break
			}
			if len(first.items) == n {
				first.remove(first.items[0], 0)
			}
			first.push(j)
		}
	}
	return first.items
}

// firstOfEach returns the first jobs of each class, at most n of each, in no order.
func (e *Engine) firstOfEach(n int) []*job {
	var first []*job
	for _, c := range e.waiting.classes {
		left := n
		for j := range c.jobs.ascending() {
			if left == 0 {
				break
			}
			first, left = append(first, j), left-1
		}
	}
	return first
}

// neverStarts reports whether the jobs of a class cannot start as long as nodes and quotas are as they are, whatever ends.
func (q *Inquiry) neverStarts(c *class) bool {
	never, known := q.never[c]
	if !known {
		never = q.e.neverStarts(c.head())
		q.never[c] = never
	}
	return never
}

// neverStarts reports whether a waiting job cannot start as long as nodes and quotas are as they are, whatever ends.
func (e *Engine) neverStarts(j *job) bool {
	e.units.compile(j.class)
	w := e.units.prepare(j)
	if !j.class.possible && !e.units.trimmed && e.placer.TooLarge(w.unit).Lack != place.NoLack {
		return true
	}
	return j.queue.Limited() && w.lacks(j.most)
}

// Victim is a job that another one will evict, or pods of it.
type Victim struct {
	Job string
	// MinRuntime is how long it runs before that.
	MinRuntime Time
}

// mostVictims is how many victims are named.
const mostVictims = 3

// EvictsText names the jobs that the job will evict, and how long each runs before that; "" if it will evict none.
func (x *Explanation) EvictsText() string {
	var parts []string
	for _, v := range x.Evicts[:min(len(x.Evicts), mostVictims)] {
		parts = append(parts, fmt.Sprintf("%s (minimum run time %s)", v.Job, durationText(v.MinRuntime)))
	}
	if more := len(x.Evicts) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

// Advice says what would have to change for the job to start.
func (x *Explanation) Advice() string {
	if x.EvictsAt != Never {
		return EvictsAdvice
	}
	return x.Reason.Advice()
}

// EvictsAdvice is the advice for a job that will evict others.
const EvictsAdvice = "Nothing: it starts when the jobs that it is going to evict have run for their minimum time and left."

// mostLater is how many moments are tried at which more jobs will have run for their minimum time.
const mostLater = 4

// evictsLater returns when a waiting job will evict others that have not run for their minimum time yet, if nothing else
// changes, and which; Never if it will not, or that takes many of them. It costs a few searches for plans, which it
// takes back: no decision depends on it.
func (e *Engine) evictsLater(j *job, first Time) (at Time, victims []Victim) {
	if j.NeverPreempts || j.restarts() || j.suspended != nil || j.nomination != nil {
		return Never, nil
	}
	pl := &e.planner
	spent, kept, drawn := pl.budget, pl.searches, e.placer.Drawn()
	pl.searches = nil
	defer func() {
		pl.dropSearches()
		pl.budget, pl.searches = spent, kept
		e.placer.Redraw(drawn)
	}()
	e.entitlement.update()
	for range mostLater {
		if at = max(first, e.mayEvictFrom(j)); first == Never {
			break
		}
		later := outlook{Never, Never}
		e.units.compile(j.class)
		for _, turn := range slices.Clone(pl.turns(e.units.prepare(j))) {
			if p := pl.planFor(e.units.prepareTurn(j, turn), turn, at, false, &later); p != nil {
				return at, e.victimsOf(p)
			}
		}
		pl.dropSearches()
		first = later.settled
	}
	return Never, nil
}

// victimsOf lists the jobs of a plan's victims, in the order of their names.
func (e *Engine) victimsOf(p *plan) []Victim {
	var out []Victim
	for i := range p.gone {
		v := p.gone[i].job
		out = append(out, Victim{v.Name, e.planner.minRuntime(v)})
	}
	slices.SortFunc(out, func(a, b Victim) int { return cmp.Compare(a.Job, b.Job) })
	return slices.Compact(out)
}
