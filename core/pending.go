package core

import (
	"iter"
	"slices"

	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/quota"
)

// class is waiting jobs that are alike in everything that decides whether they can start:
// when one cannot, none can. A pass tries classes, not jobs.
type class struct {
	id    classID
	jobs  heap[*job] // the first in the order on top
	first key        // of the first job; without jobs, of the last one that was
	// moving is how many of them have indexes that change while they wait; see longTerm.moves.
	moving int
	state  classState
	at     [4]int // places in the active, the ready and the borrowers' heap and in its line, -1 when in none
	// Place in waiting.idle; idleIn is nil when it is active.
	idleIn *idleQueue
	idle   int
	// While it is idle: whose it is, and when its turn is; see rounds.go. hasTurn says that it is active as its turn has come.
	by *submitter
	roundTurn
	hasTurn bool
	bound   bound // of the first job, while it is among the borrowers
	// While it is in a line: which one, whose jobs these are, and what that user holds. See turns.go.
	line *line
	user *user
	held int64
	// uncovered is when the first job was found uncovered: see entitlement.covers.
	uncovered uncoveredAt
	// attempts are the last failed searches for a plan.
	attempts [attemptKinds]*attempt

	shapes []*place.Shape // by task
	asked  []*place.Shape // by task, those that were compiled: see affinities.asked
	epoch  uint64         // of the state, when the shapes were compiled
	// relabelled is waiting.relabelled when the class was made.
	relabelled uint64
	pools      uint64 // pools its pods may use, a bit each (modulo 64)
	models     []int  // the numbers of their models
	// possible says that the class is known to fit an empty cluster.
	possible bool
	// short says of a stuck class that more quota might help it, exhausted that the
	// search for places for its first job gave up.
	short, exhausted bool
	// trimmed says of a stuck class that bounds on what runs had no room for some of its tasks.
	trimmed bool
}

// classState says what is known about a class.
type classState uint8

const (
	classActive   classState = iota // to be tried
	classStuck                      // found no room; waits for something to be freed
	classOverrun                    // its queue has no quota left
	classRejected                   // does not fit even an empty cluster
	classBounded                    // its queue or user runs as much as it may
	classUntried                    // waits for its first turn
)

// waiting is the jobs that wait, by class.
//
// Invariant: a class with jobs is in the files of its state, and in no others: classActive in
// active, all but classActive in idle, and under
// StrictFIFO classActive and classStuck in ready. Within a pass, one that was postponed is in
// borrowers in place of active and ready. A class without jobs is in no file.
type waiting struct {
	strict  bool // the policy is StrictFIFO
	served  *longTerm
	turns   *turns
	classOf func(*job) classID
	classes map[classID]*class
	active  heap[*class] // to be tried, the class with the first head on top
	ready   heap[*class] // under StrictFIFO all but those without quota, the same way
	// borrowers are the classes that a pass puts off until those of active, or of ready, that
	// would be within nominal quota have been tried: those come first that keep to what their queues
	// are owed, then those that borrow from nearer queues, then the same way.
	borrowers heap[*class]
	rounds    rounds
	turn      turnOf      // of the class that the pass tries, or tried last
	idle      idleClasses // not to be tried for now
	firsts    firsts      // of those
	count     int         // classes that have jobs
	// relabelled counts the changes of labels and device sets that no pod named: see named.
	relabelled uint64
	paused     heap[*job] // by the end of their pause
	slots      []slotsOfShape
	known      func(*pass, *idleQueue) // nil but for tests: of which list what was found of it holds
}

