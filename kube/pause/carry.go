package pause

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/objects"
)

const (
	// slack is how long a pause or a resumption may take beside twice what the pod says.
	slack = 30 * time.Second
	// resizeTime is how long a kubelet may take to resize a pod, and lookPeriod the time between two looks.
	resizeTime = time.Minute
	lookPeriod = 200 * time.Millisecond
	// wayBack bounds what is done for a pod that cannot be paused, and is evicted after that.
	wayBack = 20 * time.Second
	// again is the time between two attempts to let a pod go on.
	again = time.Second
)

// patient is the time for an operation that takes this long as a rule.
func patient(usual core.Time) time.Duration { return 2*time.Duration(usual) + slack }

// pauseNow has the processes of a pod paused, and returns how long that took:
//
//  1. The condition says that it begins, and what the pod has. Until the pod is paused, the next scheduler lets it go on.
//  2. Its memory grows by what is on the GPUs.
//  3. The agent of its node pauses its processes, all or none.
//  4. Its CPU is given back, and the condition says that it is paused.
//
// After an error the pod has what it had, as far as that can be achieved within a while, and its processes run: it is to be evicted.
func (h *Handler) pauseNow(ctx context.Context, w work) (took time.Duration, err error) {
	began := h.Now()
	p, err := h.get(ctx, w)
	if err != nil {
		return 0, err
	}
	if why := objects.NotPausable(p); why != "" {
		return 0, errors.New(why)
	}
	had := hadOf(p)
	had.Since, had.GPUs = time.Unix(0, int64(w.since)).UTC(), w.gpus
	asked := false
	defer func() {
		if err == nil || ctx.Err() != nil {
			return
		}
		back, cancel := context.WithTimeout(ctx, wayBack)
		defer cancel()
		h.takeBack(back, w, had, asked, err)
	}()
	if err := h.say(ctx, w, v1.ConditionFalse, v1alpha1.PausedPausing, objects.WithHad("its processes are being paused"+w.forWhom(), had)); err != nil {
		return 0, err
	}
	image := w.suspension.HostMemMiB
	if err := h.shape(ctx, w, had, shape{cpu: true, image: image}); err != nil {
		return 0, err
	}
	asked = true
	if err := h.ask(ctx, w, agentpb.Action_ACTION_PAUSE, w.pauseID(), patient(w.suspension.Pause)); err != nil {
		return 0, err
	}
	if err := h.shape(ctx, w, had, shape{image: image}); err != nil {
		return 0, err
	}
	took = h.Now().Sub(began)
	message := fmt.Sprintf("its processes are paused%s: others may use its GPUs %s; they go on when these and the quota are free (paused in %.1f s)", w.forWhom(), devices(w.gpus), took.Seconds())
	if err := h.say(ctx, w, v1.ConditionTrue, v1alpha1.PausedPaused, objects.WithHad(message, had)); err != nil {
		return 0, err
	}
	h.event(w, v1.EventTypeNormal, "Paused", fmt.Sprintf("its processes are paused%s, in %.1f s; it keeps its node", w.forWhom(), took.Seconds()))
	return took, nil
}

// takeBack lets a pod go on that could not be paused: its processes, if the agent was asked to pause them, and what it had.
func (h *Handler) takeBack(ctx context.Context, w work, had *objects.Had, asked bool, why error) {
	if asked {
		err := h.Agents.Cancel(ctx, w.node, w.pauseID()) // it may be at work yet, if the answer was lost
		if err == nil {
			err = h.ask(ctx, w, agentpb.Action_ACTION_RESUME, w.newID(), wayBack)
		}
		if err != nil {
			h.Log.Warn("the agent does not say that the processes of a pod go on that could not be paused", "pod", w.String(), "error", err)
		}
	}
	if err := h.shape(ctx, w, had, shape{cpu: true}); err != nil {
		h.Log.Warn("a pod that could not be paused cannot be resized to what it had", "pod", w.String(), "error", err)
	}
	message := "its processes cannot be paused: " + why.Error()
	if err := h.say(ctx, w, v1.ConditionFalse, v1alpha1.PausedNot, message); err != nil && !apierrors.IsNotFound(err) {
		h.Log.Warn("cannot write on a pod that it could not be paused", "pod", w.String(), "error", err)
	}
	h.event(w, v1.EventTypeWarning, v1alpha1.PausedNot, message)
}

