package core

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/quota"
)

// coverage says which running pods their queues' nominal quotas cover. It is
// brought up to date when a search for evictions asks for it, at the cost of
// what changed since: quotas are dealt out anew only when something that was
// covered went, or something came before others.
type coverage struct {
	*Engine
	// units are in the order of their jobs; those that are gone stay until
	// quotas are dealt out anew.
	units []covered
	// touched are jobs whose pods changed since.
	touched []*job
	// stale says that all is to be made anew: queues or the order changed.
	stale bool
	// dealt is what the covered units take, larger who claims more than there is, by
	// the number of the account.
	dealt    []Milli
	larger   []larger
	accounts []account
	number   map[account]int32

	gone  int  // units that are
	clock Time // when pods came last
	// lost counts running pods that came to be beyond quota, seen those of which the
	// waiting jobs know: see Engine.pushedOut.
	lost, seen int

	// Scratch memory.
	fresh, coming, merged []covered
	before                []Milli
	claims                []claim
}

// covered is what is weighed as one while quotas are dealt out: the least pods
// of a running gang, or one other pod.
type covered struct {
	job          *job
	pod          int32 // -1 for the least pods of a gang
	within, gone bool
	// came is when it got its place: see pod.came.
	came   Time
	claims []claim
}

// larger is who claims more of an account than its whole nominal quota. Such units are
// beyond quota, and may be evicted; yet a queue that has one of them has its quota. So
// those that come after it do not get that quota too.
type larger struct {
	// since is when the first of each standing came.
	since []cameFirst
	// job and pod are the first in the order that is beyond quota though nothing larger
	// came before it: it holds what others leave.
	job *job
	pod int32
}

// cameFirst is when the first unit of a standing came.
type cameFirst struct {
	standing
	came Time
}

// account names a queue's nominal quota for a model or for all.
type account struct {
	owner *quota.Node
	model string
}

// claim is what a unit asks of an account, by its number; of none (-1) when its
// queue may not even use the model.
type claim struct {
	account int32
	gpu     Milli
}

// touch notes that pods of a job came to a place or left it.
func (c *coverage) touch(j *job) {
	if j.touched || c.stale || !c.ledger.Limited() {
		return
	}
	if len(c.touched) > len(c.runs.jobs)+1000 {
		c.stale = true // nobody has asked for long
		return
	}
	j.touched = true
	c.touched = append(c.touched, j)
}

// cover marks the running pods that their queues' nominal quotas cover. Jobs
// are served in their order; one that does not fit is passed over. The pods that
// a gang has beyond its least come after those and are covered one by one: else
// one of them could push its whole gang beyond quota by starting. Where no queue
// has a quota, nothing is marked and all are covered.
func (c *coverage) cover() {
	if !c.ledger.Limited() {
		return
	}
	if c.stale {
		c.coverAll()
		return
	}
	slices.SortFunc(c.touched, byKey)
	anew := false
	c.coming = c.coming[:0]
	for _, j := range c.touched {
		j.touched = false
		anew = c.updateUnits(j) || anew
	}
	c.touched = c.touched[:0]
	n := len(c.units)
	// Who claims more than a whole quota takes it from those before it in the order too, if
	// they came together.
	anew = anew || slices.ContainsFunc(c.coming, func(u covered) bool { return slices.ContainsFunc(u.claims, c.exceeds) })
	if !anew && c.gone <= n/2 && (n == 0 || len(c.coming) == 0 || compareCovered(&c.units[n-1], &c.coming[0]) < 0) {
		for i := range c.coming {
			c.units = append(c.units, c.coming[i])
			c.deal(&c.units[n+i])
		}
		return
	}
	c.merge()
	c.dealOut()
}

// merge drops what is gone from the units and sorts in what came.
func (c *coverage) merge() {
	out, coming := c.merged[:0], c.coming
	for i := range c.units {
		u := &c.units[i]
		if u.gone {
			continue
		}
		for len(coming) > 0 && compareCovered(&coming[0], u) < 0 {
			out, coming = append(out, coming[0]), coming[1:]
		}
		out = append(out, *u)
	}
	c.units, c.merged, c.gone = append(out, coming...), c.units, 0
}

// entitled is when pods came that evicted others by right of quota that covers them.
const entitled Time = -MaxTime - 1

// starting returns when pods come that start now. All that start at one time come
// together, unless a plan is decided between.
func (c *coverage) starting(now Time) Time {
	c.clock = max(now, c.clock)
	return c.clock
}

// planning returns when the pods of a plan come: after all that came before, and before
// all that come later.
func (c *coverage) planning(now Time) Time {
	at := c.starting(now) + 1
	c.clock = at + 1
	return at
}

