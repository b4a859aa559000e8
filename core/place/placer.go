package place

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// Placer places units in a state. What it places stands in the state's
// journal: the caller commits it or rolls it back.
type Placer struct {
	state *cluster.State
	// Mix is the requests that come; the caller reports them with Observe.
	Mix *Mix
	// Reserve is the share, in thousandths, of the cores of each idle GPU that pods of jobs
	// without GPUs leave: see [Placer.CPUOnly] and [cluster.Node.Reserved].
	Reserve int64
	// PreferenceWeight is how many idle GPUs more than on the node that the strategy would take a pod leaves beside
	// it for 100 points of what it prefers; 0: preferences break ties only. See prefer.go.
	PreferenceWeight cluster.Milli
	// Wanted returns how much a model is wanted, as a share of its GPUs, in thousandths, for an LP job
	// or an HP job. nil: jobs take the fastest model, wanted or not.
	Wanted func(model string, lp bool) int64
	// Role says what the owner of a pod is to jobs without GPUs, and GPUUse the share, in
	// thousandths, that jobs with GPUs use of the cores that they request: for [LeastHarm].
	Role      func(job int32) Role
	GPUUse    int64
	scorers   [numStrategies]scorer // made when first asked for
	spot      [2]*spotRank          // for HP and for LP pods
	togethers []*together           // made when first asked for
	shapes    map[shapeKey]*Shape   // compiled in epoch
	fields    []*field
	epoch     uint64
	drawn     uint64 // random numbers drawn
	// out collects what was placed for the current unit.
	out []Placed
	// last is where the last pod of the unit went, -1 at first.
	last cluster.NodeID
	// usage is what the pods of the unit take of each account so far.
	usage   []accountUsage
	tally   tally
	entries []entry
	// bounds are the domains of the groups that are being placed: see nested.go.
	bounds []bound
	// relaxed says that groups which are preferred may be in wider domains.
	relaxed bool
	// steps counts the steps of the current search; exhausted says that a search gave up.
	steps     int
	exhausted bool
}

// Placed is a pod that was placed.
type Placed struct {
	Pod   int32
	Task  int
	Alloc cluster.Alloc
}

// NewPlacer returns a placer for a state.
func NewPlacer(s *cluster.State) *Placer {
	return &Placer{state: s, Mix: NewMix(s), shapes: map[shapeKey]*Shape{}}
}

// Pods places as many pods of the unit as it can, task by task in their order, each by
// itself. Where pods must all be on one model, it stops after the first of them, whose model
// binds the others: the caller asks again. The result is valid until the next call.
func (p *Placer) Pods(u *Unit) []Placed {
	p.reset()
	p.settle(u)
	for t := range u.Tasks {
		for _, pod := range u.Tasks[t].Pods {
			if !p.pod(u, t, pod, nil) {
				break // the other pods of the task are alike
			}
			if u.Required >= 0 && !u.Joins {
				u.Joins, u.Home = true, p.state.Domain(p.last, u.Required)
			}
			bindsModel := u.OneModel && !u.Tasks[t].Named && u.Tasks[t].GPU() > 0
			if bindsModel {
				return p.out
			}
		}
	}
	return p.out
}

// settle chooses the domain for the pods of a unit that start one by one and must be in one
// domain: where a gang of them would be. Without it, the first of three pods would go to
// a group of one free GPU, which it fits most tightly, and the others would have to
// wait there. If no domain holds all of them, the first pod decides where it fits.
func (p *Placer) settle(u *Unit) {
	pods := 0
	for t := range u.Tasks {
		pods += len(u.Tasks[t].Pods)
	}
	if u.Required < 0 || u.Joins || pods < 2 {
		return
	}
	gang, mark := *u, p.state.Mark() // a trial, taken back below
	gang.Whole = true
	if placed, ok := p.Gang(&gang); ok {
		u.Joins, u.Home = true, p.state.Domain(placed[0].Alloc.Node, u.Required)
	}
	p.takeBack(mark)
	p.exhausted = false
}

