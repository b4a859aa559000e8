package tables

import (
	"fmt"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// Each group is in one part, whatever the number of parts, and in none when it is forgotten.
func TestParts(t *testing.T) {
	all := New(core.Policy{}, nil)
	const n = 2000
	for i := range n {
		g := &Group{ID: translate.Group{Namespace: "ns", Kind: translate.ByItself, Name: fmt.Sprint("p", i)}}
		g.Job = g.ID.Job()
		all.AddGroup(g)
	}
	check := func(there int) {
		t.Helper()
		for parts := 1; parts <= 4*buckets; parts *= 2 {
			seen := map[*Group]bool{}
			for part := range parts {
				here := 0
				for g := range all.Part(part, parts) {
					if seen[g] || PartOf(g.Job, parts) != part {
						t.Fatalf("%s is in part %d of %d", g.Job, part, parts)
					}
					seen[g] = true
					here++
				}
				if there == n && here > 8*max(1, n/parts) {
					t.Errorf("part %d of %d has %d", part, parts, here)
				}
			}
			if len(seen) != there {
				t.Fatalf("%d of %d are in %d parts", len(seen), there, parts)
			}
		}
	}
	check(n)
	for _, g := range all.Groups {
		if len(all.Groups) > 10 {
			all.Forget(g)
		}
	}
	all.Fit()
	check(10)
}
