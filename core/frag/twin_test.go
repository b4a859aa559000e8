package frag

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core/cluster"
)

// The twin finds what the package computes by trying everything: each pod on every node and
// every set of its GPUs, each gang in every domain.

// yard is a random small cluster.
type yard struct{ rt *rapid.T }

func (y yard) up(n int) int { return rapid.IntRange(0, n-1).Draw(y.rt, "v") }

func (y yard) node(name string) Node {
	spec := &cluster.NodeSpec{
		Name: name, GPUs: y.up(5), CPUMilli: int64(y.up(9)), MemMiB: int64(y.up(9)), MaxPods: max(0, y.up(8)-3),
		Domains: []string{"s", []string{"", "a", "b"}[y.up(3)]}, Cordoned: y.up(8) == 0,
		Others: []cluster.Amount{{Name: "hca", Value: int64(y.up(6))}},
	}
	if spec.GPUs > 0 {
		spec.Model = []string{"A", "B"}[y.up(2)]
	}
	if y.up(8) == 0 {
		spec.Taints = []cluster.Taint{{Key: "kept"}}
	}
	if spec.GPUs > 0 && y.up(4) == 0 {
		spec.Unhealthy = []int{y.up(spec.GPUs)}
	}
	n := Empty(spec)
	for d := range n.Free {
		n.Free[d] = []Milli{0, 300, 500, 750, 1000, 1000, 1000}[y.up(7)]
	}
	n.CPU -= int64(y.up(4)) // it may have become smaller than its pods
	for range y.up(spec.MaxPods + 1) {
		n.Take(0, 0, 0, 0, 1)
	}
	return n
}

func (y yard) nodes() []Node {
	var all []Node
	for k := range 1 + y.up(5) {
		all = append(all, y.node(fmt.Sprintf("n%d", k)))
	}
	return all
}

func (y yard) shape() Shape {
	sh := Shape{
		GPU:      []Milli{250, 300, 1000, 2000, 3000, 4000}[y.up(6)],
		CPUMilli: int64(y.up(4)), MemMiB: int64(y.up(4)),
	}
	if y.up(3) == 0 {
		sh.Others = []cluster.Amount{{Name: "fpga", Value: 1}, {Name: "hca", Value: int64(1 + y.up(2))}}[y.up(2):]
	}
	return sh
}

// most returns how many pods of a shape a node holds, by trying every set of GPUs for each.
func most(n Node, sh *Shape) int {
	known := map[string]int{}
	var search func(n Node) int
	search = func(n Node) int {
		if n.Closed != Allocatable || n.Pods < 1 || n.CPU < sh.CPUMilli && sh.CPUMilli > 0 || n.Mem < sh.MemMiB && sh.MemMiB > 0 {
			return 0
		}
		for _, a := range sh.Others {
			if cluster.AmountOf(n.Others, a.Name) < a.Value {
				return 0
			}
		}
		free := slices.Clone(n.Free)
		slices.Sort(free)
		key := fmt.Sprint(free, n.Pods, n.CPU, n.Mem)
		best, ok := known[key]
		if ok {
			return best
		}
		for set := range uint64(1) << len(n.Free) {
			if after, ok := place(n, sh, set); ok {
				best = max(best, 1+search(after))
			}
		}
		known[key] = best
		return best
	}
	for d := range n.Free { // devices are told apart no more, so those that are not healthy go
		if n.Healthy>>d&1 == 0 {
			n.Free = slices.Clone(n.Free)
			n.Free[d] = 0
		}
	}
	return search(n)
}

// place puts a pod on a set of GPUs of a node, if they hold it.
func place(n Node, sh *Shape, set uint64) (Node, bool) {
	want, share, count := 1, sh.GPU, 0
	if sh.GPU >= cluster.WholeGPU {
		want, share = int(sh.GPU/cluster.WholeGPU), cluster.WholeGPU
	}
	n.Free, n.Others = slices.Clone(n.Free), slices.Clone(n.Others)
	for d := range n.Free {
		if set>>d&1 == 1 {
			count++
			if n.Free[d] < share {
				return n, false
			}
		}
	}
	if count != want {
		return n, false
	}
	pods := n.Pods
	n.Take(set, share, sh.CPUMilli, sh.MemMiB, 1)
	n.Pods = pods - 1
	n.TakeOthers(sh.Others)
	return n, true
}