// stage is a set of pools that are searched together, by one strategy.
type stage struct {
	pools    []*cluster.Pool
	strategy Strategy
	// lasts is until when nodes must be lent at least; 0 for any.
	lasts cluster.Time
	// prefers is the task whose preferences choose between nodes; nil if it has none.
	prefers *Task
}

// stages yields where to look for a pod, in order: each model's general pools, then the
// dedicated zone; for inference pods under ESpread the zone first (Kant §3.3.4). Strategies
// that score nodes compare the general nodes of all models in one stage, unless the models have an
// order.
func (p *Placer) stages(u *Unit, sh *Shape, yield func(stage) bool) {
	models := p.likedModels(u, sh, p.inOrder(u, sh))
	for _, zone := range [2]bool{u.zoneFirst(), !u.zoneFirst()} {
		if u.Strategy.scored() && !zone {
			if p.orders(sh) {
				for _, m := range models {
					if len(m.general) > 0 && p.quotaLeft(u, sh, m.name) > 0 && !yield(stage{pools: m.general, strategy: u.Strategy}) {
						return
					}
				}
				continue
			}
			if st := (stage{pools: p.poolsInQuota(u, sh), strategy: u.Strategy}); len(st.pools) > 0 && !yield(st) {
				return
			}
			continue
		}
		for _, m := range models {
			if p.quotaLeft(u, sh, m.name) == 0 {
				continue
			}
			st := stage{pools: m.general, strategy: u.general()}
			if zone {
				if !u.usesZone() {
					continue
				}
				st.pools = m.zone
				if u.zoneFirst() && u.small(sh, m.zone) {
					st.strategy = Spread
				}
			}
			if len(st.pools) > 0 && !yield(st) {
				return
			}
		}
	}
}

// stagesOf is stages, with the lent nodes apart for a shape that may be on them: first those on
// which the pod is welcome, then the nodes of the cluster, then all lent ones. The three together
// are all pools: the order does not decide whether the pod starts.
func (p *Placer) stagesOf(u *Unit, sh *Shape, yield func(stage) bool) {
	if !sh.lent || len(sh.request.Speeds) > 0 { // the best model comes first, lent or not
		p.stages(u, sh, yield)
		return
	}
	all := func(lent bool, lasts cluster.Time) bool {
		for st := range func(yield func(stage) bool) { p.stages(u, sh, yield) } {
			st.pools, st.lasts = poolsOf(st.pools, lent), lasts
			if len(st.pools) > 0 && !yield(st) {
				return false
			}
		}
		return true
	}
	for _, welcome := range [...]cluster.Time{u.Ends, u.Saves} {
		if welcome > 0 && !all(true, welcome) {
			return
		}
	}
	if all(false, 0) {
		all(true, 0)
	}
}

// poolsOf returns those of the pools that are lent, or those that are not.
func poolsOf(pools []*cluster.Pool, lent bool) []*cluster.Pool {
	var out []*cluster.Pool
	for _, pool := range pools {
		if pool.Lent == lent {
			out = append(out, pool)
		}
	}
	return out
}

// outlasting returns within, but for nodes that are not lent for as long as the stage wants.
func (p *Placer) outlasting(st stage, within func(cluster.NodeID) bool) func(cluster.NodeID) bool {
	if st.lasts == 0 {
		return within
	}
	return func(id cluster.NodeID) bool {
		return p.state.LentUntil(id) >= st.lasts && (within == nil || within(id))
	}
}

// poolsInQuota returns the general pools of all models that the shape accepts and of which
// the queue's quota allows a pod.
func (p *Placer) poolsInQuota(u *Unit, sh *Shape) []*cluster.Pool {
	short := u.Room != nil && slices.ContainsFunc(sh.models, func(m model) bool { return p.quotaLeft(u, sh, m.name) == 0 })
	if !short && sh.general != nil {
		return sh.general
	}
	var out []*cluster.Pool
	for _, m := range sh.models {
		if !short || p.quotaLeft(u, sh, m.name) > 0 {
			out = append(out, m.general...)
		}
	}
	if !short {
		sh.general = out
	}
	return out
}

