package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SchedulerName is the spec.schedulerName of the pods that Muster schedules.
const SchedulerName = "muster"

// Labels that users set.
const (
	// QueueLabel names the queue of a pod, PodGroup or owner. On a namespace it names
	// the queue of all its jobs that name none.
	QueueLabel = "muster.sh/queue"
	// GangLabel makes one gang of the pods of a namespace that have the same
	// value, for pods without a PodGroup or an owner that makes them a gang.
	GangLabel = "muster.sh/gang"
	// PoolLabel names the pool of a pod, PodGroup or node; on a namespace, the pool of
	// all its jobs that name none. If several instances share a cluster, it determines
	// which one schedules.
	PoolLabel = "muster.sh/pool"
)

// Annotations that users set on a pod or its PodGroup; if both have one, the pod's
// counts.
const (
	// KindAnnotation is training, inference, batch or dev.
	KindAnnotation = "muster.sh/kind"
	// ClassAnnotation is HP or LP.
	ClassAnnotation = "muster.sh/class"
	// UserAnnotation names the user whose job it is, where queues bound what each user runs;
	// the namespace when not given.
	UserAnnotation = "muster.sh/user"
	// PriorityClassAnnotation names the PriorityClass of the job, instead of that of its
	// pods.
	PriorityClassAnnotation = "muster.sh/priority-class"
	// PreemptibleAnnotation is "false" if the job must not be evicted for other jobs.
	PreemptibleAnnotation = "muster.sh/preemptible"
	// LockedAnnotation is "true" if the pods must never be moved.
	LockedAnnotation = "muster.sh/locked"
	// MobilityAnnotation says whether and how running pods may be moved to other nodes:
	// "stays" or "replaceable". On a namespace, where it is a label, it is for all jobs that
	// say nothing.
	MobilityAnnotation = "muster.sh/mobility"
	// MinRuntimeAnnotation is how long a pod runs at least before it may be
	// evicted, where that is longer than the policy's: a [Duration].
	MinRuntimeAnnotation = "muster.sh/min-runtime"
	// CheckpointIntervalAnnotation is how often the job saves its progress: a
	// [Duration].
	CheckpointIntervalAnnotation = "muster.sh/checkpoint-interval"
	// LastCheckpointAnnotation is when the job last saved its progress, in the
	// form of RFC 3339. The job writes it as it runs.
	LastCheckpointAnnotation = "muster.sh/last-checkpoint"
	// CheckpointWithinAnnotation says that the processes of a pod save their progress when the agent of its node asks them to, at the
	// latest after this time, where those of the pod find it that is made in its place: a [Duration]. It counts on pods alone.
	CheckpointWithinAnnotation = "muster.sh/checkpoint-within"
	// WalltimeAnnotation is how long the job is expected to run: a [Duration].
	WalltimeAnnotation = "muster.sh/walltime"
	// RequiredTopologyAnnotation is the topology level of which one domain must
	// hold the whole gang: a level's alias or node label, "node" or "hbd".
	RequiredTopologyAnnotation = "muster.sh/required-topology"
	// PreferredTopologyAnnotation is the level of which one domain should hold
	// the gang, if one can.
	PreferredTopologyAnnotation = "muster.sh/preferred-topology"
	// ClosenessAnnotation says by which share of its run time a gang rather runs longer, on slower
	// GPU models, than with its pods one more topology level apart: "0.1".
	ClosenessAnnotation = "muster.sh/closeness"
	// GPUCombinationsAnnotation lists the GPU models on which the roles of a gang may be together, how fast it is on them by
	// levels apart, and what they cost: "prefill:A100+decode:L40S=2.3/1.9@3.5|prefill:A100+decode:A100=2".
	GPUCombinationsAnnotation = "muster.sh/gpu-combinations"
	// GPUModelsAnnotation lists the GPU models the pod can use, separated by "|",
	// as in "H800|A100"; any when not given.
	GPUModelsAnnotation = "muster.sh/gpu-models"
	// GPUFractionAnnotation is the fraction of one GPU that the pod requests, as in
	// "0.25", instead of whole GPUs in its resources.
	GPUFractionAnnotation = "muster.sh/gpu-fraction"
	// GPUCountAnnotation is how many whole GPUs the pod requests of Muster alone, as in "2": it
	// has none in its resources, so that the kubelet does not count them.
	GPUCountAnnotation = "muster.sh/gpu-count"
	// GPUMemoryAnnotation is how much memory of one GPU the pod requests, in MiB, instead
	// of a fraction: it gets the fraction with this much memory.
	GPUMemoryAnnotation = "muster.sh/gpu-memory"
	// MinMemberAnnotation is how many pods of the gang must start together, of all or
	// of each role, as in "ps=1,worker=3"; the rest may come later.
	MinMemberAnnotation = "muster.sh/min-member"
	// StaleGraceAnnotation is how long the gang can run with fewer pods than its minimum before it
	// is stopped, such as "5m"; "never" lets it go on.
	StaleGraceAnnotation = "muster.sh/stale-grace"
	// OnFailureAnnotation says what happens when a running gang loses a pod: with
	// "replace" a new pod joins, with "requeue" the gang is stopped and waits again.
	OnFailureAnnotation = "muster.sh/on-failure"
	// TaskAnnotation is the role of the pod in its gang, such as "worker".
	TaskAnnotation = "muster.sh/task"
	// SegmentSizeAnnotation is the number of pods of each segment of a gang, by their index, and
	// SegmentTopologyAnnotation the topology level of which one domain holds a segment. Several, separated by commas,
	// are of segments in wider segments: 4,16 and rack,block.
	SegmentSizeAnnotation     = "muster.sh/segment-size"
	SegmentTopologyAnnotation = "muster.sh/segment-topology"
	// StageAnnotation is the part of a job that the pod starts with, where the owner starts its pods in
	// stages: each is a gang of its own. Muster writes it when it binds a pod.
	StageAnnotation = "muster.sh/stage"
)

