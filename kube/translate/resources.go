package translate

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// isGPU reports whether an extended resource stands for GPUs.
func isGPU(name v1.ResourceName) bool { return v1alpha1.IsGPUResource(string(name)) }

// GPUResources lists the resources that stand for GPUs of which the lists have
// some, sorted.
func GPUResources(lists ...v1.ResourceList) []v1.ResourceName {
	var out []v1.ResourceName
	for _, list := range lists {
		for name, q := range list {
			if isGPU(name) && q.Sign() > 0 && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// ResourceLabel is the pseudo label under which the engine knows that a node's
// GPUs are had by a resource.
func ResourceLabel(name v1.ResourceName) string { return "resource:" + string(name) }

// gpusIn counts the GPUs in a list of resources.
func gpusIn(list v1.ResourceList) int64 {
	var n int64
	for name, q := range list {
		if isGPU(name) {
			n = cluster.Plus(n, whole(&q))
		}
	}
	return n
}

// whole returns a quantity as a whole number, rounded up, 0..MaxAmount. Sums of
// quantities may be beyond an int64, and what Quantity makes of such is any number.
func whole(q *resource.Quantity) int64 {
	switch {
	case q.Sign() <= 0:
		return 0
	case q.CmpInt64(core.MaxAmount) > 0:
		return core.MaxAmount
	}
	return q.Value()
}

// thousandths is [whole] in thousandths.
func thousandths(q *resource.Quantity) int64 {
	switch {
	case q.Sign() <= 0:
		return 0
	case q.CmpInt64(core.MaxAmount/1000) > 0:
		return core.MaxAmount
	}
	return q.MilliValue()
}

// tooMuch says of which resource more is asked for than there can be, "" of none.
func tooMuch(list v1.ResourceList) string {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q, most := list[name], int64(core.MaxAmount)
		switch name {
		case v1.ResourceCPU:
			most /= 1000
		case v1.ResourceMemory:
			most = math.MaxInt64
		}
		if q.CmpInt64(most) > 0 {
			return fmt.Sprintf("%s of %s is requested, expected at most %d", q.String(), name, most)
		}
	}
	return ""
}

// Amounts is what a pod asks for of a node.
type Amounts struct {
	GPUs             int64 // whole devices
	CPUMilli, MemMiB int64
	// Others is what it asks for of other resources, in their own units, sorted by
	// name; none is 0.
	Others []core.Amount
}

// Requests sums what a pod's containers ask for, init containers, sidecars,
// pod-level requests and overhead included, as Kubernetes does.
func Requests(p *v1.Pod) Amounts {
	return AmountsIn(requestsOf(p))
}

func requestsOf(p *v1.Pod) v1.ResourceList {
	return podresources.PodRequests(p, podresources.PodResourcesOptions{UseStatusResources: true})
}

// AmountsIn returns what a list of resources has.
func AmountsIn(list v1.ResourceList) Amounts {
	return Amounts{GPUs: gpusIn(list), CPUMilli: thousandths(list.Cpu()), MemMiB: mebibytes(list.Memory(), true), Others: othersIn(list)}
}

// Add adds by times b.
func (a *Amounts) Add(b *Amounts, by int64) {
	a.GPUs += by * b.GPUs
	a.CPUMilli += by * b.CPUMilli
	a.MemMiB += by * b.MemMiB
	a.Others = AddOthers(a.Others, b.Others, by)
}

// AddOthers returns a and by times b. It may be a itself, which is left as it is.
func AddOthers(a, b []core.Amount, by int64) []core.Amount {
	if len(b) == 0 {
		return a
	}
	sum := slices.Clone(a)
	for _, x := range b {
		i, ok := slices.BinarySearchFunc(sum, x.Name, func(o core.Amount, name string) int { return strings.Compare(o.Name, name) })
		if !ok {
			sum = slices.Insert(sum, i, core.Amount{Name: x.Name})
		}
		if sum[i].Value += by * x.Value; sum[i].Value == 0 {
			sum = slices.Delete(sum, i, i+1)
		}
	}
	if len(sum) == 0 {
		return nil
	}
	return sum
}

// Left returns what of a is left when b is taken, of nothing less than nothing; b may be more than an int64 holds.
func Left(a, b []core.Amount) []core.Amount {
	left, none := AddOthers(a, b, -1), func(o core.Amount) bool { return o.Value < 0 || o.Value > core.MaxAmount }
	if slices.ContainsFunc(left, none) {
		left = slices.DeleteFunc(slices.Clone(left), none)
	}
	if len(left) == 0 {
		return nil
	}
	return left
}

// othersIn lists what a list of resources has beside GPUs, CPU, memory and pods:
// disk space, huge pages and extended resources.
func othersIn(list v1.ResourceList) []core.Amount {
	var out []core.Amount
	for name, q := range list {
		switch name {
		case v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods:
			continue
		}
		if v := whole(&q); v > 0 && !isGPU(name) {
			out = append(out, core.Amount{Name: string(name), Value: v})
		}
	}
	slices.SortFunc(out, func(a, b core.Amount) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// mebibytes rounds what is asked for up and what there is down, 0..MaxAmount.
func mebibytes(q *resource.Quantity, up bool) int64 {
	const mi = 1 << 20
	switch {
	case q.Sign() <= 0:
		return 0
	case q.CmpInt64(math.MaxInt64) > 0:
		return math.MaxInt64 / mi
	}
	b := q.Value()
	if up && b%mi > 0 {
		return b/mi + 1
	}
	return b / mi
}

// milli is whole GPUs in the engine's unit.
func milli(gpus int64) core.Milli { return core.Milli(gpus) * core.WholeGPU }
