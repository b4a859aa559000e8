package frag

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core/cluster"
)

// Within says where a gang of pods must be. The zero value stands for single pods.
type Within struct {
	// Pods is the size of the gang; below 2 it is single pods.
	Pods int
	// Level is the number of a level of the topology, Across for anywhere. Name is what it
	// is called, for texts.
	Level int
	Name  string
	// Mixed lets pods of the gang be on several GPU models.
	Mixed bool
}

// Across is the level of which the whole cluster is one domain.
const Across = -1

// Report is the idle GPU of nodes by cause.
type Report struct {
	Shape  Shape
	Within Within
	Split  Split
	// Others is what is lost to each of the shape's other resources, in their order.
	Others []Milli
	// Findings are by cause; those of one, the most GPU first, then by name.
	Findings []Finding
}

// Finding is idle GPU with one cause in one place.
type Finding struct {
	// Node is a node; Domain, for Topology and Gang, a domain of the level by its whole path,
	// "" for nodes of unknown domain or the whole cluster. Model is the GPU model there, ""
	// for several.
	Node, Domain, Model string
	Cause               Cause
	GPU                 Milli
	// Resource names the resource that is lacking, for Other.
	Resource string
	// Missing is how much more must be free for one more pod of the shape, or one more
	// gang: milli-GPU (for Fractional of a shape of whole GPUs, for the idle parts to be whole
	// GPUs), or in the unit of the resource that is lacking.
	Missing int64
	// Never says that pods hold less than Missing of it: nothing that could be moved away
	// would help. All is how much the node has of it in total.
	Never bool
	All   int64
	// level is the name of Domain's level.
	level string
	shape string
}

// Diagnose splits the idle GPU of nodes by cause, for pods of a shape, single or in a gang. Nodes without GPUs may be among them. O(nodes x (GPUs + resources)), and to sort what
// is found.
func Diagnose(nodes []Node, sh Shape, in Within) Report {
	r := Report{Shape: sh, Within: in, Others: make([]Milli, len(sh.Others))}
	domains := newDomains(in)
	for k := range nodes {
		n := &nodes[k]
		i := n.idle()
		s, other := sh.split(n, i)
		r.Split.Add(&s, 1)
		for c := Fractional; c < NumCauses; c++ {
			if s[c] > 0 {
				r.Findings = append(r.Findings, sh.finding(n, i, &s, c, other))
			}
		}
		r.addOthers(n, &s)
		if s[Allocatable] > 0 {
			domains.add(n, int(s[Allocatable]/sh.GPU))
		}
	}
	r.gangs(domains)
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Cause, b.Cause), cmp.Compare(b.GPU, a.GPU), strings.Compare(a.Node, b.Node), strings.Compare(a.Domain, b.Domain), strings.Compare(a.Model, b.Model))
	})
	return r
}

// addOthers adds what a node loses to each of the other resources: each counts for the pods
// that those before it left.
func (r *Report) addOthers(n *Node, s *Split) {
	if s[Other] == 0 {
		return
	}
	pods := int((s[Allocatable] + s[Other]) / r.Shape.GPU)
	for k, a := range r.Shape.Others {
		if fit := holds(cluster.AmountOf(n.Others, a.Name), a.Value); fit < pods {
			r.Others[k] += Milli(pods-fit) * r.Shape.GPU
			pods = fit
		}
	}
}

// finding says what would free a node's GPU of one cause.
func (sh *Shape) finding(n *Node, i idle, s *Split, c Cause, other int) Finding {
	f := Finding{Node: n.Spec.Name, Model: n.Spec.Model, Cause: c, GPU: s[c], shape: sh.String()}
	lack := func(need, free, all int64) {
		// One more pod than there is room for by this resource. Those that the resource before
		// left are at least that many.
		f.Missing = need*(max(0, free)/need+1) - free
		f.All, f.Never = all, free+f.Missing > all
	}
	switch c {
	case Fractional:
		sh.fractional(n, i, &f)
	case Stranded:
		g := int(sh.GPU / cluster.WholeGPU)
		f.Missing = int64(Milli(g-i.whole%g) * cluster.WholeGPU)
		f.All = int64(Milli(i.healthy) * cluster.WholeGPU)
		f.Never = Milli(i.healthy-i.whole)*cluster.WholeGPU < Milli(f.Missing)
	case CPU:
		lack(sh.CPUMilli, n.CPU, n.Spec.CPUMilli)
	case Memory:
		lack(sh.MemMiB, n.Mem, n.Spec.MemMiB)
	case Pods:
		f.Missing, f.All = 1, int64(n.Spec.MaxPods)
	case Other:
		a := sh.Others[other]
		f.Resource = a.Name
		lack(a.Value, cluster.AmountOf(n.Others, a.Name), cluster.AmountOf(n.Spec.Others, a.Name))
	}
	return f
}

