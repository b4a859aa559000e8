// Package gputime keeps how much GPU time queues and jobs have received, and how much they deserved: the long-term
// GPU-time fairness of ASTRAEA (Ye et al., IEEE TPDS 2022). It is a function of events and time: all of it is
// computed in integers.
//
// GPUs are counted in millionths, each times the exchange rate of its model. At each moment what there is is divided
// among the queues with jobs that request GPUs, by weight, at every level of the tree: those that request least for
// their weight first (then by name), each gets what it requests but at most weight / sum of the weights left of
// what is left, rounded down. Queues of weight 0 divide evenly what the others leave. The own jobs of a queue are one more queue below
// it, of weight 1. What these deserve
// is divided among the queue's jobs in the same way, with equal weights. So no queue and no job ever deserves more
// than it requests.
package gputime

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// Time is nanoseconds, as in the core.
type Time = cluster.Time

// PerGPU is the unit in which GPUs are counted here: each is a million, times the rate of its model in thousandths over 1000.
const PerGPU = 1_000_000

// MostPerJob is the most that a job counts for: a million GPUs.
const MostPerJob = PerGPU << 20

// Amounts of queues are reduced steps times each half-life, to decay / 2^32 of what they were, rounded down.
const (
	steps = 16
	decay = 4112874773 // 2^32 x 2^(-1/16)
)

// Ledger is what queues and jobs have received and deserved.
//
// Invariant: all accounts are settled up to at. Their rates hold from then on, unless stale is set: then they are
// divided again when they are asked for, or time goes on.
type Ledger struct {
	// horizon is how far ahead an index looks: it says what will have been received then for what will have been deserved,
	// if nothing changes. So what starts counts at once, and queues take turns in one pass.
	horizon Time
	step    Time // between two reductions; 0: none
	// Dominant says that [Ledger.Compare] and [Ledger.Index] go by what queues hold now: see dominant.go.
	Dominant bool
	root     *Account
	byName   map[string]*Account
	units    int64 // that there are
	beside   Beside
	at       Time
	began    bool
	stale    bool
	// version counts what changes indexes, but for what accounts hold.
	version uint64
	parts   []*Account // scratch memory
}

// Account is a queue with all queues below it, or the own jobs of a queue.
type Account struct {
	Name     string
	weight   int64 // at least 0
	parent   *Account
	children []*Account
	own      *Account // its own jobs; nil of the account of own jobs
	depth    int
	// wanted is what its live jobs request, held what they have, rate what it deserves.
	wanted, held, rate int64
	beside             Beside
	// placed is what jobs will have when plans in progress are carried out.
	placed             int64
	received, deserved Amount
	sizes              []size // of own jobs, the smallest first
	// index is that of the time when version was knows and held was.
	index     int64
	knows     uint64
	indexHeld int64
}

// size is the jobs of a queue that request as much.
type size struct {
	units int64
	jobs  int
	rate  int64  // what each deserves
	each  Amount // what one deserved that was there since the first came
}

// Job is what a live job has received and deserved.
type Job struct {
	account *Account
	wanted  int64 // what it counts for: at most MostPerJob
	asked   int64 // what it requests
	held    int64
	placed  int64
	// deserved is that up to when it got its size; from is what its size deserved then.
	deserved, from Amount
	// received is that up to since.
	received Amount
	since    Time
}

// New returns a ledger without queues. With a half-life of 0, nothing is forgotten.
func New(horizon, halfLife Time) *Ledger {
	l := &Ledger{horizon: horizon, root: &Account{}, byName: map[string]*Account{}, version: 1}
	if halfLife > 0 {
		l.step = max(halfLife/steps, 1)
	}
	return l
}

// Set adds a queue or changes it. Its parent is known, or empty. The weight is at least 0.
func (l *Ledger) Set(name, parent string, weight int64) {
	above := l.byName[parent]
	if above == nil {
		above = l.root
	}
	l.changed()
	a := l.byName[name]
	if a == nil {
		a = &Account{Name: name}
		a.own = &Account{Name: name, weight: 1, parent: a}
		a.children = []*Account{a.own}
		l.byName[name] = a
	} else {
		a.parent.drop(a)
	}
	a.weight, a.parent = weight, above
	above.children = append(above.children, a)
	above.want(a.wanted)
	above.hold(a.held)
	above.holdBeside(a.beside)
	above.place(a.placed)
	a.sink(above.depth + 1)
}

