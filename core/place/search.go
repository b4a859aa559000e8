package place

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// The first placement of a gang is greedy: task by task, each pod where it goes best,
// with no second try. Pods of a task that could be anywhere then take the only node of
// another's selector, or the CPU that another needs beside the last GPU. Where it fails,
// a search tries the other placements: all of them on a small cluster, as many as a
// number of steps allows on a large one.

// maxSteps is how many nodes a search looks at for a pod, in one set of pools, before it
// gives up. A step costs some hundred nanoseconds.
const maxSteps = 1 << 14

// search is a search for places for a gang, within one domain.
type search struct {
	p      *Placer
	u      *Unit
	groups []alike
	order  [][]int // by task: the groups in the order in which they are tried
	rest   [][]int // by task and place in that order: how many pods those from there on hold, at most
	whole  needs   // of all pods together
	room   []int   // by task: how many pods of it there is room for, each task by itself
	saved  []int   // room, before each pod that was placed
	seq    []int   // the tasks in the order in which they are placed
}

// alike is nodes that make no difference: of those that host no pod of the search yet,
// the first stands for all.
type alike struct {
	nodes []cluster.NodeID
	used  int   // how many of the first host pods of the search, or did
	holds []int // by task: how many pods one of the nodes holds at first, by itself
	free  needs // on all of them at first: alike is what matters, not what is left over
}

// needs is amounts that are counted: GPU, CPU, memory and pods, each up to mostNeed so
// that sums do not overflow.
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

// freeOn returns what a node has free.
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

// Exhausted reports whether the last unit was not placed because the search gave up:
// there may be places for it.
func (p *Placer) Exhausted() bool { return p.exhausted }

// searched reports whether the greedy placement of the unit may fail though there are
// places for it. Pods of one task that keep to nothing are alike, and where counting
// finds room for them there is.
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
			if task.apart() {
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

// apart reports whether pods of the task keep off each other.
func (t *Task) apart() bool {
	return slices.ContainsFunc(t.Terms, func(t Term) bool { return t.Anti && t.Own })
}

// prepare groups the nodes and puts tasks and groups in order.
func (s *search) prepare(nodes []usable) {
	p, u := s.p, s.u
	s.room = make([]int, len(u.Tasks))
	for t := range u.Tasks {
		s.whole.add(&u.Tasks[t])
	}
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
	for _, t := range u.order() {
		if len(u.Tasks[t].Pods) > 0 {
			s.seq = append(s.seq, t)
		}
	}
	if !u.hasMates() { // then the order does not matter: what has the least choice first
		slices.SortStableFunc(s.seq, func(a, b int) int {
			return cmp.Compare(s.room[a]*len(u.Tasks[b].Pods), s.room[b]*len(u.Tasks[a].Pods))
		})
	}
	s.order, s.rest = make([][]int, len(u.Tasks)), make([][]int, len(u.Tasks))
	for _, t := range s.seq {
		s.sortGroups(t)
	}
}

// sortGroups puts the groups in order for a task: those that the other tasks have the
// least use for first, of those the ones with the fewest free GPUs.
func (s *search) sortGroups(t int) {
	others := func(g *alike) int {
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
		return cmp.Or(cmp.Compare(others(a), others(b)),
			cmp.Compare(s.p.state.Node(a.nodes[0]).Free(), s.p.state.Node(b.nodes[0]).Free()), cmp.Compare(x, y))
	})
	s.rest[t] = make([]int, len(s.order[t])+1)
	for i := len(s.order[t]) - 1; i >= 0; i-- {
		g := &s.groups[s.order[t][i]]
		s.rest[t][i] = s.rest[t][i+1] + g.holds[t]*len(g.nodes)
	}
}

