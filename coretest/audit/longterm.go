package audit

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// This file checks the order of starts under the order LongTermFairness: that no job starts in a place that another one could have
// had whose queue had received less of what it deserved. It knows this of a job that differs only in its queue and its
// submission, starts pod by pod, and has not run yet. Of two jobs of one queue it knows this only under some orders of jobs. Amounts are in floating point, in GPU-seconds: who is ahead by little is not reported.

// longTermRules are those of the order.
type longTermRules struct {
	HalfLife float64            `json:"half_life_s"`
	Horizon  float64            `json:"horizon_s"`
	Rates    map[string]float64 `json:"rates"` // 1 of models that are not listed
	Jobs     string             `json:"jobs"`  // the order of the jobs of one queue; empty is that of the queues
}

// leastAhead is by how much indexes differ at least, in each and as a part of one.
const leastAhead = 1e-2

// account is what a queue with all below it has received and deserved, or its own jobs.
type account struct {
	name                       string
	parent                     *account
	children                   []*account
	own                        *account // nil of own jobs
	weight, wanted, held, rate float64
	received, deserved         float64
}

// inTime follows the accounts. It is nil if the run has another order, or quotas, which come before it.
type inTime struct {
	rules    *longTermRules
	root     account
	accounts map[string]*account
	units    float64
	at       int64
	divided  bool
	waiting  map[string][]*job // jobs that have not run, by what they request
	doubts   []doubt           // in order of time
	upset    int64             // when a pod left last as it was told to
}

// doubt is a start at t that was out of order, unless a pod was leaving then: a place may be kept for the other job.
type doubt struct {
	t    int64
	text string
}

// newInTime returns nil if the order is not to be checked.
func newInTime(r *rules, queues map[string]*queue) *inTime {
	if r == nil || r.LongTerm == nil || r.Forecast > 0 || len(queues) == 0 {
		return nil
	}
	f := &inTime{rules: r.LongTerm, accounts: map[string]*account{}, waiting: map[string][]*job{}, upset: -1}
	for _, q := range queues {
		if q.nominal != nil || q.resources[0].listed || q.resources[1].listed || q.all != (bounds{}) || q.perUser != (bounds{}) {
			return nil
		}
		a := &account{name: q.name, weight: q.weight}
		a.own = &account{name: q.name, weight: 1, parent: a}
		a.children = []*account{a.own}
		f.accounts[q.name] = a
	}
	for name, q := range queues {
		a := f.accounts[name]
		if a.parent = &f.root; q.parent != nil {
			a.parent = f.accounts[q.parent.name]
		}
		a.parent.children = append(a.parent.children, a)
	}
	return f
}

// rate is what a GPU of a model counts.
func (f *inTime) rate(model string) float64 {
	if r, ok := f.rules.Rates[model]; ok {
		return r
	}
	return 1
}

// asks is how many GPUs a pod of a task counts for as requested.
func (f *inTime) asks(t *task) float64 {
	most := 0.0
	for _, m := range t.models {
		most = max(most, f.rate(m))
	}
	if len(t.models) == 0 {
		most = 1
		for _, r := range f.rules.Rates {
			most = max(most, r)
		}
	}
	return most * float64(t.gpu) / wholeGPU
}

// count counts the GPUs of healthy nodes that take pods.
func (f *inTime) count(nodes map[string]*node) {
	if f == nil {
		return
	}
	f.divided, f.units = false, 0
	for _, n := range nodes {
		if n.up && !n.cordoned {
			f.units += float64(len(n.devices)-len(n.unhealthy)) * f.rate(n.model)
		}
	}
}

// want adds pods of a task to what the job's queue requests.
func (f *inTime) want(j *job, t *task, pods int) {
	if f == nil || pods == 0 {
		return
	}
	f.divided = false
	for a := f.accounts[j.queue].own; a != nil; a = a.parent {
		a.wanted += float64(pods) * f.asks(t)
	}
}

// hold adds what a pod has to what the job's queue has, or (by -1) takes it off.
func (f *inTime) hold(j *job, n *node, p *pod, by float64) {
	if f == nil {
		return
	}
	for a := f.accounts[j.queue].own; a != nil; a = a.parent {
		a.held += by * float64(p.amount()) / wholeGPU * f.rate(n.model)
	}
}

