package reports

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		t.AddGroup(g)
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

	found(t, &all, api, nil)
}

// found checks that another process finds each job as it was, but for those that were never written.
func found(t *testing.T, all *tables.Tables, api map[string]*v1alpha1.Ledger, written map[string]bool) {
	t.Helper()
	next := tables.New(core.Policy{}, nil)
	next.Now = all.Now
	for _, o := range api {
		next.Ledgers.Observe(o)
	}
	for _, g := range all.Groups {
		fresh := &tables.Group{ID: g.ID, Job: g.Job, Created: g.Created}
		if k, ok := next.KeptOf(fresh); (written == nil || written[g.Job]) && (!ok || k.Served != g.Kept.Served) {
			t.Fatalf("%s: %v, expected %v", g.Job, k, g.Kept)
		}
	}
}

// When there are fewer jobs, and fewer shards, surplus objects are deleted once what they say is in others. Another process finds each
// job as it was, whenever this one ends.
func TestSurplusLedgersGo(t *testing.T) {
	all := tables.New(core.Policy{}, nil)
	all.Now = 10 * core.Second
	r := Reporter{Tables: &all, Guarded: func(_ *tables.Group, call func()) bool { call(); return true }}
	api := map[string]*v1alpha1.Ledger{}
	written := map[string]bool{}
	write := func() {
		t.Helper()
		list := r.WriteLedger(counting{})
		for _, x := range list { // deleted before anything is written
			if x.Surplus && api[x.Object.Name] != x.Object {
				t.Fatalf("%s is deleted, which has changed or is gone", x.Object.Name)
			} else if x.Surplus {
				delete(api, x.Object.Name)
				all.Ledgers.Forget(x.Object.Name)
			}
		}
		found(t, &all, api, written)
		for _, x := range list {
			if x.Surplus {
				continue
			}
			api[x.Object.Name] = x.Object
			all.Ledgers.Observe(x.Object)
			for _, j := range x.Object.Jobs {
				written[j.Name] = true
			}
		}
		all.Now += ledgerEvery
		found(t, &all, api, written)
	}
	objects := func() string { return fmt.Sprint(slices.Sorted(maps.Keys(api))) }
	seen := func(name string, at core.Time, job string, queues ...v1alpha1.LedgerQueue) {
		o := &v1alpha1.Ledger{At: metav1.NewMicroTime(time.Unix(0, int64(at))), Queues: queues}
		o.Name = name
		o.Jobs = []v1alpha1.LedgerJob{{Name: job, Received: "0", Deserved: "1"}}
		written[job] = true
		api[name] = o
		all.Ledgers.Observe(o)
	}

	// An earlier process had two shards. Nobody else wrote the object "mine".
	waits(&all, 0, 3)
	for _, g := range all.Groups {
		g.Kept = tables.Kept{At: 2 * core.Second, Served: core.Served{Received: "0", Deserved: "1"}}
	}
	seen("shard-1-part-0", 3*core.Second, "x/pod/p0", v1alpha1.LedgerQueue{Name: "a"})
	seen("shard-1-part-00", 3*core.Second, "x/pod/p1")
	seen("mine", 3*core.Second, "gone")
	for range 5 {
		write()
	}
	if got := objects(); got != "[mine shard-0-part-0 shard-1-part-00]" {
		t.Fatalf("there are %s", got)
	}
	delete(api, "shard-1-part-00")
	all.Ledgers.Forget("shard-1-part-00")

	// Most jobs end.
	waits(&all, 3, 4*ledgerJobs)
	for range 8 {
		write()
	}
	if len(api) != 5 {
		t.Fatalf("there are %s", objects())
	}
	for _, g := range all.Groups {
		if len(all.Groups) > 10 {
			all.Forget(g)
		}
	}
	for range 12 {
		write()
	}
	if got := objects(); got != "[mine shard-0-part-0]" {
		t.Fatalf("there are %s", got)
	}
}
