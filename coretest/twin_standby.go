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
	// closed says that nothing more starts on its GPUs, returns that it takes back the rest, too.
	closed, returns bool
	// checked says that there was room for the pods that stay when it began to return.
	checked bool
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

// loan is CPU or memory on the GPUs that pods of a node lend: what those lend and keep that do not return, what those lend that
// do, what the pods on them take that stay and that leave for an owner's return, and what the node has beside all that.
type loan struct {
	open, kept, returns, stays, goes, home int64
	share                                  int64 // of the node, for the GPUs
}

// drawn is what the guests take beyond what is lent: now, and when those have left that leave and their owners are back.
func (l *loan) drawn() int64 {
	return max(0, l.stays+l.goes-l.open-l.returns, l.stays-l.open)
}

// fits reports whether a pod that takes so much finds room.
func (l *loan) fits(more int64) bool {
	return l.stays+more+max(0, l.goes-l.returns) <= l.open+l.home && l.stays+more <= max(l.open, l.share-l.kept)
}

// short reports whether what stays takes more than there will be. closed says that it may draw nothing from the node.
func (l *loan) short(closed bool) bool {
	return l.stays-l.open > max(0, l.home) || closed && l.stays > l.open
}

// allows reports whether an owner that lends so much, and returns, may have it back.
func (l *loan) allows(lent int64) bool {
	after := *l
	after.returns -= lent
	return after.drawn()-l.drawn() <= max(0, l.home-l.drawn())
}

// loans returns what is lent on a node, and what of its GPUs that are lent may be given out.
func (w *Twin) loans(n *node) (cpu, mem loan, open uint64) {
	u := w.useBut(n)
	cpu.home, mem.home = n.CPUMilli-u.cpu, n.MemMiB-u.mem
	returning, on := uint64(0), uint64(0)
	for _, o := range w.lenders(n.Name) {
		s := o.standby
		if s.returns {
			cpu.returns, mem.returns = cpu.returns+s.cpu, mem.returns+s.mem
			returning |= o.at.GPUs
		} else {
			cpu.open, mem.open = cpu.open+s.cpu, mem.open+s.mem
			cpu.kept, mem.kept = cpu.kept+s.keepCPU, mem.kept+s.keepMem
		}
		if !s.closed {
			open |= o.at.GPUs
		}
	}
	for _, g := range w.guestsAt(n.Name) {
		if g.state == leaving && g.forOwner || g.at.GPUs&returning != 0 {
			cpu.goes, mem.goes = cpu.goes+g.at.CPUMilli, mem.goes+g.at.MemMiB
		} else {
			cpu.stays, mem.stays = cpu.stays+g.at.CPUMilli, mem.stays+g.at.MemMiB
		}
		on |= g.at.GPUs
	}
	if n.GPUs > 0 {
		gpus := int64(bits.OnesCount64(open | on&^w.lent(n.Name)))
		cpu.share, mem.share = n.CPUMilli/int64(n.GPUs)*gpus, n.MemMiB/int64(n.GPUs)*gpus
	}
	return cpu, mem, open
}

// lent returns the GPUs of a node that are lent.
func (w *Twin) lent(node string) (gpus uint64) {
	for _, o := range w.lenders(node) {
		gpus |= o.at.GPUs
	}
	return gpus
}

// guestsAt yields the pods on lent GPUs of a node.
func (w *Twin) guestsAt(node string) iter.Seq2[*job, *pod] {
	return func(yield func(*job, *pod) bool) {
		for _, j := range w.jobs {
			for i := range j.pods {
				if p := &j.pods[i]; p.on() && p.at.Node == node && w.guest(&p.at, p) != nil && !yield(j, p) {
					return
				}
			}
		}
	}
}

// closeLent notes whose windows are over: nothing more starts on their GPUs. One that leaves its node does not want them back.
func (w *Twin) closeLent(now core.Time) {
	for _, n := range w.nodes {
		for _, p := range w.lenders(n.Name) {
			if s := p.standby; !s.closed && (p.state != running || now >= s.until) {
				s.closed, s.returns = true, p.state == running
				for _, g := range w.guestsAt(n.Name) {
					g.forOwner = g.forOwner || s.returns && g.state == leaving
				}
			}
		}
	}
}

