package core

import (
	"fmt"
	"iter"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/quota"
)

// A user of a queue may have thousands of classes that wait, such as pods with an affinity of their own each. In a small cluster
// every pod that ends makes a search worth a try for each of them. This file bounds what that costs a pass, and so how long others wait
// for it: of a user who has more than [Config].Crowd classes in a queue, a pass tries again so many that at most a quarter of that fail.
//
// They take turns in rounds: in order, each once. What becomes worth a try meanwhile has its turn in the next round. A class keeps its state while
// it waits for its turn: a job that starts past it overtakes it, as it would if its search had not been worth a try yet. Not bounded
// are classes that fit by count, and under StrictFIFO those that have quota: nothing overtakes those.
//
// A class that has not been tried yet is tried at once, unless too many others of its user failed in the same pass.

// DefaultCrowd is how many classes of a user may wait in a queue before they take turns.
const DefaultCrowd = 256

// roundPause is when the next pass of a round is at the latest.
const roundPause = Second

// rounds is whose classes take turns.
//
// Invariant: submitter.idle counts the classes in waiting.idle whose first jobs are of that user in that queue; those that are due are in
// its round or in its next one.
type rounds struct {
	crowd      int
	submitters map[submitterID]*submitter // those with idle classes
	crowds     int                        // how many of them have more than crowd
	turns      []*submitter               // those of which classes are due, in the order in which they came
	pass       uint64
}

// submitterID is a user of a queue.
type submitterID struct {
	queue *quota.Queue
	user  string
}

func submitterOf(j *job) submitterID { return submitterID{j.queue, j.User} }

// submitter is the idle classes of a user of a queue.
type submitter struct {
	id   submitterID
	idle int
	// round are the classes that are due, in order, from a place on; next are those that became due since it began. In both are nils
	// in place of those that left.
	round, next []*class
	from, due   int
	listed      bool // in rounds.turns
	// failed and new count those that were tried in a pass in vain: those that had a turn, and others.
	pass        uint64
	failed, new int
}

// roundTurn is the place of a class in a round, or in the next one.
type roundTurn struct {
	due, next bool
	at        int
}

// count adds an idle class of the user.
func (r *rounds) count(c *class) {
	j := c.head()
	id := submitterOf(j)
	by := r.submitters[id]
	if by == nil {
		by = &submitter{id: id}
		r.submitters[id] = by
	}
	if c.by = by; by.idle == r.crowd {
		r.crowds++
	}
	by.idle++
}

// uncount takes out a class that is idle no longer.
func (r *rounds) uncount(c *class) {
	by := c.by
	c.by = nil
	if c.roundTurn.due {
		if c.roundTurn.next {
			by.next[c.roundTurn.at] = nil
		} else {
			by.round[c.roundTurn.at] = nil
		}
		c.roundTurn = roundTurn{}
		by.due--
	}
	if by.idle--; by.idle == r.crowd {
		r.crowds--
	}
	if by.idle == 0 {
		delete(r.submitters, by.id)
	}
}

// crowded reports whether an idle class takes turns with others.
func (r *rounds) crowded(c *class) bool { return r.crowds > 0 && c.by != nil && c.by.idle > r.crowd }

// await gives an idle class its turn in the next round.
func (r *rounds) await(c *class) {
	by := c.by
	if c.roundTurn.due {
		return
	}
	if len(by.next) > 2*by.idle {
		by.next = slices.DeleteFunc(by.next, func(c *class) bool { return c == nil })
		for i, o := range by.next {
			o.roundTurn.at = i
		}
	}
	c.roundTurn = roundTurn{due: true, next: true, at: len(by.next)}
	by.next = append(by.next, c)
	if by.due++; !by.listed {
		by.listed = true
		r.turns = append(r.turns, by)
	}
}

