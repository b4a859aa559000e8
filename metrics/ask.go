package metrics

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
)

// Why sums up the engine's answers to the question why a job waits, between its
// submission and its start. For a rejected job it is the reason of the rejection.
type Why struct {
	// Asked is how often it was asked, Times how often it said Reason (see
	// [core.Reason]), the reason that it gave most often; empty when Asked is 0.
	Asked, Times int
	Reason       string
	// Detail is the numbers that it gave with Reason last, at At.
	Detail string
	At     core.Time
}

// said is a reason that the engine gave, how often, and the last time.
type said struct {
	reason core.Reason
	times  int
	detail string
	at     core.Time
}

// tell records an answer.
func (j *Job) tell(t core.Time, reason core.Reason, detail string) {
	for i := range j.said {
		if s := &j.said[i]; s.reason == reason {
			s.times, s.detail, s.at = s.times+1, detail, t
			return
		}
	}
	j.said = append(j.said, said{reason, 1, detail, t})
}

// Why returns why the job waits, or waited until it was first whole. Among the
// reasons that were given most often it is the one that was given last.
func (j *Job) Why() Why {
	var w Why
	for i := range j.said {
		s := &j.said[i]
		w.Asked += s.times
		if s.times > w.Times || s.times == w.Times && s.at > w.At {
			w.Times, w.Reason, w.Detail, w.At = s.times, s.reason.String(), s.detail, s.at
		}
	}
	return w
}

// Reject records that the job was rejected, and why: this is then why it waited.
func (j *Job) Reject(t core.Time, why *sim.Rejection) {
	j.said = []said{{why.Reason, 1, why.Detail, t}}
}

// asking is the budget for the questions why jobs wait. Its unit is the cost of checking
// one node for an answer, some 75 ns.
type asking struct {
	earned, spent int64
	all           int64     // what it cost when all that wait were asked about last
	longest       core.Time // when the longest waits were asked about last
	began         bool
}

// Questions may take about a tenth of a run: askPerPass nodes for each scheduling
// pass, which takes some 20 µs with all that is written of it. Those about the
// longest waits may take twice that, and askFree nodes, which is less than 0.1 s.
const (
	askPerPass = 32
	askFree    = 1 << 20
	// askCost is the cost of a question whose answer is known.
	askCost = 4
	// askMost is the number of jobs, those that have waited longest, about which it asks.
	askMost = 1 << 16
)

// Passed implements [sim.Watcher]: it asks the engine why jobs wait.
//
//  1. As often as the account allows, about all jobs that wait.
//  2. About those that may become some of the longest waits, if it has never asked about
//     them. Such a job waits as long as the shortest of the longest waits so far, w:
//     whoever asks at least every w/4 about the jobs that have waited 3w/4 misses none,
//     and they are few. To ask about some of the oldest now and then does miss them: when
//     a queue that stood still moves again, its last jobs have waited nearly as long as
//     the first, and start with them.
//  3. At the end about those that wait still.
func (c *Collector) Passed(t core.Time, passes int, inquire func() sim.Inquiry, last bool) {
	a := &c.asking
	a.earned += int64(passes) * askPerPass
	if c.unserved.oldest == nil {
		return
	}
	least := c.longest.least()
	switch {
	case last:
		c.ask(t, inquire(), 0, false)
	case a.spent+a.all <= a.earned:
		before := a.spent
		c.ask(t, inquire(), 0, false)
		a.all = a.spent - before
	case !a.began || t-a.longest >= least/4:
		c.ask(t, inquire(), least/4*3, true)
		a.longest, a.began = t, true
	}
}

// ask asks about the jobs that have waited for long, in the order of their
// submission, or only about those of which the engine was never asked, until the
// account is empty. About those that have waited longest it asks all the same.
func (c *Collector) ask(t core.Time, q sim.Inquiry, long core.Time, unasked bool) {
	a := &c.asking
	n := 0
	for j := c.unserved.oldest; j != nil && n < askMost && t-j.job.Submitted >= long; j = j.newer {
		if n++; unasked && j.said != nil {
			continue
		}
		if a.spent > 2*a.earned+askFree && n > LongestWaits {
			return
		}
		counted := q.Counted()
		if reason, detail, waits := q.Why(j.job.Name); waits {
			j.tell(t, reason, detail)
		}
		a.spent += int64(q.Counted()-counted)*int64(len(c.inv.nodes)) + askCost
	}
}