// Remove forgets a queue without jobs and queues below it.
func (l *Ledger) Remove(name string) {
	if a := l.byName[name]; a != nil {
		l.changed()
		a.parent.drop(a)
		delete(l.byName, name)
	}
}

func (a *Account) drop(child *Account) {
	a.children = slices.DeleteFunc(a.children, func(c *Account) bool { return c == child })
	a.want(-child.wanted)
	a.hold(-child.held)
	a.holdBeside(Beside{-child.beside.CPU, -child.beside.Mem})
	a.place(-child.placed)
}

// place counts units as held when plans in progress are carried out, at all levels.
func (a *Account) place(units int64) {
	for ; a != nil; a = a.parent {
		a.placed += units
	}
}

// Place counts units as held by a job when plans in progress are carried out, or with a negative number no longer.
func (l *Ledger) Place(j *Job, units int64) {
	j.placed += units
	j.account.place(units)
}

// sink sets the depth of an account and of those below it.
func (a *Account) sink(depth int) {
	a.depth = depth
	for _, c := range a.children {
		c.sink(depth + 1)
	}
}

// want counts units as requested, at all levels.
func (a *Account) want(units int64) {
	for ; a != nil; a = a.parent {
		a.wanted += units
	}
}

// hold counts units as held, at all levels.
func (a *Account) hold(units int64) {
	for ; a != nil; a = a.parent {
		a.held += units
	}
}

// SetUnits says how many units there are.
func (l *Ledger) SetUnits(units int64) {
	if units != l.units {
		l.changed()
		l.units = units
	}
}

// changed says that what queues deserve must be divided again.
func (l *Ledger) changed() {
	l.stale = true
	l.version++
}

// Add returns the record of a new job of a queue.
func (l *Ledger) Add(queue string) *Job { return &Job{account: l.byName[queue].own, since: l.at} }

// Request counts units as requested by a job, or with a negative number no longer. The job's own part of what its
// queue deserves goes on from what it was.
func (l *Ledger) Request(j *Job, units int64) {
	j.asked += units
	wanted := min(j.asked, MostPerJob)
	if wanted == j.wanted {
		return
	}
	l.changed()
	j.deserved, j.from = j.Deserved(), Amount{}
	a := j.account
	if j.wanted > 0 {
		i, _ := a.sizeOf(j.wanted)
		if a.sizes[i].jobs--; a.sizes[i].jobs == 0 {
			a.sizes = slices.Delete(a.sizes, i, i+1)
		}
	}
	if wanted > 0 {
		i, ok := a.sizeOf(wanted)
		if !ok {
			a.sizes = slices.Insert(a.sizes, i, size{units: wanted})
		}
		a.sizes[i].jobs++
		j.from = a.sizes[i].each
	}
	a.want(wanted - j.wanted)
	j.wanted = wanted
}

// Hold counts units as held by a job from now on, or with a negative number no longer.
func (l *Ledger) Hold(j *Job, units int64) {
	j.received = j.Received(l)
	j.since = l.at
	j.held += units
	j.account.hold(units)
}

func (a *Account) sizeOf(units int64) (int, bool) {
	return slices.BinarySearchFunc(a.sizes, units, func(s size, units int64) int { return cmp.Compare(s.units, units) })
}

// Served reports whether a job has received anything, or has GPUs.
func (j *Job) Served(l *Ledger) bool { return j.held > 0 || j.Received(l) != Amount{} }

// Received returns what a job has received.
func (j *Job) Received(l *Ledger) Amount { return j.received.plus(j.held, max(0, l.at-j.since)) }

// Deserved returns what a job has deserved.
func (j *Job) Deserved() Amount {
	if j.wanted == 0 {
		return j.deserved
	}
	i, _ := j.account.sizeOf(j.wanted)
	return j.deserved.add(j.account.sizes[i].each.minus(j.from))
}

