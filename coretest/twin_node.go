package coretest

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// What nodes have, what pods take of it, and what pods require of a node by itself.

// mayRunOn checks a placement against the task's request and the node.
func (w *Twin) mayRunOn(j *job, t *core.Task, at *core.Placement) error {
	n := w.node(at.Node)
	switch {
	case n == nil || !n.up:
		return fmt.Errorf("the node is not there")
	case n.cordoned:
		return fmt.Errorf("the node is cordoned")
	case at.GPUs>>n.GPUs != 0 && n.GPUs < 64:
		return fmt.Errorf("it has no GPUs %b", at.GPUs)
	case at.GPUs&n.bad != 0:
		return fmt.Errorf("GPUs %b are unhealthy", at.GPUs&n.bad)
	case at.CPUMilli != t.CPUMilli || at.MemMiB != t.MemMiB:
		return fmt.Errorf("CPU or memory is not what it asked for")
	}
	if at.NICs != n.nics(at.GPUs) {
		return fmt.Errorf("NICs %b for GPUs %b", at.NICs, at.GPUs)
	}
	count := bits.OnesCount64(at.GPUs)
	switch {
	case t.GPU == 0 && count != 0,
		t.GPU > 0 && t.GPU < core.WholeGPU && (count != 1 || at.GPU != t.GPU),
		t.GPU >= core.WholeGPU && (at.GPU != core.WholeGPU || core.Milli(count)*core.WholeGPU != t.GPU):
		return fmt.Errorf("%d GPUs of %d milli for a request of %d", count, at.GPU, t.GPU)
	case fromSets(t, n, at.GPUs, 1) == 0:
		return fmt.Errorf("GPUs %b are not of the sets %v, which are %v", at.GPUs, t.From, n.Sets)
	}
	return w.suits(j, t, n)
}

// suits checks what a task requires of a node, whatever runs there.
func (w *Twin) suits(j *job, t *core.Task, n *node) error {
	switch {
	case len(t.Models) > 0 && !slices.Contains(t.Models, n.Model):
		return fmt.Errorf("model %s, accepted are %v", n.Model, t.Models)
	case !selects(t.Selector, n.Labels):
		return fmt.Errorf("labels %v, selected are %v", n.Labels, t.Selector)
	case len(t.AnyOf) > 0 && !slices.ContainsFunc(t.AnyOf, func(rs []core.Requirement) bool { return selects(rs, n.Labels) }):
		return fmt.Errorf("labels %v, selected is one of %v", n.Labels, t.AnyOf)
	}
	if z := &w.policy.Zone; z.Exclusive && z.Key != "" && n.Labels[z.Key] == z.Value && j.Kind != core.Inference {
		return fmt.Errorf("the zone is for inference")
	}
	for _, taint := range n.Taints {
		if !taint.Soft() && !bears(t, taint) {
			return fmt.Errorf("taint %v", taint)
		}
	}
	return nil
}

// bears reports whether a task tolerates a taint.
func bears(t *core.Task, taint core.Taint) bool {
	return slices.ContainsFunc(t.Tolerations, func(o core.Toleration) bool {
		key, value, effect := o.Key == "" || o.Key == taint.Key, o.Value == "" || o.Value == taint.Value, o.Effect == "" || o.Effect == taint.Effect
		return key && value && effect
	})
}

// selects reports whether labels satisfy every requirement.
func selects(selector []core.Requirement, labels map[string]string) bool {
	for _, r := range selector {
		v, has := labels[r.Key]
		in := has && slices.Contains(r.Values, v)
		n, err := strconv.Atoi(v)
		than, _ := strconv.Atoi(strings.Join(r.Values, " "))
		number := has && err == nil
		if ok := [...]bool{
			cluster.In: in, cluster.NotIn: !in, cluster.Exists: has, cluster.DoesNotExist: !has,
			cluster.Gt: number && n > than, cluster.Lt: number && n < than,
		}[r.Op]; !ok {
			return false
		}
	}
	return true
}

// nics returns the NICs nearest to GPUs of the node; if the layout is not known, each GPU has
// its own.
func (n *node) nics(gpus uint64) uint64 {
	if n.Devices == nil {
		return gpus
	}
	var out uint64
	for g, d := range n.Devices {
		if gpus>>g&1 == 1 && d.NIC >= 0 {
			out |= 1 << d.NIC
		}
	}
	return out
}