// loosest takes the node with the most free GPUs, the first of several.
const loosest = numStrategies

// general returns the strategy by which gangs are placed, and other pods unless
// they are spread over the dedicated zone or a score decides.
func (u *Unit) general() Strategy {
	switch u.Strategy {
	case ESpread, Value, Spot, LeastHarm:
		return EBinpack
	case Consolidate, FGD, BestFit, DotProduct, GPUPacking, GPUClustering, Random:
		return Binpack
	}
	return u.Strategy
}

func (u *Unit) zoneFirst() bool { return u.Strategy == ESpread && u.Inference }

// small reports whether a pod is smaller than the nodes of the zone.
func (u *Unit) small(sh *Shape, zone []*cluster.Pool) bool {
	return len(zone) > 0 && sh.GPUs < zone[0].MaxGPUs
}

// pod places one pod of task t, on a node that within accepts when it is set.
func (p *Placer) pod(u *Unit, t int, pod int32, within func(cluster.NodeID) bool) bool {
	sh := u.Tasks[t].Shape
	for st := range func(yield func(stage) bool) { p.stagesOf(u, sh, yield) } {
		node, gpus, ok := p.find(u, &u.Tasks[t], st, p.outlasting(st, within))
		if !ok {
			continue
		}
		p.put(u, t, pod, node, gpus)
		p.charge(u, sh, node, 1)
		return true
	}
	return false
}

// put places a pod on a node; gpus is the shared device, 0 for whole ones.
func (p *Placer) put(u *Unit, t int, pod int32, node cluster.NodeID, gpus uint64) {
	sh := u.Tasks[t].Shape
	a := cluster.Alloc{Node: node, Others: sh.Others.ID(), GPUs: gpus, Share: sh.Part, CPUMilli: sh.CPU, MemMiB: sh.Mem}
	if sh.Part == 0 {
		a.Share = cluster.WholeGPU
		if sh.GPUs > 0 {
			a.GPUs = p.state.PickGPUs(node, sh.GPUs, sh.Others, u.beside(t))
		}
	}
	p.state.Place(cluster.Owner{Job: u.Job, Pod: pod}, a)
	p.out = append(p.out, Placed{pod, t, a})
	p.last = node
}

// beside returns what the pods of the other tasks want of device sets, so that a pod of a task leaves it to them
// where it can; nil for most units.
func (u *Unit) beside(t int) []cluster.Copies {
	if len(u.Tasks) == 1 {
		return nil
	}
	var out []cluster.Copies
	for o := range u.Tasks {
		if task := &u.Tasks[o]; o != t && len(task.Pods) > 0 && len(task.request.From) > 0 {
			out = append(out, cluster.Copies{Of: task.Others, N: len(task.Pods)})
		}
	}
	return out
}

// find returns a node for one pod of the task and, for a part of a device, the device.
func (p *Placer) find(u *Unit, t *Task, st stage, within func(cluster.NodeID) bool) (cluster.NodeID, uint64, bool) {
	sh, accept := t.Shape, p.filter(u, t, within)
	if t.prefers() {
		st.prefers = t
	}
	if st.strategy.scored() {
		if st.strategy == Value && u.Inference && u.Spread {
			if id, gpus, ok := p.findBest(u, sh, st, p.apart(u, sh, accept)); ok {
				return id, gpus, true
			}
		}
		return p.findBest(u, sh, st, accept)
	}
	if sh.Part > 0 {
		return p.findPart(u, sh, st, accept)
	}
	// E-Binpack: next to the last pod of the unit, though another node may fit more tightly.
	if st.strategy == EBinpack && p.last >= 0 {
		n := p.state.Node(p.last)
		if n.Open() && sh.holds(n) > 0 && p.inStage(st, p.last) && (accept == nil || accept(p.last)) {
			return p.last, 0, true
		}
	}
	// Spread: on a node without a pod of the job, if there is one.
	if st.strategy == Spread && u.Spread {
		if id, ok := p.whole(sh.GPUs, sh.needOne(), st, p.apart(u, sh, accept)); ok {
			return id, 0, true
		}
	}
	id, ok := p.whole(sh.GPUs, sh.needOne(), st, accept)
	return id, 0, ok
}

