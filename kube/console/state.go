package console

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/exclude"
	"github.com/muster-sched/muster/kube/tables"
)

// State is the state of a job, in the letters of Slurm.
type State string

// The states, in the order in which lists have them.
const (
	// Pending: its pods wait for a place.
	Pending State = "PD"
	// Requeued: it ran or started, had to stop, and waits again.
	Requeued State = "RQ"
	// Running: at least one of its pods is on a node and stays there.
	Running State = "R"
	// Suspended: its owner makes no pods until it is resumed.
	Suspended State = "S"
	// Completing: its last pods were told to leave and are still on their nodes.
	Completing State = "CG"
	// Preempted: as Completing, or over, for another job's good.
	Preempted State = "PR"
	// Completed: all pods ended well.
	Completed State = "CD"
	// Failed: a pod failed.
	Failed State = "F"
	// TimedOut: it ran longer than it may.
	TimedOut State = "TO"
	// NodeFailed: it ended because a node was lost.
	NodeFailed State = "NF"
	// Cancelled: it was deleted before it ran.
	Cancelled State = "CA"
)

// states has the states in their order, and their names in full.
var states = []struct {
	State
	name string
	// over says that all pods of such a job ended.
	over bool
}{
	{Pending, "PENDING", false},
	{Requeued, "REQUEUED", false},
	{Running, "RUNNING", false},
	{Suspended, "SUSPENDED", false},
	{Completing, "COMPLETING", false},
	{Preempted, "PREEMPTED", false},
	{Completed, "COMPLETED", true},
	{Failed, "FAILED", true},
	{TimedOut, "TIMEOUT", true},
	{NodeFailed, "NODE_FAIL", true},
	{Cancelled, "CANCELLED", true},
}

func (s State) rank() int {
	for i := range states {
		if states[i].State == s {
			return i
		}
	}
	return len(states)
}

// name is the state in words.
func (s State) name() string {
	if i := s.rank(); i < len(states) {
		return strings.ToLower(strings.ReplaceAll(states[i].name, "_", " "))
	}
	return string(s)
}

// ParseStates reads a list such as "PD,R" or "pending,running"; "all" is all of
// them.
func ParseStates(list []string) ([]State, error) {
	var out []State
	for _, word := range list {
		before := len(out)
		for i := range states {
			if s := &states[i]; strings.EqualFold(word, string(s.State)) || strings.EqualFold(word, s.name) || strings.EqualFold(word, "all") {
				out = append(out, s.State)
			}
		}
		if len(out) == before {
			return nil, fmt.Errorf("expected states such as %s, or all; found %q", StateLetters(), word)
		}
	}
	return out, nil
}

// StateLetters lists the states, for help texts.
func StateLetters() string {
	var all []string
	for i := range states {
		all = append(all, string(states[i].State))
	}
	return strings.Join(all, ", ")
}

// over reports whether jobs that ended may be in any of the states.
func over(list []State) bool {
	return slices.ContainsFunc(list, func(s State) bool { return s == Preempted || s.rank() < len(states) && states[s.rank()].over })
}

// Reasons for which a job waits that neither the engine nor the scheduler
// gives: they are found here.
const (
	// NotSeen: no scheduler has said anything about the pods yet.
	NotSeen = "NotSeen"
	// Gated: the pods have scheduling gates that others must take away.
	Gated = "Gated"
	// NotCreated: the API refuses the pods that the owner wants to create.
	NotCreated = "NotCreated"
	// SuspendedByOwner: the owner was told to make no pods.
	SuspendedByOwner = "Suspended"
)

// Reason describes a reason to wait for users.
type Reason struct {
	// Name is the typed reason, as conditions have it.
	Name string
	// Code is the closest short code of Slurm.
	Code string
	// Change is what would have to change.
	Change string
}

