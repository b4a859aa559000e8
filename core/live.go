package core

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/quota"
	"github.com/muster-sched/muster/internal/fit"
)

// podState is what a pod is doing.
type podState uint8

const (
	podWaiting   podState = iota
	podPlanned            // nominated: victims are still on its place
	podHeld               // nominated: its place is free, and kept for it
	podRunning            // bound, or about to be
	podLeaving            // evicted, or of a gang that broke; still on its node
	podDone               // ended well
	podWithdrawn          // ended before it ran
)

// pod is a pod of a live job.
type pod struct {
	alloc   cluster.Alloc // valid unless waiting or done
	started Time
	// came is when it got its place, by the clock of entitlement.starting; entitled if it
	// evicted others as one within nominal quota.
	came   Time
	task   int32
	trial  uint32 // the last trial of evictions it was part of
	listed int32  // its place in ranked.pods
	lifted bool   // it is off its node and its quota for a trial
	state  podState
	// within says that the pod is within its queue's nominal quota, owed that it is within what its
	// queue is owed, as entitlement.update found: see pod.cover.
	within, owed bool
	// extra says that its gang goes on without it; see job.markExtra.
	extra bool
	ties  *ties // nil if it has none
}

// ties are what few pods have at a time: apart, they cost the others neither memory nor, as they are
// pointers, time of the garbage collector.
type ties struct {
	move    *move    // its current move; only running pods have one
	standby *standby // set while it lends its GPUs
	pack    *pack    // set while it shares its GPUs
	// leavingFor is the nomination it was evicted for.
	leavingFor *nomination
	// from is where a pod still is that restarts at alloc, until it has left; see room.go. Only
	// pods with a kept place have one.
	from *cluster.Alloc
}

// tied returns the ties of the pod, to change them.
func (p *pod) tied() *ties {
	if p.ties == nil {
		p.ties = &ties{}
	}
	return p.ties
}

func (p *pod) move() *move {
	if p.ties == nil {
		return nil
	}
	return p.ties.move
}

func (p *pod) standby() *standby {
	if p.ties == nil {
		return nil
	}
	return p.ties.standby
}

func (p *pod) leavingFor() *nomination {
	if p.ties == nil {
		return nil
	}
	return p.ties.leavingFor
}

func (p *pod) from() *cluster.Alloc {
	if p.ties == nil {
		return nil
	}
	return p.ties.from
}

// job is a live job. Its fields are in an order that leaves no gaps between them: with at most 512 bytes
// the garbage collector needs less time for it.
type job struct {
	Job
	key   key
	queue *quota.Queue
	pods  []pod
	class *class // where it waits; nil when it does not
	// nomination has the current evictions for the job; nil if there are none.
	nomination *nomination
	// left are the places that pods of it left for others; see leftBy.
	left  []leftFor
	marks [][]string // labels by task, with those of its anti-affinities; see affinities.label
	// spans says where the pods of each task are; nil if there is one task.
	spans []span
	// count is how many pods are in each state.
	count [podWithdrawn + 1]int32
	slot  int32
	at    int32  // its place in the class's heap, or in a pause heap
	run   int32  // its place in runs.jobs, -1 when it has none
	trial uint32 // the last trial of evictions that looked at its gang
	// moving is how many pods are being moved. After failedMoves failed moves in a row, the engine
	// moves none before stays, nor stops one instead.
	moving, failedMoves int32
	stays               Time
	// standing is how many pods are on standby.
	standing int32
	failures int32
	// counted is how many pods run or have yet to leave, if queues bound what runs: see running.go.
	counted int32
	// started is when the gang, or the first pod, was bound last; saved when
	// the job last reported a checkpoint.
	started, saved Time
	// bonus is how much earlier than it was the job counts as submitted: see Queueing.SizeWeight.
	bonus Time
	// since is when the job began to wait, the last time.
	since Time
	// After a failed start, or put off by delay, the job pauses until notBefore.
	notBefore Time
	delay     *delay // nil if nothing put it off
	// begun says that the gang has its minimum: further pods start one by one.
	begun     bool
	suspended *suspended // nil if it is not
	// service is what it has received and deserved; nil unless the policy asks for that.
	service *service
	// backfilled says that it started past an earlier job that waited.
	backfilled          bool
	rejected            bool
	disruptionProtected bool // see JobShielded
	// pinned says that the job must not borrow, as its queue could not give back in time what
	// it holds; see Preempt.protect.
	pinned bool
	pin    quota.Pin // how it counts if it is pinned
	// exposed says that it was found running with more than nominal quota, though it is
	// pinned: while it has a place, it may be evicted. See Engine.expose.
	exposed bool
	held    bool // it failed, and is not to start: see recovery.go
	// unchosen says that it has alternatives, and is to run as none of them until the next choice.
	unchosen bool
	touched  bool // it is among entitlement.touched
	goes     bool // the last trial of evictions found that it may be evicted as a whole
}

