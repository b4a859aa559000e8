package tables

import (
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
	// Asked says that the engine of now decided it. One that was built since counts a pod that is being paused as running.
	Asked bool
}

// Paused reports whether others may be on the pod's GPUs.
func (p *Pod) Paused() bool {
	if p.Pause != nil {
		return p.Pause.Phase == v1alpha1.PausedPaused
	}
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

// FoundPaused returns what a new engine is told of a pod whose processes are paused; false for others.
func (p *Pod) FoundPaused() (ev core.JobSuspended, ok bool) {
	if !p.Paused() || p.State != PodBound || p.Group == nil {
		return ev, false
	}
	since, gpus := core.Time(0), uint64(0)
	if p.Pause != nil {
		since, gpus = p.Pause.Since, p.Pause.GPUs
	} else {
		since, gpus = objects.TimeOf(p.Object.Pause.Since), p.Object.Pause.GPUs
	}
	return core.JobSuspended{Job: p.Group.Job, Since: since, Pods: []core.Placement{{Pod: p.Slot, Node: p.Target, GPUs: gpus}}}, true
}

// SuspensionOf returns what it takes to suspend the job of a group, of which one pod speaks: the zero value if it cannot be, else as the
// pod says or, better, as it was measured.
func (t *Tables) SuspensionOf(g *Group, p *Pod) core.Suspension {
	s := p.Object.Pausable
	if s.HostMemMiB == 0 || t.NotPausable(g, p) != "" || g.ID.Kind == Foreign {
		return core.Suspension{}
	}
	if p.Measured.Pause > 0 {
		s.Pause = p.Measured.Pause
	}
	if p.Measured.Resume > 0 {
		s.Resume = p.Measured.Resume
	}
	return s
}

// NotPausable says why a pod that says how its processes can be paused is evicted all the same where others need its GPUs; empty
// for a pod that may be paused, or says nothing of it.
func (t *Tables) NotPausable(g *Group, p *Pod) string {
	switch {
	case p.Object.Pausable.HostMemMiB == 0:
		return ""
	case g.Min > 1 || len(g.Pods) > 1:
		return "its job has several pods: expected one"
	case t.Shards.Several():
		return "several instances of the scheduler share the cluster: expected one"
	}
	return p.Object.NotPausable
}
