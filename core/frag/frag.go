// Package frag determines which idle GPUs no pod of a shape can use, and why (fragmentation
// by cause, ASI §4.1).
//
// The question is about one moment of a cluster and one shape: what a pod requests. Pods of
// the shape, and no others, are placed until none fits. What they take is allocatable. Every
// other idle milli-GPU has exactly one cause, so that the causes, what is allocatable and what
// is unusable add up to what is idle, exactly:
//
//   - Idle is what no pod holds, of all GPUs of all nodes that are there.
//   - Unusable is what is idle on unhealthy GPUs and, of the healthy ones, on nodes that are
//     cordoned or tainted: no pod would get it, whatever its shape.
//   - Fractional: for a shape of whole GPUs, the idle parts of GPUs that are partly used. For
//     a shape of a part of a GPU, what is left of each GPU once it holds as many pods as it can.
//   - Stranded, for a shape of g whole GPUs: the remainder of the node's wholly idle GPUs
//     divided by g; on a node with fewer than g that is all of them.
//   - CPU, Memory, Pods, Other: GPUs of pods for which the node has enough GPUs, but
//     not enough of this resource. The resources are checked in this order, the others by
//     name, and each counts for the pods that those before it left.
//   - Topology, for a gang of pods within one domain: GPUs that single pods can use, and that
//     are left in a domain once it holds as many gangs as it can. Nodes whose
//     domain is not known hold none of the gang. Unless models may be mixed, each model of a
//     domain is by itself.
//   - Gang, for a gang across domains: the same, for the whole cluster.
//
// Pods of one shape are alike and nodes are independent, so placing as many as fit on each
// node is optimal; so is placing as many gangs as fit in each domain. A node costs
// O(GPUs + resources) for each shape.
package frag

