package devices

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/selector"
	"github.com/muster-sched/muster/kube/translate"
)

// The devices that DRA drivers publish, and how nodes are described by them.

// Pseudo labels of nodes.
const (
	// gpusLabel says how many GPUs the node publishes by DRA.
	gpusLabel = "dra.muster.sh/gpus"
	// nicsLabel says, as "paired", that each of them has a NIC of its own.
	nicsLabel = "dra.muster.sh/nics"
	// matchLabel and the number of a question say what its answer is.
	matchLabel = "dra.muster.sh/match-"
	// countSuffix ends the label that says for how many GPUs of the node it holds, if it holds for
	// single GPUs of nodes.
	countSuffix = "-gpus"
)

// published is what DRA drivers say of a node.
type published struct {
	slices map[string]*translate.Slice
	// inventory is the last that was whole; stale says that its slices are being
	// replaced, or gone.
	inventory *translate.Inventory
	stale     bool
	// answers has what holds for some of its devices, most is how many there have been.
	answers map[*question]answer
	most    int
}

// poolID names a pool of devices.
type poolID struct{ driver, name string }

// ObserveSlice records the present state of a ResourceSlice.
func (x *Index) ObserveSlice(o *translate.Slice) Change {
	x.observeSlice(o)
	return x.changes.take()
}

func (x *Index) observeSlice(o *translate.Slice) {
	if o.Node == "" {
		return
	}
	p := x.published[o.Node]
	if p == nil {
		p = &published{slices: map[string]*translate.Slice{}, answers: map[*question]answer{}}
		x.published[o.Node] = p
	}
	p.slices[o.Name] = o
	x.pools[poolID{o.Driver, o.Pool}] = o.Node
	x.takeStock(o.Node, p)
}

// ForgetSlice records that a ResourceSlice was deleted.
func (x *Index) ForgetSlice(o *translate.Slice) Change {
	x.forgetSlice(o)
	return x.changes.take()
}

func (x *Index) forgetSlice(o *translate.Slice) {
	p := x.published[o.Node]
	if p == nil {
		return
	}
	delete(p.slices, o.Name)
	if len(p.slices) == 0 && x.plugins.nodes[o.Node] == nil {
		x.retract(o.Node, p)
		delete(x.published, o.Node)
		return
	}
	x.takeStock(o.Node, p)
}

// ReplaceSlices replaces all known ResourceSlices.
func (x *Index) ReplaceSlices(list []*translate.Slice) Change {
	there := make(map[string]bool, len(list))
	for _, o := range list {
		there[o.Name] = true
		x.observeSlice(o)
	}
	for _, p := range x.published {
		for name, o := range p.slices {
			if !there[name] {
				x.forgetSlice(o)
			}
		}
	}
	return x.changes.take()
}

// takeStock reads the slices of a node again. While some are missing, what was there
// stays, and nothing is placed on it.
func (x *Index) takeStock(name string, p *published) {
	v := translate.InventoryOf(slices.Collect(maps.Values(p.slices)))
	p.stale = !v.Complete || len(v.GPUs) == 0 && p.inventory != nil && len(p.inventory.GPUs) > 0
	if len(v.GPUs) > cluster.MaxGPUs {
		x.changes.warnings = append(x.changes.warnings, Warning{name, fmt.Sprintf("%d GPUs, expected at most %d", len(v.GPUs), cluster.MaxGPUs)})
		p.stale = true
	}
	if !p.stale || p.inventory == nil && len(v.GPUs) <= cluster.MaxGPUs {
		p.inventory = v
		x.askAgain(name, p)
	}
	x.changes.node(name)
	if len(v.GPUs) > 0 && !x.any {
		x.any = true
		x.changes.rebuild = true
	}
}

// Publishes reports whether DRA drivers have published devices of a node.
func (x *Index) Publishes(node string) bool { return x.published[node] != nil }

