package core

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// runs is what runs: the jobs with running pods, and sums over their pods by GPU model.
//
// Invariant: every running pod is counted in the load of its node's model, and listed there
// if its job may be evicted. Starts and stops say so by changes.podStarted and podStopped;
// what changes whether a job may be evicted calls offer.
type runs struct {
	state *cluster.State
	jobs  []*job // those with running pods, in no order; job.run is the place of each
	// disruptionProtected counts the live jobs that are.
	disruptionProtected int
	loads               []load // by model number
	models              map[string]int
	names               []string // by model number
	ofPool              []int    // the model number of each pool of the state, as far as known
}

// load sums up what runs on the nodes of one GPU model. It shows whether an eviction may
// help a job at all, without reading the running pods.
type load struct {
	// evictable are the pods that may be evicted, the lowest precedence first. bypassed is the
	// GPU of those that were backfilled.
	evictable []ranked
	bypassed  Milli
	pods      int
	// changes counts starts and stops, and evicted pods gone in whose place no pod starts.
	changes uint64
}

// ranked is the evictable pods of all jobs of one precedence.
type ranked struct {
	precedence
	gpu  Milli
	pods []*pod // in no order
	next int    // where the next search among them begins
}

// list puts a pod that starts (by 1) on the list, or takes one that stops (by
// -1) off it.
func (r *ranked) list(p *pod, by int) {
	if by > 0 {
		p.listed = int32(len(r.pods))
		r.pods = append(r.pods, p)
		return
	}
	n := len(r.pods) - 1
	last := r.pods[n]
	r.pods[p.listed], last.listed = last, p.listed
	r.pods[n] = nil
	r.pods = r.pods[:n]
}

// changed returns how many changes all loads have counted.
func (r *runs) changed() uint64 {
	changes := uint64(0)
	for m := range r.loads {
		changes += r.loads[m].changes
	}
	return changes
}

// poolModels returns the model numbers of all pools.
func (r *runs) poolModels() []int {
	if len(r.ofPool) < len(r.state.Pools()) {
		r.learnPools()
	}
	return r.ofPool
}

// learnPools notes the model numbers of pools that are new.
func (r *runs) learnPools() {
	for k := len(r.ofPool); k < len(r.state.Pools()); k++ {
		r.ofPool = append(r.ofPool, r.modelNumber(r.state.Pools()[k].Model))
	}
}

func (r *runs) modelNumber(model string) int {
	n, ok := r.models[model]
	if !ok {
		n = len(r.loads)
		r.models[model] = n
		r.loads = append(r.loads, load{})
		r.names = append(r.names, model)
	}
	return n
}

// modelOf returns the number of the model of the node of a pod.
func (r *runs) modelOf(p *pod) int { return r.poolModels()[r.state.Node(p.alloc.Node).PoolNumber()] }

// loadOn returns the load of the GPU model of a node.
func (r *runs) loadOn(id cluster.NodeID) *load {
	pool := r.state.Node(id).PoolNumber()
	if pool >= len(r.ofPool) {
		r.learnPools()
	}
	return &r.loads[r.ofPool[pool]]
}

// add lists a job of which a pod runs, if it is not listed yet.
func (r *runs) add(j *job) {
	if j.run < 0 {
		j.run = int32(len(r.jobs))
		r.jobs = append(r.jobs, j)
	}
}

// remove takes a job off the list when none of its pods runs.
func (r *runs) remove(j *job) {
	last := r.jobs[len(r.jobs)-1]
	r.jobs[j.run], last.run = last, j.run
	r.jobs = r.jobs[:len(r.jobs)-1]
	j.run = -1
}

// countRunning counts a pod that starts (by 1) or stops (by -1) in all sums over running pods.
func (e *Engine) countRunning(j *job, p *pod, by int) {
	e.runs.count(j, p, by)
	if e.expected.slot > 0 {
		e.expected.count(e.runs.modelOf(p), j.Class, Milli(by)*j.gpu(p))
	}
	if e.wanted.on {
		e.wanted.runs(j, p, e.state.Pool(p.alloc.Node).Model, by)
	}
}

// count adds a pod that starts (by 1) or stops (by -1) on a node.
func (r *runs) count(j *job, p *pod, by int) {
	l := r.loadOn(p.alloc.Node)
	l.pods += by
	l.changes++
	if j.evictable() {
		l.offer(j, p, by)
	}
}

