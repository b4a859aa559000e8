package coretest

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
)

// Whether a gang could start, found by trying all places of its pods: by the rules of the
// engine, and without its ways of searching.

// maxTries is how many places of a pod are tried for one gang, if the twin is not told another number.
const maxTries = 1000

// Searches counts the searches for a place of a gang that waits: those that found none or one, those that were
// given up after too many tries, and of the first those of gangs with pods of several tasks to place, affinities, and a
// choice of GPU models under quotas.
type Searches struct{ Ended, GivenUp, Hard int }

func (s *Searches) add(o Searches) {
	s.Ended, s.GivenUp, s.Hard = s.Ended+o.Ended, s.GivenUp+o.GivenUp, s.Hard+o.Hard
}

// searched counts a search that has ended.
func (x *trial) searched(models int) {
	w := x.w
	if x.tries >= w.tries() {
		w.Searches.GivenUp++
		return
	}
	w.Searches.Ended++
	tasks, terms := 0, false
	for t, pods := range x.pods {
		if len(pods) > 0 {
			tasks++
			terms = terms || len(x.j.Tasks[t].Affinity) > 0
		}
	}
	if tasks > 1 && terms && models > 1 && w.limited() {
		w.Searches.Hard++
	}
}

func (w *Twin) tries() int { return cmp.Or(w.Tries, maxTries) }

// trial is a gang that is placed pod by pod, in the twin itself; what it placed is taken
// back.
type trial struct {
	w      *Twin
	j      *job
	base   string  // the model of pods that name none and need GPUs
	home   string  // the domain of the required level, "" when it is open
	pods   [][]int // to be placed, by task
	placed []core.Placement
	before usages
	tries  int
}

// gangFits says where the gang could start; "" if it could not, or if that is not known.
func (w *Twin) gangFits(j *job) string {
	if j.Alternatives && w.policy.Goodput.Round > 0 || w.Settled() && !w.complete(j) {
		return ""
	}
	x := trial{w: w, j: j, pods: make([][]int, len(j.Tasks)), before: w.usages()}
	bound, gpu := false, core.Milli(0)
	for t, have := range j.members() {
		for i := range j.pods {
			if p := &j.pods[i]; p.task == t && p.state == waiting && have+len(x.pods[t]) < minimum(&j.Tasks[t]) {
				x.pods[t] = append(x.pods[t], i)
				gpu += j.Tasks[t].GPU
			}
		}
		bound = bound || len(x.pods[t]) > 0 && anyModel(&j.Tasks[t])
	}
	if !x.countsSuffice() || !w.boundsAllow(j, gpu) {
		return ""
	}
	for i := range j.pods {
		if p := &j.pods[i]; p.state == running && j.Topology.Required != "" && x.home == "" {
			x.home, _ = w.domain(w.node(p.at.Node), j.Topology.Required)
		}
	}
	var models []string // of nodes with GPUs
	for _, n := range w.nodes {
		if n.GPUs > 0 && !slices.Contains(models, n.Model) {
			models = append(models, n.Model)
		}
	}
	bases := []string{w.base(j)}
	if bases[0] == "" && bound {
		bases = models
	}
	for _, x.base = range bases {
		if x.anyOrder(nil) || x.interleaved() {
			var where []string
			for _, at := range x.placed {
				where = append(where, fmt.Sprintf("%d on %s[%b]", at.Pod, at.Node, at.GPUs))
				j.pods[at.Pod].state = waiting
			}
			x.searched(len(models))
			return "its pods fit: " + strings.Join(where, " ")
		}
	}
	x.searched(len(models))
	return ""
}

// complete reports whether the gang has as many pods as it starts with, and none that
// leaves.
func (w *Twin) complete(j *job) bool {
	have := j.members()
	for i := range j.pods {
		switch p := &j.pods[i]; p.state {
		case waiting:
			have[p.task]++
		case leaving:
			return false
		}
	}
	for t := range have {
		if have[t] < minimum(&j.Tasks[t]) {
			return false
		}
	}
	return true
}

// countsSuffice reports whether each task by itself finds room, by count.
func (x *trial) countsSuffice() bool {
	for t := range x.pods {
		room := 0
		for _, n := range x.w.nodes {
			room += x.w.slots(x.j, &x.j.Tasks[t], n)
		}
		if room < len(x.pods[t]) {
			return false
		}
	}
	return true
}

