package metrics

import (
	"cmp"
	"math"
	"slices"

	"github.com/muster-sched/muster/core"
)

// fairness measures what GPU time queues and jobs received, and what they deserved (ASTRAEA's
// long-term GPU-time fairness). At each instant the available GPUs are divided among the queues
// that have jobs, by weight and at every level of the tree, and what a queue deserves among its
// jobs; no one deserves more than it requests then (weighted max-min). Queues of weight 0 divide evenly what the others leave.
//
// What the own jobs of a queue deserve is divided in the same way, with equal weights, among the users whose jobs they are.
//
// Rates are in milli-GPU, amounts in milli-GPU seconds. What is deserved changes when jobs come or
// end, and when nodes change: that costs O(queues + sizes of their jobs + users with jobs). All else costs O(1).
//
// Invariant: every queue and size is settled up to at. Rates are of the time since then, unless
// stale is set: then they are divided again when time goes on.
type fairness struct {
	from, to core.Time // the window; to 0 leaves it open
	root     *account
	byName   map[string]*account
	tenants  []*account // the accounts that jobs belong to, by their number in Collector.queues
	stale    bool
	at       core.Time
	free     core.Milli // available GPUs
	began    bool

	unfair, time float64 // unfairness times seconds, and seconds
	ofUsers      float64 // that of users, times seconds
	lacked, owed float64 // of the jobs that ended: what they did not receive, and deserved
	rho, index   Histogram
	late         int64
	worst        float64
	parts        []*account // scratch memory
}

// account is a queue with those below it, or the jobs that a queue with others below it has itself.
type account struct {
	name     string
	weight   float64
	parent   *account
	children []*account // with jobs, now or before
	own      *account   // the queue's own jobs, if it has queues below it; itself if it has none
	wanted   core.Milli // by its live jobs, with those below it
	held     core.Milli
	rate     float64 // that it deserves
	sizes    []size  // of its own jobs, the smallest first
	level    float64 // what each job deserves of its queue, if it requests more
	// byUser has those whose jobs its own are, everyone in the order in which they came; users are those of them who request or hold
	// something. usersOwed and usersLacked add up what they deserved, and did not receive.
	byUser                 map[string]*account
	everyone, users        []*account
	usersOwed, usersLacked float64

	settled                 core.Time
	received, deserved, met float64
	jobs                    int64
	rho                     float64 // of its jobs that ended, the sum
	ended                   int64
}

// size is the jobs of a queue that request as much.
type size struct {
	gpu  core.Milli
	jobs int
	each float64 // what a job that was there from the beginning deserved
}

func newFairness(o Options) fairness {
	f := fairness{from: o.From, to: o.To, root: &account{}, byName: map[string]*account{}}
	for i := range o.Queues {
		q := &o.Queues[i]
		f.add(q.Name, q.Parent, q.Weight)
	}
	return f
}

// tenant returns the account of the jobs of a queue, of this number. One that is not described is at
// the top, with weight 1.
func (f *fairness) tenant(number int32, name string) *account {
	for int(number) >= len(f.tenants) {
		f.tenants = append(f.tenants, nil)
	}
	if f.tenants[number] == nil {
		a := f.byName[name]
		if a == nil {
			a = f.add(name, "", 1)
		}
		f.tenants[number] = a.own
	}
	return f.tenants[number]
}

// add adds a queue; those above it come before it. The own jobs of a queue with others below it are
// one more queue of weight 1 there.
func (f *fairness) add(name, parent string, weight int64) *account {
	above := f.byName[parent]
	switch {
	case above == nil:
		above = f.root
	case above.own == above:
		above.own = &account{name: above.name, weight: 1, parent: above}
		above.own.own = above.own
		above.children = append(above.children, above.own)
	}
	a := &account{name: name, weight: float64(weight), parent: above}
	a.own = a
	above.children = append(above.children, a)
	f.byName[name] = a
	return a
}

// span returns how many seconds of the window are between two times.
func (f *fairness) span(from, to core.Time) float64 {
	if from = max(from, f.from); f.to > 0 {
		to = min(to, f.to)
	}
	return max(to-from, 0).Seconds()
}

