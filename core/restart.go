package core

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// This file restarts pods elsewhere because a driver requests it: a user moves a job that saves
// its progress, or a node is drained; or because a plan is to free a node (defragment_restarts.go). As in room.go, a place is kept for each pod before it stops,
// and the job has them all when they are free. Nothing waits for the places that the pods leave: the
// job's nomination leads itself.

// restartAsked is a request that the next pass decides.
type restartAsked struct {
	RestartRequested
	job *job
}

// requestRestart handles the request that pods stop and start again elsewhere.
func (e *Engine) requestRestart(ev RestartRequested) error {
	j, err := e.job(ev.Job)
	if err != nil {
		return err
	}
	asked := &e.nominations.asked
	if slices.ContainsFunc(*asked, func(o restartAsked) bool { return o.job == j }) {
		return fmt.Errorf("job %s: it is to restart elsewhere already", ev.Job)
	}
	ev.Pods, ev.Nodes = slices.Clone(ev.Pods), slices.Clone(ev.Nodes)
	x := restartAsked{ev, j}
	if _, err := e.nominations.planRestart(&x); err != nil {
		return err
	}
	*asked = append(*asked, x)
	return nil
}

// restartAsked decides the restarts that were requested since the last pass. What has happened
// since may have made some impossible: they are planned again, and those are dropped.
func (ns *nominations) restartAsked() {
	for i := range ns.asked {
		x := &ns.asked[i]
		if ns.jobs.byName[x.Job] != x.job {
			continue
		}
		ns.working = x.Job
		if r, err := ns.planRestart(x); err == nil {
			ns.restart(r, nil, Requested)
		}
	}
	ns.asked = ns.asked[:0]
}

// planRestart finds places for the pods that restart, or says why that is impossible. The state is
// as before afterwards.
func (ns *nominations) planRestart(x *restartAsked) (*restart, error) {
	j := x.job
	if err := ns.mayRestart(x); err != nil {
		return nil, err
	}
	mark, drawn := ns.state.Mark(), ns.placer.Drawn()
	r := &restart{victim: victim{job: j, pod: -1}}
	for i := range j.pods {
		if p := &j.pods[i]; j.Gang && p.state == podRunning || slices.Contains(x.Pods, i) {
			r.pods = append(r.pods, relocation{j, i, p.alloc, 0})
			ns.state.Remove(cluster.Owner{Job: j.slot, Pod: int32(i)}, p.alloc.Node)
		}
	}
	err := ns.placeAgain(x, r.pods)
	ns.state.Rollback(mark)
	ns.placer.Redraw(drawn)
	return r, err
}

// mayRestart says why pods must not restart elsewhere as requested, nil if they may. Of a job with
// labels or affinities no pod does: its new place could be gone by the time at which it starts.
func (ns *nominations) mayRestart(x *restartAsked) error {
	j := x.job
	switch {
	case len(x.Pods) == 0:
		return fmt.Errorf("job %s: no pods are named", j.Name)
	case x.Nodes != nil && len(x.Nodes) != len(x.Pods):
		return fmt.Errorf("job %s: %d nodes are named for %d pods", j.Name, len(x.Nodes), len(x.Pods))
	case j.held:
		return fmt.Errorf("job %s: it is held: %s", j.Name, ns.recovery.jobs[j.Name].held)
	case j.Locked || j.Foreign:
		return fmt.Errorf("job %s: its pods must not be moved", j.Name)
	case j.disruptionProtected:
		return fmt.Errorf("job %s: its pods must not be moved now, it is protected from disruption", j.Name)
	case j.labelled() || j.requires(func(Term) bool { return true }):
		return fmt.Errorf("job %s: its pods, or others, require something of the pods around them", j.Name)
	case j.nomination != nil || j.count[podWaiting] > 0 || j.count[podLeaving] > 0 || j.Gang && !j.begun, ns.staleGangs.until(j) != Never:
		return fmt.Errorf("job %s: not all of its pods run", j.Name)
	case j.packed():
		return fmt.Errorf("job %s: it shares its GPUs with another job", j.Name)
	case j.moving+j.standing > 0 || j.exposed || j.onLent(ns.state):
		return fmt.Errorf("job %s: pods of it are being moved, are on standby, or are on GPUs that they may have to leave", j.Name)
	}
	for k, i := range x.Pods {
		switch {
		case i < 0 || i >= len(j.pods):
			return fmt.Errorf("job %s has no pod %d", j.Name, i)
		case j.pods[i].state != podRunning:
			return fmt.Errorf("pod %d of job %s is not running", i, j.Name)
		case slices.Contains(x.Pods[:k], i):
			return fmt.Errorf("job %s: pod %d is named twice", j.Name, i)
		case x.Nodes != nil && x.Nodes[k] == ns.state.Node(j.pods[i].alloc.Node).Spec.Name:
			return fmt.Errorf("pod %d of job %s is on node %s already", i, j.Name, x.Nodes[k])
		}
	}
	return nil
}

