package core

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// load sums up what runs on the nodes of one GPU model. From it follows whether
// evicting may help a job at all, before anything that runs is looked at.
type load struct {
	// evictable are the pods that may be evicted, the weakest standing first;
	// bypassed is the GPU of those of them that were backfilled.
	evictable []ranked
	bypassed  Milli
	pods      int
	// changes counts starts and stops, and pods gone that left for nobody.
	changes uint64
}

// ranked is the evictable pods of jobs of one standing.
type ranked struct {
	standing
	gpu  Milli
	pods []*pod // in no order
	next int    // where the next search for some of them begins
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

// modelOn returns the number of the GPU model of a node, in Engine.loads.
func (e *Engine) modelOn(id cluster.NodeID) int {
	return e.poolModels()[e.state.PoolNumber(id)]
}

// poolModels returns the model numbers of all pools.
func (e *Engine) poolModels() []int {
	for k := len(e.poolModel); k < len(e.state.Pools()); k++ {
		e.poolModel = append(e.poolModel, e.modelNumber(e.state.Pools()[k].Model))
	}
	return e.poolModel
}

func (e *Engine) modelNumber(model string) int {
	n, ok := e.models[model]
	if !ok {
		n = len(e.loads)
		e.models[model] = n
		e.loads = append(e.loads, load{})
		e.stuck = append(e.stuck, heap[*class]{less: headFirst, moved: func(c *class, at int) { c.movedTo(n, at) }})
	}
	return n
}

// count adds a pod that starts (by 1) or stops (by -1) on a node.
func (e *Engine) count(j *job, p *pod, by int) {
	m := e.modelOn(p.alloc.Node)
	l := &e.loads[m]
	l.pods += by
	l.changes++
	e.touch(j)
	if j.evictable() {
		l.offer(j, p, Milli(by)*e.gpuOf(j, p), by)
	}
}

// offer lists a pod as one that may be evicted (by 1), or no longer (by -1); gpu is
// what it takes, times by.
func (l *load) offer(j *job, p *pod, gpu Milli, by int) {
	if j.backfilled {
		l.bypassed += gpu
	}
	i, ok := l.find(j.key.standing)
	if !ok {
		l.evictable = slices.Insert(l.evictable, i, ranked{standing: j.key.standing})
	}
	l.evictable[i].gpu += gpu
	l.evictable[i].list(p, by)
}

// find returns where pods of a standing are listed, or would be.
func (l *load) find(of standing) (int, bool) {
	return slices.BinarySearchFunc(l.evictable, of, func(r ranked, s standing) int { return s.rank(r.standing) })
}

// weaker returns how much evictable GPU of jobs with a weaker claim than k runs,
// and how much of all jobs.
func (l *load) weaker(k *key) (weaker, all Milli) {
	for i := range l.evictable {
		all += l.evictable[i].gpu
		if k.rank(l.evictable[i].standing) < 0 {
			weaker += l.evictable[i].gpu
		}
	}
	return weaker, all
}

// freeFor returns how much GPU is free on nodes that the class may use.
func (e *Engine) freeFor(c *class) Milli {
	free := Milli(0)
	for i, p := range e.state.Pools() {
		if c.pools>>(uint(i)%64)&1 == 1 {
			free += p.FreeMilli()
		}
	}
	return free
}

// mayEvict reports whether there may be enough to evict for the job: by its claim, by its quota and, for the first job (head), of what
// was backfilled. False is certain, true is not.
func (e *Engine) mayEvict(j candidate, head bool) bool {
	p := &e.policy.Preempt
	reclaim := p.Reclaim && j.queue.Limited()
	terms := e.constrained(j.job)
	have, found := Milli(0), false
	for m := range e.loads {
		own := slices.Contains(j.class.models, m)
		if !own && !j.queue.Limited() && !terms {
			continue
		}
		l := &e.loads[m]
		weaker, takes := l.weaker(&j.key)
		if !reclaim {
			takes = 0
			if p.Priority {
				takes = weaker
			}
			if head && p.Backfill {
				takes += l.bypassed // some of it perhaps twice
			}
		}
		if own {
			have += takes
		}
		found = found || takes > 0
	}
	return found && have+e.freeFor(j.class) >= j.needed()
}

// attempt is what a search for a plan was made of, in vain, and for which job.
type attempt struct {
	of             key
	world, changes uint64
	pods           int
	at             Time
	// retry is when more may be evicted than at that time, Never when it is not
	// time that is lacking.
	retry Time
	// settled is when the first that may be evicted will have run for its minimum time,
	// Never when none is too young.
	settled Time
	vain    int // searches before, in the same world
}

// When to search again after a search was in vain: when enough has started or
// stopped (a share of the pods that run, and some for every class that waits: so
// that a change costs a fraction of a search, however many classes wait), or
// after a pause. Small clusters do without.
const (
	attemptShare = 64
	attemptClass = 8
	attemptSmall = 256 // pods
	// attemptPause is for most jobs, headPause for the first ones, which have
	// waited for long. Both double with every search in vain, so many times.
	attemptPause   = 300 * Second
	headPause      = 1800 * Second
	attemptDoubles = 4
)

// pause returns how long to wait before searching again.
func (a *attempt) pause(head bool) Time {
	switch {
	case a.pods <= attemptSmall:
		return 0
	case head:
		return headPause << min(a.vain, attemptDoubles)
	}
	return attemptPause << min(a.vain, attemptDoubles)
}

// attempt returns where the class's last search in vain is kept: those for its
// first job as the first of all (head), who may evict more, apart from the others.
func (c *class) attempt(head bool) **attempt {
	if head {
		return &c.attempts[1]
	}
	return &c.attempts[0]
}

// holdsFor reports whether what an attempt found holds for an alike job too: one of
// the same standing may evict no more than one before it. That one may be within
// quota where this one is not, and as the first job evict more.
func (a *attempt) holdsFor(j *job) bool {
	return a.of.standing == j.key.standing && !j.key.before(&a.of)
}

// again reports whether a search for a plan is worth while after the last one
// for the job was in vain, and returns what it will be made of.
func (e *Engine) again(j *job, now Time, head bool) (attempt, bool) {
	a := attempt{of: j.key, world: e.changes.world, at: now}
	terms := e.constrained(j)
	for m := range e.loads {
		if j.queue.Limited() || terms || slices.Contains(j.class.models, m) {
			a.changes += e.loads[m].changes
			a.pods += e.loads[m].pods
		}
	}
	last := *j.class.attempt(head)
	if last == nil || last.world != a.world || !last.holdsFor(j) {
		return a, true
	}
	if a.vain = last.vain + 1; now >= last.retry {
		return a, true
	}
	changed, enough := a.changes-last.changes, 1
	if a.pods > attemptSmall {
		enough = a.pods/attemptShare + attemptClass*len(e.idle)
	}
	switch {
	case changed == 0:
		if last.retry != Never {
			e.retry(last.retry) // the wake-up that was asked for may have been for an earlier time
		}
		return a, false
	case changed >= uint64(enough) || now >= last.at+last.pause(head):
		return a, true
	}
	e.retry(last.at + last.pause(head))
	return a, false
}
