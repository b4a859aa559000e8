package lost

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/core"
)

const minute = 60 * core.Second

// zoneOf has n nodes of a zone, of which the first are down since time 0, and one node of
// another zone that is ready.
func zoneOf(n, down int) *Index {
	x := New()
	x.Config = Default()
	for i := range n {
		x.Observe(0, Node{Name: fmt.Sprintf("n%02d", i), Zone: "z", Ready: i >= down})
	}
	x.Observe(0, Node{Name: "far", Zone: "other", Ready: true})
	return x
}

func look(t *testing.T, x *Index, now core.Time, due string, wake core.Time) Look {
	t.Helper()
	l := x.Look(now)
	if got := strings.Join(l.Due, " "); got != due || l.Wake != wake {
		t.Errorf("at %v s: due %q, wake at %d; expected %q, %d", now.Seconds(), got, l.Wake, due, wake)
	}
	return l
}

func TestLost(t *testing.T) {
	x := zoneOf(3, 0)
	x.Observe(2*minute, Node{Name: "n01", Zone: "z"})
	x.Observe(3*minute, Node{Name: "n00", Zone: "z"})
	x.Observe(4*minute, Node{Name: "n01", Zone: "z"}) // it is down still
	look(t, x, 6*minute, "", 7*minute)
	l := look(t, x, 8*minute, "n01 n00", core.Never)
	if fmt.Sprint(l.New) != "[n01 n00]" || !x.Lost("n00") || x.Lost("n02") || x.Lost("none") {
		t.Errorf("lost from now on: %v", l.New)
	}
	x.Emptied("n01")
	if l := look(t, x, 8*minute, "n00", core.Never); len(l.New) != 0 {
		t.Errorf("lost from now on: %v, which was lost before", l.New)
	}
	x.Again()
	look(t, x, 8*minute, "n01 n00", core.Never)
	x.Observe(9*minute, Node{Name: "n01", Zone: "z", Ready: true})
	x.Forget("n00")
	if look(t, x, 20*minute, "", core.Never); x.Lost("n01") || x.Lost("n00") {
		t.Error("a node is lost that is ready, or gone")
	}
	x.Config.After = 0
	x.Observe(30*minute, Node{Name: "n02", Zone: "z"})
	look(t, x, 90*minute, "", core.Never)
}

// While no node is ready, none is lost. Nodes apart do not count.
func TestOutage(t *testing.T) {
	x := zoneOf(2, 2)
	x.Forget("far")
	x.Observe(0, Node{Name: "apart", Apart: true, Ready: true})
	l := look(t, x, 10*minute, "", core.Never)
	if !l.Changed || !l.Outage {
		t.Errorf("%+v; expected an outage", l)
	}
	if l := look(t, x, 11*minute, "", core.Never); l.Changed || !l.Outage {
		t.Errorf("%+v; expected the same outage", l)
	}
	x.Observe(12*minute, Node{Name: "n00", Zone: "z", Ready: true})
	if l := look(t, x, 12*minute, "", 17*minute); !l.Changed || l.Outage { // n01 has time to come back
		t.Errorf("%+v; expected the end of the outage", l)
	}
	look(t, x, 17*minute, "n01", core.Never)
}

// How fast pods are evicted depends on how much of the zone is down.
func TestTurn(t *testing.T) {
	for _, c := range []struct {
		nodes, down int
		pause       time.Duration // until the second node; 0 for never
	}{
		{10, 2, 10 * time.Second},
		{4, 3, 0}, // 55 % of a small zone
		{10, 5, 10 * time.Second},
		{60, 40, 100 * time.Second},
		{3, 3, 10 * time.Second}, // a zone that is down whole
	} {
		x := zoneOf(c.nodes, c.down)
		ok, at := x.Turn("n00", 0)
		if c.pause == 0 {
			if ok || at != core.Never {
				t.Errorf("%d of %d: ok %v, at %d; expected never", c.down, c.nodes, ok, at)
			}
			continue
		}
		pause := core.Time(c.pause)
		if !ok {
			t.Errorf("%d of %d: the first node is not emptied", c.down, c.nodes)
		}
		if ok, at := x.Turn("n01", 1); ok || math.Abs(float64(at-pause)) > 10 {
			t.Errorf("%d of %d: ok %v, at %d; expected %d", c.down, c.nodes, ok, at, pause)
		}
		if ok, _ := x.Turn("n01", pause+10); !ok {
			t.Errorf("%d of %d: the second node is not emptied after %v", c.down, c.nodes, c.pause)
		}
	}
}

func TestCheck(t *testing.T) {
	for want, c := range map[string]Config{
		"node-eviction-rate":           {Rate: math.NaN(), Unhealthy: 1},
		"secondary-node-eviction-rate": {Secondary: -1, Unhealthy: 1},
		"unhealthy-zone-threshold":     {},
		"large-cluster-size-threshold": {Unhealthy: 1, Large: -1},
	} {
		if err := c.Check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v; expected %s", c, err, want)
		}
	}
	c := Default()
	if err := c.Check(); err != nil {
		t.Error(err)
	}
}
