// Package place decides where pods go among the nodes with room: Kant's
// Resource-aware Scheduler (RSCH, §3.3).
package place

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// Unit is what is placed together: a gang, or a job whose pods are placed one
// by one.
type Unit struct {
	// Job is the slot of the job, the owner of its pods.
	Job      int32
	Strategy Strategy
	// Whole units are gangs.
	Whole bool
	// Spread says that the job has several pods, to be kept on different nodes
	// by the strategies that spread.
	Spread bool
	// Inference units may use the dedicated zone first, under ESpread; others
	// use it last, or not at all when it is Exclusive.
	Inference bool
	Exclusive bool
	Tasks     []Task
	// Required and Preferred are level numbers of the state, -1 for none.
	Required, Preferred int
	// Joins says that the job has pods already, in the domain Home of the level
	// Required: the rest must join them there.
	Joins bool
	Home  int32
	// OneModel says that pods that name no model and need GPUs are all to be on one:
	// the unit is a gang, or what is left of one of which no such pod runs yet.
	OneModel bool
	// Exhausted says that the last search for places for the unit gave up, see
	// [Placer.Exhausted].
	Exhausted bool
	// Absent returns how many of the pods with a label in a domain are not there yet,
	// as their places are kept for them, or are about to leave. nil when there are none.
	Absent func(label string, level int, domain int32) int
	// Left are nodes that pods of the job left for others that have not started yet:
	// it does not go back there meanwhile.
	Left []cluster.NodeID
	// Room returns how much more of a model the unit's queue may use; nil when
	// there is no limit.
	Room func(model string) cluster.Milli
}

// Task is a number of pods that are alike. Pods lists the numbers of those to
// place.
type Task struct {
	*Shape
	Pods []int32
	// Terms are the affinities of each pod.
	Terms []Term
	// Asked is what the pods ask for where Shape is less, as their gang is on one of the
	// models that they accept: they are spread over the domains of all. nil: Shape.
	Asked *Shape
	// After returns how many pods with a label in a domain (of anyLevel: in all) of the
	// unit's other tasks may come after those of the task: how evenly these are spread, and
	// whether one is the first of its group, does not depend on them. nil when there are none.
	After func(label string, level int, domain int32) int
}

// bound reports whether where the pods of the task may be depends on other pods.
func (t *Task) bound() bool { return len(t.Terms) > 0 }

// Term is a compiled affinity term.
type Term struct {
	cluster.Term
	Level int
	// Own says that the pods of the task itself carry the label. Mates lists the
	// unit's other tasks of which pods do that are to be placed with them.
	Own   bool
	Mates []int
	// Theirs says of an anti-affinity that it is that of the pods with the label: where
	// none of them may be, as the domain is not known, the task's pods may.
	Theirs bool
	// fewest is how many pods with the label the eligible domain has that has the
	// fewest, once it is known, after so many changes of labels; see Placer.fewest.
	fewest  int
	known   bool
	changes uint64
}

// Shape is a request compiled against the pools of a state.
type Shape struct {
	// GPUs counts whole devices, Part is a share of one; one of them is 0.
	GPUs     int
	Part     cluster.Milli
	CPU, Mem int64
	Others   *cluster.Amounts
	// Named says that the request names models, Mixed that it names several, on which
	// the pods of one gang may be mixed.
	Named, Mixed bool

	request *cluster.Request
	models  []model
	// general is the general pools of all models, once they have been asked
	// for; ranks rank nodes of pools for the strategies that score.
	general []*cluster.Pool
	ranks   []*ranking
	// most is how many pods all nodes hold when they are empty, without those of
	// the dedicated zone and with them; -1 when unknown.
	most [2]int
	// suits caches the selector by node: 0 unknown, 1 yes, 2 no.
	suits []int8
	// reach caches the domains that the shape may use, by level.
	reach []reach
}

// model is the pools of one GPU model that a shape may use: general ones,
// then those with taints it tolerates; the dedicated zone apart.
type model struct {
	name    string
	general []*cluster.Pool
	zone    []*cluster.Pool
}

// Shape returns the compiled request, the same for all who ask for the same. It
// must be asked for again when the state has another epoch.
func (p *Placer) Shape(r *cluster.Request) *Shape {
	if len(r.Selector)+len(r.AnyOf)+len(r.Tolerations) > 0 {
		return newShape(p.state, r)
	}
	if p.epoch != p.state.Epoch() || len(p.shapes) >= maxShapes {
		p.epoch = p.state.Epoch()
		clear(p.shapes)
	}
	k := shapeKey{keyOf(r), p.state.Amounts(r.Others).ID()}
	sh := p.shapes[k]
	if sh == nil {
		sh = newShape(p.state, r)
		p.shapes[k] = sh
	}
	return sh
}

// shapeKey is a request without selectors and tolerations.
type shapeKey struct {
	requestKey
	others cluster.AmountsID
}

// maxShapes is how many compiled requests are kept at hand.
const maxShapes = 1 << 12