// settle adds what the account received and deserved up to t.
func (f *fairness) settle(a *account, t core.Time) {
	dt := f.span(a.settled, t)
	a.received += float64(a.held) * dt
	a.deserved += a.rate * dt
	a.met += min(float64(a.held), a.rate) * dt
	all := (t - a.settled).Seconds() // jobs are measured over all their time
	for i := range a.sizes {
		a.sizes[i].each += min(float64(a.sizes[i].gpu), a.level) * all
	}
	a.settled = t
}

// advance divides again, if something changed before t.
func (f *fairness) advance(t core.Time) {
	if !f.stale || t <= f.at {
		return
	}
	f.stale = false
	f.divide(f.root, float64(f.free))
}

// changing settles everything up to t, before what is deserved changes.
func (f *fairness) changing(t core.Time) {
	f.advance(t)
	if t > f.at {
		f.each(f.root, func(a *account) { f.settle(a, t) })
		for _, q := range f.tenants {
			f.settleUsers(q, t)
		}
		if f.began {
			dt := f.span(f.at, t)
			f.unfair, f.ofUsers, f.time = f.unfair+f.unfairness()*dt, f.ofUsers+f.unfairnessOfUsers()*dt, f.time+dt
		}
		f.at = t
	}
	f.stale = true
}

// each calls do for all accounts below one.
func (f *fairness) each(a *account, do func(*account)) {
	for _, c := range a.children {
		do(c)
		f.each(c, do)
	}
}

// divide divides a rate among the accounts below one, and what an account deserves among its jobs.
func (f *fairness) divide(a *account, rate float64) {
	a.rate = min(rate, float64(a.wanted))
	from := len(f.parts)
	if a.own == a {
		a.level = a.levelOf(a.rate)
		f.divideAmong(a.users, a.rate)
		f.parts = f.parts[:from]
		return
	}
	f.divideAmong(a.children, rate)
	for i := range f.parts[from:] {
		c := f.parts[from+i]
		f.divide(c, c.rate)
	}
	f.parts = f.parts[:from]
}

// divideAmong sets the rates of accounts, and appends those that request something to f.parts.
func (f *fairness) divideAmong(accounts []*account, rate float64) {
	// Those that want least for their weight first: once one wants more than its share of what is
	// left, so do all after it. Those of weight 0 come last, and then count alike.
	from, weights := len(f.parts), 0.0
	for _, c := range accounts {
		if c.wanted > 0 {
			f.parts = append(f.parts, c)
			weights += c.weight
		} else {
			c.idle()
		}
	}
	parts := f.parts[from:]
	slices.SortStableFunc(parts, func(a, b *account) int {
		return cmp.Or(cmp.Compare(float64(a.wanted)/a.weight, float64(b.wanted)/b.weight), cmp.Compare(a.wanted, b.wanted)) // x/0 is infinite
	})
	none := false
	for i, c := range parts {
		if c.weight == 0 && !none {
			none, weights = true, float64(len(parts)-i)
		}
		c.rate = min(float64(c.wanted), rate*c.parts()/weights)
		rate, weights = max(rate-c.rate, 0), weights-c.parts()
	}
}

// parts is the weight of an account among those that divide with it: those of weight 0 do, with no others.
func (a *account) parts() float64 { return max(a.weight, 1) }

// idle records that an account of which nothing is requested deserves nothing, nor do those below it.
func (a *account) idle() {
	if a.rate == 0 {
		return
	}
	a.rate = 0
	for _, c := range a.children {
		c.idle()
	}
	for _, u := range a.users {
		u.rate = 0
	}
}

// levelOf returns the level at which what the jobs deserve adds up to a rate, if none deserves more
// than it requests.
func (a *account) levelOf(rate float64) float64 {
	n := 0
	for i := range a.sizes {
		n += a.sizes[i].jobs
	}
	level := 0.0
	for i := range a.sizes {
		s := &a.sizes[i]
		if s.jobs == 0 {
			continue
		}
		level = rate / float64(n)
		if level <= float64(s.gpu) {
			return level
		}
		rate, n = rate-float64(s.gpu)*float64(s.jobs), n-s.jobs
	}
	return max(level, 0) // all deserve what they request
}

