package kube

import (
	"fmt"
	"time"

	"github.com/muster-sched/muster/core"
)

// What becomes of a gang that loses a pod, and of pods on nodes that are lost.
//
// A pod of a running gang that fails, or that somebody deletes, is replaced: its
// owner makes a new one, which joins. Where the job says so, the whole gang is
// stopped instead, if too few are left, and waits again.

// requeues reports whether the gang is to be stopped for the loss of a pod.
func (m *mirror) requeues(g *group, p *pod) bool {
	switch m.attributesOf(g, p).OnFailure {
	case "requeue":
		return true
	case "replace":
		return false
	}
	pg := m.podGroupOf(g)
	return pg != nil && pg.whole
}

// memberLost takes in that a pod of a gang, which ran and was not told to leave,
// is over without having done its work. A gang of which pods have done theirs
// is not stopped: they will not come again, and it would wait for them.
//
// list has what is to leave besides.
func (m *mirror) memberLost(g *group, p *pod, list ...evictAct) {
	if g.gang() && m.ours(g) && g.submitted && !g.draining && !g.worked && g.broken((*pod).runs) && g.runs() && m.requeues(g, p) {
		m.log.Info("a gang is stopped because it lost a pod", "job", g.job, "pod", p.object.Name)
		list = m.breakUp(g, core.MemberLost.String(), fmt.Sprintf("pod %s of the gang was lost", p.object.Name), list)
		g.draining, g.broke = true, true
	}
	m.sendOff(g, list)
}

// breakUp makes all pods of a group leave that run, and adds them to list. The
// engine is told as they go.
func (m *mirror) breakUp(g *group, reason, why string, list []evictAct) []evictAct {
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
func (m *mirror) sendOff(g *group, list []evictAct) {
	if len(list) > 0 && m.maySuspend(g) {
		m.suspend(g, list)
		return
	}
	m.acts.evict = append(m.acts.evict, list...)
}

// lost reports whether a node has not been ready for so long that it is taken
// for lost. A pod on it that is being deleted is as good as gone: nobody is
// there to end it.
func (m *mirror) lost(name string) bool {
	n := m.nodes[name]
	return n != nil && !n.gone && m.lostAfter > 0 && !n.object.unready.IsZero() && m.now >= m.lostAt(n)
}

func (m *mirror) lostAt(n *node) core.Time {
	return core.Time(n.object.unready.UnixNano()) + m.lostAfter
}

// sweepLost makes the pods leave that are on nodes which have been lost since.
func (m *mirror) sweepLost() {
	if m.lostAfter <= 0 {
		return
	}
	for name, n := range m.unready {
		if !m.lost(name) {
			m.acts.wake = min(m.acts.wake, m.lostAt(n))
			continue
		}
		delete(m.unready, name)
		m.sweep(n)
	}
}

func (m *mirror) sweep(n *node) {
	why := fmt.Sprintf("node %s has not been ready since %s", n.object.Name, n.object.unready.UTC().Format(time.RFC3339))
	m.log.Warn("a node is lost: its pods are evicted", "node", n.object.Name, "pods", len(n.pods))
	for _, p := range n.pods {
		g := p.group
		if g == nil || g.id.Kind == others || p.inFlight {
			continue
		}
		if p.object.deleting {
			m.podOver(p)
			continue
		}
		if p.state == podBound && m.ours(g) {
			p.state = podLeaving
			m.notePod(p)
			p.cause = evictAct{pod: p, reason: core.MemberLost.String(), message: why}
			m.memberLost(g, p, p.cause)
		}
	}
}
