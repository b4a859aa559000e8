package v1alpha1

import (
	"errors"
	"math"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
)

// SchedulingPolicy determines how jobs are queued, placed, preempted and requeued.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=schedulingpolicies,shortName=mpol,categories=muster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Base",type=string,JSONPath=`.spec.base`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.queueing.mode`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SchedulingPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SchedulingPolicySpec   `json:"spec"`
	Status            SchedulingPolicyStatus `json:"status,omitempty"`
}

// SchedulingPolicySpec is a policy without its name. Fields that are not set come
// from Base.
type SchedulingPolicySpec struct {
	// Base names the built-in policy to start from. Default: "default".
	//
	// +kubebuilder:default=default
	// +kubebuilder:validation:MaxLength=63
	Base string `json:"base,omitempty"`
	// Queueing determines the order of waiting jobs, and when later jobs can overtake.
	Queueing *Queueing `json:"queueing,omitempty"`
	// Placement is the strategy for each kind of job, and the order of GPU models.
	Placement *Placement `json:"placement,omitempty"`
	// CPUOnly is for jobs without GPUs, whatever their kind.
	CPUOnly *CPUOnly `json:"cpuOnly,omitempty"`
	// Zone is the inference dedicated zone.
	Zone *Zone `json:"zone,omitempty"`
	// Preemption determines which jobs can be evicted for which, and the limits.
	Preemption *Preemption `json:"preemption,omitempty"`
	// Spot determines when LP jobs start.
	Spot *Spot `json:"spot,omitempty"`
	// Fairness determines how GPU time counts under the orders that look at it, and when jobs leave for others.
	Fairness *Fairness `json:"fairness,omitempty"`
	// Requeue determines how long a job waits after a failed start.
	Requeue *Requeue `json:"requeue,omitempty"`
	// Recovery determines what becomes of jobs that failed, and of their nodes, where the cause is known.
	Recovery *Recovery `json:"recovery,omitempty"`
	// Defragmentation moves running pods so that whole nodes become free.
	Defragmentation *Defragmentation `json:"defragmentation,omitempty"`
	// Packing lets two jobs share GPUs, in the simulator. It goes with no preemption, lease or defragmentation.
	Packing *Packing `json:"packing,omitempty"`
	// Goodput determines when jobs that can run in several ways get other GPUs, in the simulator. It goes with no preemption, lease or packing.
	Goodput *Goodput `json:"goodput,omitempty"`
}

// SchedulingPolicyStatus is what the scheduler reports about a policy.
type SchedulingPolicyStatus struct {
	// Conditions contains Ready.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SchedulingPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type SchedulingPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SchedulingPolicy `json:"items"`
}

// Queueing determines the order of waiting jobs, and when later jobs can overtake.
type Queueing struct {
	// Mode determines what happens when the first job in the order does not fit: all
	// jobs wait, later jobs overtake it, or later jobs overtake it and are evicted
	// again if it waits too long.
	Mode *QueueingMode `json:"mode,omitempty"`
	// Order is the order of waiting jobs within a class.
	Order *QueueingOrder `json:"order,omitempty"`
	// HeadWait is how long the first job waits under Backfill before jobs that
	// overtook it are evicted for it.
	HeadWait *Duration `json:"headWait,omitempty"`
	// FairShare lets jobs start first with which their queues have no more than they are owed by quota
	// and weight and, with preemption.reclaim, evict what other queues have beyond that. Not under StrictFIFO.
	FairShare *bool `json:"fairShare,omitempty"`
	// LendUnowned lends to every queue what no queue owns: the GPUs, and the resources that
	// queues have quotas of, that the cluster has beyond all nominal quotas.
	LendUnowned *bool `json:"lendUnowned,omitempty"`
	// SizeWeight is how much earlier than it was an LP job counts as submitted for each GPU that
	// it requests; 0 means that large jobs have no preference.
	SizeWeight *Duration `json:"sizeWeight,omitempty"`
}

