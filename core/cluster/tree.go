package cluster

import "math"

// LeafOrder says which of several leaf groups to prefer.
type LeafOrder uint8

// The preferences among leaf groups; ties go to the first.
const (
	FirstLeaf    LeafOrder = iota
	FullestLeaf            // the one with the fewest free GPUs
	EmptiestLeaf           // the one with the most free GPUs
	numOrders
)

// summary says what a set of leaf groups offers in nodes of one free count.
type summary struct {
	// key holds, for each order, the smallest rank of a group: the preferred
	// group has it. Ranks are unique.
	key [numOrders]int64
	// cpu and mem are upper bounds of what any of the nodes has free: a search
	// passes over a set that cannot hold the pod.
	cpu, mem int64
}

var emptySummary = summary{key: [numOrders]int64{math.MaxInt64, math.MaxInt64, math.MaxInt64}, cpu: -1, mem: -1}

// leafSummary is the summary of one group with free whole GPUs.
func leafSummary(leaf, free int32, cpu, mem int64) summary {
	l := int64(leaf)
	return summary{key: [numOrders]int64{l, int64(free)<<32 | l, int64(-free)<<32 | l}, cpu: cpu, mem: mem}
}

func merge(a, b *summary) summary {
	var s summary
	for o := range s.key {
		s.key[o] = min(a.key[o], b.key[o])
	}
	s.cpu, s.mem = max(a.cpu, b.cpu), max(a.mem, b.mem)
	return s
}

// same reports whether two summaries say the same.
func (s *summary) same(o *summary) bool {
	return s.key[FullestLeaf] == o.key[FullestLeaf] && s.key[EmptiestLeaf] == o.key[EmptiestLeaf] &&
		s.key[FirstLeaf] == o.key[FirstLeaf] && s.cpu == o.cpu && s.mem == o.mem
}

// tree is a tournament over the leaf groups of a pool: sums[1] sums up all,
// sums[i] its children 2i and 2i+1, sums[half+leaf] is one group.
type tree struct {
	half int
	sums []summary
}

// grow makes room for the leaf groups.
func (t *tree) grow(leaves int) {
	if leaves <= t.half {
		return
	}
	half := max(1, t.half)
	for half < leaves {
		half *= 2
	}
	sums := make([]summary, 2*half)
	for i := range sums {
		sums[i] = emptySummary
	}
	copy(sums[half:], t.sums[t.half:])
	t.half, t.sums = half, sums
	for i := half - 1; i > 0; i-- {
		sums[i] = merge(&sums[2*i], &sums[2*i+1])
	}
}

// set changes the summary of a leaf. O(log leaves), less when little changes.
func (t *tree) set(leaf int32, s summary) {
	i := t.half + int(leaf)
	if t.sums[i].same(&s) {
		return
	}
	t.sums[i] = s
	for i /= 2; i > 0; i /= 2 {
		m := merge(&t.sums[2*i], &t.sums[2*i+1])
		if t.sums[i].same(&m) {
			return
		}
		t.sums[i] = m
	}
}

// best returns the preferred leaf whose bounds offer cpu and mem, or -1.
// O(log leaves) unless the preferred groups lack cpu or mem.
func (t *tree) best(order LeafOrder, cpu, mem int64) int32 {
	if t.half == 0 {
		return -1
	}
	leaf, _ := t.search(1, order, cpu, mem, -1, math.MaxInt64)
	return leaf
}

// search returns the best leaf below sums[i] if its rank is below key, which
// is that of found.
func (t *tree) search(i int, order LeafOrder, cpu, mem int64, found int32, key int64) (int32, int64) {
	s := &t.sums[i]
	if s.key[order] >= key || s.cpu < cpu || s.mem < mem {
		return found, key
	}
	if i >= t.half {
		return int32(i - t.half), s.key[order]
	}
	a, b := 2*i, 2*i+1
	if t.sums[b].key[order] < t.sums[a].key[order] {
		a, b = b, a
	}
	found, key = t.search(a, order, cpu, mem, found, key)
	return t.search(b, order, cpu, mem, found, key)
}
