package mirror

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/tables"
)

// This file handles gangs that lose a pod, and pods on lost nodes.
//
// A pod of a running gang that fails, or that is deleted, is replaced: its
// owner makes a new one, which joins. Where the job says so, the whole gang is
// stopped instead, if too few are left, and waits again.

// memberLost handles the loss of a pod of a gang: the pod ran, was not evicted, and ended
// without success. A gang with pods that have succeeded is not stopped: they will not be
// made again, and the gang would wait for them.
//
// list has the other pods to evict.
func (m *changes) memberLost(g *tables.Group, p *tables.Pod, list ...tables.Eviction) {
	if g.Gang() && m.Ours(g) && g.Submitted && !g.Draining && !g.Worked && g.Broken((*tables.Pod).Runs) && g.Runs() && m.Requeues(g, p) {
		m.log.Info("a gang is stopped because it lost a pod", "job", g.Job, "pod", p.Object.Name)
		list = m.breakUp(g, core.MemberLost.String(), fmt.Sprintf("pod %s of the gang was lost", p.Object.Name), list)
		g.Draining, g.Broke = true, true
	}
	m.sendOff(g, list)
}

// breakUp evicts all running pods of a group, and adds them to list. The engine is told when
// each is gone.
func (m *changes) breakUp(g *tables.Group, reason, why string, list []tables.Eviction) []tables.Eviction {
	for _, p := range g.Pods {
		if p.State != tables.PodBinding && p.State != tables.PodBound {
			continue
		}
		p.State = tables.PodLeaving
		m.NotePod(p)
		p.Cause = tables.Eviction{Of: p, Reason: reason, Message: why}
		if !p.InFlight && !p.Object.Deleting {
			list = append(list, p.Cause)
		}
	}
	return list
}

// sendOff evicts the given pods of a group.
func (m *changes) sendOff(g *tables.Group, list []tables.Eviction) {
	saves := func(e tables.Eviction) bool { ok, _ := e.Saves(); return ok }
	switch {
	case len(list) > 0 && m.MaySuspend(g):
		m.suspend(g, list)
	case g.Gang() && !g.Runs() && slices.ContainsFunc(list, saves):
		m.acts.Together = append(m.acts.Together, slices.Clone(list))
	default:
		m.acts.Evict = append(m.acts.Evict, list...)
	}
}

// sweepLost evicts the pods on lost nodes:
//
//  1. Of nodes that are lost from now on, the pods that are being deleted are given up at
//     once: another client has decided on them, and no kubelet is there to end them.
//  2. The others are evicted node by node, as fast as the state of the zone allows. An
//     empty node costs nothing.
func (m *driver) sweepLost() {
	look := m.Lost.Look(m.Now)
	m.acts.Wake = min(m.acts.Wake, look.Wake)
	switch {
	case look.Changed && look.Outage:
		m.log.Warn("no node is ready: pods of lost nodes are not evicted")
	case look.Changed:
		m.log.Warn("nodes are ready again: the time until other nodes are lost starts again", "after", m.Lost.Config.After)
	}
	for _, name := range look.New {
		for _, p := range tables.InOrder(m.Nodes[name].Pods, func(p *tables.Pod) bool { return p.Object.Deleting && !p.InFlight }) {
			m.strand(p)
		}
	}
	// The node that is due has its turn when the rate of its zone allows it. Nodes are not
	// emptied in one sweep: if it is the network that failed, most of them come back.
	for _, name := range look.Due {
		n := m.Nodes[name]
		leaving := tables.InOrder(n.Pods, m.LeavesLost)
		if len(leaving) > 0 {
			ok, at := m.Lost.Turn(name, m.Now)
			if !ok {
				m.acts.Wake = min(m.acts.Wake, at)
				continue
			}
		}
		m.Lost.Emptied(name)
		m.sweep(n, leaving)
	}
}

func (m *changes) sweep(n *tables.Node, leaving []*tables.Pod) {
	if len(leaving) == 0 {
		return
	}
	why := fmt.Sprintf("node %s has not been ready since %s", n.Object.Name, n.Object.Unready.UTC().Format(time.RFC3339))
	m.log.Warn("a node is lost: evicting its pods", "node", n.Object.Name, "pods", len(leaving))
	for _, p := range leaving {
		if p.State != tables.PodBound {
			continue // it has gone with its gang
		}
		p.State = tables.PodLeaving
		m.NotePod(p)
		p.Cause = tables.Eviction{Of: p, Reason: core.MemberLost.String(), Message: why}
		m.memberLost(p.Group, p, p.Cause)
	}
}

// strand takes a pod out of its job that is being deleted on a lost node: the job
// goes on without it. The pod holds what it has of the node until it is gone from
// the API, or ended: the node may come back, with the pod's processes on it.
func (m *driver) strand(p *tables.Pod) {
	g, ran := p.Group, p.State == tables.PodBound || p.State == tables.PodBinding
	if g == nil || g.ID.Kind == tables.Foreign {
		return
	}
	o := *p.Object
	if p.Task != nil {
		o.Request.GPU = p.Task.Spec.GPU // as it was bound, whatever the pod says by now
	}
	if o.GPUs == nil || p.Devices != 0 {
		// The annotation may name other devices by now. The devices booked for it count.
		o.GPUs = tables.DevicesIn(p.Holds())
	}
	p.Lost = true
	m.podOver(p)
	m.newPod(o.Stranded())
	m.Pods[o.UID].Stranded = true
	if ran {
		m.memberLost(g, p)
	}
}
