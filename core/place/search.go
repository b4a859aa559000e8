package place

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// The first placement of a gang is greedy: task by task, each pod where it goes best, and no
// pod is moved again. A task that could be anywhere may then take the only node that another
// task selects, or the CPU that another needs beside the last GPU. Where the greedy placement
// fails, a search tries the others, pod by pod with backtracking. It is exact on a small
// cluster and ends after maxSteps on a large one. Four things keep it short:
//
//   - what is impossible by count, even of some of the tasks, is not searched for;
//   - of nodes that are alike, one stands for all that host no pod of the search;
//   - pods of a task are alike too: each goes on the node of the one before or a later one;
//   - after each pod, the tasks that are left must still fit, each by itself.
//
// It places task after task. Where that may miss places, interleave.go places pods of several in turn.

// maxSteps is how many times a search tries a node for a pod, in one set of pools, before it
// gives up. A step costs some hundred nanoseconds.
const maxSteps = 1 << 14

// search is a search for places for a gang, within one domain.
type search struct {
	p      *Placer
	u      *Unit
	groups []alike
	order  [][]int // by task: the groups in the order in which they are tried
	rest   [][]int // by task and index in order: how many pods the groups from there on hold, at most
	whole  needs   // of all pods together
	room   []int   // by task: how many of its pods still fit if no other task gets more pods
	saved  []int   // a stack of copies of room, one for each pod that is placed
	seq    []int   // the tasks in the order in which they are placed
	// woven says that pods of several tasks are placed in turn, in all orders: see interleave.go.
	woven bool
	done  []int           // by task: how many of its pods are placed
	seen  map[string]bool // what was placed when nothing could follow
}

// alike is nodes that are the same to the unit: of those that host no pod of the search
// yet, the first stands for all.
type alike struct {
	nodes []cluster.NodeID
	used  int   // nodes[:used] host pods of the search
	holds []int // by task: how many of its pods one of the nodes holds when the search begins
	free  needs // on all nodes of the group together, when the search begins
}

// needs is amounts of GPU, CPU, memory and pods, each at most mostNeed so that sums do not
// overflow.
type needs [4]int64

const (
	gpuNeed  = 0
	mostNeed = 1 << 44
)

// add adds what all pods of a task need.
func (n *needs) add(t *Task) {
	for k, v := range [4]int64{int64(t.GPU()), t.CPU, t.Mem, 1} {
		n[k] += int64(len(t.Pods)) * min(v, mostNeed)
	}
}

// freeOn returns what is free on a node.
func freeOn(n *cluster.Node) needs {
	out := needs{int64(n.FreeMilli()), n.CPU, n.Mem, int64(n.PodsLeft())}
	for k := range out {
		out[k] = min(out[k], mostNeed)
	}
	return out
}

// usable is a node that takes pods of some task of a unit.
type usable struct {
	id     cluster.NodeID
	domain int32
	holds  []int
}

// Exhausted reports whether the search for places for the last unit gave up: there may be a
// way to place it.
func (p *Placer) Exhausted() bool { return p.exhausted }

// searched reports whether the greedy placement of the unit may fail although a placement
// exists. Pods of a single task without affinities are alike: where they fit by count, the
// greedy placement finds room for all of them.
func (u *Unit) searched() bool {
	tasks := 0
	for t := range u.Tasks {
		if len(u.Tasks[t].Pods) > 0 {
			tasks++
			if len(u.Tasks[t].Terms) > 0 {
				return true
			}
		}
	}
	return tasks > 1
}

