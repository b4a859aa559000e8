package core

// Advice says what would have to change for a job that waits for the reason, in a
// sentence or two; it is empty when no job waits for the reason.
func (r Reason) Advice() string { return advice[r] }

var advice = map[Reason]string{
	QuotaExceeded:       "Jobs of the queue must end, other queues must lend more, or the queue needs a larger quota.",
	NoNode:              "The job must request smaller pods, fewer pods at once, or several GPU models by name, or the cluster needs more or larger nodes. Waiting does not help.",
	Resources:           "Running jobs must free GPUs, or nodes must be added.",
	Stranded:            "Enough GPUs must become free together on one node. Smaller pods would fit now.",
	InsufficientCPU:     "The job must request less CPU, or CPU must become free on the nodes with free GPUs.",
	InsufficientMemory:  "The job must request less memory, or memory must become free on the nodes with free GPUs.",
	InsufficientPods:    "Pods must end on nodes with free GPUs, or nodes must accept more pods.",
	InsufficientOther:   "The job must request less of the missing resource, or some of it must become free on the nodes with free GPUs.",
	GPUSharing:          "The pods of the other kind must leave such a node: on one whose device plugin picks GPUs, parts of GPUs, or GPUs that only Muster counts, are never beside GPUs that the plugin counts.",
	InsufficientDevices: "The pods that have the devices that it accepts must leave them, or it must accept others.",
	TopologyTooTight:    "A domain of the required level must become free, or the job must accept a wider level.",
	Affinity:            "The job's selectors, tolerations or affinity must allow a node that has room.",
	HeldBack:            "The jobs before it must start first; the policy lets no job overtake them.",
	BackOff:             "Nothing: Muster tries again after a delay.",
	Victims:             "Nothing: the pods that are evicted for it must leave first.",
	Consolidation:       "Nothing: it starts again in its reserved places as soon as these are free.",
	Requested:           "Nothing: it starts again in its reserved places as soon as these are free.",
	Defragmentation:     "Nothing: it starts again in its reserved places as soon as these are free.",
	MinRuntime:          "Nothing: jobs that use more than their queue's quota must reach their minimum run time before they are evicted for it.",
	ExceedsQuota:        "The queue needs a larger quota or borrowing limit, or the job must request less at once, use another queue or, if it must not borrow, be preemptible. Waiting does not help.",
	MustNotBorrow:       "Jobs of the queue that must not borrow either must end, the queue needs a larger nominal quota, or the job must be evictable: preemptible, not locked, with a minimum run time that the policy allows a borrower.",
	HPExpected:          "Nothing: the job starts when enough GPUs stay free for it. A job that saves its progress (muster.sh/checkpoint-interval) starts sooner.",
	MaxRunning:          "Running jobs of the queue, or of the user there, must end, or the queue needs higher bounds (maxRunningJobs, maxRunningGPUs, or those per user). A job that needs more GPUs than a bound never starts.",
	Held:                "The owner must remove the cause that the detail names, and release the job or submit it again.",
	NotChosen:           "Nothing: each round chooses again. GPUs must become free, or nodes be added.",
	MemberLost:          "Nothing: its own evicted pods must leave first.",
}
