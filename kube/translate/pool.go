package translate

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/keys"
)

// Pools divide the nodes of a cluster, and its jobs, among schedulers. A node
// is in the pool that a label of it names, else in that of its GPU model; nodes
// without GPUs are in the pool "". A job's pool follows from its own objects
// alone, so that all schedulers find the same.

// poolLabels name the pool of a node or a job, the first that is there.
var poolLabels = keys.Same(v1alpha1.PoolLabel)

// NodePool names the pool of a node of a GPU model, "" without GPUs.
func NodePool(labels map[string]string, model string) string {
	return cmp.Or(first(labels, poolLabels), model)
}

// Pool is the pool of a job, as far as an object tells it. The zero value tells
// nothing.
type Pool struct {
	Name string
	by   telling
}

// telling is how an object tells a pool: what is more explicit counts for more.
type telling uint8

const (
	byNothing telling = iota
	byPodGroupModel
	byModel
	bySelector
	byNamespace
	byPodGroup
	byPod
)

// Or returns which of two tells more; of two that tell as much, the first by name.
func (p Pool) Or(q Pool) Pool {
	if c := cmp.Or(cmp.Compare(q.by, p.by), cmp.Compare(p.Name, q.Name)); c > 0 {
		return q
	}
	return p
}

// PodPool is what a pod says about its job's pool: by a label, else by a node
// selector, else by the GPU models it asks for.
func PodPool(p *v1.Pod, r *core.Request) Pool {
	if pool := labelPool(p, byPod); pool.by != byNothing {
		return pool
	}
	pool := modelsPool(r.Models, byModel)
	for i := range r.Selector {
		s := &r.Selector[i]
		switch {
		case s.Op != cluster.In || len(s.Values) == 0:
		case slices.Contains(poolLabels, s.Key):
			pool = pool.Or(Pool{slices.Min(s.Values), bySelector})
		case slices.Contains(modelLabels, s.Key):
			models := make([]string, len(s.Values))
			for i, v := range s.Values {
				models[i] = plainModel(v)
			}
			pool = pool.Or(modelsPool(models, byModel))
		}
	}
	return pool
}

// PodGroupPool is what the labels of a PodGroup tell, else the GPU models that it
// asks for.
func PodGroupPool(g keys.Labelled, models []string) Pool {
	return labelPool(g, byPodGroup).Or(modelsPool(models, byPodGroupModel))
}

// NamespacePool is what the labels of a namespace tell.
func NamespacePool(labels map[string]string) Pool {
	if name := first(labels, poolLabels); name != "" {
		return Pool{name, byNamespace}
	}
	return Pool{}
}

// modelsPool is the pool of a job that takes any of these GPU models.
func modelsPool(models []string, by telling) Pool {
	if len(models) == 0 {
		return Pool{}
	}
	pool, _, _ := strings.Cut(slices.Min(models), "=") // without its speed
	return Pool{pool, by}
}

func labelPool(o keys.Labelled, by telling) Pool {
	if _, name, ok := lookup(o, poolLabels); ok && name != "" {
		return Pool{name, by}
	}
	return Pool{}
}
