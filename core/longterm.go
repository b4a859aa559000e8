package core

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/gputime"
)

// This file orders waiting jobs by the GPU time that their queues, or they themselves, have received and deserved:
// see [LongTermFairness], [ShortestRemaining], [LeastAttained], [FinishTimeFairness] and docs/adr/0017; or by what their queues hold:
// [DominantShare].

// Fairness is how GPU time counts under these orders.
type Fairness struct {
	// Lease is how long a pod, or a gang, is left alone at least before it leaves for a job that has received less of what it
	// deserves, or comes before its own; under [LongTermFairness] the longer, the more of its run is lost, and the smaller the difference is.
	// 0: none leaves for that. See lease.go.
	Lease Time
	// Jobs is the order of the jobs of one queue under [LongTermFairness], one of [JobOrders]: its queues still come by their indexes. The zero
	// value is LongTermFairness, too.
	Jobs Order
	// HalfLife is how long it takes until what queues received and deserved counts half; 0: it counts for ever.
	HalfLife Time
	// Rates are what a GPU of a model counts, in thousandths; 1000 of models that are not listed.
	Rates []ModelRate
	// Levels are the GPU times, of one GPU, from which on a job is at the next level of [LeastAttained] and [GittinsIndex], the least first.
	Levels []Time
	// Distribution is the GPU times that jobs take in all, one as likely as the other, for [GittinsIndex]: at most [MostServices]. Without any it is
	// learned from what the jobs took that ended last.
	Distribution []Time
}

// ModelRate is the exchange rate of a GPU model, 1 to [MaxRate] thousandths.
type ModelRate struct {
	Model string
	Rate  int64
}

// MaxRate is the greatest exchange rate: 1000.
const MaxRate = 1_000_000

// FairHorizon is how far ahead an index looks without leases: what is held, and deserved, now counts as if it were for as long.
const FairHorizon = 15 * 60 * Second

// Horizon is how far ahead an index looks: for a lease, if there are leases.
func (f *Fairness) Horizon() Time {
	if f.Lease > 0 {
		return f.Lease
	}
	return FairHorizon
}

// Rate returns what a GPU of a model counts, in thousandths.
func (f *Fairness) Rate(model string) int64 {
	for _, r := range f.Rates {
		if r.Model == model {
			return r.Rate
		}
	}
	return 1000
}

// RequestRate returns what a GPU counts of a request that accepts these models, or all if there are none: the greatest rate among
// them.
func (f *Fairness) RequestRate(models []string) int64 {
	most := int64(0)
	for _, m := range models {
		most = max(most, f.Rate(m))
	}
	if len(models) == 0 {
		most = 1000
		for _, r := range f.Rates {
			most = max(most, r.Rate)
		}
	}
	return most
}

// CountsGPUTime reports whether jobs are ordered by what they, or their queues, have received or hold: the order changes. Under
// StrictFIFO no job may overtake one that came before it.
func (p *Policy) CountsGPUTime() bool {
	switch p.Queueing.Order {
	case LongTermFairness, ShortestRemaining, LeastAttained, FinishTimeFairness, DominantShare, GittinsIndex:
		return p.Queueing.Mode != StrictFIFO
	}
	return false
}

// JobOrders are the orders that [Fairness].Jobs may have.
var JobOrders = []Order{LongTermFairness, BySubmission, ShortestRemaining, LeastAttained, FinishTimeFairness, GittinsIndex}

// jobOrder is the order of the jobs of one queue or, under orders that look at no queues, of all.
func (p *Policy) jobOrder() Order {
	if p.Queueing.Order == LongTermFairness {
		return cmp.Or(p.Fairness.Jobs, LongTermFairness)
	}
	return p.Queueing.Order
}

// byQueue reports whether the order looks at queues first, and then at the jobs of one.
func (p *Policy) byQueue() bool {
	return p.Queueing.Order == LongTermFairness || p.Queueing.Order == DominantShare
}

// byRemaining reports whether the order looks at the estimated run time that is left.
func (p *Policy) byRemaining() bool {
	o := p.jobOrder()
	return p.CountsGPUTime() && (o == ShortestRemaining || o == FinishTimeFairness)
}

// longTerm keeps the GPU time that queues and jobs have received and deserved.
//
// Invariant: the heaps of waiting are in the order of the indexes that its jobs have noted, and, within a pass, of those that queues
// have, unless moved is set.
type longTerm struct {
	*Engine
	ledger *gputime.Ledger // nil if the policy does not order by it
	world  uint64          // of which the ledger knows the GPUs
	known  bool
	// services is the distribution that [GittinsIndex] uses.
	services services
	// moved says that pods have started since the heaps were put in order.
	moved bool
	// full are the classes, but for their queues, for which the current pass found no room: true if the search gave up.
	full map[classID]bool
	// repairAt is when the order is repaired next; repairing says that victims are sought for that.
	repairAt  Time
	repairing bool
}

