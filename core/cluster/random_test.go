package cluster

import (
	"fmt"
	"maps"
	"math/bits"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// yard is a state with random nodes and pods.
type yard struct {
	*State
	rt   *rapid.T
	pods []Held
	seq  int32
}

func (y *yard) up(n int) int { return rapid.IntRange(0, n-1).Draw(y.rt, "v") }

func newYard(rt *rapid.T) *yard {
	y := &yard{State: New([]string{"spine", "leaf"}), rt: rt}
	y.many = 1 + y.up(4)
	for i := range 1 + y.up(8) {
		y.add(fmt.Sprintf("n%d", i))
	}
	y.SetLabels(1, labelled([]string{"db"}), nil)
	return y
}

// labelled labels the pods of even numbers; those of odd ones have one label less.
func labelled(labels []string) func(int32) []string {
	if labels == nil {
		return nil
	}
	return func(pod int32) []string { return labels[pod%2:] }
}

func (y *yard) need() Need {
	return Need{1 + y.up(3), int64(y.up(9)), int64(y.up(9)), y.listed(y.amounts(4), AnyPicker, nil), int64(max(0, y.up(3)-1)) * 500}
}

// amounts draws none, or up to most of two resources.
func (y *yard) amounts(most int) []Amount {
	if y.up(2) == 0 {
		return nil
	}
	return []Amount{{"fpga", int64(y.up(most))}, {"hca", int64(y.up(most))}}
}

func (y *yard) add(name string) {
	n := NodeSpec{
		Name: name, GPUs: y.up(9), MaxPods: y.up(4), CPUMilli: int64(y.up(9)), MemMiB: int64(y.up(9)),
		Domains: []string{"s", fmt.Sprintf("l%d", y.up(3))}, HBD: []string{"", "h"}[y.up(2)],
		Others: y.amounts(9),
	}
	if n.GPUs > 0 {
		n.Model = []string{"A", "B"}[y.up(2)]
	}
	if y.up(4) == 0 {
		n.Domains = n.Domains[:y.up(2)]
	}
	if _, err := y.AddNode(n); err != nil {
		y.rt.Fatal(err)
	}
}

// change places or removes a random pod, or looks for a node, which tightens
// the bounds of the index.
func (y *yard) change() {
	id := NodeID(y.up(y.Nodes()))
	n := y.Node(id)
	switch k := y.up(4); {
	case k == 0 && len(y.pods) > 0:
		i := y.up(len(y.pods))
		h := y.pods[i]
		y.Remove(h.Owner, h.Alloc.Node)
		y.pods = slices.Delete(slices.Clone(y.pods), i, i+1)
	case k == 1:
		p := y.Pool(id)
		for f := range p.MaxGPUs + 1 {
			y.Find(p, f, LeafOrder(y.up(int(numOrders))), y.need())
		}
	case n.Up:
		a := Alloc{Node: id, Others: y.listed(y.amounts(3), AnyPicker, nil).ID(), Share: WholeGPU, CPUMilli: int64(y.up(3)), MemMiB: int64(y.up(3))}
		if g := y.up(4); g <= n.Free() {
			a.GPUs = y.PickGPUs(id, g, nil, nil)
		}
		if d := y.up(9); d < n.Spec.GPUs && y.up(2) == 0 {
			a.GPUs, a.Share = 1<<d, []Milli{250, 600}[y.up(2)]
		}
		if !y.Holds(&a) {
			return
		}
		y.seq++
		h := Held{Owner{int32(y.up(2)), y.seq}, a}
		y.Place(h.Owner, a)
		y.pods = append(slices.Clone(y.pods), h)
	}
}

// event changes nodes; the journal is empty.
func (y *yard) event() {
	id := NodeID(y.up(y.Nodes()))
	n := y.Node(id)
	switch y.up(6) {
	case 0:
		y.SetCordoned(id, y.up(2) == 0)
	case 1:
		if n.Spec.GPUs > 0 {
			y.SetHealth(id, y.up(n.Spec.GPUs), y.up(2) == 0)
		}
	case 2:
		if n.Up {
			y.RemoveNode(id)
			y.pods = slices.DeleteFunc(slices.Clone(y.pods), func(h Held) bool { return h.Alloc.Node == id })
		} else {
			y.add(n.Spec.Name)
		}
	case 3:
		y.SetZone(id, y.up(2) == 0)
		var on []Held
		for _, h := range y.pods {
			if h.Owner.Job == 1 {
				on = append(on, h)
			}
		}
		y.SetLabels(1, labelled([][]string{{"db"}, {"db", "web"}, nil}[y.up(3)]), on)
	case 4:
		if !n.Up {
			return
		}
		spec := *n.Spec
		spec.MaxPods, spec.Others = y.up(4), y.amounts(9)
		spec.CPUMilli, spec.MemMiB, spec.HBD = int64(y.up(9)), int64(y.up(9)), []string{"", "h"}[y.up(2)]
		spec.Domains = []string{"s", fmt.Sprintf("l%d", y.up(3))}[:y.up(3)]
		if y.up(2) == 0 {
			spec.Taints = []Taint{{Key: "t"}}
		}
		if _, err := y.ChangeNode(id, spec); err != nil {
			y.rt.Fatal(err)
		}
	}
}

// picture is all that a state says of itself, but for the bounds of the index,
// which may be loose.
func (y *yard) picture() any {
	var nodes []Node
	for i := range y.nodes {
		n := y.nodes[i]
		n.pods = y.held(NodeID(i))
		n.crowd = nil
		n.part = slices.Clone(n.part)
		n.others = &others{free: []numbered{{0, y.FreeAmount(NodeID(i), "fpga")}, {1, y.FreeAmount(NodeID(i), "hca")}}}
		nodes = append(nodes, n)
	}
	labels := maps.Clone(y.labels)
	var pools []any
	for _, p := range y.pools {
		var leaves []any
		for l := range p.leaves {
			var sets []any
			for _, set := range p.leaves[l].sets {
				sets = append(sets, append([]uint64{}, set.slots...), set.count)
			}
			leaves = append(leaves, slices.Clone(p.leaves[l].nodes), p.leaves[l].free, sets)
		}
		var counts []any
		for l := range p.levels {
			for _, c := range p.levels[l].counts {
				counts = append(counts, slices.Clone(c))
			}
		}
		var shared []any
		for free, devices := range p.shared.devices {
			if len(devices) > 0 {
				shared = append(shared, free, slices.Clone(devices))
			}
		}
		pools = append(pools, leaves, counts, slices.Clone(p.total), p.shared.filled, shared)
	}
	return []any{nodes, labels, pools}
}

// held returns the pods on a node, in the order in which they came.
func (y *yard) held(id NodeID) []Held {
	list := []Held{}
	for h := range y.Node(id).Pods {
		list = append(list, *h)
	}
	return list
}

// checkPods compares the pods on the nodes with those that came and did not go.
func (y *yard) checkPods() {
	y.rt.Helper()
	for id := range NodeID(y.Nodes()) {
		want := slices.DeleteFunc(slices.Clone(y.pods), func(h Held) bool { return h.Alloc.Node != id })
		if got := y.held(id); !slices.Equal(got, want) || y.Node(id).Count() != len(want) {
			y.rt.Fatalf("node %d has pods %v, counted %d; expected %v", id, got, y.Node(id).Count(), want)
		}
	}
}

// checkLabels counts the pods with labels again.
func (y *yard) checkLabels() {
	y.rt.Helper()
	for at, pods := range y.labels {
		if pods == 0 {
			y.rt.Fatalf("the counter %+v is kept though it is zero", at)
		}
	}
	for _, label := range []string{"db", "web"} {
		for id := range NodeID(y.Nodes()) {
			want := 0
			for h := range y.Node(id).Pods {
				if of := y.podLabels[h.Owner.Job]; of != nil && slices.Contains(of(h.Owner.Pod), label) {
					want++
				}
			}
			if got := y.Labelled(label, NodeLevelNum, int32(id)); got != want {
				y.rt.Fatalf("node %d hosts %d pods with label %s, counted are %d", id, want, label, got)
			}
		}
	}
}

// checkIndex counts every node again.
func (y *yard) checkIndex() {
	y.rt.Helper()
	y.checkPods()
	y.checkLabels()
	for k, p := range y.pools {
		p.refresh()
		total := make([]int32, p.MaxGPUs+1)
		for l := range p.leaves {
			leaf := &p.leaves[l]
			counts, free, gpus := make([]int32, p.MaxGPUs+1), int32(0), int32(0)
			cpu, mem := slices.Repeat([]int64{-1}, p.MaxGPUs+1), slices.Repeat([]int64{-1}, p.MaxGPUs+1)
			for slot, id := range leaf.nodes {
				if id < 0 {
					continue
				}
				n := y.Node(id)
				if n.Open() != (n.indexed >= 0) || n.Open() && int(n.indexed) != n.Free() {
					y.rt.Fatalf("node %s is filed under %d, has %d GPUs free, open %v", n.Spec.Name, n.indexed, n.Free(), n.Open())
				}
				for f := range leaf.sets {
					if is := leaf.sets[f].slots[slot/64]>>(slot%64)&1 == 1; is != (f == int(n.indexed)) {
						y.rt.Fatalf("node %s with %d GPUs free: in set %d is %v", n.Spec.Name, n.indexed, f, is)
					}
				}
				if f := n.indexed; f >= 0 {
					counts[f]++
					free += int32(f)
					gpus += int32(bits.OnesCount64(n.Healthy()))
					if left := n.Spec.MaxPods - len(y.held(id)); n.Spec.MaxPods > 0 && n.PodsLeft() != max(left, 0) {
						y.rt.Fatalf("node %s takes %d more pods, %d are expected", n.Spec.Name, n.PodsLeft(), left)
					}
					y.checkAmounts(id)
					if n.PodsLeft() > 0 {
						cpu[f], mem[f] = max(cpu[f], n.CPU), max(mem[f], n.Mem)
					}
				}
			}
			if free != leaf.free || gpus != leaf.gpus {
				y.rt.Fatalf("pool %d leaf %d: %d of %d GPUs free, filed are %d of %d", k, l, free, gpus, leaf.free, leaf.gpus)
			}
			for f, c := range counts {
				set := &leaf.sets[f]
				if set.count != c || c > 0 && (set.cpu < cpu[f] || set.mem < mem[f]) {
					y.rt.Fatalf("pool %d leaf %d free %d: %d nodes of up to %d CPU, %d memory; filed are %d of %d, %d", k, l, f, c, cpu[f], mem[f], set.count, set.cpu, set.mem)
				}
				want := emptySummary
				if c > 0 {
					want = leafSummary(int32(l), leaf.free, set.cpu, set.mem)
				}
				if got := p.trees[f].sums[p.trees[f].half+l]; got != want {
					y.rt.Fatalf("pool %d leaf %d free %d: summary %v, want %v", k, l, f, got, want)
				}
				total[f] += c
			}
		}
		if !slices.Equal(total, p.total) {
			y.rt.Fatalf("pool %d: %v nodes by free GPUs, filed are %v", k, total, p.total)
		}
		y.checkDomains(p)
	}
}

// checkAmounts counts again what a node has free of other resources.
func (y *yard) checkAmounts(id NodeID) {
	y.rt.Helper()
	n := y.Node(id)
	for _, name := range []string{"fpga", "hca"} {
		want := AmountOf(n.Spec.Others, name)
		for h := range n.Pods {
			want -= y.value(y.State.amounts[h.Alloc.Others], name)
		}
		if got := y.FreeAmount(id, name); got != want {
			y.rt.Fatalf("node %s has %d %s free, %d are expected", n.Spec.Name, got, name, want)
		}
	}
}

// value is how much of a resource a list has.
func (y *yard) value(a *Amounts, name string) int64 {
	if a != nil {
		for _, x := range a.list {
			if y.resources[name] == x.resource {
				return x.value
			}
		}
	}
	return 0
}

// holds reports whether a node has what so many pods need of a list each.
func (y *yard) holds(id NodeID, need Need) bool {
	for _, name := range []string{"fpga", "hca"} {
		if v := y.value(need.Others, name); v > 0 && y.FreeAmount(id, name) < v*int64(need.Pods) {
			return false
		}
	}
	return true
}

func (y *yard) checkDomains(p *Pool) {
	y.rt.Helper()
	for level := range p.levels {
		for i, d := range p.levels[level].domain {
			want := make([]int32, p.MaxGPUs+1)
			for id := range NodeID(y.Nodes()) {
				if n := y.Node(id); y.Pool(id) == p && n.Open() && y.Domain(id, level) == d {
					want[n.Free()]++
				}
			}
			if got := p.levels[level].counts[i]; !slices.Equal(got, want) {
				y.rt.Fatalf("level %d domain %d: %v nodes by free GPUs, filed are %v", level, d, want, got)
			}
		}
		y.checkTightest(p, level)
	}
}

// checkTightest looks for the tightest domain for random pods both ways.
func (y *yard) checkTightest(p *Pool, level int) {
	y.rt.Helper()
	gpus, pods := 1+y.up(4), y.up(6)
	best, found := Room{}, false
	for i := range p.levels[level].domain {
		r := p.room(level, i, gpus)
		if int(r.Slots) >= pods && (!found || r.Compare(best) < 0) {
			best, found = r, true
		}
	}
	if got, ok := p.Tightest(level, gpus, pods); ok != found || got != best {
		y.rt.Fatalf("level %d: tightest for %d pods of %d GPUs is %v %v, a scan finds %v %v", level, pods, gpus, got, ok, best, found)
	}
}

// TestIndex compares the fit index with a count of all nodes after random
// changes, and what it finds with what a scan finds.
func TestIndex(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		y := newYard(rt)
		for range 5 + y.up(30) {
			y.event()
			for range y.up(6) {
				y.change()
			}
			y.Commit()
			y.checkIndex()
			for _, p := range y.pools {
				y.checkFind(p)
			}
		}
	})
}

