package mirror

import (
	"fmt"

	"github.com/muster-sched/muster/kube/tables"
)

// causeOvercommitted is why pods leave a GPU that was given to others before.
const causeOvercommitted = "Overcommitted"

// contest makes the pods yield that were bound to devices of p later than others: see
// [tables.Tables.Contest].
func (m *changes) contest(p *tables.Pod, g *tables.Group, late bool) {
	for c := range m.Contest(p, g, late) {
		m.yield(c.Pod, c.Group, fmt.Sprintf("GPU %d of node %s was allocated to other pods before", c.GPU, p.Target))
	}
}

// yield evicts a pod, and its gang with it.
func (m *changes) yield(p *tables.Pod, g *tables.Group, why string) {
	m.log.Warn("a GPU was allocated twice: evicting the pod that was bound later", "pod", p.Object.Namespace+"/"+p.Object.Name, "why", why)
	m.tellPod(p, tables.GPUsOvercommitted, why+": the pod leaves and waits again")
	m.metrics.Evicted(causeOvercommitted)
	p.Yields = true
	p.Cause = tables.Eviction{Of: p, Reason: causeOvercommitted, Message: why, Shard: g.Shard}
	if p.Group != nil {
		p.State = tables.PodLeaving
		m.NotePod(p)
	}
	list := []tables.Eviction{p.Cause}
	// A gang cannot go on without the pod: it yields whole, and starts again whole.
	if g.Gang() && g.Submitted {
		list = m.breakUp(g, causeOvercommitted, fmt.Sprintf("%s, and pod %s of the gang leaves the node", why, p.Object.Name), list)
		g.Draining, g.Broke = true, true
	}
	m.sendOff(g, list)
}
