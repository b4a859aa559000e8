package place

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// nano is the unit of values: nano is worth one untouched device.
const nano int64 = 1e9

// value says what the free GPUs of nodes of one model are worth to the mix of
// requests. Placing a pod where the node loses the least of it keeps the most
// room for what is still to come. docs/placement.md derives it.
type value struct {
	// part is the worth of a device with this many milli-GPU free: what the
	// requests for parts of a device could make of it (the dual prices of the
	// cutting-stock programme over them).
	part [cluster.WholeGPU + 1]int64
	// cpu and mem are how many milli-cores and MiB the mix asks for with a
	// device's worth of GPU; 0 when it asks for none. Free GPUs beyond what the
	// free CPU and memory can feed are worth less: by lackCPU and weightMem a
	// device.
	cpu, mem int64
	// perCPU and perMem are the worth that a milli-core and a MiB feed, lackCPU
	// the part of it that GPUs without CPU are worth less.
	perCPU, perMem float64
	lackCPU        float64
	// scarce is what devices are worth, in thousandths: above 1000 the more
	// requests insist on the model.
	scarce int64
	// large are the requests for several devices on one node.
	large []largeRequest
}

// largeRequest is a request for several devices; a node that still has room for
// it is worth share more: the more, the more of the demand such requests are and
// the fewer nodes are large enough for them.
type largeRequest struct {
	gpus     int
	cpu, mem int64
	share    int64
}

// The weights of the parts of a node's worth. They are the same for all
// clusters and workloads; docs/placement.md says how they were found.
const (
	weightCPU    = 117_000 // nano for every milli-core that free GPUs lack
	weightMem    = 26      // thousandths of a device's worth for a device's worth of memory they lack
	weightFree   = 116     // nano against every milli-GPU free on the node: ties go to the fullest
	weightLarge  = 12      // thousandths of a device's worth
	weightScarce = 40      // thousandths where the model has the same share of the demand as of the devices
)

// mostLarge is how many of the large requests, the most frequent, are looked at.
const mostLarge = 32

// newValue derives the value of a model's devices from the requests that accept
// it.
func (m *Mix) newValue(model string, requests []*mixed) *value {
	v := &value{scarce: 1000}
	var sizes []int
	var demand []float64
	accept := requests[:0:0]
	for _, q := range requests {
		if q.gpu == 0 || !accepts(q.accepts, model) {
			continue
		}
		accept = append(accept, q)
		if q.gpu >= cluster.WholeGPU {
			continue
		}
		if k := len(sizes); k > 0 && sizes[k-1] == int(q.gpu) {
			demand[k-1] += float64(q.pods)
		} else {
			sizes, demand = append(sizes, int(q.gpu)), append(demand, float64(q.pods))
		}
	}
	v.price(sizes, demand)
	v.weigh(accept)
	v.setLarge(m, accept)
	v.scarce += int64(weightScarce * m.scarcity(model, requests))
	return v
}

// near reports whether no part of v differs from that of o by more than a share
// of it.
func (v *value) near(o *value, share float64) bool {
	if o == nil || len(v.large) != len(o.large) {
		return false
	}
	near := func(a, b int64) bool { return math.Abs(float64(a-b)) <= share*math.Abs(float64(b)) }
	for f := range v.part {
		if math.Abs(float64(v.part[f]-o.part[f])) > share*float64(nano) {
			return false
		}
	}
	for i, l := range v.large {
		same := o.large[i]
		if !near(l.share, same.share) {
			return false
		}
		l.share, same.share = 0, 0
		if l != same {
			return false
		}
	}
	return near(v.cpu, o.cpu) && near(v.mem, o.mem) && near(v.scarce, o.scarce)
}

// weigh derives what the requests ask for beside GPUs.
func (v *value) weigh(accept []*mixed) {
	var worth, cpu, mem float64
	for _, q := range accept {
		worth += float64(v.of(q.gpu)) / float64(nano) * float64(q.pods)
		cpu += float64(q.cpu) * float64(q.pods)
		mem += float64(q.mem) * float64(q.pods)
	}
	if worth > 0 {
		v.cpu, v.mem = int64(min(cpu/worth, 1<<62)), int64(min(mem/worth, 1<<62))
		v.perCPU, v.perMem = float64(nano)/float64(v.cpu), float64(nano)/float64(v.mem)
		v.lackCPU = float64(v.cpu) * weightCPU / float64(nano)
	}
}