// QueueingMode is StrictFIFO, BestEffortFIFO or Backfill.
//
// +kubebuilder:validation:Enum=StrictFIFO;BestEffortFIFO;Backfill
type QueueingMode string

// Values lists the modes, in the order of [core.Mode].
func (QueueingMode) Values() []string { return []string{"StrictFIFO", "BestEffortFIFO", "Backfill"} }

// QueueingOrder is Priority, Estimate, Submission, LongTermFairness, EstimatedGPUTime, ShortestRemaining, LeastAttained,
// FinishTimeFairness, DominantShare or GittinsIndex.
//
// +kubebuilder:validation:Enum=Priority;Estimate;Submission;LongTermFairness;EstimatedGPUTime;ShortestRemaining;LeastAttained;FinishTimeFairness;DominantShare;GittinsIndex
type QueueingOrder string

// Values lists the orders, in the order of [core.Order].
func (QueueingOrder) Values() []string { return core.Orders[:] }

// Placement is the strategy for each kind of job, and the order of GPU models; Default
// is for the kinds that are not set.
type Placement struct {
	Default   *Strategy `json:"default,omitempty"`
	Training  *Strategy `json:"training,omitempty"`
	Inference *Strategy `json:"inference,omitempty"`
	Batch     *Strategy `json:"batch,omitempty"`
	Dev       *Strategy `json:"dev,omitempty"`
	// Models determines which GPU model a job takes that accepts several, of those with
	// room: the fastest, or the one on which it costs least,
	// (1 + wanted) / speed. Wanted is the share of the model's GPUs, at most 1, that jobs of
	// the same or a higher class hold, or wait for if they accept no other model.
	Models *ModelOrder `json:"models,omitempty"`
	// PreferenceWeight is how many idle GPUs a preference of weight 100 outweighs where a pod goes, 0 to 64: preferred
	// affinities, and PreferNoSchedule taints. 0 means that preferences only choose between places that are equally good.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	PreferenceWeight *float64 `json:"preferenceWeight,omitempty" min:"0" max:"64"`
}

// ModelOrder is Fastest or LeastWanted.
//
// +kubebuilder:validation:Enum=Fastest;LeastWanted
type ModelOrder string

// Values lists the orders, in the order of [core.ModelOrder].
func (ModelOrder) Values() []string { return []string{"Fastest", "LeastWanted"} }

// CPUOnly determines how jobs without GPUs share the nodes with GPUs.
type CPUOnly struct {
	// Placement is the strategy for jobs without GPUs; by default that of their kind.
	Placement *Strategy `json:"placement,omitempty"`
	// Reserve is the share of the node's cores per GPU, from 0 to 1, that jobs without GPUs
	// leave for each idle GPU of a node.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	Reserve *float64 `json:"reserve,omitempty" min:"0" max:"1"`
	// GPUJobsUse is the share of the cores that they request, from 0 to 1, that jobs with
	// GPUs use; 0 means all. LeastHarm compares it with the cores of jobs without GPUs.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	GPUJobsUse *float64 `json:"gpuJobsUse,omitempty" min:"0" max:"1"`
}

// Strategy is the name of a placement strategy.
//
// +kubebuilder:validation:Enum=Binpack;EBinpack;Spread;ESpread;Consolidate;Value;FGD;BestFit;DotProduct;GPUPacking;GPUClustering;Random;Spot;LeastHarm
type Strategy string

// Values lists the strategies, in the order of [place.Strategy].
func (Strategy) Values() []string { return place.Strategies[:] }

// Zone is the inference dedicated zone: the nodes with a label, or a share of
// each pool.
//
// +kubebuilder:validation:XValidation:rule="!has(self.label) || !has(self.share)",message="a zone has a label or a share, not both"
// +kubebuilder:validation:XValidation:rule="!has(self.value) || has(self.label)",message="a value needs its label"
type Zone struct {
	// Label is the node label of the zone's nodes.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Label string `json:"label,omitempty"`
	// Value is the value of Label on these nodes.
	//
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value,omitempty"`
	// Share is the share of each GPU model's nodes, from 0 to 1.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	Share *float64 `json:"share,omitempty" min:"0" max:"1"`
	// Exclusive keeps all other jobs out of the zone; otherwise they use it last.
	Exclusive *bool `json:"exclusive,omitempty"`
}

