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
	rarer  int // how often the questions became half as many
	passes int // since the last question
}

type answer struct {
	t                  core.Time
	job, shape, detail string
	reason             core.Reason
}

const maxAnswers = 8192

// A question takes as long as there are nodes and live jobs, and a scheduling
// pass some hundred times what one of these adds: one question in as many passes
// as a quarter of them costs some 3 % of a run.
const askOften = 4

// askAmong is among how many jobs the one to ask for is chosen.
const askAmong = 32

// Passed implements [sim.Watcher]: now and then it asks why a job waits, of
// those that have waited longest and may come to be among the longest waits, in
// turn. At the end it asks for each that waits still.
func (c *Collector) Passed(t core.Time, why sim.Why, last bool) {
	a := &c.asked
	a.passes++
	if !last && a.passes*askOften>>a.rarer < len(c.inv.nodes)+len(c.jobs) {
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
	return fmt.Sprint(l.Queue, l.Kind, l.Class, l.Priority, l.Gang, l.Topology, l.Affinity, l.Tasks)
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