// anyOrder places the tasks that are not in the order yet after those that are.
func (x *trial) anyOrder(order []int) bool {
	if len(order) == len(x.pods) {
		return x.place(order, 0, 0)
	}
	terms := slices.ContainsFunc(x.j.Tasks, func(t core.Task) bool { return len(t.Affinity) > 0 })
	for t := range x.pods {
		if slices.Contains(order, t) {
			continue
		}
		if x.anyOrder(append(slices.Clone(order), t)) {
			return true
		}
		if !terms {
			break // any order will do
		}
	}
	return false
}

// place places the k-th and later pods of the first task of the order, on nodes from
// the n-th on, and then the other tasks. It reports whether all are where they may be.
func (x *trial) place(order []int, k, n int) bool {
	if len(order) == 0 {
		return x.holds()
	}
	w := x.w
	t := order[0]
	if k == len(x.pods[t]) {
		return x.even(t) && x.place(order[1:], 0, 0)
	}
	for ; n < len(w.nodes) && x.tries < w.tries(); n++ {
		if x.on(t, k, w.nodes[n], func() bool { return x.place(order, k+1, n) }) {
			return true
		}
	}
	return false
}

// on places the k-th pod of a task on a node, and reports whether the rest can be placed then, on any choice of devices.
// Otherwise it takes the pod back.
func (x *trial) on(t, k int, node *node, rest func() bool) bool {
	w, j := x.w, x.j
	p := &j.pods[x.pods[t][k]]
	if w.slots(j, &j.Tasks[t], node) == 0 || anyModel(&j.Tasks[t]) && node.Model != x.base {
		return false
	}
	if d, ok := w.domain(node, j.Topology.Required); j.Topology.Required != "" && (!ok || x.home != "" && d != x.home) {
		return false
	}
	for _, gpus := range w.choices(j, node, &j.Tasks[t]) {
		x.tries++
		p.state, p.at = running, core.Placement{Pod: x.pods[t][k], Node: node.Name, GPUs: gpus, GPU: min(j.Tasks[t].GPU, core.WholeGPU),
			CPUMilli: j.Tasks[t].CPUMilli, MemMiB: j.Tasks[t].MemMiB}
		x.placed = append(x.placed, p.at)
		if x.mayStay(p, node) && rest() {
			return true
		}
		x.placed = x.placed[:len(x.placed)-1]
		p.state = waiting
	}
	return false
}

// interleaved places the pods in any order, those of one task between those of others: a pod that must be near one of
// another task may come after it, and before the next of that task. Where no term of a task is about pods of others but to be
// apart from them, the order of tasks is as good as any.
func (x *trial) interleaved() bool {
	mates := false
	for t := range x.j.Tasks {
		for _, term := range x.j.Tasks[t].Affinity {
			for o := range x.j.Tasks {
				mates = mates || !term.Anti && o != t && len(x.pods[t]) > 0 && len(x.pods[o]) > 0 && slices.Contains(x.j.Tasks[o].Labels, term.Label)
			}
		}
	}
	return mates && x.weave(make([]int, len(x.pods)), map[string]bool{})
}

// weave places the pods after the first of each task. What is placed, in whatever order, decides what can follow: seen has
// what nothing could follow.
func (x *trial) weave(first []int, seen map[string]bool) bool {
	var where []string
	for _, at := range x.placed {
		where = append(where, fmt.Sprintf("%d %s %b", x.j.pods[at.Pod].task, at.Node, at.GPUs))
	}
	slices.Sort(where)
	if key := strings.Join(where, ","); seen[key] {
		return false
	} else {
		seen[key] = true
	}
	left := false
	for t, k := range first {
		if k == len(x.pods[t]) {
			continue
		}
		left = true
		for n := 0; n < len(x.w.nodes) && x.tries < x.w.tries(); n++ {
			first[t]++
			if x.on(t, k, x.w.nodes[n], func() bool { return (k+1 < len(x.pods[t]) || x.even(t)) && x.weave(first, seen) }) {
				return true
			}
			first[t]--
		}
	}
	return !left && x.holds()
}