// Advance lets time go on to now: everything since the last call is counted as it was after that.
func (l *Ledger) Advance(now Time) {
	if !l.began {
		l.began, l.at = true, now
	}
	if now <= l.at {
		return
	}
	l.divide()
	for l.at < now {
		to := now
		if l.step > 0 {
			to = min(to, (floor(l.at, l.step)+1)*l.step)
		}
		l.root.settle(to - l.at)
		if l.at = to; l.step > 0 && to%l.step == 0 {
			l.root.reduce()
		}
	}
	l.version++
}

// floor returns t / step, rounded down.
func floor(t, step Time) Time {
	if t < 0 {
		return -((-t + step - 1) / step)
	}
	return t / step
}

// settle adds what was received and deserved for some time.
func (a *Account) settle(time Time) {
	if a.wanted == 0 && a.held == 0 {
		return
	}
	a.received, a.deserved = a.received.plus(a.held, time), a.deserved.plus(a.rate, time)
	for i := range a.sizes {
		a.sizes[i].each = a.sizes[i].each.plus(a.sizes[i].rate, time)
	}
	for _, c := range a.children {
		c.settle(time)
	}
}

// reduce forgets a part of what queues received and deserved. Jobs count over all their time.
func (a *Account) reduce() {
	a.received, a.deserved = a.received.decayed(), a.deserved.decayed()
	for _, c := range a.children {
		c.reduce()
	}
}

// divide divides what there is again, if anything has changed. It costs O(queues x log queues + sizes of jobs).
func (l *Ledger) divide() {
	if l.stale {
		l.stale = false
		l.root.rate = min(l.units, l.root.wanted)
		l.divideBelow(l.root)
	}
}

// divideBelow divides what an account deserves among those below it, or its jobs.
func (l *Ledger) divideBelow(a *Account) {
	if len(a.children) == 0 {
		a.divideAmongJobs()
		return
	}
	// Those that want least for their weight first: once one wants more than its part of what is left, so do all
	// after it. Those of weight 0 come last, and then count alike.
	from, weights := len(l.parts), int64(0)
	for _, c := range a.children {
		if c.wanted > 0 {
			l.parts = append(l.parts, c)
			weights += c.weight
		} else {
			c.idle()
		}
	}
	parts := l.parts[from:]
	slices.SortFunc(parts, func(a, b *Account) int {
		return cmp.Or(cluster.LastIf(a.weight == 0, b.weight == 0), cluster.CompareProducts(a.wanted, b.parts(), b.wanted, a.parts()), cmp.Compare(a.Name, b.Name), cmp.Compare(a.depthOfOwn(), b.depthOfOwn()))
	})
	left := a.rate
	for i, c := range parts {
		if c.weight == 0 && weights == 0 {
			weights = int64(len(parts) - i)
		}
		c.rate = min(c.wanted, cluster.Part(left, c.parts(), weights))
		left, weights = left-c.rate, weights-c.parts()
	}
	for i := range parts {
		l.divideBelow(l.parts[from+i])
	}
	l.parts = l.parts[:from]
}

// parts is the weight of an account among those that divide with it: those of weight 0 do, with no others.
func (a *Account) parts() int64 { return max(a.weight, 1) }

// idle says that an account below which nothing is requested deserves nothing.
func (a *Account) idle() {
	if a.rate > 0 {
		a.rate = 0
		for _, c := range a.children {
			c.idle()
		}
	}
}

// depthOfOwn is 0 of own jobs, 1 of queues.
func (a *Account) depthOfOwn() int {
	if a.own == nil {
		return 0
	}
	return 1
}

// divideAmongJobs divides what own jobs deserve among them, in equal parts, the smallest requests first.
func (a *Account) divideAmongJobs() {
	n, left := int64(0), a.rate
	for i := range a.sizes {
		n += int64(a.sizes[i].jobs)
	}
	for i := range a.sizes {
		s := &a.sizes[i]
		s.rate = min(s.units, left/n)
		left, n = left-s.rate*int64(s.jobs), n-int64(s.jobs)
	}
}