// setLarge weighs the requests for several devices. One that few nodes are large
// enough for counts by the square of how few they are.
func (v *value) setLarge(m *Mix, accept []*mixed) {
	var large []*mixed
	total := 0.0
	for _, q := range accept {
		if q.gpu > cluster.WholeGPU {
			large = append(large, q)
			total += float64(q.gpu) * float64(q.pods)
		}
	}
	slices.SortStableFunc(large, func(a, b *mixed) int { return cmp.Compare(int64(b.gpu)*b.pods, int64(a.gpu)*a.pods) })
	for _, q := range large[:min(len(large), mostLarge)] {
		roomy := m.roomy(q)
		if roomy == 0 {
			continue
		}
		share := float64(q.gpu) * float64(q.pods) / total
		rare := float64(m.devices) / float64(roomy)
		v.large = append(v.large, largeRequest{
			gpus: int(q.gpu / cluster.WholeGPU), cpu: q.cpu, mem: q.mem,
			share: int64(min(share*rare*rare, 1000) * float64(weightLarge) / 1000 * float64(nano)),
		})
	}
}

// of returns the worth of what a request takes.
func (v *value) of(gpu cluster.Milli) int64 {
	if gpu >= cluster.WholeGPU {
		return int64(gpu/cluster.WholeGPU) * nano
	}
	return v.part[gpu]
}

// scarcity returns the share of the demand that must run on the model, over the
// share of the devices that are of it. Demand for several models counts for
// each by its devices.
func (m *Mix) scarcity(model string, requests []*mixed) float64 {
	bound, total := 0.0, 0.0
	for _, q := range requests {
		gpu := float64(q.gpu) * float64(q.pods)
		total += gpu
		if !slices.Contains(q.accepts, model) {
			continue
		}
		among := int64(0)
		for _, o := range q.accepts {
			among += m.capacity[o]
		}
		if among > 0 {
			bound += gpu * float64(m.capacity[model]) / float64(among)
		}
	}
	if total == 0 || m.capacity[model] == 0 {
		return 0
	}
	return bound / total * float64(m.devices) / float64(m.capacity[model])
}

// worth returns what free GPUs are worth with the free CPU and memory beside
// them: gpu is the sum of their parts' worths, whole counts the untouched ones.
// Products of floats are rounded the same on all machines as long as nothing is
// added to them at once.
func (v *value) worth(gpu int64, whole int, cpu, mem int64) int64 {
	w := gpu + gpu/1000*(v.scarce-1000)
	if v.cpu > 0 {
		if lack := gpu - int64(min(float64(cpu)*v.perCPU, 1<<62)); lack > 0 {
			w -= int64(min(float64(lack)*v.lackCPU, 1<<60))
		}
	}
	if v.mem > 0 {
		if lack := gpu - int64(min(float64(mem)*v.perMem, 1<<62)); lack > 0 {
			w -= lack / 1000 * weightMem
		}
	}
	for i := range v.large {
		l := &v.large[i]
		if whole >= l.gpus && cpu >= l.cpu && mem >= l.mem {
			w += l.share
		}
	}
	return w
}

// score makes Mix a scorer: what a node is worth after a pod came, less what it
// is worth before.
func (m *Mix) score(n *cluster.Node, sh *Shape) (int64, int) {
	v := m.valueIn(n.PoolNumber())
	if v == nil {
		return 0, n.TightestDevice(sh.Part)
	}
	whole := n.Free()
	gpu, milli := int64(whole)*nano, int64(whole)*int64(cluster.WholeGPU)
	for split := n.Split(); split != 0; split &= split - 1 {
		f := n.FreeOn(bits.TrailingZeros64(split))
		gpu += v.part[f]
		milli += int64(f)
	}
	before := v.worth(gpu, whole, n.CPU, n.Mem)
	cpu, mem := n.CPU-sh.CPU, n.Mem-sh.Mem
	if sh.Part == 0 {
		k := int64(sh.GPUs)
		return rounded(v.worth(gpu-k*nano, whole-sh.GPUs, cpu, mem) - before - milli*weightFree), -1
	}
	best, device := int64(none), -1
	for d := range n.Spec.GPUs {
		f := n.FreeOn(d)
		if f < sh.Part {
			continue
		}
		w := whole
		if f == cluster.WholeGPU {
			w--
		}
		if after := v.worth(gpu-v.part[f]+v.part[f-sh.Part], w, cpu, mem); after > best {
			best, device = after, d
		}
	}
	return rounded(best - before - milli*weightFree), device
}

// rounded drops what may only be the rounding of divisions on the way.
func rounded(w int64) int64 { return (w + 1<<40*1000 + 500) / 1000 }
