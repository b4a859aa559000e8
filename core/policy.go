package core

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// Policy is how an engine decides, given at its creation.
type Policy struct {
	Name     string
	Queueing Queueing
	// Placement gives the strategy of each kind of job.
	Placement [numKinds]place.Strategy
	// Models says which GPU model a job takes that accepts several.
	Models ModelOrder
	// CPUOnly is for jobs without GPUs, whatever their kind.
	CPUOnly CPUOnly
	// PreferenceWeight is how many idle GPUs a preference of 100 points outweighs where a pod goes, 0..64 GPUs; 0:
	// preferences only choose between places that are equally good. See place/prefer.go.
	PreferenceWeight Milli
	Zone             Zone
	Preempt          Preempt
	Spot             Spot
	// Fairness counts under the orders by what was received.
	Fairness Fairness
	Requeue  RequeuePolicy
	Recovery Recovery
	Defrag   Defrag
	Room     Room
	Packing  Packing
	Goodput  Goodput
	// Mix is the requests that will be made, as far as they are known beforehand;
	// strategies that depend on the mix then take it from here. Otherwise they
	// learn it from what comes.
	Mix []Demand
}

// AllKinds returns the placement by which every kind of job has the same strategy.
func AllKinds(s place.Strategy) (p [numKinds]place.Strategy) {
	for k := range p {
		p[k] = s
	}
	return p
}

// CPUOnly is how jobs without GPUs share the nodes with GPUs (ASI §5.2). The zero value treats
// them as all others.
type CPUOnly struct {
	// Strategy places them; nil: that of their kind does.
	Strategy *place.Strategy
	// Reserve is the share, in thousandths, of a node's cores by GPU that they leave for each
	// GPU of the node that is wholly free: so that it does not lack cores for the next job.
	// They evict no job with GPUs for its cores as long as there is a reserve.
	Reserve int64
	// GPUUse is the share, in thousandths, that jobs with GPUs are taken to use of the cores
	// that they request; 0 means all.
	GPUUse int64
}

// strategy returns the strategy of a job.
func (p *Policy) strategy(j *job) place.Strategy {
	if p.CPUOnly.Strategy != nil && j.GPUs() == 0 {
		return *p.CPUOnly.Strategy
	}
	return p.Placement[j.Kind]
}

// ModelOrder says which of the GPU models that a job accepts it takes, of those with room.
type ModelOrder uint8

const (
	// Fastest is the fastest one, if the job says how fast it is on each. Otherwise it is the first
	// that the job lists, or any, as the strategy decides.
	Fastest ModelOrder = iota
	// LeastWanted is the one on which the job costs least: (1 + wanted) / speed, where wanted is the
	// share of the model's GPUs, at most 1, that jobs of the same or a higher class hold, or wait for
	// and can use no other. These are the GPU-hours that the job takes for an hour of work at speed 1,
	// and those of them that other jobs would use: the more a model is in use, the sooner a job that
	// must have it finds it full. So no job goes to a model of less than half the speed of another one
	// with room (ASI §5.1: the adoption gap).
	LeastWanted
)

func (o ModelOrder) String() string { return [...]string{"Fastest", "LeastWanted"}[o] }

// CountsEvictions reports whether the policy places any jobs by how many LP pods were evicted from
// nodes.
func (p *Policy) CountsEvictions() bool {
	return slices.Contains(p.Placement[:], place.Spot) || p.CPUOnly.Strategy != nil && *p.CPUOnly.Strategy == place.Spot
}

// Demand is a request and how many pods of it come, in proportion to others.
type Demand struct {
	Request
	Pods int
}

// Mode says what happens when the first job in the order does not fit
// (Kant §3.2.2, Table 1).
type Mode uint8

const (
	// StrictFIFO makes every later job wait.
	StrictFIFO Mode = iota
	// BestEffortFIFO lets later jobs pass.
	BestEffortFIFO
	// Backfill lets later jobs pass, and evicts them for the first job once it
	// has waited past its threshold.
	Backfill
)

func (m Mode) String() string {
	return [...]string{"StrictFIFO", "BestEffortFIFO", "Backfill"}[m]
}

// Order says which waiting job comes first.
type Order uint8

const (
	// ByPriority orders by class, priority (highest first), submission time,
	// size (smallest first) and number of arrival (Kant §3.2.2).
	ByPriority Order = iota
	// ByEstimate is by class, priority, estimated run time (shortest first),
	// submission time and number of arrival: shortest job first.
	ByEstimate
	// BySubmission is by class, priority, submission time and number of
	// arrival, whatever the size.
	BySubmission
	// LongTermFairness is by class, then by how much of the GPU time that it deserved the queue has received, at each
	// level of the tree, the least first (by name if they are equal), by priority, by how much the job has received of its part, or
	// by [Fairness].Jobs, by submission time and number of arrival (ASTRAEA): see [Fairness]. It decides which jobs start first; which of them are within
	// quota, and who evicts whom, is decided as by BySubmission. No job is evicted for the first one. Under StrictFIFO, it is
	// BySubmission.
	LongTermFairness
	// ByEstimatedGPUTime is by class, priority, estimated run time x GPUs (least first), GPUs (fewest first), submission time and number of
	// arrival: the quasi-shortest service first of Helios (Hu et al., SC 2021).
	ByEstimatedGPUTime
	// ShortestRemaining is by class, priority, and the estimated run time that is left, the shortest first: the estimate less
	// the GPU time that the job has received for each GPU that it requests. What evictions lost is not added again. Jobs without an estimate come first.
	// Under [Fairness].Lease it decides, too, which jobs leave. Under StrictFIFO, it is BySubmission.
	ShortestRemaining
	// LeastAttained is as ShortestRemaining by the GPU time that the job has received, or by its level in [Fairness].Levels
	// (Tiresias, NSDI 2019: least attained service).
	LeastAttained
	// FinishTimeFairness is as ShortestRemaining by the finish-time fairness that the job would have if it ran to its end from now on:
	// the time that it took to the time that its estimated work takes with the GPUs that it deserved meanwhile, the worst first
	// (Themis, NSDI 2020).
	FinishTimeFairness
	// DominantShare is by class, then by what the queue holds now: the greatest of its shares of the cluster's GPUs (by [Fairness].Rates), CPU
	// and memory, for its weight, at each level of the tree, the least first (by name if they are equal), by priority, submission time and number
	// of arrival (dominant resource fairness, Ghodsi et al., NSDI 2011). As with LongTermFairness, it decides which jobs start first, and
	// under StrictFIFO it is BySubmission. No job leaves for it.
	DominantShare
	// GittinsIndex is as LeastAttained by the level of the job in [Fairness].Levels and then by its Gittins index there, the greatest first: how likely
	// it is to end soon, for what that is expected to take, by the distribution of the GPU time that jobs take (Tiresias, NSDI 2019). Without levels it is by the
	// index alone. See gittins.go.
	GittinsIndex
	numOrders
)

// Orders names the orders.
var Orders = [numOrders]string{"Priority", "Estimate", "Submission", "LongTermFairness", "EstimatedGPUTime", "ShortestRemaining", "LeastAttained", "FinishTimeFairness", "DominantShare", "GittinsIndex"}

func (o Order) String() string { return Orders[o] }

// estimateOf returns the estimate by which a job is ordered: its run time, or the time in which a million GPUs would do its work;
// 0 unless the policy orders by estimates; and its GPUs, if they decide between equal estimates.
func (p *Policy) estimateOf(j *Job) (estimate int64, width Milli) {
	switch p.Queueing.Order {
	case ByEstimate:
		return int64(j.Estimate), 0
	case ByEstimatedGPUTime:
		return cluster.Part(int64(j.Estimate), int64(min(j.GPUs(), mostGPUs)), int64(mostGPUs)), j.GPUs()
	}
	return 0, 0
}

// mostGPUs is the most that a job counts for where orders look at its size.
const mostGPUs = 1_000_000 * WholeGPU

// Queueing is how QSCH orders jobs.
type Queueing struct {
	Mode  Mode
	Order Order
	// HeadWait is how long the first job may wait under Backfill before
	// backfilled jobs are evicted for it.
	HeadWait Time
	// FairShare lets jobs start first with which their queues have no more than they are owed and, with
	// Preempt.Reclaim, evict what other queues have beyond that, unless the mode is StrictFIFO. See [quota.Ledger.Divide].
	FairShare bool
	// LendUnowned lends to every queue what no queue owns: see [quota.Ledger.LendUnowned].
	LendUnowned bool
	// SizeWeight is how much earlier than it was an LP job counts as submitted, in the order, for
	// each GPU that it requests then: the weight of size against age in Slurm's multifactor priority. HP
	// jobs are ordered by age: if the large ones were first, more of them would wait. 0: size decides
	// between jobs of the same submission only, see [ByPriority].
	SizeWeight Time
}

// Zone is the inference dedicated zone of E-Spread (Kant §3.3.4): nodes whose
// label Key has Value, or, without a Key, that share of each model's nodes, the
// last ones in topology order (of eight nodes or more, at least two). Exclusive
// keeps all other jobs out; otherwise they use it last.
type Zone struct {
	Key, Value string
	// Share is 0..1.
	Share     float64
	Exclusive bool
}

