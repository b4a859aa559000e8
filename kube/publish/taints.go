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

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/translate"
)

// device is a GPU as a DRA driver publishes it.
type device struct {
	translate.DeviceID
	number int // by which the scheduler knows it
}

// faultsOf names the GPUs that are at fault, and why.
func faultsOf(h *agentpb.Hardware) string {
	var all []string
	for _, g := range h.Gpus {
		if len(g.Faults) > 0 && g.Uuid != "" {
			all = append(all, g.Uuid+" "+g.Faults[0].Reason)
		}
	}
	return strings.Join(all, ",")
}

// findDevices finds the GPUs that DRA drivers publish of the node.
func (p *Publisher) findDevices(ctx context.Context) error {
	list, err := p.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(resourceapi.ResourceSliceSelectorNodeName, p.Node).String()})
	if err != nil {
		return fmt.Errorf("list ResourceSlices: %w", err)
	}
	var slices []*translate.Slice
	for i := range list.Items {
		if s := translate.SliceOf(&list.Items[i]); s.Node == p.Node {
			slices = append(slices, s)
		}
	}
	p.devices = map[string]device{}
	for number, d := range translate.InventoryOf(slices).GPUs {
		for _, key := range []resourceapi.QualifiedName{"uuid", resourceapi.QualifiedName(d.Driver + "/uuid")} {
			if a, ok := d.Attributes[key]; ok && a.StringValue != nil {
				p.devices[*a.StringValue] = device{d.DeviceID, number}
			}
		}
	}
	return nil
}

// writeTaints taints the devices of the GPUs that are at fault, where a DRA driver publishes them, and takes back what is over.
// A taint keeps new pods off; those that run stay. Only pools with the node's name count: an admission policy lets the agent
// taint no other's.
func (p *Publisher) writeTaints(ctx context.Context, h *agentpb.Hardware) error {
	want := map[string]*resourceapi.DeviceTaintRule{}
	for _, g := range h.Gpus {
		if d, ok := p.devices[g.Uuid]; ok && len(g.Faults) > 0 && d.Pool == p.Node {
			r := p.rule(d, g.Faults[0])
			want[r.Name] = r
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
	return nil
}

func (p *Publisher) rule(d device, f *agentpb.Fault) *resourceapi.DeviceTaintRule {
	sum := sha256.Sum256([]byte(d.Driver + "/" + d.Pool + "/" + d.Name))
	at := metav1.NewTime(f.Since.AsTime())
	return &resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "muster-" + hex.EncodeToString(sum[:16]), Labels: map[string]string{v1alpha1.AgentOfLabel: nodeLabel(p.Node)}},
		Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: &d.Driver, Pool: &d.Pool, Device: &d.Name},
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