// other is how much the node has of another resource.
func (n *node) other(name string) int64 {
	for _, a := range n.Others {
		if a.Name == name {
			return a.Value
		}
	}
	return 0
}

// use is what the pods on a node take.
type use struct {
	gpu      [64]core.Milli
	wholly   uint64 // GPUs taken as a whole
	partly   uint64
	cpu, mem int64
	pods     int
	others   map[string]int64
	picked   [len(cluster.Pickers)]int // pods with GPUs, by who picks these
}

func (w *Twin) use(n *node) use {
	u := w.useBut(n)
	for range w.lenders(n.Name) {
		cpu, mem, _ := w.loans(n)
		u.cpu, u.mem = u.cpu+cpu.drawn(), u.mem+mem.drawn()
		break
	}
	return u
}

// useBut is use without the CPU and memory that pods on lent GPUs draw.
func (w *Twin) useBut(n *node) use {
	u := use{others: map[string]int64{}}
	for _, j := range w.jobs {
		for i := range j.pods {
			p := &j.pods[i]
			u.addImage(n, j, p)
			for at := range p.places() {
				switch {
				case at.Node != n.Name:
				case w.guest(at, p) != nil: // what it takes is a part of what the owners have, but for what it draws
					u.pods++
					for g := range n.GPUs {
						if (at.GPUs&^w.lent(n.Name))>>g&1 == 1 {
							u.picked[core.EnginePicks]++
							u.gpu[g] += at.GPU
							u.wholly |= 1 << g
						}
					}
				default:
					u.add(n, &j.Tasks[p.task], at)
				}
			}
		}
	}
	return u
}

// add adds what a pod of a task takes at its place on a node.
func (u *use) add(n *node, t *core.Task, at *core.Placement) {
	u.cpu += at.CPUMilli
	u.mem += at.MemMiB
	u.pods++
	u.countBeside(t)
	for g := range n.GPUs {
		if at.GPUs>>g&1 == 0 {
			continue
		}
		u.gpu[g] += at.GPU
		if at.GPU == core.WholeGPU {
			u.wholly |= 1 << g
		} else {
			u.partly |= 1 << g
		}
	}
}

// countBeside counts a pod of a task on a node for what it takes beside GPUs, CPU and memory.
func (u *use) countBeside(t *core.Task) {
	for _, a := range t.Others {
		u.others[a.Name] += a.Value
	}
	u.picked[t.Picks()]++
}

// keepsOff reports whether the node has pods that must not be beside those of a task, by who picks their GPUs.
func (u *use) keepsOff(n *node, t *core.Task) bool {
	other := map[core.Picker]core.Picker{core.EnginePicks: core.NodePicks, core.NodePicks: core.EnginePicks}[t.Picks()]
	return n.Blind && other != core.AnyPicker && u.picked[other] > 0
}

// notOverfull checks that a node on which a pod of a task starts has what its pods
// take, of other resources as far as the task names them.
func (w *Twin) notOverfull(n *node, t *core.Task) error {
	u := w.use(n)
	for g := range n.GPUs {
		if u.gpu[g] > core.WholeGPU {
			return fmt.Errorf("GPU %d is given out at %d milli", g, u.gpu[g])
		}
	}
	switch {
	case u.wholly&u.partly != 0:
		return fmt.Errorf("GPUs %b are given whole and in part", u.wholly&u.partly)
	case u.cpu > n.CPUMilli:
		return fmt.Errorf("%d of %d milli-cores are given out", u.cpu, n.CPUMilli)
	case u.mem > n.MemMiB:
		return fmt.Errorf("%d of %d MiB are given out", u.mem, n.MemMiB)
	case n.MaxPods > 0 && u.pods > n.MaxPods:
		return fmt.Errorf("it has %d pods, and takes %d", u.pods, n.MaxPods)
	case u.keepsOff(n, t):
		return fmt.Errorf("it is blind, and has pods whose GPUs it picks and others: %v", u.picked)
	}
	for _, a := range t.Others {
		if has := n.other(a.Name); a.Value > 0 && u.others[a.Name] > has {
			return fmt.Errorf("%d of %d %s are given out", u.others[a.Name], has, a.Name)
		}
	}
	return nil
}
