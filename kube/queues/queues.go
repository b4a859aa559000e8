// Package queues makes the engine's queues of Queue objects: it observes the objects, and tells the engine which queues
// are new, changed or deleted. It does no I/O and knows no jobs.
package queues

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/settings"
)

const (
	// Default is the queue of jobs that name none. Without a Queue object of that
	// name it owns no quota.
	Default = "default"
	// Others holds the GPUs that pods of other schedulers use.
	Others = "muster-other-schedulers"
)

// Index is the Queue objects, and what the engine knows about them.
type Index struct {
	Objects map[string]*v1alpha1.Queue
	Told    map[string]core.Queue
	// Verdict is why an object is not in effect.
	Verdict map[string]settings.Verdict
	// Beyond says of a queue that those below it own more than its Subtree has.
	Beyond map[string]string
	// Gone says that the engine knows queues that it should not, of which jobs live.
	Gone bool

	wanted map[string]bool // those that the engine should know
}

// New returns an index of no objects.
func New() Index {
	return Index{Objects: map[string]*v1alpha1.Queue{}, Told: map[string]core.Queue{}, Verdict: map[string]settings.Verdict{}}
}

// Observe records the current state of a queue, and reports whether it says something else.
func (q *Index) Observe(o *v1alpha1.Queue) (changed bool) {
	old := q.Objects[o.Name]
	q.Objects[o.Name] = o
	return old == nil || !reflect.DeepEqual(old.Spec, o.Spec)
}

// Forget records that a queue was deleted.
func (q *Index) Forget(name string) { delete(q.Objects, name) }

// Replace records the list of all queues.
func (q *Index) Replace(list []*v1alpha1.Queue) {
	clear(q.Objects)
	for _, o := range list {
		q.Objects[o.Name] = o
	}
}

// Depth is how far below the top a queue is; more than there are queues in a
// cycle.
func (q *Index) Depth(name string) int {
	d := 0
	for o := q.Objects[name]; o != nil && o.Spec.Parent != "" && d <= len(q.Objects); o = q.Objects[o.Spec.Parent] {
		d++
	}
	return d
}

// Settle tells the engine which queues are new, changed or deleted: parents are added
// before children, and removed after them. A queue with live jobs is removed with the last
// of them. tell applies an event to the engine, which may refuse it; gone is called with each queue
// that is removed.
func (q *Index) Settle(tell func(core.Event) error, gone func(name string)) {
	clear(q.Verdict)
	want := []core.Queue{{Name: Others, Weight: 1}}
	if q.Objects[Default] == nil {
		want = append(want, core.Queue{Name: Default, Weight: 1})
	}
	names := make([]string, 0, len(q.Objects))
	for name := range q.Objects {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(q.Depth(a), q.Depth(b)), strings.Compare(a, b))
	})
	for _, name := range names {
		o := q.Objects[name]
		switch parent := o.Spec.Parent; {
		case q.Depth(name) > len(q.Objects):
			q.Verdict[name] = settings.Verdict{Reason: v1alpha1.QueueCycle, Message: "the queue is its own ancestor"}
		case parent != "" && (q.Objects[parent] == nil || q.Verdict[parent].Reason != ""):
			q.Verdict[name] = settings.Verdict{Reason: v1alpha1.QueueParentNotFound, Message: fmt.Sprintf("parent %s does not exist or is not ready", parent)}
		default:
			want = append(want, o.Spec.Queue(name))
		}
	}
	q.contain(want)
	q.wanted = map[string]bool{}
	for _, w := range want {
		q.wanted[w.Name] = true
		if old, ok := q.Told[w.Name]; ok && reflect.DeepEqual(old, w) {
			continue
		}
		if err := tell(core.QueueSet{Queue: w}); err != nil {
			q.Verdict[w.Name] = settings.Verdict{Reason: v1alpha1.QueueInvalid, Message: err.Error()}
			continue
		}
		q.Told[w.Name] = w
	}
	q.Remove(tell, gone)
	for _, name := range slices.Sorted(maps.Keys(q.Told)) {
		old := q.Told[name]
		if poor := disowned(old); !q.wanted[name] && q.Objects[name] == nil && !reflect.DeepEqual(old, poor) && tell(core.QueueSet{Queue: poor}) == nil {
			q.Told[name] = poor
		}
	}
}

// contain makes the amounts of queues those that each owns beside the queues below it.
func (q *Index) contain(queues []core.Queue) {
	q.Beyond = v1alpha1.Contain(queues, func(name string) bool {
		o := q.Objects[name]
		return o != nil && o.Spec.QuotaScope == "Subtree"
	})
}

// disowned returns a queue as it is when its object is gone: it owns nothing, and its jobs borrow what they have.
func disowned(q core.Queue) core.Queue {
	q.Quota, q.Resources = slices.Clone(q.Quota), slices.Clone(q.Resources)
	for i := range q.Quota {
		q.Quota[i] = core.Quota{Model: q.Quota[i].Model, BorrowingLimit: core.Unlimited, LendingLimit: core.Unlimited}
	}
	for i := range q.Resources {
		q.Resources[i] = core.ResourceQuota{Resource: q.Resources[i].Resource, BorrowingLimit: core.Unlimited, LendingLimit: core.Unlimited}
	}
	return q
}

// Remove removes deleted queues from the engine, as far as the engine allows it: those of which jobs live stay,
// and Gone says so.
func (q *Index) Remove(tell func(core.Event) error, gone func(name string)) {
	for again := true; again; {
		again, q.Gone = false, false
		// A parent goes after its last child: so all are tried until none goes.
		for _, name := range slices.Sorted(maps.Keys(q.Told)) {
			if q.wanted[name] {
				continue
			}
			if q.Gone = true; tell(core.QueueRemoved{Queue: name}) == nil {
				delete(q.Told, name)
				gone(name)
				again = true
			}
		}
	}
}
