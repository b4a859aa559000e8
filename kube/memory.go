package kube

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// Pods that ask for memory of a GPU get the part of it that has so much. How large
// a part that is depends on the model: the same job is given the part that is
// enough on every model that it may use, and so on none too little.

// memories is how much memory the GPUs of each model have.
type memories struct {
	// mib is by model, of the node that has the least; nil when it is to be found
	// out anew.
	mib map[string]int64
	// last is what pods were told of, pods are those that ask for memory.
	last map[string]int64
	pods map[*pod]bool
}

// gpuMemory returns how much memory a GPU of each model has, in MiB, as far as labels
// of nodes say.
func (m *mirror) gpuMemory() map[string]int64 {
	if m.memories.mib != nil {
		return m.memories.mib
	}
	m.memories.mib = map[string]int64{}
	for _, n := range m.nodes {
		if n.gone || n.object.node.GPUs == 0 {
			continue
		}
		mib := n.memory()
		if mib == 0 {
			continue
		}
		if old, ok := m.memories.mib[n.object.node.Model]; !ok || mib < old {
			m.memories.mib[n.object.node.Model] = mib
		}
	}
	return m.memories.mib
}

// remember has pods looked at again that ask for memory, if models have come or
// gone.
func (m *mirror) remember() {
	if m.memories.mib != nil || len(m.memories.pods) == 0 {
		return
	}
	if old := m.memories.last; maps.Equal(old, m.gpuMemory()) {
		return
	}
	m.memories.last = m.memories.mib
	for p := range m.memories.pods {
		m.reconsider(p)
	}
}

// resolveMemory finds out which part of a GPU a pod needs, and of which models.
func (m *mirror) resolveMemory(p *pod, object *podObject) {
	if m.memories.pods == nil {
		m.memories.pods = map[*pod]bool{}
	}
	m.memories.pods[p] = true
	o := *object
	n := &needs{}
	p.needs = n
	want := o.attributes.GPUMemory
	if mib := m.nodeMemory(p.target); p.state != podWaiting && (mib > 0 || o.held > 0) {
		// As it was bound, which is no less than it asks for.
		o.request.GPU = o.held
		if mib > 0 {
			o.request.GPU = min(max(o.held, core.Milli(ceil(want*int64(core.WholeGPU), mib))), core.WholeGPU)
		}
	} else {
		least, models := int64(0), []string{}
		all := m.gpuMemory()
		for _, model := range slices.Sorted(maps.Keys(all)) {
			mib := all[model]
			if mib < want || o.request.Models != nil && !slices.Contains(o.request.Models, model) {
				continue
			}
			if models = append(models, model); least == 0 || mib < least {
				least = mib
			}
		}
		if least == 0 {
			n.reason = core.NoNode.String()
			n.detail = fmt.Sprintf("%d MiB of a GPU are requested: no node that the pod accepts has GPUs with that much memory according to its label %s", want, v1alpha1.MemoryLabel)
			n.request = o.request
			return
		}
		o.request.GPU, o.request.Models = core.Milli(ceil(want*int64(core.WholeGPU), least)), models
	}
	*n = m.byResource(&o)
}

// memory is how much the GPUs of a node have in MiB, 0 when it is not known.
func (n *node) memory() int64 {
	mib, err := strconv.ParseInt(n.object.node.Labels[v1alpha1.MemoryLabel], 10, 64)
	if err != nil || mib < 0 || mib > core.MaxAmount {
		return 0
	}
	return mib
}

func (m *mirror) nodeMemory(name string) int64 {
	if n := m.nodes[name]; n != nil {
		return n.memory()
	}
	return 0
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }
