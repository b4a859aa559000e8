package frag

import (
	"cmp"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core/cluster"
)

// domains counts how many single pods there is room for, by domain and model.
type domains struct {
	in    Within
	index map[domain]int
	list  []room
}

// domain is a domain of a level by its whole path, "" when it is not known, and a model, ""
// for all of them.
type domain struct{ path, model string }

type room struct {
	domain
	known bool
	pods  int
}

func newDomains(in Within) *domains { return &domains{in: in, index: map[domain]int{}} }

// add adds a node's room for pods.
func (d *domains) add(n *Node, pods int) {
	if d.in.Pods < 2 {
		return
	}
	at, known := d.of(n)
	k, ok := d.index[at]
	if !ok {
		k = len(d.list)
		d.index[at] = k
		d.list = append(d.list, room{domain: at, known: known})
	}
	d.list[k].pods += pods
}

func (d *domains) of(n *Node) (at domain, known bool) {
	if !d.in.Mixed {
		at.model = n.Spec.Model
	}
	if d.in.Level == Across {
		return at, true
	}
	at.path, known = Path(n.Spec, d.in.Level)
	return at, known
}

// Path returns the domain of a node at a level, with those above it: names need not be
// unique. It is false when a name is missing, or there is no such level.
func Path(spec *cluster.NodeSpec, level int) (string, bool) {
	if level < 0 || level >= len(spec.Domains) || slices.Contains(spec.Domains[:level+1], "") {
		return "", false
	}
	return strings.Join(spec.Domains[:level+1], "/"), true
}

// gangs moves what no gang can use from what is allocatable.
func (r *Report) gangs(d *domains) {
	cause := Topology
	if r.Within.Level == Across {
		cause = Gang
	}
	for _, at := range d.list {
		left, missing := at.pods, 0
		if at.known {
			left %= r.Within.Pods
			missing = r.Within.Pods - left
		}
		if left == 0 {
			continue
		}
		gpu := Milli(left) * r.Shape.GPU
		r.Split[Allocatable] -= gpu
		r.Split[cause] += gpu
		r.Findings = append(r.Findings, Finding{
			Domain: at.path, Model: at.model, Cause: cause, GPU: gpu, Missing: int64(Milli(missing) * r.Shape.GPU), Never: !at.known,
			level: r.Within.Name, shape: r.Shape.String(),
		})
	}
}

// Fit says how many jobs fit, one after another and nothing else, on one GPU model or, of
// Model "", on all models mixed: with each within one domain of a level, and across them.
type Fit struct {
	Model          string
	Within, Across int
}

// Fits says how many of a job fit on each GPU model of the nodes, sorted by name, and at the
// end on all of them mixed (ASI, Fig. 14). A job must be within one domain of level. O(nodes x (GPUs + resources)).
func Fits(nodes []Node, j Job, level int) []Fit {
	models := map[string]*Fit{"": {}}
	rooms := map[string]int{} // for pods, by model; "" is all
	domains := map[domain]int{}
	for k := range nodes {
		n := &nodes[k]
		if len(n.Free) == 0 {
			continue
		}
		if models[n.Spec.Model] == nil {
			models[n.Spec.Model] = &Fit{Model: n.Spec.Model}
		}
		s := j.Shape.Split(n)
		pods := int(s[Allocatable] / j.Shape.GPU)
		path, known := Path(n.Spec, level)
		for _, model := range []string{n.Spec.Model, ""} {
			rooms[model] += pods
			if known {
				domains[domain{path, model}] += pods
			}
		}
	}
	for at, pods := range domains {
		models[at.model].Within += pods / j.Pods
	}
	var all []Fit
	for model, f := range models {
		f.Across = rooms[model] / j.Pods
		all = append(all, *f)
	}
	slices.SortFunc(all, func(a, b Fit) int {
		if (a.Model == "") != (b.Model == "") {
			return cmp.Compare(len(b.Model), len(a.Model)) // the mixed one is last
		}
		return strings.Compare(a.Model, b.Model)
	})
	return all
}
