// Package sharing tells GPUs that a device plugin offers several times from whole ones.
//
// NVIDIA's device plugin can offer each GPU of a node as several devices, between which it slices time, or
// which share it by MPS. Each of them counts as a GPU of its node, and is none: a pod that has one has no
// memory of its own, and two of them may be the same GPU. So they are of a model of their own, and what asks for
// GPUs without naming it gets whole ones, as long as there are any.
//
// A plugin also chooses which of a node's GPUs a pod gets, and does not know those that Muster chose for pods that ask
// Muster alone for GPUs or for a part of one. See [Blind].
package sharing

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// Suffix ends the names of the models of such GPUs, as in GPU Feature Discovery's label of the product.
const Suffix = "-SHARED"

// Resource is what the plugin offers them as, where it is configured to rename them.
const Resource = "nvidia.com/gpu.shared"

// Label is a pseudo label of nodes with such GPUs.
const Label = "muster.sh/shared-gpus"

// Labels of GPU Feature Discovery.
const (
	product  = "nvidia.com/gpu.product"
	replicas = "nvidia.com/gpu.replicas"
	strategy = "nvidia.com/gpu.sharing-strategy"
)

// Blind reports whether the kubelet of a node with such labels could give a pod GPUs that Muster gave to another one,
// so that the node never has both kinds of pods at once. Only the label that allows that says otherwise. An error says
// why the label has no effect.
func Blind(labels map[string]string) (bool, error) {
	switch v, ok := labels[v1alpha1.GPUSharingLabel]; {
	case !ok:
		return true, nil
	case v == v1alpha1.GPUSharingMixed:
		return false, nil
	default:
		return true, fmt.Errorf("label %s: expected %s or no label; found %q", v1alpha1.GPUSharingLabel, v1alpha1.GPUSharingMixed, v)
	}
}

// Offered reports whether the labels of a node say that its GPUs are offered several times.
func Offered(labels map[string]string) bool {
	n, err := strconv.Atoi(labels[replicas])
	s := labels[strategy]
	return strings.HasSuffix(labels[product], Suffix) || err == nil && n > 1 || s != "" && s != "none"
}

// Asked reports whether a request names such GPUs: by their model, or by labels that only their nodes have.
func Asked(r *core.Request) bool {
	return slices.ContainsFunc(r.Models, func(m string) bool { return strings.HasSuffix(m, Suffix) }) ||
		slices.ContainsFunc(r.Selector, selects) ||
		slices.ContainsFunc(r.AnyOf, func(all []core.Requirement) bool { return slices.ContainsFunc(all, selects) })
}

func selects(r core.Requirement) bool {
	switch {
	case r.Key == product:
		return r.Op == cluster.In && slices.ContainsFunc(r.Values, func(v string) bool { return strings.HasSuffix(v, Suffix) })
	case r.Key == replicas || r.Key == strategy:
		return r.Op != cluster.NotIn && r.Op != cluster.DoesNotExist && !slices.Contains(r.Values, "1") && !slices.Contains(r.Values, "none")
	}
	return false
}