// placeAgain gives pods that are off their nodes their new places, in the state, or says which has
// none.
func (ns *nominations) placeAgain(x *restartAsked, pods []relocation) error {
	// 1. Pods of a gang that are not named come back to their places, where they could start now: a
	// node may be cordoned.
	var left []*relocation
	for k := range pods {
		r := &pods[k]
		if !slices.Contains(x.Pods, r.pod) && ns.comesBack(r) {
			ns.state.Place(cluster.Owner{Job: r.job.slot, Pod: int32(r.pod)}, r.to)
		} else {
			left = append(left, r)
		}
	}

	// 2. The others go elsewhere, those first that go to a certain node.
	for _, named := range []bool{true, false} {
		for _, r := range left {
			name := ""
			if k := slices.Index(x.Pods, r.pod); k >= 0 && x.Nodes != nil {
				name = x.Nodes[k]
			}
			if named != (name != "") {
				continue
			}
			if err := ns.placeOne(r, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// placeOne gives a pod a place on a node, or on the other node that fits best.
func (ns *nominations) placeOne(r *relocation, name string) error {
	u := ns.moves.unit(r.job, r.pod)
	var placed []place.Placed
	if name == "" {
		placed = ns.placer.Pods(u)
	} else {
		id, err := ns.node(name)
		if err != nil {
			return err
		}
		placed = ns.placer.PodOn(u, id)
	}
	switch {
	case len(placed) > 0 && !ns.state.Lent(placed[0].Alloc.Node):
		r.to = placed[0].Alloc
		return nil
	case name != "":
		return fmt.Errorf("pod %d of job %s does not fit on node %s", r.pod, r.job.Name, name)
	}
	return fmt.Errorf("pod %d of job %s: no other node than %s has room for it", r.pod, r.job.Name, ns.state.Node(r.to.Node).Spec.Name)
}

// comesBack reports whether a pod that stops could start again in its place, which is free in the state: the node may be
// cordoned or have a taint since, have less room than its pods take, or a broken device.
func (ns *nominations) comesBack(r *relocation) bool {
	u := ns.moves.unit(r.job, r.pod)
	u.Left = u.Left[:len(u.Left)-1] // see moves.unit: its own node is the last
	return ns.placer.Takes(u, r.to.Node) && ns.state.Holds(&r.to)
}

// restart decides that a job, or pods of it, stop and start again elsewhere, for a nomination
// or, if that is nil, for nothing but that.
func (ns *nominations) restart(r *restart, n *nomination, why Reason) {
	v, from, room := r.job, len(ns.places), ""
	for _, x := range r.pods {
		ns.places = append(ns.places, ns.placement(v, x.pod))
	}
	own := ns.nominated(v)
	own.why = why
	if n == nil {
		n = own
	} else if room = n.job.Name; !slices.Contains(n.victims, v) {
		n.victims = append(n.victims, v)
	}
	ns.out = append(ns.out, Decision{
		Op: Evict, Job: v.Name, Pods: ns.places[from:len(ns.places):len(ns.places)], Reason: why, For: room,
	})
	own.lead = n
	if v.Gang {
		v.begun = false
	}
	for _, x := range r.pods {
		// Its quota stays as it is: it stays on its GPU model.
		p, old := &v.pods[x.pod], v.pods[x.pod].alloc
		p.alloc, p.tied().from, p.tied().leavingFor = x.to, &old, n
		own.old++
		n.outstanding++
		v.left = append(v.left, leftFor{old.Node, n})
		ns.keepPlace(own, x.pod)
		p.alloc = old // a pod without GPUs may go to another pool
		ns.stopped(v, p)
		p.alloc = x.to
	}
	ns.state.Commit()
	v.since = ns.now
	ns.holdsChanged()
	ns.changes.placesChanged(v)
	ns.waiting.enqueue(v, ns.now) // the other pods of a job that is no gang
}

// stayGone gives up the place to which a pod would go that is still at its old one, as it does
// not start again there: it leaves like any other victim. A gang gives up all of its places.
func (ns *nominations) stayGone(j *job, i int) {
	n := j.nomination
	if j.Gang || j.count[podHeld]+j.count[podPlanned] == 1 {
		ns.waiting.dequeue(j)
		ns.denominate(j)
		ns.waiting.enqueue(j, ns.now)
		return
	}
	ns.yield(n, i)
	ns.state.Commit()
	ns.changes.planDropped(j)
}

// bindReason says why a nominated job starts when its places are free.
func (n *nomination) bindReason() Reason {
	if n.lead == nil {
		return MadeRoom
	}
	return n.why
}

// couldRestart reports whether a job may stop and start again elsewhere without a request: it may
// be evicted, all of its pods run, and nothing depends on the places of its pods.
func (e *Engine) couldRestart(j *job) bool {
	switch {
	case e.now < j.stays, j.held, j.NeverRestarts, j.moving+j.standing > 0, j.nomination != nil, j.count[podWaiting] > 0,
		!j.evictable(), j.exposed, j.disruptionProtected, j.labelled():
		return false
	}
	return !j.Gang || j.begun && j.count[podLeaving] == 0 && e.staleGangs.until(j) == Never
}

// restarts reports whether pods of the job restart elsewhere. Until they do, no plan is made for
// other pods of it.
func (j *job) restarts() bool { return j.nomination != nil && j.nomination.lead != nil }
