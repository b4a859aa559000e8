package tables

import (
	"github.com/muster-sched/muster/core"
)

// Admitted is the part of a job that counts as it was submitted, for as long as pods of it
// have a place, also when the engine is built again.
type Admitted struct {
	queue, user                           string
	class                                 core.Class
	priority                              int32
	neverPreempts, notPreemptible, locked bool
	minRuntime, checkpoint, staleGrace    core.Time
}

// Admit records what counts for a job from now on.
func Admit(j *core.Job) *Admitted {
	return &Admitted{
		queue: j.Queue, user: j.User, class: j.Class, priority: j.Priority, neverPreempts: j.NeverPreempts,
		notPreemptible: j.NotPreemptible, locked: j.Locked, minRuntime: j.MinRuntime, checkpoint: j.Checkpoint, staleGrace: j.StaleGrace,
	}
}

// Apply sets a job to the values with which it was admitted. The queue counts while it exists.
func (a *Admitted) Apply(t *Tables, j *core.Job) {
	if _, told := t.Queues.Told[a.queue]; told {
		j.Queue = a.queue
	}
	j.User = a.user
	j.Class, j.Priority, j.NeverPreempts = a.class, a.priority, a.neverPreempts
	j.NotPreemptible, j.Locked, j.MinRuntime, j.Checkpoint = a.notPreemptible, a.locked, a.minRuntime, a.checkpoint
	j.StaleGrace = a.staleGrace
}

// Class is that of the job.
func (a *Admitted) Class() core.Class { return a.class }