func newWaiting(strict bool, classOf func(*job) classID, served *longTerm, turns *turns) waiting {
	w := waiting{strict: strict, classOf: classOf, served: served, turns: turns, classes: map[classID]*class{}}
	w.idle.of = map[idleID]*idleQueue{}
	w.rounds = rounds{crowd: DefaultCrowd, submitters: map[submitterID]*submitter{}}
	headFirst, nearerFirst := headFirst, nearerFirst
	if served.ledger != nil {
		headFirst = func(a, b *class) bool { return served.before(a.head(), b.head()) }
		nearerFirst = func(a, b *class) bool { return a.bound.before(b.bound) || a.bound == b.bound && headFirst(a, b) }
	}
	w.active = heap[*class]{less: headFirst, moved: func(c *class, at int) { c.at[0] = at }}
	w.ready = heap[*class]{less: headFirst, moved: func(c *class, at int) { c.at[1] = at }}
	w.borrowers = heap[*class]{less: nearerFirst, moved: func(c *class, at int) { c.at[2] = at }}
	w.paused = heap[*job]{moved: jobMoved, less: func(a, b *job) bool {
		return a.notBefore < b.notBefore || a.notBefore == b.notBefore && a.key.seq < b.key.seq
	}}
	return w
}

// classID is what jobs of a class have in common.
type classID struct {
	queue     *quota.Queue // nil where it matters to no job: no queue has a quota, or priority of its own
	strategy  place.Strategy
	inference bool
	whole     bool
	pinned    bool // and a queue has a quota
	never     bool // they evict no pod: others like them may
	borrows   bool // they may be on devices that pods on standby lend
	sharing   Sharing
	estimate  Time   // if it decides with which jobs they may share GPUs, and they are not in that order
	user      string // where the order, or a bound on what runs, is for each user
	runs      bool   // it counts as running, where queues bound that
	pods      int
	gpu       Milli
	cpu, mem  int64
	models    string
	picker    Picker
	// more spells out what few jobs have: several tasks, other resources, topology,
	// selectors, tolerations, affinity.
	more string
}

// waitingByTask counts the job's waiting pods.
func (j *job) waitingByTask() []int {
	n := make([]int, len(j.Tasks))
	for i := range j.pods {
		if j.pods[i].state == podWaiting {
			n[j.pods[i].task]++
		}
	}
	return n
}

// membersByTask counts the job's pods that run or are done.
func (j *job) membersByTask() []int {
	n := make([]int, len(j.Tasks))
	if j.count[podRunning]+j.count[podDone] == 0 {
		return n
	}
	for i := range j.pods {
		if s := j.pods[i].state; s == podRunning || s == podDone {
			n[j.pods[i].task]++
		}
	}
	return n
}

// viable reports whether enough of a gang runs, or is done, for it to go on.
func (j *job) viable() bool {
	for t, n := range j.membersByTask() {
		if n < j.Tasks[t].Minimum() {
			return false
		}
	}
	return true
}

// accepts returns the models that the pods may use, in order.
func (c *class) accepts() []string {
	var out []string
	for _, sh := range c.shapes {
		for _, m := range sh.Models() {
			if !slices.Contains(out, m) {
				out = append(out, m)
			}
		}
	}
	return out
}

// head returns the first job of the class.
func (c *class) head() *job { return c.jobs.items[0] }

// enqueue puts a job with waiting pods among the waiting.
func (w *waiting) enqueue(j *job, now Time) {
	if j.suspended != nil && j.suspended.over {
		return
	}
	if j.class != nil || j.held || j.unchosen || w.pausing(j) || j.count[podWaiting] == 0 || j.Gang && j.nomination != nil {
		return
	}
	// A gang starts when all pods of its last start are gone, and when it has its minimum.
	if j.whole() && (j.count[podLeaving] > 0 || j.count[podWithdrawn] > 0 && !j.complete()) {
		return
	}
	if j.notBefore > now {
		w.paused.push(j)
		return
	}
	id := w.classOf(j)
	c := w.classes[id]
	if c != nil && len(c.jobs.items) == 0 && c.relabelled != w.relabelled {
		c = nil // nodes have other labels than when its shapes were compiled
	}
	if c == nil {
		c = &class{id: id, at: [4]int{-1, -1, -1, -1}, relabelled: w.relabelled}
		c.jobs = heap[*job]{less: jobBefore, moved: jobMoved}
		if w.served.ledger != nil {
			c.jobs.less = w.served.before
		}
		w.classes[id] = c
	}

	// A class is tried again if it has a new first job: one that comes before the others in
	// the order may evict more than they.
	j.class = c
	old := (*job)(nil)
	if len(c.jobs.items) > 0 {
		old = c.head()
	}
	w.served.enqueued(j)
	if old == nil {
		w.count++
	}
	c.jobs.push(j)
	c.first = c.head().key
	c.moving += j.movesIndex()
	if c.head() != old || c.state == classRejected {
		w.setClass(c, classActive)
	}
}

