package core

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// A running HP pod may be on standby for a window: its container stays warm on its node, and its
// GPUs, with the CPU and memory that it does not keep, are lent to LP pods (ASI §4.2, "Standby").
// As long as it is
//
//   - it keeps its place: the state counts it at home as if it were active, and so does quota. No
//     other pod gets the place when the window ends;
//   - what it lends is part of a lent node ([cluster.State.Lend]), where only pods that may be evicted at
//     any time start: see borrowsDevices. HP pods never do: the owner could not be back in time. A pod there may have
//     devices of several owners of the node, and take CPU and memory of the home, too:
//     an HP job evicts them for that, see planner.frees;
//   - it is neither moved nor chosen as a victim, nor is its gang as a whole.
//
// The window ends at its time, or when the user says so. Then nothing more starts on its devices,
// the pods on them are evicted, gangs as far as they cannot go on without them, and others on the lent node, as long as
// these take CPU or memory that no other owner lends and that is not free at home. When all that has left, the owner goes on: [Resume].
//
// If the owner ends, fails or leaves meanwhile, the borrowers stay: what it took of its home is
// free, and they are on a part of that. They are ordinary pods of the home from then on, but for those that have
// devices of another owner, too: they stay where they are, and draw the devices of the first from home. If the
// node is lost, so are all. If a lent GPU fails, no more pods start on it, and the owner has it
// when it goes on, as any pod has a GPU that fails.

// standbys are the pods on standby.
//
// Invariant: a pod is in all, once, as long as its standby is set. It is running or leaving.
type standbys struct {
	*Engine
	// all is in the order in which they began.
	all []*standby
	// ever says that there was one: from then on jobs differ by whether they may borrow devices.
	ever bool
}

// standby is a pod that lends its devices.
type standby struct {
	job *job
	pod int
	// node is the lent node that has its devices.
	node    cluster.NodeID
	devices uint64
	until   Time
	// ending says that its part of node is closed: the owner goes on, or leaves.
	ending bool
	// told says that pods were told to leave for its CPU and memory, as far as that was needed.
	told bool
}

// borrowsDevices reports whether pods of the job may be on the devices that pods on standby
// lend: it is LP, it can use them, and nothing protects it from eviction for some time.
func (j *job) borrowsDevices() bool {
	return j.Class == LP && !j.NeverOnLent && !j.pinned && !j.Foreign && j.MinRuntime == 0
}

// lends reports whether pods of the job are expected to be on standby.
func (j *job) lends() bool { return j.Lends && j.Class == HP }

// beginStandby handles pods that are on standby from now on.
func (e *Engine) beginStandby(now Time, ev StandbyBegan) error {
	// 1. Everything is checked before anything changes.
	j, err := e.job(ev.Job)
	if err != nil {
		return err
	}
	switch {
	case j.Class != HP:
		return fmt.Errorf("job %s: only pods of HP jobs may be on standby", ev.Job)
	case ev.CPUMilli < 0 || ev.MemMiB < 0:
		return fmt.Errorf("job %s: a pod on standby keeps %d milli-cores and %d MiB, expected at least 0", ev.Job, ev.CPUMilli, ev.MemMiB)
	}
	if err := checkDuration(ev.Job, "end of the standby", ev.Until); err != nil {
		return err
	}
	pods := ev.Pods
	if pods == nil {
		for i := range j.pods {
			if j.pods[i].state == podRunning && j.gpu(&j.pods[i]) > 0 {
				pods = append(pods, i)
			}
		}
	}
	if len(pods) == 0 {
		return fmt.Errorf("job %s has no running pods with GPUs", ev.Job)
	}
	for k, i := range pods {
		if err := e.standbys.able(j, i); err != nil {
			return err
		}
		if slices.Contains(pods[:k], i) {
			return fmt.Errorf("job %s: pod %d is named twice", ev.Job, i)
		}
	}

	// 2. Each pod lends what it has. A pod on standby gets another end of its window.
	if !e.standbys.ever {
		e.standbys.ever = true
		e.waiting.reclassify(e.jobs.slots, now)
	}
	fresh := false
	for _, i := range pods {
		p := &j.pods[i]
		if p.standby() != nil {
			p.standby().until = ev.Until
			e.state.SetLentUntil(p.standby().node, p.standby().devices, ev.Until)
			continue
		}
		id, isNew := e.state.Lend(&p.alloc, ev.CPUMilli, ev.MemMiB, ev.Until)
		fresh = fresh || isNew
		p.tied().standby = &standby{job: j, pod: i, node: id, devices: p.alloc.GPUs, until: ev.Until}
		j.standing++
		e.standbys.all = append(e.standbys.all, p.standby())
		e.changes.standbyBegun(j, id)
	}
	if fresh {
		e.changes.roomFreedAnywhere()
	}
	return nil
}

