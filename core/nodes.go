package core

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// This file handles nodes: they are added, change, are lost or cordoned, and their devices fail
// and recover. It also assigns the dedicated zone.

// MaxEvictions is the highest count of evictions that a node may be added with. All counts from it
// on rank alike.
const MaxEvictions = place.MaxEvictions

// Evictions returns how many LP pods were evicted from a node for other jobs, as far as the engine
// knows; 0 for an unknown node.
func (e *Engine) Evictions(node string) int {
	id, known := e.state.Lookup(node)
	if !known {
		return 0
	}
	return e.state.Evictions(id)
}

// addNode adds a node that is new or back.
func (e *Engine) addNode(n Node, evictions int) error {
	if evictions < 0 || evictions > MaxEvictions {
		return fmt.Errorf("node %s: %d evictions, expected 0..%d", n.Name, evictions, MaxEvictions)
	}
	_, was := e.state.Lookup(n.Name)
	id, err := e.state.AddNode(n)
	if err != nil {
		return err
	}
	e.state.CountEvictions(id, evictions-e.state.Evictions(id))
	if was {
		// It may be smaller than it was. A job that only the larger node held would keep others
		// waiting under StrictFIFO, for ever.
		e.changes.nodeAllowsLess()
	}
	e.wanted.node(e.state.Node(id).Spec, 1)
	e.nodeNew(id)
	return nil
}

// nodeNew handles the resources of a node that was added or changed.
func (e *Engine) nodeNew(id cluster.NodeID) {
	labels := e.state.Node(id).Spec.Labels
	if z := &e.policy.Zone; z.Key != "" {
		e.state.SetZone(id, labels[z.Key] == z.Value && hasKey(labels, z.Key))
	}
	e.changes.nodeOffers(id)
}

// changeNode changes the description of a node. Its pods stay. Nothing follows from other labels and device sets that no pod names: a
// driver may describe all nodes by what one job is about to ask for.
func (e *Engine) changeNode(now Time, n Node) error {
	id, err := e.node(n.Name)
	if err != nil {
		return err
	}
	if e.state.RelabelNode(id, n, func(name string) bool { return e.named[name] > 0 || name == e.policy.Zone.Key }) {
		e.waiting.relabelled++
		return nil
	}
	was := e.state.Node(id).Spec
	if changed, err := e.state.ChangeNode(id, n); err != nil || !changed {
		return err
	}
	e.suspensions.dropOn(id, "node "+n.Name+" has changed")
	// Plans were made for the node as it was: it may have moved, or have less room now.
	e.nominations.holdsChanged()
	e.nominations.dropPlans(id, false, now)
	if moved := was.HBD != n.HBD || !slices.Equal(was.Domains, n.Domains); moved {
		e.rejoin(id, now)
	}
	e.changes.nodeAllowsLess()
	e.nodeNew(id)
	return nil
}

// rejoin queues the jobs again that have pods on a node which has moved, and must be within
// one domain: the waiting pods now have to join those pods elsewhere, and plans for them were
// made for the old domain.
func (e *Engine) rejoin(id cluster.NodeID, now Time) {
	var jobs []*job
	find := func(id cluster.NodeID) {
		for h := range e.state.Node(id).Pods {
			if j := e.jobs.slots[h.Owner.Job]; j.Topology.Required != "" && !slices.Contains(jobs, j) {
				jobs = append(jobs, j)
			}
		}
	}
	find(id)
	if lent, lends := e.state.LentAt(id); lends {
		find(lent)
	}
	for _, j := range jobs {
		e.waiting.dequeue(j)
		e.nominations.denominate(j)
		e.waiting.enqueue(j, now)
	}
}

func hasKey(m map[string]string, k string) bool { _, ok := m[k]; return ok }

