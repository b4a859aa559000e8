package pause

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/objects"
)

const (
	// resizeTime is how long a kubelet may take to resize a pod, and lookPeriod the time between two looks.
	resizeTime = time.Minute
	lookPeriod = 200 * time.Millisecond
	// atOnce is for how many pods of a job something is done at the same time.
	atOnce = 32
)

// each does something for all pods, at the same time, and returns the first error.
func (w *work) each(do func(*member) error) error { return w.eachOf(w.pods, do) }

func (w *work) eachOf(pods []*member, do func(*member) error) error {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, m := range pods {
		g.Go(func() error {
			if err := do(m); err != nil && len(w.pods) > 1 {
				return fmt.Errorf("pod %s: %w", m.Name, err)
			} else {
				return err
			}
		})
	}
	return g.Wait()
}

// When the pod that leads says something, which is so for all of them then.
const (
	leadFirst = true
	leadLast  = false
)

// tell writes the condition of all pods, with what each had unless that is nil.
func (h *Handler) tell(ctx context.Context, w *work, first bool, is v1.ConditionStatus, reason string, message func(*member) string) error {
	say := func(m *member) error {
		m.said = v1.PodCondition{Type: v1alpha1.PausedCondition, Status: is, Reason: reason, Message: message(m), LastTransitionTime: metav1.NewTime(h.Now())}
		return act.Retry(ctx, func() error { return h.write(ctx, m, "") })
	}
	lead, others := w.pods[:1], w.pods[1:]
	if first {
		lead, others = others, lead
	}
	if err := w.eachOf(others, say); err != nil {
		return err
	}
	return w.eachOf(lead, say)
}

// write writes what was said of a pod, and what it had, into its condition; if a version is given, only if the pod has that still.
func (h *Handler) write(ctx context.Context, m *member, version string) error {
	c := m.said
	if m.had != nil {
		c.Message = objects.WithHad(c.Message, m.had)
	}
	meta := map[string]any{"uid": m.UID}
	if version != "" {
		meta["resourceVersion"] = version
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta, "status": map[string]any{"conditions": []v1.PodCondition{c}}})
	if err != nil {
		return err
	}
	_, err = h.Client.CoreV1().Pods(m.Namespace).Patch(ctx, m.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// get returns the pod as it is, if it is there and is to stay.
func (h *Handler) get(ctx context.Context, m *member) (p *v1.Pod, err error) {
	err = act.Retry(ctx, func() error {
		p, err = h.Client.CoreV1().Pods(m.Namespace).Get(ctx, m.Name, metav1.GetOptions{})
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case p.UID != m.UID:
		return nil, fmt.Errorf("pod %s is gone", m.Pod)
	case p.DeletionTimestamp != nil:
		return nil, fmt.Errorf("pod %s is being deleted", m.Pod)
	}
	return p, nil
}

// shape resizes a pod, if necessary, and waits until its kubelet has done it.
func (h *Handler) shape(ctx context.Context, m *member, to shape) error {
	ctx, cancel := context.WithTimeout(ctx, resizeTime)
	defer cancel()
	for {
		p, err := h.get(ctx, m)
		if err != nil {
			return err
		}
		patch, err := resize(p, m.had, to)
		if err != nil {
			return err
		}
		if patch == nil {
			if done, err := resized(p); err != nil || done {
				return err
			}
		} else {
			_, err := h.Client.CoreV1().Pods(m.Namespace).Patch(ctx, m.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "resize")
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

func (h *Handler) event(m *member, kind, reason, message string) {
	if h.recorder != nil {
		h.recorder.Event(&v1.ObjectReference{Kind: "Pod", Namespace: m.Namespace, Name: m.Name, UID: m.UID, APIVersion: "v1"}, kind, reason, message)
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
