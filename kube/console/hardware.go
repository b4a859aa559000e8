package console

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// What people see of jobs that their pods do not say: the state of the nodes below them, and why there are no pods.

// onHardware says of jobs that run which of their nodes are not ready or have GPUs that are not healthy. Who may not
// list nodes does not see it.
func (c *Client) onHardware(ctx context.Context, byGroup map[translate.Group]*Job) error {
	on := map[string]bool{}
	for _, j := range byGroup {
		for _, n := range j.Nodes {
			on[n] = true
		}
	}
	if len(on) == 0 {
		return nil
	}
	type node struct{ down, devices string }
	bad := map[string]node{}
	err := pages(ctx, metav1.ListOptions{}, c.kube.CoreV1().Nodes().List, func() { clear(bad) }, func(l *v1.NodeList) {
		for i := range l.Items {
			o := &l.Items[i]
			if !on[o.Name] {
				continue
			}
			var is node
			for _, k := range o.Status.Conditions {
				if k.Type == v1.NodeReady && k.Status != v1.ConditionTrue {
					is.down = o.Name + " is not ready"
				}
			}
			if n, missing, err := translate.Node(o); err == nil && missing > 0 {
				is.devices = fmt.Sprintf("%s: GPUs not healthy: %d of %d", o.Name, missing, n.GPUs)
			}
			if is != (node{}) {
				bad[o.Name] = is
			}
		}
	})
	if err != nil && !optional(err) {
		return c.say("list nodes", err)
	}
	for _, j := range byGroup {
		var down, devices []string
		for _, n := range j.Nodes {
			if text := bad[n].down; text != "" {
				down = append(down, text)
			} else if text := bad[n].devices; text != "" && j.GPUs > 0 {
				devices = append(devices, text)
			}
		}
		switch {
		case len(down) > 0:
			j.Hardware = "NodeDown: " + strings.Join(down, ", ")
		case len(devices) > 0:
			j.Hardware = "GPUDown: " + strings.Join(devices, ", ")
		}
	}
	return nil
}

// soon is how long a Job may take to create its pods before it is asked why there are none.
const soon = 5 * time.Second

// notCreated says why Jobs have no pods, where the API has refused those that they wanted to create: one whose
// PriorityClass does not exist, or beyond a ResourceQuota.
func (c *Client) notCreated(ctx context.Context, namespace string, byGroup map[translate.Group]*Job) error {
	var list []*Job
	for _, j := range byGroup {
		if len(j.pods) == 0 && j.Reason == tables.ReasonCollecting && time.Since(j.Created) > soon {
			list = append(list, j)
		}
	}
	if len(list) == 0 {
		return nil
	}
	type said struct {
		at   time.Time
		text string
	}
	why := map[string]said{} // by namespace and name of a Job
	fields := metav1.ListOptions{FieldSelector: "involvedObject.kind=Job,reason=FailedCreate"}
	err := pages(ctx, fields, c.kube.CoreV1().Events(namespace).List, func() { clear(why) }, func(l *v1.EventList) {
		for i := range l.Items {
			e := &l.Items[i]
			at := e.LastTimestamp.Time
			if at.IsZero() {
				at = e.EventTime.Time
			}
			id := e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name
			if e.Reason == "FailedCreate" && e.InvolvedObject.Kind == "Job" && !at.Before(why[id].at) {
				why[id] = said{at, e.Message}
			}
		}
	})
	if err != nil && !optional(err) {
		return c.say("list events", err)
	}
	lacks := map[string]string{} // PriorityClasses that were looked for
	for _, j := range list {
		w := why[j.Namespace+"/"+j.group.Name]
		if w.at.Before(j.Created) {
			w.text = ""
		}
		if w.text == "" {
			// Where the Job has a PodGroup made before its pods, and the API refuses that, no event says so.
			if _, ok := lacks[j.class]; !ok {
				if lacks[j.class], err = c.lacksClass(ctx, j.class); err != nil {
					return err
				}
			}
			w.text = lacks[j.class]
		}
		if w.text != "" {
			j.Reason, j.Code, j.Detail = NotCreated, reasonOf(NotCreated).Code, "its Job cannot create pods: "+w.text
		}
	}
	return nil
}

// lacksClass says that a PriorityClass does not exist; empty if it does, if none is named, or if the user may not know.
func (c *Client) lacksClass(ctx context.Context, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	_, err := c.kube.SchedulingV1().PriorityClasses().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "PriorityClass " + name + " does not exist", nil
	case optional(err):
		return "", nil
	}
	return "", c.say("get PriorityClasses", err)
}
