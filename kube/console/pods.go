package console

import (
	"context"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/translate"
)

// podPhase is where a pod stands, as far as its job goes.
type podPhase uint8

const (
	waiting   podPhase = iota
	withdrawn          // told to leave before it had a node
	running
	leaving // told to leave, and still on its node
	succeeded
	failed
)

// pod is what is kept of a pod: a cluster has too many to keep them whole.
type pod struct {
	namespace, name string
	member          translate.Membership
	attributes      translate.Attributes
	priority        int32
	gpus            core.Milli // that it asks for
	uid, ownerUID   types.UID
	owner           string // kind/name of what made it, empty when nothing did

	node    string
	devices string // "0,3", where Muster wrote them
	phase   podPhase
	ended   State // of a pod that failed: how
	// created, started (when it was bound) and over are when; the last two are
	// zero when not yet or not known.
	created, started, over time.Time
	deadline               time.Time // by when a pod that is told to leave is gone

	reason, detail string // why it waits
	since          time.Time
	gated          bool
	disrupted      string // why it was told to leave, if it was evicted
	// moving says that it is to leave a node that is drained, and what it waits
	// for; empty otherwise.
	moving    string
	container string // whose log is the pod's
	restarted bool   // it has ended at least once
	active    bool   // it runs now
	exit      int32  // the exit code of the container of a pod that failed, 0 if it is not known
	how       string // and the reason, such as OOMKilled
	estimate  string // how long its job is expected to run, and why
	// standby says why and until when others may use its GPUs; empty while they may not.
	standby string
	// paused says so of one whose processes are paused; empty for others.
	paused string
}

// ours selects the pods that Muster schedules.
const ours = "spec.schedulerName=" + v1alpha1.SchedulerName

// listPods calls each with what is kept of every pod that the selector of
// fields picks, in all namespaces when namespace is empty.
func (c *Client) listPods(ctx context.Context, namespace, fields string, reset func(), each func(*v1.Pod)) error {
	err := pages(ctx, metav1.ListOptions{FieldSelector: fields}, c.kube.CoreV1().Pods(namespace).List, reset, func(l *v1.PodList) {
		for i := range l.Items {
			each(&l.Items[i])
		}
	})
	if namespace == "" {
		return c.say("list the pods of all namespaces", err)
	}
	return c.say("list the pods of namespace "+namespace, err)
}

