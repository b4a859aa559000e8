package tables

import (
	"github.com/muster-sched/muster/core"
)

// Admitted is what of a job counts as it was submitted for as long as pods of it have
// a place, when the engine is built again too.
type Admitted struct {
	queue                                 string
	class                                 core.Class
	priority                              int32
	neverPreempts, notPreemptible, locked bool
	minRuntime, checkpoint                core.Time
}

// Admit keeps what of a job counts from now on.
func Admit(j *core.Job) *Admitted {
	return &Admitted{
		queue: j.Queue, class: j.Class, priority: j.Priority, neverPreempts: j.NeverPreempts,
		notPreemptible: j.NotPreemptible, locked: j.Locked, minRuntime: j.MinRuntime, checkpoint: j.Checkpoint,
	}
}

// Apply has a job be as it was admitted. The queue counts as long as there is one.
func (a *Admitted) Apply(t *Tables, j *core.Job) {
	if _, told := t.Queues.Told[a.queue]; told {
		j.Queue = a.queue
	}
	j.Class, j.Priority, j.NeverPreempts = a.class, a.priority, a.neverPreempts
	j.NotPreemptible, j.Locked, j.MinRuntime, j.Checkpoint = a.notPreemptible, a.locked, a.minRuntime, a.checkpoint
}
