package place

import (
	"math/bits"

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
	return int64((1 - float64(0.5*cpu) - float64(0.5*gpu)) * 100), n.TightestDevice(sh.Part)
}

// dotProduct prefers the node whose free CPU and GPU point the least in the
// direction of the request.
type dotProduct struct{}

func (dotProduct) version() uint64 { return 0 }

func (dotProduct) score(n *cluster.Node, sh *Shape) (int64, int) {
	cpu := float64(n.CPU) / specCPU * (float64(sh.CPU) / specCPU)
	gpu := float64(n.FreeMilli()) / specGPU * (float64(sh.GPU()) / specGPU)
	return int64(max((1-float64(cpu+gpu)/2)*100, -1<<60)), n.TightestDevice(sh.Part)
}

// gpuPacking prefers shared devices, then free ones on nodes in use, then idle
// nodes.
type gpuPacking struct{}

func (gpuPacking) version() uint64 { return 0 }

func (gpuPacking) score(n *cluster.Node, sh *Shape) (int64, int) {
	if sh.GPU() == 0 {
		return 0, -1
	}
	d := n.TightestDevice(sh.Part)
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
	d := n.TightestDevice(sh.Part)
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
