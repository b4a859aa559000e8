package console

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// Drain is how a node is emptied.
type Drain struct {
	Node string
	// Timeout bounds how long it may take; 0 does not.
	Timeout time.Duration
	// Pause is how long to wait between looks at the pods that are left.
	Pause time.Duration
	// Tell is told what happens, a line each.
	Tell func(line string)
}

// errTimeout ends a drain that takes too long.
var errTimeout = errors.New("the time is up")

// Drain closes a node to new pods and evicts Muster's through the Eviction API,
// so that disruption budgets and grace periods count. It returns when they are
// gone. The node stays closed; also when an error ends it.
func (c *Client) Drain(ctx context.Context, d Drain) error {
	if err := c.Cordon(ctx, d.Node, true); err != nil {
		return err
	}
	d.Tell("node " + d.Node + " is closed to new pods")
	if d.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, d.Timeout, errTimeout)
		defer stop()
	}
	before := map[string]string{}
	for {
		left, others, err := c.evictFrom(ctx, &d, before)
		switch {
		case err != nil && context.Cause(ctx) != nil:
			return undrained(ctx, &d, before)
		case err != nil:
			return err
		case left == 0:
			d.Tell(fmt.Sprintf("node %s is drained: no pod of Muster's is left; pods of other schedulers: %d", d.Node, others))
			return nil
		}
		select {
		case <-ctx.Done():
			return undrained(ctx, &d, before)
		case <-time.After(d.Pause):
		}
	}
}

// undrained says what is left when a drain ends early.
func undrained(ctx context.Context, d *Drain, left map[string]string) error {
	why := "interrupted"
	if errors.Is(context.Cause(ctx), errTimeout) {
		why = fmt.Sprintf("after %s", d.Timeout)
	}
	var pods string
	if names := sorted(left); len(names) > few {
		pods = fmt.Sprintf("; pods left: %d, such as %s", len(names), names[0])
	} else if len(names) > 0 {
		pods = "; pods left: " + strings.Join(names, ", ")
	}
	return fmt.Errorf("%s, node %s is not drained%s; it stays closed: drain it again, or open it with --uncordon", why, d.Node, pods)
}

// evictFrom evicts what is left on the node and returns how many of Muster's
// pods, and of others', that is. before has the pods there were, and what was
// last told of each.
func (c *Client) evictFrom(ctx context.Context, d *Drain, before map[string]string) (left, others int, err error) {
	there := map[string]*pod{}
	reset := func() { clear(there); others = 0 }
	err = c.listPods(ctx, "", live+",spec.nodeName="+d.Node, reset, func(p *v1.Pod) {
		if p.Spec.SchedulerName == v1alpha1.SchedulerName {
			t := trim(p)
			there[p.Namespace+"/"+p.Name] = &t
		} else {
			others++
		}
	})
	if err != nil {
		return 0, 0, err
	}
	for _, name := range sorted(before) {
		if there[name] == nil {
			delete(before, name)
			d.Tell(fmt.Sprintf("%s is gone; pods left: %d", name, len(there)))
		}
	}
	for _, name := range sorted(there) {
		p := there[name]
		now := "leaves by itself"
		if p.phase != leaving {
			err := c.kube.PolicyV1().Evictions(p.namespace).Evict(ctx, &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name},
			})
			switch {
			case err == nil:
				now = "evicted"
			case apierrors.IsNotFound(err):
				continue
			case apierrors.IsTooManyRequests(err):
				now = "has to stay for now: " + reasonText(err)
			default:
				return 0, 0, c.say("evict pod "+name, err)
			}
		}
		if was, ok := before[name]; !ok || was != now && now != "leaves by itself" {
			d.Tell(name + " " + now)
			before[name] = now
		}
	}
	return len(there), others, nil
}

// Cordon closes a node to new pods, or opens it.
func (c *Client) Cordon(ctx context.Context, node string, closed bool) error {
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, closed)
	_, err := c.kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the cluster has no node %q: muster nodes -N lists them", node)
	}
	return c.say("close node "+node, err)
}
