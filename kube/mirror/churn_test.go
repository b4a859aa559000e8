package mirror

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// Pods that come and go leave nothing in the tables, though nobody scrapes metrics and
// there are no queues whose status would be written.
func TestChurnLeavesNothing(t *testing.T) {
	w := newWorld(t)
	w.m.record = nil
	for i := range 6 {
		w.node(fmt.Sprint("n", i), "r1")
	}
	const there, all = 24, 400
	for i := range all + there {
		if i < all {
			w.pod(fmt.Sprint("p", i), func(p *v1.Pod) {
				switch {
				case i%20 < 8:
					p.Labels[v1alpha1.GangLabel] = fmt.Sprint("g", i/4)
					p.Annotations[v1alpha1.MinMemberAnnotation] = "4"
				case i%20 < 12:
					p.Labels["serial"] = p.Name
					apart("kubernetes.io/hostname", "serial="+p.Name)(p)
				}
			})
		}
		if i >= there {
			w.gone(fmt.Sprint("p", i-there))
		}
		w.now = w.now.Add(50 * time.Millisecond)
		if w.settle(); i%20 == 19 { // as the scheduler does from time to time
			w.m.Explain(20)
			w.m.Statuses(metav1.NewTime(w.now))
			if n := w.m.Pending(); n > 0 {
				t.Fatalf("%d nodes and groups wait to be counted", n)
			}
		}
	}
	if len(w.binds) != all {
		t.Errorf("%d pods were bound; expected %d", len(w.binds), all)
	}
	w.m.Explain(100)
	w.m.Statuses(metav1.NewTime(w.now))
	for what, n := range map[string]int{
		"pods": len(w.m.Pods), "groups": len(w.m.Groups), "jobs": len(w.m.Jobs), "waiters": w.m.reports.Waiters(),
		"dirty groups": len(w.m.dirty), "groups to be counted": w.m.Pending(), "stages": len(w.m.Stages),
	} {
		if n > 0 {
			t.Errorf("%d %s are left", n, what)
		}
	}
}
