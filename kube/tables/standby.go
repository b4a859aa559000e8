package tables

import (
	"fmt"
	"math/bits"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
)

// Lending is the standby of a pod.
type Lending struct {
	Until core.Time
	// Returning says that the engine was asked to let the pod go on; Since when it was, or when
	// its window ended.
	Returning bool
	Since     core.Time
}

// Lends reports whether other pods may be on the GPUs of a pod: it is on standby, or was when an
// instance before this one wrote that on it.
func (p *Pod) Lends() bool {
	return p.Lending != nil || p.Object.Standby != nil && p.Object.Standby.Lends
}

// Lenders counts the pods of the group that lend their GPUs.
func (g *Group) Lenders() (n int) {
	for _, p := range g.Pods {
		if p.Lends() {
			n++
		}
	}
	return n
}

// mayBeOn reports whether a pod may be on the GPUs that another lends.
func (p *Pod) mayBeOn(o *Pod) bool { return o.Lends() && !p.Lends() && !p.Object.Counted() }

// keepPlace keeps for a pod what it had on its node when it asked to be on standby, and until it
// ends: it is resized, so that others can use the rest.
func (p *Pod) keepPlace(o *objects.Pod) {
	old := p.Object
	if !o.Ours || o.Node == "" || o.Node != old.Node || o.Standby == nil && old.Standby == nil {
		return
	}
	if o.Standby == nil { // it says no more
		o.Standby = &objects.Standby{Requests: o.Amounts}
	}
	s := o.Standby
	if old.Standby != nil {
		s.Extend(old.Standby.Place)
	}
	if !s.Until.IsZero() && (old.Standby == nil || old.Standby.Until.IsZero()) {
		s.Extend(&old.Amounts)
	}
	o.KeepPlace()
}

// MayLend says why a pod on its node must not be on standby, or cannot; empty if it may.
func (t *Tables) MayLend(p *Pod) string {
	o := p.Object
	n := t.Nodes[p.Target]
	switch {
	case o.Standby.Wrong != "":
		return o.Standby.Wrong
	case t.AttributesOf(p.Group, p).Class != core.HP:
		return "only pods of HP jobs lend their GPUs"
	case t.Shards.Several():
		return "several instances of the scheduler share the cluster: no pods lend their GPUs then"
	case len(o.DeviceClaims) > 0 || o.Extended != "":
		return "its GPUs come from a resource claim: a driver gives them to no other pod meanwhile"
	case o.Request.GPU < core.WholeGPU:
		return "it has no whole GPU"
	case o.Amounts.GPUs > 0 && (n == nil || bits.OnesCount64(p.Devices) < n.Told.GPUs):
		return fmt.Sprintf("the kubelet chose its GPUs, and nothing says which: expected all GPUs of the node, or %s instead of %s",
			v1alpha1.GPUCountAnnotation, v1alpha1.GPUResource)
	}
	return ""
}

// ToBeResized says what a pod still requests beyond what it is to keep on standby; empty if
// nothing.
func (p *Pod) ToBeResized() string {
	s := p.Object.Standby
	if s.Keeps == nil || s.Requests.CPUMilli <= s.Keeps.CPUMilli && s.Requests.MemMiB <= s.Keeps.MemMiB {
		return ""
	}
	return fmt.Sprintf("it requests %d milli-cores and %d MiB: expected at most %d and %d, as in %s, before it lends its GPUs",
		s.Requests.CPUMilli, s.Requests.MemMiB, s.Keeps.CPUMilli, s.Keeps.MemMiB, v1alpha1.StandbyKeepsAnnotation)
}
