package coretest

import (
	"slices"

	"github.com/muster-sched/muster/core"
)

// What events change in the twin.

// Apply applies an event that the engine accepted.
func (w *Twin) Apply(now core.Time, ev core.Event) {
	w.lapse(now)
	w.serve(now)
	w.upsetRooms(ev)
	had := w.gangsBefore(ev)
	w.endSuspensions(ev)
	w.recoverOn(now, ev)
	switch ev := ev.(type) {
	case core.JobEnded:
		if w.jobs[ev.Job].running() > 0 {
			w.upsets++
		}
	case core.NodeAdded: // pods may have to be spread over it too
		if w.spreads() {
			w.upsets++
		}
	case core.MoveFailed: // the plan for which the pod moved may have evicted others, too
		if w.jobs[ev.Job].pods[ev.Pod].room {
			w.upsets++
		}
	case core.Tick, core.PodsGone, core.JobSubmitted, core.QueueSet, core.QueueRemoved, core.Checkpointed, core.JobSlowed, core.JobMeasured,
		core.MoveRequested, core.RestartRequested, core.PodMoved, core.GPUTimeCounted:
	default:
		w.upsets++
	}
	switch ev := ev.(type) {
	case core.RestartRequested:
		w.asked[ev.Job] = ev
	case core.NodeAdded:
		n := w.node(ev.Node.Name)
		if n == nil {
			n = &node{}
			w.nodes = append(w.nodes, n)
		}
		*n = node{Node: ev.Node, up: true, cordoned: ev.Node.Cordoned}
		for _, g := range ev.Node.Unhealthy {
			n.bad |= 1 << g
		}
		for _, j := range w.jobs {
			j.rejected = false
		}
	case core.NodeChanged:
		w.lessUnowned()
		n := w.node(ev.Node.Name)
		devices := n.Devices
		n.Node = ev.Node
		n.Devices = devices
	case core.NodeLost:
		w.lessUnowned()
		w.node(ev.Node).up = false
		for _, j := range w.jobs {
			for i := range j.pods {
				p := &j.pods[i]
				if p.image && p.at.Node == ev.Node {
					p.image = false
				}
				if p.on() && p.at.Node == ev.Node {
					p.state, p.to = waiting, nil
				}
				if p.to != nil && p.to.Node == ev.Node {
					p.to = nil
				}
			}
		}
	case core.NodeCordoned:
		w.node(ev.Node).cordoned = ev.Cordoned
	case core.DeviceHealth:
		n := w.node(ev.Node)
		n.bad &^= 1 << ev.GPU
		if !ev.Healthy {
			n.bad |= 1 << ev.GPU
		}
	case core.QueueSet:
		w.quotaSet++
		i := slices.IndexFunc(w.queues, func(q core.Queue) bool { return q.Name == ev.Queue.Name })
		if i < 0 {
			w.queues = append(w.queues, ev.Queue)
		} else {
			w.queues[i] = ev.Queue
		}
	case core.QueueRemoved:
		w.quotaSet++
		w.served.forget(ev.Queue)
		w.queues = slices.DeleteFunc(w.queues, func(q core.Queue) bool { return q.Name == ev.Queue })
	case core.JobSubmitted:
		w.came++
		j := &job{Job: ev.Job, left: w.ended[ev.Job.Name], number: w.came}
		delete(w.ended, ev.Job.Name)
		j.lacks = make([]int, len(j.Tasks))
		for t := range ev.Job.Tasks {
			for range ev.Job.Tasks[t].Pods {
				j.pods = append(j.pods, pod{task: t})
			}
		}
		j.bonus = w.sizeBonus(&ev.Job)
		j.ordered, j.expected = j.Submitted-j.bonus, j.Estimate
		j.estimate, j.width = w.estimateOf(j, j.Estimate)
		w.jobs[j.Name] = j
		if j.Alternatives {
			j.become(0)
		}
	case core.JobMeasured:
		w.jobs[ev.Job].keeps = ev.Until
	case core.PodsAdded:
		w.jobs[ev.Job].add(&ev)
	case core.PodRunning:
		w.adopt(ev)
	case core.JobSuspended:
		w.foundSuspended(ev)
	case core.PodMoved:
		p := &w.jobs[ev.Job].pods[ev.Pod]
		p.at, p.to = *p.to, nil
	case core.MoveFailed:
		w.jobs[ev.Job].pods[ev.Pod].to = nil
	case core.PodEnded:
		w.jobs[ev.Job].failed = w.jobs[ev.Job].failed || ev.Failed
		p := &w.jobs[ev.Job].pods[ev.Pod]
		p.to, p.image = nil, false
		switch {
		case ev.Failed:
			p.state = waiting
		case p.state == waiting, ev.Lost && w.staleGrace(w.jobs[ev.Job]) > 0:
			p.state = withdrawn
		default:
			p.state = done
		}
	case core.BindFailed:
		w.jobs[ev.Job].failed = true
		p := &w.jobs[ev.Job].pods[ev.Pod]
		p.state, p.to = waiting, nil
	case core.PodsGone:
		j := w.jobs[ev.Job]
		w.imagesGone(j, ev.Pods)
		for i := range j.pods {
			if j.pods[i].state == leaving && (ev.Pods == nil || slices.Contains(ev.Pods, i)) {
				j.pods[i].state, j.pods[i].image = waiting, j.suspended != nil && !j.suspended.over
				w.requeued(now, j, &j.pods[i])
			}
		}
		if j.suspended != nil && j.suspended.gone(j) { // it has lost its work
			w.requeued(now, j, nil)
		}
	case core.Checkpointed:
		at := ev.At
		if at == 0 {
			at = now
		}
		w.jobs[ev.Job].saved = max(w.jobs[ev.Job].saved, at)
		w.jobs[ev.Job].unordered = w.policy.Requeue.Timestamp == core.EvictionTime
	case core.JobEstimated:
		j := w.jobs[ev.Job]
		j.expected = ev.Estimate
		j.estimated = j.estimated || ev.Estimate > 0
		j.estimate, j.width = w.estimateOf(j, ev.Estimate)
	case core.JobShielded:
		w.jobs[ev.Job].disruptionProtected = ev.Shielded
	case core.JobRelabelled:
		j := w.jobs[ev.Job]
		j.Tasks = slices.Clone(j.Tasks)
		for t := range j.Tasks {
			if ev.Task == "" || j.Tasks[t].Name == ev.Task {
				j.Tasks[t].Labels, j.Tasks[t].Affinity = ev.Labels, ev.Affinity
			}
		}
	case core.GPUTimeCounted:
		w.recount(now, ev)
	case core.StandbyBegan:
		w.beginStandby(ev)
	case core.StandbyEnded:
		w.endStandby(now, ev)
	case core.JobEnded:
		j := w.jobs[ev.Job]
		if took := millis(&j.served.received); took > 0 && !j.Foreign {
			w.served.took = append(w.served.took, took)
		}
		for i := range j.pods {
			if l := j.pods[i].left; l != nil {
				j.left = append(j.left, l)
			}
		}
		if j.left != nil {
			w.ended[ev.Job] = j.left
		}
		delete(w.jobs, ev.Job)
	}
	w.settleSuspended()
	w.gangsAfter(now, ev, had)
	w.settleStandby()
}