// jobTable is the live jobs.
type jobTable struct {
	byName map[string]*job
	// slots has each job at its job.slot, nil where none is. Invariant: spare has the slots
	// without a job.
	slots []*job
	spare []int32
	// evictable has the precedence of the job of each slot, or unevictable. Loops over
	// the pods of a node use it, without reading the jobs.
	evictable []precedence
	seq       uint64 // of the last job that came
	// replaceable counts the jobs that are: see Mobility.
	replaceable int
	most        int    // see fit.Map
	recounted   []*job // see Engine.refile
}

// requests yields all requests of the jobs that have not ended.
func (t *jobTable) requests(yield func(*cluster.Request) bool) {
	for _, j := range t.slots {
		for k := 0; j != nil && k < len(j.Tasks); k++ {
			if !yield(&j.Tasks[k].Request) {
				return
			}
		}
	}
}

// add gives a new job its slot and its number of arrival.
func (t *jobTable) add(j *job) {
	t.seq++
	j.key.seq = t.seq
	if n := len(t.spare) - 1; n >= 0 {
		j.slot, t.spare = t.spare[n], t.spare[:n]
	} else {
		j.slot = int32(len(t.slots))
		t.slots, t.evictable = append(t.slots, nil), append(t.evictable, unevictable)
	}
	t.byName[j.Name], t.slots[j.slot] = j, j
	if j.Mobility == Replaceable {
		t.replaceable++
	}
	t.noteEvictable(j)
}

// remove forgets a job. Its slot goes to the next one that comes.
func (t *jobTable) remove(j *job) {
	delete(t.byName, j.Name)
	t.byName = fit.Map(t.byName, &t.most)
	t.slots[j.slot] = nil
	t.spare = append(t.spare, j.slot)
	if j.Mobility == Replaceable {
		t.replaceable--
	}
}

// noteEvictable records whether the job may be evicted, after that changed.
func (t *jobTable) noteEvictable(j *job) {
	t.evictable[j.slot] = unevictable
	if j.evictable() {
		t.evictable[j.slot] = j.key.precedence
	}
}

// key orders jobs; see [Order].
type key struct {
	precedence
	estimate int64 // see Policy.estimateOf
	width    Milli // its GPUs, 0 unless ordered ByEstimatedGPUTime
	submit   Time  // by which it is ordered: its submission, or eviction, less job.bonus
	size     Milli // 0 unless ordered ByPriority
	seq      uint64
}

// precedence is the rank of a job, regardless of its arrival.
type precedence struct {
	class    Class
	priority int32
}

// compare is negative if s ranks above o.
func (s precedence) compare(o precedence) int {
	if s.class != o.class {
		return int(s.class) - int(o.class)
	}
	return cmp.Compare(o.priority, s.priority)
}

// before reports whether k comes first in the order.
func (k *key) before(o *key) bool {
	if k.precedence != o.precedence {
		return k.compare(o.precedence) < 0
	}
	if k.estimate != o.estimate {
		return k.estimate < o.estimate
	}
	if k.width != o.width {
		return k.width < o.width
	}
	if k.submit != o.submit {
		return k.submit < o.submit
	}
	if k.size != o.size {
		return k.size < o.size
	}
	return k.seq < o.seq
}