// Describe adds to a node what drivers publish of its devices, if they do and no device
// plugin does.
func (x *Index) Describe(n *core.Node) {
	p := x.published[n.Name]
	if p == nil || p.inventory == nil || len(p.inventory.GPUs) == 0 || n.GPUs > 0 {
		return
	}
	v := p.inventory
	n.GPUs, n.Devices = len(v.GPUs), v.Layout
	if n.Model = translate.Model(n.Labels); n.Model == translate.UnknownModel && v.Product != "" {
		n.Model = v.Product
	}
	n.Labels = maps.Clone(n.Labels)
	n.Labels[gpusLabel] = strconv.Itoa(v.Count())
	if v.Paired {
		n.Labels[nicsLabel] = "paired"
	}
	for q, a := range p.answers {
		if a.gpus != selector.None {
			n.Labels[q.label] = matches[a.gpus]
			if q.single {
				n.Labels[q.label+countSuffix] = strconv.Itoa(bits.OnesCount64(a.devices))
				n.Sets = append(n.Sets, core.DeviceSet{Name: q.label, Devices: a.devices})
			}
		}
		if a.nics != selector.None {
			n.Labels[q.label+"-nics"] = matches[a.nics]
		}
	}
	slices.SortFunc(n.Sets, func(a, b core.DeviceSet) int { return strings.Compare(a.Name, b.Name) })
}

// Described reports whether the GPUs of a node are those that [Index.Describe] added.
func Described(n *core.Node) bool { return n.Labels[gpusLabel] != "" }

// Unusable returns the devices of a node that the engine must not use: those that are
// tainted, and those that belong to a claim without a known pod. n is the node as it was
// described, used has the devices of the pods on it. It is false if its GPUs are not
// published through DRA.
func (x *Index) Unusable(n *core.Node, used uint64) (uint64, bool) {
	p := x.published[n.Name]
	if !Described(n) || p == nil || p.inventory == nil {
		return 0, false
	}
	if p.stale {
		return 1<<n.GPUs - 1, true
	}
	tainted := func(d translate.DeviceID) bool {
		for _, r := range x.rules {
			if r.Taints(d) {
				return true
			}
		}
		return false
	}
	set := p.inventory.Unusable(tainted, func(d translate.DeviceID) bool { return x.held[d] != nil })
	for i := range p.inventory.GPUs {
		if d := &p.inventory.GPUs[i]; used>>i&1 == 0 && x.isHeld(d.DeviceID) {
			set |= 1 << i
		}
	}
	return set, true
}

// isHeld reports whether a claim has the device, or is about to.
func (x *Index) isHeld(d translate.DeviceID) bool {
	if x.held[d] != nil {
		return true
	}
	for _, list := range x.inFlight {
		if slices.Contains(list, d) {
			return true
		}
	}
	return false
}

// devices names the GPUs of a set, and the NICs that are nearest to them.
func (p *published) devices(set uint64) (gpus, nics []translate.DeviceID) {
	for s := set; s != 0 && p.inventory != nil; s &= s - 1 {
		i := bits.TrailingZeros64(s)
		if i >= len(p.inventory.GPUs) {
			break
		}
		gpus = append(gpus, p.inventory.GPUs[i].DeviceID)
		if nic := p.inventory.Layout[i].NIC; nic >= 0 {
			nics = append(nics, p.inventory.NICs[nic].DeviceID)
		}
	}
	return gpus, nics
}

// ObserveTaintRule records the present state of a DeviceTaintRule.
func (x *Index) ObserveTaintRule(o *translate.TaintRule) Change {
	x.setRule(o.Name, o)
	return x.changes.take()
}

// ForgetTaintRule records that a DeviceTaintRule was deleted.
func (x *Index) ForgetTaintRule(o *translate.TaintRule) Change {
	x.setRule(o.Name, nil)
	return x.changes.take()
}

// ReplaceTaintRules replaces all known DeviceTaintRules.
func (x *Index) ReplaceTaintRules(list []*translate.TaintRule) Change {
	there := map[string]bool{}
	for _, o := range list {
		there[o.Name] = true
		x.setRule(o.Name, o)
	}
	for name := range x.rules {
		if !there[name] {
			x.setRule(name, nil)
		}
	}
	return x.changes.take()
}

// setRule records a rule, nil for none, and notes the nodes that it concerns now or did
// before.
func (x *Index) setRule(name string, o *translate.TaintRule) {
	for _, r := range []*translate.TaintRule{x.rules[name], o} {
		for pool, node := range x.pools {
			if r != nil && r.Concerns(pool.driver, pool.name) {
				x.changes.node(node)
			}
		}
	}
	if x.rules[name] = o; o == nil {
		delete(x.rules, name)
	}
}
