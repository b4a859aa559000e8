package core

import "github.com/muster-sched/muster/core/place"

// Policy is how an engine decides, given at its creation.
type Policy struct {
	Name     string
	Queueing Queueing
	// Placement gives the strategy of each kind of job.
	Placement [numKinds]place.Strategy
	// CPUOnly is for jobs without GPUs, whatever their kind.
	CPUOnly CPUOnly
	Zone    Zone
	Preempt Preempt
	Requeue RequeuePolicy
	Defrag  Defrag
	Room    Room
	// Mix is the requests that will be made, as far as they are known beforehand;
	// strategies that depend on the mix then take it from here. Otherwise they
	// learn it from what comes.
	Mix []Demand
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
)

func (o Order) String() string { return [...]string{"Priority", "Estimate", "Submission"}[o] }

// Queueing is how QSCH orders jobs.
type Queueing struct {
	Mode  Mode
	Order Order
	// HeadWait is how long the first job may wait under Backfill before
	// backfilled jobs are evicted for it.
	HeadWait Time
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
	Priority, Reclaim, Backfill bool
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
	// HPOnly says that LP jobs evict none: they are NeverPreempts. ASI places spot tasks without
	// preemption alone (§4.2).
	HPOnly bool
	// Victims says which of those that may leave before others do.
	Victims VictimChoice
	// At most Budget pods are evicted in each Interval from time 0 on; 0 is no
	// bound. A plan that is larger has an interval alone.
	Budget   int
	Interval Time
	// EvictGrace is the maximum time to shut down of a pod that is evicted for another; 0 is the
	// driver's own. The engine does not use it: drivers do (ASI §4.2: 60 seconds).
	EvictGrace Time
}

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
func (p *Preempt) evicts() bool { return p.Priority || p.Reclaim }

// RequeuePolicy says how long a job pauses after a failed start: Backoff,
// doubled with every failure up to MaxBackoff; 0 does not double it.
type RequeuePolicy struct{ Backoff, MaxBackoff Time }