// set moves a pod to another state.
func (j *job) set(p *pod, s podState) {
	j.count[p.state]--
	j.count[s]++
	p.state = s
}

// requested counts pods of a task that run or are to run, new ones or, with a negative number,
// those that have ended: which labels of nodes they name and, for the policies that need it, what they request.
func (e *Engine) requested(j *job, task, pods int) {
	if pods == 0 {
		return
	}
	t := &j.Tasks[task]
	e.named.count(t, pods)
	if !e.countsRequests() {
		return
	}
	if !j.Foreign && e.policy.fair() {
		for _, r := range j.queue.Counted() {
			if takes := t.Takes(r); takes > 0 {
				j.queue.RequestOf(r, Milli(pods)*takes)
			}
		}
		if t.GPU > 0 {
			j.queue.Request(t.Models, Milli(pods)*t.GPU)
		}
	}
	if t.GPU == 0 {
		return
	}
	e.longTerm.request(j, t, pods)
	e.wanted.requested(j, task, pods)
}

// countsRequests reports whether the policy needs to know what jobs request.
func (e *Engine) countsRequests() bool {
	return e.wanted.on || e.longTerm.ledger != nil || e.policy.fair()
}

// requestedNoLonger counts the pods of a job that ends as ended, each task at once.
func (e *Engine) requestedNoLonger(j *job) {
	if !e.countsRequests() && !slices.ContainsFunc(j.Tasks, func(t Task) bool { return names(&t) }) {
		return
	}
	pods := make([]int, len(j.Tasks))
	for i := range j.pods {
		if p := &j.pods[i]; p.state < podDone {
			pods[p.task]++
		}
	}
	for t, n := range pods {
		e.requested(j, t, -n)
	}
}

// span is a range of pod numbers, from lo to before hi.
type span struct{ lo, hi int }

// span returns where the pods of a task are. Pods of other tasks may be among them, where
// pods joined the job later.
func (j *job) span(task int) (lo, hi int) {
	if j.spans == nil {
		return 0, len(j.pods)
	}
	return j.spans[task].lo, j.spans[task].hi
}

// addAll numbers the pods of a new job.
func (j *job) addAll() {
	j.pods = make([]pod, j.Pods())
	j.count[podWaiting] = int32(len(j.pods))
	i := 0
	for t := range j.Tasks {
		lo := i
		for range j.Tasks[t].Pods {
			j.pods[i].task = int32(t)
			i++
		}
		if len(j.Tasks) > 1 {
			j.spans = append(j.spans, span{lo, i})
		}
	}
}

// addPod numbers one more pod.
func (j *job) addPod(task int) {
	i := len(j.pods)
	j.pods = append(j.pods, pod{task: int32(task)})
	j.count[podWaiting]++
	if j.spans == nil && len(j.Tasks) == 1 {
		return
	}
	if j.spans == nil && task > 0 {
		j.spans = append(j.spans, span{0, i}) // so far, all pods were of the first task
	}
	for len(j.spans) <= task {
		j.spans = append(j.spans, span{i, i})
	}
	j.spans[task].hi = i + 1
}

// evictable reports whether the job may be evicted at all.
func (j *job) evictable() bool {
	return !j.Foreign && (j.exposed || !j.NotPreemptible && !j.Locked)
}

// fixed reports whether what the job holds must be owned by its queue, as it could not be
// reclaimed.
func (j *job) fixed() bool { return j.pinned && !j.exposed }

// room returns how much more of a model the job may be given at once.
func (j *job) room(model string) Milli {
	if j.pinned {
		return j.queue.PinnedRoom(model)
	}
	return j.queue.RoomNow(model)
}

// most returns how much of a model the job could use if no other job used any.
func (j *job) most(model string) Milli {
	if j.pinned {
		return min(j.queue.Most(model), j.queue.Owned(model))
	}
	return j.queue.Most(model)
}

// book counts an amount of an account as used by the job, or with a negative amount no longer.
func (j *job) book(account string, amount Milli) {
	j.queue.Add(account, amount)
	if j.fixed() {
		j.queue.Pin(account, amount, j.pin)
	}
}

