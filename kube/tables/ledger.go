package tables

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
)

// Ledgers are what engines before the present one counted: those of other instances and of earlier processes, as the Ledger
// objects say, and earlier ones of this process.
type Ledgers struct {
	Objects map[string]*v1alpha1.Ledger // by name
	// Queues is what the last engine of this process counted for queues, nil if there was none.
	Queues []core.QueueTime
	jobs   map[string]written // the latest entry of each job
}

// Kept is what an engine counted for a job until a time.
type Kept struct {
	At core.Time
	core.Served
	StaleSince core.Time // since when its gang is stale; 0: it is not
}

// written is an entry of a Ledger object, by its name.
type written struct {
	Kept
	in string
}

func newLedgers() Ledgers {
	return Ledgers{Objects: map[string]*v1alpha1.Ledger{}, jobs: map[string]written{}}
}

// Observe takes in the present state of an object. O(jobs in it).
func (l *Ledgers) Observe(o *v1alpha1.Ledger) {
	at := objects.TimeOf(o.At.Time)
	old := l.Objects[o.Name]
	l.Objects[o.Name] = o
	for i := range o.Jobs {
		j := &o.Jobs[i]
		if is := l.jobs[j.Name]; is.in == "" || is.in == o.Name || is.At <= at {
			w := written{Kept{At: at, Served: core.Served{Received: j.Received, Deserved: j.Deserved}}, o.Name}
			if j.StaleSince != nil {
				w.StaleSince = objects.TimeOf(j.StaleSince.Time)
			}
			l.jobs[j.Name] = w
		}
	}
	l.drop(old, at)
}

// Replace takes in the list of all objects.
func (l *Ledgers) Replace(list []*v1alpha1.Ledger) {
	l.Objects, l.jobs = map[string]*v1alpha1.Ledger{}, map[string]written{}
	for _, o := range list {
		l.Observe(o)
	}
}

// Forget drops an object that is gone.
func (l *Ledgers) Forget(name string) {
	old := l.Objects[name]
	delete(l.Objects, name)
	l.drop(old, core.Never)
}

// Latest reports whether the latest entry of a job is in an object.
func (l *Ledgers) Latest(job string, o *v1alpha1.Ledger) bool { return l.jobs[job].in == o.Name }

// Later reports whether another object has a later entry of a queue than this one. O(objects + their queues).
func (l *Ledgers) Later(o *v1alpha1.Ledger, queue string) bool {
	for _, x := range l.Objects {
		if x != o && x.At.After(o.At.Time) && slices.ContainsFunc(x.Queues, func(q v1alpha1.LedgerQueue) bool { return q.Name == queue }) {
			return true
		}
	}
	return false
}

// drop forgets entries of an object from before a time.
func (l *Ledgers) drop(o *v1alpha1.Ledger, before core.Time) {
	if o == nil {
		return
	}
	for i := range o.Jobs {
		if is, ok := l.jobs[o.Jobs[i].Name]; ok && is.in == o.Name && is.At < before {
			delete(l.jobs, o.Jobs[i].Name)
		}
	}
}

// KeptOf returns what engines before the present one counted last for the job of a group; false if none knew it. An entry
// of before the group was created is of another job.
func (t *Tables) KeptOf(g *Group) (Kept, bool) {
	k := t.Ledgers.jobs[g.Job].Kept
	if k.At < objects.TimeOf(g.Created) || g.Kept.At >= k.At {
		k = g.Kept
	}
	k.At = min(k.At, t.Now)
	return k, k.At > 0
}

// GoesOn returns what to tell the engine of a group's job that was submitted again: since when its gang is stale, now if that is
// not known, and what it received and deserved.
func (t *Tables) GoesOn(g *Group, k *Kept) (out []core.Event) {
	if !t.Decides(g) {
		return nil
	}
	if g.Gang() && g.Runs() && !g.Worked && g.Broken((*Pod).Runs) {
		out = append(out, core.GangStale{Job: g.Job, Since: min(t.Now, cmp.Or(k.StaleSince, t.Now))})
	}
	if k.Served != (core.Served{}) {
		out = append(out, core.GPUTimeCounted{At: t.Now, Jobs: []core.JobTime{{Job: g.Job, Served: k.Served}}})
	}
	return out
}

// QueuesGoOn returns what to tell a new engine of the queues, which it knows: what the engine before it in this process
// counted or, without one, the Ledger objects. An entry of before a queue was created is of another queue.
func (t *Tables) QueuesGoOn() []core.GPUTimeCounted {
	if t.Ledgers.Queues != nil {
		return []core.GPUTimeCounted{{At: t.Now, Queues: t.known(t.Ledgers.Queues, t.Now)}}
	}
	var out []core.GPUTimeCounted
	for _, o := range t.Ledgers.Objects {
		if len(o.Queues) == 0 {
			continue
		}
		at := objects.TimeOf(o.At.Time)
		var queues []core.QueueTime
		for i := range o.Queues {
			queues = append(queues, o.Queues[i].Queue(o.Queues[i].Name))
		}
		out = append(out, core.GPUTimeCounted{At: min(at, t.Now), Queues: t.known(queues, at)})
	}
	slices.SortFunc(out, func(a, b core.GPUTimeCounted) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(len(a.Queues), len(b.Queues)))
	})
	return out
}

// known returns those of the queues that the engine knows, and that were there at a time.
func (t *Tables) known(queues []core.QueueTime, at core.Time) []core.QueueTime {
	var out []core.QueueTime
	for _, q := range queues {
		if o := t.Queues.Objects[q.Queue]; o != nil && objects.TimeOf(o.CreationTimestamp.Time) > at {
			continue
		}
		if _, told := t.Queues.Told[q.Queue]; told {
			out = append(out, q)
		}
	}
	return out
}
