package place

import (
	"math/bits"

	"github.com/muster-sched/muster/core/cluster"
)

// This file checks for room by counting free GPUs, before any node is examined.

// MayFit reports whether free GPUs alone would let the unit, or one pod of it
// when it is not whole, be placed. False is certain, true is not.
// O(tasks x pools x GPUs per node).
func (p *Placer) MayFit(u *Unit) bool { return u.mayFit((*Shape).SlotsInAll) }

// RoomWith is MayFit with more room: on nodes, each named once, left says what
// would be free. Topology, shared devices and other resources are ignored.
// O(tasks x (pools x GPUs per node + nodes)).
func (p *Placer) RoomWith(u *Unit, nodes []cluster.NodeID, left func(cluster.NodeID) (gpus uint64, left cluster.Need)) bool {
	return u.mayFit(func(sh *Shape) int {
		if sh.GPUs == 0 {
			return unlimited // parts of devices are not counted here
		}
		slots := sh.SlotsInAll()
		for _, id := range nodes {
			n := p.state.Node(id)
			if !n.Open() || !p.eligible(u, sh, id) {
				continue
			}
			gpus, beside := left(id)
			slots += sh.capacity(bits.OnesCount64(gpus), beside) - n.Free()/sh.GPUs
		}
		return slots
	})
}

// mayFit reports whether there are slots enough for the unit: a gang fails by any
// task, a job that starts pod by pod starts by any.
func (u *Unit) mayFit(slots func(*Shape) int) bool {
	for t := range u.Tasks {
		need := len(u.Tasks[t].Pods)
		if need == 0 {
			continue
		}
		if !u.Whole {
			need = 1
		}
		if fits := slots(u.Tasks[t].Shape) >= need; fits != u.Whole {
			return fits
		}
	}
	return u.Whole
}

// enough reports whether the free GPUs of a space, and the queue's room, could
// hold every task. O(tasks x pools x GPUs per node), whatever the gang's size.
func (p *Placer) enough(u *Unit, sp space) bool {
	for t := range u.Tasks {
		sh, need := u.Tasks[t].Shape, len(u.Tasks[t].Pods)
		if sh.GPU() == 0 {
			continue
		}
		slots := 0
		for _, pool := range sp[t] {
			slots += sh.slots(pool)
		}
		if slots < need || u.Room != nil && u.quotaFor(sh, sp[t]) < need {
			return false
		}
	}
	return true
}