// first takes the class whose turn it is, nil if none is due.
func (by *submitter) first(less func(a, b *class) bool) *class {
	for by.due > 0 {
		if by.from == len(by.round) {
			by.round, by.next, by.from = by.next, by.round[:0], 0
			by.round = slices.DeleteFunc(by.round, func(c *class) bool { return c == nil })
			slices.SortFunc(by.round, func(a, b *class) int { return cluster.LastIf(less(b, a), less(a, b)) })
			for i, c := range by.round {
				c.roundTurn = roundTurn{due: true, at: i}
			}
		}
		c := by.round[by.from]
		by.from++
		if c != nil {
			return c
		}
	}
	return nil
}

// begin forgets what was counted in other passes.
func (by *submitter) begin(pass uint64) {
	if by.pass != pass {
		by.pass, by.failed, by.new = pass, 0, 0
	}
}

// takeTurns files the classes to be tried whose turn it is in this pass, and reports whether there are any.
func (ps *pass) takeTurns() bool {
	some := false
	for c := range ps.waiting.rounds.next(ps.waiting.active.less) {
		ps.waiting.setClass(c, classActive)
		c.hasTurn, some = true, true
	}
	return some
}

// next yields the classes whose turn it is. Each must be filed otherwise before the next one.
func (r *rounds) next(less func(a, b *class) bool) iter.Seq[*class] {
	return func(yield func(*class) bool) {
		for _, by := range r.turns {
			by.begin(r.pass)
			for n := max(1, r.crowd/4) - by.failed; n > 0 && by.due > 0; n-- {
				if !yield(by.first(less)) {
					return
				}
			}
		}
		r.forget()
	}
}

// Due returns how many kinds of waiting jobs have a turn in the passes that follow: see [Config].Crowd.
func (e *Engine) Due() int {
	n := 0
	for _, by := range e.waiting.rounds.turns {
		n += by.due
	}
	return n
}

// nextAttempt says when a waiting job is tried again.
func (j *job) nextAttempt() string {
	if !j.class.due {
		return "the next attempt is when resources are freed"
	}
	return fmt.Sprintf("it is tried in its turn: %d kinds of jobs of %s wait in queue %s", j.class.by.idle, userText(j), j.queue.Name)
}

// forget drops the rounds of users of whom no class is due.
func (r *rounds) forget() {
	r.turns = slices.DeleteFunc(r.turns, func(by *submitter) bool {
		by.listed = by.due > 0
		if !by.listed {
			by.round, by.next, by.from = nil, nil, 0
		}
		return !by.listed
	})
}

// waitsForTurn gives a class that was to be tried its turn in the next round, if too many of its user have been tried in this pass, and
// reports whether it did.
func (ps *pass) waitsForTurn(c *class) bool {
	r := &ps.waiting.rounds
	if r.crowds == 0 || c.hasTurn || ps.waiting.strict {
		return false
	}
	j := c.head()
	by := r.submitters[submitterOf(j)]
	if by == nil || by.idle <= r.crowd {
		return false
	}
	if by.begin(r.pass); by.new < r.crowd {
		return false
	}
	ps.waiting.setClass(c, classUntried)
	r.await(c)
	return true
}

// tried counts a class that was tried and is idle now.
func (r *rounds) tried(c *class, hadTurn bool) {
	if c.by == nil {
		return
	}
	if c.by.begin(r.pass); hadTurn {
		c.by.failed++
	} else {
		c.by.new++
	}
}

// retry files an idle class to be tried again, in this pass or in its turn. It reports whether in this pass.
func (w *waiting) retry(c *class) bool {
	if w.rounds.crowded(c) && !w.strict {
		w.rounds.await(c)
		return false
	}
	w.setClass(c, classActive)
	return true
}

// takesTurn gives an idle class its turn in a round, if its user has many in the queue and it may wait for it, and reports that.
func (ps *pass) takesTurn(c *class) bool {
	if !ps.waiting.rounds.crowded(c) {
		return false
	}
	if ps.waiting.strict {
		if c.state != classOverrun || !ps.outOfQuota(c) {
			return false
		}
	} else if p, ok := c.simple(); ok && c.shapes[0].SlotsInAll() >= p.pods && (!ps.ledger.Limited() || c.head().room(p.model) >= p.gpu) {
		return false
	}
	ps.waiting.rounds.await(c)
	return true
}
