package place

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core/cluster"
)

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
	// reserve is what must be left on nodes with GPUs: see [Placer.Reserve]; 0 if the
	// shape is not of a job without GPUs.
	reserve int64

	// lent says that some of its pools are of lent nodes.
	lent bool
	// soft is how many soft taints that the shape does not tolerate its pools have, nil if none has one.
	soft map[*cluster.Pool]int64

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
func (p *Placer) Shape(r *cluster.Request) *Shape { return p.shape(r, 0, false) }

// CPUOnly is Shape for a pod of a job without GPUs, which must leave the reserve.
func (p *Placer) CPUOnly(r *cluster.Request) *Shape { return p.shape(r, p.Reserve, false) }

// ShapeOnLent is Shape for pods that may also be on the devices that pods on standby lend.
func (p *Placer) ShapeOnLent(r *cluster.Request) *Shape { return p.shape(r, 0, true) }

func (p *Placer) shape(r *cluster.Request, reserve int64, lent bool) *Shape {
	if r.CPUMilli == 0 {
		reserve = 0 // it takes nothing of what is kept
	}
	if len(r.Selector)+len(r.AnyOf)+len(r.Tolerations) > 0 {
		sh := newShape(p.state, r, lent)
		sh.reserve = reserve
		return sh
	}
	if p.epoch != p.state.Epoch() || len(p.shapes) >= maxShapes {
		p.epoch = p.state.Epoch()
		clear(p.shapes)
	}
	k := shapeKey{keyOf(r), p.state.Amounts(r).ID(), reserve, lent}
	sh := p.shapes[k]
	if sh == nil {
		sh = newShape(p.state, r, lent)
		sh.reserve = reserve
		p.shapes[k] = sh
	}
	return sh
}

// shapeKey is a request without selectors and tolerations.
type shapeKey struct {
	requestKey
	others  cluster.AmountsID
	reserve int64
	lent    bool
}

// maxShapes is how many compiled requests are kept at hand.
const maxShapes = 1 << 12

// newShape compiles a request. It must be compiled again when the state has
// gained pools or the labels of nodes have changed.
func newShape(s *cluster.State, r *cluster.Request, lent bool) *Shape {
	sh := &Shape{CPU: r.CPUMilli, Mem: r.MemMiB, Others: s.Amounts(r), request: r, Named: len(r.Models) > 0, Mixed: len(r.Models) > 1, most: [2]int{-1, -1}}
	if r.GPU < cluster.WholeGPU {
		sh.Part = r.GPU
	} else {
		sh.GPUs = int(r.GPU / cluster.WholeGPU)
	}
	if len(r.Selector)+len(r.AnyOf) > 0 {
		sh.suits = make([]int8, s.Nodes())
	}
	for _, p := range s.Pools() {
		if p.Model == "" && r.GPU > 0 || !accepts(r.Models, p.Model) || !tolerated(p.Taints, r.Tolerations) || p.Lent && (!lent || r.GPU == 0) {
			continue
		}
		i := slices.IndexFunc(sh.models, func(m model) bool { return m.name == p.Model })
		if i < 0 {
			i = len(sh.models)
			sh.models = append(sh.models, model{name: p.Model})
		}
		m := &sh.models[i]
		sh.lent = sh.lent || p.Lent
		sh.countSoft(p)
		if p.Zone {
			m.zone = append(m.zone, p)
		} else {
			m.general = append(m.general, p)
		}
	}
	for i := range sh.models {
		// Untainted pools first: tainted nodes are kept for the pods that they are meant for. Lent
		// nodes last: their pods must leave when the owners return.
		slices.SortStableFunc(sh.models[i].general, func(a, b *cluster.Pool) int {
			return cmp.Or(cluster.LastIf(a.Lent, b.Lent), cmp.Compare(hardTaints(a), hardTaints(b)))
		})
	}
	sh.orderModels()
	return sh
}

