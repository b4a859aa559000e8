package core

// Event is a fact about the world. An event names a pod by its number in the job.
type Event interface{ event() }

type (
	// NodeAdded reports a new node, or one that came back. Evictions, 0..[MaxEvictions], is how many
	// LP pods were evicted from it before, as far as the driver remembers: an engine that has counted
	// more keeps its own count.
	NodeAdded struct {
		Node      Node
		Evictions int
	}
	// NodeChanged reports that a node has other labels, taints, CPU, memory, MaxPods, other
	// resources, or another place in the topology. Model and GPUs must be as before. Devices,
	// Unhealthy and Cordoned are ignored. The pods on the node stay, even where they could not
	// start now. A node with less room than its pods take gets no more pods. Plans that count on
	// the node are given up.
	NodeChanged struct{ Node Node }
	// NodeLost reports that a node and all its pods are gone.
	NodeLost struct{ Node string }
	// NodeCordoned starts or ends keeping new pods off a node. The end also ends what a policy's
	// [Recovery] decided about the node: if it was cordoned for failures, its strikes are forgotten.
	NodeCordoned struct {
		Node     string
		Cordoned bool
	}
	// DeviceHealth reports that a GPU failed or recovered. Pods on a failed GPU keep it until
	// they end.
	DeviceHealth struct {
		Node    string
		GPU     int
		Healthy bool
	}
	// QueueSet adds a queue or changes it. Parents come before children.
	QueueSet struct{ Queue Queue }
	// QueueRemoved removes a queue without children and live jobs.
	QueueRemoved struct{ Queue string }
	// JobSubmitted adds a job; all its pods wait. Apply takes a pointer to it as well, so that
	// drivers that read jobs from files need not copy them.
	JobSubmitted struct{ Job Job }
	// PodRunning reports that a waiting pod runs already: the engine adopts it where it is. A
	// driver sends it when it builds an engine for a cluster that is in use. The pod's GPUs must
	// be free; CPU, memory, pods and other resources of the node need not suffice. Backfilled says
	// that the job started past one that waited. If only a part of a gang is found, the rest of
	// it starts together.
	//
	// A job that must not be evicted must not borrow either. If such a job is found with more
	// than jobs of its kind leave of its queue's nominal quota, it may be evicted like any other
	// job, until it has no place. Which of several jobs lose their protection depends on the
	// order of these events: send them in the order in which the pods started.
	PodRunning struct {
		Job     string
		Pod     int
		Node    string
		GPUs    []int
		Started Time

		Backfilled bool
	}
	// JobSuspended reports that a job, all of whose pods wait, has been suspended since a time by an engine before this one. Pods says by
	// Pod, Node and GPUs alone where each pod has its image, and which GPUs it left. A driver that builds an engine for a cluster in use
	// sends it in place of [PodRunning]; other pods may be on those GPUs. The job resumes there, or is stopped at the time at which the
	// engine before would have stopped it. It is an error if the job cannot be suspended: see [Suspension].
	JobSuspended struct {
		Job   string
		Since Time
		Pods  []Placement
	}
	// PodsAdded reports that pods join a live job, and wait. Task is their role. If the job has a
	// task of the same Name, its Request must be the same; its MinPods, Labels and Affinity stay
	// as they are, and if its MinPods stands for all pods, it stands for those of before. Otherwise
	// the task is new. Task.Pods is ignored. Each number in Pods is that of a pod of the role
	// that ended well or was withdrawn, which is then forgotten, or the next after the job's
	// last.
	//
	// A gang that runs takes the pods in one by one, within the domain that it requires, and
	// goes on until a failure leaves it with fewer pods than its minimum. A gang of which nothing
	// runs starts whole. The job keeps its place in the order. A job that is suspended takes none.
	PodsAdded struct {
		Job  string
		Task Task
		Pods []int
	}
	// PodEnded reports that a pod ended by itself. A pod that failed is started again, together
	// with its gang. A running pod that did not fail is done.
	//
	// Lost says of a pod of a gang that it is gone without having succeeded, and that another one may take its
	// number: it was deleted, or its owner replaces it. Where gangs have a grace period (see
	// [RequeuePolicy.StaleGrace]), it is no member of its gang from then on; elsewhere it counts as done.
	//
	// A waiting pod that ends without having failed is withdrawn. If a place is kept for it, an
	// identical waiting pod of the job gets that place; without one, the place is given up, and if
	// the pod's gang has not started, so are all places of the gang. A withdrawn pod is no member
	// of its gang: with fewer members than its minimum, a gang does not start, and does not hold
	// up other jobs.
	PodEnded struct {
		Job    string
		Pod    int
		Failed bool
		Lost   bool
	}
	// GangStale reports that a gang which was found running has had fewer pods than its minimum since a time:
	// its grace period began then. A driver that builds an engine for a cluster in use sends it after the
	// [PodRunning] of the gang's pods. It changes nothing if the gang has its minimum, or no grace period.
	GangStale struct {
		Job   string
		Since Time
	}
	// PodsGone reports that evicted pods have left their nodes, or that suspended ones have given up their GPUs. Nil Pods means all pods that a
	// decision evicted or stopped.
	PodsGone struct {
		Job  string
		Pods []int
	}
	// BindFailed reports that a pod could not be bound or started on its node. Its gang waits
	// again as a whole, in its old place.
	BindFailed struct {
		Job string
		Pod int
	}
	// MoveRequested asks for a running pod to be moved to a node, or, if Node is empty, to
	// the other node where it fits best. The next pass decides it as [Migrate]. It is an error
	// if the pod must not be moved (see [Mobility]) or cannot be: no room there, another GPU
	// model, its selectors, tolerations or affinities, the domain that its job requires.
	MoveRequested struct {
		Job  string
		Pod  int
		Node string
	}
	// RestartRequested asks for running pods to stop, and to start again elsewhere: each on the node at
	// its place in Nodes or, if that is empty or Nodes is nil, on the other node where it fits best.
	// Pods of a gang that are not named stop too, and come back to their places. The next pass keeps a
	// place for each pod, and decides [Evict] for the reason [Requested]. It is an error if the
	// job is locked, foreign or disruption-protected, if not all of its pods run, if it has
	// affinities, or if a pod has no place on its GPU model, in the domain that its job requires.
	// The driver asks the owner of the job for permission: neither [Mobility] nor NeverRestarts counts.
	RestartRequested struct {
		Job   string
		Pods  []int
		Nodes []string
	}
	// PodMoved reports that a [Migrate] ended well: the instance at the new place is ready and
	// the one at the old place has gone.
	PodMoved struct {
		Job string
		Pod int
	}
	// MoveFailed reports that the new place of a [Migrate] is given up, and that no instance of
	// the pod is left there. The pod runs on at its old place.
	MoveFailed struct {
		Job string
		Pod int
	}
	// StandbyBegan reports that running pods of an HP job are on standby until a time: they
	// do not use their GPUs, and keep CPUMilli and MemMiB each of what they requested (or less, if
	// they requested less). LP jobs may use the rest meanwhile. Nil Pods means all running pods
	// with GPUs. Each must have whole GPUs, and not be on its way to another node. Of a pod that is
	// on standby already, only the time changes. Pods that are found on lent GPUs ([PodRunning])
	// come after this event.
	StandbyBegan struct {
		Job              string
		Pods             []int
		Until            Time
		CPUMilli, MemMiB int64
	}
	// StandbyEnded asks for pods on standby to go on before their time. The engine evicts what
	// uses their GPUs, and then decides [Resume]. Nil Pods means all pods on standby.
	StandbyEnded struct {
		Job  string
		Pods []int
	}
	// JobDiagnosed reports why a job failed, as its log and the history of its nodes say. It may come before the [PodEnded] of the pod that
	// failed, or after it, and before the job comes back that its owner starts again under its name. Class names what failed, such as
	// "infrastructure/gpu". Suspects are the nodes to which it points; those that the engine does not know do not count.
	// Confidence is 0..1000. At is when it failed, 0: now. If the job has not started since the failure before, it is the same failure. See [Recovery].
	JobDiagnosed struct {
		Job, Class string
		At         Time
		Suspects   []string
		Confidence int64
		Remedy     Remedy
	}
	// JobReleased ends the hold of a job, or what it avoids, and forgets its failures: the owner removed the cause. The job may be over, and come back.
	JobReleased struct{ Job string }
	// NodeTested reports the outcome of a test of a node.
	NodeTested struct {
		Node   string
		Passed bool
	}
	// FailuresFound reports what an engine before this one decided about failures, as [Engine.Failures] says it: it counts as if this one had. Nodes that
	// the engine does not know do not count, so it comes after them, and before the jobs.
	FailuresFound struct {
		Jobs  []FailedJob
		Nodes []SuspectNode
	}
	// JobEnded reports that a job is over, for whatever reason, and that all its pods have left
	// their nodes.
	JobEnded struct{ Job string }
	// JobRelabelled reports that the pods of a live job's task have other labels, those that run
	// too, and other affinities. An empty Task means all tasks. Pods stay where they run, and
	// places that are kept for pods stay kept.
	JobRelabelled struct {
		Job, Task string

		Labels   []string
		Affinity []Term
	}
	// JobShielded reports that a live job is disruption-protected from now on, or no longer: that
	// PodDisruptionBudgets allow no eviction of its pods. Such a job is not chosen to make room
	// for jobs of higher priority or for those that it overtook. What it borrowed is still
	// reclaimed, after what others borrowed. Pods that are leaving already go on leaving.
	JobShielded struct {
		Job      string
		Shielded bool
	}
	// JobEstimated reports a new estimate of a job's whole run time.
	JobEstimated struct {
		Job      string
		Estimate Time
	}
	// JobMeasured reports how fast a job with alternatives would be as each of its tasks: Goodputs are by task, in whatever unit, and 0
	// means that it is not to run so. Restart is how long a restart is expected to take. The job keeps what it runs on until the time Until, as
	// it has just started there. It replaces what was reported before.
	JobMeasured struct {
		Job            string
		Goodputs       []int64
		Restart, Until Time
	}
	// JobSlowed reports that a job that shares its GPUs runs at so much of the throughput that it had before, in thousandths.
	// The driver measures over several tens of steps after the other job's start (SchedMate §4.1). Of a job
	// that shares no GPUs any longer it changes nothing.
	JobSlowed struct {
		Job   string
		Share int64
	}
	// Checkpointed reports that a job saved its progress at At, which is not later than now; 0
	// means now. A report of an earlier time than the last changes nothing.
	Checkpointed struct {
		Job string
		At  Time
	}
	// GPUTimeCounted reports what queues and live jobs had received and deserved by At, as [Engine.QueueTimes] and [Engine.JobTime]
	// of an engine before this one said. It replaces what the engine has counted for them. Nothing is received or deserved between At and now, but
	// amounts of queues decay. It is an error if a queue or a job is unknown. Under policies other than
	// [LongTermFairness] it changes nothing.
	GPUTimeCounted struct {
		At     Time
		Queues []QueueTime
		Jobs   []JobTime
	}
	// Tick answers a Wake decision.
	Tick struct{}
)

func (NodeAdded) event()        {}
func (NodeChanged) event()      {}
func (NodeLost) event()         {}
func (NodeCordoned) event()     {}
func (DeviceHealth) event()     {}
func (QueueSet) event()         {}
func (QueueRemoved) event()     {}
func (JobSubmitted) event()     {}
func (PodRunning) event()       {}
func (JobSuspended) event()     {}
func (PodsAdded) event()        {}
func (PodEnded) event()         {}
func (GangStale) event()        {}
func (PodsGone) event()         {}
func (BindFailed) event()       {}
func (MoveRequested) event()    {}
func (RestartRequested) event() {}
func (PodMoved) event()         {}
func (MoveFailed) event()       {}
func (StandbyBegan) event()     {}
func (StandbyEnded) event()     {}
func (JobDiagnosed) event()     {}
func (JobReleased) event()      {}
func (NodeTested) event()       {}
func (FailuresFound) event()    {}
func (JobEnded) event()         {}
func (JobRelabelled) event()    {}
func (JobShielded) event()      {}
func (JobEstimated) event()     {}
func (JobMeasured) event()      {}
func (JobSlowed) event()        {}
func (Checkpointed) event()     {}
func (GPUTimeCounted) event()   {}
func (Tick) event()             {}