// service is what a job has received and deserved.
type service struct {
	*gputime.Job
	index int64 // by which it is in its class's heap: that of when its class was tried last
	moves bool  // it may change while the job waits
}

func newLongTerm(e *Engine) longTerm {
	lt := longTerm{Engine: e}
	if f := &e.policy.Fairness; e.policy.CountsGPUTime() {
		lt.ledger = gputime.New(f.Horizon(), f.HalfLife)
		lt.services = newServices(f.Distribution)
		lt.ledger.Dominant = e.policy.Queueing.Order == DominantShare
	}
	return lt
}

// advance lets time go on. Everything until now was as it is.
func (lt *longTerm) advance(now Time) {
	if lt.ledger != nil {
		lt.count()
		lt.ledger.Advance(now)
	}
}

// besideGPUs are the accounts of what jobs hold beside GPUs.
var besideGPUs = []string{cluster.AccountOf(cluster.CPU), cluster.AccountOf(cluster.Memory)}

// count tells the ledger what there is. It costs O(nodes) if nodes have changed.
func (lt *longTerm) count() {
	if lt.known && lt.world == lt.changes.world {
		return
	}
	lt.known, lt.world = true, lt.changes.world
	units, resources := int64(0), []string(nil)
	if lt.policy.Queueing.Order == DominantShare {
		resources = besideGPUs
	}
	there := schedulable(lt.state, resources)
	for model, gpu := range there {
		if _, isResource := cluster.ResourceOf(model); !isResource {
			units += int64(gpu) * lt.policy.Fairness.Rate(model)
		}
	}
	lt.ledger.SetUnits(units)
	lt.ledger.SetBeside(gputime.Beside{CPU: int64(there[cluster.AccountOf(cluster.CPU)]), Mem: int64(there[cluster.AccountOf(cluster.Memory)])})
}

// setQueue records that a queue was added or changed.
func (lt *longTerm) setQueue(q *Queue) {
	if lt.ledger != nil {
		lt.ledger.Set(q.Name, q.Parent, q.Weight)
	}
}

// removeQueue records that a queue was removed.
func (lt *longTerm) removeQueue(name string) {
	if lt.ledger != nil {
		lt.ledger.Remove(name)
	}
}

// submitted records a new job.
func (lt *longTerm) submitted(j *job) {
	if lt.ledger != nil {
		j.service = &service{Job: lt.ledger.Add(j.Queue)}
	}
}

// request counts pods of a task as requested, or with a negative number no longer.
func (lt *longTerm) request(j *job, t *Task, pods int) {
	if lt.ledger != nil && t.GPU > 0 {
		lt.ledger.Request(j.service.Job, int64(pods)*int64(t.GPU)*lt.policy.Fairness.RequestRate(t.Models))
	}
}

// hold counts what a pod has on its node as held (by 1), or no longer (by -1).
func (lt *longTerm) hold(j *job, p *pod, by int64) {
	if lt.ledger != nil && lt.ledger.Dominant {
		t := &j.Tasks[p.task]
		lt.ledger.HoldBeside(j.service.Job, gputime.Beside{CPU: by * t.CPUMilli, Mem: by * t.MemMiB})
		lt.moved = true
	}
	if gpu := j.gpu(p); lt.ledger != nil && gpu > 0 {
		lt.ledger.Hold(j.service.Job, by*int64(gpu)*lt.policy.Fairness.Rate(lt.state.Pool(p.alloc.Node).Model))
		lt.moved = true
		// A plan may give a pod its place while other pods of the job wait: the job is put in order by its index from now on.
		if by > 0 && j.class != nil && !j.service.moves {
			j.service.moves = true
			j.class.moving++
		}
	}
}

// place counts what a pod will have when plans are carried out (by 1), or no longer (by -1).
func (lt *longTerm) place(j *job, p *pod, by int64) {
	if gpu := j.gpu(p); lt.ledger != nil && gpu > 0 {
		lt.ledger.Place(j.service.Job, by*int64(gpu)*lt.policy.Fairness.Rate(lt.state.Pool(p.alloc.Node).Model))
	}
}

// onNode reports whether the pod has GPUs of a node: it runs, or has not left yet.
func (p *pod) onNode() bool { return p.state == podRunning || p.state == podLeaving || p.from() != nil }

// before is the order of waiting jobs: by class; queues with the lowest index, at each level of the tree; priority; what [longTerm.indexOf]
// says of jobs, the least first; submission; and arrival.
func (lt *longTerm) before(a, b *job) bool {
	return lt.compare(a, b, a.service.index, b.service.index) < 0
}

// compare compares jobs that have these indexes.
func (lt *longTerm) compare(a, b *job, ofA, ofB int64) int {
	queues := 0
	if lt.policy.byQueue() {
		queues = lt.ledger.Compare(a.service.Job, b.service.Job)
	}
	return cmp.Or(cmp.Compare(a.Class, b.Class), queues, cmp.Compare(b.Priority, a.Priority),
		cmp.Compare(ofA, ofB), cmp.Compare(a.key.submit, b.key.submit), cmp.Compare(a.key.seq, b.key.seq))
}