// search places a gang that was not placed greedily. O(tasks x nodes) and maxSteps.
func (p *Placer) search(u *Unit, sp space) bool {
	// Only a required level limits where the gang may be. The narrower ones that Gang prefers
	// are not worth a search each.
	domains := p.exact(u, sp, u.Required)
	if len(domains) == 0 {
		return false
	}
	p.steps = 0
	nodes := p.usable(u, sp)
	for _, c := range domains {
		from, _ := slices.BinarySearchFunc(nodes, c.domain, func(n usable, d int32) int { return cmp.Compare(n.domain, d) })
		to, _ := slices.BinarySearchFunc(nodes, c.domain+1, func(n usable, d int32) int { return cmp.Compare(n.domain, d) })
		s := search{p: p, u: u}
		s.prepare(nodes[from:to])
		if s.run() {
			return true
		}
		p.reset()
		if p.steps > maxSteps {
			p.exhausted = true
			return false
		}
	}
	return false
}

// usable returns the nodes that take pods of some task, by domain of the required level.
func (p *Placer) usable(u *Unit, sp space) []usable {
	var out []usable
	for id := range cluster.NodeID(p.state.Nodes()) {
		d := p.domainOf(id, u.Required)
		if d < 0 || !p.state.Node(id).Open() {
			continue
		}
		n, any := usable{id: id, domain: d}, false
		pool := p.state.Pool(id)
		for t := range u.Tasks {
			task, k := &u.Tasks[t], 0
			if len(task.Pods) > 0 && slices.Contains(sp[t], pool) {
				k = min(p.takes(u, task, id, later), len(task.Pods))
			}
			if p.apartOn(task, id) {
				k = min(k, 1)
			}
			if n.holds == nil {
				n.holds = make([]int, len(u.Tasks))
			}
			n.holds[t] = k
			any = any || k > 0
		}
		if any {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b usable) int { return cmp.Or(cmp.Compare(a.domain, b.domain), cmp.Compare(a.id, b.id)) })
	return out
}

// apartOn reports whether a node takes one pod of the task at most, as its pods must be in different domains: each is a node
// or more. A node whose domain is not known is in none, and takes more.
func (p *Placer) apartOn(task *Task, id cluster.NodeID) bool {
	return slices.ContainsFunc(task.Terms, func(t Term) bool { return t.Anti && t.Own && p.state.Domain(id, t.Level) >= 0 })
}

// prepare groups the nodes and puts tasks and groups in order.
func (s *search) prepare(nodes []usable) {
	p, u := s.p, s.u
	// 1. What all pods need together: amounts above it are enough on any node.
	s.room, s.done = make([]int, len(u.Tasks)), make([]int, len(u.Tasks))
	for t := range u.Tasks {
		s.whole.add(&u.Tasks[t])
	}
	// 2. The groups. If 18 equal nodes hold a pod each, twelve pods are tried on them once, not
	// in each of the 18,564 ways to choose twelve.
	at := map[string]int{}
	var key []byte
	for i := range nodes {
		n := &nodes[i]
		key = s.likeness(n, key[:0])
		g, ok := at[string(key)]
		if !ok {
			g = len(s.groups)
			at[string(key)] = g
			s.groups = append(s.groups, alike{holds: n.holds})
		}
		s.groups[g].nodes = append(s.groups[g].nodes, n.id)
		for k, v := range freeOn(p.state.Node(n.id)) {
			s.groups[g].free[k] += v
		}
		for t := range s.room {
			s.room[t] += n.holds[t]
		}
	}
	// 3. The order of the tasks. If no task has a term about another, the order makes no
	// difference to what is possible, and the task with the least choice goes first: those
	// that would end the search soonest.
	for _, t := range u.order() {
		if len(u.Tasks[t].Pods) > 0 {
			s.seq = append(s.seq, t)
		}
	}
	if !u.hasMates() {
		slices.SortStableFunc(s.seq, func(a, b int) int {
			return cmp.Compare(s.room[a]*len(u.Tasks[b].Pods), s.room[b]*len(u.Tasks[a].Pods))
		})
	}
	// 4. The order of the groups for each task.
	s.order, s.rest = make([][]int, len(u.Tasks)), make([][]int, len(u.Tasks))
	for _, t := range s.seq {
		s.sortGroups(t)
	}
}

