package coretest

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core"
)

// Jobs that are suspended: their pods wait, and hold images at the places that they left.

// suspended is what the twin knows of a job that is suspended, or about to be.
type suspended struct {
	since core.Time
	// over says that its pods must leave: events have ended it, or the engine has. told says that they were told to.
	over, told bool
	// changed says that a node of it may have changed, which ends it.
	changed bool
}

// addImage adds what a pod of a suspended job holds on a node beside its place, if it has one.
func (u *use) addImage(n *node, j *job, p *pod) {
	if p.at.Node != n.Name || j.suspended == nil {
		return
	}
	switch {
	case p.image:
		u.pods++
		u.mem += p.at.MemMiB + j.Suspend.HostMemMiB
		u.countBeside(&j.Tasks[p.task])
	case p.state == leaving:
		u.mem += j.Suspend.HostMemMiB
	}
}

// foundSuspended notes that an engine before this one suspended a job.
func (w *Twin) foundSuspended(ev core.JobSuspended) {
	j := w.jobs[ev.Job]
	j.suspended = &suspended{since: ev.Since}
	for _, at := range ev.Pods {
		p := &j.pods[at.Pod]
		t := &j.Tasks[p.task]
		p.image = true
		p.at = core.Placement{Pod: at.Pod, Node: at.Node, GPUs: at.GPUs, GPU: min(t.GPU, core.WholeGPU), CPUMilli: t.CPUMilli, MemMiB: t.MemMiB}
		p.at.NICs = w.node(at.Node).nics(at.GPUs)
	}
}

// suspend checks that the job, whose pods are told to leave, can be suspended, and that its nodes have room for the images.
func (w *Twin) suspend(j *job, d *core.Decision, now core.Time) error {
	s := &j.Suspend
	switch {
	case w.policy.Preempt.MaxSuspended == 0, s.HostMemMiB == 0:
		return fmt.Errorf("it cannot be suspended")
	case len(d.Pods) != len(j.pods), !j.Gang && len(j.pods) > 1:
		return fmt.Errorf("%d of its %d pods are suspended", len(d.Pods), len(j.pods))
	case s.Pause+s.Resume >= now-j.started:
		return fmt.Errorf("it takes longer than it has run")
	}
	j.suspended = &suspended{since: now}
	w.Suspensions++
	for _, at := range d.Pods {
		if n := w.node(at.Node); w.use(n).mem > n.MemMiB {
			return fmt.Errorf("node %s has no memory for an image", at.Node)
		}
	}
	return nil
}

// resumeSuspended checks that a job goes on as a whole where it was, in which it is like a start.
func (w *Twin) resumeSuspended(j *job, d *core.Decision, now core.Time) error {
	if j.suspended == nil || j.suspended.over || len(d.Pods) != len(j.pods) {
		return fmt.Errorf("it is not suspended, or not all of it resumes")
	}
	for _, at := range d.Pods {
		p := &j.pods[at.Pod]
		if p.state != waiting || !p.image || p.at != at {
			return fmt.Errorf("pod %d is not suspended there", at.Pod)
		}
		p.image = false
	}
	j.suspended = nil
	w.Resumptions++
	return w.bind(j, d, now)
}

// stopSuspended checks that the suspension of a job is over, and notes that its pods were told to leave.
func (w *Twin) stopSuspended(j *job, d *core.Decision) error {
	s := j.suspended
	if s == nil || s.told {
		return fmt.Errorf("it is not suspended, or was told before")
	}
	due := s.over || s.changed || w.now >= s.since+w.policy.Preempt.MaxSuspended || slices.ContainsFunc(j.pods, func(p pod) bool {
		n := w.node(p.at.Node)
		return n.cordoned || n.bad&p.at.GPUs != 0
	})
	if !due {
		return fmt.Errorf("it is suspended since %v only, and its home is there", s.since)
	}
	for _, at := range d.Pods {
		if p := &j.pods[at.Pod]; !p.image && p.state != leaving {
			return fmt.Errorf("pod %d is gone", at.Pod)
		}
	}
	s.over, s.told = true, true
	return nil
}

