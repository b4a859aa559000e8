package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
)

// amount is how much of a resource a pod requests, or a node can allocate: CPU in
// milli-cores, others in their unit.
type amount struct {
	name  corev1.ResourceName
	value int64
}

// amounts returns a list of resources, ordered by name.
func amounts(list corev1.ResourceList) []amount {
	out := make([]amount, 0, len(list))
	for name, q := range list {
		a := amount{corev1.ResourceName(intern(string(name))), q.Value()}
		if name == corev1.ResourceCPU {
			a.value = q.MilliValue()
		}
		if a.value > 0 || name == GPUResource {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b amount) int { return strings.Compare(string(a.name), string(b.name)) })
	return out
}

// requests returns what a pod requests, with itself.
func requests(p *corev1.Pod) []amount {
	list := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	out := make([]amount, 0, len(list)+1)
	for _, a := range amounts(list) {
		if a.value > 0 {
			out = append(out, a)
		}
	}
	return append(out, amount{corev1.ResourcePods, 1})
}

// room is what pods that were admitted take of their nodes.
type room struct {
	mu    sync.Mutex
	taken map[string]map[types.UID][]amount // by node
}

func newRoom() *room { return &room{taken: map[string]map[types.UID][]amount{}} }

// hold takes the room of a pod that runs.
func (r *room) hold(p *pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holdLocked(p)
}

func (r *room) holdLocked(p *pod) {
	if r.taken[p.node] == nil {
		r.taken[p.node] = map[types.UID][]amount{}
	}
	r.taken[p.node][p.UID] = p.requests
}

// release gives the room of a pod back.
func (r *room) release(p *pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.taken[p.node], p.UID)
	if len(r.taken[p.node]) == 0 {
		delete(r.taken, p.node)
	}
}

// refusal is why a node refuses a pod.
type refusal struct {
	name                 corev1.ResourceName
	requested, used, has int64
}

// admit takes the room of a pod, or says of which resource the node has too little. As a
// kubelet does, it ignores extended resources that the node does not have: those are
// allocated through DRA.
func (r *room) admit(p *pod, allocatable []amount) *refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, admitted := r.taken[p.node][p.UID]; admitted {
		return nil
	}
	for _, need := range p.requests {
		i := slices.IndexFunc(allocatable, func(a amount) bool { return a.name == need.name })
		if i < 0 && strings.Contains(string(need.name), "/") {
			continue
		}
		f := &refusal{name: need.name, requested: need.value}
		if i >= 0 {
			f.has = allocatable[i].value
		}
		for _, other := range r.taken[p.node] {
			for _, a := range other {
				if a.name == need.name {
					f.used += a.value
				}
			}
		}
		if f.has-f.used < need.value {
			return f
		}
	}
	r.holdLocked(p)
	return nil
}

// status returns the changes in the status of a pod that its node refuses, as a kubelet
// writes them.
func (f *refusal) status() corev1.PodStatus {
	return corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: "OutOf" + string(f.name),
		Message: fmt.Sprintf("Pod was rejected: Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			f.name, f.requested, f.used, f.has),
	}
}

// admit admits a pod to its node, or returns why the node refuses it. The node is read
// again before that: it may have changed.
func (f *pods) admit(ctx context.Context, p *pod, n *liveNode) (*refusal, error) {
	no := f.room.admit(p, n.allocatable)
	if no != nil {
		now, err := f.client.CoreV1().Nodes().Get(ctx, p.node, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		no = f.room.admit(p, condenseNode(now).allocatable)
	}
	if no == nil && !f.lives(p) {
		f.room.release(p) // it went meanwhile, and nobody else would
	}
	return no, nil
}

// lives reports whether a pod is there and has not ended, as far as is known.
func (f *pods) lives(p *pod) bool {
	object, ok, _ := f.store.GetByKey(p.Namespace + "/" + p.Name)
	if !ok {
		return false
	}
	now := object.(*pod)
	return now.UID == p.UID && !now.ended()
}

// account takes the room of a pod that runs, and gives back that of one that has ended.
func (f *pods) account(p *pod) {
	switch {
	case p.ended():
		f.room.release(p)
	case p.phase == corev1.PodRunning:
		f.room.hold(p)
	}
}