// twin splits the idle GPU of a node: it takes one limit after another away and sees how many
// more pods there is room for.
func twin(n Node, sh *Shape) Split {
	var s Split
	open := n
	idle, whole := Milli(0), Milli(0)
	for d, free := range n.Free {
		if n.Healthy>>d&1 == 0 {
			s[Unhealthy] += free
			continue
		}
		idle += free
		if free == cluster.WholeGPU {
			whole += free
		}
	}
	if n.Closed != Allocatable {
		s[n.Closed] = idle
		return s
	}
	plenty := []cluster.Amount{{Name: "fpga", Value: 1000}, {Name: "hca", Value: 1000}}
	open.CPU, open.Mem, open.Pods, open.Others = 1000, 1000, 1000, plenty
	pods := most(open, sh)
	byGPU := Milli(pods) * sh.GPU
	if sh.GPU >= cluster.WholeGPU {
		s[Fractional], s[Stranded] = idle-whole, whole-byGPU
	} else {
		s[Fractional] = idle - byGPU
	}
	for _, limit := range []struct {
		cause Cause
		set   func()
	}{
		{CPU, func() { open.CPU = n.CPU }},
		{Memory, func() { open.Mem = n.Mem }},
		{Pods, func() { open.Pods = n.Pods }},
		{Other, func() { open.Others = n.Others }},
	} {
		limit.set()
		fit := most(open, sh)
		s[limit.cause] = Milli(pods-fit) * sh.GPU
		pods = fit
	}
	s[Allocatable] = Milli(pods) * sh.GPU
	return s
}

// mostGangs returns how many gangs of pods fit, each within one of the groups of rooms for
// pods, by trying every group for each pod of each gang.
func mostGangs(rooms []int, group []string, pods int) int {
	best := 0
	for _, g := range group {
		var put func(left int) bool // the rest of a gang in g
		after := slices.Clone(rooms)
		put = func(left int) bool {
			if left == 0 {
				return true
			}
			for k := range after {
				if group[k] == g && after[k] > 0 {
					after[k]--
					return put(left - 1)
				}
			}
			return false
		}
		if put(pods) {
			best = max(best, 1+mostGangs(after, group, pods))
		}
	}
	return best
}

func TestTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		y := yard{rt}
		nodes, sh := y.nodes(), y.shape()
		var want Split
		idle := Milli(0)
		var rooms []int
		for k := range nodes {
			s := twin(nodes[k], &sh)
			if got := sh.Split(&nodes[k]); got != s {
				rt.Fatalf("%+v\nshape %s\n got %v\nwant %v", nodes[k], sh, got, s)
			}
			want.Add(&s, 1)
			rooms = append(rooms, most(nodes[k], &sh))
			for _, free := range nodes[k].Free {
				idle += free
			}
		}
		checkReport(rt, Diagnose(nodes, sh, Within{}), want, idle)

		in := Within{Pods: 2 + y.up(3), Level: y.up(3) - 1, Name: "leaf", Mixed: y.up(2) == 0}
		var group []string
		for k := range nodes {
			spec := nodes[k].Spec
			g := "all"
			switch in.Level {
			case 0:
				g = "s"
			case 1:
				if g = spec.Domains[1]; g == "" {
					g, rooms[k] = "unknown", 0
				}
			}
			if !in.Mixed {
				g += spec.Model
			}
			group = append(group, g)
		}
		gangs := Milli(mostGangs(rooms, group, in.Pods)*in.Pods) * sh.GPU
		cause := Topology
		if in.Level == Across {
			cause = Gang
		}
		want[cause], want[Allocatable] = want[Allocatable]-gangs, gangs
		checkReport(rt, Diagnose(nodes, sh, in), want, idle)
	})
}

// checkReport checks that a report says what is wanted, and that its findings add up.
func checkReport(rt *rapid.T, r Report, want Split, idle Milli) {
	rt.Helper()
	if r.Split != want || r.Split.Idle() != idle {
		rt.Fatalf("%s %+v\n got %v, %d\nwant %v, %d", r.Shape, r.Within, r.Split, r.Split.Idle(), want, idle)
	}
	var sum Split
	for _, f := range r.Findings {
		sum[f.Cause] += f.GPU
		if f.GPU <= 0 || f.Missing <= 0 && !f.Cause.Unusable() && !f.Never || f.Advice() == "" {
			rt.Fatalf("finding %+v: %s", f, f.Advice())
		}
	}
	sum[Allocatable] = want[Allocatable]
	others := Milli(0)
	for _, m := range r.Others {
		others += m
	}
	if sum != want || others != want[Other] {
		rt.Fatalf("findings add up to %v, %d of other resources; want %v", sum, others, want)
	}
}

