package coretest

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// What queues and jobs have received and deserved, added up again from all pods at each moment, under
// [core.LongTermFairness].

// served is what queues and jobs received and deserved so far, in millionths of a GPU times nanoseconds. A queue's own
// jobs have an account of their own: see own.
type served struct {
	at                 core.Time
	began              bool
	received, deserved map[string]*big.Int
	// took is what the jobs took that have ended, in milliseconds of a GPU.
	took []int64
}

// serviceOf is what a job received and deserved so far.
type serviceOf struct{ received, deserved big.Int }

func newServed() served {
	return served{received: map[string]*big.Int{}, deserved: map[string]*big.Int{}}
}

// own names the account of a queue's own jobs.
func own(queue string) string { return queue + "/" }

// forget drops what a queue received and deserved.
func (s *served) forget(queue string) {
	for _, name := range []string{queue, own(queue)} {
		delete(s.received, name)
		delete(s.deserved, name)
	}
}

// fairOrder reports whether jobs are ordered by what was received and deserved.
func (w *Twin) fairOrder() bool {
	switch w.policy.Queueing.Order {
	case core.LongTermFairness, core.ShortestRemaining, core.LeastAttained, core.FinishTimeFairness, core.DominantShare, core.GittinsIndex:
		return w.policy.Queueing.Mode != core.StrictFIFO
	}
	return false
}

// serve adds up what was received and deserved until now, in parts that end when amounts of queues decay.
func (w *Twin) serve(now core.Time) {
	s := &w.served
	if !s.began {
		s.began, s.at = true, now
	}
	if !w.fairOrder() {
		return
	}
	for r := w.rates(); s.at < now; {
		to, step := now, w.policy.Fairness.HalfLife/16
		if step > 0 {
			to = min(to, s.at-s.at%step+step)
		}
		for name, rate := range r.deserved {
			add(s.deserved, name, rate, to-s.at)
		}
		for name, held := range r.held {
			add(s.received, name, held, to-s.at)
		}
		for j, rate := range r.jobs {
			j.served.deserved.Add(&j.served.deserved, product(rate, to-s.at))
		}
		for _, j := range w.jobs {
			j.served.received.Add(&j.served.received, product(w.heldBy(j), to-s.at))
		}
		if s.at = to; step > 0 && to%step == 0 {
			for _, all := range []map[string]*big.Int{s.received, s.deserved} {
				for _, x := range all {
					x.Mul(x, big.NewInt(4112874773)).Rsh(x, 32)
				}
			}
		}
	}
}

// recount replaces what queues and jobs received and deserved by what they had at a time before.
func (w *Twin) recount(now core.Time, ev core.GPUTimeCounted) {
	number := func(text string) *big.Int {
		n, _ := new(big.Int).SetString("0"+text, 10)
		return n
	}
	for _, q := range ev.Queues {
		for account, is := range map[string]core.Served{q.Queue: q.All, own(q.Queue): q.Own} {
			w.served.received[account], w.served.deserved[account] = number(is.Received), number(is.Deserved)
		}
	}
	for at, step := ev.At, w.policy.Fairness.HalfLife/16; step > 0; {
		if at += step - (at%step+step)%step; at > now {
			break
		}
		for _, q := range ev.Queues {
			for _, account := range []string{q.Queue, own(q.Queue)} {
				for _, x := range []*big.Int{w.served.received[account], w.served.deserved[account]} {
					x.Mul(x, big.NewInt(4112874773)).Rsh(x, 32)
				}
			}
		}
	}
	for _, j := range ev.Jobs {
		is := &w.jobs[j.Job].served
		is.received.Set(number(j.Received))
		is.deserved.Set(number(j.Deserved))
	}
}

// servedAs checks what the engine says that queues and jobs received and deserved.
func (w *Twin) servedAs(ev core.GPUTimeCounted) error {
	if w.fairOrder() && len(ev.Queues) != len(w.queues) {
		return fmt.Errorf("GPU time of %d queues, there are %d", len(ev.Queues), len(w.queues))
	}
	text := func(x *big.Int) string {
		if x == nil {
			return "0"
		}
		return x.String()
	}
	for _, q := range ev.Queues {
		for account, is := range map[string]core.Served{q.Queue: q.All, own(q.Queue): q.Own} {
			if want := (core.Served{Received: text(w.served.received[account]), Deserved: text(w.served.deserved[account])}); is != want {
				return fmt.Errorf("queue %s: %+v, expected %+v", account, is, want)
			}
		}
	}
	for _, j := range ev.Jobs {
		is := &w.jobs[j.Job].served
		if want := (core.Served{Received: text(&is.received), Deserved: text(&is.deserved)}); j.Served != want {
			return fmt.Errorf("job %s: %+v, expected %+v", j.Job, j.Served, want)
		}
	}
	return nil
}

