package recovery

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
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

// task is something to write: what follows from a decision or, without one, that a job was released.
type task struct {
	core.Decision
	released bool
	record   string // of the job, for the pod that failed; "" for none
}

// Began notes what the policy says of recovery, and has the pods read that failed while no instance decided.
func (h *Handler) Began(now core.Time, c core.Config) {
	if h.config.Next != nil {
		h.config.Next.Began(now, c)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rests {
		return
	}
	if mode := c.Policy.Recovery.Mode; mode != h.mode {
		// What is not written is not carried out under another mode.
		h.mode, h.own = mode, nil
		clear(h.wishes)
		clear(h.shown)
	}
	h.begun, h.stale = true, true
	if h.mode != core.NoRecovery {
		for _, uid := range slices.SortedFunc(maps.Keys(h.unread), func(a, b types.UID) int {
			return cmp.Or(cmp.Compare(h.unread[a].at, h.unread[b].at), cmp.Compare(a, b))
		}) {
			h.queue(uid, h.unread[uid])
		}
	}
	clear(h.unread)
}

// Told hands on what the engine was told.
func (h *Handler) Told(now core.Time, ev core.Event) {
	if h.config.Next != nil {
		h.config.Next.Told(now, ev)
	}
	switch ev.(type) {
	case core.JobDiagnosed, core.JobReleased, core.NodeTested, core.NodeCordoned, core.NodeLost:
		h.mu.Lock()
		h.stale = true
		h.mu.Unlock()
	}
}

// Decided queues decisions about failures, to be carried out. What is held against nodes is written before owners are told.
func (h *Handler) Decided(now core.Time, ds []core.Decision, e core.Counter) {
	if h.config.Next != nil {
		h.config.Next.Decided(now, ds, e)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mode == core.NoRecovery || !h.stale && !slices.ContainsFunc(ds, func(d core.Decision) bool { return handled(&d) }) {
		return
	}
	h.stale = false
	h.sync(e.Failures())
	for i := range ds {
		if !handled(&ds[i]) {
			continue
		}
		t := task{Decision: core.Decision{Op: ds[i].Op, Job: ds[i].Job, Node: ds[i].Node, Reason: ds[i].Reason, Detail: ds[i].Detail}}
		if k := slices.IndexFunc(h.own.Jobs, func(j core.FailedJob) bool { return j.Job == t.Job }); t.Job != "" && k >= 0 {
			t.record = textOf(&h.own.Jobs[k], now)
		}
		if t.Op == core.Hold && !dry(&t.Decision) && h.held[t.Job] == nil {
			h.held[t.Job] = &hold{at: wall(now)}
		}
		switch {
		case t.Node == "" || dry(&t.Decision):
		case t.Op == core.Test:
			h.tests[t.Node] = true
			h.wish(t.Node).test = true
		default:
			h.wish(t.Node).closes(t.Op == core.Cordon, t.Detail)
		}
		h.queueTask(t)
	}
}

// handled reports whether a decision is about failures.
func handled(d *core.Decision) bool {
	return d.Op == core.Hold || d.Op == core.Restart || d.Op == core.Cordon || d.Op == core.Uncordon || d.Op == core.Test
}

func (h *Handler) queueTask(t task) {
	select {
	case h.todo <- t:
	default:
		h.config.Log.Warn("too many decisions about failures at once: one is not carried out", "decision", t.Op, "job", t.Job, "node", t.Node, "detail", t.Detail)
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
	jobReleased    = "JobReleased"
	jobRestarts    = "JobRestarts"
	nodeCordoned   = "NodeCordoned"
	nodeUncordoned = "NodeUncordoned"
	nodeTest       = "NodeTest"
	nodeTested     = "NodeTested"
)

// carry carries out a decision, after what is to be written on nodes. Of a dry run it says what it would do.
func (h *Handler) carry(ctx context.Context, t *task) {
	if !h.leads(ctx) {
		return
	}
	h.writeNodes(ctx)
	switch {
	case t.released:
		h.saysReleased(ctx, t.Job)
	case t.Op == core.Hold:
		h.say(ctx, t, v1.EventTypeWarning, jobHeld)
		h.findMakers(ctx, t.Job)
	case t.Op == core.Restart:
		h.say(ctx, t, v1.EventTypeNormal, jobRestarts)
	case t.Op == core.Cordon:
		h.nodeEvent(t, nodeCordoned)
	case t.Op == core.Uncordon:
		h.nodeEvent(t, nodeUncordoned)
	case t.Op == core.Test:
		h.nodeEvent(t, nodeTest)
		h.testNodes(ctx)
	}
}

// say tells the owner of a job what becomes of it: by a condition of the pod that failed, and by events on the pod and on what made it. The pod also
// has what counts of the failures of its job.
func (h *Handler) say(ctx context.Context, t *task, kind, reason string) {
	h.mu.Lock()
	f := h.failed[t.Job]
	h.mu.Unlock()
	if f == nil {
		return // it is held since before this instance: its waiting pods have a condition that says so
	}
	condition := v1.PodCondition{
		Type: v1alpha1.RecoveryCondition, Status: v1.ConditionTrue, Reason: reason, Message: t.Detail, LastTransitionTime: metav1.NewTime(h.config.Now()),
	}
	h.patchPod(ctx, f.Namespace, f.Name, f.uid, map[string]any{v1alpha1.RecoveryAnnotation: t.record}, condition)
	h.config.Events.Event(&f.ObjectReference, kind, reason, t.Detail)
	if f.owner != nil {
		h.config.Events.Event(f.owner, kind, reason, t.Detail)
	}
}

// patchPod writes annotations and a condition of a pod that failed, at once.
func (h *Handler) patchPod(ctx context.Context, namespace, name string, uid types.UID, annotations map[string]any, condition v1.PodCondition) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": uid, "annotations": annotations}, "status": map[string]any{"conditions": []v1.PodCondition{condition}},
	})
	if err == nil {
		_, err = h.config.Client.CoreV1().Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		h.config.Log.Warn("cannot write on a pod what becomes of its job", "namespace", namespace, "pod", name, "error", err)
	}
}

