package core

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// A job that says so in [Job].Suspend is suspended where it is, rather than evicted, if that costs less: its GPUs are freed, and its
// processes stay on their nodes with an image of the GPUs' memory. It is then a job that waits and has a home:
//
//   - every pod holds on its node the memory of its processes and of the image, a pod slot, and other resources than CPU, such as
//     network adapters, which the processes keep open. It holds no GPU and no CPU: its processes are stopped;
//   - it waits in its place in the order, within its queue's quota, and resumes as a whole on the devices that it left. It starts
//     nowhere else, and evicts or moves nobody;
//   - after [Preempt].MaxSuspended, or if its home is cordoned, changed or lost, it is stopped ([Requeue]). It has lost its work
//     since the last checkpoint then, and waits as any evicted job.
//
// The image is reserved by the pass that decides [Suspend], thus before the pause. Until the driver reports [PodsGone], a pod holds
// what it held before, and the image.
//
// An eviction becomes a suspension at the end of the pass that planned it: the plans are those that would be made without
// suspensions, but for the cost of victims. See docs/adr/0023 why that comes to an end.

// Suspension says what it takes to suspend a job. The zero value: it cannot be.
type Suspension struct {
	// Pause is how long the job needs to free its GPUs, Resume how long it needs on its GPUs until it works again.
	Pause, Resume Time
	// HostMemMiB is the host memory of each pod's image, beside what the pod requests; at least 1 if the job can be suspended.
	HostMemMiB int64
}

// suspended is the state of a job that is suspended, or about to be.
//
// Invariant: a pod of the job waits and has an image; or it leaves, and has none: then it holds what it held before and the memory of
// one. If the suspension is over, pods may wait without an image, too: those that have gone.
type suspended struct {
	job    *job
	since  Time
	until  Time   // when it is stopped
	images []bool // the pods that hold what [suspensions.image] says at their old places
	left   int    // how many do
	// over says that the pods were told to leave. The job waits as any other when all have.
	over bool
}

// suspensions are the jobs that are suspended, or about to be, in the order in which that was decided.
//
// Invariant: a job is in all, once, as long as job.suspended is set.
type suspensions struct {
	*Engine
	all []*suspended
}

// suspendable reports whether a victim, a pod of the job or all of them (-1), is one that can be suspended: the whole job.
func (j *job) suspendable(pod int) bool {
	return j.Suspend.HostMemMiB > 0 && (pod < 0 && j.Gang || len(j.pods) == 1) && !j.labelled() && !j.packed() &&
		!j.anyTask(func(t *Task) bool { return len(t.Affinity) > 0 })
}

// idle is for how long the GPUs of the job do no work if it is suspended and resumed.
func (s *Suspension) idle() Time { return cluster.Plus(s.Pause, s.Resume) }

// image is what a suspended pod holds on its node.
func (ss *suspensions) image(j *job, p *pod) cluster.Alloc {
	return cluster.Alloc{Node: p.alloc.Node, Others: p.alloc.Others, MemMiB: p.alloc.MemMiB + j.Suspend.HostMemMiB}
}

// decide turns evictions of the pass into suspensions, where jobs and nodes can bear it.
func (ss *suspensions) decide(now Time) {
	if ss.policy.Preempt.MaxSuspended == 0 {
		return
	}
	for k := range ss.nominations.evictions {
		x := &ss.nominations.evictions[k]
		j := x.job
		if ss.jobs.byName[j.Name] != j || len(x.pods) != len(j.pods) || !j.suspendable(x.pod) || j.suspended != nil ||
			j.Suspend.idle() >= j.unsaved(now, -1) || slices.ContainsFunc(j.pods, func(p pod) bool { return p.state != podLeaving || ss.state.Home(p.alloc.Node) != p.alloc.Node }) {
			continue
		}
		at := ss.nominations.decided(x)
		if at < 0 || !ss.reserve(j, now) {
			continue
		}
		ss.out[at].Op = Suspend
	}
}

// reserve reserves the images of a job that leaves, and reports whether its nodes have room for them, now and beside what is planned
// there.
func (ss *suspensions) reserve(j *job, now Time) bool {
	mark := ss.state.Mark()
	for i := range j.pods {
		o, a := cluster.Owner{Job: j.slot, Pod: int32(i)}, j.pods[i].alloc
		ss.state.Remove(o, a.Node)
		if a.MemMiB += j.Suspend.HostMemMiB; !ss.state.HasBeside(&a) {
			ss.state.Rollback(mark)
			return false
		}
		ss.state.Place(o, a)
	}
	j.suspended = &suspended{job: j, since: now, until: cluster.Plus(now, ss.policy.Preempt.MaxSuspended), images: make([]bool, len(j.pods))}
	none := &eviction{}
	for i := range j.pods {
		if !ss.nominations.holdsPlans(j.pods[i].alloc.Node, none) {
			j.suspended = nil
			ss.state.Rollback(mark)
			return false
		}
	}
	ss.state.Commit()
	ss.all = append(ss.all, j.suspended)
	ss.wakes.at(now, j.suspended.until)
	return true
}

