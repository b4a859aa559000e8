package core

import (
	"cmp"
	"fmt"
	"slices"
)

// This file handles pods that join a live job, and pods that are withdrawn before they run.

// addPods adds pods to a live job.
func (e *Engine) addPods(now Time, ev PodsAdded) error {
	j, err := e.job(ev.Job)
	if err != nil {
		return err
	}
	if err := e.packs.keeps(j); err != nil {
		return err
	}
	if j.Alternatives {
		return fmt.Errorf("job %s has alternatives, so no pods join it", ev.Job)
	}
	t, next, err := e.checkAdded(j, &ev)
	if err != nil {
		return err
	}

	// 1. The role. MinPods 0 stands for all pods: from now on the number is named, so that a
	// gang that runs does not need those that join it. The tasks are cloned, as the driver may
	// still use them.
	if j.suspended != nil {
		return fmt.Errorf("job %s is suspended", ev.Job)
	}
	if j.count[podWaiting]+j.count[podHeld]+j.count[podPlanned] == 0 {
		j.since = now
	}
	e.waiting.dequeue(j)
	e.turns.placeAll(j, -1) // it may be the first of its tasks with GPUs
	j.Tasks = slices.Clone(j.Tasks)
	if t == len(j.Tasks) {
		task := ev.Task
		task.Pods = 0
		if task.MinPods == 0 {
			task.MinPods = len(ev.Pods)
		}
		j.Tasks = append(j.Tasks, task)
		e.affinities.repel(j.Tasks[t:], 1)
		e.affinities.label(j, nil)
	} else if j.Tasks[t].MinPods == 0 {
		j.Tasks[t].MinPods = j.Tasks[t].Pods
	}

	// 2. The pods.
	if next > cap(j.pods) {
		j.pods = slices.Grow(j.pods, next-len(j.pods))
		e.runs.moved(j)
	}
	for _, i := range ev.Pods {
		if i == len(j.pods) {
			j.addPod(t)
			j.Tasks[t].Pods++
			continue
		}
		e.set(j, &j.pods[i], podWaiting)
		j.pods[i] = pod{task: int32(t)}
	}
	e.turns.placeAll(j, 1)
	e.observe(&j.Tasks[t].Request, len(ev.Pods))
	e.requested(j, t, len(ev.Pods))

	// 3. Victims may be leaving for a gang that now needs more places than its plan has: the
	// plan is given up. A gang of which nothing runs starts whole, with the new pods.
	if j.whole() && j.nomination != nil && !j.provided() {
		e.nominations.denominate(j)
	}
	e.restart(j)
	e.changes.placesChanged(j)
	e.recovery.reshaped(j)
	e.waiting.enqueue(j, now)
	return nil
}

// checkAdded checks pods that are to join a job. It returns the number of their task, which is
// one past the last if the task is new, and how many pods the job then has numbers for.
func (e *Engine) checkAdded(j *job, ev *PodsAdded) (t, pods int, err error) {
	// 1. Their role: a task of the job, or a new one.
	task := ev.Task
	task.Pods = len(ev.Pods)
	t = slices.IndexFunc(j.Tasks, func(o Task) bool { return o.Name == task.Name })
	switch {
	case t < 0:
		t = len(j.Tasks)
		if err = checkTask(j.Name, t, &task); err == nil {
			err = cmp.Or(e.affinities.check(j.Name, task.Affinity), e.affinities.checkPreferences(j.Name, task.Prefers))
		}
	case !j.Tasks[t].Request.Equal(&task.Request):
		err = fmt.Errorf("job %s: the pods of task %q request something else", j.Name, task.Name)
	case len(ev.Pods) == 0:
		err = fmt.Errorf("job %s: no pods are added", j.Name)
	}
	if err != nil {
		return 0, 0, err
	}

	// 2. Their numbers: those of pods of the role that have ended, and the next ones.
	if len(j.pods)+len(ev.Pods) > MaxPods {
		return 0, 0, fmt.Errorf("job %s: more than %d pods", j.Name, MaxPods)
	}
	next := len(j.pods)
	for k, i := range ev.Pods {
		switch {
		case i == next:
			next++
		case i < 0 || i > next || slices.Contains(ev.Pods[:k], i):
			return 0, 0, fmt.Errorf("job %s: pod %d is added, expected at most %d, and each once", j.Name, i, next)
		case int(j.pods[i].task) != t || j.pods[i].state < podDone:
			return 0, 0, fmt.Errorf("job %s: pod %d is added, which is no ended one of task %q", j.Name, i, task.Name)
		}
	}
	return t, next, nil
}

// restart lets a gang start whole again if none of its pods runs and fewer than its minimum
// succeeded.
func (e *Engine) restart(j *job) {
	if j.Gang && j.begun && j.count[podRunning] == 0 && !j.viable() {
		e.waiting.dequeue(j)
		e.nominations.denominate(j)
		j.begun = false
	}
}

// withdraw takes a pod that waits out of its job. A place that is kept for it goes to another
// waiting pod of its task, if there is one: victims leave for it, and the job needs it as much
// as before. A gang that has not started needs its place; without, it gives up all of them.
func (e *Engine) withdraw(now Time, j *job, i int) error {
	if j.Alternatives {
		return fmt.Errorf("job %s has alternatives, so none of its pods ends before it runs", j.Name)
	}
	e.waiting.withdraw(j)
	p := &j.pods[i]
	if p.state != podWaiting {
		n := j.nomination
		lastPlace := j.count[podHeld]+j.count[podPlanned] == 1
		alike := slices.IndexFunc(j.pods, func(o pod) bool { return o.state == podWaiting && o.task == p.task })
		switch {
		case alike >= 0:
			e.nominations.handOver(n, i, alike)
		case j.whole() || lastPlace:
			e.nominations.denominate(j)
		default:
			e.nominations.yield(n, i)
			e.state.Commit()
			e.changes.planDropped(j)
		}
		e.changes.placesChanged(j)
	}
	e.set(j, p, podWithdrawn)
	e.requested(j, int(p.task), -1)
	e.waiting.enqueue(j, now)
	return nil
}

// complete reports whether the gang has its minimum of pods, in whatever state.
func (j *job) complete() bool { return j.missing() == "" }

// missing says how many pods of its minimum a gang lacks; "" if it lacks none.
func (j *job) missing() string {
	have := make([]int, len(j.Tasks))
	for i := range j.pods {
		if j.pods[i].state != podWithdrawn {
			have[j.pods[i].task]++
		}
	}
	for t, n := range have {
		if minimum := j.Tasks[t].Minimum(); n < minimum {
			return fmt.Sprintf("it has %d of the %d pods that it starts with", n, minimum)
		}
	}
	return ""
}

// provided reports whether the minimum of a nominated gang has places, or runs.
func (j *job) provided() bool {
	have := j.membersByTask()
	for i := range j.pods {
		if p := &j.pods[i]; p.state == podHeld || p.state == podPlanned {
			have[p.task]++
		}
	}
	for t, n := range have {
		if n < j.Tasks[t].Minimum() {
			return false
		}
	}
	return true
}
