package coretest

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core"
)

// Jobs that run as one of their tasks at a time: see core.Goodput.

// become has the pods of a job that are of one task wait, and withdraws the others.
func (j *job) become(task int) {
	j.Tasks = slices.Clone(j.Tasks)
	for t := range j.Tasks {
		if j.Tasks[t].MinPods = core.Elastic; t == task {
			j.Tasks[t].MinPods = 0
		}
	}
	for i := range j.pods {
		if j.pods[i].state = withdrawn; j.pods[i].task == task {
			j.pods[i].state = waiting
		}
	}
}

// chosen has a job that starts be of the task of its first pod, if it has alternatives: all pods of that start together.
func (w *Twin) chosen(j *job, d *core.Decision) error {
	if !j.Alternatives || slices.ContainsFunc(j.pods, func(p pod) bool { return p.on() || p.state == done }) {
		return nil
	}
	task := j.pods[d.Pods[0].Pod].task
	if task != 0 && w.policy.Goodput.Round == 0 {
		return fmt.Errorf("it starts as task %d, and the policy does not choose", task)
	}
	j.become(task)
	return nil
}

// resize checks that a job stops to run as another of its tasks, at the end of a round: once in each.
func (w *Twin) resize(j *job, d *core.Decision, now core.Time) error {
	round := w.policy.Goodput.Round
	switch {
	case round == 0 || !j.Alternatives:
		return fmt.Errorf("it has no alternatives to choose from")
	case w.resized != now && w.resized/round == now/round && w.resized%round == 0 && w.resized > 0:
		return fmt.Errorf("the choice of this round was made at %v", w.resized)
	case now < j.keeps:
		return fmt.Errorf("it keeps what it has until %v", j.keeps)
	case len(d.Pods) != j.running():
		return fmt.Errorf("%d of its %d pods stop", len(d.Pods), j.running())
	}
	w.resized = now
	w.Evictions += len(d.Pods)
	return w.stop(j, d)
}
