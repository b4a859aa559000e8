package reports

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// counting is an engine that knows one queue and no jobs.
type counting struct{ Engine }

func (counting) QueueTimes(core.Time) []core.QueueTime {
	return []core.QueueTime{{Queue: "a", All: core.Served{Received: "7", Deserved: "8"}}}
}

// waits adds jobs that the engine does not know yet, with what engines before it counted.
func waits(t *tables.Tables, from, to int) {
	for i := from; i < to; i++ {
		g := &tables.Group{ID: translate.Group{Namespace: "x", Kind: translate.ByItself, Name: fmt.Sprint("p", i)}, Created: time.Unix(1, 0)}
		g.Job = g.ID.Job()
		g.Kept = tables.Kept{At: 2 * core.Second, Served: core.Served{Received: "0", Deserved: fmt.Sprint(i + 1)}}
		t.Groups[g.ID] = g
	}
}

// Ledger objects, one at a time, have every job, and the queues once. If there are more than before, none of what was written is
// lost at any moment.
func TestLedgersOfManyJobs(t *testing.T) {
	all := tables.New(core.Policy{}, nil)
	all.Now = 10 * core.Second
	r := Reporter{Tables: &all, Guarded: func(_ *tables.Group, call func()) bool { call(); return true }}
	api := map[string]*v1alpha1.Ledger{}
	write := func() {
		t.Helper()
		if again := r.WriteLedger(counting{}); r.ledger.at == all.Now && len(again) > 1 {
			t.Fatalf("%d objects at once", len(again))
		} else {
			for _, x := range again {
				api[x.Object.Name] = x.Object
				all.Ledgers.Observe(x.Object)
			}
		}
		all.Now += ledgerEvery
	}
	has := func(jobs int) {
		t.Helper()
		found, queues := map[string]bool{}, 0
		for _, o := range api {
			queues += len(o.Queues)
			for _, j := range o.Jobs {
				found[j.Name] = true
			}
			if len(o.Jobs) > ledgerJobs+ledgerJobs/4 {
				t.Errorf("%s has %d jobs", o.Name, len(o.Jobs))
			}
		}
		if len(found) < jobs || queues != 1 {
			t.Fatalf("%d jobs are written, expected %d; %d queues", len(found), jobs, queues)
		}
	}
	waits(&all, 0, ledgerJobs)
	write()
	has(ledgerJobs)
	if len(api) != 1 {
		t.Fatalf("%d objects", len(api))
	}
	waits(&all, ledgerJobs, 3*ledgerJobs)
	for range 4 {
		write()
		has(ledgerJobs)
	}
	has(3 * ledgerJobs)
	if len(api) != 4 {
		t.Fatalf("%d objects", len(api))
	}

	// Another process finds each as it was.
	next := tables.New(core.Policy{}, nil)
	next.Now = all.Now
	for _, o := range api {
		next.Ledgers.Observe(o)
	}
	for _, g := range all.Groups {
		fresh := &tables.Group{ID: g.ID, Job: g.Job, Created: g.Created}
		if k, ok := next.KeptOf(fresh); !ok || k.Served != g.Kept.Served {
			t.Fatalf("%s: %v, expected %v", g.Job, k, g.Kept)
		}
	}
}
