package core

import (
	"fmt"
	"slices"
)

// Pods that join a live job, and those that are withdrawn before they run.

// addPods takes in pods that join a job.
func (e *Engine) addPods(now Time, ev PodsAdded) error {
	j, err := e.job(ev.Job)
	if err != nil {
		return err
	}
	task := ev.Task
	task.Pods = len(ev.Pods)
	t := slices.IndexFunc(j.Tasks, func(o Task) bool { return o.Name == task.Name })
	switch {
	case t < 0:
		t = len(j.Tasks)
		if err = checkTask(j.Name, t, &task); err == nil {
			err = e.affinities.check(j.Name, task.Affinity)
		}
	case !j.Tasks[t].Request.Equal(&task.Request):
		err = fmt.Errorf("job %s: the pods of task %q request something else", j.Name, task.Name)
	case len(ev.Pods) == 0:
		err = fmt.Errorf("job %s: no pods are added", j.Name)
	}
	if err != nil {
		return err
	}
	if len(j.pods)+len(ev.Pods) > MaxPods {
		return fmt.Errorf("job %s: more than %d pods", j.Name, MaxPods)
	}
	next := len(j.pods)
	for k, i := range ev.Pods {
		switch {
		case i == next:
			next++
		case i < 0 || i > next || slices.Contains(ev.Pods[:k], i):
			return fmt.Errorf("job %s: pod %d is added, expected at most %d, and each once", j.Name, i, next)
		case int(j.pods[i].task) != t || j.pods[i].state < podDone:
			return fmt.Errorf("job %s: pod %d is added, which is no ended one of task %q", j.Name, i, task.Name)
		}
	}
	if j.count[podWaiting]+j.count[podHeld]+j.count[podPlanned] == 0 {
		j.since = now
	}
	e.waiting.dequeue(j)
	j.Tasks = slices.Clone(j.Tasks) // they were the driver's
	if t == len(j.Tasks) {
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
		j.set(&j.pods[i], podWaiting)
		j.pods[i] = pod{task: int32(t)}
	}
	e.observe(&j.Tasks[t].Request, len(ev.Pods))
	if j.whole() && j.nomination != nil && !j.provided() {
		e.nominations.denominate(j) // its places were settled for fewer
	}
	e.restart(j)
	e.changes.placesChanged(j)
	e.waiting.enqueue(j, now)
	return nil
}

// restart lets a gang of which nothing runs, and too few have ended well, start
// whole again.
func (e *Engine) restart(j *job) {
	if j.Gang && j.begun && j.count[podRunning] == 0 && !j.viable() {
		e.waiting.dequeue(j)
		e.nominations.denominate(j)
		j.begun = false
	}
}

// withdraw takes a pod that does not run out of its job.
func (e *Engine) withdraw(now Time, j *job, i int) {
	e.waiting.dequeue(j)
	p := &j.pods[i]
	if p.state != podWaiting {
		n := j.nomination
		alike := slices.IndexFunc(j.pods, func(o pod) bool { return o.state == podWaiting && o.task == p.task })
		switch {
		case alike >= 0:
			e.nominations.handOver(n, i, alike)
		case j.whole() || j.count[podHeld]+j.count[podPlanned] == 1:
			e.nominations.denominate(j)
		default:
			e.nominations.yield(n, i)
			e.state.Commit()
			e.changes.planDropped(j)
		}
		e.changes.placesChanged(j)
	}
	j.set(p, podWithdrawn)
	e.waiting.enqueue(j, now)
}

// complete reports whether the gang has its least pods, wherever they stand.
func (j *job) complete() bool { return j.missing() == "" }

// missing says which pods a gang lacks to have its least; "" when it lacks none.
func (j *job) missing() string {
	have := make([]int, len(j.Tasks))
	for i := range j.pods {
		if j.pods[i].state != podWithdrawn {
			have[j.pods[i].task]++
		}
	}
	for t, n := range have {
		if least := j.Tasks[t].Minimum(); n < least {
			return fmt.Sprintf("it has %d of the %d pods that it starts with", n, least)
		}
	}
	return ""
}

// provided reports whether the least pods of a nominated gang have places.
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