// What a finding says is missing, no less of it, makes room for one more pod as far as that
// resource goes.
func TestMissingIsEnough(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		y := yard{rt}
		n, sh := y.node("n"), y.shape()
		for _, f := range Diagnose([]Node{n}, sh, Within{}).Findings {
			m := n
			m.CPU, m.Mem, m.Pods, m.Others = 1000, 1000, 1000, []cluster.Amount{{Name: "fpga", Value: 1000}, {Name: "hca", Value: 1000}}
			m.Free, m.Others = slices.Clone(n.Free), slices.Clone(m.Others)
			var give func(int64)
			switch f.Cause {
			case CPU:
				give = func(more int64) { m.CPU = n.CPU + more }
			case Memory:
				give = func(more int64) { m.Mem = n.Mem + more }
			case Pods:
				give = func(more int64) { m.Pods = n.Pods + int(more) }
			case Other:
				give = func(more int64) {
					m.Others = slices.Clone(n.Others)
					for k := range m.Others {
						if m.Others[k].Name == f.Resource {
							m.Others[k].Value += more
						}
					}
					if cluster.AmountOf(n.Others, f.Resource) == 0 {
						m.Others = []cluster.Amount{{Name: f.Resource, Value: more}}
					}
				}
				one := sh
				one.Others = slices.DeleteFunc(slices.Clone(sh.Others), func(a cluster.Amount) bool { return a.Name != f.Resource })
				one.CPUMilli, one.MemMiB = 0, 0
				checkMissing(rt, &m, one, f, give)
				continue
			case Stranded:
				if f.Never {
					continue
				}
				give = func(more int64) { // whole GPUs of the node become idle
					copy(m.Free, n.Free)
					for d := range m.Free {
						if m.Healthy>>d&1 == 1 && m.Free[d] < cluster.WholeGPU && more >= 1000 {
							m.Free[d] = cluster.WholeGPU
							more -= 1000
						}
					}
				}
			default:
				continue
			}
			checkMissing(rt, &m, sh, f, give)
		}
	})
}

func checkMissing(rt *rapid.T, m *Node, sh Shape, f Finding, give func(int64)) {
	rt.Helper()
	give(0)
	before := most(*m, &sh)
	give(f.Missing - 1)
	less := most(*m, &sh)
	give(f.Missing)
	if after := most(*m, &sh); less != before || after != before+1 {
		rt.Fatalf("%s: %d pods, %d with one less than is missing, %d with all of it\n%+v\n%+v", sh, before, less, after, f, m)
	}
}

// A tally that followed changes says what a count of all nodes says.
func TestTally(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		y := yard{rt}
		shapes, jobs := []Shape{y.shape(), y.shape()}, []Job{{y.shape(), 1 + y.up(4)}, {y.shape(), 1 + y.up(4)}}
		level := 1 - 2*y.up(2) // or Across
		tally := NewTally(shapes, jobs, level)
		nodes := y.nodes()
		places := make([]Place, len(nodes))
		for k := range nodes {
			places[k] = tally.Place(&nodes[k])
			tally.Count(&nodes[k], places[k], 1)
		}
		for range y.up(10) {
			k := y.up(len(nodes))
			n := &nodes[k]
			tally.Count(n, places[k], -1)
			for d := range n.Free {
				n.Free[d] = Milli(250 * y.up(5))
			}
			n.CPU = int64(y.up(9))
			tally.Count(n, places[k], 1)
		}
		for k, sh := range shapes {
			if want := Diagnose(nodes, sh, Within{}).Split; tally.Splits[k] != want {
				rt.Fatalf("%s: %v, want %v", sh, tally.Splits[k], want)
			}
		}
		for k, j := range jobs {
			if want := Diagnose(nodes, j.Shape, Within{Pods: j.Pods, Level: level}).Split; tally.Gangs[k] != want {
				rt.Fatalf("gangs of %d %s within level %d: %v, want %v", j.Pods, j.Shape, level, tally.Gangs[k], want)
			}
			within, across := 0, 0
			for _, f := range Fits(nodes, j, level) {
				if f.Model != "" {
					within, across = within+f.Within, across+f.Across
				}
			}
			if f := tally.Fits[k]; f.Within != within || f.Across != across {
				rt.Fatalf("%s: %+v, want %d and %d", j, f, within, across)
			}
		}
	})
}