// Annotations that Muster writes on a pod when it binds it.
const (
	// GPUsAnnotation lists the indices of the pod's GPUs on its node, as in
	// "0,3".
	GPUsAnnotation = "muster.sh/gpus"
	// NICsAnnotation lists the indices of the RDMA NICs nearest to the GPUs.
	NICsAnnotation = "muster.sh/nics"
	// ShareAnnotation is how much of each GPU the pod has, in thousandths; only
	// for parts of a GPU.
	ShareAnnotation = "muster.sh/share"
	// BackfilledAnnotation is "true" if the job started ahead of an earlier job that
	// waits.
	BackfilledAnnotation = "muster.sh/backfilled"
)

// What is on Jobs that are made as Slurm makes jobs.
const (
	// DependencyAnnotation, on a Job, says after which other Jobs of its namespace it starts, as sbatch --dependency does:
	// afterok:NAME,afterany:NAME.
	DependencyAnnotation = "muster.sh/dependency"
	// SlurmJobIDLabel is the number by which its script knows the job, SlurmJobNameAnnotation what it is called there. Jobs with
	// the dependency singleton and one such name run one after the other.
	SlurmJobIDLabel        = "muster.sh/slurm-job-id"
	SlurmJobNameAnnotation = "muster.sh/slurm-job-name"
	// SlurmArrayLabel is the name of the array of gangs that a Job and its pods are of. SlurmArrayLimitAnnotation, on such a
	// Job, is how many Jobs of its array run at a time: it starts when fewer of those with lower ids have not ended.
	SlurmArrayLabel           = "muster.sh/slurm-array"
	SlurmArrayLimitAnnotation = "muster.sh/slurm-array-limit"
	// CommentAnnotation is any text for people.
	CommentAnnotation = "muster.sh/comment"
)

// What Muster writes on the owner of pods that it suspends so that they leave.
// Taking the annotation away keeps the owner suspended.
const (
	// SuspendedLabel is "true" on such owners.
	SuspendedLabel = "muster.sh/suspended"
	// SuspendedAnnotation says what the scheduler needs to resume it: the kind
	// and name of the group, since when it is in the queue, and the selector of
	// its pods, separated by blanks.
	SuspendedAnnotation = "muster.sh/suspended"
)

// EvictingAnnotation is "true" on a pod of a Job that is about to be evicted, without
// the finalizer by which the Job controller would count it as failed.
const EvictingAnnotation = "muster.sh/evicting"

// ShardsLabel is on the Leases of schedulers that share a cluster: a digest of how
// they divide its pools into shards. Those that divide them otherwise do not decide
// at the same time.
const ShardsLabel = "muster.sh/shards"

