package coretest

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core"
)

// wanted returns which share of a model's GPUs, in thousandths, jobs hold, or wait for that can use no
// other model: for an HP job HP jobs, for an LP job all. own is what the job itself holds now, and did
// not when it chose.
func (w *Twin) wanted(model string, class core.Class, own core.Milli) int64 {
	sum, gpus := -int64(own), int64(0)
	for _, j := range w.jobs {
		for i := range j.pods {
			p := &j.pods[i]
			t := &j.Tasks[p.task]
			wants := p.state == running && w.node(p.at.Node).Model == model
			if len(t.Models) == 1 {
				wants = p.state < done && t.Models[0] == model
			}
			if wants && j.Class <= class {
				sum += int64(t.GPU)
			}
		}
	}
	for _, n := range w.nodes {
		if n.up && n.Model == model {
			gpus += int64(n.GPUs)
		}
	}
	return min(sum/max(gpus, 1), 1000)
}

// better reports whether a job that has started pods on models goes to a model rather than to another
// one, if both have room.
func (w *Twin) better(j *job, t *core.Task, has map[string]int, model, than string) bool {
	speeds := map[string]int64{}
	for i, s := range t.Speeds {
		speeds[t.Models[i]] = s
	}
	cost := func(m string) float64 {
		price, speed := 1000.0, 1000.0
		if w.policy.Models == core.LeastWanted && t.GPU > 0 { // a job without GPUs takes none that are wanted
			own := core.Milli(has[m]) * t.GPU
			if len(t.Models) == 1 {
				own = 0 // it counted when it waited, too
			}
			price += float64(w.wanted(m, j.Class, own))
		}
		if s, ok := speeds[m]; ok {
			speed = float64(s)
		}
		return price / speed
	}
	return cost(model) < cost(than)*(1-1e-9)
}

// combined checks that the running pods of a job that lists combinations of models are on the models of one of them.
func (w *Twin) combined(j *job) error {
	fits := func(c core.Combination) bool {
		return !slices.ContainsFunc(j.pods, func(p pod) bool {
			lists := p.task < len(c.Models) // not a role that joined the job later
			return p.on() && lists && j.Tasks[p.task].GPU > 0 && w.node(p.at.Node).Model != c.Models[p.task]
		})
	}
	if len(j.Combinations) > 0 && !slices.ContainsFunc(j.Combinations, fits) {
		return fmt.Errorf("its models are not one of its combinations %v", j.Combinations)
	}
	return nil
}

// bestModels checks that a job that starts is on the best model with room, where nothing but room
// decides: it has one task and no ties to other pods or to a domain, and no place is kept for others.
func (w *Twin) bestModels(j *job, d *core.Decision, asGang bool) error {
	t := &j.Tasks[0]
	ordered := len(t.Speeds) > 0 || w.policy.Models == core.LeastWanted && t.GPU > 0
	tied := len(t.Affinity) > 0 || len(t.Labels) > 0 || j.Topology != core.TopologyRequest{} || len(j.left) > 0 || j.adopted
	joins := j.Gang && !asGang && anyModel(t)
	planned := kept(d)
	if !ordered || len(j.Tasks) > 1 || tied || joins || planned || w.policy.Zone != (core.Zone{}) || w.keepsPlaces() || len(w.models()) > 0 {
		return nil
	}

	// 1. How many more pods each model could take, and how many of these it has.
	room, has := map[string]int{}, map[string]int{}
	for _, n := range w.nodes {
		room[n.Model] += w.slots(j, t, n)
	}
	for _, at := range d.Pods {
		has[w.node(at.Node).Model]++
	}

	// 2. A gang is on the best model that could take all of it. A pod by itself is on one only if no
	// better one could take it.
	for m, k := range room {
		enough := k > 0
		if asGang {
			enough = has[m] < len(d.Pods) && k+has[m] >= len(d.Pods)
		}
		if !enough {
			continue
		}
		for used := range has {
			if w.better(j, t, has, m, used) || asGang && len(has) > 1 {
				return fmt.Errorf("it is on %s, and %s has room", used, m)
			}
		}
	}
	return nil
}

// keepsPlaces reports whether places may be kept for jobs that have not started, or lent by pods.
func (w *Twin) keepsPlaces() bool {
	if !w.Settled() {
		return true
	}
	for _, j := range w.jobs {
		if j.nominated || slices.ContainsFunc(j.pods, func(p pod) bool { return p.standby != nil }) {
			return true
		}
	}
	return false
}