func product(rate int64, time core.Time) *big.Int {
	return new(big.Int).Mul(big.NewInt(rate), big.NewInt(int64(time)))
}

func add(to map[string]*big.Int, name string, rate int64, time core.Time) {
	if to[name] == nil {
		to[name] = new(big.Int)
	}
	to[name].Add(to[name], product(rate, time))
}

// unitsOf returns what a model's GPU counts.
func (w *Twin) unitsOf(model string) int64 {
	for _, r := range w.policy.Fairness.Rates {
		if r.Model == model {
			return r.Rate
		}
	}
	return 1000
}

// wantedBy returns what a job requests.
func (w *Twin) wantedBy(j *job) int64 {
	sum := int64(0)
	for i := range j.pods {
		if s := j.pods[i].state; s == done || s == withdrawn {
			continue
		}
		t := &j.Tasks[j.pods[i].task]
		sum += int64(t.GPU) * w.unitsFor(t)
	}
	return min(sum, 1<<20*1_000_000)
}

// unitsFor returns what a GPU counts of those that a task requests.
func (w *Twin) unitsFor(t *core.Task) int64 {
	models := t.Models
	if models == nil {
		models = []string{""}
		for _, r := range w.policy.Fairness.Rates {
			models = append(models, r.Model)
		}
	}
	rate := int64(0)
	for _, m := range models {
		rate = max(rate, w.unitsOf(m))
	}
	return rate
}

// heldBy returns what a job has on nodes.
func (w *Twin) heldBy(j *job) int64 {
	sum := int64(0)
	for i := range j.pods {
		if p := &j.pods[i]; p.on() {
			sum += int64(j.Tasks[p.task].GPU) * w.unitsOf(w.node(p.at.Node).Model)
		}
	}
	return sum
}

// rates is what is held and deserved at one moment.
type rates struct {
	held, deserved map[string]int64
	jobs           map[*job]int64
}

// rates divides all GPUs among the queues and their jobs.
func (w *Twin) rates() rates {
	r := rates{map[string]int64{}, map[string]int64{}, map[*job]int64{}}
	wanted := map[string]int64{}
	for _, j := range w.jobs {
		want, held := w.wantedBy(j), w.heldBy(j)
		wanted[own(j.Queue)] += want
		r.held[own(j.Queue)] += held
		for q := j.Queue; q != ""; q = w.queue(q).Parent {
			wanted[q] += want
			r.held[q] += held
		}
		wanted[""] += want
	}
	units := int64(0)
	for _, n := range w.nodes {
		if n.up && !n.cordoned {
			for g := range n.GPUs {
				if n.bad>>g&1 == 0 {
					units += 1000 * w.unitsOf(n.Model)
				}
			}
		}
	}
	w.divideServed("", min(units, wanted[""]), wanted, &r)
	return r
}

