package coretest

import (
	"math/bits"

	"github.com/muster-sched/muster/core"
)

// Device sets that pods name. The engine matches devices to what pods want; this counts by Hall's theorem instead: all wants
// can be met at once if, for each choice of some of them, there are enough devices that at least one of these accepts.

// fromSets returns how many pods of a task the free devices of a node hold by the sets that the task names, at most most.
func fromSets(t *core.Task, n *node, free uint64, most int) int {
	if len(t.From) == 0 {
		return most
	}
	rest := int(t.GPU / core.WholeGPU)
	var masks []uint64
	var counts []int
	for _, f := range t.From {
		mask := uint64(0)
		for _, s := range n.Sets {
			if s.Name == f.Name {
				mask = s.Devices
			}
		}
		masks, counts = append(masks, mask), append(counts, int(f.Value))
		rest -= int(f.Value)
	}
	if rest > 0 {
		masks, counts = append(masks, ^uint64(0)), append(counts, rest)
	}
	for some := 1; some < 1<<len(masks); some++ {
		accepted, want := uint64(0), 0
		for i := range masks {
			if some>>i&1 == 1 {
				accepted |= masks[i]
				want += counts[i]
			}
		}
		most = min(most, bits.OnesCount64(free&accepted)/want)
	}
	return most
}
