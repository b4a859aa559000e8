// Package publish writes what an agent knows of the GPUs of its node to the Kubernetes API, where
// Muster, other schedulers and operators read it: a condition of the node, where the GPUs are, and taints of devices.
package publish

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core/cluster"
)

// Condition is the type of the condition of a node that says whether its GPUs may take pods: False if some may not.
const Condition v1.NodeConditionType = "GPUHealthy"

// manager owns the fields that are written.
const manager = "muster-agent"

const (
	// heartbeat is how often what has not changed is written again, so that people see that it is up to date.
	heartbeat = 5 * time.Minute
	// timeout bounds what is written after a reading.
	timeout = 10 * time.Second
	// maxMessage is how long the message of a condition may be.
	maxMessage = 1024
)

// Publisher writes for one node. Its methods are for one goroutine.
type Publisher struct {
	Client kubernetes.Interface
	Node   string
	Log    *slog.Logger
	Now    func() time.Time
	Errors *prometheus.CounterVec // see [NewErrors]; nil: they are not counted

	condition v1.NodeCondition  // as it was written last
	positions string            // the same
	errors    string            // the same
	devices   map[string]device // the GPUs that DRA drivers publish of the node, by UUID, as they were when GPUs were last found at fault
	compared  time.Time         // when the taints in the cluster were last compared with what is wrong
	tainted   string            // the faults then
	said      map[string]string
}

// NewErrors counts what could not be written.
func NewErrors() *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_agent_publish_errors_total", Help: "Writes to the Kubernetes API that failed, by what they are of: the condition of the node, the positions of its GPUs, the errors of its driver, or taints of devices.",
	}, []string{"what"})
	for _, what := range []string{condition, positions, driverErrors, taints} {
		v.WithLabelValues(what)
	}
	return v
}

// What is written, in the metric.
const condition, positions, driverErrors, taints = "condition", "positions", "errors", "taints"

// Publish writes what has changed since it was called last. What cannot be written is tried again the next time.
func (p *Publisher) Publish(ctx context.Context, h *agentpb.Hardware) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// A fault may come before a driver publishes the device, and a user may remove a taint: compare now and then.
	faults := faultsOf(h)
	due := faults != p.tainted || p.Now().Sub(p.compared) >= heartbeat
	var err error
	if due && faults != "" {
		err = p.findDevices(ctx)
	}
	p.say(condition, "the condition of the node", p.writeCondition(ctx, h))
	p.say(positions, "where the GPUs are", p.writePositions(ctx, h))
	p.say(driverErrors, "the errors of the driver", p.writeErrors(ctx, h))
	if due {
		if err == nil {
			err = p.writeTaints(ctx, h)
		}
		if err == nil {
			p.tainted, p.compared = faults, p.Now()
		}
		p.say(taints, "the taints of devices", err)
	}
}

// say counts what cannot be written, and logs it, once, and when it can be.
func (p *Publisher) say(of, what string, err error) {
	if p.said == nil {
		p.said = map[string]string{}
	}
	text := ""
	if err != nil {
		if text = err.Error(); p.Errors != nil {
			p.Errors.WithLabelValues(of).Inc()
		}
	}
	switch before := p.said[what]; {
	case text == before:
	case text != "":
		p.Log.Error("cannot be written to the API: "+what, "node", p.Node, "error", text)
	default:
		p.Log.Info("can be written to the API again: "+what, "node", p.Node)
	}
	p.said[what] = text
}

// conditionOf says in a condition what is known of the GPUs. If only some may not take pods, the message begins with them, as GPU:3,
// by which package kube/health knows them, so that none is cut off. If it names none, all are meant: the node as a whole is at fault, or a
// GPU has gone, and the numbers of the others may have changed. Where a DRA driver publishes a GPU, its number is the scheduler's.
func conditionOf(h *agentpb.Hardware, devices map[string]device) (status v1.ConditionStatus, reason, message string) {
	var parts, names []string
	whole := len(h.Faults) > 0
	for _, g := range h.Gpus {
		for i, f := range g.Faults {
			if reason == "" {
				reason = f.Reason
			}
			if i == 0 {
				number := int(g.Index)
				if d, ok := devices[g.Uuid]; ok {
					number = d.number
				}
				names = append(names, fmt.Sprintf("GPU:%d", number))
			}
			whole = whole || g.Index < 0
			parts = append(parts, strings.TrimPrefix(g.Uuid+": ", ": ")+f.Message)
		}
	}
	if len(names) > 0 && !whole {
		parts = append([]string{strings.Join(names, ", ")}, parts...)
	}
	for _, f := range h.Faults {
		if reason == "" {
			reason = f.Reason
		}
		parts = append(parts, f.Message)
	}
	switch {
	case len(parts) > 0:
		status = v1.ConditionFalse
	case h.Unread != "":
		status, reason, parts = v1.ConditionUnknown, "DriverNotRead", []string{h.Unread}
	default:
		status, reason = v1.ConditionTrue, "NoFault"
		parts = []string{fmt.Sprintf("%d GPUs, driver %s", len(h.Gpus), h.DriverVersion)}
		if h.LogUnread != "" {
			parts = append(parts, "errors in the kernel log are not seen: "+h.LogUnread)
		}
	}
	message = strings.Join(parts, "; ")
	return status, reason, strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
}

