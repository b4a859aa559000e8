package tables

import (
	"maps"
	"math/bits"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/sharing"
	"github.com/muster-sched/muster/kube/stats"
	"github.com/muster-sched/muster/kube/translate"
)

// Node is a node of the cluster.
type Node struct {
	Object *objects.Node
	Gone   bool      // deleted; it stays until its pods have left
	Told   core.Node // as the engine knows it
	Known  bool      // the engine knows it
	// Others is what pods of other schedulers take, which the engine does not know pod by
	// pod.
	Others translate.Amounts
	Count  int // the number of such pods
	// Evictions is how many LP pods engines before this one have counted that were evicted from it.
	Evictions int
	Pods      map[types.UID]*Pod
	Sick      uint64     // devices that are unhealthy in the engine
	Counted   stats.Node // as the census has it
	// Shard is the shard it is in, once that is known (Sharded). Opens is the earliest time
	// at which it takes pods. Closed says that it takes none, whatever its shard.
	Shard           int
	Sharded, Closed bool
	Opens           core.Time
	// Suspect says that the engine cordoned it for failures, and that the API does not show that yet.
	Suspect bool
}

// Suspect notes that the engine cordoned a node for failures, or uncordoned it. Until the API shows the cordon, the node stays
// cordoned whatever else changes, such as a moment in which it is not ready.
func (t *Tables) Suspect(d *core.Decision) {
	if n := t.Nodes[d.Node]; n != nil && t.Policies.Policy().Recovery.Mode == core.Recover {
		n.Suspect = d.Op == core.Cordon
		n.Told.Cordoned = n.Told.Cordoned || n.Suspect
	}
}

// Hosts reports whether pods that the engine knows are on the node.
func (n *Node) Hosts() bool {
	for _, p := range n.Pods {
		if p.Slot >= 0 {
			return true
		}
	}
	return false
}

// ForDevices returns a node in the form that the index of devices uses.
func (n *Node) ForDevices() devices.Node {
	o := n.Object
	return devices.Node{Name: o.Name, Resources: o.GPUs, GPUs: o.Node.GPUs, Model: o.Node.Model, Memory: n.memory(), Shared: o.Node.Labels[sharing.Label] != ""}
}

// memory returns the memory of each GPU of a node in MiB, 0 if it is not known.
func (n *Node) memory() int64 {
	mib, err := strconv.ParseInt(n.Object.Node.Labels[v1alpha1.MemoryLabel], 10, 64)
	if err != nil || mib < 0 || mib > core.MaxAmount {
		return 0
	}
	return mib
}

// NodeMemory returns the memory of each GPU of a node in MiB, 0 if it is not known.
func (t *Tables) NodeMemory(name string) int64 {
	if n := t.Nodes[name]; n != nil {
		return n.memory()
	}
	return 0
}

// Unbooked lists the pods on a node that have GPUs and that the engine does not know, in the order of [InOrder].
func (n *Node) Unbooked() []*Pod {
	return InOrder(n.Pods, func(p *Pod) bool { return p.Unbooked() > 0 })
}

// Unusable returns the set of devices of a node that are to be unhealthy in the engine: as many as
// the device plugin does not offer, plus those of pods that the engine refused. Which ones is not
// known: those that refused pods say they have come first, then free devices, so that as many are left as the kubelet admits, and of these, those that were chosen before. Where DRA drivers publish
// devices, the unusable ones are known, and those of refused pods come from the last free ones.
//
// If conditions of the node say that GPUs are broken, all are unusable that may be meant: where a device plugin offers them, all
// of the node's, as the plugin chooses among them.
func (t *Tables) Unusable(n *Node) uint64 {
	sick, known := t.unusable(n)
	switch f := n.Object.Fault; {
	case f.Why == "":
	case known && f.GPUs != 0:
		sick |= f.GPUs & n.all()
	default:
		sick = n.all()
	}
	return sick
}

// all is the set of a node's devices.
func (n *Node) all() uint64 { return 1<<n.Told.GPUs - 1 }

// unusable is Unusable by devices alone; known says that DRA drivers publish them.
func (t *Tables) unusable(n *Node) (sick uint64, known bool) {
	used, own, unbooked := uint64(0), uint64(0), 0
	for _, p := range n.Pods {
		used |= p.Devices
		if k := p.Unbooked(); k > 0 {
			own, unbooked = own|SetOf(p.Object.GPUs), unbooked+k
		}
	}
	if sick, known = t.Devices.Unusable(&n.Told, used); known {
		return lastOf(n, sick, ^used, bits.OnesCount64(sick)+unbooked), true
	}
	missing := min(n.Object.Missing+unbooked, n.Told.GPUs)
	for _, from := range []uint64{own &^ used, n.Sick &^ used, ^used, n.Sick, ^uint64(0)} {
		sick = lastOf(n, sick, from, missing)
	}
	return sick, false
}

// lastOf adds the last devices of a node that are in a set to others, until there are so many.
func lastOf(n *Node, to, set uint64, many int) uint64 {
	for g := n.Told.GPUs - 1; g >= 0 && bits.OnesCount64(to) < many; g-- {
		to |= set & (1 << g)
	}
	return to
}

// LeftOf returns what is left of an amount of a node. Pods that their authors put on the node may take more in sum
// than an int64 holds: what they take is negative then.
func LeftOf(has, taken int64) int64 {
	if taken < 0 {
		return 0
	}
	return max(0, has-taken)
}

// Outdated reports whether the engine, which knows the node, must be told what it is now.
func (n *Node) Outdated(now *core.Node) bool {
	a := &n.Told
	return a.CPUMilli != now.CPUMilli || a.MemMiB != now.MemMiB || a.MaxPods != now.MaxPods || a.HBD != now.HBD || !slices.Equal(a.Others, now.Others) ||
		!maps.Equal(a.Labels, now.Labels) || !slices.Equal(a.Taints, now.Taints) || !slices.Equal(a.Domains, now.Domains) || a.Blind != now.Blind || !slices.Equal(a.Sets, now.Sets)
}
