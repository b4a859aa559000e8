package kube

import (
	"fmt"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// What becomes of a gang that loses a pod, and of pods on nodes that are lost.
//
// A pod of a running gang that fails, or that is deleted, is replaced: its
// owner makes a new one, which joins. Where the job says so, the whole gang is
// stopped instead, if too few are left, and waits again.

// requeues reports whether the gang is to be stopped for the loss of a pod.
func (t *tables) requeues(g *group, p *pod) bool {
	switch t.attributesOf(g, p).OnFailure {
	case "requeue":
		return true
	case "replace":
		return false
	}
	pg := t.podGroupOf(g)
	return pg != nil && pg.whole
}

// memberLost takes in that a pod of a gang, which ran and was not told to leave,
// is over without having done its work. A gang of which pods have done theirs
// is not stopped: they will not come again, and it would wait for them.
//
// list has what is to leave besides.
func (m *changes) memberLost(g *group, p *pod, list ...evictAct) {
	if g.gang() && m.ours(g) && g.submitted && !g.draining && !g.worked && g.broken((*pod).runs) && g.runs() && m.requeues(g, p) {
		m.log.Info("a gang is stopped because it lost a pod", "job", g.job, "pod", p.object.Name)
		list = m.breakUp(g, core.MemberLost.String(), fmt.Sprintf("pod %s of the gang was lost", p.object.Name), list)
		g.draining, g.broke = true, true
	}
	m.sendOff(g, list)
}

// breakUp makes all pods of a group leave that run, and adds them to list. The
// engine is told as they go.
func (m *changes) breakUp(g *group, reason, why string, list []evictAct) []evictAct {
	for _, p := range g.pods {
		if p.state != podBinding && p.state != podBound {
			continue
		}
		p.state = podLeaving
		m.notePod(p)
		p.cause = evictAct{pod: p, reason: reason, message: why}
		if !p.inFlight && !p.object.deleting {
			list = append(list, p.cause)
		}
	}
	return list
}

// sendOff makes pods of a group leave that are told to.
func (m *changes) sendOff(g *group, list []evictAct) {
	if len(list) > 0 && m.maySuspend(g) {
		m.suspend(g, list)
		return
	}
	m.acts.evict = append(m.acts.evict, list...)
}

// sweepLost makes the pods leave that are on lost nodes:
//
//  1. Of nodes that are lost from now on, the pods that are being deleted are given up at
//     once: someone else has decided on them, and no kubelet is there to end them.
//  2. The others are evicted node by node, as fast as the state of the zone allows. An
//     empty node costs nothing.
func (m *driver) sweepLost() {
	look := m.lost.Look(m.now)
	m.acts.wake = min(m.acts.wake, look.Wake)
	switch {
	case look.Changed && look.Outage:
		m.log.Warn("no node is ready: pods of lost nodes are not evicted")
	case look.Changed:
		m.log.Warn("nodes are ready again: the time until other nodes are lost starts again", "after", m.lost.Config.After)
	}
	for _, name := range look.New {
		for _, p := range inOrder(m.nodes[name].pods, func(p *pod) bool { return p.object.deleting && !p.inFlight }) {
			m.strand(p)
		}
	}
	for _, name := range look.Due {
		n := m.nodes[name]
		leaving := inOrder(n.pods, m.leavesLost)
		if len(leaving) > 0 {
			ok, at := m.lost.Turn(name, m.now)
			if !ok {
				m.acts.wake = min(m.acts.wake, at)
				continue
			}
		}
		m.lost.Emptied(name)
		m.sweep(n, leaving)
	}
}

// leavesLost reports whether a pod is to be evicted from its node when that is
// lost. Locked pods are not, and pods that tolerate for ever what befell the node
// are not either, as Kubernetes does not evict those.
func (t *tables) leavesLost(p *pod) bool {
	g := p.group
	if g == nil || g.id.Kind == others || p.inFlight || p.object.deleting || p.state != podBound || !t.ours(g) {
		return false
	}
	return !p.object.bears[t.nodes[p.target].object.befell] && !t.locked(p)
}

func (m *changes) sweep(n *node, leaving []*pod) {
	if len(leaving) == 0 {
		return
	}
	why := fmt.Sprintf("node %s has not been ready since %s", n.object.Name, n.object.unready.UTC().Format(time.RFC3339))
	m.log.Warn("a node is lost: evicting its pods", "node", n.object.Name, "pods", len(leaving))
	for _, p := range leaving {
		if p.state != podBound {
			continue // it has gone with its gang
		}
		p.state = podLeaving
		m.notePod(p)
		p.cause = evictAct{pod: p, reason: core.MemberLost.String(), message: why}
		m.memberLost(p.group, p, p.cause)
	}
}

// strand takes a pod out of its job that is being deleted on a lost node: the job
// goes on without it. The pod holds what it has of the node until it is gone from
// the API, or ended: the node may come back, with the pod's processes on it.
func (m *driver) strand(p *pod) {
	g, ran := p.group, p.state == podBound || p.state == podBinding
	if g == nil || g.id.Kind == others {
		return
	}
	o := *p.object
	if p.task != nil {
		o.request.GPU = p.task.spec.GPU // as it was given to it, whatever it says by now
	}
	if o.gpus == nil || p.devices != 0 {
		o.gpus = devicesIn(p.holds())
	}
	m.podOver(p)
	m.newPod(o.stranded())
	m.pods[o.UID].stranded = true
	if ran {
		m.memberLost(g, p)
	}
}

// stranded is a pod as it is known by what it takes alone, as those of other
// schedulers are.
func (o *podObject) stranded() *podObject {
	x := *o
	x.ours, x.move, x.membership = false, nil, translate.Membership{}
	if len(x.deviceClaims) > 0 || x.extended != "" {
		x.request.GPU = 0 // its claims hold its devices
	}
	return &x
}