// able says why a pod cannot be on standby; nil if it can, or is.
func (ss *standbys) able(j *job, i int) error {
	switch {
	case i < 0 || i >= len(j.pods) || j.pods[i].state != podRunning:
		return fmt.Errorf("pod %d of job %s is not running", i, j.Name)
	case j.gpu(&j.pods[i]) < WholeGPU:
		return fmt.Errorf("pod %d of job %s has no whole GPU to lend", i, j.Name)
	case j.packed():
		return fmt.Errorf("pod %d of job %s shares its GPUs with another job", i, j.Name)
	case j.pods[i].move() != nil:
		return fmt.Errorf("pod %d of job %s is being moved", i, j.Name)
	case j.pods[i].standby() != nil && j.pods[i].standby().ending:
		return fmt.Errorf("pod %d of job %s is about to go on", i, j.Name)
	}
	return nil
}

// endStandby handles the request that pods on standby go on.
func (e *Engine) endStandby(now Time, ev StandbyEnded) error {
	j, err := e.job(ev.Job)
	if err != nil {
		return err
	}
	for _, i := range ev.Pods {
		if i < 0 || i >= len(j.pods) || j.pods[i].standby() == nil {
			return fmt.Errorf("pod %d of job %s is not on standby", i, ev.Job)
		}
	}
	if ev.Pods == nil && j.standing == 0 {
		return fmt.Errorf("job %s has no pods on standby", ev.Job)
	}
	for i := range j.pods {
		if p := &j.pods[i]; p.standby() != nil && (ev.Pods == nil || slices.Contains(ev.Pods, i)) {
			p.standby().until = now
		}
	}
	return nil
}

// poolsAt returns the pools of a node, of the home that lends it, and of what is lent there, as changes.pools.
func (ss *standbys) poolsAt(id cluster.NodeID) uint64 {
	home := ss.state.Home(id)
	pools := poolBit(ss.state.Node(home))
	if lent, lends := ss.state.LentAt(home); lends {
		pools |= poolBit(ss.state.Node(lent))
	}
	return pools
}

// run ends the windows whose time has come, and lets the pods go on whose GPUs are free again.
func (ss *standbys) run(now Time) {
	// 1. First all that end are closed: what pods need that stay is known then.
	for _, s := range ss.all {
		// Of one that leaves what is on its GPUs stays, and nothing more starts.
		runs := s.job.pods[s.pod].state == podRunning
		switch {
		case s.ending:
		case runs && s.until > now:
			ss.wakes.at(now, s.until)
		default:
			ss.close(s, runs, now)
		}
	}

	// 2. The pods on them leave, and owners go on.
	for k := 0; k < len(ss.all); {
		s := ss.all[k]
		if !s.ending || s.job.pods[s.pod].state != podRunning {
			k++
			continue
		}
		ss.working = s.job.Name
		ss.evictFor(s)
		if !ss.state.MayUnlend(s.node, s.devices) {
			k++
			continue
		}
		from := len(ss.places)
		ss.places = append(ss.places, ss.placement(s.job, s.pod))
		ss.out = append(ss.out, Decision{
			Op: Resume, Job: s.job.Name, Pods: ss.places[from:len(ss.places):len(ss.places)], Reason: StandbyReturns,
		})
		ss.forget(s)
		ss.changes.standbyOver(s.job)
	}
	ss.working = ""
}

// close keeps new pods off what a pod lends. Plans for what is lent there are given up: they may count on its CPU.
func (ss *standbys) close(s *standby, returns bool, now Time) {
	s.ending = true
	ss.nominations.dropPlans(s.node, false, now)
	ss.state.CloseLent(s.node, s.devices, returns)
}

// evictFor evicts the pods on what a pod lends, so that it can go on; and at first others on the lent node, the last first, as long as
// those that stay take more CPU or memory than there will be. What they take is kept for them from then on. Those
// that leave already, for whatever reason, are gone by then.
func (ss *standbys) evictFor(s *standby) {
	n := ss.state.Node(s.node)
	var on, leaving []cluster.Owner
	for h := range n.Pods {
		if h.Alloc.GPUs&s.devices != 0 {
			on = append(on, h.Owner)
		}
		if ss.jobs.slots[h.Owner.Job].pods[h.Owner.Pod].state == podLeaving {
			leaving = append(leaving, h.Owner)
		}
	}
	ss.evictFrom(s, on)
	if s.told {
		return
	}
	for _, o := range leaving {
		ss.state.GoFor(o, s.node)
	}
	s.told = true
	for cpu, mem := ss.state.StaysShort(s.node); cpu || mem; cpu, mem = ss.state.StaysShort(s.node) {
		var last cluster.Owner
		for h := range n.Pods {
			takes := cpu && h.Alloc.CPUMilli > 0 || mem && h.Alloc.MemMiB > 0
			if takes && !ss.state.Leaves(h) {
				last = h.Owner
			}
		}
		ss.state.GoFor(last, s.node)
		ss.evictFrom(s, []cluster.Owner{last})
	}
}