// divideServed divides what a queue deserves among those below it and its own jobs.
func (w *Twin) divideServed(queue string, rate int64, wanted map[string]int64, r *rates) {
	type claim struct {
		name           string
		wanted, weight int64
	}
	var claims []claim
	for i := range w.queues {
		if q := &w.queues[i]; q.Parent == queue && wanted[q.Name] > 0 {
			claims = append(claims, claim{q.Name, wanted[q.Name], q.Weight})
		}
	}
	if queue != "" && wanted[own(queue)] > 0 {
		claims = append(claims, claim{own(queue), wanted[own(queue)], 1})
	}
	for len(claims) > 0 {
		// When only those of weight 0 are left, they divide evenly.
		if !slices.ContainsFunc(claims, func(c claim) bool { return c.weight > 0 }) {
			for i := range claims {
				claims[i].weight = 1
			}
		}
		// The one that wants least for its weight; of several, the first by name.
		first, weights := 0, int64(0)
		for i, c := range claims {
			f := claims[first]
			if c.weight == 0 {
				continue
			}
			if less := c.wanted*f.weight - f.wanted*c.weight; f.weight == 0 || less < 0 || less == 0 && nameOf(c.name) < nameOf(f.name) {
				first = i
			}
			weights += c.weight
		}
		c := claims[first]
		claims = slices.Delete(claims, first, first+1)
		r.deserved[c.name] = min(c.wanted, rate*c.weight/weights)
		rate -= r.deserved[c.name]
		if c.name != own(queue) {
			w.divideServed(c.name, r.deserved[c.name], wanted, r)
			continue
		}
		var jobs []*job
		for _, j := range w.jobs {
			if j.Queue == queue && w.wantedBy(j) > 0 {
				jobs = append(jobs, j)
			}
		}
		slices.SortFunc(jobs, func(a, b *job) int { return cmp.Compare(w.wantedBy(a), w.wantedBy(b)) })
		for i, left := 0, r.deserved[c.name]; i < len(jobs); {
			// Those that request as much get as much.
			n := i + 1
			for n < len(jobs) && w.wantedBy(jobs[n]) == w.wantedBy(jobs[i]) {
				n++
			}
			part := min(w.wantedBy(jobs[i]), left/int64(len(jobs)-i))
			for ; i < n; i++ {
				r.jobs[jobs[i]] = part
				left -= part
			}
		}
	}
}

// nameOf returns the name of the queue of an account.
func nameOf(account string) string {
	if n := len(account) - 1; account[n] == '/' {
		return account[:n]
	}
	return account
}

// indexOf is received / deserved at the horizon, in billionths.
func (w *Twin) indexOf(received, deserved *big.Int, held, rate int64) int64 {
	h := w.policy.Fairness.Lease
	if h == 0 {
		h = core.FairHorizon
	}
	return indexAfter(received, deserved, held, rate, h)
}

// indexAfter is received / deserved after a time, in billionths.
func indexAfter(received, deserved *big.Int, held, rate int64, h core.Time) int64 {
	x, y := product(held, h), product(rate, h)
	if received != nil {
		x.Add(x, received)
	}
	if deserved != nil {
		y.Add(y, deserved)
	}
	if n := y.BitLen(); n > 63 {
		x, y = x.Rsh(x, uint(n-63)), y.Rsh(y, uint(n-63))
	}
	if x.Sign() == 0 {
		return 0
	}
	if y.Sign() == 0 || x.BitLen() > 97 {
		return math.MaxInt64
	}
	x.Mul(x, big.NewInt(1_000_000_000)).Div(x, y)
	if !x.IsInt64() {
		return math.MaxInt64
	}
	return x.Int64()
}

// compareServed compares two jobs by class, the indexes of their queues, priority, their own indexes, submission and arrival.
func (w *Twin) compareServed(a, b *job) int {
	r, s := w.rates(), &w.served
	of := func(account string) int64 {
		if d := s.deserved[account]; (d == nil || d.Sign() == 0) && r.deserved[account] == 0 && w.weightOf(account) == 0 {
			return math.MaxInt64
		}
		return w.indexOf(s.received[account], s.deserved[account], r.held[account], r.deserved[account])
	}
	x, y := w.accountsAbove(a), w.accountsAbove(b)
	queues := 0
	for i := range min(len(x), len(y)) {
		if w.byQueue() && x[i] != y[i] {
			if w.policy.Queueing.Order == core.DominantShare {
				queues = cmp.Or(cluster.LastIf(w.weightOf(x[i]) == 0, w.weightOf(y[i]) == 0), w.dominantShare(x[i]).Cmp(w.dominantShare(y[i])))
			} else {
				queues = cmp.Compare(of(x[i]), of(y[i]))
			}
			queues = cmp.Or(queues, cmp.Compare(nameOf(x[i]), nameOf(y[i])))
			break
		}
	}
	return cmp.Or(cmp.Compare(a.Class, b.Class), queues, cmp.Compare(b.Priority, a.Priority), w.indexOfJob(a, r).Cmp(w.indexOfJob(b, r)),
		cmp.Compare(a.ordered, b.ordered), cmp.Compare(a.number, b.number))
}