// guestFits checks that a pod of a job may be where it is, on lent GPUs, beside the other pods there.
func (w *Twin) guestFits(j *job, p *pod, now core.Time) error {
	n := w.node(p.at.Node)
	cpu, mem, open := w.loans(n)
	switch {
	case !w.borrowsDevices(j):
		return fmt.Errorf("its GPUs are lent, and it may not borrow any")
	case p.at.GPUs&^open != 0:
		return fmt.Errorf("its GPUs are %b, of which %b are lent from now on", p.at.GPUs, open)
	}
	for _, a := range j.Tasks[p.task].Others {
		if a.Value > 0 {
			return fmt.Errorf("it takes %s on lent GPUs", a.Name)
		}
	}
	var gpu [64]core.Milli
	var wholly, partly uint64
	for _, g := range w.guestsAt(n.Name) {
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
	switch {
	case wholly&partly != 0:
		return fmt.Errorf("lent GPUs %b are given whole and in part", wholly&partly)
	case p.at.CPUMilli > 0 && !cpu.fits(0) || p.at.MemMiB > 0 && !mem.fits(0):
		return fmt.Errorf("there is not enough beside the lent GPUs: %+v milli-cores, %+v MiB", cpu, mem)
	case n.MaxPods > 0 && w.use(n).pods > n.MaxPods:
		return fmt.Errorf("the node takes %d pods", n.MaxPods)
	}
	return nil
}

// evictGuests checks that pods leave for the return of a pod on standby, and notes it: each is on
// its GPUs, takes CPU or memory that it takes back, or is in a gang with one that is or does.
func (w *Twin) evictGuests(j *job, d *core.Decision) error {
	f := w.jobs[d.For]
	if f == nil {
		return fmt.Errorf("for %q, which is no live job", d.For)
	}
	w.upsets++
	on := 0
	for _, at := range d.Pods {
		p := &j.pods[at.Pod]
		if w.leavesFor(p, f) {
			on++
		} else if !j.Gang {
			return fmt.Errorf("pod %d is on no GPU whose owner returns, and has no CPU and memory that it needs", at.Pod)
		}
	}
	if on == 0 {
		return fmt.Errorf("none of its pods is on a GPU whose owner returns, or has CPU and memory that it needs")
	}
	if err := w.stop(j, d); err != nil {
		return err
	}
	for _, at := range d.Pods {
		j.pods[at.Pod].forOwner = true
	}
	return nil
}

// leavesFor reports whether a guest has to leave for a pod of a job to return.
func (w *Twin) leavesFor(g *pod, f *job) bool {
	if w.guest(&g.at, g) == nil {
		return false
	}
	for o, owner := range w.lenders(g.at.Node) {
		if o != f || !owner.standby.returns {
			continue
		}
		cpu, mem, _ := w.loans(w.node(g.at.Node))
		closed := w.node(g.at.Node).cordoned || w.mayKeepPlaces()
		if g.at.GPUs&owner.at.GPUs != 0 || g.at.CPUMilli > 0 && cpu.short(closed) || g.at.MemMiB > 0 && mem.short(closed) {
			return true
		}
	}
	return false
}

// mayKeepPlaces reports whether places may be kept on nodes for jobs that have not started.
func (w *Twin) mayKeepPlaces() bool {
	if !w.Settled() {
		return true
	}
	for _, j := range w.jobs {
		if j.nominated {
			return true
		}
	}
	return false
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
		if !w.mayReturn(p) {
			return fmt.Errorf("pod %d: others use its CPU or memory", at.Pod)
		}
		p.standby = nil
	}
	return nil
}

// mayReturn reports whether the node of a pod that returns has the CPU and memory that it lent.
func (w *Twin) mayReturn(p *pod) bool {
	cpu, mem, _ := w.loans(w.node(p.at.Node))
	return cpu.allows(p.standby.cpu) && mem.allows(p.standby.mem)
}

// checkStandby checks after a pass that no owner waits for its GPUs in vain.
func (w *Twin) checkStandby(now core.Time) error {
	for _, n := range w.nodes {
		for j, p := range w.lenders(n.Name) {
			if p.state != running || now < p.standby.until {
				continue
			}
			if !p.standby.checked {
				p.standby.checked = true
				if cpu, mem, _ := w.loans(n); cpu.short(false) || mem.short(false) {
					return fmt.Errorf("pods stay that take what %s takes back: %+v milli-cores, %+v MiB", j.Name, cpu, mem)
				}
			}
			left := 0
			for o, g := range w.guests(p) {
				if g.state == running {
					return fmt.Errorf("a pod of %s runs on GPUs %b of %s, whose owner %s returns", o.Name, g.at.GPUs, n.Name, j.Name)
				}
				left++
			}
			if left > 0 {
				continue
			}
			for _, g := range w.guestsAt(n.Name) {
				if g.state == leaving {
					left++
				}
			}
			if left == 0 || w.mayReturn(p) && !w.mayKeepPlaces() {
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
		lasts, lends := core.Never, false
		for _, p := range w.lenders(n.Name) {
			if lends = true; !p.standby.closed {
				lasts = min(lasts, p.standby.until)
			}
		}
		if lends && n.Model == model && lasts >= now+j.Estimate && w.lentSlot(j, t, n) {
			return fmt.Errorf("it is on %s and ends before the GPUs of %s are taken back that are lent", j.pods[0].at.Node, n.Name)
		}
	}
	return nil
}

// lentSlot reports whether a pod of a task finds room on what pods of a node lend, by GPUs, CPU and memory.
func (w *Twin) lentSlot(j *job, t *core.Task, n *node) bool {
	if !w.borrowsDevices(j) || t.GPU == 0 || len(t.Others) > 0 || !n.up || n.cordoned || n.MaxPods > 0 || w.suits(j, t, n) != nil {
		return false
	}
	cpu, mem, open := w.loans(n)
	open &^= n.bad
	free, part := open, [64]core.Milli{}
	for _, g := range w.guestsAt(n.Name) {
		free &^= g.at.GPUs
		for d := range part {
			if g.at.GPUs>>d&1 == 1 {
				part[d] += g.at.GPU
			}
		}
	}
	if !cpu.fits(t.CPUMilli) || !mem.fits(t.MemMiB) {
		return false
	}
	if t.GPU >= core.WholeGPU {
		return bits.OnesCount64(free) >= int(t.GPU/cluster.WholeGPU) && fromSets(t, n, free, 1) > 0
	}
	for d := range part {
		if open>>d&1 == 1 && part[d]+t.GPU <= core.WholeGPU {
			return true
		}
	}
	return false
}