// checkFind looks for random requests both ways.
func (y *yard) checkFind(p *Pool) {
	y.rt.Helper()
	free, order := y.up(p.MaxGPUs+1), LeafOrder(y.up(int(numOrders)))
	need := y.need()
	// The scan: among nodes with that many free, the best leaf group, then slot.
	best := NodeID(-1)
	for l := range p.leaves {
		for _, id := range p.leaves[l].nodes {
			if id < 0 {
				continue
			}
			n := y.Node(id)
			if !n.Open() || n.Free() != free || n.CPU-n.Reserved(need.Reserve) < need.CPU || n.Mem < need.Mem || n.PodsLeft() < need.Pods || !y.holds(id, need) {
				continue
			}
			if best < 0 || leafBefore(p, order, int32(l), y.LeafOf(best)) {
				best = id
			}
		}
	}
	id, ok := y.Find(p, free, order, need)
	if ok != (best >= 0) || ok && id != best {
		y.rt.Fatalf("pool %s: found %v %v for %d GPUs, %+v by order %d; a scan finds %v", p.Model, id, ok, free, need, order, best)
	}
}

func leafBefore(p *Pool, order LeafOrder, a, b int32) bool {
	switch fa, fb := p.LeafFree(a), p.LeafFree(b); {
	case order == FullestLeaf && fa != fb:
		return fa < fb
	case order == EmptiestLeaf && fa != fb:
		return fa > fb
	}
	return a < b
}