// coverAll makes the coverage anew.
func (c *coverage) coverAll() {
	for _, j := range c.touched {
		j.touched = false
	}
	c.stale, c.gone, c.touched, c.units = false, 0, c.touched[:0], c.units[:0]
	c.accounts, c.number = c.accounts[:0], map[account]int32{}
	for _, j := range c.runs.jobs {
		c.units = c.unitsOf(j, c.units)
	}
	for _, n := range c.nominations.filling {
		if n.job.run < 0 {
			c.units = c.unitsOf(n.job, c.units)
		}
	}
	slices.SortFunc(c.units, func(a, b covered) int { return compareCovered(&a, &b) })
	c.dealOut()
}

// updateUnits compares a job's units with those that it had. What went is marked,
// what came goes to c.coming. It reports whether quotas must be dealt out anew
// for what went.
func (c *coverage) updateUnits(j *job) (anew bool) {
	at, _ := slices.BinarySearchFunc(c.units, j, func(u covered, j *job) int { return byKey(u.job, j) })
	c.fresh = c.unitsOf(j, c.fresh[:0])
	fresh := c.fresh
	for ; at < len(c.units) && c.units[at].job == j; at++ {
		u := &c.units[at]
		if u.gone {
			continue
		}
		i := slices.IndexFunc(fresh, func(f covered) bool { return f.pod >= u.pod })
		if i < 0 {
			i = len(fresh)
		}
		c.coming = append(c.coming, fresh[:i]...)
		if fresh = fresh[i:]; len(fresh) > 0 && fresh[0].pod == u.pod {
			if fresh[0].came == u.came && slices.Equal(fresh[0].claims, u.claims) {
				c.mark(u) // pods may have come to be counted in it or not
				fresh = fresh[1:]
				continue
			}
			c.coming = append(c.coming, fresh[0])
			fresh, anew = fresh[1:], true
		}
		u.gone = true
		c.gone++
		anew = anew || c.dealtAlong(u)
	}
	c.coming = append(c.coming, fresh...)
	return anew
}

// dealOut deals the nominal quotas out anew.
func (c *coverage) dealOut() {
	clear(c.dealt)
	for i := range c.larger {
		c.larger[i] = larger{since: c.larger[i].since[:0]}
	}
	for i := range c.units {
		c.noteLarger(&c.units[i])
	}
	for i := range c.units {
		c.deal(&c.units[i])
	}
	c.planner.dropSearches()
}

// deal covers a unit if the quotas have room for it, after those before it, and no unit
// larger than a quota came before it that is as strong.
//
// Why the larger one does not take its quota at its place in the order, whenever it
// starts: evictions would not end. Queue a owns 4 GPUs, h of 5 comes first in the order,
// x of 4 next. The owner of the rest evicts both. Without h, x is within quota and evicts
// the owner by priority; h starts where the owner ran and takes the quota from x; the
// owner evicts both.
func (c *coverage) deal(u *covered) {
	blocked := c.blocked(u)
	u.within = !blocked && c.bear(c.dealt, u.claims)
	if u.pod >= 0 && u.job.Gang && !u.job.leastWithin() {
		u.within = false
	}
	for _, k := range u.claims {
		switch {
		case u.within:
			c.dealt[k.account] += k.gpu
		case !blocked && k.account >= 0 && c.larger[k.account].job == nil:
			c.larger[k.account].job, c.larger[k.account].pod = u.job, u.pod
		}
	}
	c.mark(u)
}

// blocked reports whether a unit that claims more than a whole quota of the unit's came
// first.
func (c *coverage) blocked(u *covered) bool {
	if u.came == entitled || u.job.fixed() {
		return false
	}
	for _, k := range u.claims {
		if k.account < 0 || c.exceeds(k) {
			continue
		}
		for i := range c.larger[k.account].since {
			if f := &c.larger[k.account].since[i]; f.came <= u.came && u.job.key.rank(f.standing) >= 0 {
				return true
			}
		}
	}
	return false
}

// noteLarger notes when the unit came, if it claims more than a whole quota.
func (c *coverage) noteLarger(u *covered) {
	if u.pod >= 0 && u.job.Gang {
		return
	}
	for _, k := range u.claims {
		if !c.exceeds(k) {
			continue
		}
		l, at := &c.larger[k.account], u.job.key.standing
		i := slices.IndexFunc(l.since, func(f cameFirst) bool { return f.standing == at })
		if i < 0 {
			l.since = append(l.since, cameFirst{at, u.came})
		} else {
			l.since[i].came = min(l.since[i].came, u.came)
		}
	}
}

