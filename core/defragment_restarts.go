package core

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/defrag"
)

// Jobs that save their progress may restart elsewhere so that whole nodes become free, if the policy
// says so: what moves cannot vacate. They do as if a user had requested it (restart.go): a place is
// kept for each pod before it stops.

// restartable says which jobs may restart by one plan. What it has found out holds as long as the
// plan is made.
type restartable struct {
	*defragmenter
	bounds *Defrag
	known  map[cluster.Owner]defrag.Restart // zero if it must not
}

// of returns what restarts with a pod.
func (r *restartable) of(o cluster.Owner) (defrag.Restart, bool) {
	j := r.jobs.slots[o.Job]
	if j.Gang {
		o.Pod = -1
	}
	x, ok := r.known[o]
	if !ok {
		if r.mayRestart(j, int(o.Pod), r.bounds) {
			x = defrag.Restart{Of: o, Pods: 1}
			if j.Gang {
				x.Pods = int(j.count[podRunning])
			}
			work, gpu := j.lost(r.now, int(o.Pod))
			x.Cost = work + int64(gpu)*r.bounds.moveSeconds()
		}
		r.known[o] = x
	}
	return x, x.Pods > 0
}

// mayRestart reports whether a pod, or its gang, may restart elsewhere so that a node becomes free.
// It must save its progress, and have run for the minimum time before evictions.
func (d *defragmenter) mayRestart(j *job, pod int, bounds *Defrag) bool {
	if bounds.Restarts == NoRestarts || bounds.Restarts == LPRestarts && j.Class != LP || j.Checkpoint == 0 || !d.couldRestart(j) || j.onLent(d.state) {
		return false
	}
	started, of := j.started, -1
	if !j.Gang {
		if j.pods[pod].state != podRunning {
			return false
		}
		started, of = j.pods[pod].started, pod
	}
	if d.now < cluster.Plus(started, max(d.policy.Preempt.MinRuntime, j.MinRuntime)) {
		return false
	}
	return bounds.MaxLost == 0 || j.unsaved(d.now, of) <= bounds.MaxLost
}

// restart begins the restart of a job, of which some pods go to other nodes, and reports whether it
// could.
func (d *defragmenter) restart(moves []leftMove) bool {
	j, ns := moves[0].job, &d.nominations
	x := &restartAsked{job: j}
	x.Job = j.Name
	for k := range moves {
		x.Pods = append(x.Pods, int(moves[k].Pod.Pod))
		x.Nodes = append(x.Nodes, d.state.Node(moves[k].To).Spec.Name)
	}
	if slices.ContainsFunc(x.Pods, func(i int) bool { return !d.mayRestart(j, i, &d.policy.Defrag) }) {
		return false
	}
	ns.working = j.Name
	r, err := ns.planRestart(x)
	later := outlook{Never, Never}
	if err != nil || !d.planner.affordsEvictions(len(r.pods), preemptor{now: d.now, later: &later}) {
		return false
	}
	ns.restart(r, nil, Defragmentation)
	d.planner.budget.spent += len(r.pods)
	return true
}