// What users and the scheduler write to drain a node and to move a pod. Pods of owners
// that create replacements leave when their replacements are ready.
const (
	// DrainAnnotation, on a cordoned node, asks the scheduler to drain it. It contains
	// how long to wait for the replacement of a pod, a [Duration] (0 means that pods do
	// not wait for replacements), and, after a blank, any text that distinguishes this
	// request from others.
	DrainAnnotation = "muster.sh/drain"
	// EvictionsAnnotation, on a node, is how many LP pods were evicted from it for other jobs. The
	// scheduler writes it where the policy places pods by it, and reads it when it starts.
	EvictionsAnnotation = "muster.sh/evictions"
	// CordonedAnnotation, on a node, says why the scheduler cordoned it: failures point to it.
	CordonedAnnotation = "muster.sh/cordoned"
	// StrikesAnnotation, on a node, has the failures that point to it and still count, as JSON. The scheduler writes it, and reads it when it starts.
	StrikesAnnotation = "muster.sh/strikes"
	// TestAnnotation, on a node that takes no pods until it has passed a test, says that the test has not ended. The scheduler writes it, and reads it when it starts.
	TestAnnotation = "muster.sh/test"
	// DiagnosticLabel, on a Job that tests a node, says how that went: running, passed, failed, or refused, if no container of it ran. TestsAnnotation on it names the node.
	DiagnosticLabel = "muster.sh/diagnostic"
	TestsAnnotation = "muster.sh/tests"
	// RecoveryAnnotation, on a pod that failed, has what counts of the failures of its job, as JSON. The scheduler writes it, and reads it when it starts.
	RecoveryAnnotation = "muster.sh/recovery"
	// ReleaseAnnotation, on a pod of a job that is held, releases the job. It has the time of the request, in the form of RFC 3339.
	ReleaseAnnotation = "muster.sh/release"
	// MoveAnnotation, on a running pod, asks the scheduler to move it. It contains the name
	// of a node, or nothing for any, and, after a blank, any text that distinguishes this
	// request from others. If pods of a job restart elsewhere together, its last word is their
	// number, such as of=2.
	MoveAnnotation = "muster.sh/move"
	// MovingAnnotation is on a pod that was taken out of its owner's hands so
	// that the owner makes another, and says how to give it back. It stays, marked
	// so, on a pod that was given back.
	MovingAnnotation = "muster.sh/moving"
	// MovingLabel is "true" on such a pod until it is given back.
	MovingLabel = "muster.sh/moving"
)

// MovingCondition is the type of the condition of pods that are moved, or whose node is
// drained: True while they wait to leave, False when they stay after all.
const MovingCondition = "muster.sh/Moving"

// Reasons of [MovingCondition].
const (
	// MovingReplacing: the pod waits for its replacement.
	MovingReplacing = "Replacing"
	// MovingBudget: a disruption budget does not allow the eviction yet.
	MovingBudget = "DisruptionBudget"
	// MovingNotReplaced: no replacement was ready in time.
	MovingNotReplaced = "NotReplaced"
	// MovingLocked: its job is locked, and the pod stays.
	MovingLocked = "Locked"
	// MovingCancelled: its node is no longer drained.
	MovingCancelled = "Cancelled"
	// MovingRefused: it was requested to move, and cannot or must not.
	MovingRefused = "Refused"
)

// What users write on running pods of HP jobs so that they lend their GPUs, and what the scheduler
// answers.
const (
	// StandbyUntilAnnotation has the time until which the pod lends its GPUs, in the form of RFC
	// 3339. The pod is back earlier if it is taken away, or changed to a time that is over.
	StandbyUntilAnnotation = "muster.sh/standby-until"
	// StandbyKeepsAnnotation is what the pod keeps of the CPU and memory that it requests, as in
	// "cpu=1,memory=2Gi": it lends the rest too, from when it is resized to that. Default: all.
	// A pod that has it from the start is placed beside others that will lend, too.
	StandbyKeepsAnnotation = "muster.sh/standby-keeps"
	// StandbyAnnotation has the reason of the condition, for the containers to read.
	StandbyAnnotation = "muster.sh/standby"
)

// StandbyCondition is the type of the condition of pods that are, were or ask to be on standby:
// True while others may use their GPUs.
const StandbyCondition = "muster.sh/Standby"

// Reasons of [StandbyCondition].
const (
	// StandbyPreparing: the pod still requests more than it is to keep.
	StandbyPreparing = "Preparing"
	// StandbyLending: LP jobs may use its GPUs.
	StandbyLending = "Lending"
	// StandbyReturning: what uses its GPUs is being evicted.
	StandbyReturning = "Returning"
	// StandbyResumed: its GPUs are its own again.
	StandbyResumed = "Resumed"
	// StandbyRefused: it must not lend its GPUs, or cannot.
	StandbyRefused = "Refused"
)

