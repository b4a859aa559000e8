package place

import (
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// HoldsWithout reports whether the nodes that are up and take pods, without some of them, would hold the unit if they were empty.
// Devices that failed do not count. Each task is counted by itself, and the GPUs of all tasks of a gang together: "no" is certain,
// "yes" is not. O(tasks x nodes), and for a gang that must be on one model, once for each.
func (p *Placer) HoldsWithout(u *Unit, without []cluster.NodeID) bool {
	need := needOf(u)
	places := map[placeKey]*emptyPlace{}
	for id := range cluster.NodeID(p.state.Nodes()) {
		n, d := p.state.Node(id), p.domainOf(id, u.Required)
		if !n.Up || d < 0 || p.state.Lent(id) || n.Spec.Cordoned || slices.Contains(without, id) {
			continue
		}
		spec := n.Spec
		if bad := p.state.Unhealthy(id); bad != 0 {
			healthy := *spec
			healthy.GPUs -= bits.OnesCount64(bad)
			spec = &healthy
		}
		for _, m := range need.models {
			k := placeKey{m, d}
			if !u.Whole {
				k.domain = 0 // its pods start one by one, each where there is room
			}
			at := places[k]
			if at == nil {
				at = &emptyPlace{pods: make([]int, len(u.Tasks))}
				places[k] = at
			}
			if p.addNode(at, u, &need, m, id, spec); at.holds(&need) {
				return true
			}
		}
	}
	return need.none()
}

// unitNeed is what a unit needs of one place: pods by task, GPUs for all of them.
type unitNeed struct {
	pods []int
	gpu  cluster.Milli
	// models are those of which one must hold the pods that need GPUs and name none, [""] if no pod does.
	models []string
}

// placeKey is a model of those in unitNeed, and a domain of the required level.
type placeKey struct {
	model  string
	domain int32
}

// needOf returns what the unit needs: a gang all its pods together, another unit one pod of each task.
func needOf(u *Unit) unitNeed {
	need := unitNeed{pods: make([]int, len(u.Tasks))}
	for t := range u.Tasks {
		task := &u.Tasks[t]
		need.pods[t] = len(task.Pods)
		if !u.Whole {
			need.pods[t] = min(need.pods[t], 1)
			continue
		}
		need.gpu += cluster.Milli(need.pods[t]) * task.GPU()
		if task.onOneModel() {
			for _, m := range task.models {
				if !slices.Contains(need.models, m.name) {
					need.models = append(need.models, m.name)
				}
			}
		}
	}
	if need.models == nil {
		need.models = []string{""}
	}
	return need
}

// none reports whether nothing is needed.
func (need *unitNeed) none() bool {
	return !slices.ContainsFunc(need.pods, func(n int) bool { return n > 0 })
}

// addNode counts what an empty node holds of the unit in a place for one model; "" stands for any.
func (p *Placer) addNode(at *emptyPlace, u *Unit, need *unitNeed, model string, id cluster.NodeID, spec *cluster.NodeSpec) {
	useful := false
	for t := range u.Tasks {
		task := &u.Tasks[t]
		if need.pods[t] == 0 || u.Whole && task.onOneModel() && spec.Model != model || !p.eligible(u, task.Shape, id) {
			continue
		}
		n := task.holdsEmpty(spec)
		at.pods[t] = min(at.pods[t]+n, unlimited)
		useful = useful || n > 0 && task.GPU() > 0
	}
	if useful {
		at.gpus += spec.GPUs
	}
}

// holds reports whether the place has what is needed.
func (at *emptyPlace) holds(need *unitNeed) bool {
	for t, n := range need.pods {
		if at.pods[t] < n {
			return false
		}
	}
	return cluster.Milli(at.gpus)*cluster.WholeGPU >= need.gpu
}
