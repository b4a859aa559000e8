package tables

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
)

// NotPaused is why pods leave that were to be paused and could not, or that were and could not go on.
const NotPaused = v1alpha1.PausedNot

// Pause is the pause of a pod's processes, for which the engine suspended the pod's job.
type Pause struct {
	// Phase is one of the reasons of the condition: Pausing, Paused or Resuming.
	Phase string
	// Since is when it was decided.
	Since core.Time
	// GPUs are those that the pod left, or is about to leave.
	GPUs uint64
	// For is the job for which it left; empty where that is not known. Reason is the engine's.
	For, Reason string
	// Lead is the pod of the job whose condition says first that it goes on, and last that it is paused; empty for a job of one pod.
	Lead types.UID
	// Asked says that the engine of now decided it. One that was built since counts a pod that is being paused as running.
	Asked bool
}

// Paused reports whether others may be on the pod's GPUs.
func (p *Pod) Paused() bool {
	if p.Pause != nil {
		return p.Pause.Phase == v1alpha1.PausedPaused
	}
	if !p.saysPaused() {
		return false
	}
	if had := p.Object.Pause.Had; had != nil && p.Group != nil {
		if lead := p.Group.Pods[had.Lead]; lead != nil {
			return lead.saysPaused() // until it says so, the engine was not told that the GPUs are free
		}
	}
	return true
}

func (p *Pod) saysPaused() bool {
	return p.Object.Pause != nil && p.Object.Pause.Reason == v1alpha1.PausedPaused
}

// Paused reports whether the engine has the group's job suspended, or suspends it.
func (g *Group) Paused() bool {
	for _, p := range g.Pods {
		if p.Paused() || p.Pause != nil && p.Pause.Phase == v1alpha1.PausedPausing {
			return true
		}
	}
	return false
}

// FoundPaused returns the pods of a group whose processes are paused, and what a new engine is told of them; false for none.
func (g *Group) FoundPaused() (list []*Pod, ev core.JobSuspended, ok bool) {
	list = InOrder(g.Pods, func(p *Pod) bool { return p.Slot >= 0 && p.State == PodBound && p.Paused() })
	ev.Job = g.Job
	for _, p := range list {
		at := core.Placement{Pod: p.Slot, Node: p.Target}
		if p.Pause != nil {
			ev.Since, at.GPUs = p.Pause.Since, p.Pause.GPUs
		} else {
			ev.Since, at.GPUs = objects.TimeOf(p.Object.Pause.Since), p.Object.Pause.GPUs
		}
		ev.Pods = append(ev.Pods, at)
	}
	return list, ev, len(list) > 0
}

// SuspensionOf returns what it takes to suspend the job of a group, of which one pod speaks: the zero value if it cannot be, else the most
// that a pod of it says or, better, that was measured.
func (t *Tables) SuspensionOf(g *Group, p *Pod) core.Suspension {
	if t.NotPausable(g, p) != "" || g.ID.Kind == Foreign {
		return core.Suspension{}
	}
	var s core.Suspension
	for _, p := range g.Pods {
		x := p.Object.Pausable
		if x.HostMemMiB == 0 || p.Object.NotPausable != "" {
			return core.Suspension{}
		}
		if p.Measured.Pause > 0 {
			x.Pause = p.Measured.Pause
		}
		if p.Measured.Resume > 0 {
			x.Resume = p.Measured.Resume
		}
		s.Pause, s.Resume, s.HostMemMiB = max(s.Pause, x.Pause), max(s.Resume, x.Resume), max(s.HostMemMiB, x.HostMemMiB)
	}
	return s
}

// NotPausable says why a pod that says how its processes can be paused is evicted all the same where others need its GPUs; empty
// for a pod that may be paused, or says nothing of it. See [Group.NotPausable] for the other pods of a gang.
func (t *Tables) NotPausable(g *Group, p *Pod) string {
	switch {
	case p.Object.Pausable.HostMemMiB == 0:
		return ""
	case len(g.Pods) > 1 && !g.Gang():
		return "its job has several pods that are no gang: expected a gang, or one pod"
	case t.Shards.Several():
		return "several instances of the scheduler share the cluster: expected one"
	}
	return p.Object.NotPausable
}

// NotPausable says which pod of a gang cannot be paused, the first by name, if others say that they can; empty for none. Pods of a gang
// are paused together.
func (g *Group) NotPausable() string {
	if !g.Gang() {
		return ""
	}
	some := false
	var first *objects.Pod
	for _, p := range g.Pods {
		o := p.Object
		some = some || o.Pausable.HostMemMiB > 0
		if o.Pausable.HostMemMiB > 0 && o.NotPausable == "" {
			continue
		}
		if first == nil || cmp.Or(cmp.Compare(len(o.Name), len(first.Name)), cmp.Compare(o.Name, first.Name)) < 0 {
			first = o
		}
	}
	switch {
	case !some || first == nil:
		return ""
	case first.NotPausable != "":
		return fmt.Sprintf("the pods of a gang are paused together, and pod %s cannot be: %s", first.Name, first.NotPausable)
	}
	return fmt.Sprintf("the pods of a gang are paused together, and pod %s has no %s", first.Name, v1alpha1.PausableAnnotation)
}