// spreads reports whether pods of some job must be spread evenly.
func (w *Twin) spreads() bool {
	for _, j := range w.jobs {
		for t := range j.Tasks {
			if slices.ContainsFunc(j.Tasks[t].Affinity, func(t core.Term) bool { return t.MaxSkew > 0 }) {
				return true
			}
		}
	}
	return false
}

func (w *Twin) adopt(ev core.PodRunning) {
	j := w.jobs[ev.Job]
	j.adopted = true
	w.quotaSet++ // what is found running may exceed quotas
	p := &j.pods[ev.Pod]
	if p.state == withdrawn {
		j.become(p.task)
	}
	t := &j.Tasks[p.task]
	w.expose(j, t, w.node(ev.Node).Model)
	p.at = core.Placement{Pod: ev.Pod, Node: ev.Node, GPU: min(t.GPU, core.WholeGPU), CPUMilli: t.CPUMilli, MemMiB: t.MemMiB}
	for _, g := range ev.GPUs {
		p.at.GPUs |= 1 << g
	}
	p.at.NICs = w.node(ev.Node).nics(p.at.GPUs)
	if j.running() == 0 {
		j.started = ev.Started
	}
	p.state, p.started = running, ev.Started
}

// add lets pods join the job.
func (j *job) add(ev *core.PodsAdded) {
	begun := j.running() > 0 && j.whole() // what was found in part has not begun
	j.Tasks = slices.Clone(j.Tasks)
	t := slices.IndexFunc(j.Tasks, func(o core.Task) bool { return o.Name == ev.Task.Name })
	if t < 0 {
		t = len(j.Tasks)
		j.Tasks, j.lacks = append(j.Tasks, ev.Task), append(j.lacks, 0)
		j.Tasks[t].Pods = len(ev.Pods)
	}
	j.Tasks[t].MinPods = minimum(&j.Tasks[t])
	if j.Tasks[t].MinPods == 0 {
		j.Tasks[t].MinPods = core.Elastic
	}
	for _, i := range ev.Pods {
		if i == len(j.pods) {
			j.pods = append(j.pods, pod{})
		}
		j.pods[i] = pod{task: t}
	}
	if begun {
		for t, have := range j.members() {
			j.lacks[t] = max(0, minimum(&j.Tasks[t])-have)
		}
	}
}