// countSoft counts the soft taints of a pool that the shape does not tolerate.
func (sh *Shape) countSoft(p *cluster.Pool) {
	for _, t := range p.Taints {
		if t.Soft() && !cluster.Tolerates(sh.request.Tolerations, t) {
			if sh.soft == nil {
				sh.soft = map[*cluster.Pool]int64{}
			}
			sh.soft[p]++
		}
	}
}

// hardTaints counts the taints of a pool that repel pods.
func hardTaints(p *cluster.Pool) int {
	n := len(p.Taints)
	for _, t := range p.Taints {
		if t.Soft() {
			n--
		}
	}
	return n
}

// orderModels puts the models in the order in which they are tried: as the
// request lists them, the fastest first if it says how fast they are; nodes without GPUs first for
// pods that need none.
func (sh *Shape) orderModels() {
	rank := func(m model) int {
		if m.name == "" {
			return -1
		}
		return slices.Index(sh.request.Models, m.name)
	}
	slices.SortStableFunc(sh.models, func(a, b model) int {
		return cmp.Or(cmp.Compare(sh.request.SpeedOn(b.name), sh.request.SpeedOn(a.name)), rank(a)-rank(b))
	})
}

func accepts(models []string, model string) bool {
	return len(models) == 0 || slices.Contains(models, model)
}

func tolerated(taints []cluster.Taint, by []cluster.Toleration) bool {
	for _, t := range taints {
		if !t.Soft() && !cluster.Tolerates(by, t) {
			return false
		}
	}
	return true
}

// GPU returns how much GPU one pod takes.
func (sh *Shape) GPU() cluster.Milli { return sh.request.GPU }

// Takes returns how much a pod of the shape takes of the account of a resource: see
// [cluster.Request.Takes].
func (sh *Shape) Takes(account string) cluster.Milli { return sh.request.Takes(account) }

// Accepts reports whether pods of the shape may run in a pool, by its model and taints.
func (sh *Shape) Accepts(p *cluster.Pool) bool {
	for _, m := range sh.models {
		if slices.Contains(m.general, p) || slices.Contains(m.zone, p) {
			return true
		}
	}
	return false
}

// uses reports whether pods of the shape may run in the pool as pods of the unit, which
// may have to stay out of the dedicated zone.
func (sh *Shape) uses(pool *cluster.Pool, u *Unit) bool {
	return (!pool.Zone || u.usesZone()) && sh.Accepts(pool)
}

