package kube

import (
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/translate"
)

// GPUs of several makers. To the engine a GPU is a GPU; a kubelet gives those of one
// resource to the pods that ask for it. As long as all nodes have the same resource,
// pods that ask for it go anywhere, which is the least to look at.

// gpuKinds counts the nodes whose device plugins offer GPUs, by resource.
type gpuKinds struct {
	nodes map[v1.ResourceName]int
	// last is what pods were told of.
	last map[v1.ResourceName]bool
}

// count counts a node in or out.
func (k *gpuKinds) count(n *node, by int) {
	if n.gone || n.object == nil {
		return
	}
	for _, r := range n.object.gpus {
		if k.nodes == nil {
			k.nodes = map[v1.ResourceName]int{}
		}
		if k.nodes[r] += by; k.nodes[r] == 0 {
			delete(k.nodes, r)
		}
	}
}

// others reports whether there are nodes whose GPUs are had by another resource.
func (k *gpuKinds) others(than v1.ResourceName) bool {
	if than == "" {
		return false
	}
	n := len(k.nodes)
	if k.nodes[than] > 0 {
		n--
	}
	return n > 0
}

// sortOut has pods looked at again that ask for GPUs by a resource, if resources have
// come or gone.
func (m *mirror) sortOut() {
	k := &m.gpuKinds
	same := len(k.last) == len(k.nodes)
	for r := range k.nodes {
		same = same && k.last[r]
	}
	if same {
		return
	}
	k.last = map[v1.ResourceName]bool{}
	for r := range maps.Keys(k.nodes) {
		k.last[r] = true
	}
	for _, p := range m.pods {
		if p.object.resource != "" {
			m.reconsider(p)
		}
	}
}

// byResource is what a pod needs that asks for GPUs by a resource, or for a part of
// one: nodes with a device plugin for it or, where a device class provides the
// resource, with its devices.
func (m *mirror) byResource(o *podObject) needs {
	n := needs{request: withSelector(o.request)}
	var plain []core.Requirement
	switch {
	case m.gpuKinds.others(o.resource):
		plain = append(plain, core.Requirement{Key: translate.ResourceLabel(o.resource), Op: cluster.Exists})
	case m.dra.any:
		plain = append(plain, core.Requirement{Key: gpusLabel, Op: cluster.DoesNotExist})
	}
	if class := m.dra.resources[o.resource]; m.dra.any && class != nil && o.resource != "" && class.wrong == "" {
		if q, err := m.askSelector(class, nil); err == nil {
			translate.AddAlternatives(&n.request, [][]core.Requirement{plain, {{Key: q.label, Op: cluster.In, Values: []string{"all"}}}})
			return n
		}
	}
	n.request.Selector = append(n.request.Selector, plain...)
	if m.gpuKinds.others(o.resource) && m.gpuKinds.nodes[o.resource] == 0 {
		n.reason, n.detail = core.NoNode.String(), fmt.Sprintf("no node has GPUs of model %s", o.resource)
	}
	return n
}
