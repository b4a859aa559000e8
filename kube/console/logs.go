package console

import (
	"context"
	"fmt"
	"io"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodLog is the log of a pod: of the container that its annotation names, as kubectl takes it, or of its first one.
type PodLog struct {
	Pod string // its name

	client               *Client
	namespace, container string
	restarted, active    bool
}

// Logs returns the logs of the pods of a job that have run, shorter names first. name is as in [Client.Explain]; the name of a pod is that pod alone. The
// error is a [NoJobError] if there is no such job.
func (c *Client) Logs(ctx context.Context, namespace, name string) ([]PodLog, error) {
	j, pods, err := c.named(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	var logs []PodLog
	for _, p := range pods {
		if p.active || p.restarted {
			logs = append(logs, PodLog{Pod: p.name, client: c, namespace: p.namespace, container: p.container, restarted: p.restarted, active: p.active})
		}
	}
	if logs == nil {
		return nil, fmt.Errorf("%s of namespace %s has no log: none of its %d pods has run yet; muster explain %s says why", j.ID, j.Namespace, len(pods), j.ID)
	}
	slices.SortStableFunc(logs, func(a, b PodLog) int { return byLength(a.Pod, b.Pod) })
	return logs, nil
}

// Pod reads a pod.
func (c *Client) Pod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	p, err := c.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	return p, c.say("read pod "+namespace+"/"+name, err)
}

// LogPart says which part of a log to read.
type LogPart struct {
	Lines  int64 // the last ones; 0 for all
	Follow bool  // go on as it grows, until the container ends
	// Ended is the log of the last container that ended, where it was started again since.
	Ended bool
}

// Open opens a part of the log. The API server holds back what is not read yet.
func (l *PodLog) Open(ctx context.Context, part LogPart) (io.ReadCloser, error) {
	o := v1.PodLogOptions{Container: l.container, Follow: part.Follow, Previous: part.Ended && l.active && l.restarted}
	if part.Lines > 0 {
		o.TailLines = &part.Lines
	}
	r, err := l.client.kube.CoreV1().Pods(l.namespace).GetLogs(l.Pod, &o).Stream(ctx)
	return r, l.client.say("read the log of pod "+l.namespace+"/"+l.Pod, err)
}

// logOf returns the container of a pod whose log is the pod's, and whether it has ended before, and whether it runs.
func logOf(p *v1.Pod) (name string, ended, runs bool) {
	if name = p.Annotations["kubectl.kubernetes.io/default-container"]; name == "" && len(p.Spec.Containers) > 0 {
		name = p.Spec.Containers[0].Name
	}
	for i := range p.Status.ContainerStatuses {
		if s := &p.Status.ContainerStatuses[i]; s.Name == name {
			return name, s.RestartCount > 0 || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil, s.State.Running != nil
		}
	}
	return name, false, false
}
