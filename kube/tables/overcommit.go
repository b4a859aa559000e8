package tables

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
)

// A GPU may have been given twice all the same: by an instance that was stopped
// between its look at the lease and the system call that sent a binding, or by a
// scheduler from before. The pod that was bound later yields and waits again: two pods on one
// GPU are worse than any pod that has to start again, also one that is locked or must
// not be preempted. A gang yields whole.
//
// No tenant can make another's pod yield by what it writes on its own pods. When a pod was
// bound is in its status, and its GPUs are in its spec; those are trusted. Its
// annotations and its owner are not: they never put a pod before another. Pods of
// other schedulers take no part. Pods are compared in two cases:
//
//   - The API shows a binding that is not ours. It names the devices itself. Of the
//     other pods the devices count that they name and that are booked for them.
//   - The engine refuses a pod for the GPUs that its node has. A pod yields if it names
//     a device that an earlier one names, and if the node has no room left for it after
//     all earlier ones. Without the second condition, an early pod that is edited to
//     name the device of a later one makes that one yield.
//
// Those whose processes are paused have none either: what their annotations name is another's meanwhile.
//
// A node that publishes fewer GPUs than before makes no pod yield: the devices of its
// pods differ.

// Contested is a pod that has to yield a GPU, and its group.
type Contested struct {
	Pod   *Pod
	Group *Group
	GPU   int
}

// Contest finds devices of p that are overcommitted, and yields the pods that were bound to them
// later: each is to be marked ([Pod.Yields]) before the next. g is the group of p, or was before the
// engine refused p; late says that the API has just shown a binding of p that is not ours.
func (t *Tables) Contest(p *Pod, g *Group, late bool) iter.Seq[Contested] {
	return func(yield func(Contested) bool) {
		n := t.Nodes[p.Target]
		if n == nil || !n.Known {
			return
		}
		has := func(o *Pod) uint64 {
			// With a late binding, the others count with devices that are both named and booked: a name
			// alone may be an edit, and a booking alone a guess (DevicesOf).
			if late && o != p && o.Slot >= 0 {
				return o.Devices & o.AsBound()
			}
			return o.AsBound()
		}
		list := InOrder(n.Pods, func(o *Pod) bool {
			return o.Object.Ours && !o.Object.Deleting && o.State != PodLeaving && !o.Yields && !o.Lends() && !o.Paused()
		})
		slices.SortFunc(list, earlier)
		over := overflow(list, n.Told.GPUs)
		// Each device goes to pods in the order in which they were bound. A pod that finds it full
		// yields.
		for _, d := range DevicesIn(p.AsBound()) {
			given := core.Milli(0)
			for _, o := range list {
				if has(o)>>d&1 == 0 || o.Yields {
					continue
				}
				of := o.Group
				if o == p {
					of = g
				}
				given += o.Share()
				if given > core.WholeGPU && (late || over[o]) && of != nil && !o.InFlight && t.Ours(of) && !yield(Contested{o, of, d}) {
					return
				}
			}
		}
	}
}

// earlier compares pods by when they were bound. A binding in flight is first: it cannot
// be taken back. A pod that has GPUs by its annotations alone, which no
// scheduler has recorded, is last: they may have been written at any time.
func earlier(a, b *Pod) int {
	rank := func(p *Pod) int {
		o := p.Object
		switch {
		case p.InFlight:
			return 0
		case o.Amounts.GPUs == 0 && len(o.DeviceClaims) == 0 && o.Record == "" && p.Given == 0:
			return 2
		}
		return 1
	}
	return cmp.Or(rank(a)-rank(b), a.Object.Started.Compare(b.Object.Started), strings.Compare(string(a.Object.UID), string(b.Object.UID)))
}

// overflow returns the pods for which a node with this many GPUs has no room after those
// before them in the list. A pod takes the devices that it names or, if another has
// them, any with room.
func overflow(list []*Pod, gpus int) map[*Pod]bool {
	over := map[*Pod]bool{}
	free := make([]core.Milli, gpus)
	for i := range free {
		free[i] = core.WholeGPU
	}
	for _, o := range list {
		var named, room []int
		want := o.devicesWanted()
		for d := range free {
			if free[d] < o.Share() {
				continue
			}
			if o.AsBound()>>d&1 == 1 {
				named = append(named, d)
			}
			room = append(room, d)
		}
		// A pod that names other devices than it can have may sit on any: it is over only if the
		// node has no room for it at all. Otherwise an earlier pod, edited to name the devices of a
		// later one, would make that one yield.
		switch {
		case len(named) == want:
			room = named
		case len(room) < want:
			over[o] = true
			continue
		}
		for _, d := range room[:want] {
			free[d] -= o.Share()
		}
	}
	return over
}
