package core

// Event is a fact about the world. Pods are named by their number in the job.
type Event interface{ event() }

type (
	// NodeAdded reports a new node, or one that came back.
	NodeAdded struct{ Node Node }
	// NodeChanged tells that the labels, taints, CPU, memory, most pods, other
	// resources or place in the topology of a node are others. Model and GPUs must be what they were;
	// Devices, Unhealthy and Cordoned are not looked at. Its pods stay, wherever
	// they could not start now; a node with less room than they take gets no more.
	// Places kept on it are given up.
	NodeChanged struct{ Node Node }
	// NodeLost tells that a node is gone with all its pods.
	NodeLost struct{ Node string }
	// NodeCordoned starts or ends keeping new pods off a node.
	NodeCordoned struct {
		Node     string
		Cordoned bool
	}
	// DeviceHealth tells that a GPU failed or recovered. Pods on a failed GPU
	// keep it until they end.
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
	// PodRunning tells that a waiting pod is found running: the engine adopts it
	// where it is. Its GPUs must be free, CPU, memory, pods and other resources
	// of the node may be too few. Drivers send it when they rebuild an engine. Backfilled says that its
	// job started past one that waited. Of a gang that is found in part, the rest
	// starts together. A job that must not borrow, as it may not be evicted, and that is
	// found with more than the others like it leave of its queue's nominal quota, is
	// evicted like any other job, until it has no place. Tell of pods in the order in
	// which they came, and it is the same jobs that lose their protection.
	PodRunning struct {
		Job     string
		Pod     int
		Node    string
		GPUs    []int
		Started Time

		Backfilled bool
	}
	// PodsAdded tells that pods join a live job, and wait. Task is their role:
	// one of the job's of the same Name, whose Request must be the same, or a new
	// one with its MinPods, Labels and Affinity: of a role that is there they stay what
	// they were, and if MinPods is all of its pods, all that it had before. Task.Pods
	// is not looked at. Each number in Pods is that of a pod of the role that ended
	// well or was withdrawn, which is then forgotten, or the next after the job's
	// last. A gang that runs takes them in one by one, within the domain that it
	// requires, and goes on until a failure leaves it with fewer than its minimum; one
	// of which nothing runs starts whole. The job keeps its place in the order.
	PodsAdded struct {
		Job  string
		Task Task
		Pods []int
	}
	// PodEnded tells that a running pod ended by itself. A pod that failed is
	// started again (its gang whole); one that did not is done. A waiting pod that
	// ends without having failed is withdrawn: a place that is kept for it goes to
	// an alike pod that waits, if there is one, else it is given up, with those of
	// its whole gang if that has not begun. A withdrawn pod is no member of its
	// gang, which does not start, and does not hold up other jobs, with less than its minimum.
	PodEnded struct {
		Job    string
		Pod    int
		Failed bool
	}
	// PodsGone tells that evicted pods have left their nodes; nil Pods means
	// all that were asked to leave.
	PodsGone struct {
		Job  string
		Pods []int
	}
	// BindFailed tells that a pod could not be bound or started where it was
	// told to. Its gang is queued again whole, in its old place.
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
	// PodMoved tells how a [Migrate] ended well: the instance at the new place is ready and
	// the one at the old place has gone.
	PodMoved struct {
		Job string
		Pod int
	}
	// MoveFailed tells that the new place of a [Migrate] is given up, and that nothing of the
	// pod is there any more. It runs on at its old place.
	MoveFailed struct {
		Job string
		Pod int
	}
	// JobEnded tells that a job is over, for whatever reason, and that all its
	// pods have left their nodes.
	JobEnded struct{ Job string }
	// JobRelabelled tells that the labels of the pods of a live job's role are
	// others, on those that run too, and so are its affinities; those of all roles
	// where Task is empty. Pods stay where they run, and places that are kept for
	// pods stay kept.
	JobRelabelled struct {
		Job, Task string

		Labels   []string
		Affinity []Term
	}
	// JobShielded tells that a live job must not be chosen to make room for others
	// from now on, as if it were not preemptible, or that it may be again: what
	// preemption of Kubernetes makes of PodDisruptionBudgets. Pods that were told to
	// leave go on leaving.
	JobShielded struct {
		Job      string
		Shielded bool
	}
	// JobEstimated brings a new estimate of a job's whole run time.
	JobEstimated struct {
		Job      string
		Estimate Time
	}
	// Checkpointed tells that a job saved its progress at At, 0 for now, which is
	// not later than now. Reports of earlier times than the last change nothing.
	Checkpointed struct {
		Job string
		At  Time
	}
	// Tick answers a Wake decision.
	Tick struct{}
)

func (NodeAdded) event()     {}
func (NodeChanged) event()   {}
func (NodeLost) event()      {}
func (NodeCordoned) event()  {}
func (DeviceHealth) event()  {}
func (QueueSet) event()      {}
func (QueueRemoved) event()  {}
func (JobSubmitted) event()  {}
func (PodRunning) event()    {}
func (PodsAdded) event()     {}
func (PodEnded) event()      {}
func (PodsGone) event()      {}
func (BindFailed) event()    {}
func (MoveRequested) event() {}
func (PodMoved) event()      {}
func (MoveFailed) event()    {}
func (JobEnded) event()      {}
func (JobRelabelled) event() {}
func (JobShielded) event()   {}
func (JobEstimated) event()  {}
func (Checkpointed) event()  {}
func (Tick) event()          {}