// trim keeps what is needed of a pod.
func trim(p *v1.Pod) pod {
	out := pod{
		namespace: p.Namespace, name: p.Name, node: p.Spec.NodeName, devices: p.Annotations[v1alpha1.GPUsAnnotation],
		created: p.CreationTimestamp.Time, uid: p.UID,
	}
	_ = out.attributes.Read(p) // what is wrong, the scheduler says in the condition
	owner := translate.ControllerOf(p)
	if m := translate.MoveOf(p); m.Active() {
		// To the scheduler it is on its own; to people it is still its owner's.
		out.moving = "its owner creates a replacement first"
		own := *p
		own.OwnerReferences, own.Annotations = []metav1.OwnerReference{*owner}, maps.Clone(p.Annotations)
		delete(own.Annotations, v1alpha1.MovingAnnotation)
		p = &own
	}
	out.member = translate.MembershipOf(p, &out.attributes)
	out.gpus = gpusOf(p, &out.attributes)
	if p.Spec.Priority != nil {
		out.priority = *p.Spec.Priority
	}
	if owner != nil {
		out.owner = translate.Group{Kind: translate.OwnerKind(owner.APIVersion, owner.Kind), Name: owner.Name}.String()
		out.ownerUID = owner.UID
	}
	for _, g := range p.Spec.SchedulingGates {
		out.gated = out.gated || g.Name != v1alpha1.QuotaGate
	}
	out.container, out.restarted, out.active = logOf(p)
	var disruption *v1.PodCondition
	for i := range p.Status.Conditions {
		switch k := &p.Status.Conditions[i]; {
		case k.Type == v1.PodScheduled && k.Status == v1.ConditionTrue:
			out.started = k.LastTransitionTime.Time
		case k.Type == v1alpha1.WaitingCondition && k.Status == v1.ConditionTrue:
			out.reason, out.detail, out.since = k.Reason, k.Message, k.LastTransitionTime.Time
		case k.Type == v1alpha1.MovingCondition && k.Status == v1.ConditionTrue:
			out.moving = k.Message
		case k.Type == v1alpha1.EstimateCondition && k.Status == v1.ConditionTrue:
			out.estimate = k.Message
		case k.Type == v1alpha1.StandbyCondition && k.Status == v1.ConditionTrue:
			out.standby = k.Reason + ": " + objects.WithoutPlace(k.Message)
		case k.Type == v1alpha1.PausedCondition && k.Status == v1.ConditionTrue:
			out.paused = objects.WithoutPlace(k.Message)
		case k.Type == v1.DisruptionTarget && k.Status == v1.ConditionTrue:
			disruption = k
			out.disrupted = k.Reason + ": " + k.Message
		}
	}
	if p.DeletionTimestamp != nil {
		out.deadline = p.DeletionTimestamp.Time
	}
	switch deleted := p.DeletionTimestamp != nil; {
	case p.Status.Phase == v1.PodSucceeded:
		out.phase = succeeded
	case p.Status.Phase == v1.PodFailed:
		out.phase, out.ended = failed, howFailed(p, disruption)
		out.exit, out.how = exitOf(p)
	case deleted && out.node == "":
		out.phase = withdrawn
	case deleted:
		out.phase = leaving
		if disruption != nil && disruption.Reason == v1alpha1.PreemptionReason {
			out.ended = Preempted
		}
	case out.node != "":
		out.phase = running
	}
	if out.phase != running {
		out.moving, out.standby, out.paused = "", "", ""
	}
	if out.phase >= succeeded {
		out.over = endOf(p)
	}
	return out
}

// gpusOf is how many GPUs a pod asks for, or has by claims.
func gpusOf(p *v1.Pod, a *translate.Attributes) core.Milli {
	if a.Fraction > 0 {
		return a.Fraction
	}
	if a.GPUCount > 0 {
		return core.Milli(a.GPUCount) * core.WholeGPU
	}
	if a.GPUMemory > 0 { // which part that is, is known once it has a node
		return part(p)
	}
	n := int(translate.Requests(p).GPUs)
	if n == 0 && len(p.Spec.ResourceClaims) > 0 { // those that its claims have, once it has a node
		devices, _ := translate.ParseDevices(p.Annotations[v1alpha1.GPUsAnnotation])
		n = len(devices)
	}
	return core.Milli(n) * core.WholeGPU
}

// howFailed says how a pod that failed did.
func howFailed(p *v1.Pod, disruption *v1.PodCondition) State {
	switch {
	case p.Status.Reason == "DeadlineExceeded":
		return TimedOut
	case p.Status.Reason == "NodeLost" || p.Status.Reason == "NodeShutdown" || p.Status.Reason == "Shutdown":
		return NodeFailed
	case disruption == nil:
		return Failed
	case disruption.Reason == v1alpha1.PreemptionReason:
		return Preempted
	case disruption.Reason == "DeletionByPodGC" || disruption.Reason == "DeletionByTaintManager" || disruption.Reason == v1.PodReasonTerminationByKubelet:
		return NodeFailed
	}
	return Failed
}

// exitOf is the exit code of the first container that failed, and the reason that the kubelet gives.
func exitOf(p *v1.Pod) (code int32, how string) {
	var at time.Time
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			if t := list[i].State.Terminated; t != nil && t.ExitCode != 0 && (code == 0 || t.FinishedAt.Time.Before(at)) {
				code, how, at = t.ExitCode, t.Reason, t.FinishedAt.Time
			}
		}
	}
	return code, how
}

// endOf is when the last container of a pod ended, zero when unknown.
func endOf(p *v1.Pod) time.Time {
	var end time.Time
	for i := range p.Status.ContainerStatuses {
		if t := p.Status.ContainerStatuses[i].State.Terminated; t != nil && t.FinishedAt.After(end) {
			end = t.FinishedAt.Time
		}
	}
	return end
}
