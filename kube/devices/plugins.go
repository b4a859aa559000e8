package devices

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/sharing"
	"github.com/muster-sched/muster/kube/translate"
)

// GPUs that pods ask for by a resource, and by memory.
//
// GPUs of several vendors: the engine does not distinguish them; a kubelet gives those of
// one resource to the pods that request it. While all nodes have the same resource, pods
// that request it can go anywhere, which costs least.
//
// Pods that request memory of a GPU get a part of a GPU with at least this memory. The
// size of the part depends on the model: a job gets the part that suffices on every model
// that it may use.

// Node is what the index knows of a node, beside its slices.
type Node struct {
	Name      string
	Resources []v1.ResourceName // by which its device plugins offer GPUs
	GPUs      int               // of its device plugins
	Model     string
	Memory    int64 // of each GPU in MiB, 0 when it is not known
	Shared    bool  // they are offered several times each, see [sharing]
}

// plugins is what is known of GPUs by resource and by memory.
type plugins struct {
	nodes map[string]*Node
	// count has the nodes whose device plugins offer GPUs, by resource; kinds is what
	// pods were resolved by.
	count map[v1.ResourceName]int
	kinds map[v1.ResourceName]bool
	// whole and shared count the nodes whose GPUs are offered once, and several times each.
	whole, shared int
	// memory is by model, of the node that has the least; nil when it is to be found
	// out again. resolved is what pods were resolved by, pods are those that ask for
	// memory.
	memory, resolved map[string]int64
	pods             map[types.UID]bool
}

func newPlugins() plugins {
	return plugins{nodes: map[string]*Node{}, count: map[v1.ResourceName]int{}, pods: map[types.UID]bool{}}
}

// ObserveNode records the present state of a node. [Index.Again] returns the
// consequences.
func (x *Index) ObserveNode(n Node) { x.plugins.set(n.Name, &n) }

// ForgetNode records that a node was deleted.
func (x *Index) ForgetNode(name string) { x.plugins.set(name, nil) }

// set records a node, nil for none.
func (p *plugins) set(name string, n *Node) {
	old := p.nodes[name]
	if p.nodes[name] = n; n == nil {
		delete(p.nodes, name)
	}
	p.countSharing(n, 1)
	p.countSharing(old, -1)
	if n != nil {
		for _, r := range n.Resources {
			p.count[r]++
		}
	}
	if old != nil {
		for _, r := range old.Resources {
			if p.count[r]--; p.count[r] == 0 {
				delete(p.count, r)
			}
		}
	}
	if old == nil || n == nil || old.GPUs != n.GPUs || old.Model != n.Model || old.Memory != n.Memory {
		p.memory = nil
	}
}

// countSharing counts a node with GPUs, nil for none.
func (p *plugins) countSharing(n *Node, by int) {
	switch {
	case n == nil || n.GPUs == 0:
	case n.Shared:
		p.shared += by
	default:
		p.whole += by
	}
}

// wholeOnly reports whether a pod must be kept off nodes whose GPUs are offered several times each. Who asks for GPUs by a
// resource and does not name these gets whole ones, if there are any; a part of a GPU is of a whole one.
func (p *plugins) wholeOnly(r *core.Request, resource v1.ResourceName) bool {
	if p.shared == 0 || r.GPU == 0 {
		return false
	}
	may := p.whole == 0 || resource == sharing.Resource || sharing.Asked(r)
	return resource == "" || !may
}

// others reports whether there are nodes whose GPUs have another resource.
func (p *plugins) others(than v1.ResourceName) bool {
	if than == "" {
		return false
	}
	n := len(p.count)
	if p.count[than] > 0 {
		n--
	}
	return n > 0
}

// kindsChanged reports whether resources have come or gone since the last call.
func (p *plugins) kindsChanged() bool {
	now := map[v1.ResourceName]bool{}
	for r := range p.count {
		now[r] = true
	}
	now["shared"], now["whole"] = p.shared > 0, p.whole > 0
	if maps.Equal(now, p.kinds) {
		return false
	}
	p.kinds = now
	return true
}