// jobOrder is the order of the jobs of one queue or, under orders that look at no queues, of all.
func (w *Twin) jobOrder() core.Order {
	if o := w.policy.Fairness.Jobs; o != 0 && w.policy.Queueing.Order == core.LongTermFairness {
		return o
	}
	return w.policy.Queueing.Order
}

// byQueue reports whether the order looks at queues first.
func (w *Twin) byQueue() bool {
	return w.policy.Queueing.Order == core.LongTermFairness || w.policy.Queueing.Order == core.DominantShare
}

// dominantShare returns the greatest of the shares of GPUs, CPU and memory that the jobs of an account hold, for its weight.
func (w *Twin) dominantShare(account string) *big.Rat {
	var held, there [3]int64
	for _, j := range w.jobs {
		if !slices.Contains(w.accountsAbove(j), account) {
			continue
		}
		held[0] += w.heldBy(j)
		for i := range j.pods {
			if p := &j.pods[i]; p.on() {
				held[1] += j.Tasks[p.task].CPUMilli
				held[2] += j.Tasks[p.task].MemMiB
			}
		}
	}
	for _, n := range w.nodes {
		if n.up && !n.cordoned {
			there[0] += int64(n.GPUs-bits.OnesCount64(n.bad)) * 1000 * w.unitsOf(n.Model)
			there[1] += n.CPUMilli
			there[2] += n.MemMiB
		}
	}
	share := new(big.Rat)
	for i := range held {
		if held[i] > 0 && there[i] == 0 {
			return big.NewRat(math.MaxInt64, 1) // of nothing, any part is more than all of something
		}
		if of := big.NewRat(held[i], max(1, there[i])); of.Cmp(share) > 0 {
			share = of
		}
	}
	return share.Quo(share, big.NewRat(max(w.weightOf(account), 1), 1))
}

// weightOf returns the weight of a queue, which of own jobs beside queues below is 1.
func (w *Twin) weightOf(account string) int64 {
	if account == own(nameOf(account)) {
		return 1
	}
	return w.queue(account).Weight
}

// indexOfJob returns by what a job is ordered among those of its priority.
func (w *Twin) indexOfJob(j *job, r rates) *big.Int {
	received, deserved := &j.served.received, &j.served.deserved
	if w.jobOrder() == core.BySubmission {
		return big.NewInt(int64(j.ordered))
	}
	if w.jobOrder() == core.LongTermFairness {
		return big.NewInt(w.indexOf(received, deserved, w.heldBy(j), r.jobs[j]))
	}
	if w.jobOrder() == core.DominantShare {
		return new(big.Int)
	}
	if w.jobOrder() == core.GittinsIndex {
		level, rank := w.gittins(received)
		return new(big.Int).Add(new(big.Int).Lsh(big.NewInt(level), 60), rank)
	}
	if w.jobOrder() == core.LeastAttained {
		if len(w.policy.Fairness.Levels) == 0 {
			attained := new(big.Int).Div(received, big.NewInt(1_000_000_000)) // GPU-microseconds
			if attained.BitLen() > 63 {
				attained.SetInt64(math.MaxInt64)
			}
			return attained
		}
		level := int64(0)
		for _, from := range w.policy.Fairness.Levels {
			if received.Cmp(product(1_000_000, from)) >= 0 {
				level++
			}
		}
		return big.NewInt(level)
	}
	all := int64(0)
	for i := range j.pods {
		t := &j.Tasks[j.pods[i].task]
		all += int64(t.GPU) * w.unitsFor(t)
	}
	left := j.expected
	if all = min(all, 1<<20*1_000_000); all > 0 {
		ran := new(big.Int).Div(received, big.NewInt(all))
		if left = 0; ran.Cmp(big.NewInt(int64(j.expected))) < 0 {
			left = j.expected - core.Time(ran.Int64())
		}
	}
	if w.jobOrder() == core.ShortestRemaining {
		return big.NewInt(int64(left))
	}
	return big.NewInt(indexAfter(product(all, j.expected), deserved, 0, r.jobs[j], left))
}

// noEnd is the rank of a job that does not end within a quantum.
var noEnd = big.NewInt(1<<57 - 1)

// millis returns an amount in milliseconds of a GPU.
func millis(amount *big.Int) int64 {
	return new(big.Int).Div(amount, big.NewInt(1_000_000*1_000_000)).Int64()
}