// Preemption determines which jobs can be evicted for which, and the limits.
type Preemption struct {
	// Priority says among which jobs those of higher class or priority evict others:
	// all jobs of the cluster, those of one queue, or none.
	Priority *PriorityScope `json:"priority,omitempty"`
	// Reclaim lets the owner of a quota evict jobs that borrowed it.
	Reclaim *bool `json:"reclaim,omitempty"`
	// Backfill lets the first job evict jobs that overtook it, after headWait.
	Backfill *bool `json:"backfill,omitempty"`
	// Delay is how long a job waits at least before others are evicted for it, so that an
	// autoscaler can add nodes first. 0 means that it does not wait.
	Delay *Duration `json:"delay,omitempty"`
	// MinRuntime is how long a pod runs at least before it can be evicted.
	MinRuntime *Duration `json:"minRuntime,omitempty"`
	// MaxMinRuntime is the longest minimum run time with which a job can borrow. A job
	// that sets more uses only its queue's nominal quota.
	MaxMinRuntime *Duration `json:"maxMinRuntime,omitempty"`
	// Protection says whether jobs can request protection: not preemptible, locked, or
	// a minimum run time above MaxMinRuntime. If false, the first two have no effect,
	// and the third counts as MaxMinRuntime.
	Protection *bool `json:"protection,omitempty"`
	// ProtectedQueues are the queues whose jobs can request protection, with the queues
	// below them. Jobs of other queues are treated as if Protection were false. Default: all
	// queues.
	//
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	ProtectedQueues []string `json:"protectedQueues,omitempty"`
	// HPOnly lets only HP jobs evict others; LP jobs start on what is free.
	HPOnly *bool `json:"hpOnly,omitempty"`
	// Victims determines which of the jobs that can be evicted first are: those that
	// lose the least work, those that lose the least work for each GPU that they free,
	// or, for comparison, random ones.
	Victims *Victims `json:"victims,omitempty"`
	// Budget is the maximum number of pods evicted in each Interval; 0 means no limit.
	// A plan larger than the budget uses up a whole interval alone.
	//
	// +kubebuilder:validation:Minimum=0
	Budget *int `json:"budget,omitempty" min:"0"`
	// Interval is the period of Budget.
	Interval *Duration `json:"interval,omitempty"`
	// MaxSuspended is how long a job stays suspended at most, before it is evicted; 0 means that
	// jobs are evicted at once. On Kubernetes it has no effect.
	MaxSuspended *Duration `json:"maxSuspended,omitempty"`
	// BudgetTimeout is how long a queue that reclaims its quota waits for a PodDisruptionBudget
	// that refuses the eviction of a borrower, on Kubernetes, before the pod is deleted despite
	// the budget. 0 means at once.
	BudgetTimeout *Duration `json:"budgetTimeout,omitempty"`
	// EvictGrace is the maximum time to shut down of a pod that is evicted for another job, on
	// Kubernetes: it gets its terminationGracePeriodSeconds, but at most this. 0 means 10 minutes.
	EvictGrace *Duration `json:"evictGrace,omitempty"`
}

// PriorityScope is Cluster, Queue or Never. Files can say true for Cluster and false for Never.
//
// +kubebuilder:validation:Enum=Cluster;Queue;Never
type PriorityScope string

// Values lists the scopes, as the engine numbers them.
func (PriorityScope) Values() []string { return []string{"Never", "Queue", "Cluster"} }

// UnmarshalText reads s. The error says what is expected.
func (s *PriorityScope) UnmarshalText(text []byte) error {
	switch *s = PriorityScope(text); *s {
	case "true":
		*s = "Cluster"
	case "false":
		*s = "Never"
	case "Cluster", "Queue", "Never":
	default:
		return errors.New("one of Cluster, Queue, Never")
	}
	return nil
}

