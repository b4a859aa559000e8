package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RunningPod is a pod of a job that runs.
type RunningPod struct {
	Job  string // NAMESPACE/KIND/NAME
	Name string
	UID  types.UID
	Node string
	// Paused says for what, and until when, Muster has paused it; empty for others.
	Paused string
}

// Running returns the pods of a job, shorter names first. name is as in [Client.Explain]; the name of a pod is that pod alone. If one of
// them does not run, or there is no such job ([NoJobError]), that is an error.
func (c *Client) Running(ctx context.Context, namespace, name string) ([]RunningPod, error) {
	j, pods, err := c.named(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	var running []RunningPod
	for _, p := range pods {
		if !p.active || p.node == "" {
			return nil, fmt.Errorf("pod %s of %s does not run; muster explain %s says why", p.name, j.ID, j.ID)
		}
		running = append(running, RunningPod{j.Namespace + "/" + j.ID, p.name, p.uid, p.node, p.paused})
	}
	slices.SortStableFunc(running, func(a, b RunningPod) int { return byLength(a.Name, b.Name) })
	return running, nil
}

// Node reads a node.
func (c *Client) Node(ctx context.Context, name string) (*v1.Node, error) {
	n, err := c.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	return n, c.say("read node "+name, err)
}

// named returns a job, and the pods of it that a name means.
func (c *Client) named(ctx context.Context, namespace, name string) (*Job, []*pod, error) {
	j, err := c.job(ctx, namespace, name)
	if err != nil {
		return nil, nil, err
	}
	if i := slices.IndexFunc(j.pods, func(p *pod) bool { return p.name == name || strings.HasSuffix(name, "pod/"+p.name) }); i >= 0 {
		return j, j.pods[i : i+1], nil
	}
	return j, j.pods, nil
}

// byLength orders names: train-2 before train-10.
func byLength(a, b string) int { return cmp.Or(len(a)-len(b), cmp.Compare(a, b)) }
