package kube

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// What becomes of a gang that loses a pod, and of pods on nodes that are lost.
//
// A pod of a running gang that fails, or that somebody deletes, is replaced: its
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

// Lost is when a node that is not ready is given up, and how fast, as Kubernetes'
// node lifecycle controller does it. The zero value never gives one up.
type Lost struct {
	// After is how long this instance must have seen the node not ready without a
	// break; 0 for ever. What the API says of the time before does not count: the
	// clock that wrote it may be wrong, and an instance that has just started
	// cannot know what it missed.
	After time.Duration
	// Rate is how many nodes of a zone may be emptied in a second; Secondary in
	// place of it while at least the share Unhealthy of the zone's nodes, and more
	// than two, are not ready, and then none in zones of at most Large nodes.
	Rate, Secondary, Unhealthy float64
	Large                      int
}

// Check says what of it cannot be, by the name of the flag.
func (l *Lost) Check() error {
	switch {
	case !(l.Rate >= 0):
		return fmt.Errorf("node-eviction-rate: expected a number of nodes per second of at least 0; found %v", l.Rate)
	case !(l.Secondary >= 0):
		return fmt.Errorf("secondary-node-eviction-rate: expected a number of nodes per second of at least 0; found %v", l.Secondary)
	case !(l.Unhealthy > 0 && l.Unhealthy <= 1):
		return fmt.Errorf("unhealthy-zone-threshold: expected a share above 0 and at most 1; found %v", l.Unhealthy)
	case l.Large < 0:
		return fmt.Errorf("large-cluster-size-threshold: expected a number of nodes of at least 0; found %d", l.Large)
	}
	return nil
}

// DefaultLost has the defaults of kube-controller-manager.
func DefaultLost() Lost {
	return Lost{After: 5 * time.Minute, Rate: 0.1, Secondary: 0.01, Unhealthy: 0.55, Large: 50}
}

// zone is the nodes that are likely to be lost together: those with the same
// region and zone by their labels.
type zone struct {
	nodes, down int
	// emptied is when a node of it was emptied last, if any was.
	emptied core.Time
	any     bool
}

// pause is how long after one node of the zone the next may be emptied; never
// says that none may.
func (l *Lost) pause(z *zone) (pause core.Time, never bool) {
	rate := l.Rate
	if z.down > 2 && z.down < z.nodes && float64(z.down) >= l.Unhealthy*float64(z.nodes) {
		rate = l.Secondary
		if z.nodes <= l.Large {
			rate = 0
		}
	}
	if rate <= 0 {
		return 0, true
	}
	return core.Time(float64(core.Second) / rate), false
}

// watchOver takes in whether a node is ready, and where it is.
func (m *changes) watchOver(n *node) {
	if n.zone != nil {
		n.zone.nodes--
		if n.down {
			n.zone.down--
		}
		if n.zone.nodes == 0 {
			delete(m.zones, n.zoned)
		}
		n.zone = nil
	}
	down := !n.gone && !n.object.unready.IsZero()
	switch {
	case !down:
		n.lost = false
		delete(m.unready, n.object.Name)
	case !n.down:
		n.since = m.now
	}
	if n.down = down; down {
		m.unready[n.object.Name] = n
	}
	if n.gone || n.object.apart {
		return
	}
	z := m.zones[n.object.zone]
	if z == nil {
		z = &zone{}
		m.zones[n.object.zone] = z
	}
	n.zone, n.zoned = z, n.object.zone
	z.nodes++
	if down {
		z.down++
	}
}

// dark reports whether no node at all is ready. Then it is not the nodes that are
// lost but the way to them, and what runs there goes on.
func (m *changes) dark() bool {
	nodes, down := 0, 0
	for _, z := range m.zones {
		nodes, down = nodes+z.nodes, down+z.down
	}
	return down > 0 && down == nodes
}

// isLost reports whether a node is given up. A pod on it that is being deleted is
// as good as gone to its job: no kubelet is there to end it.
func (t *tables) isLost(name string) bool {
	n := t.nodes[name]
	return n != nil && n.lost
}

// sweepLost makes the pods leave that are on nodes which have been lost since:
//
//  1. While no node is ready, none is lost. When one is again, the others have as
//     long to come back as if they had failed then.
//  2. Of nodes that are lost, the pods that are being deleted are given up at once:
//     somebody else has decided on them.
//  3. The others are evicted node by node, the longest lost first, as fast as the
//     state of the zone allows. An empty node costs nothing.
func (m *driver) sweepLost() {
	if m.lost.After <= 0 {
		return
	}
	if dark := m.dark(); dark != m.outage {
		m.outage = dark
		if dark {
			m.log.Warn("no node is ready: pods of lost nodes are not evicted")
		} else {
			m.log.Warn("nodes are ready again: the time until other nodes are lost starts again", "after", m.lost.After)
		}
		for _, n := range m.nodes {
			n.since, n.lost = m.now, false
		}
	}
	if m.outage {
		return
	}
	var due []*node
	for _, n := range m.unready {
		if at := n.since + core.Time(m.lost.After); m.now < at {
			m.acts.wake = min(m.acts.wake, at)
			continue
		}
		due = append(due, n)
	}
	slices.SortFunc(due, func(a, b *node) int {
		return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.object.Name, b.object.Name))
	})
	for _, n := range due {
		if !n.lost {
			n.lost = true
			for _, p := range inOrder(n.pods, func(p *pod) bool { return p.object.deleting && !p.inFlight }) {
				m.strand(p)
			}
		}
		leaving := inOrder(n.pods, m.leavesLost)
		if z := m.zones[n.object.zone]; len(leaving) > 0 && z != nil {
			pause, never := m.lost.pause(z)
			if never {
				continue // until other nodes of the zone are ready
			}
			if next := z.emptied + pause; z.any && m.now < next {
				m.acts.wake = min(m.acts.wake, next)
				continue
			}
			z.emptied, z.any = m.now, true
		}
		delete(m.unready, n.object.Name)
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