// size returns the size of a job in its queue.
func (a *account) size(gpu core.Milli) *size {
	i, ok := slices.BinarySearchFunc(a.sizes, gpu, func(s size, g core.Milli) int { return cmp.Compare(s.gpu, g) })
	if !ok {
		a.sizes = slices.Insert(a.sizes, i, size{gpu: gpu})
	}
	return &a.sizes[i]
}

// request counts GPUs as requested, at all levels.
func (a *account) request(gpu core.Milli) {
	for ; a != nil; a = a.parent {
		a.wanted += gpu
	}
}

// available records how many GPUs there are.
func (f *fairness) available(t core.Time, gpu core.Milli) {
	if gpu != f.free {
		f.changing(t)
		f.free = gpu
	}
}

// submitted counts a job.
func (f *fairness) submitted(t core.Time, j *Job) {
	gpu := j.job.GPUs()
	if gpu == 0 {
		return
	}
	f.changing(t)
	f.began = true
	j.account = f.tenant(j.queue, j.job.Queue)
	j.account.request(gpu)
	s := j.account.size(gpu)
	s.jobs++
	j.account.jobs++
	j.deserved, j.heldSince = s.each, t
	j.user = j.account.userOf(j.job.User, t)
	j.user.wanted += gpu
	j.user.jobs++
}

// hold counts GPUs as held by a job, at all levels, or with a negative amount no longer.
func (f *fairness) hold(t core.Time, j *Job, gpu core.Milli) {
	if j.account == nil || gpu == 0 {
		return
	}
	f.advance(t)
	j.received += float64(j.holds) * (t - j.heldSince).Seconds()
	j.holds, j.heldSince = j.holds+gpu, t
	for a := j.account; a.parent != nil; a = a.parent {
		f.settle(a, t)
		a.held += gpu
	}
	f.settleUser(j.account, j.user, t)
	j.user.held += gpu
}

// ended counts a job no longer. It is measured unless it was rejected.
func (f *fairness) ended(t core.Time, j *Job, rejected bool) {
	a := j.account
	if a == nil {
		return
	}
	f.changing(t)
	gpu := j.job.GPUs()
	s := a.size(gpu)
	s.jobs--
	a.request(-gpu)
	j.user.wanted -= gpu
	deserved, work := s.each-j.deserved, float64(gpu)*j.job.Duration.Seconds()
	if rejected || deserved <= 0 || work <= 0 {
		return
	}
	rho := deserved / work
	f.rho.Add(rho)
	f.index.Add(j.received / deserved)
	f.owed += deserved
	f.lacked += max(deserved-j.received, 0)
	f.worst = max(f.worst, rho)
	if rho > 1 {
		f.late++
	}
	a.rho, a.ended = a.rho+rho, a.ended+1
	j.user.rho, j.user.ended = j.user.rho+rho, j.user.ended+1
}

// unfairness is the share of the GPU time that queues deserved so far which they did not receive.
func (f *fairness) unfairness() float64 {
	owed, lacked := 0.0, 0.0
	for _, q := range f.tenants {
		if q != nil {
			owed += q.deserved
			lacked += max(q.deserved-q.received, 0)
		}
	}
	return over(lacked, owed)
}

// met is the share of the GPU time that queues deserved so far which they received at the time.
func (f *fairness) met() float64 {
	owed, met := 0.0, 0.0
	for _, q := range f.tenants {
		if q != nil {
			owed += q.deserved
			met += q.met
		}
	}
	return over(met, owed)
}

