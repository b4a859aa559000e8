package coretest

import (
	"fmt"
	"iter"
	"math/bits"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// standby is what a pod on standby lends and keeps, and until when.
type standby struct {
	until            core.Time
	cpu, mem         int64
	keepCPU, keepMem int64
}

// Standby returns how many pods of a live job are on standby.
func (w *Twin) Standby(name string) int {
	n := 0
	for i := range w.jobs[name].pods {
		if w.jobs[name].pods[i].standby != nil {
			n++
		}
	}
	return n
}

// beginStandby notes which pods are on standby from now on.
func (w *Twin) beginStandby(ev core.StandbyBegan) {
	j := w.jobs[ev.Job]
	pods := ev.Pods
	if pods == nil {
		for i := range j.pods {
			if p := &j.pods[i]; p.state == running && j.Tasks[p.task].GPU > 0 {
				pods = append(pods, i)
			}
		}
	}
	for _, i := range pods {
		p := &j.pods[i]
		if p.standby == nil {
			cpu, mem := max(0, p.at.CPUMilli-ev.CPUMilli), max(0, p.at.MemMiB-ev.MemMiB)
			p.standby = &standby{cpu: cpu, mem: mem, keepCPU: p.at.CPUMilli - cpu, keepMem: p.at.MemMiB - mem}
		}
		p.standby.until = ev.Until
	}
}

// endStandby notes that the window of pods is over now.
func (w *Twin) endStandby(now core.Time, ev core.StandbyEnded) {
	j := w.jobs[ev.Job]
	for i := range j.pods {
		if p := &j.pods[i]; p.standby != nil {
			named := ev.Pods == nil
			for _, k := range ev.Pods {
				named = named || k == i
			}
			if named {
				p.standby.until = min(p.standby.until, now)
			}
		}
	}
}

// settleStandby forgets the standby of pods that are off their nodes.
func (w *Twin) settleStandby() {
	for _, j := range w.jobs {
		for i := range j.pods {
			if p := &j.pods[i]; !p.on() {
				p.standby = nil
			}
		}
	}
}

// lenders yields the pods on a node that are on standby, and their jobs.
func (w *Twin) lenders(node string) iter.Seq2[*job, *pod] {
	return func(yield func(*job, *pod) bool) {
		for _, j := range w.jobs {
			for i := range j.pods {
				if p := &j.pods[i]; p.on() && p.standby != nil && p.at.Node == node && !yield(j, p) {
					return
				}
			}
		}
	}
}

// guest returns the pod on standby on whose GPUs another one is; nil if there is none.
func (w *Twin) guest(at *core.Placement, of *pod) *pod {
	for _, p := range w.lenders(at.Node) {
		if p != of && p.at.GPUs&at.GPUs != 0 {
			return p
		}
	}
	return nil
}

// guests yields the pods on the GPUs of a pod on standby.
func (w *Twin) guests(owner *pod) iter.Seq2[*job, *pod] {
	return func(yield func(*job, *pod) bool) {
		for _, j := range w.jobs {
			for i := range j.pods {
				p := &j.pods[i]
				if p != owner && p.on() && p.at.Node == owner.at.Node && p.at.GPUs&owner.at.GPUs != 0 && !yield(j, p) {
					return
				}
			}
		}
	}
}

// borrowsDevices reports whether pods of the job may be on lent GPUs.
func (w *Twin) borrowsDevices(j *job) bool {
	p := &w.policy.Preempt
	protected := w.protects(j) && (j.Locked || j.NotPreemptible || p.MaxMinRuntime > 0 && j.MinRuntime > p.MaxMinRuntime)
	return j.Class == core.LP && !j.NeverOnLent && !protected && !j.Foreign && j.MinRuntime == 0
}

// guestFits checks that a pod of a job may be where it is, on the GPUs of a pod on standby,
// beside the other pods there.
func (w *Twin) guestFits(j *job, p, owner *pod, now core.Time) error {
	s := owner.standby
	switch {
	case !w.borrowsDevices(j):
		return fmt.Errorf("its GPUs are lent, and it may not borrow any")
	case p.at.GPUs&^owner.at.GPUs != 0:
		return fmt.Errorf("some of its GPUs are lent, and others not by the same pod")
	case now >= s.until:
		return fmt.Errorf("its GPUs were lent until %v", s.until)
	}
	for _, a := range j.Tasks[p.task].Others {
		if a.Value > 0 {
			return fmt.Errorf("it takes %s on lent GPUs", a.Name)
		}
	}
	var gpu [64]core.Milli
	var wholly, partly uint64
	cpu, mem := int64(0), int64(0)
	for _, g := range w.guests(owner) {
		cpu, mem = cpu+g.at.CPUMilli, mem+g.at.MemMiB
		for d := range gpu {
			if g.at.GPUs>>d&1 == 1 {
				if gpu[d] += g.at.GPU; gpu[d] > core.WholeGPU {
					return fmt.Errorf("lent GPU %d is given out at %d milli", d, gpu[d])
				}
			}
		}
		if g.at.GPU == core.WholeGPU {
			wholly |= g.at.GPUs
		} else {
			partly |= g.at.GPUs
		}
	}
	n := w.node(p.at.Node)
	lentCPU, lentMem := w.lentRoom(n, owner)
	switch {
	case wholly&partly != 0:
		return fmt.Errorf("lent GPUs %b are given whole and in part", wholly&partly)
	case cpu > lentCPU || mem > lentMem:
		return fmt.Errorf("%d milli-cores and %d MiB are taken, %d and %d are lent", cpu, mem, lentCPU, lentMem)
	case n.MaxPods > 0 && w.use(n).pods > n.MaxPods:
		return fmt.Errorf("the node takes %d pods", n.MaxPods)
	}
	return nil
}

// lentRoom returns how much CPU and memory the pods on the GPUs of a pod on standby may take
// together: what it lends, and what is free on the node, at most as much as the node has for each
// GPU but for what the owner keeps. What pods take beyond what the node has is missing.
func (w *Twin) lentRoom(n *node, owner *pod) (cpu, mem int64) {
	s, u := owner.standby, w.use(n)
	gpus := int64(bits.OnesCount64(owner.at.GPUs))
	drawnCPU, drawnMem := w.drawn(owner)
	cpu = min(s.cpu+drawnCPU+n.CPUMilli-u.cpu, max(s.cpu, n.CPUMilli/int64(n.GPUs)*gpus-s.keepCPU))
	mem = min(s.mem+drawnMem+n.MemMiB-u.mem, max(s.mem, n.MemMiB/int64(n.GPUs)*gpus-s.keepMem))
	return cpu, mem
}

// drawn returns how much CPU and memory the pods on the GPUs of a pod on standby take beyond what it
// lends.
func (w *Twin) drawn(owner *pod) (cpu, mem int64) {
	for _, g := range w.guests(owner) {
		cpu, mem = cpu+g.at.CPUMilli, mem+g.at.MemMiB
	}
	return max(0, cpu-owner.standby.cpu), max(0, mem-owner.standby.mem)
}

// evictGuests checks that pods leave for the return of a pod on standby, and notes it: each is on
// its GPUs, or in a gang with one that is.
func (w *Twin) evictGuests(j *job, d *core.Decision, now core.Time) error {
	f := w.jobs[d.For]
	if f == nil {
		return fmt.Errorf("for %q, which is no live job", d.For)
	}
	w.upsets++
	on := 0
	for _, at := range d.Pods {
		p := &j.pods[at.Pod]
		owner := w.guest(&p.at, p)
		if owner != nil && now >= owner.standby.until {
			on++
		} else if !j.Gang {
			return fmt.Errorf("pod %d is on no GPU whose owner returns", at.Pod)
		}
	}
	if on == 0 {
		return fmt.Errorf("none of its pods is on a GPU whose owner returns")
	}
	return w.stop(j, d)
}

// resume checks that pods on standby go on, and notes it.
func (w *Twin) resume(j *job, d *core.Decision, now core.Time) error {
	for _, at := range d.Pods {
		p := &j.pods[at.Pod]
		if p.standby == nil || p.state != running || p.at != at {
			return fmt.Errorf("pod %d is not on standby there", at.Pod)
		}
		if now < p.standby.until {
			return fmt.Errorf("pod %d is on standby until %v", at.Pod, p.standby.until)
		}
		for o, g := range w.guests(p) {
			return fmt.Errorf("pod %d: a pod of %s has some of its GPUs %b", at.Pod, o.Name, g.at.GPUs)
		}
		p.standby = nil
	}
	return nil
}

// checkStandby checks after a pass that no owner waits for its GPUs in vain.
func (w *Twin) checkStandby(now core.Time) error {
	for _, n := range w.nodes {
		for j, p := range w.lenders(n.Name) {
			if p.state != running || now < p.standby.until {
				continue
			}
			left := 0
			for o, g := range w.guests(p) {
				if g.state == running {
					return fmt.Errorf("a pod of %s runs on GPUs %b of %s, whose owner %s returns", o.Name, g.at.GPUs, n.Name, j.Name)
				}
				left++
			}
			if left == 0 {
				return fmt.Errorf("a pod of %s is on standby, and nothing is on its GPUs after the window", j.Name)
			}
		}
	}
	return nil
}

// prefersLent checks that a job of one pod that is expected to end while GPUs are lent is on such, if
// there is room and nothing else decides where it goes.
func (w *Twin) prefersLent(j *job, d *core.Decision, now core.Time) error {
	t := &j.Tasks[0]
	planned := kept(d)
	bound := len(t.Affinity) > 0 || len(t.Labels) > 0 || len(t.Speeds) > 0 || j.Topology != core.TopologyRequest{} || len(j.left) > 0
	if len(j.pods) != 1 || j.Estimate == 0 || planned || bound || w.policy.Zone != (core.Zone{}) || w.guest(&j.pods[0].at, &j.pods[0]) != nil {
		return nil
	}
	for _, o := range w.jobs {
		if o.nominated {
			return nil // it may keep the room
		}
	}
	model := w.node(j.pods[0].at.Node).Model // on another one, its queue may lack quota
	for _, n := range w.nodes {
		for o, p := range w.lenders(n.Name) {
			if n.Model == model && p.standby.until >= now+j.Estimate && w.lentSlot(j, t, n, p, now) {
				return fmt.Errorf("it is on %s and ends before %s returns, which lends GPUs of %s", j.pods[0].at.Node, o.Name, n.Name)
			}
		}
	}
	return nil
}

// lentSlot reports whether a pod of a task finds room on what a pod lends, by GPUs, CPU and memory.
func (w *Twin) lentSlot(j *job, t *core.Task, n *node, owner *pod, now core.Time) bool {
	if !w.borrowsDevices(j) || t.GPU == 0 || len(t.Others) > 0 || !n.up || n.cordoned || n.MaxPods > 0 || now >= owner.standby.until ||
		owner.state != running || w.suits(j, t, n) != nil {
		return false
	}
	cpu, mem := w.lentRoom(n, owner)
	cpu, mem = cpu-t.CPUMilli, mem-t.MemMiB
	free, part := owner.at.GPUs&^n.bad, [64]core.Milli{}
	for _, g := range w.guests(owner) {
		cpu, mem, free = cpu-g.at.CPUMilli, mem-g.at.MemMiB, free&^g.at.GPUs
		for d := range part {
			if g.at.GPUs>>d&1 == 1 {
				part[d] += g.at.GPU
			}
		}
	}
	if cpu < 0 || mem < 0 {
		return false
	}
	if t.GPU >= core.WholeGPU {
		return bits.OnesCount64(free) >= int(t.GPU/cluster.WholeGPU)
	}
	for d := range part {
		if (owner.at.GPUs&^n.bad)>>d&1 == 1 && part[d]+t.GPU <= core.WholeGPU {
			return true
		}
	}
	return false
}
