package recovery

import (
	"context"
	"encoding/json"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// The handler is the recorder of the mirror, so that it knows the policy and sees every decision.

// Began notes what the policy says of recovery.
func (h *Handler) Began(now core.Time, c core.Config) {
	if h.config.Next != nil {
		h.config.Next.Began(now, c)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mode = c.Policy.Recovery.Mode
	clear(h.held) // a new engine holds no job
}

// Told hands on what the engine was told.
func (h *Handler) Told(now core.Time, ev core.Event) {
	if h.config.Next != nil {
		h.config.Next.Told(now, ev)
	}
}

// Decided queues decisions about failures, to be carried out.
func (h *Handler) Decided(now core.Time, ds []core.Decision, e core.Counter) {
	if h.config.Next != nil {
		h.config.Next.Decided(now, ds, e)
	}
	for i := range ds {
		d := core.Decision{Op: ds[i].Op, Job: ds[i].Job, Node: ds[i].Node, Reason: ds[i].Reason, Detail: ds[i].Detail}
		switch d.Op {
		case core.Hold, core.Restart, core.Cordon, core.Uncordon:
		default:
			continue
		}
		h.noteHeld(&d)
		select {
		case h.todo <- d:
		default:
			h.config.Log.Warn("too many decisions about failures at once: one is not carried out", "decision", d.Op, "job", d.Job, "node", d.Node, "detail", d.Detail)
		}
	}
}

// noteHeld remembers who made the pods of a job that is held from now on.
func (h *Handler) noteHeld(d *core.Decision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.failed[d.Job]; d.Op == core.Hold && !dry(d) && p != nil {
		h.held[d.Job] = maker(p)
	}
}

// dry reports whether nothing follows from a decision.
func dry(d *core.Decision) bool { return strings.HasPrefix(d.Detail, core.DryRun) }

// startEvents makes the publisher of events, and returns what ends it.
func (h *Handler) startEvents() func() {
	if h.config.Events != nil {
		return func() {}
	}
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: h.config.Client.CoreV1().Events("")})
	h.config.Events = b.NewRecorder(scheme.Scheme, v1.EventSource{Component: v1alpha1.SchedulerName})
	return b.Shutdown
}

// Reasons of events.
const (
	jobHeld        = "JobHeld"
	jobRestarts    = "JobRestarts"
	nodeCordoned   = "NodeCordoned"
	nodeUncordoned = "NodeUncordoned"
)

// carry carries out a decision. Of a dry run it says what it would do.
func (h *Handler) carry(ctx context.Context, d *core.Decision) {
	switch d.Op {
	case core.Hold:
		h.say(ctx, d, v1.EventTypeWarning, jobHeld)
	case core.Restart:
		h.say(ctx, d, v1.EventTypeNormal, jobRestarts)
	case core.Cordon:
		h.close(ctx, d, true, nodeCordoned)
	case core.Uncordon:
		h.close(ctx, d, false, nodeUncordoned)
	}
}

// say tells the owner of a job what becomes of it: by a condition of the pod that failed, and by events on the pod and on what made it.
func (h *Handler) say(ctx context.Context, d *core.Decision, kind, reason string) {
	h.mu.Lock()
	p := h.failed[d.Job]
	h.mu.Unlock()
	if p == nil {
		return // it is held since before this instance: its waiting pods have a condition that says so
	}
	h.config.Events.Event(p, kind, reason, d.Detail)
	if c := metav1.GetControllerOf(p); c != nil {
		owner := &v1.ObjectReference{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: p.Namespace, Name: c.Name, UID: c.UID}
		h.config.Events.Event(owner, kind, reason, d.Detail)
	}
	condition := v1.PodCondition{
		Type: v1alpha1.RecoveryCondition, Status: v1.ConditionTrue, Reason: reason, Message: d.Detail, LastTransitionTime: metav1.Now(),
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID}, "status": map[string]any{"conditions": []v1.PodCondition{condition}},
	})
	if err == nil {
		_, err = h.config.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		h.config.Log.Warn("cannot write on a pod what becomes of its job", "namespace", p.Namespace, "pod", p.Name, "error", err)
	}
}

// close cordons a node or uncordons it, and says why by an event and an annotation. A node that a person cordoned in the meantime stays as it is.
func (h *Handler) close(ctx context.Context, d *core.Decision, cordon bool, reason string) {
	n, err := h.config.Client.CoreV1().Nodes().Get(ctx, d.Node, metav1.GetOptions{})
	if err != nil {
		if !apierrors.IsNotFound(err) {
			h.config.Log.Warn("cannot read a node to which failures point", "node", d.Node, "error", err)
		}
		return
	}
	_, ours := n.Annotations[v1alpha1.CordonedAnnotation]
	if !dry(d) && (cordon != n.Spec.Unschedulable || !cordon && ours) {
		why := any(d.Detail)
		if !cordon {
			why = nil
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": n.UID, "annotations": map[string]any{v1alpha1.CordonedAnnotation: why}}, "spec": map[string]any{"unschedulable": cordon},
		})
		if err == nil {
			_, err = h.config.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if err != nil {
			h.config.Log.Warn("cannot cordon or uncordon a node to which failures point; the scheduler itself keeps to the decision until it ends", "node", d.Node, "decision", d.Op, "error", err)
		}
	}
	// Events on a node have its name for a UID, as those of the kubelet: so kubectl describe finds them.
	ref := &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: types.UID(n.Name)}
	h.config.Events.Event(ref, v1.EventTypeWarning, reason, d.Detail)
}
