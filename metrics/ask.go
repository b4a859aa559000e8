package metrics

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
)

// asked is what the engine said when it was asked why jobs wait, in the order of
// time. When maxAnswers are full, every other one is dropped and half as many
// are asked for from then on.
type asked struct {
	said   []answer
	rarer  int       // how often the questions became half as many
	passes int       // since the last question
	due    core.Time // when the next question is due, however few passes there were
	every  core.Time // from one that is due to the next
	dues   int       // how many were since every was doubled
}

type answer struct {
	t                  core.Time
	job, shape, detail string
	reason             core.Reason
}

const maxAnswers = 4096

// A question takes as long as there are nodes and live jobs. One in as many
// scheduling passes as a quarter of them costs at most some 3 % of a run; that
// is one in thousands where there are many. So one is due every ten minutes of
// virtual time too, and when there were firstDues, half as often, and so on.
const (
	askOften  = 4
	askEvery  = 600 * core.Second
	firstDues = 32
)

// askAmong is among how many jobs the one to ask for is chosen.
const askAmong = 32

// Passed implements [sim.Watcher]: now and then it asks why a job waits, of
// those that have waited longest and may come to be among the longest waits, in
// turn. At the end it asks for each that waits still.
func (c *Collector) Passed(t core.Time, passes int, why sim.Why, last bool) {
	a := &c.asked
	a.passes += passes
	if !last && !a.turn(t, len(c.inv.nodes)+len(c.jobs)) {
		return
	}
	// Jobs that wait together start together: then it is too late to ask.
	least := c.longest.least() / 2
	var next *Job
	n := 0
	for j := c.unserved.oldest; j != nil && n < askAmong && t-j.job.Submitted >= least; j = j.newer {
		if n++; last {
			a.ask(t, j, why)
		} else if next == nil || j.asked < next.asked {
			next = j
		}
	}
	if next != nil {
		a.passes = 0
		a.ask(t, next, why)
	}
}

// turn reports whether it is time for a question that costs so much.
func (a *asked) turn(t core.Time, cost int) bool {
	if t >= a.due {
		a.every = max(a.every, askEvery)
		if a.dues++; a.dues == firstDues {
			a.dues /= 2
			a.every *= 2
		}
		a.due = t + a.every
		return true
	}
	return a.passes*askOften>>a.rarer >= cost
}

// ask asks why j waits.
func (a *asked) ask(t core.Time, j *Job, why sim.Why) {
	j.asked++
	x, ok := why(j.job.Name)
	if !ok || x.Waiting == 0 {
		return
	}
	if len(a.said) == maxAnswers {
		for i := range maxAnswers / 2 {
			a.said[i] = a.said[2*i]
		}
		clear(a.said[maxAnswers/2:])
		a.said = a.said[:maxAnswers/2]
		a.rarer++
	}
	a.said = append(a.said, answer{t, j.job.Name, shape(j.job), x.Detail, x.Reason})
}

// shape says what decides whether a job can start: jobs of one shape wait for
// the same reason.
func shape(l *sim.Live) string {
	return fmt.Sprint(l.Queue, l.Kind, l.Class, l.Priority, l.Gang, l.Topology, l.Tasks)
}

// tell fills in what was said during a wait, of jobs of one shape or else of
// all that were asked for.
func (a *asked) tell(w *LongWait, shape string) {
	from, _ := slices.BinarySearchFunc(a.said, w.Submitted, func(x answer, t core.Time) int { return int(min(max(x.t-t, -1), 1)) })
	var all, alike []answer
	for _, x := range a.said[from:] {
		if x.t > w.Submitted+w.Waited {
			break
		}
		all = append(all, x)
		if x.shape == shape {
			alike = append(alike, x)
		}
	}
	if len(alike) > 0 {
		w.Alike, all = true, alike
	}
	w.Asked = len(all)
	times := map[core.Reason]int{}
	for _, x := range all {
		times[x.reason]++
		w.Times = max(w.Times, times[x.reason])
	}
	for _, x := range slices.Backward(all) {
		if times[x.reason] == w.Times {
			w.Reason, w.Detail, w.AskedFor = x.reason.String(), x.detail, x.job
			return
		}
	}
}