// nodeEvent says why a node is cordoned or uncordoned. Events on a node have its name for a UID, as those of the kubelet: so kubectl describe finds them.
func (h *Handler) nodeEvent(t *task, reason string) {
	h.config.Events.Event(&v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: t.Node, UID: types.UID(t.Node)}, v1.EventTypeWarning, reason, t.Detail)
}

// nodeWish is what is to be written on a node beside its strikes.
type nodeWish struct {
	cordon, uncordon bool
	test, tested     bool // a test begins, or has ended
	why              string
	failed           bool // it could not be written, and the log says so
}

// closes notes that a node is to be cordoned, or uncordoned.
func (w *nodeWish) closes(cordon bool, why string) {
	w.cordon, w.uncordon, w.why = cordon, !cordon, why
}

// writeNodes writes what is held against nodes, by name. What cannot be written is written later: the scheduler itself keeps to it meanwhile.
func (h *Handler) writeNodes(ctx context.Context) {
	if !h.config.Leads() {
		return
	}
	h.mu.Lock()
	names := slices.Sorted(maps.Keys(h.wishes))
	h.mu.Unlock()
	for _, name := range names {
		h.mu.Lock()
		w := h.wishes[name]
		if w == nil {
			h.mu.Unlock()
			continue // another policy
		}
		wish, is := *w, h.shown[name]
		h.mu.Unlock()
		err := h.writeNode(ctx, name, &wish, &is)
		if err != nil && !w.failed && ctx.Err() == nil {
			h.config.Log.Warn("cannot write on a node what failures say about it: it is tried again", "node", name, "cordon", wish.cordon, "error", err)
		}
		h.mu.Lock()
		switch {
		case h.wishes[name] != w: // another policy
		case err != nil:
			w.failed = true
		case w.cordon == wish.cordon && w.uncordon == wish.uncordon && w.test == wish.test && w.tested == wish.tested && slices.Equal(h.shown[name].Strikes, is.Strikes):
			delete(h.wishes, name)
		}
		h.mu.Unlock()
	}
}

// writeNode writes the strikes of a node, and cordons or uncordons it. A node that a person cordoned in the meantime stays as it is.
func (h *Handler) writeNode(ctx context.Context, name string, w *nodeWish, is *core.SuspectNode) error {
	n, err := h.config.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	notes, spec := map[string]any{}, map[string]any{}
	if text := strikesText(is.Strikes); text == "" && n.Annotations[v1alpha1.StrikesAnnotation] != "" {
		notes[v1alpha1.StrikesAnnotation] = nil
	} else if text != n.Annotations[v1alpha1.StrikesAnnotation] {
		notes[v1alpha1.StrikesAnnotation] = text
	}
	_, waits := n.Annotations[v1alpha1.TestAnnotation]
	if w.tested && waits {
		notes[v1alpha1.TestAnnotation] = nil
	} else if w.test && !w.tested && !waits {
		notes[v1alpha1.TestAnnotation] = "wanted"
	}
	_, ours := n.Annotations[v1alpha1.CordonedAnnotation]
	switch {
	case w.cordon && !n.Spec.Unschedulable:
		notes[v1alpha1.CordonedAnnotation], spec["unschedulable"] = w.why, true
	case w.uncordon && ours:
		notes[v1alpha1.CordonedAnnotation], spec["unschedulable"] = nil, false
	case ours && !n.Spec.Unschedulable: // an operator uncordoned it
		notes[v1alpha1.CordonedAnnotation] = nil
	}
	if len(notes)+len(spec) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": n.UID, "annotations": notes}, "spec": spec})
	if err == nil {
		_, err = h.config.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