// fractional says what would free parts of GPUs: that pods leave the GPUs that they share, so
// that these become whole or, for a shape of a part, that one of them holds one more pod.
func (sh *Shape) fractional(n *Node, i idle, f *Finding) {
	if sh.GPU >= cluster.WholeGPU {
		for d, free := range n.Free {
			if n.Healthy>>d&1 == 1 && free > 0 && free < cluster.WholeGPU {
				f.Missing += int64(cluster.WholeGPU - free)
			}
		}
		return
	}
	for d, free := range n.Free {
		if n.Healthy>>d&1 == 0 {
			continue
		}
		if need := sh.GPU - free%sh.GPU; free+need <= cluster.WholeGPU && (f.Missing == 0 || int64(need) < f.Missing) {
			f.Missing = int64(need)
		}
	}
	if f.Missing == 0 {
		f.Missing, f.Never = int64(sh.GPU), true
	}
}

// Unit is the unit of Missing: "milli-GPU", "milli-cores", "MiB", "pods", or the name of a
// resource; "" if nothing is missing.
func (f *Finding) Unit() string {
	switch f.Cause {
	case Fractional, Stranded, Topology, Gang:
		return "milli-GPU"
	case CPU:
		return "milli-cores"
	case Memory:
		return "MiB"
	case Pods:
		return "pods"
	}
	return f.Resource
}

// Advice says in words what would free the GPU.
func (f Finding) Advice() string {
	gpus := count(Milli(f.Missing).GPUs(), "GPU")
	switch f.Cause {
	case Fractional:
		if f.Never {
			return fmt.Sprintf("nothing: a GPU is no multiple of %s", f.shape)
		}
		return fmt.Sprintf("move %s of pods off the shared GPUs of %s", gpus, f.Node)
	case Stranded:
		if f.Never {
			return fmt.Sprintf("nothing: %s has %s healthy in all", f.Node, count(Milli(f.All).GPUs(), "GPU"))
		}
		return fmt.Sprintf("move %s off %s", gpus, f.Node)
	case CPU:
		return f.more(count(Milli(f.Missing).GPUs(), "core"), count(Milli(f.All).GPUs(), "core"))
	case Memory:
		return f.more(gib(f.Missing), gib(f.All))
	case Pods:
		return f.more(count(fmt.Sprint(f.Missing), "pod"), count(fmt.Sprint(f.All), "pod"))
	case Other:
		return f.more(fmt.Sprintf("%d %s", f.Missing, f.Resource), fmt.Sprintf("%d %s", f.All, f.Resource))
	case Topology:
		if f.Never {
			return fmt.Sprintf("label these nodes: their %s is not known", f.level)
		}
		return fmt.Sprintf("level %s: %s more for such pods in %s", f.level, gpus, f.place())
	case Gang:
		return fmt.Sprintf("%s more for such pods in %s", gpus, f.place())
	case Cordoned:
		return fmt.Sprintf("uncordon %s", f.Node)
	case Tainted:
		return fmt.Sprintf("remove the taints of %s, or tolerate them", f.Node)
	case Unhealthy:
		return fmt.Sprintf("repair the GPUs of %s", f.Node)
	}
	return ""
}

func (f *Finding) more(missing, has string) string {
	if f.Never {
		return fmt.Sprintf("nothing: %s has %s in all", f.Node, has)
	}
	return fmt.Sprintf("%s more on %s", missing, f.Node)
}

// place names a domain by the last part of its path, and the model of a whole cluster.
func (f *Finding) place() string {
	where := f.Domain[strings.LastIndexByte(f.Domain, '/')+1:]
	if where == "" {
		where = "the cluster"
	}
	if f.Model != "" && f.Cause == Gang {
		where += " on " + f.Model
	}
	return where
}

// count writes a number of things.
func count(n, what string) string {
	if n != "1" {
		what += "s"
	}
	return n + " " + what
}

func gib(mib int64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", float64(mib)/1024), "0"), ".") + " GiB"
}