import (
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// Milli is thousandths of a GPU.
type Milli = cluster.Milli

// Cause is why idle GPU cannot be used, or Allocatable: see the package.
type Cause uint8

// The causes.
const (
	Allocatable Cause = iota
	Fractional
	Stranded
	CPU
	Memory
	Pods
	Other
	Topology
	Gang
	Cordoned
	Tainted
	Unhealthy
	NumCauses
)

// String returns the cause as files and tables have it.
func (c Cause) String() string {
	return [NumCauses]string{
		"allocatable", "fractional", "stranded", "cpu", "memory", "pods", "other", "topology", "gang", "cordoned", "tainted", "unhealthy",
	}[c]
}

// Unusable reports whether no pod gets the GPU, whatever its shape.
func (c Cause) Unusable() bool { return c >= Cordoned }

// Split is idle GPU by cause.
type Split [NumCauses]Milli

// Idle returns the sum.
func (s *Split) Idle() Milli {
	sum := Milli(0)
	for _, m := range s {
		sum += m
	}
	return sum
}

// Unusable returns what no pod gets, whatever its shape.
func (s *Split) Unusable() Milli { return s[Cordoned] + s[Tainted] + s[Unhealthy] }

// Add adds by times another split.
func (s *Split) Add(o *Split, by int) {
	for c := range s {
		s[c] += Milli(by) * o[c]
	}
}

// Node is a node with what no pod holds of it.
type Node struct {
	// Spec describes the node. Its Unhealthy is ignored; Healthy counts.
	Spec    *cluster.NodeSpec
	Healthy uint64
	// Free is what is idle of each GPU, healthy or not; nil without GPUs.
	Free []Milli
	// CPU and Mem are in thousandths of a core and MiB; negative where the node has become
	// smaller than its pods. Pods is how many more the node takes.
	CPU, Mem int64
	Pods     int
	// Others is what is free of other resources, sorted by name.
	Others []cluster.Amount
	// Closed is Cordoned or Tainted while the node takes no pods, else Allocatable.
	Closed Cause
	pods   int // on the node
}

// Empty returns a node as described, without pods. A taint closes it.
func Empty(spec *cluster.NodeSpec) Node {
	n := Node{Spec: &cluster.NodeSpec{}, Free: slices.Repeat([]Milli{cluster.WholeGPU}, spec.GPUs), Pods: anyPods}
	n.Describe(spec)
	return n
}

// anyPods is how many more pods a node takes that has no limit.
const anyPods = 1 << 30

// Describe changes the description of the node, which must have as many GPUs. Its pods stay.
func (n *Node) Describe(spec *cluster.NodeSpec) {
	n.CPU += spec.CPUMilli - n.Spec.CPUMilli
	n.Mem += spec.MemMiB - n.Spec.MemMiB
	if n.Pods = anyPods; spec.MaxPods > 0 {
		n.Pods = spec.MaxPods - n.pods
	}
	others := slices.Clone(spec.Others)
	for i, a := range others {
		others[i].Value -= cluster.AmountOf(n.Spec.Others, a.Name) - cluster.AmountOf(n.Others, a.Name)
	}
	n.Others = others
	n.Spec = spec
	n.Healthy = ^uint64(0) >> (64 - spec.GPUs)
	for _, d := range spec.Unhealthy {
		n.Healthy &^= 1 << d
	}
	switch {
	case spec.Cordoned:
		n.Closed = Cordoned
	case slices.ContainsFunc(spec.Taints, func(t cluster.Taint) bool { return !t.Soft() }):
		n.Closed = Tainted
	default:
		n.Closed = Allocatable
	}
}

// Take gives a pod its share of each of the GPUs, and CPU and memory; by -1 takes them back.
func (n *Node) Take(gpus uint64, share Milli, cpuMilli, memMiB int64, by int) {
	for ; gpus != 0; gpus &= gpus - 1 {
		n.Free[bits.TrailingZeros64(gpus)] -= Milli(by) * share
	}
	n.CPU -= int64(by) * cpuMilli
	n.Mem -= int64(by) * memMiB
	if n.pods += by; n.Spec.MaxPods > 0 {
		n.Pods = n.Spec.MaxPods - n.pods
	}
}

// TakeOthers gives a pod other resources, each of which the node may have.
func (n *Node) TakeOthers(amounts []cluster.Amount) {
	for _, a := range amounts {
		for i := range n.Others {
			if n.Others[i].Name == a.Name {
				n.Others[i].Value -= a.Value
			}
		}
	}
}

// At returns a node of a state. Taints do not close it: the caller knows what is tolerated.
func At(s *cluster.State, id cluster.NodeID) Node {
	from := s.Node(id)
	n := Node{Spec: from.Spec, Healthy: from.Healthy(), CPU: from.CPU, Mem: from.Mem, Pods: min(from.PodsLeft(), anyPods)}
	for d := range from.Spec.GPUs {
		n.Free = append(n.Free, from.PartOn(d))
	}
	for _, a := range from.Spec.Others {
		n.Others = append(n.Others, cluster.Amount{Name: a.Name, Value: s.FreeAmount(id, a.Name)})
	}
	if !from.Open() {
		n.Closed = Cordoned
	}
	return n
}

// idle is what is idle of a node's GPUs.
type idle struct {
	whole   int   // healthy GPUs that are wholly idle
	healthy int   // healthy GPUs
	parts   Milli // of the other healthy ones
	sick    Milli // of unhealthy ones
}

func (n *Node) idle() idle {
	i := idle{healthy: bits.OnesCount64(n.Healthy)}
	for d, free := range n.Free {
		switch {
		case n.Healthy>>d&1 == 0:
			i.sick += free
		case free == cluster.WholeGPU:
			i.whole++
		default:
			i.parts += free
		}
	}
	return i
}

// Split returns the causes of a node's idle GPU for single pods: none of it is Topology or
// Gang. O(GPUs + resources).
func (sh *Shape) Split(n *Node) Split {
	s, _ := sh.split(n, n.idle())
	return s
}

// split is Split, and returns the other resource that keeps off most pods, by its place in
// the shape; -1 when none does.
func (sh *Shape) split(n *Node, i idle) (s Split, other int) {
	s[Unhealthy] = i.sick
	if n.Closed != Allocatable {
		s[n.Closed] = Milli(i.whole)*cluster.WholeGPU + i.parts
		return s, -1
	}
	pods := 0
	if g := int(sh.GPU / cluster.WholeGPU); g > 0 {
		pods = i.whole / g
		s[Stranded] = Milli(i.whole%g) * cluster.WholeGPU
		s[Fractional] = i.parts
	} else {
		pods, s[Fractional] = sh.parts(n)
	}
	fit := func(c Cause, holds int) {
		if holds < pods {
			s[c] += Milli(pods-holds) * sh.GPU
			pods = holds
		}
	}
	fit(CPU, holds(n.CPU, sh.CPUMilli))
	fit(Memory, holds(n.Mem, sh.MemMiB))
	fit(Pods, n.Pods)
	other = -1
	for k, a := range sh.Others {
		before := pods
		fit(Other, holds(cluster.AmountOf(n.Others, a.Name), a.Value))
		if pods < before {
			other = k // the last is the one that the most is lost to, as all of it must come
		}
	}
	s[Allocatable] = Milli(pods) * sh.GPU
	return s, other
}

// parts returns how many pods of a part of a GPU the healthy GPUs hold, and what they leave.
func (sh *Shape) parts(n *Node) (pods int, rest Milli) {
	for d, free := range n.Free {
		if n.Healthy>>d&1 == 1 {
			pods += int(free / sh.GPU)
			rest += free % sh.GPU
		}
	}
	return pods, rest
}

// holds returns how many pods that each need this much there is room for.
func holds(free, need int64) int {
	if need == 0 {
		return anyPods
	}
	return int(min(max(0, free)/need, anyPods))
}