// exceeds reports whether a claim is for more than the account's nominal quota, if it
// has any.
func (c *coverage) exceeds(k claim) bool {
	if k.account < 0 {
		return false
	}
	a := &c.accounts[k.account]
	nominal, _ := a.owner.Nominal(a.model)
	return nominal > 0 && k.gpu > nominal
}

// dealtAlong reports whether others may have more or less quota when the unit goes.
func (c *coverage) dealtAlong(u *covered) bool {
	return u.within || slices.ContainsFunc(u.claims, func(k claim) bool {
		return c.exceeds(k) || k.account >= 0 && c.larger[k.account].job == u.job && c.larger[k.account].pod == u.pod
	})
}

// holdsPart reports whether a pod, or the least pods of a gang (-1), claim more than their
// queue's quota and hold what others leave of it.
func (c *coverage) holdsPart(j *job, pod int) bool {
	at, _ := slices.BinarySearchFunc(c.units, j, func(u covered, j *job) int { return byKey(u.job, j) })
	for ; at < len(c.units) && c.units[at].job == j; at++ {
		if u := &c.units[at]; int(u.pod) == pod && !u.gone {
			return slices.ContainsFunc(u.claims, func(k claim) bool {
				return c.exceeds(k) && c.larger[k.account].job == j && int(c.larger[k.account].pod) == pod && c.left(k.account) > 0
			})
		}
	}
	return false
}

// left returns what is not dealt of an account's nominal quota.
func (c *coverage) left(n int32) Milli {
	a := &c.accounts[n]
	nominal, _ := a.owner.Nominal(a.model)
	return nominal - c.dealt[n]
}

// mark tells the pods of a unit whether they are covered.
func (c *coverage) mark(u *covered) {
	set := func(p *pod) {
		if p.within && !u.within && p.state == podRunning {
			c.lost++
		}
		p.within = u.within
	}
	if u.pod >= 0 {
		set(&u.job.pods[u.pod])
		return
	}
	for i := range u.job.pods {
		if p := &u.job.pods[i]; !p.extra {
			set(p)
		}
	}
}

// placed reports whether the pod has a place that counts against its quota.
func (p *pod) placed() bool {
	return p.state == podRunning || p.state == podHeld || p.state == podPlanned
}

// unitsOf appends the units of a job, in order.
func (c *coverage) unitsOf(j *job, units []covered) []covered {
	if !j.Gang {
		for i := range j.pods {
			if j.pods[i].placed() {
				units = append(units, covered{job: j, pod: int32(i), came: j.pods[i].came, claims: c.claimsOf(j, i)})
			}
		}
		return units
	}
	if !j.placed() {
		return units
	}
	at := len(units)
	units = append(units, covered{job: j, pod: -1, came: Never})
	j.markExtra()
	for i := range j.pods {
		p := &j.pods[i]
		if p.placed() {
			units[at].came = min(units[at].came, p.came)
		}
		if p.placed() && p.extra {
			units = append(units, covered{job: j, pod: int32(i), came: j.pods[i].came, claims: c.claimsOf(j, i)})
		}
	}
	units[at].claims = c.claimsOf(j, -1)
	return units
}

// markExtra notes which pods of a gang that have places it would stand without: of
// each task those beyond its least, the last ones and those that do not run yet.
func (j *job) markExtra() {
	for t := range j.Tasks {
		lo, hi := j.span(t)
		pods, least := j.pods[lo:hi], j.Tasks[t].Least()
		for i := range pods {
			if pods[i].state == podDone && int(pods[i].task) == t {
				least--
			}
		}
		for _, running := range [2]bool{true, false} {
			for i := range pods {
				if p := &pods[i]; p.placed() && (p.state == podRunning) == running && int(p.task) == t {
					p.extra = least <= 0
					least--
				}
			}
		}
	}
}

// placed reports whether a pod of the job has a place.
func (j *job) placed() bool { return j.count[podRunning]+j.count[podHeld]+j.count[podPlanned] > 0 }

// leastWithin reports whether the least pods of a running gang are covered.
func (j *job) leastWithin() bool {
	for i := range j.pods {
		if p := &j.pods[i]; p.placed() && !p.extra {
			return p.within
		}
	}
	return true
}

func compareCovered(a, b *covered) int { return cmp.Or(byKey(a.job, b.job), cmp.Compare(a.pod, b.pod)) }

