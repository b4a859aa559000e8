package place

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// The placement rules that FGD's study compares (Weng et al., ATC 2023, §6.1),
// as its simulator scores them: 0 to 100 in whole points, ties to the first node.

// The largest node of the study, by which the rules scale.
const (
	specCPU = 128_000 // milli-cores
	specGPU = 8_000   // milli-GPU
)

// bestFit prefers the node with the least CPU and GPU left over.
type bestFit struct{}

func (bestFit) version() uint64 { return 0 }

func (bestFit) score(n *cluster.Node, sh *Shape) (int64, int) {
	cpu := float64(n.CPU-sh.CPU) / specCPU
	gpu := float64(n.FreeMilli()-sh.GPU()) / specGPU
	return int64((1 - float64(0.5*cpu) - float64(0.5*gpu)) * 100), tightestDevice(n, sh)
}

// dotProduct prefers the node whose free CPU and GPU point the least in the
// direction of the request.
type dotProduct struct{}

func (dotProduct) version() uint64 { return 0 }

func (dotProduct) score(n *cluster.Node, sh *Shape) (int64, int) {
	cpu := float64(n.CPU) / specCPU * (float64(sh.CPU) / specCPU)
	gpu := float64(n.FreeMilli()) / specGPU * (float64(sh.GPU()) / specGPU)
	return int64(max((1-float64(cpu+gpu)/2)*100, -1<<60)), tightestDevice(n, sh)
}

// gpuPacking prefers shared devices, then free ones on nodes in use, then idle
// nodes.
type gpuPacking struct{}

func (gpuPacking) version() uint64 { return 0 }

func (gpuPacking) score(n *cluster.Node, sh *Shape) (int64, int) {
	if sh.GPU() == 0 {
		return 0, -1
	}
	d := tightestDevice(n, sh)
	whole := int64(n.Free())
	switch {
	case int(whole) == n.Spec.GPUs:
		return max(33-whole, whole), d
	case sh.Part == 0:
		return max(50-int64(sh.GPUs), 33), d
	case n.FreeOn(d) == cluster.WholeGPU:
		return 49, d
	}
	return max(100-int64(n.FreeOn(d))*100/1000/10, 50), d
}

// gpuClustering prefers nodes that host pods which ask for as many GPUs.
type gpuClustering struct{}

func (gpuClustering) version() uint64 { return 0 }

func (gpuClustering) score(n *cluster.Node, sh *Shape) (int64, int) {
	if sh.GPU() == 0 {
		return 0, -1
	}
	own := sh.GPUs // 0 stands for parts of a device
	same, others := false, false
	for h := range n.Pods {
		a := &h.Alloc
		k := bits.OnesCount64(a.GPUs)
		switch {
		case k == 0:
			continue
		case a.Share < cluster.WholeGPU:
			k = 0
		}
		same, others = same || k == own, others || k != own
	}
	full := 25 * (specGPU - int64(n.FreeMilli())) / specGPU
	d := tightestDevice(n, sh)
	switch {
	case same && !others:
		return full + 75, d
	case same:
		return full + 50, d
	case !others:
		return full + 25, d
	}
	return full, d
}

// anyNode returns a node with room that accept allows (nil allows all), each as
// likely as the others, and a device that holds a part. The draws depend on how
// many there were before.
func (p *Placer) anyNode(sh *Shape, pools []*cluster.Pool, accept func(cluster.NodeID) bool) (cluster.NodeID, uint64, bool) {
	var fit []cluster.NodeID
	for _, pool := range pools {
		for _, id := range pool.Members() {
			if id >= 0 && p.hasRoom(id, sh) && (accept == nil || accept(id)) {
				fit = append(fit, id)
			}
		}
	}
	if len(fit) == 0 {
		return 0, 0, false
	}
	id := fit[p.draw(len(fit))]
	if sh.Part == 0 {
		return id, 0, true
	}
	var devices []int
	for d := range p.state.Node(id).Spec.GPUs {
		if p.state.Node(id).FreeOn(d) >= sh.Part {
			devices = append(devices, d)
		}
	}
	return id, 1 << devices[p.draw(len(devices))], true
}

// draw returns a number below n.
func (p *Placer) draw(n int) int {
	p.drawn++
	return int(mixBits(p.drawn*0x9e3779b97f4a7c15) % uint64(n))
}

// Drawn is how many random numbers were drawn. Who tries something and takes it back
// sets it to what it was, with [Placer.Redraw].
func (p *Placer) Drawn() uint64 { return p.drawn }

// Redraw has the placer draw again what it drew after the first n numbers.
func (p *Placer) Redraw(n uint64) { p.drawn = n }

