package reproduce

import (
	"context"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/defrag"
	"github.com/muster-sched/muster/internal/optimum"
	"github.com/muster-sched/muster/sim"
)

// Muster's plans are near the optimum, and better than those of the baselines.
func TestNearOptimum(t *testing.T) {
	if _, ok := optimum.Solver(); !ok {
		t.Skip("cbc, the solver of the COIN-OR project, is not installed (Debian: coinor-cbc)")
	}
	if testing.Short() {
		t.Skip("solves integer programs")
	}
	v, err := nearOptimum(context.Background(), &Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", v)
	if v.best == 0 || v.by[defrag.Muster] > v.best || 100*v.by[defrag.Muster] < 95*v.best {
		t.Errorf("%d nodes of %d are vacated", v.by[defrag.Muster], v.best)
	}
	if !(v.by[defrag.Muster] > v.by[defrag.Published] && v.by[defrag.Published] > v.by[defrag.Eviction]) {
		t.Errorf("vacated by Muster, as published, by evictions: %v", v.by)
	}
}

// A job waits until its last pod starts for the first time, or until the end.
func TestClassWaits(t *testing.T) {
	w := &classWaits{missing: map[*sim.Live]int{}}
	job := func(class core.Class, submitted core.Time) *sim.Live {
		l := &sim.Live{Pods: 2}
		l.Class, l.Submitted = class, submitted
		if err := w.Submitted(submitted, l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	pods := make([]core.Placement, 2)
	_ = w.Bound(9*core.Second, job(core.HP, 0), pods, core.Placed) // has run since before the start
	a, b := job(core.HP, 10*core.Second), job(core.HP, 10*core.Second)
	job(core.LP, 12*core.Second)
	_ = w.Bound(11*core.Second, a, pods[:1], core.Placed)
	_ = w.Released(12*core.Second, a, pods[:1], sim.Preempted, sim.Eviction{})
	_ = w.Bound(13*core.Second, a, pods[:1], core.Placed)
	_ = w.Bound(15*core.Second, a, pods[:1], core.Placed)
	_ = w.Released(16*core.Second, a, pods, sim.Preempted, sim.Eviction{})
	_ = w.Ended(17*core.Second, b, nil)
	got := w.until(20 * core.Second)
	if want := [2]classWait{{2, 12 * core.Second}, {1, 8 * core.Second}}; got != want {
		t.Errorf("waits %v, want %v", got, want)
	}
}
