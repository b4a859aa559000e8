package coretest

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core"
)

// Where pods may start, and where they may move.

// bind checks where pods start and notes it.
func (w *Twin) bind(j *job, d *core.Decision, now core.Time) error {
	if len(d.Pods) == 0 {
		return fmt.Errorf("no pods")
	}
	before := w.usages()
	scattered := w.together(j) != nil // nodes have changed their places
	asGang := j.Gang && !j.whole()
	first := !slices.ContainsFunc(j.pods, func(p pod) bool { return p.on() })
	if j.running() == 0 {
		j.started = now
		j.startsOver()
		j.protect()
	}
	for k := range d.Pods {
		at := d.Pods[k]
		if at.Pod < 0 || at.Pod >= len(j.pods) || j.pods[at.Pod].state != waiting {
			return fmt.Errorf("pod %d does not wait", at.Pod)
		}
		p := &j.pods[at.Pod]
		if err := w.unheld(j, at.Node); err != nil {
			return fmt.Errorf("pod %d on %s: %w", at.Pod, at.Node, err)
		}
		if err := w.mayRunOn(j, &j.Tasks[p.task], &at); err != nil {
			return fmt.Errorf("pod %d on %s: %w", at.Pod, at.Node, err)
		}
		if l := p.left; l != nil && l.at == at && w.holds(l) {
			return fmt.Errorf("pod %d is back on %s, which it left for %s, which has not started", at.Pod, at.Node, l.job.Name)
		}
		for _, l := range j.left {
			if l.at.Node == at.Node && w.holds(l) {
				return fmt.Errorf("pod %d is on %s, which its job left for %s, which has not started", at.Pod, at.Node, l.job.Name)
			}
		}
		p.state, p.at, p.started, p.left, p.forOwner = running, at, now, nil, false
		if w.guest(&at, p) != nil {
			if err := w.guestFits(j, p, now); err != nil {
				return fmt.Errorf("pod %d on %s: %w", at.Pod, at.Node, err)
			}
			continue
		}
		if err := w.notOverfull(w.node(at.Node), &j.Tasks[p.task]); err != nil {
			return fmt.Errorf("pod %d on %s: %w", at.Pod, at.Node, err)
		}
		if err := w.leavesReserve(j, d, &at); err != nil {
			return fmt.Errorf("pod %d on %s: %w", at.Pod, at.Node, err)
		}
	}
	if err := w.prefersLent(j, d, now); err != nil {
		return err
	}
	if err := w.bestModels(j, d, asGang); err != nil {
		return err
	}
	if err := w.combined(j); err != nil {
		return err
	}
	for k := range d.Pods {
		if err := w.near(j, &d.Pods[k], d.Pods, asGang); err != nil {
			return fmt.Errorf("pod %d on %s: %w", d.Pods[k].Pod, d.Pods[k].Node, err)
		}
	}
	if err := w.preferred(j, d); err != nil {
		return err
	}
	j.backfilled = d.Reason == core.Backfilled
	w.startedAgain(j.Name, now)
	planned := kept(d)
	if planned {
		j.nominated = false
		j.starts++
	}
	if !planned || j.quotaSet == w.quotaSet {
		if err := w.withinQuota(before); err != nil {
			return err
		}
		if err := w.withinBounds(j, d.Pods, first); err != nil {
			return err
		}
		if err := w.pinnedWithin(j, d.Pods, false); err != nil {
			return err
		}
		for _, at := range d.Pods {
			p := &j.pods[at.Pod]
			for _, x := range w.takes(j, &j.Tasks[p.task], w.node(at.Node).Model) {
				// What restarts elsewhere may have been found running where its queue has no quota.
				if !p.again && !w.lists(j.Queue, x.model) {
					return fmt.Errorf("queue %q may not use %s", j.Queue, x.model)
				}
				x.gpu = 0 // it runs already
				if err := w.isolatedWithin(x); err != nil {
					return err
				}
			}
		}
	}
	if j.Gang && !j.adopted {
		if !j.whole() {
			return fmt.Errorf("the gang is not whole")
		}
		for t, have := range j.members() {
			j.lacks[t] = min(j.lacks[t], max(0, minimum(&j.Tasks[t])-have))
		}
		if err := w.oneModel(j); err != nil {
			return err
		}
	}
	switch {
	case j.adopted:
		return nil
	case scattered:
		return w.joins(j, d.Pods)
	}
	return w.together(j)
}

// kept reports whether a pod starts in a place that was kept for it, since it was planned.
func kept(d *core.Decision) bool {
	switch d.Reason {
	case core.MadeRoom, core.Consolidation, core.Requested, core.Defragmentation:
		return true
	}
	return false
}