// TestRollback takes changes back and compares the state, index included, with
// what it was.
func TestRollback(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		y := newYard(rt)
		for range y.up(20) {
			y.event()
			y.change()
			y.Commit()
		}
		var marks []int
		var before []any
		var pods [][]Held
		for range 1 + y.up(4) {
			marks, before, pods = append(marks, y.Mark()), append(before, y.picture()), append(pods, y.pods)
			for range 1 + y.up(12) {
				y.change()
			}
		}
		for k := len(marks) - 1; k >= 0; k-- {
			y.Rollback(marks[k])
			y.pods = pods[k]
			if after := y.picture(); !reflect.DeepEqual(before[k], after) {
				rt.Fatalf("after a rollback to %d:\n%+v\nbefore:\n%+v", marks[k], after, before[k])
			}
			y.checkIndex()
		}
	})
}

// A search for room looks at the first cache line of a node, of which there are many.
func TestNodeSize(t *testing.T) {
	if size := unsafe.Sizeof(Node{}); size%64 != 0 {
		t.Errorf("a node is %d bytes, expected whole cache lines of 64", size)
	}
	if size := unsafe.Offsetof(Node{}.pods); size != 64 {
		t.Errorf("what is looked at first is %d bytes, expected a cache line of 64", size)
	}
}