// sortGroups puts the groups in order for a task: first those on which the fewest pods of
// the other tasks fit, and of those the ones with the fewest free GPUs.
func (s *search) sortGroups(t int) {
	usedByOthers := func(g *alike) int {
		n := 0
		for o, k := range g.holds {
			if o != t {
				n += k
			}
		}
		return n
	}
	for g := range s.groups {
		if s.groups[g].holds[t] > 0 {
			s.order[t] = append(s.order[t], g)
		}
	}
	slices.SortFunc(s.order[t], func(x, y int) int {
		a, b := &s.groups[x], &s.groups[y]
		return cmp.Or(cmp.Compare(usedByOthers(a), usedByOthers(b)),
			cmp.Compare(s.p.state.Node(a.nodes[0]).Free(), s.p.state.Node(b.nodes[0]).Free()), cmp.Compare(x, y))
	})
	s.rest[t] = make([]int, len(s.order[t])+1)
	for i := len(s.order[t]) - 1; i >= 0; i-- {
		g := &s.groups[s.order[t][i]]
		s.rest[t][i] = s.rest[t][i+1] + g.holds[t]*len(g.nodes)
	}
}

// likeness appends to key all that makes a node different from others to the unit: nodes
// with the same key are alike.
func (s *search) likeness(of *usable, key []byte) []byte {
	p, u, id := s.p, s.u, of.id
	n := p.state.Node(id)
	// 1. What is free: whole GPUs, CPU, memory, pods, and the parts of GPUs in any order.
	key = binary.AppendVarint(key, int64(n.PoolNumber()))
	key = binary.AppendVarint(key, int64(n.Free()))
	for k, v := range freeOn(n) {
		if k != gpuNeed { // 100 and 200 cores are alike to pods that need 20 together
			key = binary.AppendVarint(key, min(v, s.whole[k]))
		}
	}
	var parts [cluster.MaxGPUs]cluster.Milli
	k := 0
	for m := n.Split(); m != 0; m &= m - 1 {
		parts[k] = n.FreeOn(bits.TrailingZeros64(m))
		k++
	}
	slices.Sort(parts[:k])
	key = binary.AppendVarint(key, int64(k))
	for _, part := range parts[:k] {
		key = binary.AppendVarint(key, int64(part))
	}
	if n.Spec.Blind { // whom it keeps off says what it holds, until the unit itself has pods there
		key = append(key, 1)
	}
	// 2. For each task, what fits by selectors and other resources, and the domains of its
	// terms. Of terms about nodes, each node is a domain of its own; there the pods count that
	// it hosts already.
	for t := range u.Tasks {
		task := &u.Tasks[t]
		if len(task.Pods) == 0 {
			continue
		}
		key = binary.AppendVarint(key, int64(of.holds[t]))
		for _, a := range task.request.Others {
			key = binary.AppendVarint(key, p.state.FreeAmount(id, a.Name))
		}
		if len(task.request.From) > 0 {
			key = p.state.AppendFree(key, id, task.Others)
		}
		for i := range task.Terms {
			term := &task.Terms[i]
			d := p.state.Domain(id, term.Level)
			if term.Level == cluster.NodeLevelNum {
				here := p.state.Labelled(term.Label, term.Level, d)
				if here > 0 && u.Absent != nil {
					here -= u.Absent(term.Label, term.Level, d)
				}
				d = int32(here)
			}
			key = binary.AppendVarint(key, int64(d))
		}
	}
	return key
}

// run searches in each order of the tasks that may make a difference.
func (s *search) run() bool {
	if !s.countsSuffice() {
		return false
	}
	if !s.u.hasMates() {
		return s.place(0, 0, 0, 0)
	}
	// A pod is checked against the pods placed before it: the first of a group may be alone,
	// and pods near another task are possible after that task only. So each order of the
	// tasks may find what the others do not.
	first := slices.Clone(s.seq)
	perm := make([]int, len(first))
	for i := range perm {
		perm[i] = i
	}
	for {
		for i, k := range perm {
			s.seq[i] = first[k]
		}
		if s.place(0, 0, 0, 0) {
			return true
		}
		if s.p.steps > maxSteps {
			return false
		}
		if !nextPermutation(perm) {
			break
		}
	}
	return s.u.interleaves() && s.interleave()
}

