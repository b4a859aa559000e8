package core

// Op is what a [Decision] asks for.
type Op uint8

const (
	// Bind asks to start Pods where they are placed. A gang is bound by one
	// decision.
	Bind Op = iota
	// Evict asks to stop Pods, for the good of job For. The engine counts them
	// on their nodes until [PodsGone]. For the reasons [Consolidation], [Requested] and
	// [Defragmentation] they start again elsewhere as soon as they are gone: a place is kept for each.
	Evict
	// Requeue asks to stop Pods because their gang lost a member, could not start, or had too few
	// pods for too long; the job waits again in its old place.
	Requeue
	// Reject says that the job cannot run on this cluster, even if it were empty.
	// It waits until nodes are added, and does not hold up other jobs.
	Reject
	// Wake asks for a [Tick] at At.
	Wake
	// Migrate asks to move a running pod to the place in Pods: to start another instance
	// there and, when that is ready, to end the one that runs. The pod holds both places until
	// [PodMoved] or [MoveFailed], or until something else stops it.
	Migrate
	// Resume asks to let Pods go on whose GPUs are free again: pods on standby, for the reason [StandbyReturns], or all pods of a
	// suspended job, on the devices that they left.
	Resume
	// Hold says that no pod of the job starts until [JobReleased]: it failed, and would fail again. Its owner should be told.
	Hold
	// Restart says that a job that failed starts again, as soon as there is room where it may.
	Restart
	// Cordon asks to keep new pods off Node, to which failures point; the engine does so from now on.
	Cordon
	// Uncordon asks to let Node take pods again.
	Uncordon
	// Suspend asks to suspend Pods, which are all pods of the job, for the good of job For: to free their GPUs and keep their
	// processes, with an image of the GPUs' memory for which the nodes have room. The engine counts them on their GPUs until
	// [PodsGone]. If a pod cannot be suspended, [PodEnded] says that it failed. See [Suspension].
	Suspend
	// Test asks to test Node, to which a failure points and which takes no pods until it has passed: [NodeTested] is the outcome.
	Test
	numOps
)

// Ops names what decisions ask for, in their order.
var Ops = [numOps]string{"bind", "evict", "requeue", "reject", "wake", "migrate", "resume", "hold", "restart", "cordon", "uncordon", "suspend", "test"}

func (o Op) String() string {
	return Ops[o]
}

// Decision is what the driver must now do. It is valid until the next call of
// the engine.
type Decision struct {
	Op  Op
	Job string // empty for Wake, Cordon, Uncordon and Test
	// Node is that of Cordon, Uncordon and Test.
	Node string
	// Pods are the pods concerned, in their order; empty where a job or a node is.
	Pods []Placement
	// Reason says why, Detail gives the numbers; Detail may be empty for Bind.
	Reason Reason
	Detail string
	// For names the job that an eviction or a move makes room for; a move may be for none. Of a bind for the reason [Packed]
	// it is the job whose GPUs are shared, of an eviction for [PackingCancelled] the one that was too slow.
	For string
	// At is when to wake.
	At Time
}

// Restarts reports whether pods are evicted that start again elsewhere, in places that are kept for
// them.
func (d *Decision) Restarts() bool {
	return d.Op == Evict && (d.Reason == Consolidation || d.Reason == Requested || d.Reason == Defragmentation)
}

// Placement is a pod on a node.
type Placement struct {
	// Pod is the pod's number in its job.
	Pod  int
	Node string
	// GPUs is the set of devices, a bit each; GPU is taken from every one.
	GPUs uint64
	GPU  Milli
	// NICs is the set of RDMA NICs nearest to the devices, a bit each.
	NICs uint64
	// CPUMilli and MemMiB are what the pod takes beside.
	CPUMilli, MemMiB int64
}

// Reason is the one typed cause of a decision or of a job's waiting. The text
// form is stable.
type Reason uint8