// pausing reports whether the job is among the paused.
func (w *waiting) pausing(j *job) bool {
	return j.class == nil && j.notBefore > 0 && w.paused.has(j, int(j.at))
}

// dequeue takes a job from among the waiting.
func (w *waiting) dequeue(j *job) {
	if w.pausing(j) {
		w.paused.remove(j, int(j.at))
		return
	}
	c := j.class
	if c == nil {
		return
	}
	first := c.head() == j
	c.jobs.remove(j, int(j.at))
	c.moving -= j.movesIndex()
	j.class = nil
	if len(c.jobs.items) == 0 {
		w.count--
		w.unlist(c)
		// An empty class is kept for the next job that is alike, with its compiled shapes.
		if len(w.classes) > maxClasses {
			delete(w.classes, c.id)
		}
		return
	}
	c.first = c.head().key
	if first {
		// What was found out about evictions for the old first job may not hold for the next
		// one, which may have another priority.
		w.setClass(c, classActive)
	}
}

// withdraw is dequeue for a job that may not come back. If it has never run, its class is not kept for alike ones: what a user
// creates and deletes, each with an affinity of its own, would be kept.
func (w *waiting) withdraw(j *job) {
	c := j.class
	w.dequeue(j)
	if c != nil && len(c.jobs.items) == 0 && j.count[podRunning]+j.count[podLeaving]+j.count[podDone] == 0 {
		delete(w.classes, c.id)
	}
}

// reclassify files those of the jobs that wait again: what decides whether they can start has
// changed.
func (w *waiting) reclassify(jobs []*job, now Time) {
	for _, j := range jobs {
		if j != nil && j.class != nil {
			w.dequeue(j)
			w.enqueue(j, now)
		}
	}
}

// tryAgain files to be tried again the classes that found no room, or no victims for
// quota, and have an affinity that matters.
func (w *waiting) tryAgain(matters func(Term) bool) {
	for ic := range w.idle.all() {
		if c := ic.class; (c.state == classStuck || c.state == classOverrun) && c.head().requires(matters) {
			w.retry(c)
		}
	}
}

// howStarted says whether a job that starts now overtakes an earlier one that waits.
func (w *waiting) howStarted(j *job) Reason {
	if !w.strict && w.served.ledger == nil && w.overtakes(j) {
		return Backfilled
	}
	return Placed
}

// postpone puts a class off until those have been tried that would be within nominal quota, or
// would borrow from nearer queues.
func (w *waiting) postpone(c *class, b bound) {
	w.active.remove(c, c.at[0])
	w.ready.remove(c, c.at[1])
	w.borrowers.remove(c, c.at[2])
	c.bound = b
	w.borrowers.push(c)
	w.turns.join(c)
}

// forgetShapes drops what was compiled for the nodes as they were and is kept by
// classes without jobs, which may not come back: it grows with the cluster. What
// fitted the nodes may no longer do so.
func (w *waiting) forgetShapes(less bool) {
	for _, c := range w.classes {
		c.possible = c.possible && !less
		if len(c.jobs.items) == 0 {
			c.shapes = nil
		}
	}
}

// maxClasses is how many classes are kept, with those that no longer have a job.
const maxClasses = 1 << 14

func jobBefore(a, b *job) bool   { return a.key.before(&b.key) }
func headFirst(a, b *class) bool { return a.first.before(&b.first) }
func nearerFirst(a, b *class) bool {
	return a.bound.before(b.bound) || a.bound == b.bound && headFirst(a, b)
}
func jobMoved(j *job, at int) { j.at = int32(at) }