// UnmarshalJSON reads s from a string or a boolean.
func (s *PriorityScope) UnmarshalJSON(data []byte) error { return unmarshalScalar(data, s) }

// Victims is LeastWork, LeastWorkPerGPU or Random.
//
// +kubebuilder:validation:Enum=LeastWork;LeastWorkPerGPU;Random
type Victims string

// Values lists the kinds of victims, in the order of [core.VictimChoice].
func (Victims) Values() []string { return []string{"LeastWork", "LeastWorkPerGPU", "Random"} }

// Spot determines when LP jobs start.
type Spot struct {
	// Forecast puts off an LP job with an expected run time while HP jobs are expected to need
	// more GPUs of its model than it leaves free, before it ends or has saved its progress. What
	// they will need is what they had at the same hours of the days before.
	Forecast *bool `json:"forecast,omitempty"`
}

// Fairness determines how the GPU time counts that queues and jobs received, and deserved, under the orders
// LongTermFairness, ShortestRemaining, LeastAttained, FinishTimeFairness and GittinsIndex.
type Fairness struct {
	// Lease is how long a pod, or a gang, runs at least before it is evicted for a job that has received less of what it
	// deserves, or that comes before it in one of the other orders. 0 means that none is.
	Lease *Duration `json:"lease,omitempty"`
	// Jobs is the order of the jobs of one queue under the order LongTermFairness. Queues still take turns by what they received.
	// Default: LongTermFairness, by what the jobs received of what they deserved.
	Jobs *JobOrder `json:"jobs,omitempty"`
	// HalfLife is the time after which what queues received and deserved counts half. 0 means that it counts for ever.
	HalfLife *Duration `json:"halfLife,omitempty"`
	// Rates are what a GPU of a model counts; one of a model that is not listed counts 1.
	//
	// +listType=map
	// +listMapKey=model
	// +kubebuilder:validation:MaxItems=64
	Rates []ModelRate `json:"rates,omitempty"`
	// Levels are the GPU times, GPUs x run time, from which on a job is at the next level of the orders LeastAttained and
	// GittinsIndex, the least first. Without any, jobs are ordered by the GPU time, or the index, itself.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Levels []Duration `json:"levels,omitempty"`
	// Distribution is the GPU times that jobs take in all, one as likely as the other, for the order GittinsIndex. Without any it is learned
	// from the jobs that ended last.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Distribution []Duration `json:"distribution,omitempty"`
}

// JobOrder is LongTermFairness, Submission, ShortestRemaining, LeastAttained, FinishTimeFairness or GittinsIndex.
//
// +kubebuilder:validation:Enum=LongTermFairness;Submission;ShortestRemaining;LeastAttained;FinishTimeFairness;GittinsIndex
type JobOrder string

// Values lists the orders, as [core.JobOrders] does.
func (JobOrder) Values() []string {
	var names []string
	for _, o := range core.JobOrders {
		names = append(names, o.String())
	}
	return names
}

// ModelRate is what a GPU of a model counts.
type ModelRate struct {
	// Model is the GPU model.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Model string `json:"model"`
	// Rate is what it counts.
	//
	// +kubebuilder:validation:Minimum=0.001
	// +kubebuilder:validation:Maximum=1000
	Rate float64 `json:"rate" min:"0.001" max:"1000"`
}

// Requeue determines how long a job waits after a failed start: Backoff, doubled
// with every failure up to MaxBackoff; how long a gang runs without all of its pods; and where an
// evicted job waits.
type Requeue struct {
	Backoff    *Duration `json:"backoff,omitempty"`
	MaxBackoff *Duration `json:"maxBackoff,omitempty"`
	// StaleGrace is how long a running gang can have fewer pods than its minimum, because some
	// failed or were deleted and are not replaced, before the whole gang is stopped. 0 never stops
	// gangs for pods that were deleted. Jobs can set their own.
	StaleGrace *Duration `json:"staleGrace,omitempty"`
	// Timestamp is the time by which a job is ordered that was evicted and lost all its work,
	// because it saves no progress: its submission, or its eviction.
	Timestamp *Timestamp `json:"timestamp,omitempty"`
}