// loseNode removes a node with all its pods.
func (e *Engine) loseNode(now Time, name string) error {
	id, err := e.node(name)
	if err != nil {
		return err
	}
	// 1. Plans that count on the node are given up first: then no place there is kept. Nor does a suspended job have its home there.
	e.suspensions.dropOn(id, "node "+name+" is lost")
	e.nominations.dropPlans(id, false, now)
	e.moves.abandonOn(id, false)
	e.standbys.lost(id, now)
	e.packs.lost(id)

	e.wanted.node(e.state.Node(id).Spec, -1)
	delete(e.recovery.cordoned, id) // it comes back as the driver says

	// 2. All its pods wait again. They come in the order of their jobs.
	pods := e.state.RemoveNode(id)
	var hit []*job
	had := map[*job]bool{} // before it lost pods here
	for _, h := range pods {
		j := e.jobs.slots[h.Owner.Job]
		p := &j.pods[h.Owner.Pod]
		if !slices.Contains(hit, j) {
			hit = append(hit, j)
			had[j] = e.staleGangs.had(j)
		}
		if p.from() != nil { // its place elsewhere is kept
			e.unbookOld(j, p)
		} else {
			e.suspensions.lost(j, int(h.Owner.Pod))
			e.unbook(j, p, podWaiting)
		}
		e.suspensions.settle(j)
	}

	// 3. When the pods of all jobs are off the node, gangs with fewer pods than their minimum
	// stop, unless they have a grace period.
	for _, j := range hit {
		e.waiting.dequeue(j)
		if j.Gang && !j.restarts() && !e.staleGangs.lost(now, j, had[j]) {
			e.breakGang(j, MemberLost, "")
		}
		e.requeueIfGone(j, now)
	}
	e.changes.nodeLost()
	return nil
}

// cordon starts or ends keeping new pods off a node.
func (e *Engine) cordon(now Time, ev NodeCordoned) error {
	id, err := e.node(ev.Node)
	if err != nil {
		return err
	}
	e.setCordoned(now, id, ev.Cordoned)
	if !ev.Cordoned {
		e.recovery.cleared(now, id)
	}
	return nil
}

// setCordoned starts or ends keeping new pods off a node.
func (e *Engine) setCordoned(now Time, id cluster.NodeID, cordoned bool) {
	if cordoned {
		e.nominations.dropPlans(id, false, now)
	}
	e.state.SetCordoned(id, cordoned)
	e.changes.nodeChanged(id)
}

// setHealth handles a device that failed or recovered. Pods on it stay.
func (e *Engine) setHealth(now Time, ev DeviceHealth) error {
	id, err := e.node(ev.Node)
	if err != nil {
		return err
	}
	if ev.GPU < 0 || ev.GPU >= e.state.Node(id).Spec.GPUs {
		return fmt.Errorf("node %s has no GPU %d", ev.Node, ev.GPU)
	}
	if !ev.Healthy {
		e.nominations.dropPlans(id, false, now)
	}
	e.state.SetHealth(id, ev.GPU, ev.Healthy)
	e.changes.nodeChanged(id)
	return nil
}

// assignZone moves nodes into or out of the dedicated zone, so that it has its
// share of every model's nodes: the last ones in topology order.
func (e *Engine) assignZone() {
	z := &e.policy.Zone
	if z.Share <= 0 || z.Key != "" {
		return
	}
	byModel := map[string][]cluster.NodeID{}
	var models []string
	for id := range cluster.NodeID(e.state.Nodes()) {
		n := e.state.Node(id)
		if !n.Up || e.state.Lent(id) || n.Spec.GPUs == 0 {
			continue
		}
		if byModel[n.Spec.Model] == nil {
			models = append(models, n.Spec.Model)
		}
		byModel[n.Spec.Model] = append(byModel[n.Spec.Model], id)
	}
	for _, m := range models {
		nodes := byModel[m]
		slices.SortStableFunc(nodes, func(a, b cluster.NodeID) int { return e.state.CompareTopology(a, b) })
		zone := int(z.Share * float64(len(nodes)))
		if len(nodes) >= 8 {
			zone = max(zone, 2) // on a single node, the replicas of a service could not be apart
		}
		general := len(nodes) - zone
		for i, id := range nodes {
			e.state.SetZone(id, i >= general)
		}
	}
}