// eligible reports whether pods of the shape may run on the node as pods of the unit, by
// its model, taints, zone and labels, whatever is free there.
func (p *Placer) eligible(u *Unit, sh *Shape, id cluster.NodeID) bool {
	return sh.uses(p.state.Pool(id), u) && sh.selected(p.state, id)
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

// unlimited is how many pods fit where nothing that is counted limits them. A sum of it
// over all nodes is an int.
const unlimited = 1 << 30

// holds returns how many pods of the shape fit on the node now, by what it has free.
func (sh *Shape) holds(n *cluster.Node) int {
	return n.Times(sh.Others, sh.holdsBut(n, cluster.Need{Pods: n.PodsLeft(), CPU: sh.freeCPU(n), Mem: n.Mem}))
}

// freeCPU returns the cores of the node, in thousandths, that pods of the shape may take now.
func (sh *Shape) freeCPU(n *cluster.Node) int64 {
	if sh.reserve == 0 {
		return n.CPU
	}
	return n.CPU - n.Reserved(sh.reserve)
}

// LeavesReserve reports whether the node, with pods of the shape on it, has the cores left that the
// shape leaves for idle GPUs.
func (sh *Shape) LeavesReserve(n *cluster.Node) bool {
	return sh.reserve == 0 || sh.freeCPU(n) >= 0
}

// holdsBut is holds with another amount of pods, CPU and memory left on the node. Other
// resources are not looked at.
func (sh *Shape) holdsBut(n *cluster.Node, left cluster.Need) int {
	if sh.Part > 0 {
		return min(sh.capacity(0, left), n.Parts(sh.Part))
	}
	return sh.capacity(n.Free(), left)
}

// holdsEmpty returns how many pods of the shape fit on a node that is empty.
func (sh *Shape) holdsEmpty(n *cluster.NodeSpec) int {
	left := cluster.Need{Pods: n.MaxPods, CPU: n.CPUMilli, Mem: n.MemMiB}
	if n.MaxPods == 0 {
		left.Pods = unlimited
	}
	k := sh.capacity(n.GPUs, left)
	if sh.Part > 0 {
		k = min(k, n.GPUs*int(cluster.WholeGPU/sh.Part))
	}
	for _, a := range sh.request.Others {
		if a.Value > 0 {
			k = min(k, int(cluster.AmountOf(n.Others, a.Name)/a.Value))
		}
	}
	return sh.request.TimesFrom(n, ^uint64(0), k)
}

// need returns what pods of the shape need of a node beside GPUs.
func (sh *Shape) need(pods int) cluster.Need {
	return cluster.Need{Pods: pods, CPU: cluster.Times(pods, sh.CPU), Mem: cluster.Times(pods, sh.Mem), Others: sh.Others, Reserve: sh.reserve}
}

// needOne returns what one pod of the shape needs of a node beside GPUs.
func (sh *Shape) needOne() cluster.Need {
	return cluster.Need{Pods: 1, CPU: sh.CPU, Mem: sh.Mem, Others: sh.Others, Reserve: sh.reserve}
}

// capacity returns how many pods of the shape fit in a number of free GPUs and in the
// pods, CPU and memory that are left; parts of a GPU are not counted. None fit where CPU
// or memory is overdrawn, even pods that need neither.
func (sh *Shape) capacity(gpus int, left cluster.Need) int {
	if left.CPU < 0 || left.Mem < 0 {
		return 0
	}
	n := min(int64(left.Pods), unlimited)
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

// SlotsInAll returns how many pods of the shape all its pools hold, by GPUs
// alone.
func (sh *Shape) SlotsInAll() int {
	slots := 0
	for _, m := range sh.models {
		for _, pools := range [2][]*cluster.Pool{m.general, m.zone} {
			for _, pool := range pools {
				slots += sh.slots(pool)
			}
		}
	}
	return slots
}

// slots returns how many pods of the shape a pool holds, by GPUs alone.
func (sh *Shape) slots(pool *cluster.Pool) int {
	switch {
	case sh.GPUs > 0:
		return pool.Slots(sh.GPUs)
	case sh.Part > 0:
		return pool.PartSlots(sh.Part)
	}
	return unlimited
}

// String describes one pod: "8 GPUs", "0.25 GPU, 4 cores, 1024 MiB".
func (sh *Shape) String() string {
	var parts []string
	switch {
	case sh.GPUs == 1 || sh.Part > 0:
		parts = append(parts, sh.GPU().GPUs()+" GPU")
	case sh.GPUs > 1:
		parts = append(parts, sh.GPU().GPUs()+" GPUs")
	}
	if sh.CPU > 0 {
		parts = append(parts, fmt.Sprintf("%g cores", float64(sh.CPU)/1000))
	}
	if sh.Mem > 0 {
		parts = append(parts, fmt.Sprintf("%d MiB", sh.Mem))
	}
	for _, a := range sh.request.Others {
		if a.Value > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", a.Value, a.Name))
		}
	}
	if len(parts) == 0 {
		return "an empty pod"
	}
	return strings.Join(parts, ", ")
}

// on names the models asked for: " of H800 or A100"; empty for any.
func (sh *Shape) on() string {
	if len(sh.request.Models) == 0 {
		return ""
	}
	return " of " + strings.Join(sh.request.Models, " or ")
}