// leavesReserve checks that a pod that starts leaves the cores that are kept for idle GPUs. While
// pods leave, places may be kept for others, of which the twin does not know; and what others made
// room for was chosen earlier.
func (w *Twin) leavesReserve(j *job, d *core.Decision, at *core.Placement) error {
	if kept(d) && d.Reason != core.Consolidation || !w.Settled() {
		return nil
	}
	n := w.node(at.Node)
	u := w.use(n)
	if kept := w.reserved(j, &j.Tasks[j.pods[at.Pod].task], n, &u); kept > 0 && u.cpu+kept > n.CPUMilli {
		return fmt.Errorf("%d milli-cores are left, %d are kept for idle GPUs", n.CPUMilli-u.cpu, kept)
	}
	return nil
}

// holds reports whether the job for which a place was left still waits by the same plan.
func (w *Twin) holds(l *left) bool {
	return l.upsets == w.upsets && w.jobs[l.job.Name] == l.job && l.job.starts == l.starts
}

// oneModel checks that pods of a gang that need GPUs and name no model are on one.
func (w *Twin) oneModel(j *job) error {
	base := w.base(j)
	for i := range j.pods {
		if p := &j.pods[i]; p.state == running && anyModel(&j.Tasks[p.task]) && w.node(p.at.Node).Model != base {
			return fmt.Errorf("pod %d is on %s, another that names no model on %s", i, w.node(p.at.Node).Model, base)
		}
	}
	return nil
}

// base returns the model of the first running pod of a gang that needs GPUs and names no
// model; "" if there is none.
func (w *Twin) base(j *job) string {
	for i := range j.pods {
		if p := &j.pods[i]; j.Gang && p.state == running && anyModel(&j.Tasks[p.task]) {
			return w.node(p.at.Node).Model
		}
	}
	return ""
}

// anyModel reports whether pods of the task need GPUs of a model that they do not name.
func anyModel(t *core.Task) bool { return t.GPU > 0 && len(t.Models) == 0 }

// migrate checks that a pod may move where the decision says, and notes it.
func (w *Twin) migrate(j *job, d *core.Decision) error {
	if len(d.Pods) != 1 {
		return fmt.Errorf("%d pods", len(d.Pods))
	}
	to := d.Pods[0]
	switch {
	case j.Mobility != core.Replaceable || j.Locked || j.Foreign || j.disruptionProtected:
		return fmt.Errorf("it must not be moved")
	case to.Pod < 0 || to.Pod >= len(j.pods) || j.pods[to.Pod].state != running:
		return fmt.Errorf("pod %d does not run", to.Pod)
	}
	p := &j.pods[to.Pod]
	from, n := p.at, w.node(to.Node)
	switch {
	case p.to != nil:
		return fmt.Errorf("pod %d is being moved", to.Pod)
	case p.standby != nil:
		return fmt.Errorf("pod %d is on standby", to.Pod)
	case w.guest(&to, p) != nil:
		return fmt.Errorf("pod %d moves to lent GPUs", to.Pod)
	case to.Node == from.Node:
		return fmt.Errorf("pod %d is on %s already", to.Pod, to.Node)
	case to.GPUs != 0 && n.Model != w.node(from.Node).Model:
		return fmt.Errorf("pod %d comes from %s to %s", to.Pod, w.node(from.Node).Model, n.Model)
	}
	if err := w.mayRunOn(j, &j.Tasks[p.task], &to); err != nil {
		return fmt.Errorf("pod %d on %s: %w", to.Pod, to.Node, err)
	}
	if l := j.Topology.Required; l != "" {
		was, _ := w.domain(w.node(from.Node), l)
		if is, ok := w.domain(n, l); !ok || is != was {
			return fmt.Errorf("pod %d leaves %s %q for %q", to.Pod, l, was, is)
		}
	}
	for _, l := range j.left {
		if l.at.Node == to.Node && w.holds(l) {
			return fmt.Errorf("pod %d moves to %s, which its job left for %s, which has not started", to.Pod, to.Node, l.job.Name)
		}
	}
	// What it must be near to and apart from, as if it had moved; room, as it has both.
	p.at = to
	err := w.near(j, &to, []core.Placement{to}, false)
	p.at, p.to = from, &to
	if err == nil {
		err = w.notOverfull(n, &j.Tasks[p.task])
	}
	if err != nil {
		return fmt.Errorf("pod %d on %s: %w", to.Pod, to.Node, err)
	}
	return nil
}