// mixBits scrambles a number (the finalizer of SplitMix64).
func mixBits(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// tightestDevice returns the device with the least free that holds the shape's
// part; -1 for shapes of whole devices.
func tightestDevice(n *cluster.Node, sh *Shape) int {
	best := -1
	for d := range n.Spec.GPUs {
		if sh.Part > 0 && n.FreeOn(d) >= sh.Part && (best < 0 || n.FreeOn(d) < n.FreeOn(best)) {
			best = d
		}
	}
	return best
}

// fgd is fragmentation gradient descent: the node whose GPUs become the least
// unusable to the typical pods of the mix (§4).
type fgd struct {
	mix     *Mix
	round   uint64
	typical []typicalPod
	known   map[nodeState]float64
}

// typicalPod is a request that comes often, with its share of them.
type typicalPod struct {
	share    float64
	cpu      int64
	gpus     int
	perGPU   cluster.Milli
	models   string // as a key
	accepted []string
}

// nodeState is what a node's fragmentation depends on.
type nodeState struct {
	model string
	cpu   int64
	free  [cluster.MaxGPUs]int16
}

func (f *fgd) version() uint64 { return f.round }

// learn takes in which pods are typical, when the mix has changed.
func (f *fgd) learn() {
	f.mix.learn()
	if v := f.mix.version(); v != f.round {
		f.round = v
		clear(f.known)
		f.typical = f.mix.typical()
	}
}

// typicalShare is how much of the requests the typical pods cover.
const typicalShare = 0.95

// typical returns the most frequent requests, whatever their memory, that make
// up typicalShare of all; of equally frequent ones, the largest, as the study's
// simulator does.
func (m *Mix) typical() []typicalPod {
	type key struct {
		gpu    cluster.Milli
		cpu    int64
		models string
	}
	at := map[key]int{}
	var all []typicalPod
	total := 0.0
	for _, q := range m.sorted() {
		k := key{q.gpu, q.cpu, q.models}
		i, ok := at[k]
		if !ok {
			i = len(all)
			at[k] = i
			t := typicalPod{cpu: q.cpu, models: q.models, accepted: q.accepts, perGPU: q.gpu}
			if q.gpu >= cluster.WholeGPU {
				t.gpus, t.perGPU = int(q.gpu/cluster.WholeGPU), cluster.WholeGPU
			} else if q.gpu > 0 {
				t.gpus = 1
			}
			all = append(all, t)
		}
		all[i].share += float64(q.pods)
		total += float64(q.pods)
	}
	slices.SortStableFunc(all, func(a, b typicalPod) int {
		return cmp.Or(cmp.Compare(b.share, a.share), cmp.Compare(b.cpu, a.cpu), cmp.Compare(b.perGPU, a.perGPU),
			cmp.Compare(b.gpus, a.gpus), cmp.Compare(b.models, a.models))
	})
	covered, n := 0.0, 0
	for n < len(all) && covered < typicalShare*total {
		covered += all[n].share
		n++
	}
	for i := range all[:n] {
		all[i].share = all[i].share / total / (covered / total)
	}
	return all[:n]
}

// Why a typical pod cannot use what a node has free; lackGPU is also of those
// that can use some of it.
const (
	lackBoth = iota
	lackGPU
	lackCPU
	noGPUAsked
	noGPUAskedLackCPU
	otherModel
	numLacks
)

// fragmentation returns how much of a node's free GPU, in milli-GPU, typical
// pods cannot be expected to use.
func (f *fgd) fragmentation(s *nodeState, gpus int) float64 {
	if v, ok := f.known[*s]; ok {
		return v
	}
	free := int64(0)
	for _, d := range s.free[:gpus] {
		free += int64(d)
	}
	// Summed by what the pods lack, in the order of the study's simulator:
	// points are cut to whole ones, and the last bit may decide between two.
	var lack [numLacks]float64
	for i := range f.typical {
		t := &f.typical[i]
		unused, fit := int64(0), 0
		for _, d := range s.free[:gpus] {
			if int64(d) >= int64(t.perGPU) {
				fit++
			} else {
				unused += int64(d)
			}
		}
		kind := lackGPU
		switch cpu := s.cpu >= t.cpu; {
		case t.gpus == 0 && cpu:
			kind = noGPUAsked
		case t.gpus == 0:
			kind = noGPUAskedLackCPU
		case !accepts(t.accepted, s.model):
			kind = otherModel
		case fit < t.gpus && !cpu:
			kind = lackBoth
		case fit >= t.gpus && !cpu:
			kind = lackCPU
		}
		if kind != lackGPU || fit < t.gpus {
			unused = free
		}
		lack[kind] += float64(t.share * float64(unused))
	}
	sum := 0.0
	for _, x := range lack {
		sum += x
	}
	f.known[*s] = sum
	return sum
}

func (f *fgd) score(n *cluster.Node, sh *Shape) (int64, int) {
	s := nodeState{model: n.Spec.Model, cpu: n.CPU}
	gpus := n.Spec.GPUs
	for d := range gpus {
		s.free[d] = int16(n.FreeOn(d))
	}
	before := f.fragmentation(&s, gpus)
	s.cpu -= sh.CPU
	if sh.Part > 0 {
		best, device := int64(none), -1
		for d := range gpus {
			if n.FreeOn(d) < sh.Part {
				continue
			}
			s.free[d] -= int16(sh.Part)
			if w := points(before - f.fragmentation(&s, gpus)); w > best {
				best, device = w, d
			}
			s.free[d] += int16(sh.Part)
		}
		return best, device
	}
	left := sh.GPUs
	for d := range gpus {
		if left > 0 && s.free[d] == int16(cluster.WholeGPU) {
			s.free[d] = 0
			left--
		}
	}
	return points(before - f.fragmentation(&s, gpus)), -1
}

// points turns a decrease of fragmentation into 0 to 100.
func points(decrease float64) int64 { return int64(100 / (1 + math.Exp(-decrease/1000))) }