// likeness appends all that makes a difference of a node to the unit.
func (s *search) likeness(of *usable, key []byte) []byte {
	p, u, id := s.p, s.u, of.id
	n := p.state.Node(id)
	key = binary.AppendVarint(key, int64(n.PoolNumber()))
	key = binary.AppendVarint(key, int64(n.Free()))
	for k, v := range freeOn(n) {
		if k != gpuNeed { // what is more than enough is alike
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
	for t := range u.Tasks {
		task := &u.Tasks[t]
		if len(task.Pods) == 0 {
			continue
		}
		key = binary.AppendVarint(key, int64(of.holds[t]))
		for _, a := range task.request.Others {
			key = binary.AppendVarint(key, p.state.FreeAmount(id, a.Name))
		}
		for i := range task.Terms {
			term := &task.Terms[i]
			d := p.state.Domain(id, term.Level)
			if term.Level == cluster.NodeLevelNum { // a domain of its own
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

// run looks for places in every order of the tasks that may matter.
func (s *search) run() bool {
	if !s.countsSuffice() {
		return false
	}
	if !s.u.hasMates() {
		return s.place(0, 0, 0, 0)
	}
	// Who comes first may be near no one yet, and whoever keeps off others must find
	// them there: each order of the tasks is another question.
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
		if s.p.steps > maxSteps || !nextPermutation(perm) {
			return false
		}
	}
}

// nextPermutation steps to the next permutation in lexicographic order, false after the
// last.
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

// maxSubsets is of how many tasks all subsets are counted.
const maxSubsets = 6

// countsSuffice reports whether counting leaves room for the tasks together, and for
// those of each subset: what they need in all is no more than the nodes have that any of
// them may use. False is certain.
func (s *search) countsSuffice() bool {
	for _, t := range s.seq {
		if s.room[t] < len(s.u.Tasks[t].Pods) || !s.enoughApart(t) {
			return false
		}
	}
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

// sumsSuffice is countsSuffice for some tasks, by their places in the sequence.
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

// enoughApart reports whether there are as many domains with room as the task has pods,
// where these keep off each other.
func (s *search) enoughApart(t int) bool {
	task := &s.u.Tasks[t]
	for i := range task.Terms {
		term := &task.Terms[i]
		if !term.Anti || !term.Own {
			continue
		}
		seen := map[int32]bool{}
		for _, g := range s.order[t] {
			for _, id := range s.groups[g].nodes {
				seen[s.p.state.Domain(id, term.Level)] = true
			}
		}
		if len(seen) < len(task.Pods) {
			return false
		}
	}
	return true
}

// place places the k-th and later pods of the i-th task of the sequence, and all tasks
// after it. Pods of a task are alike: each is on the node of the one before it or on a
// later one, from the n-th of the group that is in place at, so that no set of nodes is
// tried twice. It leaves what it placed when it reports true, else nothing.
func (s *search) place(i, k, at, n int) bool {
	p, u := s.p, s.u
	t := s.seq[i]
	left := len(u.Tasks[t].Pods) - k
	if left == 0 {
		if !p.evenly(u, t, len(p.out)-k) {
			return false
		}
		if i+1 < len(s.seq) {
			return s.place(i+1, 0, 0, 0)
		}
		return true
	}
	for ; at < len(s.order[t]); at, n = at+1, 0 {
		g := &s.groups[s.order[t][at]]
		if s.rest[t][at]-n*g.holds[t] < left {
			return false
		}
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

// placeOn is place with the first of the pods on a node.
func (s *search) placeOn(i, k, at, n int) bool {
	p, u := s.p, s.u
	p.steps++
	t := s.seq[i]
	task, g := &u.Tasks[t], &s.groups[s.order[t][at]]
	sh, id := task.Shape, g.nodes[n]
	node := p.state.Node(id)
	if sh.holds(node) == 0 || p.quotaLeft(u, sh, p.state.Pool(id).Model) == 0 || !p.satisfies(u, task, id, placing) {
		return false
	}
	before, mark, out, used := len(s.saved), p.state.Mark(), len(p.out), g.used
	s.saved = append(s.saved, s.room...)
	for device := range devicesFor(node, sh) {
		for _, o := range s.seq[i:] {
			s.room[o] -= min(g.holds[o], u.Tasks[o].holds(node))
		}
		p.put(u, t, task.Pods[k], id, device)
		p.charge(u, sh, id, 1)
		g.used = max(used, n+1)
		enough := true
		for _, o := range s.seq[i:] {
			s.room[o] += min(g.holds[o], u.Tasks[o].holds(node))
			need := len(u.Tasks[o].Pods)
			if o == t {
				need -= k + 1
			}
			enough = enough && s.room[o] >= need
		}
		if enough && s.place(i, k+1, at, n) {
			return true
		}
		p.state.Rollback(mark)
		p.charge(u, sh, id, -1)
		p.out, g.used = p.out[:out], used
		copy(s.room, s.saved[before:])
		if p.steps > maxSteps {
			break
		}
	}
	s.saved = s.saved[:before]
	return false
}

// devicesFor yields the devices on which a part may make a difference, the tightest
// first; 0, once, for pods of whole devices or none.
func devicesFor(n *cluster.Node, sh *Shape) func(yield func(uint64) bool) {
	return func(yield func(uint64) bool) {
		if sh.Part == 0 {
			yield(0)
			return
		}
		for least := sh.Part; ; {
			best := -1
			for d := range n.Spec.GPUs {
				if free := n.FreeOn(d); free >= least && (best < 0 || free < n.FreeOn(best)) {
					best = d
				}
			}
			if best < 0 {
				return
			}
			least = n.FreeOn(best) + 1
			if !yield(1 << best) {
				return
			}
		}
	}
}