// PausableAnnotation says that the processes of a pod can be paused by the agent of its node, how long that and their resumption take,
// and the host memory for what is on the GPUs meanwhile, as in "pause=5s,resume=10s,memory=160Gi".
const PausableAnnotation = "muster.sh/pausable"

// PausedCondition is the type of the condition of pods whose processes are paused, or were: True while others may use their GPUs.
const PausedCondition = "muster.sh/Paused"

// Reasons of [PausedCondition].
const (
	// PausedPausing: the processes are being paused.
	PausedPausing = "Pausing"
	// PausedPaused: they are paused; others may use the GPUs.
	PausedPaused = "Paused"
	// PausedResuming: the GPUs are the pod's own again, and the processes go on.
	PausedResuming = "Resuming"
	// PausedResumed: they run.
	PausedResumed = "Resumed"
	// PausedNot: they could not be paused, or could not go on; the pod is evicted.
	PausedNot = "NotPaused"
)

// AgentAnnotation of a node is the HOST:PORT at which the scheduler reaches the node's agent. Default: the node's internal address, and
// the port that the scheduler was started with.
const AgentAnnotation = "muster.sh/agent"

// AgentOfLabel of a DeviceTaintRule is the node whose agent made it, or a hash of the name of one with a long name.
const AgentOfLabel = "muster.sh/agent-of"

// FaultTaint is the key of the taint of a device that the agent of its node found at fault. Its value is the reason.
const FaultTaint = "muster.sh/gpu-fault"

// QuotaGate is the scheduling gate of pods whose queue lacks quota, so that
// autoscalers do not add nodes for them. It mirrors the scheduler's decision, and
// only the scheduler removes it.
const QuotaGate = "muster.sh/quota"

// Labels of nodes.
const (
	// ProductLabel, of GPU Feature Discovery, has the GPU model.
	ProductLabel = "nvidia.com/gpu.product"
	// GPUModelLabel names the GPU model of a node in place of ProductLabel.
	GPUModelLabel = "muster.sh/gpu-model"
	// MemoryLabel, of GPU Feature Discovery, has the memory of each GPU in MiB.
	MemoryLabel = "nvidia.com/gpu.memory"
	// CliqueLabel, of GPU Feature Discovery, names the high-bandwidth domain
	// (NVLink across nodes) of a node.
	CliqueLabel = "nvidia.com/gpu.clique"
	// HBDLabel names it in place of CliqueLabel.
	HBDLabel = "muster.sh/hbd"
	// GPUSharingLabel is GPUSharingMixed on nodes whose device plugin may choose GPUs for some pods while others have
	// GPUs, or parts of one, that Muster chose. Other nodes with a device plugin have one kind of pods at a time.
	GPUSharingLabel = "muster.sh/gpu-sharing"
	GPUSharingMixed = "mixed"
)

// GPUPositionsAnnotation of a node says where each of its GPUs is, by number: island/pcie/numa/nic,
// the numbers of its NVLink island, its PCIe switch, its NUMA node and the nearest NIC, 0 to 63 or -
// for none, separated by |. It is for nodes whose GPUs a device plugin offers.
const GPUPositionsAnnotation = "muster.sh/gpu-positions"

// GPUErrorsAnnotation of a node has the last errors that the driver wrote to the node's kernel log, such as Xids, as JSON: at, pci and text of each. The
// agent of the node writes it, and the scheduler reads it when a pod on the node fails.
const GPUErrorsAnnotation = "muster.sh/gpu-errors"

// GPUError is an element of the annotation.
// +kubebuilder:object:generate=false
type GPUError struct {
	At metav1.MicroTime `json:"at"`
	// PCI is the address of the GPU, or of an NVSwitch.
	PCI string `json:"pci"`
	// Text is the line of the kernel log.
	Text string `json:"text"`
}

// Prefix is what the labels and annotations begin with that mean something to Muster.
const Prefix = "muster.sh/"