// indexOf returns by what a job is ordered now among others of its precedence: the least first.
func (lt *longTerm) indexOf(j *job) int64 {
	f := &lt.policy.Fairness
	switch lt.policy.jobOrder() {
	case DominantShare:
		return 0
	case BySubmission:
		return int64(j.key.submit)
	case ShortestRemaining:
		return int64(lt.remaining(j))
	case LeastAttained:
		received := j.service.Received(lt.ledger)
		if len(f.Levels) == 0 {
			return int64(received.Over(gputime.PerGPU * 1000))
		}
		return int64(f.level(received))
	case GittinsIndex:
		return lt.gittins(j)
	case FinishTimeFairness:
		return lt.ledger.IndexAtEnd(j.service.Job, gputime.Work(lt.allUnits(j), j.Estimate), lt.remaining(j))
	}
	return lt.ledger.JobIndex(j.service.Job)
}

// remaining returns the estimated run time that is left of a job: less what it has received for each GPU.
func (lt *longTerm) remaining(j *job) Time {
	return max(0, j.Estimate-j.service.Received(lt.ledger).Over(lt.allUnits(j)))
}

// allUnits returns what all pods of a job would have, those that have ended included.
func (lt *longTerm) allUnits(j *job) int64 {
	units := int64(0)
	for t := range j.Tasks {
		task := &j.Tasks[t]
		units += int64(task.Pods) * int64(task.GPU) * lt.policy.Fairness.RequestRate(task.Models)
	}
	return min(units, gputime.MostPerJob)
}

// moves reports whether the index of a job may change while it waits: if it has received something or, under [FinishTimeFairness], and
// under [GittinsIndex] if the distribution is learned, whatever it has.
func (lt *longTerm) moves(j *job) bool {
	o := lt.policy.jobOrder()
	return o == FinishTimeFairness || o == GittinsIndex && !lt.services.given || j.service.Served(lt.ledger)
}

// enqueued notes the index of a job that is about to be put into its class's heap.
func (lt *longTerm) enqueued(j *job) {
	if lt.ledger == nil {
		return
	}
	j.service.index, j.service.moves = lt.indexOf(j), lt.moves(j)
}

// movesIndex is 1 if the index of a job may change while it waits, and 0 if not.
func (j *job) movesIndex() int {
	if j.service != nil && j.service.moves {
		return 1
	}
	return 0
}

// reorder puts the jobs of a class in order again, if the indexes of some have changed.
func (lt *longTerm) reorder(c *class) {
	if c.moving == 0 {
		return
	}
	moved := false
	for _, j := range c.jobs.items {
		if j.service.moves {
			if index := lt.indexOf(j); index != j.service.index {
				j.service.index, moved = index, true
			}
		}
	}
	if moved {
		c.jobs.order()
		c.first = c.head().key
	}
}

// alike names the classes that differ from this one in their queue alone and find room when it does, as long as nothing is
// freed; false if there may be more to it: quotas, affinities, cores that are kept for idle GPUs.
func (lt *longTerm) alike(c *class) (classID, bool) {
	id := c.id
	id.queue, id.user = nil, ""
	return id, lt.ledger != nil && id.more == "" && id.gpu > 0 && !lt.Engine.ledger.Limited() && !lt.Engine.ledger.Bounded()
}

// begin puts the classes to be tried in order, as time has gone on since they were.
func (lt *longTerm) begin() {
	if lt.ledger == nil {
		return
	}
	lt.count()
	for _, c := range lt.waiting.active.items {
		lt.reorder(c)
	}
	lt.moved = true
	lt.inOrder()
	lt.turns.reorder()
	lt.full = map[classID]bool{}
}

// inOrder puts the classes to be tried in order, as pods have started since.
func (lt *longTerm) inOrder() {
	if lt.moved {
		lt.moved = false
		lt.waiting.order()
	}
}

// sortByOrder sorts jobs by the order in which they would be tried now.
func (e *Engine) sortByOrder(js []*job) {
	defer e.turns.arrange(js)
	if e.longTerm.ledger == nil {
		slices.SortFunc(js, func(a, b *job) int {
			if a.key.before(&b.key) {
				return -1
			}
			return 1
		})
		return
	}
	e.longTerm.count()
	index := make(map[*job]int64, len(js))
	for _, j := range js {
		index[j] = e.longTerm.indexOf(j)
	}
	slices.SortFunc(js, func(a, b *job) int { return e.longTerm.compare(a, b, index[a], index[b]) })
}

// comesBefore reports whether a job comes before another one in the order in which they would be tried now.
func (e *Engine) comesBefore(a, b *job) bool {
	if lt := &e.longTerm; lt.ledger != nil {
		lt.count()
		return lt.compare(a, b, lt.indexOf(a), lt.indexOf(b)) < 0
	}
	return a.key.before(&b.key)
}
