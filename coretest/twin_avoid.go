package coretest

import (
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core"
)

// Which of the nodes on which a job failed it avoids: all, but the oldest while the others would not hold it if they were empty.

// avoid notes that a job avoids a node.
func (f *failed) avoid(node string, until core.Time) {
	if f.avoids[node] == 0 {
		f.since = append(f.since, node)
	}
	f.avoids[node] = until
}

// ends notes that a job no longer avoids a node.
func (f *failed) ends(node string) {
	delete(f.avoids, node)
	f.since = slices.DeleteFunc(f.since, func(n string) bool { return n == node })
}

// notAvoided reports whether the job may start on a node that it would avoid.
func (w *Twin) notAvoided(j *job, f *failed, node string) bool {
	closed := slices.Clone(f.since)
	for {
		if w.emptyHolds(j, closed) {
			return !slices.Contains(closed, node)
		}
		if len(closed) == 0 {
			return false // not even without avoiding any
		}
		oldest := 0
		for k, name := range closed {
			if f.avoids[name] < f.avoids[closed[oldest]] {
				oldest = k
			}
		}
		closed = slices.Delete(closed, oldest, oldest+1)
	}
}

// emptyHolds reports whether the nodes that take pods, but for some, would hold the job if they were empty, each task by itself, and the GPUs of
// all tasks of a gang together: for a gang in one domain and on one model, if it must.
func (w *Twin) emptyHolds(j *job, but []string) bool {
	var in []*node
	for _, n := range w.nodes {
		if n.up && !n.cordoned && !slices.Contains(but, n.Name) {
			in = append(in, n)
		}
	}
	if j.Topology.Required != "" {
		in = slices.DeleteFunc(in, func(n *node) bool { _, ok := w.domain(n, j.Topology.Required); return !ok })
	}
	if !j.Gang {
		for t := range j.Tasks {
			if j.Tasks[t].Pods > 0 && !slices.ContainsFunc(in, func(n *node) bool { return w.emptySlots(j, &j.Tasks[t], n) > 0 }) {
				return false
			}
		}
		return true
	}
	if w.togetherHold(j, nil, "") {
		return true // it needs nothing
	}
	for _, one := range in {
		var there []*node
		for _, n := range in {
			if j.Topology.Required != "" {
				a, _ := w.domain(one, j.Topology.Required)
				if b, _ := w.domain(n, j.Topology.Required); a != b {
					continue
				}
			}
			there = append(there, n)
		}
		if w.togetherHold(j, there, one.Model) {
			return true
		}
	}
	return false
}

// togetherHold reports whether nodes hold the minimum of a gang by count, with the pods that need GPUs and name no model on one model.
func (w *Twin) togetherHold(j *job, nodes []*node, model string) bool {
	has, needs := 0, core.Milli(0)
	useful := make([]bool, len(nodes))
	for t := range j.Tasks {
		task := &j.Tasks[t]
		slots := 0
		for k, n := range nodes {
			if anyModel(task) && n.Model != model || minimum(task) == 0 {
				continue
			}
			s := w.emptySlots(j, task, n)
			slots += s
			useful[k] = useful[k] || s > 0 && task.GPU > 0
		}
		if slots < minimum(task) {
			return false
		}
		needs += core.Milli(minimum(task)) * task.GPU
	}
	for k, n := range nodes {
		if useful[k] {
			has += n.GPUs - bits.OnesCount64(n.bad)
		}
	}
	return needs <= core.Milli(has)*core.WholeGPU
}

// emptySlots returns how many pods of a task the node would hold if it were empty.
func (w *Twin) emptySlots(j *job, t *core.Task, n *node) int {
	if t.GPU > 0 && n.GPUs == 0 || w.suits(j, t, n) != nil {
		return 0
	}
	k, gpus := 1<<20, n.GPUs-bits.OnesCount64(n.bad)
	if n.MaxPods > 0 {
		k = n.MaxPods
	}
	switch {
	case t.GPU >= core.WholeGPU:
		k = fromSets(t, n, (1<<n.GPUs-1)&^n.bad, min(k, gpus/int(t.GPU/core.WholeGPU)))
	case t.GPU > 0:
		k = min(k, gpus*int(core.WholeGPU/t.GPU))
	}
	if t.CPUMilli > 0 {
		k = min(k, int(n.CPUMilli/t.CPUMilli))
	}
	if t.MemMiB > 0 {
		k = min(k, int(n.MemMiB/t.MemMiB))
	}
	for _, a := range t.Others {
		if a.Value > 0 {
			k = min(k, int(n.other(a.Name)/a.Value))
		}
	}
	return max(k, 0)
}
