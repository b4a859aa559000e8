package tables

import (
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/translate"
)

// Reasons for which a job waits before the engine knows it. The engine's own
// are [core.Reason].
const (
	// ReasonCollecting: the gang has fewer pods than it needs.
	ReasonCollecting = "Collecting"
	// ReasonPodGroupNotFound: the PodGroup that the pod names does not exist.
	ReasonPodGroupNotFound = "PodGroupNotFound"
	// ReasonQueueNotFound: the queue does not exist, or is not ready.
	ReasonQueueNotFound = "QueueNotFound"
	// ReasonQueueForbidden: the namespace cannot use the queue.
	ReasonQueueForbidden = "QueueForbidden"
	// ReasonJobForbidden: the queue does not accept jobs of that class or kind, so long, or that
	// are locked or not preemptible.
	ReasonJobForbidden = "JobForbidden"
	// ReasonPriorityClassNotFound: the PriorityClass that the job names does not exist.
	ReasonPriorityClassNotFound = "PriorityClassNotFound"
	// ReasonPriorityClassForbidden: the job must not use the PriorityClass that it names,
	// in its namespace or in its queue.
	ReasonPriorityClassForbidden = "PriorityClassForbidden"
	// ReasonMisconfigured: a label, annotation or field is not as expected.
	ReasonMisconfigured = devices.ReasonMisconfigured
	// ReasonTooComplex: a pod has too many terms, labels or the like, the job has pods of
	// too many kinds, or the namespace has too many different selectors in its claims.
	ReasonTooComplex = devices.ReasonTooComplex
	// ReasonGangUnknown: the object that defines the size of the gang cannot be read.
	ReasonGangUnknown = "GangUnknown"
	// ReasonDependency: jobs after which the job starts have not ended; ReasonDependencyNever: they
	// ended otherwise than it asked for.
	ReasonDependency      = "Dependency"
	ReasonDependencyNever = "DependencyNeverSatisfied"
)

// ReasonClaimPending is why a pod waits whose resource claim does not exist or is not free.
const ReasonClaimPending = devices.ReasonClaimPending

// ReasonVolume is why a pod waits whose volumes are not ready.
const ReasonVolume = "VolumeNotReady"

// ReasonQuarantined is why a job waits on which the scheduler failed.
const ReasonQuarantined = "Quarantined"

// Reasons of the Warning events of a pod that runs.
const (
	// ChangeIgnored: labels or annotations were changed that count as they were
	// when the pod was bound.
	ChangeIgnored = "ChangeIgnored"
	// DevicesNotAsAnnotated: it does not have the GPUs that its annotation names; others are
	// booked for it.
	DevicesNotAsAnnotated = "DevicesNotAsAnnotated"
	// GPUsOvercommitted: it has more GPUs than its node has left.
	GPUsOvercommitted = "GPUsOvercommitted"
)

// UnknownKey is the reason of the event of a pod that has a label or annotation, or whose
// PodGroup or owner has one, that begins as Muster's do and is none of them.
const UnknownKey = "UnknownKey"

// NotPausable is the reason of the event of a pod that says how its processes can be paused, and whose processes will not be.
const NotPausable = "NotPausable"

// WantsRoom reports whether a job waits for room on nodes.
func WantsRoom(why core.Reason) bool {
	switch why {
	case core.Resources, core.Stranded, core.InsufficientCPU, core.InsufficientMemory, core.InsufficientPods, core.InsufficientOther,
		core.GPUSharing, core.InsufficientDevices, core.TopologyTooTight, core.Affinity:
		return true
	}
	return false
}

// Unschedulable reports whether more nodes could help a job that waits for a reason:
// autoscalers make room for pods that are Unschedulable.
func Unschedulable(reason string) bool {
	switch reason {
	case core.Resources.String(), core.Stranded.String(), core.InsufficientCPU.String(), core.InsufficientMemory.String(), core.InsufficientPods.String(),
		core.InsufficientOther.String(), core.GPUSharing.String(), core.InsufficientDevices.String(), core.NoNode.String(), core.TopologyTooTight.String(), core.Affinity.String():
		return true
	}
	return false
}

// QuotaShort reports whether a job waits for quota.
func QuotaShort(reason string) bool {
	return slices.Contains([]string{core.QuotaExceeded.String(), core.MinRuntime.String(), core.ExceedsQuota.String(), core.MustNotBorrow.String()}, reason)
}

// NearestPlaces is the part of a message that says what would free the nearest places for a
// job; empty for none.
func NearestPlaces(list []frag.Finding) string {
	text, mark := "", translate.NearestMark
	for _, f := range list {
		text += mark + f.Advice()
		mark = translate.NearestSeparator
	}
	return text
}