// nextPermutation changes a to the next permutation in lexicographic order. It returns false
// after the last.
func nextPermutation(a []int) bool {
	i := len(a) - 2
	for i >= 0 && a[i] > a[i+1] {
		i--
	}
	if i < 0 {
		return false
	}
	j := len(a) - 1
	for a[j] < a[i] {
		j--
	}
	a[i], a[j] = a[j], a[i]
	slices.Reverse(a[i+1:])
	return true
}

// maxSubsets is the largest number of tasks of which every subset is counted.
const maxSubsets = 6

// countsSuffice reports whether the unit may fit by count: of each subset of its tasks, the
// pods together need no more than is free on the nodes that some of those tasks may use.
// False is certain, true is not.
func (s *search) countsSuffice() bool {
	// 1. Each task by itself.
	for _, t := range s.seq {
		if s.room[t] < len(s.u.Tasks[t].Pods) || !s.enoughApart(t) {
			return false
		}
	}
	// 2. All tasks together, and each subset: two tasks that select the same node of two cores
	// may need three of them, on a cluster with a hundred elsewhere. Of many tasks there are
	// too many subsets.
	all := 1<<len(s.seq) - 1
	if len(s.seq) > maxSubsets {
		return s.sumsSuffice(func(int) bool { return true })
	}
	for set := 1; set <= all; set++ {
		if bits.OnesCount(uint(set)) > 1 && !s.sumsSuffice(func(i int) bool { return set>>i&1 == 1 }) {
			return false
		}
	}
	return true
}

// sumsSuffice is countsSuffice for one subset, the tasks whose index in seq is in it.
func (s *search) sumsSuffice(in func(i int) bool) bool {
	var need, have needs
	for i, t := range s.seq {
		if in(i) {
			need.add(&s.u.Tasks[t])
		}
	}
	for g := range s.groups {
		group := &s.groups[g]
		for i, t := range s.seq {
			if in(i) && group.holds[t] > 0 {
				for k := range have {
					have[k] += group.free[k]
				}
				break
			}
		}
	}
	for k := range need {
		if need[k] > have[k] {
			return false
		}
	}
	return true
}

// enoughApart reports whether there are as many domains with room as the task has pods, if
// those must be in different domains.
func (s *search) enoughApart(t int) bool {
	task := &s.u.Tasks[t]
	for i := range task.Terms {
		term := &task.Terms[i]
		if !term.Anti || !term.Own {
			continue
		}
		seen, nowhere := map[int32]bool{}, 0
		for _, g := range s.order[t] {
			for _, id := range s.groups[g].nodes {
				if d := s.p.state.Domain(id, term.Level); d >= 0 {
					seen[d] = true
				} else {
					nowhere += s.groups[g].holds[t]
				}
			}
		}
		if len(seen)+nowhere < len(task.Pods) {
			return false
		}
	}
	return true
}

// place places pod k and all later pods of task seq[i], and all tasks after it. Pod k goes
// on node n of the group order[at], or on a later one. It reports whether it placed all; if
// not, it leaves none of them placed.
func (s *search) place(i, k, at, n int) bool {
	p, u := s.p, s.u
	t := s.seq[i]
	left := len(u.Tasks[t].Pods) - k
	// 1. The task is placed: check what only holds for all of its pods, and go on with the next.
	if left == 0 {
		if !p.evenly(u, t) {
			return false
		}
		if i+1 < len(s.seq) {
			return s.place(i+1, 0, 0, 0)
		}
		return true
	}
	// 2. Each node from there on. Pods of a task are interchangeable, so no pod goes on a node
	// before that of the pod before it: a pod on x and one on y is not tried as y and x too.
	for ; at < len(s.order[t]); at, n = at+1, 0 {
		g := &s.groups[s.order[t][at]]
		if s.rest[t][at]-n*g.holds[t] < left {
			return false // the nodes that are left do not hold the pods that are left
		}
		// Of the nodes that host no pod of the search, which are alike, only the first.
		for ; n <= g.used && n < len(g.nodes); n++ {
			if s.placeOn(i, k, at, n) {
				return true
			}
			if p.steps > maxSteps {
				return false
			}
		}
	}
	return false
}

