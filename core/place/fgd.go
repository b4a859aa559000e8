package place

import (
	"cmp"
	"math"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

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

// learn determines the typical pods again, if the mix has changed.
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
