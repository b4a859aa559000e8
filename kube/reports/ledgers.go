package reports

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/tables"
)

// This file writes what an engine that comes after this one has to know, in Ledger objects: see docs/adr/0017. Jobs are divided
// among the objects of their shard by a hash of their names. Each object is right by itself, so that it does not matter
// which of them are written when this process ends.

const (
	// ledgerEvery is the time between two writes, each of one object, in turn.
	ledgerEvery = 10 * core.Second
	// ledgerJobs is how many jobs an object has about: their entries are half a megabyte, and etcd takes 1.5.
	ledgerJobs = 4000
)

// ledgerTurn says which object is written next.
type ledgerTurn struct {
	at    core.Time // of the last
	shard int
	part  int   // of the shard
	parts []int // of each shard: a power of two, 0 before its first turn
}

// Keep notes what the engine has counted for the job of a group, for when it is submitted again. Of a job that another instance
// decides on, that one knows.
func (r *Reporter) Keep(e Engine, g *tables.Group) {
	if !g.Submitted {
		return
	}
	r.Guarded(nil, func() {
		if served, ok := e.JobTime(r.Now, g.Job); ok {
			since, _ := e.StaleSince(g.Job)
			g.Kept = tables.Kept{At: r.Now, Served: served, StaleSince: since}
		}
	})
}

// KeepAll notes what the engine has counted, for the one that is built in its place.
func (r *Reporter) KeepAll(e Engine) {
	r.Ledgers.Queues = nil
	r.Guarded(nil, func() { r.Ledgers.Queues = e.QueueTimes(r.Now) })
	for _, g := range r.Groups {
		r.Keep(e, g)
	}
}

// WriteLedger returns the next Ledger object to write, if it is time for one and there is anything to remember, and one to delete that
// is no longer needed.
func (r *Reporter) WriteLedger(e Engine) []act.Ledger {
	if r.Now < r.ledger.at+ledgerEvery {
		return nil
	}
	r.ledger.at = r.Now
	return append(r.nextPart(e), r.surplus(e)...)
}

// nextPart returns the object whose turn it is, as it should be, if it is not so already.
func (r *Reporter) nextPart(e Engine) []act.Ledger {
	shard, part, ok := r.nextLedger()
	if !ok {
		return nil
	}
	o := &v1alpha1.Ledger{At: metav1.NewMicroTime(time.Unix(0, int64(r.Now)))}
	o.Name = ledgerName(shard, part)
	old := r.Ledgers.Objects[o.Name]
	if old != nil {
		o.ObjectMeta = metav1.ObjectMeta{Name: o.Name, ResourceVersion: old.ResourceVersion}
	}
	if !r.Guarded(nil, func() { r.fillLedger(e, o, shard, part) }) {
		return nil
	}
	if old == nil && len(o.Queues)+len(o.Jobs) == 0 || old != nil && equality.Semantic.DeepEqual(old.Queues, o.Queues) && equality.Semantic.DeepEqual(old.Jobs, o.Jobs) {
		return nil
	}
	return []act.Ledger{{Object: o, Shard: shard}}
}

// nextLedger returns whose turn it is: the parts of each shard that is ours, the last first. So if a shard has more parts than
// before, the entries that are in another part now are written there first. A shard has fewer parts when its jobs would fill a quarter.
func (r *Reporter) nextLedger() (shard, part int, ok bool) {
	t := &r.ledger
	if t.parts == nil {
		t.parts = make([]int, len(r.Shards.Held))
	}
	if t.part > 0 && r.Shards.Held[t.shard] {
		t.part--
		return t.shard, t.part, true
	}
	for range t.parts {
		if t.shard = (t.shard + 1) % len(t.parts); r.Shards.Held[t.shard] {
			jobs := 0
			for _, g := range r.Groups {
				if g.Shard == t.shard {
					jobs++
				}
			}
			n := max(1, t.parts[t.shard])
			for n*ledgerJobs < jobs {
				n *= 2
			}
			for n > 1 && n*ledgerJobs/4 >= jobs {
				n /= 2
			}
			t.parts[t.shard], t.part = n, n-1
			return t.shard, t.part, true
		}
	}
	return 0, 0, false
}