// advance lets time go on.
func (f *inTime) advance(t int64) {
	if f == nil || t <= f.at {
		return
	}
	f.divide()
	step := int64(math.Round(f.rules.HalfLife*1e9)) / 16
	for f.at < t {
		to := t
		if step > 0 {
			to = min(to, (f.at/step+1)*step)
		}
		f.root.settle(float64(to-f.at) / 1e9)
		if f.at = to; step > 0 && to%step == 0 {
			f.root.scale(math.Exp2(-1. / 16))
		}
	}
}

func (a *account) settle(seconds float64) {
	a.received += a.held * seconds
	a.deserved += a.rate * seconds
	for _, c := range a.children {
		c.settle(seconds)
	}
}

func (a *account) scale(by float64) {
	a.received, a.deserved = a.received*by, a.deserved*by
	for _, c := range a.children {
		c.scale(by)
	}
}

// divide divides the GPUs among the queues that request some.
func (f *inTime) divide() {
	if !f.divided {
		f.divided = true
		f.root.rate = min(f.units, f.root.wanted)
		f.root.divide()
	}
}

func (a *account) divide() {
	left := a.rate
	for _, owed := range []bool{true, false} { // first by weight, then evenly among those of weight 0
		weights, parts := 0.0, []*account(nil)
		for _, c := range a.children {
			if (c.weight > 0) != owed {
				continue
			}
			if c.rate = 0; c.wanted > leastAhead/1000 {
				parts = append(parts, c)
				weights += max(c.weight, 1)
			}
		}
		slices.SortFunc(parts, func(x, y *account) int { return cmp.Compare(x.wanted*max(y.weight, 1), y.wanted*max(x.weight, 1)) })
		for _, c := range parts {
			c.rate = min(c.wanted, left*max(c.weight, 1)/weights)
			left, weights = left-c.rate, weights-max(c.weight, 1)
		}
	}
	for _, c := range a.children {
		c.divide()
	}
}

// index is what the account will have received for what it will have deserved.
func (f *inTime) index(a *account) float64 {
	f.divide()
	received, deserved := a.received+a.held*f.rules.Horizon, a.deserved+a.rate*f.rules.Horizon
	switch {
	case a.weight == 0 && deserved == 0:
		return math.Inf(1)
	case received == 0:
		return 0
	}
	return received / max(deserved, 1e-9)
}

// alike says what a job requests and from where; empty if that cannot be told from it, or if it starts as a whole.
func (j *job) alike() string {
	if j.gang || len(j.tasks) != 1 || j.minds() || j.required != "" || j.gpu() == 0 {
		return ""
	}
	t := &j.tasks[0]
	return fmt.Sprint(j.class, t.gpu, t.cpu, t.mem, t.models, t.conditions, t.tolerations)
}

// submitted adds a new job.
func (f *inTime) submitted(j *job) {
	if f == nil {
		return
	}
	f.advance(j.submit)
	for i := range j.tasks {
		f.want(j, &j.tasks[i], j.tasks[i].pods)
	}
	if of := j.alike(); of != "" {
		f.waiting[of] = append(f.waiting[of], j)
	}
}

// over removes a job that ended at a time.
func (f *inTime) over(j *job, t int64) {
	if f == nil || t < 0 {
		return
	}
	f.advance(t)
	for i := range j.tasks {
		f.want(j, &j.tasks[i], j.tasks[i].done-j.tasks[i].pods)
	}
	f.runs(j)
}

// runs says that a job has run, or is over.
func (f *inTime) runs(j *job) {
	if of := j.alike(); of != "" {
		f.waiting[of] = slices.DeleteFunc(f.waiting[of], func(o *job) bool { return o == j })
	}
}

