package console

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
	"github.com/muster-sched/muster/kube/translate"
)

// Idle returns the nodes with GPUs, with what pods of any scheduler leave idle of them, and the
// node labels of the topology, widest first. Which GPUs are held is what pods and claims say;
// where they do not say it of all, pods have the first ones, parts packed. Which are unhealthy
// is not known either: those are the last that no pod holds, and all of a node that is not
// ready. A taint closes a node unless its key is the node's GPU resource: pods that request
// that resource commonly tolerate it.
func (c *Client) Idle(ctx context.Context) ([]frag.Node, []string, error) {
	levels, err := c.levels(ctx)
	if err != nil {
		return nil, nil, c.say("list topologies", err)
	}
	others := map[string][]core.Amount{}
	nodes, err := c.listNodes(ctx, live+",spec.nodeName!=", func() { clear(others) }, func(p *v1.Pod) {
		others[p.Spec.NodeName] = translate.AddOthers(others[p.Spec.NodeName], translate.Requests(p).Others, 1)
	})
	if err != nil {
		return nil, nil, err
	}
	var all []frag.Node
	for i := range nodes {
		if n := &nodes[i]; n.GPUs > 0 {
			all = append(all, n.idle(levels, others[n.Name]))
		}
	}
	return all, levels, nil
}

// idle returns what is idle of the node; others is what pods hold of other resources.
func (n *Node) idle(levels []string, others []core.Amount) frag.Node {
	spec := n.spec
	spec.Name, spec.Model, spec.GPUs, spec.Cordoned = n.Name, n.Model, n.GPUs, n.closed || n.Cordoned
	for _, l := range levels {
		spec.Domains = append(spec.Domains, spec.Labels[l])
	}
	spec.Taints = translate.Repelling(&spec)
	held := n.heldGPUs()
	for d := n.GPUs - 1; d >= 0 && (len(spec.Unhealthy) < n.Unhealthy || !n.ready); d-- {
		if held[d] == 0 || !n.ready {
			spec.Unhealthy = append(spec.Unhealthy, d)
		}
	}
	out := frag.Empty(&spec)
	for d, share := range held {
		out.Take(1<<d, min(share, core.WholeGPU), 0, 0, 1)
	}
	out.Take(0, 0, n.CPUUsedMilli, n.MemUsedMiB, 1)
	out.TakeOthers(others)
	if spec.MaxPods > 0 {
		out.Pods = spec.MaxPods - n.Pods
	}
	return out
}

// heldGPUs returns how much of each GPU is held.
func (n *Node) heldGPUs() []core.Milli {
	held, sum := make([]core.Milli, n.GPUs), core.Milli(0)
	if n.published != nil {
		for d := range held {
			if (n.published.claims|n.published.pods)>>d&1 == 1 {
				held[d] = core.WholeGPU
			}
		}
		return held
	}
	for _, given := range n.given {
		sum += given
	}
	if sum == core.Milli(n.Used) {
		copy(held, n.given)
		return held
	}
	left := core.Milli(n.Used)
	for d := range held {
		held[d] = min(left, core.WholeGPU)
		left -= held[d]
	}
	return held
}
