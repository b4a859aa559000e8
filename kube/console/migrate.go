package console

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
)

// Migrate is how a pod is moved.
type Migrate struct {
	Namespace, Name string // of the pod, or of a job of one pod, as for [Client.Explain]
	Node            string // where it is to go; empty: wherever it fits best
	// Wait is how long the pod that takes its place may take to run after it has left. Pause, Idle and Tell are those of [Apply].
	Wait, Pause, Idle time.Duration
	Tell              func(line string)
}

// Migrate has the scheduler move a pod, and waits until another one runs in its place. A move that the scheduler refuses, or that fails, is
// an error: the pod stays.
func (c *Client) Migrate(ctx context.Context, m *Migrate) error {
	pods, err := c.Running(ctx, m.Namespace, m.Name)
	if err != nil {
		return err
	}
	if len(pods) > 1 {
		return fmt.Errorf("%s has %d pods that run: name one of them, such as %s", m.Name, len(pods), pods[0].Name)
	}
	p := pods[0]
	if p.Node == m.Node {
		return fmt.Errorf("pod %s is on node %s already", p.Name, p.Node)
	}
	namespace, _, _ := strings.Cut(p.Job, "/")
	before, err := c.uids(ctx, namespace, p.Job)
	if err != nil {
		return err
	}
	move := Move{Migration: core.Migration{From: p.Node, To: m.Node}, Namespace: namespace, Name: p.Name, UID: p.UID}
	if err := c.Apply(ctx, &Apply{Moves: []Move{move}, Pause: m.Pause, Idle: m.Idle, Tell: m.Tell}); err != nil {
		return err
	}
	for until := time.Now().Add(m.Wait); ; {
		j, _, err := c.named(ctx, namespace, p.Job)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(j.pods, func(o *pod) bool { return o.active && o.node != "" && !slices.Contains(before, o.uid) })
		if i >= 0 {
			m.Tell(fmt.Sprintf("%s runs on node %s", j.pods[i].namespace+"/"+j.pods[i].name, j.pods[i].node))
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("no other pod of %s runs after %v; muster explain %s says why", j.ID, m.Wait, j.ID)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted; the pod has left node %s, and the scheduler starts the one in its place", p.Node)
		case <-time.After(m.Pause):
		}
	}
}

// uids are those of the pods of a job.
func (c *Client) uids(ctx context.Context, namespace, job string) (uids []types.UID, err error) {
	j, _, err := c.named(ctx, namespace, job)
	if err != nil {
		return nil, err
	}
	for _, p := range j.pods {
		uids = append(uids, p.uid)
	}
	return uids, nil
}
