package mirror

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// fairInTime is a policy by which the queue that received least of the GPU time that it deserved is next.
func fairInTime(p *core.Policy) {
	*p = core.Policy{Placement: p.Placement, Queueing: core.Queueing{Mode: core.BestEffortFIFO, Order: core.LongTermFairness}}
}

// tenants makes queues without quota, one second ago.
func (w *world) tenants(names ...string) {
	for _, name := range names {
		w.m.queueSeen(&v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(w.now.Add(-time.Second))}})
	}
}

// ledger has what is to be remembered written, and observed, a while later.
func (w *world) ledger(later time.Duration) {
	w.now = w.now.Add(later)
	w.settle()
	for _, x := range w.m.Memory().Ledgers {
		w.m.Ledgers.Observe(x.Object)
	}
}

// counted is what the engine has counted for the queues, and for a job.
func (w *world) counted(job string) ([]core.QueueTime, core.Served) {
	is, ok := w.m.engine.JobTime(w.m.Now, job)
	if !ok {
		w.t.Fatalf("job %s is not there", job)
	}
	return slices.DeleteFunc(w.m.engine.QueueTimes(w.m.Now), func(q core.QueueTime) bool { return q.Queue != "a" && q.Queue != "b" }), is
}

// What queues and jobs received and deserved outlives the engine, and the process: then as of the last time that it was
// written.
func TestGPUTimeOutlivesTheEngine(t *testing.T) {
	for _, how := range lives {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t, fairInTime)
			w.node("n", "r")
			w.tenants("a", "b")
			w.pod("a0", inQueue("a"), asking(v1alpha1.GPUResource, "6"))
			w.on("a0>n")
			w.pod("b0", inQueue("b"), asking(v1alpha1.GPUResource, "4"))
			w.pod("a1", inQueue("a"), asking(v1alpha1.GPUResource, "4"))
			w.on("b0>", "a1>")
			w.ledger(time.Hour)
			queues, job := w.counted("default/pod/b0")
			if how == "restarted" {
				w.m.Now += core.Time(20 * core.Second) // nobody counts this
			}
			w.m.At(w.m.Now)
			w.rebuiltNow(how)
			again, jobAgain := w.counted("default/pod/b0")
			if !slices.Equal(queues, again) || job != jobAgain || len(queues) != 2 || len(job.Deserved) < 19 {
				t.Errorf("the next engine has %v and %v, expected %v and %v", again, jobAgain, queues, job)
			}
			w.gone("a0")
			w.pod("a2", inQueue("a"), asking(v1alpha1.GPUResource, "4"))
			w.on("b0>n")
		})
	}
}

// rebuiltNow has the engine built again at once.
func (w *world) rebuiltNow(how string) {
	switch how {
	case "rebuilt":
		if err := w.m.rebuild(); err != nil {
			w.t.Fatal(err)
		}
	case "restarted":
		w.restart()
	}
	w.m.Settle()
}

// What was written of a queue or a job does not count for another one of its name.
func TestGPUTimeOfAnotherOfThatName(t *testing.T) {
	w := newWorld(t, fairInTime)
	w.node("n", "r")
	w.tenants("a", "b")
	w.pod("a0", inQueue("a"), asking(v1alpha1.GPUResource, "8"))
	w.pod("b0", inQueue("b"), asking(v1alpha1.GPUResource, "8"))
	w.on("a0>n", "b0>")
	w.ledger(time.Hour)
	w.gone("b0")
	w.now = w.now.Add(time.Hour)
	w.tenants("b")
	w.pod("b0", inQueue("b"))
	w.m.At(core.Time(w.now.UnixNano()))
	w.rebuiltNow("restarted")
	queues, job := w.counted("default/pod/b0")
	if none := (core.Served{Received: "0", Deserved: "0"}); queues[0].All == none || queues[1].All != none || job != none {
		t.Errorf("got %v and %v", queues, job)
	}
}

// The grace period of a stale gang goes on in another process, and in another engine of this one.
func TestStaleGangOutlivesTheEngine(t *testing.T) {
	for _, how := range lives {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t, func(p *core.Policy) { p.Requeue.StaleGrace = 60 * core.Second })
			w.node("n", "r")
			w.pod("g0", gang("g", 2))
			w.pod("g1", gang("g", 2))
			w.on("g0,g1>n,n")
			w.gone("g0")
			w.settle()
			w.ledger(40 * time.Second)
			w.rebuiltNow(how)
			w.settle()
			if w.pods["default/g1"] == nil {
				t.Fatal("the gang leaves before its time")
			}
			w.now = w.now.Add(18 * time.Second)
			w.settle()
			if w.pods["default/g1"] != nil {
				t.Fatal("the gang stays after its time")
			}
			w.ledger(time.Minute)
			for _, o := range w.m.Ledgers.Objects {
				if len(o.Jobs) > 0 {
					t.Errorf("%v is remembered", o.Jobs)
				}
			}
		})
	}
}