// memoryChanged reports whether pods that ask for memory were resolved by something else
// than there is.
func (p *plugins) memoryChanged() bool {
	if p.memory != nil || len(p.pods) == 0 || maps.Equal(p.resolved, p.ofModels()) {
		return false
	}
	p.resolved = p.memory
	return true
}

// ofModels returns how much memory a GPU of each model has, in MiB, as far as nodes say.
func (p *plugins) ofModels() map[string]int64 {
	if p.memory != nil {
		return p.memory
	}
	p.memory = map[string]int64{}
	for _, n := range p.nodes {
		if n.GPUs == 0 || n.Memory == 0 {
			continue
		}
		if old, ok := p.memory[n.Model]; !ok || n.Memory < old {
			p.memory[n.Model] = n.Memory
		}
	}
	return p.memory
}

// byMemory finds out which part of a GPU a pod needs, and of which models.
func (x *Index) byMemory(p *Pod) *Needs {
	x.plugins.pods[p.UID] = true
	ask := *p
	if p.Placed && (p.NodeMemory > 0 || p.Held > 0) {
		// As it was bound, which is no less than it asks for.
		ask.Request.GPU = p.Held
		if p.NodeMemory > 0 {
			ask.Request.GPU = min(max(p.Held, core.Milli(ceil(p.Memory*int64(core.WholeGPU), p.NodeMemory))), core.WholeGPU)
		}
		return x.byResource(&ask)
	}
	least, models := int64(0), []string{}
	var speeds []int64
	all := x.plugins.ofModels()
	for _, model := range slices.Sorted(maps.Keys(all)) {
		mib := all[model]
		if mib < p.Memory || p.Request.Models != nil && !slices.Contains(p.Request.Models, model) {
			continue
		}
		if len(p.Request.Speeds) > 0 {
			speeds = append(speeds, p.Request.SpeedOn(model))
		}
		if models = append(models, model); least == 0 || mib < least {
			least = mib
		}
	}
	if least == 0 {
		return &Needs{
			Request: p.Request, Reason: core.NoNode.String(),
			Detail: fmt.Sprintf("%d MiB of a GPU are requested: no node that the pod accepts has GPUs with that much memory according to its label %s", p.Memory, v1alpha1.MemoryLabel),
		}
	}
	ask.Request.GPU, ask.Request.Models = core.Milli(ceil(p.Memory*int64(core.WholeGPU), least)), models
	ask.Request.Speeds = speeds
	return x.byResource(&ask)
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// byResource finds out what a pod needs that asks for GPUs by a resource, or for a part
// of one: nodes with a device plugin for it or, where a device class provides the
// resource, with its devices.
func (x *Index) byResource(p *Pod) *Needs {
	n := &Needs{Request: withOwnSelector(p.Request)}
	if x.plugins.wholeOnly(&p.Request, p.Resource) {
		n.Request.Selector = append(n.Request.Selector, core.Requirement{Key: sharing.Label, Op: cluster.DoesNotExist})
	}
	var plain []core.Requirement
	switch {
	case x.plugins.others(p.Resource):
		plain = append(plain, core.Requirement{Key: translate.ResourceLabel(p.Resource), Op: cluster.Exists})
	case x.any:
		plain = append(plain, core.Requirement{Key: gpusLabel, Op: cluster.DoesNotExist})
	}
	if class := x.resources[p.Resource]; x.any && class != nil && p.Resource != "" && class.wrong == "" {
		if q := x.ofClass(class); q.wrong == "" {
			translate.AddAlternatives(&n.Request, [][]core.Requirement{plain, {{Key: q.label, Op: cluster.In, Values: []string{"all"}}}})
			return n
		}
	}
	n.Request.Selector = append(n.Request.Selector, plain...)
	if x.plugins.others(p.Resource) && x.plugins.count[p.Resource] == 0 {
		n.Reason, n.Detail = core.NoNode.String(), fmt.Sprintf("no node has GPUs of resource %s", p.Resource)
	}
	return n
}

// withOwnSelector returns a request of which the selector may be changed.
func withOwnSelector(r core.Request) core.Request {
	r.Selector = slices.Concat(r.Selector)
	return r
}
