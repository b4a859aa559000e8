package coretest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// What pods require of the nodes and pods around them: topology, affinity and spreading.

// domain names the domain of a node at a level; false when it is not known.
func (w *Twin) domain(n *node, level string) (string, bool) {
	switch level {
	case "node":
		return n.Name, true
	case "hbd":
		return n.HBD, n.HBD != ""
	}
	if key, ok := strings.CutPrefix(level, cluster.LabelLevel); ok {
		v, has := n.Labels[key]
		return v, has
	}
	path := ""
	for i, l := range w.levels {
		if i >= len(n.Domains) || n.Domains[i] == "" {
			return "", false
		}
		path += "/" + n.Domains[i]
		if l == level {
			return path, true
		}
	}
	return "", false
}

// together checks that a job lies within the domain that it requires.
func (w *Twin) together(j *job) error {
	if j.Topology.Required == "" {
		return nil
	}
	in := ""
	for i := range j.pods {
		if p := &j.pods[i]; p.on() {
			d, ok := w.domain(w.node(p.at.Node), j.Topology.Required)
			if !ok || in != "" && d != in {
				return fmt.Errorf("pods in %s %q and %q", j.Topology.Required, in, d)
			}
			in = d
		}
	}
	return nil
}

// joins checks that pods which start are in the domain of one that runs.
func (w *Twin) joins(j *job, start []core.Placement) error {
	for _, at := range start {
		in, _ := w.domain(w.node(at.Node), j.Topology.Required)
		if !slices.ContainsFunc(j.pods, func(p pod) bool {
			if !p.on() || slices.ContainsFunc(start, func(x core.Placement) bool { return x.Pod == p.at.Pod }) {
				return false
			}
			d, ok := w.domain(w.node(p.at.Node), j.Topology.Required)
			return ok && d == in
		}) {
			return fmt.Errorf("pod %d joins no pod in %s %q", at.Pod, j.Topology.Required, in)
		}
	}
	return nil
}

// near checks the affinities of a pod that starts together with others, as a gang or
// one by one: then those of other tasks may have come later.
func (w *Twin) near(j *job, at *core.Placement, with []core.Placement, asGang bool) error {
	task := &j.Tasks[j.pods[at.Pod].task]
	if other := w.keptOff(w.node(at.Node), task.Labels, &j.pods[at.Pod], func(o *job, i int) bool {
		return asGang || o != j || !slices.ContainsFunc(with, func(x core.Placement) bool { return x.Pod == i })
	}); other != "" {
		return fmt.Errorf("%s must be apart from it", other)
	}
	for _, t := range task.Affinity {
		own := slices.Contains(task.Labels, t.Label)
		here, ok := w.domain(w.node(at.Node), t.Level)
		if !ok && t.Anti {
			continue // it is in no domain with another pod
		}
		if !ok {
			return fmt.Errorf("its %s is not known", t.Level)
		}
		if t.MaxSkew > 0 {
			if err := w.spread(j, at.Pod, &t, here, with); err != nil {
				return err
			}
			continue
		}
		inDomain, leaning, elsewhere := 0, 0, 0
		for _, o := range w.jobs {
			for i := range o.pods {
				p := &o.pods[i]
				together := o == j && slices.ContainsFunc(with, func(x core.Placement) bool { return x.Pod == i })
				if !o.labelled(p, t.Label) || o == j && i == at.Pod || t.Anti && together && !asGang && p.task != j.pods[at.Pod].task {
					continue
				}
				for is := range p.places() {
					// A pod on its way is at neither place to be near to.
					if d, ok := w.domain(w.node(is.Node), t.Level); ok && d == here && (t.Anti || p.to == nil) {
						inDomain++
						if together && own && slices.Contains(o.Tasks[p.task].Affinity, t) && slices.Contains(o.Tasks[p.task].Labels, t.Label) {
							leaning++
						}
					} else if !together {
						elsewhere++
					}
				}
			}
		}
		if t.Anti && inDomain > 0 {
			return fmt.Errorf("%d pods labelled %s in its %s", inDomain, t.Label, t.Level)
		}
		// Pods that start together and must all be near the same label do not hold each other in a domain where
		// the first of them could not start.
		if !t.Anti && inDomain > 0 && inDomain == leaning && elsewhere > 0 && w.Settled() {
			return fmt.Errorf("the pods labelled %s in its %s are those that start with it, and there are others elsewhere", t.Label, t.Level)
		}
		// Pods for which places are kept count, too; the twin cannot know which ones while
		// their victims are leaving.
		if !t.Anti && inDomain == 0 && !(own && elsewhere == 0) && w.Settled() {
			return fmt.Errorf("no pod labelled %s in its %s", t.Label, t.Level)
		}
	}
	return nil
}