// checkSuspended checks, after a pass, that no job is suspended for longer than the policy says.
func (w *Twin) checkSuspended(now core.Time) error {
	for _, j := range w.jobs {
		if s := j.suspended; s != nil && !s.over && now >= s.since+w.policy.Preempt.MaxSuspended {
			return fmt.Errorf("job %s is suspended since %v", j.Name, s.since)
		}
	}
	return nil
}

// endSuspensions notes which suspensions an event ends.
func (w *Twin) endSuspensions(ev core.Event) {
	end := func(j *job) {
		if j != nil && j.suspended != nil {
			j.suspended.over = true
		}
	}
	on := func(node string) {
		for _, j := range w.jobs {
			if slices.ContainsFunc(j.pods, func(p pod) bool { return p.at.Node == node }) {
				end(j)
			}
		}
	}
	switch ev := ev.(type) {
	case core.NodeLost:
		on(ev.Node)
	case core.NodeChanged:
		for _, j := range w.jobs {
			if j.suspended != nil && slices.ContainsFunc(j.pods, func(p pod) bool { return p.at.Node == ev.Node.Name }) {
				j.suspended.changed = true
			}
		}
	case core.JobRelabelled:
		end(w.jobs[ev.Job])
	case core.PodEnded:
		end(w.jobs[ev.Job])
	case core.BindFailed:
		end(w.jobs[ev.Job])
	}
}

// imagesGone takes the images of pods that have left off their nodes; nil Pods means all of a job that was told to leave.
func (w *Twin) imagesGone(j *job, pods []int) {
	if j.suspended == nil || !j.suspended.over || pods == nil && !j.suspended.told {
		return
	}
	for i := range j.pods {
		if pods == nil || slices.Contains(pods, i) {
			j.pods[i].image = false
		}
	}
}

// gone reports whether the suspension of a job is over, and all its pods have left.
func (s *suspended) gone(j *job) bool {
	return s.over && !slices.ContainsFunc(j.pods, func(p pod) bool { return p.image || p.state == leaving })
}

// settleSuspended forgets the suspensions that are over and of which all pods have left.
func (w *Twin) settleSuspended() {
	for _, j := range w.jobs {
		if j.suspended != nil && j.suspended.gone(j) {
			j.suspended = nil
		}
	}
}

// atHome says that a suspended job could resume; "" if it could not. Where quotas or bounds limit what runs, or its pods left for
// jobs that have not started, the twin does not know.
func (w *Twin) atHome(j *job) string {
	if j.suspended.over || w.limited() || j.failed {
		return ""
	}
	if !w.boundsAllow(j, j.GPUs()) || slices.ContainsFunc(j.pods, func(p pod) bool { return !p.image || p.left != nil && w.holds(p.left) }) {
		return ""
	}
	for i := range j.pods {
		p := &j.pods[i]
		n := w.node(p.at.Node)
		if !n.up || n.cordoned || n.bad&p.at.GPUs != 0 || w.unheld(j, n.Name) != nil {
			return ""
		}
		u := w.use(n)
		cpu, gpu := u.cpu, u.gpu
		for k := range j.pods {
			if o := &j.pods[k].at; o.Node == n.Name {
				cpu += o.CPUMilli
				for g := range n.GPUs {
					gpu[g] += core.Milli(o.GPUs>>g&1) * o.GPU
				}
			}
		}
		for g := range n.GPUs {
			if p.at.GPUs>>g&1 == 1 && gpu[g] > core.WholeGPU {
				return ""
			}
		}
		if cpu > n.CPUMilli || u.mem > n.MemMiB || p.at.GPUs == 0 {
			return ""
		}
	}
	return "its GPUs are free"
}

// stopping reports whether pods of a suspended job were told to leave and have not.
func (w *Twin) stopping(name string) bool {
	j := w.jobs[name]
	return j.suspended != nil && j.suspended.told && slices.ContainsFunc(j.pods, func(p pod) bool { return p.image })
}