// Timestamp is Submission or Eviction.
//
// +kubebuilder:validation:Enum=Submission;Eviction
type Timestamp string

// Values lists the times, in the order of [core.Timestamp].
func (Timestamp) Values() []string { return []string{"Submission", "Eviction"} }

// Recovery determines what becomes of jobs that failed, and of their nodes, where the cause is known.
type Recovery struct {
	// Mode is Off, DryRun, which says what would be decided, or On. Default: Off.
	Mode *RecoveryMode `json:"mode,omitempty"`
	// MinConfidence is the confidence of a diagnosis, from 0 to 1, below which it counts as unknown. Default: 0.5.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	MinConfidence *float64 `json:"minConfidence,omitempty" min:"0" max:"1"`
	// MaxRestarts is the maximum number of restarts of a job within a day, whatever failed; 0 means as many as
	// the most generous row of the recovery table among its failures allows. Default: 0.
	//
	// +kubebuilder:validation:Minimum=0
	MaxRestarts *int `json:"maxRestarts,omitempty" min:"0"`
	// Window is how long a strike counts against a node, and how long a job avoids the nodes where it failed. Default: 1d.
	Window *Duration `json:"window,omitempty"`
	// Strikes is the number of strikes within Window that cordon a node; 0 means that no number does. Default: 2.
	//
	// +kubebuilder:validation:Minimum=0
	Strikes *int `json:"strikes,omitempty" min:"0"`
	// MaxCordoned is the share of the nodes, from 0 to 1, that may be cordoned for failures at a time; one
	// node always may be. Default: 0.1.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	MaxCordoned *float64 `json:"maxCordoned,omitempty" min:"0" max:"1"`
	// Tests keeps a node under suspicion from other pods until it has passed a test. Default: false.
	Tests *bool `json:"tests,omitempty"`
}

// RecoveryMode is Off, DryRun or On.
//
// +kubebuilder:validation:Enum=Off;DryRun;On
type RecoveryMode string

// Values lists the modes, in the order of [core.RecoveryMode].
func (RecoveryMode) Values() []string { return core.RecoveryModes[:] }

// RestartScope says which jobs restart elsewhere by scheduled plans.
//
// +kubebuilder:validation:Enum=Never;LP;All
type RestartScope string

// Values lists the scopes, in the order of [core.RestartScope].
func (RestartScope) Values() []string { return []string{"Never", "LP", "All"} }

// Defragmentation moves running pods so that whole nodes become free, or so that a job can
// start. Only pods of jobs that allow it are moved: another instance starts elsewhere before
// the first one ends.
type Defragmentation struct {
	// Every is the time between two plans; 0 means that none are made. A plan waits until the
	// moves of the previous one are over.
	Every *Duration `json:"every,omitempty"`
	// Restarts says which jobs may also restart elsewhere, of those that save their progress and that
	// may be evicted: Never, LP, or All. They stop, and start again in places that are reserved for
	// them. This frees nodes that moves alone cannot free.
	Restarts *RestartScope `json:"restarts,omitempty"`
	// MaxLost is the maximum time since the last checkpoint of a job that restarts; 0 means no limit.
	MaxLost *Duration `json:"maxLost,omitempty"`
	// MaxMoves is the maximum number of pods that one plan moves or restarts; 0 means no limit.
	//
	// +kubebuilder:validation:Minimum=0
	MaxMoves *int `json:"maxMoves,omitempty" min:"0"`
	// MaxGPUHours is the maximum cost of one plan: the GPU-hours for which pods hold their GPUs
	// twice, if each move takes MoveTime, and the work that restarts lose; 0 means no limit.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MaxGPUHours *float64 `json:"maxGPUHours,omitempty" min:"0" max:"1000000"`
	// MoveTime is the time that a move is expected to take; 0 means a minute. A node is vacated
	// only if its GPUs, until the next plan, are more GPU-hours than that costs.
	MoveTime *Duration `json:"moveTime,omitempty"`
	// Partition is the number of nodes that are consolidated with each other; 0 means 500.
	//
	// +kubebuilder:validation:Minimum=0
	Partition *int `json:"partition,omitempty" min:"0"`
	// Depth is the maximum number of pods that move one after the other to make room for one;
	// 0 means 3.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5
	Depth *int `json:"depth,omitempty" min:"0" max:"5"`
	// Rounds is the maximum number of times that the nodes are partitioned; 0 means 5.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=20
	Rounds *int `json:"rounds,omitempty" min:"0" max:"20"`
	// Room makes room for a job that waits although enough GPUs are free, in pieces.
	Room *Room `json:"room,omitempty"`
}