// found takes in a job that an engine before this one suspended.
func (ss *suspensions) found(now Time, ev JobSuspended) error {
	// 1. Everything is checked before anything changes.
	j, err := ss.job(ev.Job)
	if err != nil {
		return err
	}
	switch {
	case !j.suspendable(-1) && !j.suspendable(0), len(ev.Pods) != len(j.pods):
		return fmt.Errorf("job %s cannot be suspended, or not with %d pods", ev.Job, len(ev.Pods))
	case j.suspended != nil || int(j.count[podWaiting]) != len(j.pods):
		return fmt.Errorf("job %s is suspended already, or has pods that do not wait", ev.Job)
	case ev.Since > now || ev.Since < -MaxTime:
		return fmt.Errorf("job %s: suspended at %.9gs, expected a time before now, %.9gs", ev.Job, ev.Since.Seconds(), now.Seconds())
	}
	places := make([]*cluster.Alloc, len(j.pods))
	for _, at := range ev.Pods {
		if at.Pod < 0 || at.Pod >= len(j.pods) || places[at.Pod] != nil {
			return fmt.Errorf("job %s has no pod %d, or it is named twice", ev.Job, at.Pod)
		}
		id, err := ss.node(at.Node)
		if err != nil {
			return err
		}
		there := PodRunning{Job: ev.Job, Pod: at.Pod, Node: at.Node}
		for set := at.GPUs; set != 0; set &= set - 1 {
			there.GPUs = append(there.GPUs, bits.TrailingZeros64(set))
		}
		a, err := ss.foundOn(id, &j.Tasks[j.pods[at.Pod].task], &there)
		if err != nil {
			return err
		}
		places[at.Pod] = &a
		beside := 0 // pods of the job on the same node
		for _, o := range places {
			if o != nil && o.Node == id {
				beside++
			}
		}
		if ss.state.Node(id).Count()+beside > cluster.MaxHeld {
			return fmt.Errorf("pod %d of job %s: node %s has %d pods already", at.Pod, ev.Job, at.Node, ss.state.Node(id).Count())
		}
	}

	// 2. It waits, and has its home there. Plans that count on the memory are given up.
	ss.waiting.dequeue(j)
	ss.nominations.denominate(j)
	j.suspended = &suspended{job: j, since: ev.Since, until: cluster.Plus(ev.Since, ss.policy.Preempt.MaxSuspended), images: make([]bool, len(j.pods)), left: len(j.pods)}
	ss.all = append(ss.all, j.suspended)
	for i := range j.pods {
		p := &j.pods[i]
		p.alloc = *places[i]
		id, image := p.alloc.Node, ss.image(j, p)
		if !ss.state.HasBeside(&image) {
			ss.nominations.dropPlans(id, false, now)
			ss.moves.abandonOn(id, true)
		}
		ss.nominations.dropPlans(id, true, now) // they hold no place yet that it could take
		ss.hold(j, i)
		ss.state.Commit()
		j.suspended.images[i] = true
	}
	ss.wakes.at(now, max(now, j.suspended.until))
	ss.waiting.enqueue(j, now)
	return nil
}

// run stops the jobs that have been suspended for too long, or whose home is closed.
func (ss *suspensions) run(now Time) {
	for _, s := range slices.Clone(ss.all) {
		if s.over {
			continue
		}
		closed := slices.IndexFunc(s.job.pods, func(p pod) bool {
			n := ss.state.Node(p.alloc.Node)
			return n.Spec.Cordoned || ss.state.Unhealthy(p.alloc.Node)&p.alloc.GPUs != 0
		})
		switch {
		case now >= s.until:
			ss.drop(s.job, fmt.Sprintf("suspended for %s", durationText(now-s.since)))
		case closed >= 0:
			ss.drop(s.job, fmt.Sprintf("node %s takes no pods, or a GPU there failed", ss.state.Node(s.job.pods[closed].alloc.Node).Spec.Name))
		default:
			ss.wakes.at(now, s.until)
		}
	}
}

// drop ends the suspension of a job, if it is suspended: its pods leave, and then it waits as an evicted one. The next pass decides that.
func (ss *suspensions) drop(j *job, detail string) {
	if j.suspended == nil || j.suspended.over {
		return
	}
	ss.waiting.dequeue(j)
	j.suspended.over = true
	pods := make([]Placement, 0, len(j.pods))
	for i := range j.pods {
		pods = append(pods, ss.placement(j, i))
	}
	ss.ending = append(ss.ending, Decision{Op: Requeue, Job: j.Name, Pods: pods, Reason: Suspended, Detail: detail})
}

// dropOn is drop for the jobs whose home is, in part, a node.
func (ss *suspensions) dropOn(id cluster.NodeID, detail string) {
	for _, s := range slices.Clone(ss.all) {
		if slices.ContainsFunc(s.job.pods, func(p pod) bool { return p.alloc.Node == id }) {
			ss.drop(s.job, detail)
		}
	}
}

