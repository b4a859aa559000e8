package console

import (
	"context"
	"math/bits"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// published is the GPUs that a node publishes by dynamic resource allocation
// (DRA), as sets of their numbers: those that claims have, and those that pods
// have as Muster wrote on them, which tells more to those who may not read all
// claims.
type published struct {
	claims, pods uint64
}

// publish adds the GPUs that nodes publish by DRA, where no device plugin offers
// any; none where the cluster has no DRA or the user may not read of it.
func (c *Client) publish(ctx context.Context, nodes []Node) error {
	byNode := map[string][]*translate.Slice{}
	err := pages(ctx, metav1.ListOptions{}, c.kube.ResourceV1().ResourceSlices().List, func() { clear(byNode) }, func(l *resourceapi.ResourceSliceList) {
		for i := range l.Items {
			if s := translate.SliceOf(&l.Items[i]); s.Node != "" {
				byNode[s.Node] = append(byNode[s.Node], s)
			}
		}
	})
	if err != nil && !optional(err) {
		return c.say("list ResourceSlices", err)
	}
	if len(byNode) == 0 {
		return nil
	}
	held := map[translate.DeviceID]bool{}
	err = pages(ctx, metav1.ListOptions{}, c.kube.ResourceV1().ResourceClaims("").List, func() { clear(held) }, func(l *resourceapi.ResourceClaimList) {
		for i := range l.Items {
			for _, d := range translate.AllocatedDevices(l.Items[i].Status.Allocation) {
				held[d] = true
			}
		}
	})
	if err != nil && !optional(err) {
		return c.say("list ResourceClaims", err)
	}
	var rules []*translate.TaintRule
	err = pages(ctx, metav1.ListOptions{}, c.kube.ResourceV1().DeviceTaintRules().List, func() { rules = rules[:0] }, func(l *resourceapi.DeviceTaintRuleList) {
		for i := range l.Items {
			rules = append(rules, translate.TaintRuleOf(&l.Items[i]))
		}
	})
	if err != nil && !optional(err) {
		return c.say("list DeviceTaintRules", err)
	}
	tainted := func(d translate.DeviceID) bool {
		return slices.ContainsFunc(rules, func(r *translate.TaintRule) bool { return r.Taints(d) })
	}
	for i := range nodes {
		n := &nodes[i]
		v := translate.InventoryOf(byNode[n.Name])
		if n.GPUs > 0 || v.Count() == 0 {
			continue
		}
		n.GPUs = v.Count()
		if n.Model = n.labelled; n.Model == translate.UnknownModel && v.Product != "" {
			n.Model = v.Product
		}
		no := func(translate.DeviceID) bool { return false }
		inUse := func(d translate.DeviceID) bool { return held[d] }
		unfit := v.Unusable(tainted, no)
		switch {
		case n.fault.GPUs != 0:
			unfit |= n.fault.GPUs
		case n.fault.Why != "":
			unfit = ^uint64(0)
		}
		n.published = &published{claims: v.Unusable(tainted, inUse) &^ unfit}
		for g := range v.GPUs {
			switch d := v.GPUs[g].DeviceID; {
			case d.Name == "":
			case held[d]:
				n.published.claims |= 1 << g
			case unfit>>g&1 == 1:
				n.Unhealthy++
			}
		}
	}
	return nil
}

// hold counts the GPUs of a pod.
func (d *published) hold(p *v1.Pod) {
	list, _ := translate.ParseDevices(p.Annotations[v1alpha1.GPUsAnnotation])
	for _, g := range list {
		d.pods |= 1 << g
	}
}

// used is how much claims and pods have.
func (d *published) used() v1alpha1.GPUs {
	return v1alpha1.GPUs(core.Milli(bits.OnesCount64(d.claims|d.pods)) * core.WholeGPU)
}