// setClass files a class by what is known about it.
func (w *waiting) setClass(c *class, s classState) {
	w.unlist(c)
	c.state, c.hasTurn = s, false
	if w.strict && (s == classActive || s == classStuck) {
		w.ready.push(c)
	}
	if s == classActive {
		w.served.reorder(c)
		w.active.push(c)
	}
	if s == classActive || s == classStuck && w.strict {
		w.turns.join(c)
	}
	if s != classActive {
		w.idle.add(c)
		w.firsts.idle(c.idleAs())
		w.rounds.count(c)
	}
}

// restate files an idle class that found no room, or no quota, as one that lacks the other now.
func (w *waiting) restate(c *class, s classState) {
	w.firsts.leaves(c)
	ic := c.idleAs()
	c.state, ic.state = s, s
	w.firsts.idle(ic)
}

// order puts the classes to be tried in order again after that has changed.
func (w *waiting) order() {
	w.active.order()
	w.borrowers.order()
}

// unlist takes a class out of all files. Its state stays.
func (w *waiting) unlist(c *class) {
	w.active.remove(c, c.at[0])
	if c.at[1] >= 0 {
		w.ready.remove(c, c.at[1])
	}
	if c.at[2] >= 0 {
		w.borrowers.remove(c, c.at[2])
	}
	w.turns.leave(c)
	if w.idle.remove(c) {
		w.firsts.leaves(c)
		w.rounds.uncount(c)
	}
}

// heap is a binary heap whose items know their places.
type heap[T comparable] struct {
	items []T
	less  func(a, b T) bool
	moved func(item T, at int)
}

func (h *heap[T]) push(x T) {
	h.items = append(h.items, x)
	h.up(len(h.items) - 1)
}

// order restores the order after many items changed.
func (h *heap[T]) order() {
	for i := len(h.items)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

// has reports whether x, which is at place i if it is in the heap at all, is.
func (h *heap[T]) has(x T, i int) bool { return i >= 0 && i < len(h.items) && h.items[i] == x }

// ascending yields the items in order, each at the cost of the logarithm of how many it has yielded. The heap must not change meanwhile.
func (h *heap[T]) ascending() iter.Seq[T] {
	return func(yield func(T) bool) {
		next := heap[int]{less: func(a, b int) bool { return h.less(h.items[a], h.items[b]) }, moved: func(int, int) {}}
		if len(h.items) > 0 {
			next.push(0)
		}
		for len(next.items) > 0 {
			i := next.items[0]
			if !yield(h.items[i]) {
				return
			}
			next.remove(i, 0)
			for c := 2*i + 1; c <= 2*i+2 && c < len(h.items); c++ {
				next.push(c)
			}
		}
	}
}

// remove takes out x, which is at place i if it is in the heap at all.
func (h *heap[T]) remove(x T, i int) bool {
	if !h.has(x, i) {
		return false
	}
	last := len(h.items) - 1
	h.swap(i, last)
	var none T
	h.items[last], h.items = none, h.items[:last] // else an empty class would keep its last job
	h.moved(x, -1)
	if i < last {
		h.fix(i)
	}
	return true
}

// fix restores the order after the item at i changed.
func (h *heap[T]) fix(i int) {
	x := h.items[i]
	h.up(i)
	if h.items[i] == x {
		h.down(i)
	}
}

func (h *heap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(h.items[i], h.items[parent]) {
			break
		}
		h.swap(i, parent)
		i = parent
	}
	h.moved(h.items[i], i)
}

func (h *heap[T]) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(h.items) {
			break
		}
		if c+1 < len(h.items) && h.less(h.items[c+1], h.items[c]) {
			c++
		}
		if !h.less(h.items[c], h.items[i]) {
			break
		}
		h.swap(i, c)
		i = c
	}
	h.moved(h.items[i], i)
}

func (h *heap[T]) swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.moved(h.items[i], i)
	h.moved(h.items[j], j)
}
