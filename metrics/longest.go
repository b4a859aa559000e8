package metrics

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core"
)

// LongWait is one of the longest waits of a run: from a job's submission to when
// it was first whole, or to the end of the run if it never was. Jobs that were
// rejected or cancelled before do not count.
type LongWait struct {
	Job, Queue string
	Kind       core.Kind
	Class      core.Class
	Pods       int
	GPUs       core.Milli
	Submitted  core.Time
	Waited     core.Time
	// Waits is set if the job still waits.
	Waits bool
	// Why sums up the engine's answers to the question why the job waits, which the
	// collector asks from time to time (see [Collector.Passed]).
	Why Why

	number int64
}

// LongestWaits is the number of longest waits that a run reports.
const LongestWaits = 20

// LongestWaits returns the longest waits, the longest first, then by
// submission. It is for the end of a run.
func (c *Collector) LongestWaits() []LongWait {
	all := longest{waits: slices.Clone(c.longest.waits)}
	n := 0
	for j := c.unserved.oldest; j != nil && n < LongestWaits; j = j.newer {
		all.add(j, c.now)
		n++
	}
	return all.waits
}

// longest is the longest waits so far, the longest first.
type longest struct{ waits []LongWait }

// least returns how long a wait must be to become one of them.
func (l *longest) least() core.Time {
	if len(l.waits) < LongestWaits {
		return 1
	}
	return l.waits[len(l.waits)-1].Waited + 1
}

// add records that j has waited until t.
func (l *longest) add(j *Job, t core.Time) {
	waited := t - j.job.Submitted
	if waited < l.least() {
		return
	}
	w := LongWait{
		Job: j.job.Name, Queue: j.job.Queue, Kind: j.job.Kind, Class: j.job.Class, Pods: j.job.Pods, GPUs: j.job.GPUs(),
		Submitted: j.job.Submitted, Waited: waited, Waits: j.Started < 0, Why: j.Why(), number: j.Number,
	}
	at, _ := slices.BinarySearchFunc(l.waits, w, func(a, b LongWait) int {
		return cmp.Or(cmp.Compare(b.Waited, a.Waited), cmp.Compare(a.number, b.number))
	})
	l.waits = slices.Insert(l.waits, at, w)
	l.waits = l.waits[:min(len(l.waits), LongestWaits)]
}

// unserved are the live jobs that have not been whole yet, in the order of their
// submission.
type unserved struct{ oldest, newest *Job }

func (u *unserved) add(j *Job) {
	j.older = u.newest
	if u.newest == nil {
		u.oldest = j
	} else {
		u.newest.newer = j
	}
	u.newest = j
}

func (u *unserved) remove(j *Job) {
	if j.older == nil {
		u.oldest = j.newer
	} else {
		j.older.newer = j.newer
	}
	if j.newer == nil {
		u.newest = j.older
	} else {
		j.newer.older = j.older
	}
	j.older, j.newer = nil, nil
}