// gittins returns the level of a job that has received so much, and 1 / its Gittins index: what jobs like it are expected to receive for each that ends
// within the quantum.
func (w *Twin) gittins(received *big.Int) (level int64, rank *big.Int) {
	a, from, to := millis(received), core.Time(0), core.Never
	for _, at := range w.policy.Fairness.Levels {
		if received.Cmp(product(1_000_000, at)) < 0 {
			to = at
			break
		}
		level, from = level+1, at
	}
	took := w.served.took[max(0, len(w.served.took)-core.MostServices):]
	if given := w.policy.Fairness.Distribution; given != nil {
		took = nil
		for _, t := range given {
			took = append(took, int64(t)/1_000_000)
		}
	}
	expected := func(quantum int64) *big.Int {
		ends, sum := int64(0), new(big.Int)
		for _, s := range took {
			switch {
			case s <= a:
			case s-a <= quantum:
				ends++
				sum.Add(sum, big.NewInt(s-a))
			default:
				sum.Add(sum, big.NewInt(quantum))
			}
		}
		if ends == 0 {
			return noEnd
		}
		return sum.Div(sum, big.NewInt(ends))
	}
	if len(w.policy.Fairness.Levels) > 0 {
		if to == core.Never {
			return level, expected(math.MaxInt64)
		}
		return level, expected(int64(to-from) / 1_000_000)
	}
	rank = noEnd
	for _, s := range took {
		if r := expected(s - a); s > a && r.Cmp(rank) < 0 {
			rank = r
		}
	}
	return level, rank
}

// comesAfter reports whether a job that runs may leave after its lease for one that waits: as that is worth what is lost, or as it comes after that one,
// of its class and priority.
func (w *Twin) comesAfter(j, f *job, d *core.Decision, now core.Time) bool {
	if w.jobOrder() == core.LongTermFairness || w.byQueue() && f.Queue != j.Queue {
		return w.outweighed(f, j, d, now)
	}
	r := w.rates()
	if w.jobOrder() == core.BySubmission && (f.unordered || j.unordered) {
		return f.Class == j.Class && f.Priority == j.Priority // the twin does not know which comes first
	}
	return f.Class == j.Class && f.Priority == j.Priority && w.indexOfJob(f, r).Cmp(w.indexOfJob(j, r)) < 0
}

// passedBy returns the jobs that come before one that is about to start, and start pod by pod, as far as what was received, or users,
// decide that.
func (w *Twin) passedBy(b *job) []*job {
	var out []*job
	if w.limited() || w.had != nil {
		return nil // quotas come first, and a forecast may put jobs off
	}
	for _, name := range w.Live() {
		j := w.jobs[name]
		if waits := slices.ContainsFunc(j.pods, func(p pod) bool { return p.state == waiting }); !waits || j.Gang || j == b || j.unordered {
			continue
		}
		switch {
		case w.takeTurns(j, b):
			if r := cmp.Or(cmp.Compare(j.Class, b.Class), cmp.Compare(b.Priority, j.Priority)); r < 0 || r == 0 && w.heldByUser(j) < w.heldByUser(b) {
				out = append(out, j)
			}
		case w.fairOrder() && w.compareServed(j, b) < 0 && !w.turnsBetween(j, b):
			out = append(out, j)
		}
	}
	return out
}

// turnsBetween reports whether a job may start before another one that comes before it, as it takes the turn of a third one.
func (w *Twin) turnsBetween(a, b *job) bool {
	if w.byQueue() {
		return a.Queue == b.Queue && w.queue(a.Queue).FairUsers
	}
	return w.queue(a.Queue).FairUsers || w.queue(b.Queue).FairUsers
}

// nonePassed checks, after a pass, that no job started in a place that one before it in the order could have had, and waits
// for. Like ownersFirst, it knows this of single pods, when no pod is leaving.
func (w *Twin) nonePassed(ds []core.Decision, passed map[int][]*job) error {
	if !w.Settled() || slices.ContainsFunc(ds, func(d core.Decision) bool {
		return d.Op == core.Evict || d.Op == core.Migrate || d.Op == core.Resume || kept(&d)
	}) {
		return nil
	}
	for k := range ds {
		for _, j := range passed[k] {
			for i := range j.pods {
				if at := w.couldHave(j, i, w.jobs[ds[k].Job], ds[k].Pods); at != "" {
					return fmt.Errorf("job %s starts on %s, where pod %d of %s could, which comes before it\n%s\n%s", ds[k].Job, at, i, j.Name,
						w.servedText(w.jobs[ds[k].Job]), w.servedText(j))
				}
			}
		}
	}
	return nil
}

