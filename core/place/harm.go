package place

import (
	"math/bits"

	"github.com/muster-sched/muster/core/cluster"
)

// Role is what a job is to the jobs without GPUs on its nodes.
type Role uint8

// The roles.
const (
	// Bystander jobs have GPUs and are not slowed down.
	Bystander Role = iota
	// Trains: a training job with GPUs. Jobs without GPUs slow it down where they use more cores
	// than the jobs with GPUs do (ASI §5.2).
	Trains
	// NoGPUs: a job without GPUs.
	NoGPUs
)

// leastHarm places pods of jobs without GPUs where they slow down the least training:
//
//  1. on nodes without GPUs;
//  2. on nodes with GPUs but no training, those with the fewest idle GPUs first, as training may
//     come to those;
//  3. beside training, where the jobs with GPUs still use more cores afterwards, the most
//     first;
//  4. where they do not even now;
//  5. where they no longer will, beside the least training.
//
// Ties go to the node with the least CPU left, then to the first.
type leastHarm struct {
	role func(job int32) Role
	// use is the share, in thousandths, that jobs with GPUs use of the cores that they request.
	use int64
}

func (*leastHarm) version() uint64 { return 0 }

func (h *leastHarm) score(n *cluster.Node, sh *Shape) (int64, int) {
	const rank, part = int64(1) << 58, int64(1) << 49 // n.CPU is below 1<<49
	device := n.TightestDevice(sh.Part)
	if n.Spec.GPUs == 0 {
		return 4*rank - n.CPU, device
	}
	cpuOnly, gpu, training := int64(0), int64(0), int64(0)
	for p := range n.Pods {
		switch role := h.role(p.Owner.Job); {
		case role == NoGPUs:
			cpuOnly += p.Alloc.CPUMilli
		default:
			gpu += p.Alloc.CPUMilli
			if role == Trains {
				training += int64(bits.OnesCount64(p.Alloc.GPUs))
			}
		}
	}
	gpu = int64(float64(gpu) / 1000 * float64(h.use))
	switch after := cpuOnly + sh.CPU; {
	case training == 0:
		return 3*rank - int64(n.Free())*part - n.CPU, device
	case after <= gpu:
		return 2*rank + gpu - after, device
	case cpuOnly > gpu:
		return rank - n.CPU, device
	}
	return -training*part - n.CPU, device
}