// byKey compares jobs by the order in which quota covers them: those that must not be
// evicted first, for what is beyond quota must be able to leave, else by their place
// in the order.
func byKey(a, b *job) int {
	switch {
	case a == b:
		return 0
	case a.fixed() != b.fixed():
		return lastIf(b.fixed(), a.fixed())
	case a.key.before(&b.key):
		return -1
	}
	return 1
}

// bear reports whether the accounts can bear claims beside what is dealt.
func (c *coverage) bear(dealt []Milli, claims []claim) bool {
	for _, k := range claims {
		if k.account < 0 {
			return false
		}
		a := &c.accounts[k.account]
		if nominal, _ := a.owner.Nominal(a.model); dealt[k.account]+k.gpu > nominal {
			return false
		}
	}
	return true
}

// claimsOf returns what a pod, or the least pods of a gang (-1), ask of the
// nominal quotas. The slice is the caller's.
func (c *coverage) claimsOf(j *job, pod int) []claim {
	if !j.queue.Limited() {
		return nil
	}
	c.claims = c.claims[:0]
	for i := range j.pods {
		if p := &j.pods[i]; i == pod || pod < 0 && p.placed() && !p.extra {
			c.claim(j.queue, c.state.Pool(p.alloc.Node).Model, j.gpu(p))
		}
		if i == pod {
			break
		}
	}
	return slices.Clone(c.claims)
}

// claim adds a demand for a model to c.claims.
func (c *coverage) claim(q *quota.Node, model string, gpu Milli) {
	if gpu == 0 {
		return
	}
	add := func(n int32) {
		if i := slices.IndexFunc(c.claims, func(k claim) bool { return k.account == n }); i >= 0 {
			c.claims[i].gpu += gpu
			return
		}
		c.claims = append(c.claims, claim{n, gpu})
	}
	accounts := q.Governing(model)
	for _, m := range accounts {
		add(c.numberOf(account{q.Owner(m), m}))
	}
	if len(accounts) == 0 {
		add(-1)
	}
}

// numberOf returns the number of an account, -1 when no queue owns it.
func (c *coverage) numberOf(a account) int32 {
	if a.owner == nil {
		return -1
	}
	n, ok := c.number[a]
	if !ok {
		n = int32(len(c.accounts))
		c.number[a] = n
		c.accounts = append(c.accounts, a)
		if len(c.dealt) < len(c.accounts) {
			c.dealt, c.larger = append(c.dealt, 0), append(c.larger, larger{})
		}
		c.dealt[n], c.larger[n] = 0, larger{}
	}
	return n
}

// wouldBeWithin reports whether nominal quota would cover the waiting job (one
// pod of it when it starts pod by pod), on one of the models it accepts.
func (c *coverage) wouldBeWithin(j candidate) bool {
	if !j.queue.Limited() {
		return true
	}
	for _, model := range j.class.accepts() {
		c.claims = c.claims[:0]
		for t := range j.unit.Tasks {
			task := &j.unit.Tasks[t]
			n := len(task.Pods)
			if !j.unit.Whole {
				n = min(n, 1)
			}
			m := model
			if own := task.Models(); !slices.Contains(own, m) && len(own) > 0 {
				m = own[0]
			}
			c.claim(j.queue, m, Milli(n)*task.GPU())
		}
		if c.bearsBefore(j.job) {
			return true
		}
	}
	return false
}

// wouldCover reports whether nominal quota would cover the waiting job in these
// places.
func (c *coverage) wouldCover(j *job, placed []place.Placed) bool {
	if !j.queue.Limited() {
		return true
	}
	c.claims = c.claims[:0]
	for i := range placed {
		a := &placed[i].Alloc
		c.claim(j.queue, c.state.Pool(a.Node).Model, a.GPU())
	}
	return c.bearsBefore(j)
}

// bearsBefore reports whether the accounts bear c.claims of a job that comes in
// the order between the running ones: those before it, and what runs of it
// already, are served first.
func (c *coverage) bearsBefore(j *job) bool {
	if j.Gang && !j.leastWithin() {
		return false
	}
	at, _ := slices.BinarySearchFunc(c.units, j, func(u covered, j *job) int { return byKey(u.job, j) })
	for at < len(c.units) && c.units[at].job == j {
		at++
	}
	// What those before it take is all without those after it: add up the fewer.
	first, last, by := at, len(c.units), Milli(-1)
	c.before = append(c.before[:0], c.dealt...)
	if at < len(c.units)-at {
		first, last, by = 0, at, 1
		clear(c.before)
	}
	for i := first; i < last; i++ {
		if u := &c.units[i]; u.within && !u.gone {
			for _, k := range u.claims {
				c.before[k.account] += by * k.gpu
			}
		}
	}
	return c.bear(c.before, c.claims)
}