// offer lists the running pods of a job that may be evicted from now on.
func (r *runs) offer(j *job) {
	for i := range j.pods {
		if p := &j.pods[i]; p.state == podRunning {
			l := r.loadOn(p.alloc.Node)
			l.offer(j, p, 1)
			l.changes++
		}
	}
}

// moved follows the pods of a job whose memory has moved: what may be evicted is listed by
// its place in memory.
func (r *runs) moved(j *job) {
	if !j.evictable() {
		return
	}
	for i := range j.pods {
		if p := &j.pods[i]; p.state == podRunning {
			l := r.loadOn(p.alloc.Node)
			k, _ := l.find(j.key.precedence)
			l.evictable[k].pods[p.listed] = p
		}
	}
}

// setBackfilled says whether a job started past an earlier one.
func (r *runs) setBackfilled(j *job, backfilled bool) {
	if j.backfilled == backfilled {
		return
	}
	j.backfilled = backfilled
	if !j.evictable() {
		return
	}
	by := Milli(-1)
	if backfilled {
		by = 1
	}
	for i := range j.pods {
		if p := &j.pods[i]; p.state == podRunning {
			r.loadOn(p.alloc.Node).bypassed += by * j.weight(p)
		}
	}
}

// offer lists a pod as one that may be evicted (by 1), or no longer (by -1).
func (l *load) offer(j *job, p *pod, by int) {
	gpu := Milli(by) * j.weight(p)
	if j.backfilled {
		l.bypassed += gpu
	}
	i, ok := l.find(j.key.precedence)
	if !ok {
		l.evictable = slices.Insert(l.evictable, i, ranked{precedence: j.key.precedence})
	}
	l.evictable[i].gpu += gpu
	l.evictable[i].list(p, by)
}

// find returns where pods of a precedence are listed, or would be.
func (l *load) find(of precedence) (int, bool) {
	from, to := 0, len(l.evictable)
	for from < to {
		switch i := (from + to) / 2; {
		case l.evictable[i].precedence == of:
			return i, true
		case of.compare(l.evictable[i].precedence) < 0:
			from = i + 1
		default:
			to = i
		}
	}
	return from, false
}

// weaker returns how much evictable GPU jobs of lower precedence than k hold, and how much
// all jobs do.
func (l *load) weaker(k *key) (weaker, all Milli) {
	for i := range l.evictable {
		all += l.evictable[i].gpu
		if k.compare(l.evictable[i].precedence) < 0 {
			weaker += l.evictable[i].gpu
		}
	}
	return weaker, all
}

// freeFor returns how much GPU is free on nodes that the class may use.
func (pl *planner) freeFor(c *class) Milli { return pl.freeIn(c.pools) }

// freeIn returns how much GPU is free in pools, a bit each.
func (pl *planner) freeIn(pools uint64) Milli {
	free := Milli(0)
	for i, p := range pl.state.Pools() {
		if pools>>(uint(i)%64)&1 == 1 {
			free += p.FreeMilli()
		}
	}
	return free
}

// mayEvict reports whether there may be enough to evict for the job: by its precedence, by
// its quota and, for the first job (head), among what was backfilled. False is certain, true
// is not.
func (pl *planner) mayEvict(j candidate, head bool) bool {
	p := &pl.policy.Preempt
	reclaim := p.Reclaim && j.queue.Limited()
	terms := pl.affinities.constrain(j.job)
	have, found := Milli(0), false
	for m := range pl.runs.loads {
		own := slices.Contains(j.class.models, m)
		// On the nodes of other models, an eviction may return quota over all models, or remove
		// pods that keep the job off a whole leaf group.
		if !own && !j.queue.Limited() && !terms {
			continue
		}
		l := &pl.runs.loads[m]
		weaker, takes := l.weaker(&j.key)
		if !reclaim {
			takes = 0
			if p.Priority != NoPriority {
				takes = weaker
			}
			if head && p.Backfill {
				takes += l.bypassed // perhaps counted twice: true is not certain
			}
		}
		if own {
			have += takes
		}
		found = found || takes > 0
	}
	return found && have+pl.freeFor(j.class) >= j.needed()
}

// attempt records for which job a search for a plan failed, and in which state of the cluster.
type attempt struct {
	of    key
	world uint64 // see changes.world
	// changes and pods are sums over the loads of the models that mattered. The next search is worth while after
	// enough changes.
	changes, enough uint64
	pods            int
	// gains counts changes of what queues are owed that may let it evict more; owed says that its queue
	// was owed enough for it.
	gains uint64
	owed  bool
	at    Time
	// retry is when more may be evicted than at that time, Never if waiting does not help.
	retry Time
	// settled is when the first victim will have run for its minimum time, Never if none is too
	// young.
	settled Time
	vain    int // how many searches before it failed in the same world
}

