package mirror

import (
	"errors"
	"testing"
	"time"

	"github.com/muster-sched/muster/api/v1alpha1"
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
	if asks == 0 {
		t.Fatalf("it was read %d times", asks)
	}
	w.now = w.now.Add(time.Second)
	w.settle()
	if asks == 0 {
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

// What an object says counts at once when it is corrected, whatever the job waits for: a gang that is too large for its
// queue, one that its queue refuses, one that waits its turn. One that has a place keeps what it was submitted with, until
// it waits again.
func TestCorrectedAtOnce(t *testing.T) {
	type says = owners.Gang
	queue := func(min int, name string) *says {
		return &says{Min: min, Attributes: translate.Attributes{Queue: name}}
	}
	for name, c := range map[string]struct {
		first, then *says
		waits, now  string // the reason, "" when it is bound
	}{
		"too large for the queue":     {queue(2, "small"), queue(2, "big"), "ExceedsQuota", ""},
		"its queue is full":           {queue(2, "full"), queue(2, "big"), "QuotaExceeded", ""},
		"the queue does not exist":    {queue(2, "none"), queue(2, "big"), tables.ReasonQueueNotFound, ""},
		"too large for the cluster":   {&says{Min: 2, Attributes: translate.Attributes{Queue: "big", Required: "none"}}, queue(2, "big"), tables.ReasonMisconfigured, ""},
		"it lacks pods":               {queue(9, "big"), queue(2, "big"), tables.ReasonCollecting, ""},
		"it lacks pods now":           {queue(2, "small"), queue(3, "big"), "ExceedsQuota", tables.ReasonCollecting},
		"the queue exists no longer":  {queue(2, "small"), queue(2, "none"), "ExceedsQuota", tables.ReasonQueueNotFound},
		"a label that it cannot have": {queue(2, "small"), nil, "ExceedsQuota", tables.ReasonMisconfigured},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.tells = true
			w.node("n1", "r1")
			no := new(v1alpha1.GPUs)
			w.m.queueSeen(queueObject("small", "", v1alpha1.Quota{Model: "*", Nominal: GPUs(1), BorrowingLimit: no}))
			w.m.queueSeen(queueObject("full", "", v1alpha1.Quota{Model: "*", Nominal: GPUs(2), BorrowingLimit: no}))
			w.m.queueSeen(queueObject("big", "", v1alpha1.Quota{Model: "*", Nominal: GPUs(5), BorrowingLimit: no}))
			w.pod("other", labelled(v1alpha1.QueueLabel+"=full"), asking("nvidia.com/gpu", "1"))
			w.settle()
			asks, forgotten := 0, 0
			w.onActs = func(a *tables.Acts) { asks, forgotten = asks+len(a.Ask), forgotten+len(a.Forget) }
			for _, p := range []string{"p0", "p1"} {
				w.pod(p, labelled("scheduling.x-k8s.io/pod-group=g"), asking("nvidia.com/gpu", "1"))
			}
			w.settle()
			id := w.m.Pods[w.pods["default/p0"].UID].Group.ID
			w.m.asked(id, c.first, nil)
			w.settle()
			w.waits("p0", c.waits, "")
			asks = 0
			w.m.objectChanged(id)
			w.settle()
			if asks == 0 {
				t.Fatal("it is not read")
			}
			if c.then == nil {
				w.m.asked(id, nil, &owners.WrongError{Object: "PodGroup g", Text: "wrong"})
			} else {
				w.m.asked(id, c.then, nil)
			}
			w.settle()
			if c.now != "" {
				w.waits("p0", c.now, "")
				return
			}
			w.on("p0,p1>n1,n1")
			w.m.objectChanged(id) // it runs: what it says now counts when it waits again
			w.settle()
			if g := w.m.Groups[id]; g.Queue != "big" || !g.Outdated {
				t.Fatalf("it is of %s, and outdated: %t", g.Queue, g.Outdated)
			}
			for _, p := range []string{"p0", "p1"} {
				w.gone(p)
			}
			w.settle()
			if w.m.objectChanged(id); forgotten == 0 {
				t.Error("its object is followed still")
			}
		})
	}
}