// Keys are all of them, each once: those that people write and those that Muster
// does.
var Keys = []string{
	QueueLabel, GangLabel, PoolLabel, KindAnnotation, ClassAnnotation, UserAnnotation, PriorityClassAnnotation,
	PreemptibleAnnotation, LockedAnnotation, MobilityAnnotation, MinRuntimeAnnotation, CheckpointIntervalAnnotation,
	LastCheckpointAnnotation, CheckpointWithinAnnotation, WalltimeAnnotation, RequiredTopologyAnnotation, PreferredTopologyAnnotation, ClosenessAnnotation,
	GPUCombinationsAnnotation, GPUModelsAnnotation, GPUFractionAnnotation, GPUCountAnnotation, GPUMemoryAnnotation, MinMemberAnnotation, OnFailureAnnotation, StaleGraceAnnotation,
	TaskAnnotation, StageAnnotation, SegmentSizeAnnotation, SegmentTopologyAnnotation, GPUsAnnotation, NICsAnnotation, ShareAnnotation, BackfilledAnnotation, SuspendedLabel,
	DrainAnnotation, EvictionsAnnotation, CordonedAnnotation, StrikesAnnotation, TestAnnotation, DiagnosticLabel, TestsAnnotation, RecoveryAnnotation, ReleaseAnnotation, MoveAnnotation, MovingAnnotation, StandbyUntilAnnotation, StandbyKeepsAnnotation, StandbyAnnotation, PausableAnnotation, AgentAnnotation, AgentOfLabel, EvictingAnnotation, GPUModelLabel, HBDLabel, GPUSharingLabel, GPUPositionsAnnotation, GPUErrorsAnnotation, ShardsLabel,
	DependencyAnnotation, SlurmJobIDLabel, SlurmJobNameAnnotation, SlurmArrayLabel, SlurmArrayLimitAnnotation, CommentAnnotation,
}

// GPUResource is the extended resource of whole GPUs.
const GPUResource = "nvidia.com/gpu"

// RecoveryCondition is the type of the condition of a pod that failed which says what becomes of its job: whether it restarts, or is held.
// In a dry run its message begins with "dry run:".
const RecoveryCondition = "muster.sh/Recovery"

// EstimateCondition is the type of the condition of a pod whose message says how long its job is expected to run, and why. HistoryReason is its
// reason: because of finished jobs.
const (
	EstimateCondition = "muster.sh/Estimate"
	HistoryReason     = "History"
)

// WaitingCondition is the type of the condition, of pods and PodGroups, that is
// True while they wait. Its reason is that of the engine (core.Reason), its
// message has the numbers. Pods have PodScheduled=False beside it, which
// autoscalers read.
const WaitingCondition = "muster.sh/Waiting"

// AdmittedCondition is the type of the condition of a pod that says, in JSON, which
// labels and annotations it was bound with, where they are others now, or where it
// has a part of a GPU: those that it was bound with count until it ends.
const AdmittedCondition = "muster.sh/Admitted"

// PreemptionReason is the reason of the condition DisruptionTarget of a pod
// that is evicted for another.
const PreemptionReason = "PreemptionByScheduler"

// ReadyCondition is the type of the condition of queues, policies and
// topologies that is True when they are right, and in effect unless another is.
const ReadyCondition = "Ready"

// Reasons of the Ready condition of a [Queue].
const (
	// QueueReady: jobs of the queue are scheduled.
	QueueReady = "Ready"
	// QueueParentNotFound: the parent does not exist, or is not ready; the
	// queue's jobs wait.
	QueueParentNotFound = "ParentNotFound"
	// QueueCycle: the queue is its own ancestor.
	QueueCycle = "Cycle"
	// ExceedsCapacityCondition is the condition of a queue that owns something of which all queues own more than
	// the nodes have, or of which the queues below it own more than its Subtree has; MoreThanThereIs is its reason.
	ExceedsCapacityCondition = "ExceedsCapacity"
	MoreThanThereIs          = "MoreThanThereIs"
	// QueueInvalid: the engine refuses the queue; the message says why.
	QueueInvalid = "Invalid"
)

// Reasons of the Ready condition of a [SchedulingPolicy].
const (
	// PolicyInUse: the scheduler uses this policy.
	PolicyInUse = "InUse"
	// PolicyAccepted: the policy is valid, but another one is in use.
	PolicyAccepted = "Accepted"
	// PolicyInvalid: the policy contradicts itself or its base; the message says where.
	// The last valid policy stays in use.
	PolicyInvalid = "Invalid"
)

// Reasons of the Ready condition of a [Topology].
const (
	// TopologyInUse: the scheduler uses this topology.
	TopologyInUse = "InUse"
	// TopologyAccepted: another topology is in use.
	TopologyAccepted = "Accepted"
	// TopologyNoNodes: in use, but no node has the labels of its levels.
	TopologyNoNodes = "NoNodes"
)
