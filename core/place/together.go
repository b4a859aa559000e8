package place

import "github.com/muster-sched/muster/core/cluster"

// together places HP pods that are expected to lend their devices on nodes of which other such pods have devices, and other pods on other
// nodes. So what they lend is in large pieces, which LP pods of several devices can use. Among nodes that are alike in that,
// a score decides: that of the strategy.
//
//   - A pod that will lend goes to a node where all HP pods will; else to one without HP pods; else to where the most devices are
//     of pods that will, and the fewest of other HP pods.
//   - Another pod goes to a node where none will lend, else to where those that will have the fewest devices. LP pods are among
//     them: where they are, pods that will lend find no free devices.
type together struct {
	scorer
	state *cluster.State
	lends bool
}

// apart is more than any strategy's scores differ by.
const apart = int64(1) << 45

func (t *together) score(n *cluster.Node, sh *Shape) (worth int64, device int) {
	worth, device = t.scorer.score(n, sh)
	return worth + t.suits(n)*apart, device
}

// suits says how well a node suits the pods, from 0: the higher the better.
func (t *together) suits(n *cluster.Node) int64 {
	lend, others := t.state.HPDevices(n)
	switch {
	case !t.lends:
		return int64(cluster.MaxGPUs - lend)
	case others > 0:
		return int64(cluster.MaxGPUs + lend - others)
	case lend == 0:
		return 2*cluster.MaxGPUs + 1
	}
	return 2*cluster.MaxGPUs + 2
}

// lendTogether returns the score that places pods that will lend together, for pods with GPUs; by, as long as no job lends.
func (p *Placer) lendTogether(by scorer, u *Unit, sh *Shape) scorer {
	if sh.GPU() == 0 || !p.state.AnyLends() {
		return by
	}
	for _, t := range p.togethers {
		if t.scorer == by && t.lends == u.Lends {
			return t
		}
	}
	t := &together{by, p.state, u.Lends}
	p.togethers = append(p.togethers, t)
	return t
}
