package coretest

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
)

// likes returns what a node is worth to a pod of a task by what it prefers, with the other pods where they are.
func (w *Twin) likes(t *core.Task, n *node) int64 {
	score := int64(0)
	for _, x := range n.Taints {
		if x.Soft() && !tolerates(t, x) {
			score -= 100
		}
	}
	for _, o := range t.Prefers {
		if o.Label == "" {
			if selects(o.Selector, n.Labels) {
				score += int64(o.Weight)
			}
			continue
		}
		here, ok := w.domain(n, o.Level)
		if !ok {
			continue
		}
		hosted := int64(0)
		for _, j := range w.jobs {
			for i := range j.pods {
				for at := range j.pods[i].places() {
					if d, ok := w.domain(w.node(at.Node), o.Level); ok && d == here && j.labelled(&j.pods[i], o.Label) {
						hosted++
					}
				}
			}
		}
		score += int64(o.Weight) * min(hosted, 1000)
	}
	return score
}

func tolerates(t *core.Task, x core.Taint) bool {
	return slices.ContainsFunc(t.Tolerations, func(o core.Toleration) bool {
		return (o.Key == "" || o.Key == x.Key) && (o.Value == "" || o.Value == x.Value)
	})
}

// prefers reports whether nodes differ for pods of the task by what those prefer.
func (w *Twin) prefers(t *core.Task) bool {
	return len(t.Prefers) > 0 || slices.ContainsFunc(w.nodes, func(n *node) bool {
		return slices.ContainsFunc(n.Taints, func(x core.Taint) bool { return x.Soft() && !tolerates(t, x) })
	})
}

// sameDomain reports whether two nodes are in the same domain of each level that is named.
func (w *Twin) sameDomain(a, b *node, levels ...string) bool {
	return !slices.ContainsFunc(levels, func(level string) bool {
		of, _ := w.domain(a, level)
		is, _ := w.domain(b, level)
		return level != "" && of != is
	})
}

// preferred checks that no node that is as good as that of a pod which starts is preferred to it: of one pod by itself under
// the strategies that count idle GPUs alone, and of pods of a gang of one task those that were empty and are alike.
func (w *Twin) preferred(j *job, d *core.Decision) error {
	strategy := w.strategy(j)
	lends := slices.ContainsFunc(w.nodes, func(n *node) bool { return w.lent(n.Name) != 0 })
	if kept(d) || len(j.Tasks) > 1 || !w.prefers(&j.Tasks[0]) || !w.Settled() || lends || w.leftPlaces(j) || w.policy.Zone != (core.Zone{}) {
		return nil
	}
	if len(d.Pods) > 1 {
		if !j.Gang || strategy == place.Spot {
			return nil
		}
		return w.preferredByGang(j, d)
	}
	if strategy != place.Binpack && strategy != place.EBinpack && strategy != place.Consolidate {
		return nil
	}
	t := &j.Tasks[0]
	if t.GPU > 0 && t.GPU < core.WholeGPU {
		return nil
	}
	// The pod waits again while other nodes are looked at.
	i := d.Pods[0].Pod
	p, chosen := &j.pods[i], w.node(d.Pods[0].Node)
	old := *p
	p.state = waiting
	defer func() { *p = old }()
	trade := func(n *node) int64 {
		return int64(w.idle(n))*1000*100 - int64(w.policy.PreferenceWeight)*w.likes(t, n)
	}
	best := map[string]int64{} // by model: the highest score of a node with room
	for _, n := range w.nodes {
		if w.slots(j, t, n) == 0 || !w.allowsJob(j, t, n.Model) {
			continue
		}
		if s, ok := best[n.Model]; !ok || w.likes(t, n) > s {
			best[n.Model] = w.likes(t, n)
		}
		if n == chosen || n.Model != chosen.Model || !w.podFitsOn(j, i, n) || j.Gang && !w.sameDomain(n, chosen, j.Topology.Required, j.Topology.Preferred) {
			continue // of a gang, also of one pod, the domain is chosen before the node
		}
		alike := w.hardTaints(n) == w.hardTaints(chosen) && (strategy != place.EBinpack || w.sameLeaf(n, chosen))
		switch a, b := trade(n), trade(chosen); {
		case a < b:
			return fmt.Errorf("pod %d is on %s with %d idle GPUs and score %d, and not on %s with %d and %d", i, chosen.Name, w.idle(chosen), w.likes(t, chosen), n.Name, w.idle(n), w.likes(t, n))
		case a == b && alike && w.likes(t, n) > w.likes(t, chosen):
			return fmt.Errorf("pod %d is on %s with score %d, %s is as good and has %d", i, chosen.Name, w.likes(t, chosen), n.Name, w.likes(t, n))
		}
	}
	if t.GPU == 0 || len(t.Models) > 0 || w.policy.Models != core.Fastest || w.base(j) != "" && j.running() > 0 || j.Topology.Required != "" || len(t.Affinity)+len(t.Labels) > 0 {
		return nil
	}
	for model, score := range best {
		if score > best[chosen.Model] {
			return fmt.Errorf("pod %d is on %s with score %d at best, %s has a node with %d", i, chosen.Model, best[chosen.Model], model, score)
		}
	}
	return nil
}