// keptOff names a pod, of those that count, which keeps others with some of the labels off a
// node; "" if none does. A pod does not keep itself off.
func (w *Twin) keptOff(n *node, labels []string, but *pod, counts func(*job, int) bool) string {
	for _, o := range w.jobs {
		for i := range o.pods {
			p := &o.pods[i]
			if p == but || !counts(o, i) {
				continue
			}
			for _, t := range o.Tasks[p.task].Affinity {
				for at := range p.places() {
					there, _ := w.domain(w.node(at.Node), t.Level)
					if here, ok := w.domain(n, t.Level); ok && here == there && t.Anti && slices.Contains(labels, t.Label) {
						return fmt.Sprintf("pod %d of %s", i, o.Name)
					}
				}
			}
		}
	}
	return ""
}

// labelled reports whether a pod of the job has a label.
func (j *job) labelled(p *pod, label string) bool {
	return slices.Contains(j.Tasks[p.task].Labels, label)
}

// asSpread returns a task as a spread asks whether a node counts: with tolerations of all its taints, or without selectors and
// models, if these do not matter.
func asSpread(task *core.Task, t *core.Term) *core.Task {
	as := *task
	if t.AnyTaint {
		as.Tolerations = []core.Toleration{{}}
	}
	if t.AnyLabel {
		as.Selector, as.AnyOf, as.Models = nil, nil, nil
	}
	return &as
}

// spread checks the skew of a pod that starts in a domain, together with others:
// those of other tasks, which other domains may be open to, may have come later.
func (w *Twin) spread(j *job, pod int, t *core.Term, here string, with []core.Placement) error {
	if !w.Settled() {
		return nil // settled places count too, and the twin does not know them
	}
	hosts := map[string]int{}
	task := &j.Tasks[j.pods[pod].task]
	for _, n := range w.nodes {
		if d, ok := w.domain(n, t.Level); ok && n.up && !(task.GPU > 0 && n.GPUs == 0) && w.suits(j, asSpread(task, t), n) == nil {
			hosts[d] = 0
		}
	}
	moving := map[string]int{}
	for _, o := range w.jobs {
		for i := range o.pods {
			p := &o.pods[i]
			for at := range p.places() {
				d, ok := w.domain(w.node(at.Node), t.Level)
				if _, eligible := hosts[d]; ok && eligible && o.labelled(p, t.Label) {
					hosts[d]++
					if p.to != nil {
						moving[d]++
					}
				}
			}
		}
	}
	fewest := hosts[here]
	for d, k := range hosts {
		if d != here { // the domain itself cannot have more than it has
			fewest = min(fewest, k-moving[d]) // one of their two places will be free
		}
	}
	if len(hosts) < t.MinDomains {
		fewest = 0
	}
	for _, x := range with {
		if d, _ := w.domain(w.node(x.Node), t.Level); d == here && j.pods[x.Pod].task != j.pods[pod].task && j.labelled(&j.pods[x.Pod], t.Label) {
			hosts[here]--
		}
	}
	if hosts[here]-fewest > t.MaxSkew {
		return fmt.Errorf("%s %s has %d pods labelled %s, another %d", t.Level, here, hosts[here], t.Label, fewest)
	}
	return nil
}