// Room makes room for a job that waits although enough GPUs are free: other pods go to other
// nodes, and all of them go on there.
type Room struct {
	// MaxMoves is the maximum number of pods that move or restart for one job; 0 means that
	// none do.
	//
	// +kubebuilder:validation:Minimum=0
	MaxMoves *int `json:"maxMoves,omitempty" min:"0"`
	// Restarts says whether jobs that may be evicted stop, and start again elsewhere at once.
	Restarts *bool `json:"restarts,omitempty"`
	// AssumedWait is how long the job is assumed to wait otherwise. The moves and the work that
	// restarts lose must cost less than the job's GPUs for that time; 0 means no limit.
	AssumedWait *Duration `json:"assumedWait,omitempty"`
}

// Packing lets two training jobs share GPUs, if how they use them is known and allows it.
type Packing struct {
	// Enabled says whether jobs share GPUs.
	Enabled *bool `json:"enabled,omitempty"`
	// MemoryMiB is the memory of a GPU, in MiB: both jobs take at most that much together.
	//
	// +kubebuilder:validation:Minimum=1
	MemoryMiB *int32 `json:"memoryMiB,omitempty" min:"1"`
	// First packs a job if it can, and gives it idle GPUs else; otherwise idle GPUs come first.
	First *bool `json:"first,omitempty"`
	// LeastCost packs a job with the one beside which it costs least by their use of the GPUs and their memory,
	// whatever their sharing scores; otherwise with the one that started first of those whose scores allow it.
	LeastCost *bool `json:"leastCost,omitempty"`
	// Longest is how many times as long as the job that is there the one that joins is expected to run at
	// most; 0 means no limit.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Longest *float64 `json:"longest,omitempty" min:"0" max:"1000"`
	// CancelBelow is the share of its throughput, from 0 to 1, below which the job that was there first
	// gets its GPUs back; 0 means never.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	CancelBelow *float64 `json:"cancelBelow,omitempty" min:"0" max:"1"`
}

// Goodput gives jobs that can run on several numbers of GPUs, or several models, those with which the goodputs of all count most.
type Goodput struct {
	// Round is the time between two choices; 0 means that none are made: each job runs in the first way that it lists.
	Round *Duration `json:"round,omitempty"`
	// Restart is how long a restart is expected to take, for jobs of which nothing else is known.
	Restart *Duration `json:"restart,omitempty"`
	// Profile is how long a job runs on one GPU of each model before it is trained; 0 means not at all.
	Profile *Duration `json:"profile,omitempty"`
	// Similar starts a job without a profile if a similar one has ended, with what was learned from that.
	Similar *bool `json:"similar,omitempty"`
}

func (g *Goodput) apply(p *core.Goodput) {
	setTime(&p.Round, g.Round)
	setTime(&p.Restart, g.Restart)
	setTime(&p.Profile, g.Profile)
	set(&p.Similar, g.Similar)
}