// preferredByGang checks that no node which is like that of a pod, was empty as that one was and stays so, is preferred.
func (w *Twin) preferredByGang(j *job, d *core.Decision) error {
	t := &j.Tasks[0]
	if len(t.Affinity)+len(t.Labels) > 0 || slices.ContainsFunc(t.Prefers, func(o core.Preference) bool { return o.Label != "" }) {
		return nil
	}
	var on []string // the nodes, one for each pod
	for k := range d.Pods {
		on = append(on, d.Pods[k].Node)
	}
	for k := range d.Pods {
		at := w.node(d.Pods[k].Node)
		mine := 0
		for _, name := range on {
			if name == at.Name {
				mine++
			}
		}
		if u := w.use(at); u.pods > mine {
			continue
		}
		for _, n := range w.nodes {
			if u := w.use(n); u.pods > 0 || !n.up || n.cordoned || n.bad != 0 || at.bad != 0 || w.suits(j, t, n) != nil || w.unheld(j, n.Name) != nil || !alikeButLabels(n, at) {
				continue
			}
			if w.likes(t, n) > w.likes(t, at) {
				return fmt.Errorf("pod %d is on %s with score %d, and none on %s, which is alike and has %d", d.Pods[k].Pod, at.Name, w.likes(t, at), n.Name, w.likes(t, n))
			}
		}
	}
	return nil
}

// alikeButLabels reports whether two nodes differ in their names and labels alone.
func alikeButLabels(a, b *node) bool {
	return a.Model == b.Model && a.GPUs == b.GPUs && a.CPUMilli == b.CPUMilli && a.MemMiB == b.MemMiB && a.MaxPods == b.MaxPods &&
		slices.Equal(a.Others, b.Others) && slices.Equal(a.Taints, b.Taints) && slices.Equal(a.Domains, b.Domains) && a.HBD == b.HBD && a.HBD == "" && !slices.Contains(a.Domains, "")
}

// leftPlaces reports whether pods of the job left places for others, to which they do not go back for a while.
func (w *Twin) leftPlaces(j *job) bool {
	return len(j.left) > 0 || slices.ContainsFunc(j.pods, func(p pod) bool { return p.left != nil })
}

// podFitsOn reports whether a waiting pod could be on the node, apart from quota.
func (w *Twin) podFitsOn(j *job, i int, n *node) bool {
	p := &j.pods[i]
	old := *p
	at := core.Placement{Pod: i, Node: n.Name}
	p.state, p.at = running, at
	defer func() { *p = old }()
	return w.unheld(j, n.Name) == nil && w.near(j, &at, []core.Placement{at}, false) == nil && w.together(j) == nil && w.combined(j) == nil
}

// idle returns how many healthy GPUs of a node no pod has.
func (w *Twin) idle(n *node) int {
	u, idle := w.use(n), 0
	for g := range n.GPUs {
		if u.gpu[g] == 0 && n.bad>>g&1 == 0 {
			idle++
		}
	}
	return idle
}

func (w *Twin) hardTaints(n *node) int {
	return len(slices.DeleteFunc(slices.Clone(n.Taints), func(x core.Taint) bool { return x.Soft() }))
}

// sameLeaf reports whether two nodes are known to be in one domain of the narrowest level.
func (w *Twin) sameLeaf(a, b *node) bool {
	if len(w.levels) == 0 {
		return false
	}
	x, ok := w.domain(a, w.levels[len(w.levels)-1])
	y, ok2 := w.domain(b, w.levels[len(w.levels)-1])
	return ok && ok2 && x == y
}

// strategy returns how the policy places pods of the job.
func (w *Twin) strategy(j *job) place.Strategy {
	if w.policy.CPUOnly.Strategy != nil && j.GPUs() == 0 {
		return *w.policy.CPUOnly.Strategy
	}
	return w.policy.Placement[j.Kind]
}
