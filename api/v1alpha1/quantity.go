package v1alpha1

import (
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/quota"
)

// ResourceName is the name of a resource other than GPUs and pods.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="!self.startsWith('huawei.com/Ascend') && !(self in ['pods', 'nvidia.com/gpu', 'nvidia.com/gpu.shared', 'amd.com/gpu', 'gpu.intel.com/i915', 'gpu.intel.com/xe', 'iluvatar.com/gpu', 'metax-tech.com/gpu', 'mthreads.com/gpu', 'cambricon.com/mlu', 'hygon.com/dcu', 'kunlunxin.com/xpu'])",message="a resource other than GPUs and pods: quota has the GPUs"
type ResourceName string

var errResourceName = errors.New("a resource other than pods and GPUs, which quota has, such as cpu, memory or rdma/hca")

// UnmarshalText reads n. The error says what a name looks like.
func (n *ResourceName) UnmarshalText(text []byte) error {
	s := string(text)
	if s == "" || s == "pods" || IsGPUResource(s) || len(s) > 253 {
		return errResourceName
	}
	*n = ResourceName(s)
	return nil
}

// gpuResources are the extended resources that stand for whole GPUs. A name
// that ends in "*" is a prefix.
var gpuResources = []string{
	"nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "huawei.com/Ascend*", "iluvatar.com/gpu",
	"metax-tech.com/gpu", "mthreads.com/gpu", "cambricon.com/mlu", "hygon.com/dcu", "kunlunxin.com/xpu",
}

// IsGPUResource reports whether a resource stands for GPUs.
func IsGPUResource(name string) bool {
	for _, g := range gpuResources {
		if prefix, ok := strings.CutSuffix(g, "*"); ok && strings.HasPrefix(name, prefix) || g == name {
			return true
		}
	}
	return false
}

// Quantity is an amount of a resource as Kubernetes writes it: a number, with a suffix
// where it is large, as in 500m, 96, 1.5k or 512Gi; -1 is without limit.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:Format=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=24
// +kubebuilder:validation:XValidation:rule="type(self) == string || self >= -1",message="an amount is not negative, but for -1, which is without limit"
// +kubebuilder:validation:Pattern=`^(-1|[0-9]{1,19}(\.[0-9]{1,3})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?)$`
type Quantity string

var (
	errQuantity = errors.New("an amount such as 96, 0.5, 500m or 512Gi, or -1 for no limit")
	quantities  = regexp.MustCompile(`^[0-9]{1,19}(\.[0-9]{1,3})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$`)
)

// UnmarshalText reads q. The error says what an amount looks like.
func (q *Quantity) UnmarshalText(text []byte) error {
	if string(text) == endless {
		*q = endless
		return nil
	}
	if _, err := ParseQuantity(string(text)); err != nil {
		return err
	}
	*q = Quantity(text)
	return nil
}

// ParseQuantity reads an amount from 0 on. It is resource.ParseQuantity without exponents: with 1E999999999 that function, or the first
// comparison of what it returns, computes for hours. The API server spares the scheduler such amounts in the fields that it
// knows as amounts, and not in annotations, which tenants write.
func ParseQuantity(text string) (resource.Quantity, error) {
	if len(text) > 24 || !quantities.MatchString(text) {
		return resource.Quantity{}, errQuantity
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return resource.Quantity{}, errQuantity
	}
	return q, nil
}

// UnmarshalJSON reads q from a string or a number.
func (q *Quantity) UnmarshalJSON(data []byte) error { return unmarshalScalar(data, q) }

// MarshalJSON writes q as a string.
func (q Quantity) MarshalJSON() ([]byte, error) { return json.Marshal(q.String()) }

func (q Quantity) String() string {
	if q == "" {
		return "0"
	}
	return string(q)
}

// Amount returns q in the unit in which the engine counts a resource: milli-cores, MiB,
// rounded down, or whole units. What is more than a quota can be is cut.
func (q Quantity) Amount(name ResourceName) core.Milli {
	if q == endless {
		return quota.MaxQuota
	}
	v, err := resource.ParseQuantity(string(q))
	if err != nil {
		return 0
	}
	units, unit := &v, int64(1)
	switch name {
	case cluster.CPU:
		if v.CmpInt64(int64(quota.MaxQuota)/1000) > 0 {
			return quota.MaxQuota
		}
		return core.Milli(v.MilliValue())
	case cluster.Memory:
		unit = 1 << 20
	}
	if units.CmpInt64(math.MaxInt64/2) > 0 {
		return quota.MaxQuota
	}
	whole := units.Value()
	if units.CmpInt64(whole) < 0 {
		whole-- // Value rounds up
	}
	return min(core.Milli(whole/unit), quota.MaxQuota)
}

// QuantityOf writes what the engine counts of a resource. It is the inverse of [Quantity.Amount].
func QuantityOf(name ResourceName, amount core.Milli) Quantity {
	if amount >= quota.MaxQuota {
		return endless
	}
	switch name {
	case cluster.CPU:
		return Quantity(resource.NewMilliQuantity(int64(amount), resource.DecimalSI).String())
	case cluster.Memory:
		return Quantity(resource.NewQuantity(int64(min(amount, 1<<42))<<20, resource.BinarySI).String())
	}
	return Quantity(resource.NewQuantity(int64(amount), resource.DecimalSI).String())
}
