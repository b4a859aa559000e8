package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/translate"
)

// Drain is how a node is emptied.
type Drain struct {
	Node string
	// Replace is how long a pod may take to be replaced; with 0, none is before it
	// leaves.
	Replace time.Duration
	// Timeout bounds how long it may take; 0 does not.
	Timeout time.Duration
	// Pause is how long to wait between looks at the pods that are left.
	Pause time.Duration
	// Idle is how long the scheduler may do nothing about a pod until people are
	// told so.
	Idle time.Duration
	// Tell is told what happens, a line each.
	Tell func(line string)
}

// errTimeout ends a drain that takes too long.
var errTimeout = errors.New("the timeout has passed")

// Drain closes a node to new pods and asks the scheduler to empty it of its pods.
// It returns when they are gone, or when those that are left stay. The node stays
// closed, also when an error ends it. What ends ctx does not end the drain: the
// scheduler goes on with it.
func (c *Client) Drain(ctx context.Context, d Drain) error {
	asked := translate.Drain{Wait: d.Replace, Request: time.Now().UTC().Format(time.RFC3339Nano)}
	if err := c.patchNode(ctx, d.Node, true, asked.String()); err != nil {
		return err
	}
	d.Tell("node " + d.Node + " is cordoned")
	whole := ctx
	if d.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, d.Timeout, errTimeout)
		defer stop()
	}
	l := &drainLook{c: c, d: &d, asked: asked, told: map[string]string{}, began: time.Now()}
	for {
		over, err := l.again(ctx)
		if over {
			return errors.Join(err, c.patchNode(whole, d.Node, true, ""))
		} else if err != nil && context.Cause(ctx) == nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(d.Pause):
		}
		// The cause is read once: the time may be up between two looks at it.
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, errTimeout):
			// Pods that are waiting to be replaced stay.
			return errors.Join(l.undrained(fmt.Sprintf("after %s,", d.Timeout), "it stays cordoned: drain it again, or uncordon it with --uncordon"),
				c.patchNode(whole, d.Node, true, ""))
		case cause != nil:
			return l.undrained("interrupted:", "the scheduler continues the drain: run the command again to watch it, or end it with --uncordon")
		}
	}
}

// drainLook is what a drain has seen.
type drainLook struct {
	c     *Client
	d     *Drain
	asked translate.Drain
	told  map[string]string // of the pods that are left, what was last told of each
	began time.Time
	idle  bool // people were told that nothing is done
	empty bool // no pod was there at the last look
	// locked says that a pod stays because its job is locked.
	locked bool
}

// undrained says that pods are left.
func (l *drainLook) undrained(why, next string) error {
	var pods string
	if names := sorted(l.told); len(names) > few {
		pods = fmt.Sprintf("; pods left: %d, such as %s", len(names), names[0])
	} else if len(names) > 0 {
		pods = "; pods left: " + strings.Join(names, ", ")
	}
	return fmt.Errorf("%s node %s is not drained%s; %s", why, l.d.Node, pods, next)
}

// again looks at what is left on the node, and reports whether that is nothing, or
// will not change; the error says so then.
func (l *drainLook) again(ctx context.Context) (over bool, err error) {
	n, err := l.c.kube.CoreV1().Nodes().Get(ctx, l.d.Node, metav1.GetOptions{})
	if err != nil {
		return false, l.c.say("get node "+l.d.Node, err)
	}
	if drain, err := translate.DrainOf(n); err != nil || drain == nil || *drain != l.asked {
		return false, l.undrained("the drain was changed by someone else:", "see muster nodes -N")
	}
	there, others := map[string]*v1.Pod{}, 0
	reset := func() { clear(there); others = 0 }
	err = l.c.listPods(ctx, "", live+",spec.nodeName="+l.d.Node, reset, func(p *v1.Pod) {
		if p.Spec.SchedulerName == v1alpha1.SchedulerName && !translate.OfDaemonSet(metav1.GetControllerOf(p)) {
			there[p.Namespace+"/"+p.Name] = p.DeepCopy()
		} else {
			others++
		}
	})
	if err != nil {
		return false, err
	}
	for _, name := range sorted(l.told) {
		if there[name] == nil {
			delete(l.told, name)
			l.d.Tell(fmt.Sprintf("%s is gone; pods left: %d", name, len(there)))
		}
	}
	stay := 0
	for _, name := range sorted(there) {
		now, stays := l.progress(there[name])
		if stays {
			stay++
		}
		if now != "" && now != l.told[name] {
			l.d.Tell(name + " " + now)
		}
		l.told[name] = now
		if now == "" && !l.idle && time.Since(l.began) >= l.d.Idle {
			l.idle = true
			l.d.Tell(fmt.Sprintf("the scheduler has not reacted to %s for %s: check that it runs", name, l.d.Idle))
		}
	}
	was := l.empty
	l.empty = len(there) == 0
	switch {
	case l.empty && !was:
		// A pod may be on its way there that was placed before.
	case l.empty:
		l.d.Tell(fmt.Sprintf("node %s is drained: it has no pods of Muster left; other pods: %d", l.d.Node, others))
		return true, nil
	case stay == len(there):
		if l.locked {
			return true, l.undrained("locked pods stay:", "they keep running, and the node stays cordoned: delete them when their jobs permit it and drain the node again, or uncordon it with --uncordon")
		}
		return true, l.undrained("some pods were not replaced in time:", "they keep running, and the node stays cordoned: make room elsewhere and drain the node again, evict them with --replace-timeout 0, or uncordon the node with --uncordon")
	}
	return false, nil
}

// progress describes how far a pod of the node is on its way, empty while nothing has been done
// about it, and whether it stays.
func (l *drainLook) progress(p *v1.Pod) (now string, stays bool) {
	if p.DeletionTimestamp != nil {
		return "leaves", false
	}
	var told v1.PodCondition
	for _, k := range p.Status.Conditions {
		if k.Type == v1alpha1.MovingCondition {
			told = k
		}
	}
	m := translate.MoveOf(p)
	switch {
	case told.Reason == v1alpha1.MovingLocked && told.Message == translate.LockedMessage(l.asked.Request):
		l.locked = true
		return "stays: " + told.Message, true
	case m.NotReplaced(l.asked.Request):
		return "stays: " + told.Message, true
	case told.Status == v1.ConditionTrue:
		return "waits to leave: " + told.Message, false
	case m.Active():
		return "waits to leave: its owner creates a replacement first", false
	}
	return "", false
}

// Uncordon opens a node to new pods, and ends its drain.
func (c *Client) Uncordon(ctx context.Context, node string) error {
	return c.patchNode(ctx, node, false, "")
}

// patchNode closes a node to new pods, or opens it, and asks for it to be drained
// unless drain is empty.
func (c *Client) patchNode(ctx context.Context, node string, closed bool, drain string) error {
	note := map[string]any{v1alpha1.DrainAnnotation: nil}
	if drain != "" {
		note[v1alpha1.DrainAnnotation] = drain
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": note},
		"spec":     map[string]any{"unschedulable": closed},
	})
	if err != nil {
		return err
	}
	_, err = c.kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the cluster has no node %q: muster nodes -N lists all nodes", node)
	}
	return c.say("change node "+node, err)
}
