package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// maxNodes bounds what the counts of a snapshot may add up to.
const maxNodes = 1_000_000

func (r *reader) nodes(f *file) error {
	r.node, r.model = map[string]*place{}, map[string]bool{}
	seen := map[string]bool{}
	for i := range f.Nodes {
		n, at := &f.Nodes[i], fmt.Sprintf("nodes[%d]", i)
		if err := r.checkNode(n, at); err != nil {
			return err
		}
		for _, name := range n.names() {
			if err := r.unique(seen, at+".name", name); err != nil {
				return err
			}
			r.s.Nodes = append(r.s.Nodes, n.node(name, r.s.Levels))
		}
		if len(r.s.Nodes) > maxNodes {
			return r.src.Errorf(at+".count", "at most %d nodes in all; found more", maxNodes)
		}
		if n.GPUs > 0 {
			r.model[n.Model] = true
		}
	}
	for i := range r.s.Nodes {
		n := &r.s.Nodes[i]
		r.node[n.Name] = &place{n, slices.Repeat([]core.Milli{core.WholeGPU}, n.GPUs), n.CPUMilli, n.MemMiB, map[string]int64{}}
	}
	return nil
}

func (r *reader) checkNode(n *node, at string) error {
	if n.GPUs > 0 && n.Model == "" {
		return r.src.Errorf(at+".model", "the GPU model of a node with GPUs; found nothing")
	}
	if cluster.CheckModel(n.Model) != nil {
		return r.src.Errorf(at+".model", "a GPU model, whose name is not * and does not begin with /; found %q", n.Model)
	}
	if len(n.Devices) > 0 && len(n.Devices) != n.GPUs {
		return r.src.Errorf(at+".devices", "one entry for each of the %d GPUs; found %d", n.GPUs, len(n.Devices))
	}
	if err := r.checkOthers(n.Others, at); err != nil {
		return err
	}
	for _, name := range sorted(n.Sets) {
		path := at + ".sets." + name
		if name == "" {
			return r.src.Errorf(at+".sets", "the names of sets; found an empty one")
		}
		for k, gpu := range n.Sets[name] {
			if err := r.checkGPU(n.GPUs, n.Sets[name][:k], gpu, fmt.Sprintf("%s[%d]", path, k)); err != nil {
				return err
			}
		}
	}
	for k, gpu := range n.Unhealthy {
		if err := r.checkGPU(n.GPUs, n.Unhealthy[:k], gpu, fmt.Sprintf("%s.unhealthy[%d]", at, k)); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) checkOthers(o others, at string) error {
	for _, name := range sorted(o) {
		if name == "" {
			return r.src.Errorf(at+".others", "the names of resources; found an empty one")
		}
		if v := o[name]; v < 0 || v > core.MaxAmount {
			return r.src.Errorf(at+".others."+name, "a whole number from 0 to %d; found %d", int64(core.MaxAmount), v)
		}
	}
	return nil
}

// amounts lists them as the engine has them.
func (o others) amounts() []core.Amount {
	var out []core.Amount
	for _, name := range sorted(o) {
		out = append(out, core.Amount{Name: name, Value: o[name]})
	}
	return out
}

// checkGPU checks that gpu is one of this many, and not among those before it.
func (r *reader) checkGPU(gpus int, before []int, gpu int, path string) error {
	if gpu < 0 || gpu >= gpus {
		return r.src.Errorf(path, "the number of a GPU, of which the node has %d; found %d", gpus, gpu)
	}
	if slices.Contains(before, gpu) {
		return r.src.Errorf(path, "each GPU once; found %d again", gpu)
	}
	return nil
}

// names returns the names of the nodes that n stands for.
func (n *node) names() []string {
	if n.Count == nil || n.Name == "" {
		return []string{n.Name}
	}
	var all []string
	for i := range *n.Count {
		all = append(all, fmt.Sprintf("%s-%d", n.Name, i))
	}
	return all
}

func (n *node) node(name string, levels []string) core.Node {
	c := core.Node{
		Name: name, Model: n.Model, GPUs: n.GPUs, CPUMilli: n.CPUMilli, MemMiB: n.MemMiB, Others: n.Others.amounts(),
		Labels: n.Labels, Unhealthy: n.Unhealthy, Cordoned: n.Cordoned, HBD: n.HBD, Blind: n.Blind,
	}
	for _, d := range n.Devices {
		c.Devices = append(c.Devices, core.Device{Island: orNone(d.Island), PCIe: orNone(d.PCIe), NUMA: orNone(d.NUMA), NIC: orNone(d.NIC)})
	}
	for _, name := range sorted(n.Sets) {
		set := core.DeviceSet{Name: name}
		for _, gpu := range n.Sets[name] {
			set.Devices |= 1 << gpu
		}
		c.Sets = append(c.Sets, set)
	}
	for _, t := range n.Taints {
		c.Taints = append(c.Taints, core.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	for _, level := range levels {
		c.Domains = append(c.Domains, n.Labels[level])
	}
	return c
}

func orNone(position *int8) int8 {
	if position == nil {
		return -1
	}
	return *position
}

// list writes names for an error: at most ten of them.
func list(names []string) string {
	const most = 10
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

// sorted returns the names in a set, in order.
func sorted[V any](set map[string]V) []string { return slices.Sorted(maps.Keys(set)) }