func (k *Packing) apply(p *core.Packing) {
	set(&p.On, k.Enabled)
	set(&p.MemMiB, k.MemoryMiB)
	set(&p.First, k.First)
	set(&p.LeastCost, k.LeastCost)
	setThousandths(&p.Longest, k.Longest)
	setThousandths(&p.Cancel, k.CancelBelow)
}

// apply overwrites in p what s gives.
func (s *SchedulingPolicySpec) apply(p *core.Policy) {
	if q := s.Queueing; q != nil {
		q.apply(&p.Queueing)
	}
	if l := s.Placement; l != nil {
		l.apply(p)
	}
	if c := s.CPUOnly; c != nil {
		c.apply(&p.CPUOnly)
	}
	if z := s.Zone; z != nil {
		z.apply(&p.Zone)
	}
	if l := s.Spot; l != nil {
		l.apply(&p.Spot)
	}
	if e := s.Preemption; e != nil {
		e.apply(&p.Preempt)
	}
	if f := s.Fairness; f != nil {
		f.apply(&p.Fairness)
	}
	if r := s.Requeue; r != nil {
		setTime(&p.Requeue.Backoff, r.Backoff)
		setTime(&p.Requeue.MaxBackoff, r.MaxBackoff)
		setTime(&p.Requeue.StaleGrace, r.StaleGrace)
		if r.Timestamp != nil {
			p.Requeue.Timestamp = core.Timestamp(index(r.Timestamp.Values(), string(*r.Timestamp)))
		}
	}
	if r := s.Recovery; r != nil {
		r.apply(&p.Recovery)
	}
	if k := s.Packing; k != nil {
		k.apply(&p.Packing)
	}
	if g := s.Goodput; g != nil {
		g.apply(&p.Goodput)
	}
	if d := s.Defragmentation; d != nil {
		d.apply(&p.Defrag)
		if r := d.Room; r != nil {
			set(&p.Room.MaxMoves, r.MaxMoves)
			set(&p.Room.Restarts, r.Restarts)
			setTime(&p.Room.AssumedWait, r.AssumedWait)
		}
	}
}

func (r *Recovery) apply(p *core.Recovery) {
	if *p == (core.Recovery{}) {
		*p = core.DefaultRecovery()
	}
	if r.Mode != nil {
		p.Mode = core.RecoveryMode(index(r.Mode.Values(), string(*r.Mode)))
	}
	setThousandths(&p.MinConfidence, r.MinConfidence)
	set(&p.MaxRestarts, r.MaxRestarts)
	setTime(&p.Window, r.Window)
	set(&p.Strikes, r.Strikes)
	setThousandths(&p.MaxCordoned, r.MaxCordoned)
	set(&p.Tests, r.Tests)
}

func (d *Defragmentation) apply(p *core.Defrag) {
	setTime(&p.Every, d.Every)
	if d.Restarts != nil {
		p.Restarts = core.RestartScope(index(d.Restarts.Values(), string(*d.Restarts)))
	}
	setTime(&p.MaxLost, d.MaxLost)
	set(&p.MaxMoves, d.MaxMoves)
	setTime(&p.MoveTime, d.MoveTime)
	if d.MaxGPUHours != nil {
		p.MaxGPUTime = int64(*d.MaxGPUHours * 3600 * float64(core.WholeGPU))
	}
	set(&p.Partition, d.Partition)
	set(&p.Depth, d.Depth)
	set(&p.Rounds, d.Rounds)
}

func (q *Queueing) apply(p *core.Queueing) {
	if q.Mode != nil {
		p.Mode = core.Mode(index(q.Mode.Values(), string(*q.Mode)))
	}
	if q.Order != nil {
		p.Order = core.Order(index(q.Order.Values(), string(*q.Order)))
	}
	setTime(&p.HeadWait, q.HeadWait)
	set(&p.FairShare, q.FairShare)
	set(&p.LendUnowned, q.LendUnowned)
	setTime(&p.SizeWeight, q.SizeWeight)
}