// bookPod books what a pod of a task takes on a node of a model (by 1), or takes it back (by -1).
func (j *job) bookPod(task int32, model string, by Milli) {
	t := &j.Tasks[task]
	if t.GPU > 0 {
		j.book(model, by*t.GPU)
	}
	if len(j.queue.Counted()) > 0 {
		j.bookResources(t, by)
	}
}

// bookResources is bookPod for the resources that are counted.
func (j *job) bookResources(t *Task, by Milli) {
	for _, r := range j.queue.Counted() {
		if takes := t.Takes(r); takes > 0 {
			j.book(r, by*takes)
		}
	}
}

// hasResources reports whether no room is negative of the resources that limit the job's queue and
// that a pod of a task takes.
func (j *job) hasResources(task int32, room func(account string) Milli) bool {
	for _, r := range j.queue.Limits() {
		if j.Tasks[task].Takes(r) > 0 && room(r) < 0 {
			return false
		}
	}
	return true
}

// counts reports whether any quota limits what the job takes.
func (j *job) counts() bool {
	if j.GPUs() > 0 && j.queue.LimitsGPUs() {
		return true
	}
	return slices.ContainsFunc(j.queue.Limits(), j.takes)
}

// takes reports whether a pod of the job takes a resource.
func (j *job) takes(r string) bool {
	return j.anyTask(func(t *Task) bool { return t.Takes(r) > 0 })
}

// anyTask reports whether ok holds of a task of the job.
func (j *job) anyTask(ok func(*Task) bool) bool {
	for i := range j.Tasks {
		if ok(&j.Tasks[i]) {
			return true
		}
	}
	return false
}

// whole reports whether the job waits to start as a gang.
func (j *job) whole() bool { return j.Gang && !j.begun }

// charge books what a pod takes to its queue (by 1), or gives it back (by -1).
func (j *job) charge(s *cluster.State, p *pod, by Milli) {
	j.bookPod(p.task, s.Pool(p.alloc.Node).Model, by)
}

// leaves counts what a pod takes as evicted but not yet gone (by 1), or no longer (by -1); see
// [quota.Queue.Leave].
func (j *job) leaves(s *cluster.State, p *pod, by Milli) {
	if gpu := j.gpu(p); gpu > 0 {
		j.queue.Leave(s.Pool(p.alloc.Node).Model, by*gpu)
	}
	for _, r := range j.queue.Counted() {
		if takes := j.Tasks[p.task].Takes(r); takes > 0 {
			j.queue.Leave(r, by*takes)
		}
	}
}

// bookResource books what the job requests, holds and still has on nodes of a resource that is counted
// from now on.
func (e *Engine) bookResource(j *job, r string) {
	for i := range j.pods {
		p := &j.pods[i]
		takes := j.Tasks[p.task].Takes(r)
		if takes == 0 {
			continue
		}
		if p.placed() {
			j.book(r, takes)
		}
		if p.kept() { // it waits for others to leave, or for the other pods of its gang
			j.queue.Leave(r, -takes)
		}
		if p.state == podLeaving || p.from() != nil {
			j.queue.Leave(r, takes)
		}
		if !j.Foreign && e.policy.fair() && p.state < podDone {
			j.queue.RequestOf(r, takes)
		}
	}
}

// bookPins books what the job holds as fixed (by 1), or no longer (by -1).
func (j *job) bookPins(s *cluster.State, by Milli) {
	for i := range j.pods {
		if p := &j.pods[i]; p.placed() {
			j.queue.Pin(s.Pool(p.alloc.Node).Model, by*j.gpu(p), j.pin)
			for _, r := range j.queue.Counted() {
				j.queue.Pin(r, by*j.Tasks[p.task].Takes(r), j.pin)
			}
		}
	}
}

// weight is the GPU of a pod where evictable pods are summed up: at least 1, so that pods
// without GPUs count.
func (j *job) weight(p *pod) Milli { return max(j.gpu(p), 1) }

// gpu returns how much GPU a pod takes.
func (j *job) gpu(p *pod) Milli { return j.Tasks[p.task].GPU }