// resumeNow lets a pod go on: one that was paused, or whose pause or resumption was not ended. It returns how long that took:
//
//  1. The condition says that the GPUs are its own again: the next scheduler counts it as running. A pause that is not ended is given up.
//  2. It gets its CPU back.
//  3. The agent lets its processes go on, tried until the time is over: what had its GPUs may take a moment to leave them.
//  4. It gives back the memory, and the condition says that it runs.
//
// After an error, it is to be evicted.
func (h *Handler) resumeNow(ctx context.Context, w work) (took time.Duration, err error) {
	began := h.Now()
	p, err := h.get(ctx, w)
	if err != nil {
		return 0, err
	}
	was := objects.PauseOf(p)
	if was == nil || was.Had == nil {
		return 0, errors.New("what it had before its pause is not known")
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			h.event(w, v1.EventTypeWarning, v1alpha1.PausedNot, "its processes cannot go on: "+err.Error())
		}
	}()
	if was.Reason == v1alpha1.PausedPausing { // by an instance before this one
		w.since = objects.TimeOf(was.Since)
		if err := h.Agents.Cancel(ctx, w.node, w.pauseID()); err != nil {
			h.Log.Warn("the agent does not say that a pause is given up", "pod", w.String(), "error", err)
		}
	}
	image := w.suspension.HostMemMiB
	if err := h.say(ctx, w, v1.ConditionFalse, v1alpha1.PausedResuming, objects.WithHad("its GPUs are its own again, and its processes go on", was.Had)); err != nil {
		return 0, err
	}
	if err := h.shape(ctx, w, was.Had, shape{cpu: true, image: image}); err != nil {
		return 0, err
	}
	for until := h.Now().Add(patient(w.suspension.Resume)); ; {
		if err = h.ask(ctx, w, agentpb.Action_ACTION_RESUME, w.newID(), patient(w.suspension.Resume)); err == nil {
			break
		}
		if !h.Now().Before(until) {
			return 0, err
		}
		h.Log.Info("a pod cannot go on yet", "pod", w.String(), "why", err)
		if err := sleep(ctx, again); err != nil {
			return 0, err
		}
	}
	took = h.Now().Sub(began)
	if err := h.shape(ctx, w, was.Had, shape{cpu: true}); err != nil {
		h.Log.Warn("a pod keeps the memory of its pause", "pod", w.String(), "error", err) // it runs
	}
	message := fmt.Sprintf("its processes go on (in %.1f s)", took.Seconds())
	if err := h.say(ctx, w, v1.ConditionFalse, v1alpha1.PausedResumed, message); err != nil {
		h.Log.Warn("cannot write on a pod that it goes on", "pod", w.String(), "error", err)
	}
	h.event(w, v1.EventTypeNormal, "Resumed", fmt.Sprintf("its processes go on, in %.1f s", took.Seconds()))
	return took, nil
}

// pauseID is the ID of the pause at the agent, by which the next instance can give it up.
func (w *work) pauseID() string { return fmt.Sprintf("%s.%d", w.UID, int64(w.since)) }

func (w *work) newID() string { return string(w.UID) + "." + agent.NewID() }

func (w *work) forWhom() string {
	if w.text == "" {
		return ""
	}
	return " for " + w.text
}

// get returns the pod as it is, if it is there and is to stay.
func (h *Handler) get(ctx context.Context, w work) (p *v1.Pod, err error) {
	err = act.Retry(ctx, func() error {
		p, err = h.Client.CoreV1().Pods(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case p.UID != w.UID:
		return nil, fmt.Errorf("pod %s is gone", w.Pod)
	case p.DeletionTimestamp != nil:
		return nil, fmt.Errorf("pod %s is being deleted", w.Pod)
	}
	return p, nil
}

// shape resizes a pod, if necessary, and waits until its kubelet has done it.
func (h *Handler) shape(ctx context.Context, w work, had *objects.Had, to shape) error {
	ctx, cancel := context.WithTimeout(ctx, resizeTime)
	defer cancel()
	for {
		p, err := h.get(ctx, w)
		if err != nil {
			return err
		}
		patch, err := resize(p, had, to)
		if err != nil {
			return err
		}
		if patch == nil {
			if done, err := resized(p); err != nil || done {
				return err
			}
		} else {
			_, err := h.Client.CoreV1().Pods(w.Namespace).Patch(ctx, w.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "resize")
			if err != nil && !act.IsTransient(err) && !apierrors.IsConflict(err) {
				return fmt.Errorf("it cannot be resized: %w", err)
			}
			if err == nil {
				continue
			}
		}
		if err := sleep(ctx, lookPeriod); err != nil {
			return fmt.Errorf("it was not resized within %v", resizeTime)
		}
	}
}

// ask has the agent of the pod's node do something with its processes, within a time.
func (h *Handler) ask(ctx context.Context, w work, what agentpb.Action, id string, within time.Duration) error {
	deadline := time.Now().Add(within)
	r := &agentpb.RunRequest{Id: id, Action: what, Pod: string(w.UID), Node: w.node, Deadline: timestamppb.New(deadline)}
	calling, cancel := context.WithDeadline(ctx, deadline.Add(slack/2)) // the agent says itself that its time is over
	defer cancel()
	op, err := h.Agents.Run(calling, r)
	switch {
	case err != nil && what == agentpb.Action_ACTION_RESUME && status.Code(err) == codes.NotFound:
		return nil // no process of it is paused
	case err != nil:
		return fmt.Errorf("the agent of node %s: %s", w.node, status.Convert(err).Message())
	case op.State != agentpb.State_STATE_SUCCEEDED:
		return fmt.Errorf("the agent of node %s: %s", w.node, op.Message)
	}
	return nil
}

// say writes the condition of a pod.
func (h *Handler) say(ctx context.Context, w work, is v1.ConditionStatus, reason, message string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": w.UID}, "status": map[string]any{"conditions": []v1.PodCondition{{
		Type: v1alpha1.PausedCondition, Status: is, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(h.Now()),
	}}}})
	if err != nil {
		return err
	}
	return act.Retry(ctx, func() error {
		_, err := h.Client.CoreV1().Pods(w.Namespace).Patch(ctx, w.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
}

func (h *Handler) event(w work, kind, reason, message string) {
	if h.recorder != nil {
		h.recorder.Event(&v1.ObjectReference{Kind: "Pod", Namespace: w.Namespace, Name: w.Name, UID: w.UID, APIVersion: "v1"}, kind, reason, message)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
