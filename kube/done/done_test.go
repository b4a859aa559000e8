package done

import (
	"testing"

	"github.com/muster-sched/muster/kube/translate"
)

// Pods count in their role and in their group, once each, until they are gone.
func TestCounts(t *testing.T) {
	g, other := translate.Group{Name: "g"}, translate.Group{Name: "other"}
	x := New()
	for range 2 {
		x.Observe("a", &translate.Membership{Group: g, Role: "worker"})
		x.Observe("b", &translate.Membership{Group: g})
	}
	counts := func(all, workers int) {
		t.Helper()
		if a, w := x.Count(g, ""), x.Count(g, "worker"); a != all || w != workers {
			t.Errorf("%d pods of the group, and %d of the role; expected %d and %d", a, w, all, workers)
		}
	}
	counts(2, 1)
	if n := x.Count(other, ""); n != 0 {
		t.Errorf("%d pods of a group without any", n)
	}
	x.Observe("b", &translate.Membership{Group: other})
	counts(1, 1)
	x.Forget("a")
	x.Forget("never seen")
	counts(0, 0)
	if x.Forget("b"); x.Len() != 0 || len(x.counts) != 0 {
		t.Errorf("%d pods and %d counts are left", x.Len(), len(x.counts))
	}
	x.Observe("a", &translate.Membership{Group: g})
	x.Reset()
	counts(0, 0)
}