// After a failed search, the next one is made when enough pods have started or stopped, or
// after a pause. Enough is a share of the pods that run, and some more for every class that
// waits, so that a change costs a fraction of a search, however many classes wait. In a small
// cluster one change is enough. The failed search determines both: which classes passes try
// afterwards, and how often, changes neither.
const (
	attemptShare = 64
	attemptClass = 8
	attemptSmall = 256 // pods
	// attemptPause is for most jobs, headPause for the first ones, whose searches look at all
	// nodes. Both double with every failed search, at most attemptDoubles times.
	attemptPause   = 300 * Second
	headPause      = 1800 * Second
	attemptDoubles = 4
)

// pause returns how long to wait before searching again.
func (a *attempt) pause(kind attemptKind) Time {
	switch {
	case a.pods <= attemptSmall:
		return 0
	case kind == forHead:
		return headPause << min(a.vain, attemptDoubles)
	}
	return attemptPause << min(a.vain, attemptDoubles)
}

// attemptKind is what a search was for.
type attemptKind uint8

const (
	forAny    attemptKind = iota // evictions
	forHead                      // evictions for a job that is tried as the first of all: it may evict more
	forRoom                      // moves and restarts
	forPieces                    // evictions and restarts together
	attemptKinds
)

func evictionsFor(head bool) attemptKind {
	if head {
		return forHead
	}
	return forAny
}

// attempt returns the record of the class's last failed search of a kind.
func (c *class) attempt(k attemptKind) **attempt { return &c.attempts[k] }

// holdsFor reports whether what an attempt found holds for an alike job, too: one of the same
// precedence that comes after it may evict no more. One before it may be within quota where
// the later one is not, and, as the first job, may evict more of those that were backfilled.
func (a *attempt) holdsFor(j *job) bool {
	return a.of.precedence == j.key.precedence && !j.key.before(&a.of)
}

// again reports whether a search for a plan is worth while after the last one for the job
// failed, and returns what it will be made of.
func (pl *planner) again(j *job, now Time, kind attemptKind) (attempt, bool) {
	// 1. What the search would be made of: all that started or stopped on models whose
	// pods may make room or give back quota.
	a := attempt{of: j.key, world: pl.changes.world, at: now, enough: 1}
	all := pl.ledger.Limited() || pl.affinities.constrain(j)
	for m := range pl.runs.loads {
		if all || slices.Contains(j.class.models, m) {
			a.changes += pl.runs.loads[m].changes
			a.pods += pl.runs.loads[m].pods
		}
	}
	if a.pods > attemptSmall {
		a.enough = uint64(a.pods/attemptShare + attemptClass*pl.waiting.count)
	}

	if pl.shares.count() {
		pl.shares.divide()
		a.gains = pl.shares.gains(j.queue)
		pl.units.compile(j.class)
		if p, ok := j.class.quotaNeed(); ok {
			a.owed = p.gpu <= j.queue.ClaimRoom(p.model, j.queue)
		} else {
			a.owed = !pl.units.prepare(j).lacks(func(m string) Milli { return j.queue.ClaimRoom(m, j.queue) })
		}
	}

	// 2. The first search of its kind, or in another world.
	last := *j.class.attempt(kind)
	if last == nil || last.world != a.world || !last.holdsFor(j) {
		return a, true
	}
	if a.vain = last.vain + 1; now >= last.retry {
		return a, true
	}

	// 3. In the same world: after enough changes, or a pause. Without a limit on changes, each
	// start would cost a search for every class that waits. Without the pause, a job would wait
	// for ever if the one stop that helps it is followed by too few others. A job whose queue is owed enough
	// for it at last need not wait.
	changed := a.changes - last.changes + a.gains - last.gains
	switch {
	case changed == 0:
		if last.retry != Never {
			// The last wake-up may have been for another job's earlier time: request it again.
			pl.wakes.retryAt(now, last.retry)
		}
		return a, false
	case changed >= last.enough || now >= last.at+last.pause(kind) || a.owed && !last.owed:
		return a, true
	}
	pl.wakes.retryAt(now, last.at+last.pause(kind))
	return a, false
}