// summary returns what was measured up to t; nil if no job had GPUs.
func (f *fairness) summary(t core.Time) *Fairness {
	if !f.began {
		return nil
	}
	f.changing(t)
	out := &Fairness{
		Jobs: JobFairness{
			Jobs: f.rho.Count(), Unfairness: over(f.lacked, f.owed), Gini: f.index.gini(), Rho: f.ratio(),
			Late: over(float64(f.late), float64(f.rho.Count())),
		},
	}
	f.each(f.root, func(a *account) {
		if q := f.queue(a); q.Deserved > 0 || q.Received > 0 {
			out.Queues = append(out.Queues, q)
		}
	})
	out.Tenants = tenantsOf(out.Queues)
	out.Tenants.Unfairness, out.Tenants.Mean, out.Tenants.Met = f.unfairness(), over(f.unfair, f.time), f.met()
	f.users(out)
	return out
}

func (f *fairness) ratio() Ratio {
	t := f.rho.times()
	return Ratio{Mean: t.Mean, P50: t.P50, P90: t.P90, P99: t.P99, Max: f.worst}
}

// queue returns what summary.json contains of an account.
func (f *fairness) queue(a *account) QueueFairness {
	const hour = 3600 * float64(core.WholeGPU)
	q := QueueFairness{
		Queue: a.name, Weight: int64(a.weight), Own: a.parent != nil && a.parent.own == a, Jobs: a.jobs,
		Received: a.received / hour, Deserved: a.deserved / hour,
		Index: over(a.received, a.deserved), Met: over(a.met, a.deserved), Rho: over(a.rho, float64(a.ended)),
	}
	if a.parent != nil && a.parent != f.root && !q.Own {
		q.Parent = a.parent.name
	}
	return q
}

// tenantsOf sums up the queues that had jobs of their own and deserved something.
func tenantsOf(queues []QueueFairness) TenantFairness {
	var index []float64
	for _, q := range queues {
		if q.Jobs > 0 && q.Deserved > 0 {
			index = append(index, q.Index)
		}
	}
	x := spreadOf(index)
	x.Tenants = len(index)
	return x
}

// spreadOf says how unlike indexes are.
func spreadOf(index []float64) TenantFairness {
	if len(index) == 0 {
		return TenantFairness{}
	}
	slices.Sort(index)
	x := TenantFairness{Min: index[0], Max: index[len(index)-1], Gini: gini(index)}
	x.MaxMin = over(x.Max, x.Min)
	return x
}

// gini is the Gini coefficient of values, the smallest first: half the mean difference of two of them
// to their mean. It is 0 if all are equal.
func gini(sorted []float64) float64 {
	sum, ranked := 0.0, 0.0
	for i, x := range sorted {
		sum += x
		ranked += float64(i+1) * x
	}
	n := float64(len(sorted))
	return max(over(2*ranked, n*sum)-over(n+1, n), 0)
}

// gini is the Gini coefficient of what was added, with the error of the buckets.
func (h *Histogram) gini() float64 {
	sum, ranked, seen := 0.0, 0.0, float64(h.zero)
	for i, n := range h.buckets {
		if n > 0 {
			x, k := least*math.Exp((float64(i)+0.5)*logGrowth), float64(n)
			sum += k * x
			ranked += x * k * (seen + (k+1)/2)
			seen += k
		}
	}
	n := float64(h.n)
	return max(over(2*ranked, n*sum)-over(n+1, n), 0)
}

// over is a quotient, 0 without a divisor.
func over(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}

// FairRow is what each queue received and deserved up to T, the last event. Tenants, Jobs and Users are the shares of what queues, the jobs
// that ended, and users deserved that they did not receive.
type FairRow struct {
	T                    core.Time
	Tenants, Jobs, Users float64
	Queues               []QueueFairness
}

// Fair returns what queues received and deserved so far. It costs O(queues).
func (c *Collector) Fair() FairRow {
	c.fair.changing(c.now)
	row := FairRow{T: c.now, Tenants: c.fair.unfairness(), Jobs: over(c.fair.lacked, c.fair.owed), Users: c.fair.unfairnessOfUsers()}
	c.fair.each(c.fair.root, func(a *account) {
		if q := c.fair.queue(a); q.Deserved > 0 || q.Received > 0 {
			row.Queues = append(row.Queues, q)
		}
	})
	return row
}
