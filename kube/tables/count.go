package tables

import (
	"cmp"
	"math/bits"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
	"github.com/muster-sched/muster/kube/queues"
	"github.com/muster-sched/muster/kube/stats"
	"github.com/muster-sched/muster/kube/translate"
)

// CountNode counts a node.
func (t *Tables) CountNode(n *Node) stats.Node {
	if n.Gone || !n.Known || t.Nodes[n.Object.Name] != n {
		return stats.Node{}
	}
	out := stats.Node{There: 1, Model: stats.Model{Model: n.Told.Model, GPUs: n.Told.GPUs, Unhealthy: bits.OnesCount64(n.Sick)}}
	if !n.Closed {
		out.Open = 1
	}
	var used [64]core.Milli
	for _, p := range n.Pods {
		for d := p.Devices; d != 0; d &= d - 1 {
			used[bits.TrailingZeros64(d)] += p.Share()
		}
	}
	free, full := true, true
	for d := range n.Told.GPUs {
		used[d] = min(used[d], core.WholeGPU) // of one that is lent, two pods have all
		out.Used += used[d]
		// What is free on a closed node, or of an unhealthy device, is of no use.
		if rest := max(0, core.WholeGPU-used[d]); n.Closed || n.Sick>>d&1 == 1 {
			out.Unavailable += rest
		} else {
			out.Free += rest
		}
		free = free && used[d] == 0
		full = full && used[d] >= core.WholeGPU
	}
	if !free && !full {
		out.Fragmented = 1
	}
	if !full {
		out.Idle = n.idle()
		out.Levels = len(n.Told.Domains) > 0
		out.Domain, _ = frag.Path(&n.Told, len(n.Told.Domains)-1)
	}
	return out
}

// idle splits the idle GPUs of a node by cause, for each of [stats.Shapes] and the pods of [stats.Jobs].
func (n *Node) idle() []frag.Split {
	spec := n.Told
	spec.Cordoned, spec.Unhealthy = n.Closed, DevicesIn(n.Sick)
	spec.Taints = translate.Repelling(&spec)
	node := frag.Empty(&spec)
	lent := uint64(0)
	for _, p := range n.Pods {
		if p.Lends() {
			lent |= p.Devices
		}
	}
	for _, p := range n.Pods {
		if p.Group == nil || p.Devices&lent != 0 && !p.Lends() {
			continue // what it takes is subtracted from the node already, or is its lender's
		}
		a := p.Takes()
		node.Take(p.Devices, p.Share(), a.CPUMilli, a.MemMiB, 1)
		node.TakeOthers(a.Others)
	}
	out := make([]frag.Split, 0, len(stats.Shapes)+len(stats.Jobs))
	for k := range stats.Shapes {
		out = append(out, stats.Shapes[k].Split(&node))
	}
	for k := range stats.Jobs {
		out = append(out, stats.Jobs[k].Shape.Split(&node))
	}
	return out
}

// CountGroup counts a group, in the memory of its last count.
func (t *Tables) CountGroup(g *Group) (out stats.Group) {
	out.Used = g.Counted.Used[:0]
	if t.Groups[g.ID] != g {
		return out
	}
	var first *Pod
	for _, p := range g.Pods {
		first = p
		if p.State == PodWaiting {
			out.Waiting++
			continue
		}
		out.Bound++
		if p.Object.Phase == v1.PodRunning {
			out.Running++
		}
		if n := t.Nodes[p.Target]; n != nil && p.Devices != 0 {
			out.Use(n.Told.Model, core.Milli(bits.OnesCount64(p.Devices))*p.Share())
		}
	}
	if first == nil {
		return out
	}
	if out.Waiting > 0 {
		out.JobWaits = 1
		if t.Ours(g) {
			out.Reason = cmp.Or(g.Waiting.Reason, "New")
		}
	}
	if g.ID.Kind == Foreign {
		out.Queue = queues.Others
		return out
	}
	if out.Bound > 0 {
		out.JobRuns = 1
	}
	out.Jobs = 1
	if out.Queue = g.Queue; !g.Submitted {
		out.Queue = t.QueueOf(g, t.AttributesOf(g, first))
	}
	return out
}