func (p *Publisher) writeCondition(ctx context.Context, h *agentpb.Hardware) error {
	now := metav1.NewTime(p.Now().Truncate(time.Second))
	c := v1.NodeCondition{Type: Condition, LastHeartbeatTime: now, LastTransitionTime: p.condition.LastTransitionTime}
	c.Status, c.Reason, c.Message = conditionOf(h, p.devices)
	was := &p.condition
	if was.Type == "" { // the first time: the transition may have been one of the agent before
		n, err := p.Client.CoreV1().Nodes().Get(ctx, p.Node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for i := range n.Status.Conditions {
			if n.Status.Conditions[i].Type == Condition {
				was = &n.Status.Conditions[i]
				c.LastTransitionTime = was.LastTransitionTime
			}
		}
	}
	if c.Status != was.Status {
		c.LastTransitionTime = now
	}
	age := now.Sub(was.LastHeartbeatTime.Time) // negative if the clock was set back
	if c.Status == was.Status && c.Reason == was.Reason && c.Message == was.Message && age >= 0 && age < heartbeat {
		p.condition = *was
		return nil
	}
	apply := corev1.Node(p.Node).WithStatus(corev1.NodeStatus().WithConditions(corev1.NodeCondition().
		WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).
		WithLastHeartbeatTime(c.LastHeartbeatTime).WithLastTransitionTime(c.LastTransitionTime)))
	if _, err := p.Client.CoreV1().Nodes().ApplyStatus(ctx, apply, metav1.ApplyOptions{FieldManager: manager, Force: true}); err != nil {
		return err
	}
	p.condition = c
	return nil
}

// positionsOf says where the GPUs are, as the annotation of nodes does; empty if that is not known of all of them.
func positionsOf(h *agentpb.Hardware) string {
	if h.Unread != "" || len(h.Gpus) == 0 {
		return ""
	}
	var list []cluster.DeviceSpec
	groups := map[string]int8{}
	position := func(n *int32) int8 {
		if n == nil || *n > cluster.MostPosition {
			return -1
		}
		return int8(*n)
	}
	for i, g := range h.Gpus {
		if int(g.Index) != i || g.Pci == "" || g.Numa == nil && g.PcieRoot == "" || g.GetMig() {
			return ""
		}
		at := cluster.DeviceSpec{Island: position(g.Island), PCIe: -1, NUMA: position(g.Numa), NIC: position(g.Nic)}
		bridge := g.PcieSwitch
		if bridge == "" {
			bridge = g.PcieRoot
		}
		if _, ok := groups[bridge]; !ok && bridge != "" {
			groups[bridge] = int8(min(len(groups), cluster.MostPosition))
		}
		if bridge != "" {
			at.PCIe = groups[bridge]
		}
		list = append(list, at)
	}
	return string(cluster.AppendDevices(nil, list))
}

// writePositions writes the annotation, unless another writer has: then its one counts.
func (p *Publisher) writePositions(ctx context.Context, h *agentpb.Hardware) error {
	text := positionsOf(h)
	if text == "" || text == p.positions {
		return nil
	}
	// Through the status, which is all of a node that the agent may write, and as a manager of its own: an apply of the condition
	// would take the annotation back.
	apply := corev1.Node(p.Node).WithAnnotations(map[string]string{v1alpha1.GPUPositionsAnnotation: text})
	_, err := p.Client.CoreV1().Nodes().ApplyStatus(ctx, apply, metav1.ApplyOptions{FieldManager: manager + "-positions"})
	if errors.IsConflict(err) {
		p.Log.Info("another writer says where the GPUs of the node are, and that counts", "node", p.Node, "found", text)
		err = nil
	}
	if err == nil {
		p.positions = text
	}
	return err
}
