package metrics

import (
	"fmt"
	"math"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
)

// pass tells that the engine decided; it says reason to each question.
func (r *run) pass(at int, reason core.Reason, last bool) {
	r.Passed(seconds(at), 1, func(job string) (core.Explanation, bool) {
		return core.Explanation{Job: job, Reason: reason, Detail: fmt.Sprintf("%s at %d s", job, at), Waiting: 1}, true
	}, last)
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
	r.ok(r.Ended(seconds(41), r.jobs["d"], true))
	r.release(100, "b", sim.Finished, on("n0", 0, 0, 8))
	r.end(100, "b")
	r.bind(100, "a", on("n0", 0, 0, 8))
	r.submit(100, "c", true, task(2, 8))
	r.submit(150, "e", true, task(4, 8))
	r.pass(150, core.Resources, true)

	all := r.LongestWaits()
	var got string
	for _, w := range all {
		got += fmt.Sprintf("%s %g s, waits %v: %s %d/%d, alike %v, %q\n",
			w.Job, w.Waited.Seconds(), w.Waits, w.Reason, w.Times, w.Asked, w.Alike, w.Detail)
	}
	const want = `a 90 s, waits false: QuotaExceeded 2/3, alike true, "a at 30 s"
c 50 s, waits true: Resources 1/1, alike true, "c at 150 s"
b 5 s, waits false:  0/0, alike false, ""
`
	if got != want {
		t.Errorf("longest waits are\n%swant\n%s", got, want)
	}
}

// However many jobs wait, few waits are kept, and the questions stay in
// proportion to the scheduling passes.
func TestLongestWaitsAreBounded(t *testing.T) {
	r := newRun(t, Options{Levels: 1})
	r.node(0, "n0", "l")
	const jobs = 5000
	questions := 0
	for i := range jobs {
		name := fmt.Sprintf("j%04d", i)
		r.submit(i, name, true, task(1, 8))
		r.Passed(seconds(i), 1, func(string) (core.Explanation, bool) {
			questions++
			return core.Explanation{Reason: core.Resources, Waiting: 1}, true
		}, false)
	}
	// One in i/askOften passes while i jobs wait, and one every ten minutes.
	if most := int(askOften*math.Log(jobs)) + jobs/600 + 2; questions < jobs/600 || questions > most {
		t.Errorf("%d questions in %d passes, want at most %d", questions, jobs, most)
	}
	// The later a job came, the earlier it starts: the first waits longest.
	for i := jobs - 1; i >= 0; i-- {
		name := fmt.Sprintf("j%04d", i)
		r.bind(2*jobs-i, name, on("n0", 0, 0, 8))
		r.release(2*jobs-i, name, sim.Finished, on("n0", 0, 0, 8))
		r.end(2*jobs-i, name)
	}
	all := r.LongestWaits()
	if len(all) != LongestWaits || all[0].Job != "j0000" || all[0].Waited != seconds(2*jobs) || all[19].Job != "j0019" {
		t.Errorf("%d waits, from %+v to %+v", len(all), all[0], all[len(all)-1])
	}
}

// When the answers are full, every other one goes and half as many come.
func TestAnswersAreBounded(t *testing.T) {
	r := newRun(t, Options{Levels: 1})
	r.submit(0, "j", true, task(1, 8))
	const passes = 4 * maxAnswers
	for at := range passes {
		r.pass(at+1, core.Resources, false)
	}
	r.node(passes, "n0", "l")
	a := &r.asked
	if n := len(a.said); n > maxAnswers || n < maxAnswers/2 || a.rarer == 0 {
		t.Fatalf("%d answers, halved %d times", n, a.rarer)
	}
	for i := 1; i < len(a.said); i++ {
		if a.said[i].t <= a.said[i-1].t {
			t.Fatalf("answer %d at %d, after one at %d", i, a.said[i].t, a.said[i-1].t)
		}
	}
	if w := r.LongestWaits(); len(w) != 1 || w[0].Asked != len(a.said) || w[0].Reason != "Resources" {
		t.Errorf("longest waits %+v", w)
	}
}

// However long a run is, few questions are asked because of the time alone.
func TestQuestionsByTimeAreFew(t *testing.T) {
	var a asked
	asked := 0
	const year = 365 * 24 * 3600
	for s := 0; s < year; s += 60 {
		if a.turn(seconds(s), math.MaxInt) {
			asked++
		}
	}
	if asked < firstDues*4 || asked > firstDues*10 {
		t.Errorf("%d questions in a year, want some hundreds", asked)
	}
}
