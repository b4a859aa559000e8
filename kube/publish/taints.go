package publish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/api/v1alpha1"
)

// device is a GPU as a DRA driver publishes it.
type device struct{ driver, pool, name string }

// writeTaints taints the devices of the GPUs that are at fault, where a DRA driver publishes them, and takes back what is over.
// A taint keeps new pods off; those that run stay.
func (p *Publisher) writeTaints(ctx context.Context, h *agentpb.Hardware) error {
	faults := map[string]*agentpb.Fault{} // by UUID
	var all []string
	for _, g := range h.Gpus {
		if len(g.Faults) > 0 && g.Uuid != "" {
			faults[g.Uuid] = g.Faults[0]
			all = append(all, g.Uuid+" "+g.Faults[0].Reason)
		}
	}
	// A fault may come before the driver publishes the device, and a user may remove a rule: compare now and then.
	if now := strings.Join(all, ","); now == p.tainted && !p.listed.IsZero() && p.Now().Sub(p.listed) < heartbeat {
		return nil
	}
	want := map[string]*resourceapi.DeviceTaintRule{}
	if len(faults) > 0 {
		devices, err := p.devices(ctx)
		if err != nil {
			return err
		}
		for uuid, f := range faults {
			if d, ok := devices[uuid]; ok {
				r := p.rule(d, f)
				want[r.Name] = r
			}
		}
	}
	rules := p.Client.ResourceV1().DeviceTaintRules()
	there, err := rules.List(ctx, metav1.ListOptions{LabelSelector: labels.Set{v1alpha1.AgentOfLabel: nodeLabel(p.Node)}.String()})
	if errors.IsNotFound(err) && len(want) == 0 {
		err = nil // a cluster without such rules needs none
		there = &resourceapi.DeviceTaintRuleList{}
	}
	if err != nil {
		return fmt.Errorf("list DeviceTaintRules: %w", err)
	}
	for i := range there.Items {
		r := &there.Items[i]
		if w := want[r.Name]; w != nil && w.Spec.Taint.Value == r.Spec.Taint.Value {
			delete(want, r.Name)
			continue
		}
		if err := rules.Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.UID))}); err != nil && !errors.IsNotFound(err) {
			return fmt.Errorf("delete DeviceTaintRule %s: %w", r.Name, err)
		}
		p.Log.Info("a device is no longer tainted as it was", "node", p.Node, "rule", r.Name)
	}
	for _, r := range want {
		if _, err := rules.Create(ctx, r, metav1.CreateOptions{FieldManager: manager}); err != nil {
			return fmt.Errorf("create DeviceTaintRule %s: %w", r.Name, err)
		}
		p.Log.Warn("a device takes no new pods", "node", p.Node, "device", *r.Spec.DeviceSelector.Device, "why", r.Spec.Taint.Value)
	}
	p.tainted, p.listed = strings.Join(all, ","), p.Now()
	return nil
}

// devices finds the GPUs that DRA drivers publish of the node, by UUID. Only pools with the node's name count: an admission
// policy lets the agent taint no other's.
func (p *Publisher) devices(ctx context.Context) (map[string]device, error) {
	list, err := p.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(resourceapi.ResourceSliceSelectorNodeName, p.Node).String()})
	if err != nil {
		return nil, fmt.Errorf("list ResourceSlices: %w", err)
	}
	found := map[string]device{}
	for i := range list.Items {
		s := &list.Items[i].Spec
		if s.Pool.Name != p.Node || ptr.Deref(s.NodeName, "") != p.Node {
			continue
		}
		for j := range s.Devices {
			d := &s.Devices[j]
			for _, key := range []resourceapi.QualifiedName{"uuid", resourceapi.QualifiedName(s.Driver + "/uuid")} {
				if a, ok := d.Attributes[key]; ok && a.StringValue != nil {
					found[*a.StringValue] = device{s.Driver, s.Pool.Name, d.Name}
				}
			}
		}
	}
	return found, nil
}

func (p *Publisher) rule(d device, f *agentpb.Fault) *resourceapi.DeviceTaintRule {
	sum := sha256.Sum256([]byte(d.driver + "/" + d.pool + "/" + d.name))
	at := metav1.NewTime(f.Since.AsTime())
	return &resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "muster-" + hex.EncodeToString(sum[:16]), Labels: map[string]string{v1alpha1.AgentOfLabel: nodeLabel(p.Node)}},
		Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: &d.driver, Pool: &d.pool, Device: &d.name},
			Taint:          resourceapi.DeviceTaint{Key: v1alpha1.FaultTaint, Value: f.Reason, Effect: resourceapi.DeviceTaintEffectNoSchedule, TimeAdded: &at},
		},
	}
}

// nodeLabel is the name of a node as the value of a label, which may not be as long as a name.
func nodeLabel(node string) string {
	if len(node) <= 63 {
		return node
	}
	sum := sha256.Sum256([]byte(node))
	return hex.EncodeToString(sum[:16])
}