// choices returns the devices on which a pod may make a difference: whole ones only where pods of the job name sets of them.
func (w *Twin) choices(j *job, n *node, t *core.Task) []uint64 {
	if t.GPU == 0 {
		return []uint64{0}
	}
	u := w.use(n)
	if t.GPU >= core.WholeGPU && slices.ContainsFunc(j.Tasks, func(t core.Task) bool { return len(t.From) > 0 }) {
		var out []uint64
		for gpus := range uint64(1) << n.GPUs {
			idle := bits.OnesCount64(gpus) == int(t.GPU/core.WholeGPU) && fromSets(t, n, gpus, 1) == 1
			for g := range n.GPUs {
				idle = idle && (gpus>>g&1 == 0 || u.gpu[g] == 0 && n.bad>>g&1 == 0)
			}
			if idle {
				out = append(out, gpus)
			}
		}
		return out
	}
	var out []uint64
	idle, seen := uint64(0), map[core.Milli]bool{}
	for g := range n.GPUs {
		free := core.WholeGPU - u.gpu[g]
		switch {
		case n.bad>>g&1 == 1 || free < min(t.GPU, core.WholeGPU):
		case t.GPU >= core.WholeGPU:
			if bits.OnesCount64(idle) < int(t.GPU/core.WholeGPU) {
				idle |= 1 << g
			}
		case !seen[free]:
			seen[free] = true
			out = append(out, 1<<g)
		}
	}
	if idle != 0 {
		out = append(out, idle)
	}
	return out
}

// mayStay checks what must hold as soon as a pod is placed: the domain, the quota, and that the
// pods that it must be near to are there already and those that it keeps off are not.
func (x *trial) mayStay(p *pod, n *node) bool {
	w, j := x.w, x.j
	if x.home == "" && w.together(j) != nil {
		return false
	}
	if w.limited() && len(w.takes(j, &j.Tasks[p.task], n.Model)) > 0 && !x.affords() {
		return false
	}
	task := &j.Tasks[p.task]
	if w.keptOff(n, task.Labels, p, func(*job, int) bool { return true }) != "" {
		return false
	}
	for _, t := range task.Affinity {
		here, ok := w.domain(n, t.Level)
		if !ok && t.Anti {
			continue
		}
		if !ok {
			return false
		}
		if t.MaxSkew > 0 {
			continue
		}
		near, anywhere := 0, 0
		for _, o := range w.jobs {
			for i := range o.pods {
				if q := &o.pods[i]; q != p && q.on() && o.labelled(q, t.Label) {
					anywhere++
					if d, ok := w.domain(w.node(q.at.Node), t.Level); ok && d == here {
						near++
					}
				}
			}
		}
		first := slices.Contains(task.Labels, t.Label) && anywhere == 0
		if t.Anti && near > 0 || !t.Anti && near == 0 && !first {
			return false
		}
	}
	return true
}

// affords reports whether the queue may use what is placed.
func (x *trial) affords() bool {
	w, j := x.w, x.j
	for i := range x.placed {
		for _, y := range w.takes(j, &j.Tasks[j.pods[x.placed[i].Pod].task], w.node(x.placed[i].Node).Model) {
			y.gpu = 0 // it runs already
			if w.nominal && !w.withinOwn([]extra{y}) || !w.lists(j.Queue, y.model) || w.cut(j.Queue, y.model, x.before) || w.isolatedWithin(y) != nil {
				return false
			}
		}
	}
	return w.withinQuota(x.before) == nil
}

// even checks that the pods of a task are spread as they must be, when all of them are
// placed: whatever comes after them.
func (x *trial) even(t int) bool {
	for _, i := range x.pods[t] {
		for _, term := range x.j.Tasks[t].Affinity {
			here, _ := x.w.domain(x.w.node(x.j.pods[i].at.Node), term.Level)
			if term.MaxSkew > 0 && x.w.spread(x.j, i, &term, here, nil) != nil {
				return false
			}
		}
	}
	return true
}

// holds checks what must hold when all pods are placed.
func (x *trial) holds() bool {
	if x.w.combined(x.j) != nil || x.w.pinnedWithin(x.j, x.placed, true) != nil {
		return false
	}
	for i := range x.placed {
		if x.w.near(x.j, &x.placed[i], x.placed, true) != nil {
			return false
		}
	}
	return true
}