const (
	// Placed: a bind; the resources were free.
	Placed Reason = iota
	// Backfilled: a bind past an earlier job that does not fit now.
	Backfilled
	// MadeRoom: a bind where others were evicted for it.
	MadeRoom
	// Packed: a bind on the GPUs of another job, which runs on; see [Packing].
	Packed

	// PriorityPreemption: evicted for a job of higher priority.
	PriorityPreemption
	// QuotaReclaim: evicted so that the owner of a quota gets it back.
	QuotaReclaim
	// FairShareReclaim: evicted so that a queue gets what it is owed, as another one has more than that: see
	// [Queueing.FairShare].
	FairShareReclaim
	// BackfillPreemption: evicted because it was started past a job that has
	// now waited longer than the policy's threshold.
	BackfillPreemption
	// LeaseOver: evicted after its lease, for a job that has received less of what it deserves, or comes before: see [Fairness].Lease.
	LeaseOver
	// Requested: a move, or a restart elsewhere, that a user or a drain requested. The bind of a
	// pod that restarts so has this reason, too.
	Requested
	// Defragmentation: a move, or a restart elsewhere, that puts free resources together. The bind
	// of a pod that restarts so has this reason, too.
	Defragmentation
	// Consolidation: a pod that moves, or stops and starts again elsewhere at once, so that a
	// job gets room that waits only because what is free is in pieces. The bind of such a pod
	// at its new place has this reason, too.
	Consolidation
	// StaleGang: a gang that had fewer running pods than its minimum for longer than its grace period: see
	// [RequeuePolicy.StaleGrace].
	StaleGang
	// Diagnosed: a job restarts after a failure whose cause is known.
	Diagnosed
	// Suspect: a node is cordoned to which failures point.
	Suspect
	// Passed: a node is uncordoned as it passed a test.
	Passed
	// PackingCancelled: evicted because the job whose GPUs it shared ran too slowly beside it.
	PackingCancelled
	// Resized: a job with alternatives that is evicted to run as another one, or as none until others need less: see [Goodput].
	Resized
	// NotChosen: a job with alternatives waits for a round in which it gets GPUs.
	NotChosen
	// MemberLost: a gang whose member failed, failed to start or lost its node.
	// A job waits for this reason while its pods are still leaving, and while it has
	// fewer pods than its minimum because some were withdrawn.
	MemberLost
	// Held: a job that failed and would fail again, or has restarted as often as it may. It waits for this reason
	// until it is released: see [Recovery].
	Held

	// QuotaExceeded: the queue or one of its parents does not have enough quota left.
	QuotaExceeded
	// NoNode: no node, even empty, is as large as a pod of the job.
	NoNode
	// Resources: not enough GPUs are free.
	Resources
	// Stranded: enough GPUs are free, but not enough of them together on one
	// node.
	Stranded
	// InsufficientCPU, InsufficientMemory, InsufficientPods: enough GPUs are free
	// together, but their nodes lack the CPU or memory, or take no more pods.
	InsufficientCPU
	InsufficientMemory
	InsufficientPods
	// InsufficientOther: enough is free together, but on nodes that lack another
	// resource that the pods name, such as RDMA adapters.
	InsufficientOther
	// GPUSharing: enough is free together, but on nodes that pick devices for some pods without knowing those that the
	// engine picked for others, and that have pods of the other kind.
	GPUSharing
	// InsufficientDevices: enough is free together, but not enough of the devices that the pods accept.
	InsufficientDevices
	// TopologyTooTight: the job fits in the cluster, but not in one domain of
	// the required level.
	TopologyTooTight
	// Affinity: selectors, taints or affinity leave no node with room.
	Affinity
	// HeldBack: an earlier job must start first (StrictFIFO).
	HeldBack
	// BackOff: started and failed lately; it is tried again after a pause.
	BackOff
	// Victims: evictions for the job are in progress.
	Victims
	// MinRuntime: quota is lacking, and what may be evicted for it has not run for its
	// minimum time.
	MinRuntime
	// ExceedsQuota: the job needs more at once than its queue could ever hold, however much
	// others lend.
	ExceedsQuota
	// StandbyReturns: evicted from GPUs that a pod on standby lent, or that pod goes on.
	StandbyReturns
	// MustNotBorrow: the job cannot be evicted, or not for too long, and so runs within the nominal
	// quota of its queue only. Other such jobs hold too much of it.
	MustNotBorrow
	// HPExpected: an LP job is put off, because HP jobs are expected to need its GPUs before it
	// has saved its progress.
	HPExpected
	// MaxRunning: the queue, one above it, or the job's user there runs as many jobs, or as many GPUs, as
	// the queue's bounds allow.
	MaxRunning
	// Suspended: the job is suspended and waits for its GPUs, or was for too long and is stopped: see [Preempt].MaxSuspended.
	Suspended
	numReasons
)

var reasonNames = [numReasons]string{
	"Placed", "Backfilled", "MadeRoom", "Packed",
	"PriorityPreemption", "QuotaReclaim", "FairShareReclaim", "BackfillPreemption", "LeaseOver", "Requested", "Defragmentation", "Consolidation", "StaleGang", "Diagnosed", "Suspect", "Passed", "PackingCancelled", "Resized", "NotChosen", "MemberLost", "Held",
	"QuotaExceeded", "NoNode", "Resources", "Stranded", "InsufficientCPU", "InsufficientMemory", "InsufficientPods", "InsufficientOther",
	"GPUSharing", "InsufficientDevices", "TopologyTooTight", "Affinity", "HeldBack", "BackOff", "Victims", "MinRuntime", "ExceedsQuota", "StandbyReturns",
	"MustNotBorrow", "HPExpected", "MaxRunning", "Suspended",
}

func (r Reason) String() string { return reasonNames[r] }