// findBest returns the node with the highest score, and the device for a pod
// that takes part of one.
func (p *Placer) findBest(u *Unit, sh *Shape, st stage, accept func(cluster.NodeID) bool) (cluster.NodeID, uint64, bool) {
	if st.strategy == Random {
		return p.anyNode(sh, st.pools, p.likedMost(sh, st, accept))
	}
	by := p.lendTogether(p.scorer(st.strategy, u), u, sh)
	if allowed := accept; allowed != nil {
		// Nodes that have filled up since they were ranked are found here: see [ranking].
		accept = func(id cluster.NodeID) bool { return p.hasRoom(id, sh) && allowed(id) }
	}
	r := p.rank(sh, st.pools, by)
	id, ok := r.top(accept)
	if ok && st.prefers != nil {
		id = p.likedInRank(r, st.prefers, id, accept)
	}
	if !ok || sh.Part == 0 {
		return id, 0, ok
	}
	_, device := by.score(p.state.Node(id), sh)
	return id, 1 << device, true
}

// scorer returns what scores nodes by a strategy, for a unit if that matters.
func (p *Placer) scorer(s Strategy, u *Unit) scorer {
	if s == Spot {
		return p.spotScorer(u)
	}
	if p.scorers[s] == nil {
		p.scorers[s] = p.newScorer(s)
	}
	return p.scorers[s]
}

// Learn has strategies take in the requests that have come. They learn at no other
// time: what is tried between two calls and taken back, such as a forecast, changes no
// later choice.
func (p *Placer) Learn(strategies []Strategy) {
	for i, s := range strategies {
		switch {
		case i > 0 && s == strategies[i-1]:
		case s == Value:
			p.Mix.learn()
		case s == FGD:
			p.scorer(s, nil).(*fgd).learn()
		}
	}
}

func (p *Placer) inStage(st stage, id cluster.NodeID) bool {
	return slices.Contains(st.pools, p.state.Pool(id))
}

// whole returns the node that the strategy prefers among those with a number of free GPUs
// at least, and with what is needed beside GPUs.
func (p *Placer) whole(gpus int, need cluster.Need, st stage, accept func(cluster.NodeID) bool) (cluster.NodeID, bool) {
	order, low, high, step := st.walk(gpus)
	if st.prefers != nil {
		return p.likedWhole(gpus, need, st, order, step, accept)
	}
	for f := low; f != high; f += step {
		for _, pool := range st.pools {
			if f > pool.MaxGPUs {
				continue
			}
			var id cluster.NodeID
			var ok bool
			if accept == nil {
				id, ok = p.state.Find(pool, f, order, need)
			} else {
				id, ok = p.state.FindFunc(pool, f, order, accept)
			}
			if ok {
				return id, true
			}
		}
	}
	return 0, false
}

// walk returns the order of leaf groups to prefer, and the numbers of free GPUs to try for a
// pod of a number of GPUs: from first, by step, until last, which is not tried.
func (st stage) walk(gpus int) (order cluster.LeafOrder, first, last, step int) {
	most := 0
	for _, pool := range st.pools {
		most = max(most, pool.MaxGPUs)
	}
	switch st.strategy {
	case Spread:
		return cluster.EmptiestLeaf, max(most, gpus-1), gpus - 1, -1
	case loosest:
		return cluster.FirstLeaf, max(most, gpus-1), gpus - 1, -1
	case EBinpack:
		return cluster.FullestLeaf, gpus, max(most+1, gpus), 1
	}
	return cluster.FirstLeaf, gpus, max(most+1, gpus), 1
}