// evictFrom evicts pods for the return of another one, as far as they have not been told to leave. Of a gang that cannot go
// on without them, all pods leave.
func (ss *standbys) evictFrom(s *standby, pods []cluster.Owner) {
	// 1. Who leaves, in the order in which they came.
	type leaver struct {
		job  *job
		pods []int
	}
	var leavers []leaver
	for _, o := range pods {
		j, i := ss.jobs.slots[o.Job], int(o.Pod)
		if j.pods[i].state != podRunning {
			continue
		}
		k := slices.IndexFunc(leavers, func(l leaver) bool { return l.job == j })
		if k < 0 {
			k = len(leavers)
			leavers = append(leavers, leaver{job: j})
		}
		leavers[k].pods = append(leavers[k].pods, i)
	}

	// 2. They leave.
	for _, l := range leavers {
		j := l.job
		whole := false
		if j.Gang {
			j.markExtra()
			whole = slices.ContainsFunc(l.pods, func(i int) bool { return !j.pods[i].extra })
		}
		if whole {
			l.pods = l.pods[:0]
			for i := range j.pods {
				if j.pods[i].state == podRunning {
					l.pods = append(l.pods, i)
				}
			}
			ss.nominations.denominate(j)
		}
		slices.Sort(l.pods)
		from := len(ss.places)
		for _, i := range l.pods {
			ss.places = append(ss.places, ss.placement(j, i))
		}
		for _, i := range l.pods {
			p := &j.pods[i]
			j.charge(ss.state, p, -1)
			j.leaves(ss.state, p, 1)
			ss.set(j, p, podLeaving)
			ss.stopped(j, p)
			ss.state.GoFor(cluster.Owner{Job: j.slot, Pod: int32(i)}, p.alloc.Node)
		}
		ss.changes.quotaReturned()
		ss.nominations.goes(j)
		if whole {
			j.begun = false
			ss.waiting.dequeue(j)
		}
		ss.out = append(ss.out, Decision{
			Op: Evict, Job: j.Name, Pods: ss.places[from:len(ss.places):len(ss.places)], Reason: StandbyReturns, For: s.job.Name,
		})
	}
}

// forget ends a standby of which no pod has the devices.
func (ss *standbys) forget(s *standby) {
	ss.state.Unlend(s.node, s.devices)
	s.job.pods[s.pod].tied().standby = nil
	s.job.standing--
	ss.all = slices.DeleteFunc(ss.all, func(o *standby) bool { return o == s })
}

// handOver ends the standby of a pod that is off its node for good. Pods on what it lent are where it was from now on; those that
// have devices of another owner, too, stay on the lent node, and draw its devices from there. The journal grows.
func (ss *standbys) handOver(s *standby) {
	ss.nominations.dropPlans(s.node, false, ss.now)
	home := ss.state.Home(s.node)
	var on []cluster.Held
	for h := range ss.state.Node(s.node).Pods {
		if h.Alloc.GPUs&s.devices != 0 {
			on = append(on, *h)
		}
	}
	for _, h := range on {
		ss.state.Remove(h.Owner, s.node)
	}
	ss.forget(s)
	for _, h := range on {
		if h.Alloc.GPUs&ss.state.LentDevices(home) == 0 {
			h.Alloc.Node = home
			ss.state.Gone(h.Owner, s.node)
		}
		ss.state.PlaceFound(h.Owner, h.Alloc)
		ss.jobs.slots[h.Owner.Job].pods[h.Owner.Pod].alloc.Node = h.Alloc.Node
	}
	ss.changes.evictableChanged(home)
	ss.changes.standbyOver(s.job)
}

// lost ends what pods on a lost node lend, before its pods are off it.
func (ss *standbys) lost(node cluster.NodeID, now Time) {
	for _, s := range slices.Clone(ss.all) {
		if ss.state.Home(s.node) != node {
			continue
		}
		ss.nominations.dropPlans(s.node, false, now)
		s.job.pods[s.pod].tied().standby = nil
		s.job.standing--
		ss.all = slices.DeleteFunc(ss.all, func(o *standby) bool { return o == s })
	}
}

// lentWith returns the lent node of a node if some of these GPUs are lent, and pods of the job may be on
// it; else the node itself.
func (ss *standbys) lentWith(j *job, node cluster.NodeID, gpus []int) cluster.NodeID {
	set := uint64(0)
	for _, g := range gpus {
		if g >= 0 && g < cluster.MaxGPUs {
			set |= 1 << g
		}
	}
	if lent, lends := ss.state.LentAt(node); lends && set&ss.state.LentDevices(node) != 0 && j.borrowsDevices() {
		return lent
	}
	return node
}
