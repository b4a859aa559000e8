package mirror

import (
	"errors"
	"testing"
	"time"

	"github.com/muster-sched/muster/kube/owners"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// A PodGroup of another scheduler that is corrected while its gang waits is read again: one with too large a minimum,
// one that names a queue that does not exist.
func TestCorrectedObjects(t *testing.T) {
	w := newWorld(t)
	w.tells = true
	w.node("n1", "r1")
	asks := 0
	w.onActs = func(a *tables.Acts) { asks += len(a.Ask) }
	of := func(p string) { w.pod(p, labelled("scheduling.x-k8s.io/pod-group=g"), asking("nvidia.com/gpu", "1")) }
	of("p0")
	of("p1")
	w.settle()
	id := w.m.Pods[w.pods["default/p0"].UID].Group.ID
	tells := func(says *owners.Gang, err error, again bool) {
		t.Helper()
		if got := w.m.asked(id, says, err); got != again {
			t.Errorf("it is read again: %t", got)
		}
		w.settle()
	}
	tells(&owners.Gang{Min: 3}, nil, false)
	if asks != 1 {
		t.Fatalf("it was read %d times", asks)
	}
	w.now = w.now.Add(time.Second)
	w.settle()
	if asks != 1 {
		t.Errorf("a gang that has just begun to wait for its pods is read %d times", asks)
	}
	w.now = w.now.Add(5 * time.Second)
	w.settle()
	w.settle()
	if asks != 2 {
		t.Errorf("it was read %d times", asks)
	}
	w.waits("p0", tables.ReasonCollecting, "2 of the 3 pods")
	tells(&owners.Gang{Min: 3}, nil, true)
	tells(&owners.Gang{Min: 2, Attributes: translate.Attributes{Queue: "none"}}, nil, true)
	w.waits("p0", tables.ReasonQueueNotFound, "none")
	tells(nil, errors.New("the API is away"), true)
	w.waits("p0", tables.ReasonGangUnknown, "the API is away")
	tells(&owners.Gang{Min: 2, Attributes: translate.Attributes{Queue: "none"}}, nil, false)
	w.waits("p0", tables.ReasonQueueNotFound, "none")
	tells(&owners.Gang{Min: 2}, nil, true)
	w.on("p0,p1>n1,n1")
	tells(&owners.Gang{Min: 2}, nil, false)
	if asks != 3 {
		t.Errorf("it was read %d times", asks)
	}
}