// fillLedger adds the queues, to the first part, and the jobs of the part. What groups that the engine does not know had before
// stays.
func (r *Reporter) fillLedger(e Engine, o *v1alpha1.Ledger, shard, part int) {
	if part == 0 {
		for _, q := range e.QueueTimes(r.Now) {
			if some(q.All) || some(q.Own) {
				o.Queues = append(o.Queues, v1alpha1.LedgerQueue{Name: q.Queue, QueueGPUTime: v1alpha1.QueueGPUTimeOf(q)})
			}
		}
	}
	for g := range r.Part(part, r.ledger.parts[shard]) {
		if g.Shard != shard || g.ID.Kind == tables.Foreign {
			continue
		}
		if is, ok := r.remembers(e, g); ok {
			j := v1alpha1.LedgerJob{Name: g.Job, Received: is.Received, Deserved: is.Deserved}
			if is.StaleSince > 0 {
				since := metav1.NewMicroTime(time.Unix(0, int64(is.StaleSince)))
				j.StaleSince = &since
			}
			o.Jobs = append(o.Jobs, j)
		}
	}
	slices.SortFunc(o.Jobs, func(a, b v1alpha1.LedgerJob) int { return strings.Compare(a.Name, b.Name) })
}

// remembers returns what is to be remembered of a group's job; false if nothing is.
func (r *Reporter) remembers(e Engine, g *tables.Group) (is tables.Kept, ok bool) {
	if g.Submitted {
		is.Served, _ = e.JobTime(r.Now, g.Job)
		is.StaleSince, _ = e.StaleSince(g.Job)
	} else {
		is, _ = r.KeptOf(g)
	}
	return is, some(is.Served) || is.StaleSince > 0
}

// surplus returns an object to delete: one of a part or a shard that is no more, of which no entry counts. What its jobs and queues
// have is then in objects that were observed, or it is of no use. So nothing is lost whenever this process ends.
func (r *Reporter) surplus(e Engine) []act.Ledger {
	for _, name := range slices.Sorted(maps.Keys(r.Ledgers.Objects)) {
		shard, ok := r.inPlaceOf(name)
		if !ok {
			continue
		}
		o, counts := r.Ledgers.Objects[name], true
		if r.Guarded(nil, func() { counts = r.counts(e, o) }) && !counts {
			return []act.Ledger{{Object: o, Shard: shard, Surplus: true}}
		}
	}
	return nil
}

// inPlaceOf returns the shard of ours whose objects are there in place of one of a part, or a shard, that is no more; false if it is
// still needed, or others decide on that.
func (r *Reporter) inPlaceOf(name string) (shard int, ok bool) {
	part := 0
	if n, _ := fmt.Sscanf(name, "shard-%d-part-%d", &shard, &part); n != 2 || name != ledgerName(shard, part) || shard < 0 {
		return 0, false
	}
	if shard >= len(r.ledger.parts) {
		return r.Shards.Rest, r.Shards.Held[r.Shards.Rest]
	}
	parts := r.ledger.parts[shard]
	return shard, r.Shards.Held[shard] && parts > 0 && part >= parts
}

// counts reports whether an object has the latest entry of a job or a queue that is there.
func (r *Reporter) counts(e Engine, o *v1alpha1.Ledger) bool {
	for i := range o.Queues {
		if !r.Ledgers.Later(o, o.Queues[i].Name) {
			return true
		}
	}
	for _, g := range r.Groups {
		if !r.Ledgers.Latest(g.Job, o) {
			continue
		}
		if _, ok := r.remembers(e, g); ok || !r.Shards.Held[g.Shard] {
			return true
		}
	}
	return false
}

// some reports whether anything was received or deserved.
func some(s core.Served) bool {
	return len(s.Received) > 1 || len(s.Deserved) > 1 || s.Received > "0" || s.Deserved > "0"
}

func ledgerName(shard, part int) string { return fmt.Sprintf("shard-%d-part-%d", shard, part) }
