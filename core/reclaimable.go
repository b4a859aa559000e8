package core

import (
	"math/bits"

	"github.com/muster-sched/muster/core/cluster"
)

// This file says for which jobs no search for pods that are covered less can make room, without one: of a
// thousand such pods, each on a node of its own, none frees a whole node.

// reclaimable counts, by node, the devices of placed pods, by what covers them and by their class. A device that pods share
// counts for each of them.
//
// Invariant: after entitlement.shareOut, it is the sum of what cohort.freeable lists, and that is what the units in
// cohort.listed hold.
type reclaimable [byNominal][LP + 1][]int32

// freeable is the devices of a pod that is listed as reclaimable.
type freeable struct {
	node    cluster.NodeID
	of      cover
	class   Class
	devices int32
}

// count adds what a pod would free (by 1), or takes it out (by -1).
func (r *reclaimable) count(f freeable, by int32) {
	counts := &r[f.of][f.class]
	for len(*counts) <= int(f.node) {
		*counts = append(*counts, 0)
	}
	(*counts)[f.node] += by * f.devices
}

// recount counts what the listed units of a cohort hold, in place of what was counted for it before.
func (c *entitlement) recount(k *cohort) {
	for _, f := range k.freeable {
		c.reclaimable.count(f, -1)
	}
	k.freeable = k.freeable[:0]
	for of := range k.listed {
		for _, n := range k.listed[of] {
			u := &k.units[n]
			for i := range u.pods {
				if p := &u.job.pods[i]; p.placed() && p.alloc.GPUs != 0 {
					f := freeable{p.alloc.Node, cover(of), u.job.Class, int32(bits.OnesCount64(p.alloc.GPUs))}
					k.freeable = append(k.freeable, f)
					c.reclaimable.count(f, 1)
				}
			}
		}
	}
}

// mostCounted is how many pods that rank below a job are counted for it, one by one. Among more, a search soon finds
// some.
const mostCounted = 4096

// mayClear reports whether the job would find room by count if all left that are covered less than it, in whichever
// queue, and all that rank below it, however short they have run. False is certain, true is not. It costs O(nodes).
func (pl *planner) mayClear(c preemptor) bool {
	if c.head || c.unit.Required >= 0 || pl.longTerm.repairing || pl.mayReclaim(c) && !pl.byList(c) {
		return true
	}
	// 1. What those hold, by node.
	freed := cleared(pl.freed, pl.state.Nodes())
	if pl.mayReclaim(c) {
		for of := uncovered; of < c.cover; of++ {
			for class := c.Class; class <= LP; class++ {
				for id, devices := range pl.entitlement.reclaimable[of][class] {
					freed[id] += devices
				}
			}
		}
	}
	pods := 0
	for _, m := range c.class.models {
		for k := range pl.runs.loads[m].evictable {
			r := &pl.runs.loads[m].evictable[k]
			if !pl.mayYieldByRank(c, r.precedence) {
				continue
			}
			if pods += len(r.pods); pods > mostCounted {
				return true
			}
			for _, p := range r.pods {
				freed[p.alloc.Node] += int32(bits.OnesCount64(p.alloc.GPUs))
			}
		}
	}
	pl.freed, pl.tried = freed, pl.tried[:0]
	for id, devices := range freed {
		if devices > 0 {
			pl.tried = append(pl.tried, cluster.NodeID(id))
		}
	}

	// 2. What would then be free there.
	return pl.placer.RoomWith(c.unit, pl.tried, func(id cluster.NodeID) (uint64, cluster.Need) {
		n := pl.state.Node(id)
		left := cluster.Need{Pods: n.Spec.MaxPods, CPU: n.Spec.CPUMilli, Mem: n.Spec.MemMiB}
		if left.Pods == 0 {
			left.Pods = n.PodsLeft()
		}
		free := min(n.HealthyGPUs(), n.Free()+int(freed[id]))
		return uint64(1)<<free - 1, left
	})
}