// leaseOver reports whether the pods of a decision have run for a lease.
func (w *Twin) leaseOver(j *job, d *core.Decision, now core.Time) bool {
	since := j.started
	if !j.Gang {
		since = 0
		for _, at := range d.Pods {
			since = max(since, j.pods[at.Pod].started)
		}
	}
	lease := w.policy.Fairness.Lease
	return lease > 0 && now-since >= lease
}

// unsaved is the work that a part of the job loses if it is evicted, which has run since a time.
func (j *job) unsaved(since, now core.Time) core.Time {
	age := now - max(since, j.saved)
	if j.Checkpoint > 0 {
		age %= j.Checkpoint
	}
	if j.SaveWithin > 0 && age > j.SaveWithin {
		return j.SaveWithin // it saves its progress when it is asked to
	}
	return age
}

// outweighed reports whether f can be so far behind that the pods of a decision leave for it after their lease: its index, raised by the part
// of their run that they lose, must be below that of the other side. The twin does not know what plans in progress
// keep for jobs, so f's side counts here as if it held nothing, the other one as if it held all that it requests.
func (w *Twin) outweighed(f, j *job, d *core.Decision, now core.Time) bool {
	r, s := w.rates(), &w.served
	behind := w.indexOf(&f.served.received, &f.served.deserved, 0, r.jobs[f])
	ahead := w.indexOf(&j.served.received, &j.served.deserved, w.mayHold(func(o *job) bool { return o == j }), r.jobs[j])
	x, y := w.accountsAbove(f), w.accountsAbove(j)
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			behind = w.indexOf(s.received[x[i]], s.deserved[x[i]], 0, r.deserved[x[i]])
			held := w.mayHold(func(o *job) bool { return slices.Contains(w.accountsAbove(o), y[i]) })
			ahead = w.indexOf(s.received[y[i]], s.deserved[y[i]], held, r.deserved[y[i]])
			break
		}
	}
	for _, at := range d.Pods {
		started := j.pods[at.Pod].started
		ran, unsaved := now-started, j.unsaved(started, now)
		if j.Gang {
			ran, unsaved = now-j.started, min(unsaved, j.unsaved(j.started, now)) // the pod may leave alone, or with the gang
		}
		if product(behind, ran+unsaved).Cmp(product(ahead, ran)) >= 0 {
			return false
		}
	}
	return true
}

// mayHold is the most that some jobs can have, with what plans in progress keep for them.
func (w *Twin) mayHold(of func(*job) bool) int64 {
	sum := int64(0)
	for _, j := range w.jobs {
		if of(j) {
			sum += max(w.wantedBy(j), w.heldBy(j)) + w.heldBy(j)
		}
	}
	return sum
}

// wouldEvict reports whether j would evict f by its class or priority.
func (w *Twin) wouldEvict(j, f *job) bool {
	among := w.policy.Preempt.Priority == core.InCluster || w.policy.Preempt.Priority == core.InQueue && j.Queue == f.Queue
	return among && (j.Class < f.Class || j.Class == f.Class && j.Priority > f.Priority)
}

// accountsAbove returns the accounts of a job, from the top of the tree to those of its queue's own jobs.
func (w *Twin) accountsAbove(j *job) []string {
	out := []string{own(j.Queue)}
	for q := j.Queue; q != ""; q = w.queue(q).Parent {
		out = append(out, q)
	}
	slices.Reverse(out)
	return out
}

// servedText says what a job and the accounts above it have received and deserved.
func (w *Twin) servedText(j *job) string {
	r := w.rates()
	text := fmt.Sprintf("job %s: received %v, deserved %v, holds %d, deserves %d", j.Name, &j.served.received, &j.served.deserved, w.heldBy(j), r.jobs[j])
	for _, a := range w.accountsAbove(j) {
		text += fmt.Sprintf("; %s: received %v, deserved %v, holds %d, deserves %d", a, w.served.received[a], w.served.deserved[a], r.held[a], r.deserved[a])
	}
	return text
}
