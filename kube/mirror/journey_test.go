package mirror

import (
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/journey"
)

// A job is told of once, when as many of its pods run as started together.
func TestJourneyOfAGang(t *testing.T) {
	y := newToy(t)
	var got []journey.Journey
	y.traced = func(j *journey.Journey) { got = append(got, *j) }
	y.start()
	gang := newTestGang("g", 2, 4)
	y.see(gang[0])
	y.now += core.Second
	y.run()
	y.see(gang[1])
	y.now += core.Second
	y.run() // all are there; there is no node
	y.node("a", 8)
	y.now += core.Second
	bind, _ := y.pass()
	for i, b := range bind {
		y.now += core.Second
		y.decide(y.now)
		y.acts.Drop()
		y.bound(b.Of.Object.UID, true, false)
		if i == 0 {
			y.ends(gang[0], v1.PodRunning)
		}
	}
	if len(got) > 0 {
		t.Fatalf("one pod runs: got %+v", got)
	}
	y.now += core.Second
	y.decide(y.now)
	y.acts.Drop()
	y.ends(gang[1], v1.PodRunning)
	y.ends(gang[1], v1.PodRunning)
	at := func(s int) time.Time { return time.Unix(startOfTime.Unix()+int64(s), 0) }
	want := []journey.Journey{{Job: "default/gang/g", Queue: "default", Pods: 2, Created: startOfTime, Submitted: at(2), Decided: at(3), Bound: at(5), Running: at(6)}}
	for i := range got {
		got[i].Created = got[i].Created.UTC()
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
