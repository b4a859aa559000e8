package coretest

import (
	"cmp"
	"fmt"
	"math/bits"

	"github.com/muster-sched/muster/core"
)

// Settled reports whether no pod is leaving its node, so that the engine keeps no place for
// any job.
func (w *Twin) Settled() bool {
	for _, j := range w.jobs {
		for i := range j.pods {
			if p := &j.pods[i]; p.state == leaving || p.image && j.suspended.over || p.to != nil && p.room {
				return false
			}
		}
	}
	return true
}

// Startable says how the waiting job could start now, by looking at every node; "" if it
// cannot. For a gang it tries all places of its pods, and gives up after some steps.
func (w *Twin) Startable(name string) string {
	j := w.jobs[name]
	if j.suspended != nil {
		return w.atHome(j)
	}
	if j.running() == 0 {
		j.startsOver()
	}
	if j.Gang && !j.whole() {
		return w.gangFits(j)
	}
	for i := range j.pods {
		if j.pods[i].state != waiting || w.startsLater(j, j.pods[i].task) {
			continue
		}
		if at := w.podFits(j, i); at != "" {
			return fmt.Sprintf("pod %d fits on node %s", i, at)
		}
	}
	return ""
}

// podFits returns a node on which the pod could start.
func (w *Twin) podFits(j *job, i int) string {
	t := &j.Tasks[j.pods[i].task]
	for _, n := range w.nodes {
		if base := w.base(j); base != "" && anyModel(t) && n.Model != base || w.unheld(j, n.Name) != nil {
			continue
		}
		if !w.lentSlot(j, t, n) && w.slots(j, t, n) == 0 || !w.allowsJob(j, t, n.Model) {
			continue
		}
		p := &j.pods[i]
		old := *p
		at := core.Placement{Pod: i, Node: n.Name}
		p.state, p.at = running, at
		err := cmp.Or(w.near(j, &at, []core.Placement{at}, false), w.together(j), w.combined(j))
		*p = old
		if err == nil {
			return n.Name
		}
	}
	return ""
}

// reserved returns the cores that a pod of a task must leave on the node for its idle GPUs: none,
// unless its job has no GPUs and the pod takes cores.
func (w *Twin) reserved(j *job, t *core.Task, n *node, u *use) int64 {
	if n.GPUs == 0 || t.CPUMilli == 0 || j.GPUs() > 0 {
		return 0
	}
	idle := int64(0)
	for g := range n.GPUs {
		if u.gpu[g] == 0 && n.bad>>g&1 == 0 {
			idle++
		}
	}
	return n.CPUMilli / int64(n.GPUs) * idle / 1000 * w.policy.CPUOnly.Reserve
}

// slots returns how many pods of a task the node could take now.
func (w *Twin) slots(j *job, t *core.Task, n *node) int {
	if !n.up || n.cordoned || t.GPU > 0 && n.GPUs == 0 || w.suits(j, t, n) != nil || w.unheld(j, n.Name) != nil {
		return 0
	}
	u := w.use(n)
	u.cpu += w.reserved(j, t, n, &u)
	if u.keepsOff(n, t) {
		return 0
	}
	if u.cpu > n.CPUMilli || u.mem > n.MemMiB {
		return 0 // it has become smaller than its pods
	}
	k := 1 << 20
	if n.MaxPods > 0 {
		k = n.MaxPods - u.pods
		for range w.lenders(n.Name) {
			return 0 // some pods may be kept for what is lent
		}
	}
	switch {
	case t.GPU >= core.WholeGPU:
		idle := uint64(0)
		for g := range n.GPUs {
			if u.gpu[g] == 0 && n.bad>>g&1 == 0 {
				idle |= 1 << g
			}
		}
		k = fromSets(t, n, idle, min(k, bits.OnesCount64(idle)/int(t.GPU/core.WholeGPU)))
	case t.GPU > 0:
		parts := 0
		for g := range n.GPUs {
			if n.bad>>g&1 == 0 {
				parts += int((core.WholeGPU - u.gpu[g]) / t.GPU)
			}
		}
		k = min(k, parts)
	}
	if t.CPUMilli > 0 {
		k = min(k, int((n.CPUMilli-u.cpu)/t.CPUMilli))
	}
	if t.MemMiB > 0 {
		k = min(k, int((n.MemMiB-u.mem)/t.MemMiB))
	}
	for _, a := range t.Others {
		if a.Value > 0 {
			k = min(k, int((n.other(a.Name)-u.others[a.Name])/a.Value))
		}
	}
	return max(k, 0)
}