// findPart returns the device for a pod that takes part of one: the shared
// device it fits most tightly, else an untouched one; Spread the other way
// round.
func (p *Placer) findPart(u *Unit, sh *Shape, st stage, accept func(cluster.NodeID) bool) (cluster.NodeID, uint64, bool) {
	fit := func(id cluster.NodeID) bool {
		return p.state.Node(id).Has(sh.needOne()) && (accept == nil || accept(id))
	}
	shared := func() (cluster.NodeID, uint64, bool) {
		if st.prefers != nil {
			return p.likedShared(sh, st, fit)
		}
		for _, pool := range st.pools {
			if id, d, ok := p.state.FindShared(pool, sh.Part, st.strategy == Spread, fit); ok {
				return id, 1 << d, true
			}
		}
		return 0, 0, false
	}
	untouched := func() (cluster.NodeID, uint64, bool) {
		ok := accept
		if accept != nil {
			ok = fit
		}
		if st.strategy == Spread && u.Spread {
			if id, found := p.whole(1, sh.needOne(), st, p.apart(u, sh, fit)); found {
				return id, p.state.PickGPUs(id, 1, nil, nil), true
			}
		}
		id, found := p.whole(1, sh.needOne(), st, ok)
		if !found {
			return 0, 0, false
		}
		return id, p.state.PickGPUs(id, 1, nil, nil), true
	}
	first, second := shared, untouched
	if st.strategy == Spread {
		first, second = untouched, shared
	}
	if id, g, ok := first(); ok {
		return id, g, true
	}
	return second()
}

// filter returns what a node must satisfy beyond free GPUs, or nil if the index of the pool
// alone decides, which is much faster.
func (p *Placer) filter(u *Unit, t *Task, within func(cluster.NodeID) bool) func(cluster.NodeID) bool {
	sh := t.Shape
	anyDomain := within == nil && !u.Joins && (u.Required < 0 || u.Whole)
	if anyDomain && sh.suits == nil && !t.bound() && len(u.Left) == 0 {
		return nil
	}
	return func(id cluster.NodeID) bool {
		return p.state.Node(id).Has(sh.needOne()) && (within == nil || within(id)) &&
			sh.selected(p.state, id) && p.satisfies(u, t, id, now)
	}
}

// apart returns a filter that also refuses nodes which host a pod of the job.
func (p *Placer) apart(u *Unit, sh *Shape, accept func(cluster.NodeID) bool) func(cluster.NodeID) bool {
	return func(id cluster.NodeID) bool {
		n := p.state.Node(id)
		if !n.Has(sh.needOne()) || accept != nil && !accept(id) {
			return false
		}
		for h := range n.Pods {
			if h.Owner.Job == u.Job {
				return false
			}
		}
		return true
	}
}

// Takes reports whether the node has room for a pod of the unit's first task.
func (p *Placer) Takes(u *Unit, id cluster.NodeID) bool {
	sh := u.Tasks[0].Shape
	return sh.uses(p.state.Pool(id), u) && p.takes(u, &u.Tasks[0], id, now) > 0
}

// PodOn places the first pod of the unit's first task on a node that takes it.
// The result is valid until the next call.
func (p *Placer) PodOn(u *Unit, id cluster.NodeID) []Placed {
	p.reset()
	if sh := u.Tasks[0].Shape; p.Takes(u, id) {
		gpus := uint64(0)
		if d := p.state.Node(id).TightestDevice(sh.Part); d >= 0 {
			gpus = 1 << d
		}
		p.put(u, 0, u.Tasks[0].Pods[0], id, gpus)
	}
	return p.out
}