// newShape compiles a request. It must be compiled again when the state has
// gained pools or the labels of nodes have changed.
func newShape(s *cluster.State, r *cluster.Request) *Shape {
	sh := &Shape{CPU: r.CPUMilli, Mem: r.MemMiB, Others: s.Amounts(r.Others), request: r, Named: len(r.Models) > 0, Mixed: len(r.Models) > 1, most: [2]int{-1, -1}}
	if r.GPU < cluster.WholeGPU {
		sh.Part = r.GPU
	} else {
		sh.GPUs = int(r.GPU / cluster.WholeGPU)
	}
	if len(r.Selector)+len(r.AnyOf) > 0 {
		sh.suits = make([]int8, s.Nodes())
	}
	for _, p := range s.Pools() {
		if p.Model == "" && r.GPU > 0 || !accepts(r.Models, p.Model) || !tolerated(p.Taints, r.Tolerations) {
			continue
		}
		i := slices.IndexFunc(sh.models, func(m model) bool { return m.name == p.Model })
		if i < 0 {
			i = len(sh.models)
			sh.models = append(sh.models, model{name: p.Model})
		}
		m := &sh.models[i]
		if p.Zone {
			m.zone = append(m.zone, p)
		} else {
			m.general = append(m.general, p)
		}
	}
	for i := range sh.models {
		// Untainted pools first: tainted ones are for those who must be there.
		slices.SortStableFunc(sh.models[i].general, func(a, b *cluster.Pool) int { return len(a.Taints) - len(b.Taints) })
	}
	sh.orderModels()
	return sh
}

// orderModels puts the models in the order in which they are tried: as the
// request lists them; nodes without GPUs first for pods that need none.
func (sh *Shape) orderModels() {
	rank := func(m model) int {
		if m.name == "" {
			return -1
		}
		return slices.Index(sh.request.Models, m.name)
	}
	slices.SortStableFunc(sh.models, func(a, b model) int { return rank(a) - rank(b) })
}

func accepts(models []string, model string) bool {
	return len(models) == 0 || slices.Contains(models, model)
}

func tolerated(taints []cluster.Taint, by []cluster.Toleration) bool {
	for _, t := range taints {
		if !slices.ContainsFunc(by, func(o cluster.Toleration) bool {
			return (o.Key == "" || o.Key == t.Key) && (o.Value == "" || o.Value == t.Value)
		}) {
			return false
		}
	}
	return true
}

// GPU returns how much GPU one pod takes.
func (sh *Shape) GPU() cluster.Milli { return sh.request.GPU }

// Accepts reports whether pods of the shape may run in a pool.
func (sh *Shape) Accepts(p *cluster.Pool) bool {
	for _, m := range sh.models {
		if slices.Contains(m.general, p) || slices.Contains(m.zone, p) {
			return true
		}
	}
	return false
}

// Allowed returns how many pods of the shape, which take GPU, a quota allows on the
// models that the shape accepts: on one of them, or on all together where pods may be
// mixed. Each pod is on one model, so that what is left of two never makes one pod.
func (sh *Shape) Allowed(room func(model string) cluster.Milli) int {
	most, sum := 0, 0
	for _, m := range sh.models {
		pods := int(min(max(room(m.name), 0)/sh.GPU(), 1<<30))
		most, sum = max(most, pods), sum+pods
	}
	if sh.Mixed {
		return sum
	}
	return most
}

// Models returns the models whose nodes the shape may use, in the order in
// which they are tried.
func (sh *Shape) Models() []string {
	out := make([]string, len(sh.models))
	for i, m := range sh.models {
		out[i] = m.name
	}
	return out
}

// selected reports whether the node's labels satisfy the shape's selector.
func (sh *Shape) selected(s *cluster.State, id cluster.NodeID) bool {
	if sh.suits == nil {
		return true
	}
	if sh.suits[id] == 0 {
		sh.suits[id] = 2
		if sh.request.Allows(s.Node(id).Spec.Labels) {
			sh.suits[id] = 1
		}
	}
	return sh.suits[id] == 1
}

// holds returns how many pods of the shape the node can take now, by what it has
// free.
func (sh *Shape) holds(n *cluster.Node) int {
	return n.Times(sh.Others, sh.holdsBut(n, cluster.Need{Pods: n.PodsLeft(), CPU: n.CPU, Mem: n.Mem}))
}

// holdsBut is holds with so much left beside GPUs, whatever is left of other
// resources.
func (sh *Shape) holdsBut(n *cluster.Node, left cluster.Need) int {
	if sh.Part > 0 {
		return min(capacity(sh, 0, left), n.Parts(sh.Part))
	}
	return capacity(sh, n.Free(), left)
}

// need returns what pods of the shape need of a node beside GPUs.
func (sh *Shape) need(pods int) cluster.Need {
	return cluster.Need{Pods: pods, CPU: cluster.Times(pods, sh.CPU), Mem: cluster.Times(pods, sh.Mem), Others: sh.Others}
}

// capacity returns how many pods of a shape with whole GPUs, or without any,
// fit in so many GPUs and the pods, CPU and memory that are left: none where those
// are overdrawn.
func capacity(sh *Shape, gpus int, left cluster.Need) int {
	if left.CPU < 0 || left.Mem < 0 {
		return 0
	}
	n := min(int64(left.Pods), 1<<30)
	if sh.GPUs > 0 {
		n = min(n, int64(gpus/sh.GPUs))
	}
	if sh.CPU > 0 {
		n = min(n, left.CPU/sh.CPU)
	}
	if sh.Mem > 0 {
		n = min(n, left.Mem/sh.Mem)
	}
	return int(n)
}
