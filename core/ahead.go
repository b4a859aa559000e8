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

// ahead counts the waiting jobs that come before one in the order, without those that can never start as things are:
// even an empty cluster would not hold them, or their queue could never hold what they need.
func (e *Engine) ahead(j *job) int {
	before := func(o *job) bool { return e.comesBefore(o, j) }
	if e.turns.lines != nil {
		js := []*job{j}
		for _, o := range e.jobs.byName {
			if o != j && o.class != nil {
				js = append(js, o)
			}
		}
		e.sortByOrder(js)
		first := map[*job]bool{}
		for _, o := range js[:slices.Index(js, j)] {
			first[o] = true
		}
		before = func(o *job) bool { return first[o] }
	}
	n, never := 0, map[alike]bool{}
	for _, o := range e.jobs.byName {
		if o == j || o.class == nil || !before(o) {
			continue
		}
		key := alike{class: o.class, keeps: o.keeps()}
		hopeless, known := never[key]
		if !known {
			hopeless = e.neverStarts(o)
			never[key] = hopeless
		}
		if !hopeless {
			n++
		}
	}
	return n
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