// starts checks that a pod of a job starts in its turn, before it is counted.
func (f *inTime) starts(j *job, d *decision) {
	if f == nil {
		return
	}
	if j.binds.n > 0 && j.binds.last == d.t {
		return // the pods of a job start one after the other in its turn
	}
	first := j.binds.n == 0
	if first {
		defer f.runs(j)
	}
	if why := string(d.reason); (why == "Placed" || why == "Backfilled") && f.upset != d.t && j.alike() != "" {
		for _, o := range f.waiting[j.alike()] {
			if o == j || o.submit >= d.t {
				continue
			}
			switch x, y := f.rivals(o, j); {
			case x != nil:
				if of, than := f.index(x), f.index(y); of*(1+leastAhead)+leastAhead < than {
					f.doubts = append(f.doubts, doubt{d.t, fmt.Sprintf("%s starts at %s, where job %s could: queue %s has the index %.3f, queue %s %.3f",
						d.pod, seconds(d.t), o.name, x.name, of, y.name, than)})
					return
				}
			case o.rank.priority > j.rank.priority || o.rank.priority == j.rank.priority && f.comesBefore(o, j, first):
				f.doubts = append(f.doubts, doubt{d.t, fmt.Sprintf("%s starts at %s, where job %s of its queue could, which comes before it", d.pod, seconds(d.t), o.name)})
				return
			}
		}
	}
}

// comesBefore reports whether a job that has not run surely comes before one of its queue that starts, for the first time or not. What jobs are
// estimated to take, and what others took, is not known here.
func (f *inTime) comesBefore(o, j *job, first bool) bool {
	switch f.rules.Jobs {
	case "":
		return !first || o.submit < j.submit
	case "Submission", "LeastAttained": // by its level, one that has run may come before it
		return o.submit < j.submit
	}
	return false
}

// rivals are the accounts above two jobs that are compared: those beside each other; nil if the jobs are of one queue.
func (f *inTime) rivals(a, b *job) (x, y *account) {
	above := func(j *job) (way []*account) {
		for c := f.accounts[j.queue].own; c != nil; c = c.parent {
			way = append(way, c)
		}
		slices.Reverse(way)
		return way
	}
	p, q := above(a), above(b)
	for i := range min(len(p), len(q)) {
		if p[i] != q[i] {
			return p[i], q[i]
		}
	}
	return nil, nil
}

// left takes back the doubts about starts at which a pod was leaving, which was told to at a time.
func (f *inTime) left(d *decision) {
	if f != nil {
		f.upset = d.t
		f.doubts = slices.DeleteFunc(f.doubts, func(x doubt) bool { return x.t >= d.told })
	}
}

// outOfOrder reports the doubts of before t about which nothing more will be known.
func (a *auditor) outOfOrder(t int64) {
	f := a.inTime
	for f != nil && len(f.doubts) > 0 && float64(t-f.doubts[0].t) > a.summary.Rules.EvictGrace*1e9 {
		a.breach(Turn, "%s", f.doubts[0].text)
		f.doubts = f.doubts[1:]
	}
}

// stalls notes since when a gang has too few pods, at the end of an instant.
func (a *auditor) stalls(j *job) {
	r := a.summary.Rules
	if r == nil || r.StaleGrace == 0 {
		return
	}
	short := j.bound > 0 && !j.complete() && !(j.locked && a.protects(j)) && !slices.ContainsFunc(j.tasks, func(t task) bool { return t.done > 0 })
	switch {
	case !short:
		j.stale = -1
	case j.stale < 0:
		j.stale = a.now
		a.stale = append(a.stale, stale{j, a.now})
	}
}

// stale is a gang that had too few pods from a time on.
type stale struct {
	job   *job
	since int64
}

// stopped checks that gangs with too few pods were stopped in time.
func (a *auditor) stopped(t int64) {
	for len(a.stale) > 0 && float64(t-a.stale[0].since) > (a.summary.Rules.StaleGrace+a.summary.Rules.EvictGrace)*1e9 {
		s := a.stale[0]
		if a.stale = a.stale[1:]; s.job.stale == s.since && s.job.ended < 0 {
			a.breach(Stale, "gang %s has had too few pods since %s, and %d are bound: it is to stop after %gs", s.job.name, seconds(s.since), s.job.bound, a.summary.Rules.StaleGrace)
		}
	}
}