// Reasons has every reason for which a job may wait.
var Reasons = func() []Reason {
	var all []Reason
	add := func(code string, reasons ...core.Reason) {
		for _, r := range reasons {
			all = append(all, Reason{r.String(), code, r.Advice()})
		}
	}
	add("QOSGrpGRES", core.QuotaExceeded, core.MustNotBorrow, core.MinRuntime)
	add("QOSMaxGRESPerJob", core.ExceedsQuota)
	add("BadConstraints", core.NoNode)
	add("Resources", core.Resources, core.Stranded, core.InsufficientCPU, core.InsufficientMemory, core.InsufficientPods, core.InsufficientOther, core.GPUSharing, core.InsufficientDevices, core.TopologyTooTight, core.Victims)
	add("ReqNodeNotAvail", core.Affinity)
	add("QOSResourceLimit", core.MaxRunning)
	add("Priority", core.HeldBack)
	add("BeginTime", core.BackOff, core.HPExpected)
	add("Cleaning", core.MemberLost)
	return append(all,
		Reason{tables.ReasonCollecting, "Dependency", "The rest of the gang's pods must be created, without scheduling gates of other controllers."},
		Reason{tables.ReasonPodGroupNotFound, "Dependency", "The PodGroup that its pods name must be created."},
		Reason{tables.ReasonGangUnknown, "Dependency", "The object that defines the size of the gang must exist, and the scheduler must have permission to read it."},
		Reason{tables.ReasonDependency, "Dependency", "The jobs after which it starts must end, as its annotation muster.sh/dependency says."},
		Reason{tables.ReasonDependencyNever, "DependencyNeverSatisfied", "It never starts: the job after which it starts did not end as its annotation muster.sh/dependency says. Delete it, or change the annotation."},
		Reason{tables.ReasonClaimPending, "Dependency", "Its ResourceClaims and their device classes must exist, nodes must publish such devices, and a claim must be free."},
		Reason{tables.ReasonVolume, "Dependency", "Its PersistentVolumeClaims must exist and be bound, or have a storage class that binds them once a node is chosen."},
		Reason{tables.ReasonQueueNotFound, "InvalidQOS", "The queue must be created, or the job must name another."},
		Reason{tables.ReasonQueueForbidden, "QOSNotAllowed", "The queue's namespaceSelector must admit the namespace, or the job must name another queue."},
		Reason{tables.ReasonPriorityClassNotFound, "InvalidQOS", "The PriorityClass must be created, or the job must name another."},
		Reason{tables.ReasonPriorityClassForbidden, "QOSNotAllowed", "The queue's priorityClasses must list the PriorityClass, or the job must name another. A label or annotation cannot name a class that begins with system-."},
		Reason{tables.ReasonJobForbidden, "QOSNotAllowed", "The queue must accept such jobs (classes, kinds, maxWalltime, protection), or the job must name another queue."},
		Reason{tables.ReasonTooComplex, "BadConstraints", "The pods must have fewer labels, terms or the like, as the message says, or the job must be divided."},
		Reason{tables.ReasonMisconfigured, "BadConstraints", "The label, annotation or field must be corrected, and the job must be submitted again."},
		Reason{tables.ReasonQuarantined, "BadConstraints", "The scheduler failed while it processed the job, which is a bug in Muster: see its log. The job must change, or be created again."},
		Reason{Gated, "JobHeldUser", "The controllers that set the scheduling gates must remove them."},
		Reason{NotCreated, "BadConstraints", "What the API refuses must be corrected: create the PriorityClass that it names, or raise the ResourceQuota; or delete the job and submit another."},
		Reason{SuspendedByOwner, "JobHeldUser", "Its owner must be resumed: set spec.suspend to false."},
		Reason{NotSeen, "None", "Nothing, if the job has just been created. Otherwise check that the scheduler runs: kubectl -n muster-system get pods."},
	)
}()

// reasonOf finds a reason by name. One that is not known, of a later version,
// is its own code.
func reasonOf(name string) Reason {
	for _, r := range Reasons {
		if r.Name == name {
			return r
		}
	}
	return Reason{Name: name, Code: name}
}

// change says what would have to change for a job to start.
func (j *Job) change() string {
	if j.Reason == core.NoNode.String() {
		if advice := exclude.Advice(j.Detail); advice != "" {
			return advice
		}
	}
	return reasonOf(j.Reason).Change
}
