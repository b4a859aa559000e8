package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// A job that is held is released by a user who says so on one of its pods, or who submits another job of its name: a pod that waits, was made after the job
// was held, by an owner that had made none before, is of such a job. A pod of before, or of an owner of before, is not: gangs have pods of several owners.

// hold is a job that is held.
type hold struct {
	at     time.Time
	makers map[types.UID]bool // of its pods; nil while they are not known
}

// releases handles a pod of a job that is held, and reports whether it releases the job.
func (h *Handler) releases(p *v1.Pod) bool {
	at, asked := releaseOf(p)
	if len(h.held) == 0 || !asked && p.Spec.NodeName != "" {
		return false
	}
	job := jobOf(p)
	is := h.held[job]
	if is == nil {
		return false
	}
	asked = asked && at.After(is.at)
	other := p.Spec.NodeName == "" && is.makers != nil && !is.makers[maker(p)] && p.CreationTimestamp.After(is.at) && !retries(p)
	if !asked && !other {
		return false
	}
	delete(h.held, job)
	h.config.Tell(core.JobReleased{Job: job})
	h.queueTask(task{Decision: core.Decision{Job: job}, released: true})
	return true
}

// findMakers finds who made the pods of a job before it was held, and then looks at those that were made since.
func (h *Handler) findMakers(ctx context.Context, job string) {
	h.mu.Lock()
	is, f := h.held[job], h.failed[job]
	h.mu.Unlock()
	if is == nil {
		return
	}
	namespace, _, _ := strings.Cut(job, "/")
	list, err := h.config.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		h.config.Log.Warn("cannot list the pods of a job that is held: it is released by muster release alone", "job", job, "error", err)
		return
	}
	makers := map[types.UID]bool{}
	if f != nil {
		makers[f.maker] = true
	}
	var since []*v1.Pod
	for i := range list.Items {
		p := &list.Items[i]
		switch {
		case p.Spec.SchedulerName != v1alpha1.SchedulerName || jobOf(p) != job:
		case p.CreationTimestamp.After(is.at):
			since = append(since, p)
		default:
			makers[maker(p)] = true
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	is.makers = makers
	for _, p := range since {
		h.releases(p)
	}
}

// saysReleased takes what counts of the failures of a job off its pods, so that the next instance does not hold it.
func (h *Handler) saysReleased(ctx context.Context, job string) {
	of := map[types.UID]types.NamespacedName{}
	h.mu.Lock()
	for uid, r := range h.records {
		if r.Job == job && r.failed {
			of[uid] = r.pod
		}
	}
	if f := h.failed[job]; f != nil {
		of[f.uid] = types.NamespacedName{Namespace: f.Namespace, Name: f.Name}
	}
	h.mu.Unlock()
	condition := v1.PodCondition{
		Type: v1alpha1.RecoveryCondition, Status: v1.ConditionFalse, Reason: jobReleased, Message: "its failures are forgotten",
		LastTransitionTime: metav1.NewTime(h.config.Now()),
	}
	for uid, pod := range of {
		h.patchPod(ctx, pod.Namespace, pod.Name, uid, map[string]any{v1alpha1.RecoveryAnnotation: nil}, condition)
	}
}

// Release asks the scheduler to release a job that is held, by its name: namespace/kind/name, kind/name, or its name alone.
// It returns what was released. now is the time of the request.
func Release(ctx context.Context, client kubernetes.Interface, namespace, name string, now time.Time) (string, error) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	held := map[string][]*v1.Pod{}
	known, job := false, ""
	for i := range list.Items {
		p := &list.Items[i]
		if p.Spec.SchedulerName != v1alpha1.SchedulerName || !named(jobOf(p), name) {
			continue
		}
		known = true
		if r, ok, _ := recordOf(p); ok && r.Held != "" {
			job = r.Job
			held[job] = append(held[job], p)
			if !r.decided.Before(now) { // the clock of this machine is late
				now = r.decided.Add(time.Second)
			}
		}
	}
	switch {
	case len(held) > 1:
		return "", fmt.Errorf("expected one job of the name that is held; found %d: say which, as KIND/NAME", len(held))
	case len(held) == 0 && known:
		return "", errors.New("it is not held: muster explain says why a job waits")
	case len(held) == 0:
		return "", fmt.Errorf("namespace %s has no such job: muster queue lists all jobs", namespace)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1alpha1.ReleaseAnnotation: now.UTC().Format(time.RFC3339Nano)}}})
	if err != nil {
		return "", err
	}
	for _, p := range held[job] {
		if _, err := client.CoreV1().Pods(namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return "", err
		}
	}
	return job, nil
}

// named reports whether a text names a job.
func named(job, text string) bool {
	if job == text {
		return true
	}
	_, short, _ := strings.Cut(job, "/")
	_, bare, _ := strings.Cut(short, "/")
	return short == text || bare == text
}
