package place

import (
	"slices"
	"strings"
)

// Combination is a way to put a gang together: on which GPU models its tasks are at the same time, and
// what that is worth. It is how a job asks for a pair of unlike GPUs that serve a model together, prefill on
// one and decode on the other or kernel by kernel (Tessera, §III-B), and says how much a pair in different
// racks is worth less (ASI, §5.2).
type Combination struct {
	// Models has the model of each task, "" for a task without GPUs, which may be on any node.
	Models []string
	// Rates are how fast the gang works, in thousandths, by how many levels of the topology its pods are apart:
	// first within one leaf group, HBD or node. The last one holds for all distances beyond it.
	Rates []int64
	// Price is what the GPUs cost together, in any unit; above 0.
	Price int64
}

// Rate returns how fast a gang works whose pods are a number of levels apart.
func (c *Combination) Rate(apart int) int64 { return c.Rates[min(apart, len(c.Rates)-1)] }

// combined returns the sets of pools to try for a gang that lists combinations: those of each, the lowest cost
// within one leaf group first, without the dedicated zone and then with it.
func (p *Placer) combined(u *Unit) []space {
	ways := u.ways()
	slices.SortStableFunc(ways, func(a, b assignment) int { return p.costOf(u, &a, 0).compare(p.costOf(u, &b, 0)) })
	var out []space
	for _, zone := range [2]bool{false, true} {
		if zone && !u.usesZone() {
			break
		}
		for _, a := range ways {
			if sp, ok := u.spaceOf(a.models, zone); ok && !slices.ContainsFunc(out, sp.equal) {
				out = append(out, sp)
			}
		}
	}
	return out
}

// listCombinations names the combinations that the gang lists, at most three of them.
func (u *Unit) listCombinations() string {
	var names []string
	for i := range u.Combinations {
		if i == 3 {
			names = append(names, "…")
			break
		}
		names = append(names, strings.Join(slices.DeleteFunc(slices.Clone(u.Combinations[i].Models), func(m string) bool { return m == "" }), "+"))
	}
	return strings.Join(names, ", ")
}