func (l *Placement) apply(p *core.Policy) {
	byKind := [...]*Strategy{core.Training: l.Training, core.Inference: l.Inference, core.Batch: l.Batch, core.Dev: l.Dev}
	for kind, s := range byKind {
		if s == nil {
			s = l.Default
		}
		if s != nil {
			p.Placement[kind] = place.Strategy(index(s.Values(), string(*s)))
		}
	}
	if l.Models != nil {
		p.Models = core.ModelOrder(index(l.Models.Values(), string(*l.Models)))
	}
	if l.PreferenceWeight != nil {
		p.PreferenceWeight = core.Milli(math.Round(*l.PreferenceWeight * float64(core.WholeGPU)))
	}
}

func (c *CPUOnly) apply(p *core.CPUOnly) {
	if c.Placement != nil {
		s := place.Strategy(index(c.Placement.Values(), string(*c.Placement)))
		p.Strategy = &s
	}
	setThousandths(&p.Reserve, c.Reserve)
	setThousandths(&p.GPUUse, c.GPUJobsUse)
}

func setThousandths(to *int64, from *float64) {
	if from != nil {
		*to = int64(math.Round(*from * 1000))
	}
}

func (z *Zone) apply(p *core.Zone) {
	if z.Label != "" {
		p.Key, p.Value, p.Share = z.Label, z.Value, 0
	}
	if z.Share != nil {
		p.Key, p.Value, p.Share = "", "", *z.Share
	}
	set(&p.Exclusive, z.Exclusive)
}

func (s *Spot) apply(p *core.Spot) {
	if s.Forecast == nil {
		return
	}
	p.Period = 0
	if *s.Forecast {
		p.Period = 24 * 3600 * core.Second
	}
}

func (f *Fairness) apply(p *core.Fairness) {
	setTime(&p.Lease, f.Lease)
	if f.Jobs != nil {
		p.Jobs = core.JobOrders[index(f.Jobs.Values(), string(*f.Jobs))]
	}
	setTime(&p.HalfLife, f.HalfLife)
	if len(f.Rates) > 0 {
		p.Rates = nil
	}
	for _, r := range f.Rates {
		p.Rates = append(p.Rates, core.ModelRate{Model: r.Model, Rate: int64(math.Round(r.Rate * 1000))})
	}
	if len(f.Levels) > 0 {
		p.Levels = nil
	}
	for _, from := range f.Levels {
		p.Levels = append(p.Levels, core.Time(from))
	}
	if len(f.Distribution) > 0 {
		p.Distribution = nil
	}
	for _, t := range f.Distribution {
		p.Distribution = append(p.Distribution, core.Time(t))
	}
}

func (e *Preemption) apply(p *core.Preempt) {
	if e.Priority != nil {
		p.Priority = core.PriorityScope(index(e.Priority.Values(), string(*e.Priority)))
	}
	set(&p.Reclaim, e.Reclaim)
	set(&p.Backfill, e.Backfill)
	setTime(&p.Delay, e.Delay)
	setTime(&p.MinRuntime, e.MinRuntime)
	setTime(&p.MaxMinRuntime, e.MaxMinRuntime)
	if e.Protection != nil {
		p.Unprotected = !*e.Protection
	}
	if len(e.ProtectedQueues) > 0 {
		p.ProtectedQueues = slices.Clone(e.ProtectedQueues)
	}
	set(&p.HPOnly, e.HPOnly)
	if e.Victims != nil {
		p.Victims = core.VictimChoice(index(e.Victims.Values(), string(*e.Victims)))
	}
	set(&p.Budget, e.Budget)
	setTime(&p.Interval, e.Interval)
	setTime(&p.MaxSuspended, e.MaxSuspended)
	setTime(&p.BudgetTimeout, e.BudgetTimeout)
	setTime(&p.EvictGrace, e.EvictGrace)
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func setTime(to *core.Time, from *Duration) {
	if from != nil {
		*to = core.Time(*from)
	}
}

func index(names []string, name string) int { return slices.Index(names, name) }