// placeOn is place with pod k on node n of that group, and on no other.
func (s *search) placeOn(i, k, at, n int) bool {
	p, u := s.p, s.u
	p.steps++
	t := s.seq[i]
	task, g := &u.Tasks[t], &s.groups[s.order[t][at]]
	sh, id := task.Shape, g.nodes[n]
	node := p.state.Node(id)
	inQuota := p.quotaLeft(u, sh, p.state.Pool(id).Model) > 0
	if sh.holds(node) == 0 || !inQuota || !p.satisfies(u, task, id, placing) {
		return false
	}
	left := s.seq[i:] // the tasks of which pods are to be placed
	if s.woven {
		left = s.seq
	}
	before, mark, out, used := len(s.saved), p.state.Mark(), len(p.out), g.used
	s.saved = append(s.saved, s.room...)
	for device := range devicesFor(node, sh, u.namesSets()) {
		// 1. Place the pod, and bring room up to date with what the node holds after it.
		for _, o := range left {
			s.room[o] -= min(g.holds[o], u.Tasks[o].holds(node))
		}
		p.put(u, t, task.Pods[k], id, device)
		p.charge(u, sh, id, 1)
		s.done[t]++
		g.used = max(used, n+1)
		// 2. Look ahead: if a task that is left no longer fits, even alone, nothing that is
		// placed after this pod can mend it.
		enough := true
		for _, o := range left {
			s.room[o] += min(g.holds[o], u.Tasks[o].holds(node))
			enough = enough && s.room[o] >= len(u.Tasks[o].Pods)-s.done[o]
		}
		if enough && s.next(i, k, at, n) {
			return true
		}
		// 3. Take the pod back, and with it all that this step changed.
		p.state.Rollback(mark)
		p.charge(u, sh, id, -1)
		s.done[t]--
		p.out, g.used = p.out[:out], used
		copy(s.room, s.saved[before:])
		if p.steps > maxSteps {
			break
		}
	}
	s.saved = s.saved[:before]
	return false
}

// next goes on after pod k of task seq[i] was placed.
func (s *search) next(i, k, at, n int) bool {
	if s.woven {
		return s.weave(i)
	}
	return s.place(i, k+1, at, n)
}

// devicesFor yields, as a set of one, each device of a node to try for a part, the tightest
// first; of devices with the same amount free, the first stands for all, unless pods of the unit
// name device sets. For pods of whole devices or none it yields the empty set, once.
func devicesFor(n *cluster.Node, sh *Shape, sets bool) func(yield func(uint64) bool) {
	return func(yield func(uint64) bool) {
		if sh.Part == 0 {
			yield(0)
			return
		}
		for d := n.TightestDevice(sh.Part); d >= 0; {
			free := n.FreeOn(d) // before the yield places a pod there
			if !yield(1 << d) {
				return
			}
			for o := d + 1; sets && o < n.Spec.GPUs; o++ {
				if n.FreeOn(o) == free && !yield(1<<o) {
					return
				}
			}
			d = n.TightestDevice(free + 1)
		}
	}
}

// namesSets reports whether pods of the unit name device sets.
func (u *Unit) namesSets() bool {
	return slices.ContainsFunc(u.Tasks, func(t Task) bool { return len(t.Pods) > 0 && len(t.request.From) > 0 })
}
