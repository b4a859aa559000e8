package metrics

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
)

// questions answers with a reason, and counts each time.
type questions struct {
	at     int
	reason core.Reason
	asked  int
}

func (q *questions) Why(job string) (core.Reason, string, bool) {
	q.asked++
	return q.reason, fmt.Sprintf("%s at %d s", job, q.at), true
}

func (q *questions) Counted() int { return q.asked }

// pass tells that the engine decided; it says reason to each question.
func (r *run) pass(at int, reason core.Reason, last bool) {
	r.Passed(seconds(at), 1, func() sim.Inquiry { return &questions{at: at, reason: reason} }, last)
}

// Job a waits 90 s on a node that b holds, c waits still; d is rejected.
func TestLongestWaits(t *testing.T) {
	r := newRun(t, Options{Levels: 1})
	r.node(0, "n0", "l")
	r.submit(0, "b", true, task(1, 8))
	r.bind(5, "b", on("n0", 0, 0, 8))
	r.submit(10, "a", true, task(1, 8))
	r.pass(10, core.Resources, false)
	r.pass(20, core.QuotaExceeded, false)
	r.pass(30, core.QuotaExceeded, false)
	r.submit(40, "d", true, task(1, 9))
	r.ok(r.Ended(seconds(41), r.jobs["d"], &sim.Rejection{Reason: core.NoNode}))
	r.release(100, "b", sim.Finished, on("n0", 0, 0, 8))
	r.end(100, "b")
	r.bind(100, "a", on("n0", 0, 0, 8))
	r.submit(100, "c", true, task(2, 8))
	r.submit(150, "e", true, task(4, 8))
	r.pass(150, core.Resources, true)

	all := r.LongestWaits()
	var got string
	for _, w := range all {
		got += fmt.Sprintf("%s %g s, waits %v: %s %d/%d, %q\n",
			w.Job, w.Waited.Seconds(), w.Waits, w.Why.Reason, w.Why.Times, w.Why.Asked, w.Why.Detail)
	}
	const want = `a 90 s, waits false: QuotaExceeded 2/3, "a at 30 s"
c 50 s, waits true: Resources 1/1, "c at 150 s"
b 5 s, waits false:  0/0, ""
`
	if got != want {
		t.Errorf("longest waits are\n%swant\n%s", got, want)
	}
}

// When a queue that stood still for a day starts all at once, its last jobs wait
// nearly as long as its first, and each was asked about itself.
func TestEachOfTheLongestWaitsIsAskedAbout(t *testing.T) {
	r := newRun(t, Options{Levels: 1})
	r.node(0, "n0", "l")
	const jobs, every, until = 1000, 60, 86400
	name := func(i int) string { return fmt.Sprintf("j%04d", i) }
	for at := 0; at < until; at += every {
		if i := at / every; i < jobs {
			r.submit(at, name(i), true, task(1, 8))
		}
		r.pass(at, core.Resources, false)
	}
	for i := jobs - 1; i >= 0; i-- { // the last one waits longest
		at := until + 2*every*(jobs-i)
		for range LongestWaits {
			r.pass(at, core.Resources, false)
		}
		r.bind(at, name(i), on("n0", 0, 0, 8))
		r.release(at, name(i), sim.Finished, on("n0", 0, 0, 8))
		r.end(at, name(i))
	}
	all := r.LongestWaits()
	if len(all) != LongestWaits || all[0].Job != name(0) {
		t.Fatalf("%d waits, from %+v to %+v", len(all), all[0], all[len(all)-1])
	}
	for _, w := range all {
		if w.Why.Asked == 0 || !strings.HasPrefix(w.Why.Detail, w.Job+" at ") || w.Why.At < w.Submitted || w.Why.At > w.Submitted+w.Waited {
			t.Errorf("%+v", w)
		}
	}
}

// What questions cost stays in proportion to the scheduling passes, however many
// nodes there are and jobs wait.
func TestQuestionsAreBounded(t *testing.T) {
	r := newRun(t, Options{Levels: 1})
	const nodes, jobs = 1000, 20000
	for i := range nodes {
		r.node(0, fmt.Sprint(i), "l")
	}
	q := &questions{reason: core.Resources}
	for i := range jobs {
		r.submit(i, fmt.Sprintf("j%d", i), true, task(1, 8))
		r.Passed(seconds(i), 1, func() sim.Inquiry { return q }, false)
	}
	// LongestWaits are asked about however much was asked already.
	most := (2*jobs*askPerPass+askFree)/nodes + LongestWaits
	if q.asked < most/4 || q.asked > most {
		t.Errorf("%d questions in %d passes, want at most %d and not much fewer", q.asked, jobs, most)
	}
}
