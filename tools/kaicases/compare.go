package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

type verdict string

const (
	exact      verdict = "exact"
	equivalent verdict = "equivalent"
	better     verdict = "better"
	differs    verdict = "differs"
	outside    verdict = "outside"
)

// outcome is what runs in the end of one group of pods.
type outcome struct {
	*group
	job   *job
	nodes []string
	// evicted is how many of the pods that ran at first do not run.
	evicted int
}

// compare says how what muster decided compares with what the case expects, and which jobs differ.
func (c *converted) compare(a *answer) (verdict, []string) {
	at := map[string]string{} // the node of each running pod
	for _, j := range c.Jobs {
		for _, g := range j.Tasks {
			for _, r := range g.Running {
				at[r.Pod] = r.Node
			}
		}
	}
	last := 0
	for i, r := range a.Rounds {
		for _, d := range r.Decisions {
			last = i + 1
			if d.Op == "evict" {
				delete(at, d.Pod)
			} else {
				at[d.Pod] = d.Node
			}
		}
	}
	all := c.outcomes(at)
	why := explain(all)
	if last > 0 && last >= len(a.Rounds)-1 {
		return differs, append(why, "it does not come to rest")
	}
	switch {
	case len(why) == 0:
		return exact, nil
	case sameCounts(all, func(o *outcome) string { return o.job.Name + "/" + o.Name }), sameCounts(all, kind):
		return equivalent, why
	case c.better(all):
		return better, why
	}
	return differs, why
}

// outcomes returns what runs of each group of which the case says what it expects.
func (c *converted) outcomes(at map[string]string) []outcome {
	var all []outcome
	for i := range c.Jobs {
		j, next := &c.Jobs[i], 0
		for _, g := range j.Tasks {
			o := outcome{group: g, job: j}
			for k := range g.Pods {
				if n, ok := at[fmt.Sprintf("%s-%d", j.Name, next+k)]; ok {
					o.nodes = append(o.nodes, n)
				}
			}
			next += g.Pods
			o.evicted = max(0, len(g.Running)-len(o.nodes))
			if g.said {
				all = append(all, o)
			}
		}
	}
	return all
}

// explain returns a line for each group that is not as expected.
func explain(all []outcome) []string {
	var why []string
	for _, o := range all {
		left := slices.Clone(o.nodes)
		ok := len(left) == o.want
		for _, n := range o.group.nodes {
			if i := slices.Index(left, n); i >= 0 {
				left = slices.Delete(left, i, i+1)
			} else {
				ok = false
			}
		}
		if !ok {
			why = append(why, fmt.Sprintf("%s of %s (%d x %d mGPU, priority %d): expected %d on [%s], found %d on [%s]", strings.Trim(o.job.Name+" "+o.Name, " "),
				o.job.Queue, o.Pods, o.GPUMilli, o.job.Priority, o.want, strings.Join(o.group.nodes, " "), len(o.nodes), strings.Join(o.nodes, " ")))
		}
	}
	return why
}

// kind names what two jobs have in common that are the same but for name and age.
func kind(o *outcome) string {
	return fmt.Sprint(o.job.Queue, o.job.Priority, o.job.Preemptible, o.job.Topology, o.Pods, o.MinPods, o.GPUMilli, o.CPUMilli, o.MemMiB,
		o.MatchExpressions, o.Labels, o.Affinity)
}

// sameCounts reports whether as many pods run as expected of each kind.
func sameCounts(all []outcome, kind func(*outcome) string) bool {
	diff := map[string]int{}
	for i := range all {
		diff[kind(&all[i])] += len(all[i].nodes) - all[i].want
	}
	for n := range maps.Values(diff) {
		if n != 0 {
			return false
		}
	}
	return true
}

// better reports whether all that is expected runs and more, or more GPUs are in use and no promise is broken.
func (c *converted) better(all []outcome) bool {
	more, whole := false, true
	used, wanted := map[string]float64{}, map[string]float64{}
	sum := 0.0
	for _, o := range all {
		if n := len(o.nodes); n != o.want && n > 0 && n < cmp.Or(o.MinPods, o.Pods) {
			return false // a gang without some of its pods
		}
		whole = whole && len(o.nodes) >= o.want
		more = more || len(o.nodes) > o.want
		used[o.job.Queue] += float64(o.GPUMilli) / 1000 * float64(len(o.nodes))
		wanted[o.job.Queue] += float64(o.GPUMilli) / 1000 * float64(o.want)
		sum += float64(o.GPUMilli) / 1000 * float64(len(o.nodes)-o.want)
		if o.evicted > 0 && !o.job.Preemptible {
			return false
		}
	}
	if whole {
		return more
	}
	for q, n := range wanted {
		owns := c.deserved[q]
		if owns < 0 {
			owns = n
		}
		if used[q] < min(owns, n) {
			return false
		}
	}
	return sum > 1e-6
}
