package e2e

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/devcluster/fleet"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/lost"
)

// wallClock is the clock of a machine that a user or a time server sets: what it says jumps, and the time
// that has passed by it does not.
type wallClock struct{ set atomic.Int64 } // by so many seconds

func (w *wallClock) now() time.Time {
	out := time.Now()
	wall := (*uint64)(unsafe.Pointer(&out)) // the first field of time.Time: 1 bit, 33 bits of seconds, 30 of nanoseconds
	*wall += uint64(w.set.Load() << 30)
	return out
}

// When only the clock jumps, an hour ahead and two back, nothing follows: no node that has just failed is lost, and no
// pod has run for its minimum run time. The scheduler goes on.
func TestClockJumps(t *testing.T) {
	c := begin(t)
	c.node("away")
	c.node("n")
	high := c.priority("clock-jumps", 1000)
	clock := &wallClock{}
	s := c.schedule(func(k *kube.Config) {
		k.Now, k.Lost = clock.now, lost.Default()
		k.Policy.Preempt.MinRuntime = 30 * 60 * core.Second
	})
	c.create(pod("on-away", asks(8), onNode("away")), pod("low", asks(8), onNode("n")))
	c.phase(v1.PodRunning, "on-away", "low")
	c.must(fleet.FailNode(ctx(), admin, "away"))
	c.until("the scheduler knows", func() error { return c.openNodes(1) })
	c.create(pod("high", asks(8), high))
	c.waits("high", "Resources")
	probes := 0
	for _, by := range []int64{3600, -3600, 86400, 0} {
		clock.set.Store(by)
		if off := clock.now().Round(0).Sub(time.Now().Round(0)).Round(time.Minute); off != time.Duration(by)*time.Second {
			t.Fatalf("the test sets the clock by %v; expected %d s", off, by)
		}
		for range 2 { // the second pass acts on what the first one decided
			probes++
			c.create(pod(fmt.Sprint("probe-", probes)))
			c.waits(fmt.Sprint("probe-", probes), "Resources")
		}
		if got := c.leaving(); len(got) > 0 {
			t.Fatalf("when the clock was set by %d s, %v left", by, got)
		}
	}
	c.unbound("high")
	for _, name := range []string{"on-away", "low"} {
		if p := c.get(name); p.Status.Phase != v1.PodRunning || condition(p, v1.DisruptionTarget) != nil {
			t.Errorf("%s is %s, %+v", name, p.Status.Phase, condition(p, v1.DisruptionTarget))
		}
	}
	if s.log.has("a node is lost") == nil {
		t.Error("a node is lost")
	}
	c.must(fleet.RepairNode(ctx(), admin, "away"))
	c.until("the scheduler knows", func() error { return c.openNodes(2) })
	c.delete("low")
	c.bound("high")
}