// Preempt says which preemptions are allowed and how cautiously (Kant §3.2.3).
type Preempt struct {
	// Priority says which jobs those of higher class or priority evict.
	Priority          PriorityScope
	Reclaim, Backfill bool
	// Delay is how long a job has waited at least before others are evicted for it: an autoscaler
	// may add nodes meanwhile, or jobs end.
	Delay Time
	// MinRuntime is how long a pod has run at least before it can be evicted; longer
	// where its job says so.
	MinRuntime Time
	// MaxMinRuntime is the longest [Job].MinRuntime with which a job may borrow; one
	// that asks for more runs within nominal quota, as one that is Locked or
	// NotPreemptible does. 0 is no bound.
	MaxMinRuntime Time
	// Unprotected says that jobs may not ask to be kept: Locked and NotPreemptible do
	// not count, and a longer MinRuntime counts as MaxMinRuntime, if that is set.
	Unprotected bool
	// ProtectedQueues are those whose jobs may ask to be kept, with the queues below them; the jobs
	// of others are as if Unprotected. nil: all. What counts is where a queue is when the job comes.
	ProtectedQueues []string
	// HPOnly says that LP jobs evict none: they are NeverPreempts. ASI places spot tasks without
	// preemption alone (§4.2).
	HPOnly bool
	// Victims says which of those that may leave before others do.
	Victims VictimChoice
	// At most Budget pods are evicted in each Interval from time 0 on; 0 is no
	// bound. A plan that is larger has an interval alone.
	Budget   int
	Interval Time
	// MaxSuspended is how long a job stays suspended at most, before it is evicted; 0: none is suspended. See [Suspension].
	MaxSuspended Time
	// BudgetTimeout is how long reclaim waits for disruption budgets that refuse an eviction, before it
	// overrides them; 0: not at all. The engine does not use it: drivers do.
	BudgetTimeout Time
	// EvictGrace is the maximum time to shut down of a pod that is evicted for another; 0 is the
	// driver's own. The engine does not use it: drivers do (ASI §4.2: 60 seconds).
	EvictGrace Time
}

// PriorityScope says among which jobs class and priority decide who evicts whom.
type PriorityScope uint8

const (
	// NoPriority: among none.
	NoPriority PriorityScope = iota
	// InQueue: among the jobs of one queue. Between queues, quota alone decides.
	InQueue
	// InCluster: among all jobs.
	InCluster
)

func (s PriorityScope) String() string { return [...]string{"Never", "Queue", "Cluster"}[s] }

// VictimChoice says what evicting a pod, or a gang, costs.
type VictimChoice uint8

const (
	// LeastWork is the work that is lost: GPUs times the time since the last checkpoint (ASI, §4.2).
	LeastWork VictimChoice = iota
	// LeastWorkPerGPU is that for each GPU that is freed. A gang of 64 GPUs is then as cheap as a pod
	// of one GPU that has run as long: what it frees beyond the need is of use to the next jobs.
	LeastWorkPerGPU
	// RandomVictims is a random number, for comparison: the baseline of ASI's figures (§4.2).
	RandomVictims
)

func (v VictimChoice) String() string {
	return [...]string{"LeastWork", "LeastWorkPerGPU", "Random"}[v]
}

// evicts reports whether jobs evict others, so that it matters which pods are within quota.
func (p *Preempt) evicts() bool { return p.Priority != NoPriority || p.Reclaim }

// RequeuePolicy says how long a job pauses after a failed start: Backoff,
// doubled with every failure up to MaxBackoff; 0 does not double it.
type RequeuePolicy struct {
	Backoff, MaxBackoff Time
	// StaleGrace is how long a running gang may have fewer pods than its minimum, because some failed or were
	// lost, before it is stopped whole: else it may hold its GPUs for ever, and use none. Meanwhile the pods
	// that it lacks start one by one. 0: a gang stops at once when a pod fails, and never for pods that are
	// lost. A gang of which pods succeeded is as if it were 0: those are not made again. Nor does it hold for
	// jobs that are Locked or Foreign.
	StaleGrace Time
	// Timestamp says by which time a job is ordered that was evicted and lost all its work.
	Timestamp Timestamp
}

// Timestamp is a time of a job by which it is ordered (the name and the choice are those of
// Kueue's requeuing strategy).
type Timestamp uint8

const (
	// SubmissionTime keeps the job where it was.
	SubmissionTime Timestamp = iota
	// EvictionTime puts it behind those that wait. On a model that HP jobs fill by day, a job that
	// never saves its progress and runs for longer than a night never ends. As the first in the
	// order it would start again at each gap, and lose that work, too.
	EvictionTime
)

func (t Timestamp) String() string { return [...]string{"Submission", "Eviction"}[t] }