// forget ends what there was of a suspension. The journal grows.
func (ss *suspensions) forget(j *job) {
	for i := range j.pods {
		ss.gone(j, i)
	}
	ss.all = slices.DeleteFunc(ss.all, func(s *suspended) bool { return s == j.suspended })
	j.suspended = nil
}

// paused puts the image of a pod that has given up its GPUs on its node, unless its job is to leave. The journal grows.
func (ss *suspensions) paused(j *job, i int) {
	s := j.suspended
	if s == nil || s.over {
		return
	}
	ss.hold(j, i)
	s.images[i] = true
	s.left++
}

// hold places the image of a pod. The journal grows.
func (ss *suspensions) hold(j *job, i int) {
	// PlaceFound: a pod that was found on the node may have taken more than there was.
	ss.state.PlaceFound(cluster.Owner{Job: j.slot, Pod: int32(i)}, ss.image(j, &j.pods[i]))
}

// holds reports whether a pod of the job has an image on its node.
func (j *job) holds(i int) bool { return j.suspended != nil && j.suspended.images[i] }

// gone takes the image of a pod, if it has one, off its node. The journal grows.
func (ss *suspensions) gone(j *job, i int) {
	if !j.holds(i) {
		return
	}
	node := j.pods[i].alloc.Node
	ss.state.Remove(cluster.Owner{Job: j.slot, Pod: int32(i)}, node)
	ss.lost(j, i)
	ss.changes.evictableChanged(node) // no job starts in its place
	ss.nominations.settleNode(node)
}

// lost counts the image of a pod as off its node, which the state has removed already.
func (ss *suspensions) lost(j *job, i int) {
	if j.holds(i) {
		j.suspended.images[i] = false
		j.suspended.left--
		ss.changes.roomFreed(j.pods[i].alloc.Node)
	}
}

// settle forgets the suspension of a job that was to leave when all its pods have.
func (ss *suspensions) settle(j *job) {
	if s := j.suspended; s != nil && s.over && s.left == 0 && j.count[podLeaving] == 0 {
		ss.forget(j)
	}
}

// resumeAtHome is try for a job that is suspended: it goes on where it is, or waits.
func (ps *pass) resumeAtHome(c *class, j *job, b bound) bool {
	w := ps.units.prepare(j)
	if _, crowded := w.crowded(); crowded {
		ps.waiting.setClass(c, classBounded)
		return false
	}
	if w.overrun() {
		ps.waiting.setClass(c, classOverrun)
		return false
	}
	placed := ps.atHome(j)
	within := func(b bound) bool {
		return affords(ps.state, j, placed, func(m string) Milli { return min(j.room(m), b.room(j.queue, m)) })
	}
	switch {
	case placed == nil, !within(unbound):
		ps.state.Rollback(0)
		c.short, c.exhausted = placed != nil, false
		ps.waiting.setClass(c, classStuck)
		return false
	case b != unbound && ps.policy.Queueing.Mode != StrictFIFO && !within(b):
		ps.state.Rollback(0)
		ps.waiting.postpone(c, ps.units.looser(b))
		return false
	}
	why := ps.waiting.howStarted(j)
	clear(j.suspended.images) // they went as the pods got their GPUs
	ps.suspensions.forget(j)
	ps.state.Commit()
	ps.bind(j, placed, ps.now, why)
	ps.out[len(ps.out)-1].Op = Resume
	return true
}

// atHome puts the pods of a suspended job back on their devices, nil if these are not free or the job must not have them now. The
// journal grows.
func (ps *pass) atHome(j *job) []place.Placed {
	left := ps.nominations.leftBy(j)
	for i := range j.pods {
		if id := j.pods[i].alloc.Node; ps.state.Closed(id) || slices.Contains(left, id) {
			return nil
		}
		ps.state.Remove(cluster.Owner{Job: j.slot, Pod: int32(i)}, j.pods[i].alloc.Node)
	}
	out := make([]place.Placed, 0, len(j.pods))
	for i := range j.pods {
		p := &j.pods[i]
		if !ps.state.Holds(&p.alloc) {
			return nil
		}
		ps.state.Place(cluster.Owner{Job: j.slot, Pod: int32(i)}, p.alloc)
		out = append(out, place.Placed{Pod: int32(i), Task: int(p.task), Alloc: p.alloc})
	}
	return out
}

// text says why a suspended job does not go on.
func (s *suspended) text(e *Engine) string {
	if s.over {
		return "it was suspended; pods of it still leaving: " + fmt.Sprint(s.left+int(s.job.count[podLeaving]))
	}
	var on []string
	for i := range s.job.pods {
		if name := e.state.Node(s.job.pods[i].alloc.Node).Spec.Name; !slices.Contains(on, name) {
			on = append(on, name)
		}
	}
	where := "node " + on[0]
	if len(on) > 1 {
		where = fmt.Sprintf("%s and %d more nodes", on[0], len(on)-1)
	}
	return fmt.Sprintf("suspended for %s on %s; it resumes when its GPUs there and its quota are free, and is evicted after %s",
		secondsText(e.now-s.since), where, durationText(s.until-s.since))
}
