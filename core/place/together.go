package place

import "github.com/muster-sched/muster/core/cluster"

// together places HP pods that are expected to lend their devices on nodes of which other such pods have devices, and other HP pods on other
// nodes. So what they lend is in large pieces, which LP pods of several devices can use. Among nodes that are alike in that,
// a score decides: that of the strategy.
//
// A pod that will lend goes to a node where all HP pods will; else to one without HP pods; else to any. Another HP pod
// goes to a node where none will lend, else to any.
type together struct {
	scorer
	state *cluster.State
	lends bool
}

// apart is more than any strategy's scores differ by.
const apart = int64(1) << 45

func (t *together) score(n *cluster.Node, sh *Shape) (worth int64, device int) {
	worth, device = t.scorer.score(n, sh)
	lend, others := t.state.HPDevices(n)
	switch {
	case t.lends && others == 0 && lend > 0:
		worth += 2 * apart
	case t.lends && others == 0, !t.lends && lend == 0:
		worth += apart
	}
	return worth, device
}

// lendTogether returns the score that places pods that will lend together, for a unit with GPUs of an HP job; by otherwise.
func (p *Placer) lendTogether(by scorer, u *Unit, sh *Shape) scorer {
	if u.LP || sh.GPU() == 0 || !p.state.AnyLends() {
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