// TestPick compares the choice of devices with the rule of [layout.pick] tried on all sets of that
// size.
func TestPick(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		up := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "v") }
		n := 1 + up(8)
		devices := make([]DeviceSpec, n)
		for i := range devices {
			devices[i] = DeviceSpec{Island: int8(up(4)) - 1, PCIe: int8(up(5)) - 1, NUMA: int8(up(3)) - 1, NIC: int8(i)}
		}
		free := uint64(up(1<<n-1) + 1)
		g := 1 + up(bits.OnesCount64(free))
		got, best := newLayout(devices).pick(free, g), bestSets(devices, free, g)
		if !slices.Contains(best, got) {
			rt.Fatalf("picked %b of %b for %d, the best are %b: %+v", got, free, g, best, devices)
		}
	})
}

// bestSets returns the sets of g of the free devices that have the best links: those in one island
// if there are any, and of these those in the island with the fewest free devices; of these those
// in one PCIe switch, and so on; last those in the fewest groups of the first level at which no
// group holds them.
func bestSets(devices []DeviceSpec, free uint64, g int) []uint64 {
	var sets []uint64
	for set := free; set > 0; set = (set - 1) & free {
		if bits.OnesCount64(set) == g {
			sets = append(sets, set)
		}
	}
	// groups returns in how many groups of a level a set is. A device in no group counts as one.
	groups := func(position func(DeviceSpec) int8, set uint64) int {
		alone, seen := 0, map[int8]bool{}
		for i, d := range devices {
			switch p := position(d); {
			case set>>i&1 == 0:
			case p < 0:
				alone++
			default:
				seen[p] = true
			}
		}
		return alone + len(seen)
	}
	var split func(DeviceSpec) int8
	among := free
	for _, position := range []func(DeviceSpec) int8{
		func(d DeviceSpec) int8 { return d.Island }, func(d DeviceSpec) int8 { return d.PCIe }, func(d DeviceSpec) int8 { return d.NUMA },
	} {
		// tightest is the group with the fewest devices among which a set may be chosen, the first of
		// several.
		tightest, level := uint64(0), false
		for _, d := range devices {
			group, all := uint64(0), 0
			for k, o := range devices {
				if position(d) >= 0 && position(o) == position(d) {
					all++
					group |= 1 << k & among
				}
			}
			level = level || all > 1
			if n := bits.OnesCount64(group); n >= g && (tightest == 0 || n < bits.OnesCount64(tightest)) {
				tightest = group
			}
		}
		switch {
		case !level:
		case tightest != 0:
			among = tightest
			sets = slices.DeleteFunc(sets, func(set uint64) bool { return set&^among != 0 })
		case split == nil:
			split = position
		}
	}
	if split != nil {
		least := len(devices)
		for _, set := range sets {
			least = min(least, groups(split, set))
		}
		sets = slices.DeleteFunc(sets, func(set uint64) bool { return groups(split, set) > least })
	}
	return sets
}
