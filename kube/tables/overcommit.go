package tables

import (
	"cmp"
	"strings"

	"github.com/muster-sched/muster/core"
)

// Earlier compares pods by when they were bound. A binding in flight is first: it cannot
// be taken back. A pod that has GPUs by its annotations alone, which no
// scheduler has recorded, is last: they may have been written at any time.
func Earlier(a, b *Pod) int {
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

// Overflow returns the pods for which a node with this many GPUs has no room after those
// before them in the list. A pod takes the devices that it names or, if another has
// them, any with room.
func Overflow(list []*Pod, gpus int) map[*Pod]bool {
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
