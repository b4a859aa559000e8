package core

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/quota"
)

// This file has the life cycle of jobs and their pods: they are submitted, are found running,
// fail, leave and end.

// CheckJob reports what is wrong with a job's description by itself.
func CheckJob(j *Job) error {
	if j.Name == "" {
		return fmt.Errorf("job without a name")
	}
	if len(j.Tasks) == 0 {
		return fmt.Errorf("job %s: no tasks", j.Name)
	}
	if j.Kind >= numKinds || j.Class > LP {
		return fmt.Errorf("job %s: unknown kind or class", j.Name)
	}
	if j.Mobility >= numMobilities {
		return fmt.Errorf("job %s: unknown mobility", j.Name)
	}
	if j.Submitted < -MaxTime || j.Submitted > MaxTime {
		return fmt.Errorf("job %s: submitted at %.9gs, expected %.9gs at most, either side of 0", j.Name, j.Submitted.Seconds(), MaxTime.Seconds())
	}
	for _, d := range [...]struct {
		name string
		is   Time
	}{{"grace period of a stale gang", max(j.StaleGrace, 0)}, {"estimate", j.Estimate}, {"checkpoint interval", j.Checkpoint}, {"time to save its progress", j.SaveWithin}, {"minimum run time", j.MinRuntime}, {"time to suspend it", j.Suspend.Pause}, {"time to resume it", j.Suspend.Resume}} {
		if err := checkDuration(j.Name, d.name, d.is); err != nil {
			return err
		}
	}
	if c := j.Topology.Closeness; c < 0 || c > MaxCloseness {
		return fmt.Errorf("job %s: closeness %s, expected 0..%d", j.Name, FormatCloseness(c), MaxCloseness/1000)
	}
	if j.Suspend.HostMemMiB < 0 || j.Suspend.HostMemMiB > MaxAmount {
		return fmt.Errorf("job %s: an image of %d MiB, expected 0..%d", j.Name, j.Suspend.HostMemMiB, MaxAmount)
	}
	rigid, pods := false, 0
	for i := range j.Tasks {
		if err := checkTask(j.Name, i, &j.Tasks[i]); err != nil {
			return err
		}
		rigid = rigid || j.Tasks[i].MinPods != Elastic
		if pods += j.Tasks[i].Pods; pods > MaxPods {
			return fmt.Errorf("job %s: more than %d pods", j.Name, MaxPods)
		}
	}
	if j.Gang && !rigid {
		return fmt.Errorf("job %s: a gang that starts with no pods", j.Name)
	}
	if err := checkAlternatives(j); err != nil {
		return err
	}
	return checkCombinations(j)
}

// checkDuration reports what is wrong with a duration of a job.
func checkDuration(job, name string, d Time) error {
	if d < 0 || d > MaxTime {
		return fmt.Errorf("job %s: %s of %.9gs, expected 0..%.9gs", job, name, d.Seconds(), MaxTime.Seconds())
	}
	return nil
}

// checkTask reports what is wrong with a task, the i-th of a job.
func checkTask(job string, i int, t *Task) error {
	switch {
	case t.Pods < 1 || t.Pods > MaxPods:
		return fmt.Errorf("job %s: task %d has %d pods, expected 1..%d", job, i, t.Pods, MaxPods)
	case t.MinPods < Elastic || t.MinPods > t.Pods:
		return fmt.Errorf("job %s: task %d starts with %d pods, expected 0..%d, or %d for none", job, i, t.MinPods, t.Pods, Elastic)
	case t.GPU < 0 || t.GPU >= WholeGPU && t.GPU%WholeGPU != 0:
		return fmt.Errorf("job %s: %d milli-GPU a pod, expected less than 1000 or a multiple of it", job, t.GPU)
	case t.GPU > cluster.MaxGPUs*WholeGPU:
		return fmt.Errorf("job %s: %d milli-GPU a pod, expected at most %d", job, t.GPU, cluster.MaxGPUs*WholeGPU)
	}
	if err := t.Request.Check(); err != nil {
		return fmt.Errorf("job %s: %w", job, err)
	}
	if len(t.Prefers) > MaxPreferences {
		return fmt.Errorf("job %s: %d preferences, expected at most %d", job, len(t.Prefers), MaxPreferences)
	}
	for i := range t.Prefers {
		if err := t.Prefers[i].Check(); err != nil {
			return fmt.Errorf("job %s: %w", job, err)
		}
	}
	return nil
}

// submit adds a new job; all its pods wait.
func (e *Engine) submit(now Time, spec Job) error {
	e.working = spec.Name

	// 1. Everything is checked before anything changes.
	if err := CheckJob(&spec); err != nil {
		return err
	}
	if e.jobs.byName[spec.Name] != nil {
		return fmt.Errorf("job %s is there already", spec.Name)
	}
	q, ok := e.ledger.Lookup(spec.Queue)
	if !ok {
		return fmt.Errorf("job %s: queue %q is unknown", spec.Name, spec.Queue)
	}
	for _, l := range [2]string{spec.Topology.Required, spec.Topology.Preferred} {
		if _, ok := e.state.Level(l); l != "" && !ok {
			return fmt.Errorf("job %s: topology level %q is unknown", spec.Name, l)
		}
	}
	for i := range spec.Tasks {
		if err := e.affinities.check(spec.Name, spec.Tasks[i].Affinity); err != nil {
			return err
		}
		if err := e.affinities.checkPreferences(spec.Name, spec.Tasks[i].Prefers); err != nil {
			return err
		}
	}
	if spec.Locked || spec.Foreign {
		spec.Mobility = Stays // whether or not the policy heeds locks
	}
	spec.NeverPreempts = spec.NeverPreempts || e.policy.Preempt.HPOnly && spec.Class == LP

	// 2. The job, and its place in the order. It waits from its submission, which may be long
	// ago: a driver that builds an engine again sends all jobs at once.
	pinned, pin := e.policy.Preempt.protect(&spec, q)
	j := &job{Job: spec, queue: q, since: now, run: -1, pinned: pinned, pin: pin, bonus: e.sizeBonus(&spec)}
	j.key = key{precedence: precedence{spec.Class, spec.Priority}, submit: spec.Submitted - j.bonus}
	j.key.estimate, j.key.width = e.policy.estimateOf(&spec)
	if e.policy.Queueing.Order == ByPriority {
		j.key.size = spec.GPUs()
	}
	if spec.Submitted < now {
		j.since = spec.Submitted
	}
	j.addAll()
	e.longTerm.submitted(j)
	for t := range spec.Tasks {
		e.requested(j, t, spec.Tasks[t].Pods)
		e.observe(&spec.Tasks[t].Request, spec.Tasks[t].Pods)
	}

	// 3. Who depends on it. It may be an evicted job that a driver ended and submits again:
	// then it must not go back to the nodes that it left.
	e.jobs.add(j)
	e.state.SetSpot(j.slot, j.Class == LP)
	e.state.SetLends(j.slot, j.lends())
	e.affinities.repel(j.Tasks, 1)
	e.affinities.label(j, nil)
	q.Jobs++
	e.nominations.inherit(j)
	e.recovery.submitted(j)
	e.alternatives.submitted(j)
	e.waiting.enqueue(j, now)
	return nil
}

// sizeBonus is how much earlier than it was a new job counts as submitted.
func (e *Engine) sizeBonus(j *Job) Time {
	if j.Class == HP {
		return 0
	}
	gpus, weight := j.GPUs(), e.policy.Queueing.SizeWeight
	return min(cluster.Plus(cluster.Times(int(gpus/WholeGPU), weight), weight/Time(WholeGPU)*Time(gpus%WholeGPU)), MaxTime)
}

// requeueLast puts a job behind those that wait, if the policy says so and its eviction lost all
// that its pods had done.
func (e *Engine) requeueLast(j *job, now Time) {
	if e.policy.Requeue.Timestamp != EvictionTime || j.mostUnsaved() > 0 || j.saved > j.started {
		return
	}
	e.waiting.dequeue(j)
	j.key.submit = now - j.bonus
	if j.placed() || j.touched { // entitlement knows its pods by its old place in the order
		e.changes.orderChanged()
	}
}

// protect takes from a job the protection from eviction that the policy does not allow. It
// reports whether the job must not borrow, since what it borrowed could not be reclaimed, or
// not for long, and why.
func (p *Preempt) protect(j *Job, q *quota.Queue) (pinned bool, pin quota.Pin) {
	// A minimum run time keeps borrowed quota from its owner for as long. A short one may be
	// waited for; with a longer one than the policy's limit, a job runs on owned quota only.
	long := p.MaxMinRuntime > 0 && j.MinRuntime > p.MaxMinRuntime
	listed := p.ProtectedQueues == nil || slices.ContainsFunc(p.ProtectedQueues, q.In)
	if p.Unprotected || !listed {
		j.Locked, j.NotPreemptible = false, false
		if long {
			j.MinRuntime = p.MaxMinRuntime
		}
		long = false
	}
	if j.Locked || j.NotPreemptible || long {
		return true, quota.Protected
	}
	return j.Foreign, quota.Foreign
}

// expose takes its protection from a job that is found running with more than its queue's
// nominal quota. The engine did not give it that quota, and could never get it back: a tenant
// that names nodes itself, past the scheduler, could borrow for ever.
func (e *Engine) expose(j *job) {
	was := j.evictable()
	j.bookPins(e.state, -1)
	j.exposed = true
	e.changes.orderChanged()
	if was { // it was protected by its minimum run time only
		return
	}
	e.jobs.noteEvictable(j)
	e.runs.offer(j)
}

// unplaced gives a job its protection back when it no longer has a place: when it starts
// again, the engine decides within which quota.
func (e *Engine) unplaced(j *job) {
	if !j.exposed || j.placed() {
		return
	}
	j.exposed = false
	e.jobs.noteEvictable(j)
	e.changes.protectionReturned()
}

// observe lets the strategies that depend on the mix of requests learn from new ones, unless
// the policy says what the mix is.
func (e *Engine) observe(r *Request, pods int) {
	if len(e.policy.Mix) == 0 {
		e.placer.Mix.Observe(r, pods)
	}
}

// end forgets a job.
func (e *Engine) end(name string) error {
	j, err := e.job(name)
	if err != nil {
		return err
	}
	e.waiting.withdraw(j)
	e.longTerm.ended(j)
	e.alternatives.ended(j)
	e.nominations.denominate(j)
	e.nominations.passOn(j)
	if j.suspended != nil {
		e.suspensions.forget(j)
	}
	e.requestedNoLonger(j)
	for i := range j.pods {
		if p := &j.pods[i]; p.state == podRunning || p.state == podLeaving {
			e.release(j, i, podDone)
		}
	}
	e.state.Commit()
	e.state.SetLabels(j.slot, nil, nil)
	e.affinities.repel(j.Tasks, -1)
	j.queue.Jobs--
	if j.disruptionProtected {
		e.runs.disruptionProtected--
	}
	// The driver no longer needs to stop what is left of a broken gang.
	e.ending = slices.DeleteFunc(e.ending, func(d Decision) bool { return d.Job == name })
	e.jobs.remove(j)
	return nil
}

// release takes a running or leaving pod off its node. The journal grows.
func (e *Engine) release(j *job, i int, to podState) {
	p := &j.pods[i]
	if j.Class == LP && p.state == podLeaving && p.leavingFor() != nil {
		e.state.CountEvictions(p.alloc.Node, 1) // however it goes: on Kubernetes an evicted pod ends
	}
	o := cluster.Owner{Job: j.slot, Pod: int32(i)}
	e.state.Remove(o, p.alloc.Node)
	e.state.Gone(o, p.alloc.Node)
	e.packs.released(j)
	e.unbook(j, p, to)
	if to == podWaiting {
		e.suspensions.paused(j, i)
	}
	e.nominations.settleNode(p.alloc.Node)
}

// vacated takes a pod that restarts elsewhere off its old node. The journal grows.
func (e *Engine) vacated(j *job, i int) {
	node := j.pods[i].from().Node
	e.state.Remove(cluster.Owner{Job: j.slot, Pod: int32(i)}, node)
	e.unbookOld(j, &j.pods[i])
	e.nominations.settleNode(node)
}

// unbookOld counts a pod that restarts elsewhere as off its old node, which the state has
// removed already.
func (e *Engine) unbookOld(j *job, p *pod) {
	node := p.from().Node
	e.longTerm.hold(j, p, -1)
	p.tied().from = nil
	j.nomination.old--
	j.leaves(e.state, p, -1)
	e.changes.quotaReturned()
	e.nominations.holdsChanged()
	if p.leavingFor().job == j || p.leavingFor().job.nomination != p.leavingFor() {
		e.changes.evictableChanged(node) // no job starts in its place
	}
	p.leavingFor().outstanding--
	p.tied().leavingFor = nil
	e.changes.roomFreed(node)
	e.changes.podsVanished(j)
}

// unbook counts a pod as off its node, which the state has removed already.
func (e *Engine) unbook(j *job, p *pod, to podState) {
	node := p.alloc.Node
	if p.standby() != nil {
		e.standbys.handOver(p.standby())
	}
	switch p.state {
	case podRunning:
		j.charge(e.state, p, -1)
		e.changes.quotaReturned()
	case podLeaving:
		// Its quota was returned when it was evicted. Isolated queues get it only now, and other
		// pods may count on its labels no longer.
		j.leaves(e.state, p, -1)
		e.changes.quotaReturned()
		e.nominations.holdsChanged()
		forNoPlan := p.leavingFor() == nil || p.leavingFor().job.nomination != p.leavingFor()
		if forNoPlan {
			// No job starts in its place, so nothing else says that there is room now.
			e.changes.evictableChanged(node)
		}
	}
	was := p.state
	e.set(j, p, to)
	e.changes.placesChanged(j)
	if was == podRunning {
		e.stopped(j, p)
	} else if p.move() != nil { // its gang broke, and the driver was not told
		e.moves.abandon(p.move())
	}
	if p.leavingFor() != nil {
		p.leavingFor().outstanding--
		p.tied().leavingFor = nil
	}
	e.changes.roomFreed(node)
	e.changes.podsVanished(j)
}

// podEnded handles a pod that succeeded, failed, was lost or, if it did not run, was withdrawn.
// unbound says that it could not start.
func (e *Engine) podEnded(now Time, ev PodEnded, unbound bool) error {
	j, err := e.job(ev.Job)
	if err != nil {
		return err
	}
	if ev.Pod < 0 || ev.Pod >= len(j.pods) {
		return fmt.Errorf("job %s has no pod %d", ev.Job, ev.Pod)
	}
	p := &j.pods[ev.Pod]
	e.suspensions.drop(j, "a pod of it ended")
	if p.from() != nil {
		e.nominations.stayGone(j, ev.Pod)
	}
	held := j.holds(ev.Pod)
	e.suspensions.gone(j, ev.Pod)
	e.suspensions.settle(j)
	e.state.Commit()
	switch p.state {
	case podRunning, podLeaving:
	case podWaiting, podHeld, podPlanned:
		if ev.Failed && held {
			e.requeueIfGone(j, now)
			return nil
		}
		if ev.Failed {
			return fmt.Errorf("pod %d of job %s is not running", ev.Pod, ev.Job)
		}
		return e.withdraw(now, j, ev.Pod)
	default:
		return fmt.Errorf("pod %d of job %s has ended before", ev.Pod, ev.Job)
	}

	// 1. It succeeded, or was lost. If it was the last running pod of a gang and fewer than the minimum
	// succeeded, the gang starts whole again.
	had := e.staleGangs.had(j)
	if !ev.Failed {
		to := podDone
		if ev.Lost && e.staleGangs.grace(j) > 0 && !j.Alternatives { // no pod joins those
			to = podWithdrawn
		}
		e.release(j, ev.Pod, to)
		e.requested(j, int(p.task), -1)
		e.state.Commit()
		e.restart(j)
		e.staleGangs.lost(now, j, had)
		if j.class != nil && (j.Gang || j.Topology.Required != "") {
			// The waiting pods may have had to join it: where they may go now makes another class.
			e.waiting.dequeue(j)
			e.waiting.enqueue(j, now)
		}
		e.requeueIfGone(j, now)
		return nil
	}

	// 2. It failed: the job pauses. Pods that fail during the pause count as the same failure:
	// else a gang of 100 pods that cannot start would wait for the longest pause at once. A
	// failure after a run that was longer than any pause counts as the first.
	starts := unbound && p.started <= j.started // else it was to join a gang that runs
	e.release(j, ev.Pod, podWaiting)
	e.state.Commit()
	e.waiting.dequeue(j)
	if now >= j.notBefore {
		if now-j.started > e.policy.Requeue.MaxBackoff {
			j.failures = 0
		}
		j.failures++
		j.delay = nil
		j.notBefore = cluster.Plus(now, e.policy.Requeue.Pause(int(j.failures)))
	}

	// 3. Its gang may have fewer than its minimum left.
	if j.Gang && (starts || !e.staleGangs.lost(now, j, had)) {
		e.breakGang(j, MemberLost, "")
	}
	e.requeueIfGone(j, now)
	return nil
}

// Pause returns how long a job waits after its nth failure in a row, n > 0.
func (r RequeuePolicy) Pause(failures int) Time {
	p := r.Backoff
	for i := 1; i < failures && p < r.MaxBackoff; i++ {
		p = cluster.Plus(p, p)
	}
	if r.MaxBackoff > 0 {
		p = min(p, r.MaxBackoff)
	}
	return p
}

// breakGang stops a gang that has fewer pods left than its minimum. The driver is told by
// the next pass, because only passes return decisions.
func (e *Engine) breakGang(j *job, why Reason, detail string) {
	if j.viable() {
		return
	}
	e.nominations.denominate(j)
	j.begun = false
	first := len(e.places)
	for i := range j.pods {
		if p := &j.pods[i]; p.state == podRunning {
			e.places = append(e.places, e.placement(j, i))
			// Its quota is returned at once, its node is not before it has left.
			j.charge(e.state, p, -1)
			j.leaves(e.state, p, 1)
			e.changes.quotaReturned()
			e.set(j, p, podLeaving)
			// The driver does not know yet: it may still say how a move ended. Until it is
			// told, the move goes on.
			m := p.move()
			if m != nil && m.told {
				p.tied().move = nil
			}
			e.stopped(j, p)
			if m != nil && m.told {
				p.tied().move = m
			}
		}
	}
	if len(e.places) > first {
		e.nominations.goes(j)
		pods := append([]Placement(nil), e.places[first:]...)
		e.ending = append(e.ending, Decision{Op: Requeue, Job: j.Name, Pods: pods, Reason: why, Detail: detail})
	}
	e.places = e.places[:first]
}

// tellBroken decides that gangs which broke since the last pass stop, as far as pods of them have
// not left already. Their moves end.
func (e *Engine) tellBroken() {
	for _, d := range e.ending {
		j := e.jobs.byName[d.Job]
		d.Pods = slices.DeleteFunc(d.Pods, func(p Placement) bool { return j.pods[p.Pod].state != podLeaving && !j.holds(p.Pod) })
		for k := range d.Pods {
			i := d.Pods[k].Pod
			if m := j.pods[i].move(); m != nil {
				e.moves.abandon(m)
			}
			d.Pods[k] = e.placement(j, i) // it may have moved
		}
		if len(d.Pods) > 0 {
			e.out = append(e.out, d)
		}
	}
	e.ending = e.ending[:0]
}

// requeueIfGone puts a job's waiting pods back in the queue; those of a broken gang once no
// pod of it is left on a node.
func (e *Engine) requeueIfGone(j *job, now Time) {
	e.suspensions.settle(j)
	e.alternatives.settle(j)
	if j.Gang && !j.begun && j.count[podLeaving] > 0 {
		return
	}
	if j.class == nil && j.count[podWaiting] > 0 {
		j.since = now
	}
	if j.Gang && !j.begun && j.count[podDone] > 0 {
		j.begun = j.viable() // enough of its pods may have ended well while they were to leave
	}
	e.waiting.enqueue(j, now)
}

// ends reports whether one of the decisions asks to stop a pod.
func ends(decisions []Decision, j *job, pod int) bool {
	return slices.ContainsFunc(decisions, func(d Decision) bool {
		return d.Job == j.Name && slices.ContainsFunc(d.Pods, func(p Placement) bool { return p.Pod == pod })
	})
}

// podsGone handles evicted pods, or pods of a broken gang, that have left their nodes.
func (e *Engine) podsGone(now Time, ev PodsGone) error {
	j, err := e.job(ev.Job)
	if err != nil {
		return err
	}
	for _, i := range ev.Pods {
		if i < 0 || i >= len(j.pods) || j.pods[i].state != podLeaving && j.pods[i].from() == nil && !(j.holds(i) && j.suspended.over) {
			return fmt.Errorf("pod %d of job %s was not told to leave", i, ev.Job)
		}
	}
	// No numbers means all pods that the driver had to stop. It does not know yet about a gang
	// that broke since the last pass: the pods of that gang still run.
	gone := ev.Pods
	if gone == nil {
		for i := range j.pods {
			if j.pods[i].from() != nil || (j.pods[i].state == podLeaving || j.holds(i) && j.suspended.over) && !ends(e.ending, j, i) {
				gone = append(gone, i)
			}
		}
	}
	evicted := false
	for _, i := range gone {
		p := &j.pods[i]
		if p.from() != nil {
			e.vacated(j, i)
			continue
		}
		if j.holds(i) {
			e.suspensions.gone(j, i)
			continue
		}
		evicted = evicted || p.leavingFor() != nil && p.leavingFor().job != j
		e.release(j, i, podWaiting)
	}
	e.state.Commit()
	if j.suspended != nil {
		e.suspensions.settle(j)
		evicted = j.suspended == nil // it has lost its work
	}
	if evicted {
		e.requeueLast(j, now)
	}
	if !j.whole() {
		e.waiting.dequeue(j) // its class may be another one now that these pods wait, too
	}
	e.restart(j)
	e.requeueIfGone(j, now)
	return nil
}

// adopt adds a pod that runs where this engine did not put it: it was bound before
// the engine was created, or by another scheduler.
func (e *Engine) adopt(now Time, ev PodRunning) error {
	// 1. Is it possible at all?
	j, err := e.job(ev.Job)
	if err != nil {
		return err
	}
	id, err := e.node(ev.Node)
	if err != nil {
		return err
	}
	if ev.Pod < 0 || ev.Pod >= len(j.pods) || j.suspended != nil ||
		j.pods[ev.Pod].state != podWaiting && (j.pods[ev.Pod].state != podWithdrawn || !j.runsAs()) {
		return fmt.Errorf("job %s has no waiting pod %d", ev.Job, ev.Pod)
	}
	if ev.Started > now || ev.Started < -MaxTime {
		return fmt.Errorf("pod %d of job %s: started at %.9gs, expected a time before now, %.9gs", ev.Pod, ev.Job, ev.Started.Seconds(), now.Seconds())
	}
	id = e.standbys.lentWith(j, id, ev.GPUs)
	if n := e.state.Node(id).Count(); n >= cluster.MaxHeld {
		return fmt.Errorf("pod %d of job %s: node %s has %d pods already", ev.Pod, ev.Job, ev.Node, n)
	}

	// 2. What it takes of the node. The pod runs, so it may take more CPU and memory than the
	// node has left. But no GPU is allocated twice.
	p := &j.pods[ev.Pod]
	t := &j.Tasks[p.task]
	a, err := e.foundOn(id, t, &ev)
	if err != nil {
		return err
	}
	host := e.packs.found(j, &a)

	// 3. Plans that count on what it takes are dropped: on its GPUs, or on CPU, memory or other
	// resources that the node does not have for both.
	kept, why := e.takenBy(&a)
	if why != "" {
		return fmt.Errorf("pod %d of job %s on node %s: %s", ev.Pod, ev.Job, ev.Node, why)
	}
	if kept || !e.state.HasBeside(&a) {
		e.nominations.dropPlans(id, false, now)
		e.moves.abandonOn(id, true)
		if a.GPUs&^e.state.LentDevices(e.state.Home(id)) != 0 {
			e.nominations.dropPlans(e.state.Home(id), false, now)
			e.moves.abandonOn(e.state.Home(id), true)
		}
	}
	e.nominations.dropPlans(id, true, now) // they hold no place yet that it could take

	// 4. It runs. Its job may be one that must not be evicted. Then it has to be within its
	// queue's nominal quota, beside other such jobs, or loses the protection. Jobs of other
	// schedulers keep theirs: the engine could not evict them anyway.
	e.waiting.dequeue(j)
	e.alternatives.found(j, p)
	e.state.PlaceFound(cluster.Owner{Job: j.slot, Pod: int32(ev.Pod)}, a)
	e.state.Commit()
	p.alloc, p.came = a, ev.Started
	e.packs.join(host, j)
	beyond := t.GPU > 0 && t.GPU > j.queue.ProtectedLeft(e.state.Pool(id).Model) ||
		slices.ContainsFunc(j.queue.Limits(), func(r string) bool {
			takes := t.Takes(r)
			return takes > 0 && takes > j.queue.ProtectedLeft(r)
		})
	if beyond && j.fixed() && !j.Foreign {
		e.expose(j)
	}
	if j.delay != nil && j.notBefore > now { // it was put off, and runs all the same
		j.delay, j.notBefore = nil, 0
	}
	e.runs.setBackfilled(j, ev.Backfilled)
	e.bound(j, p, ev.Started)
	j.begun = j.begun || !j.Gang || j.viable()
	e.changes.podsAppeared(j)
	e.waiting.enqueue(j, now)
	return nil
}

// foundOn is what a pod of a task takes of a node on which it is found running.
func (e *Engine) foundOn(id cluster.NodeID, t *Task, ev *PodRunning) (cluster.Alloc, error) {
	a := cluster.Alloc{Node: id, Others: e.state.Amounts(&t.Request).ID(), Share: WholeGPU, CPUMilli: t.CPUMilli, MemMiB: t.MemMiB}
	for _, g := range ev.GPUs {
		if g < 0 || g >= e.state.Node(id).Spec.GPUs || a.GPUs>>g&1 == 1 {
			return a, fmt.Errorf("pod %d of job %s: node %s has no GPU %d, or it is named twice", ev.Pod, ev.Job, ev.Node, g)
		}
		a.GPUs |= 1 << g
	}
	want := int((t.GPU + WholeGPU - 1) / WholeGPU)
	if bits.OnesCount64(a.GPUs) != want {
		return a, fmt.Errorf("pod %d of job %s: %d GPUs are named, %d expected", ev.Pod, ev.Job, len(ev.GPUs), want)
	}
	if t.GPU < WholeGPU {
		a.Share = t.GPU
	}
	return a, nil
}

// takenBy says which device of an allocation a pod on the node has already; "" when none
// is taken. kept reports that pods have some of them only as places that are kept for them.
func (e *Engine) takenBy(a *cluster.Alloc) (kept bool, why string) {
	if e.state.DevicesTaken(a) == "" {
		return false, ""
	}
	var held []leavesFrom
	list := func(node cluster.NodeID) {
		for h := range e.state.Node(node).Pods {
			p := &e.jobs.slots[h.Owner.Job].pods[h.Owner.Pod]
			if p.state == podHeld && p.alloc.Node == node || p.move() != nil && !p.move().told && p.move().to.Node == node {
				held = append(held, leavesFrom{h.Owner, node})
			}
		}
	}
	list(a.Node)
	if home := e.state.Home(a.Node); home != a.Node {
		list(home) // it may draw devices from there
	}
	mark := e.state.Mark()
	for _, h := range held {
		e.state.Remove(h.Owner, h.node)
	}
	why = e.state.DevicesTaken(a)
	e.state.Rollback(mark)
	return why == "", why
}

// relabel changes the labels and affinities of pods of a job.
func (e *Engine) relabel(now Time, ev JobRelabelled) error {
	j, err := e.job(ev.Job)
	if err != nil {
		return err
	}
	if err := e.packs.keeps(j); err != nil {
		return err
	}
	if err := e.affinities.check(ev.Job, ev.Affinity); err != nil {
		return err
	}
	meant := func(t Task) bool { return ev.Task == "" || t.Name == ev.Task }
	if !slices.ContainsFunc(j.Tasks, meant) {
		return fmt.Errorf("job %s has no task %q", ev.Job, ev.Task)
	}

	// 1. The pods on nodes, and those for which places are kept, lose their old labels there. A suspended job has no labels.
	e.suspensions.drop(j, "its labels changed")
	e.waiting.dequeue(j)
	if j.restarts() {
		e.nominations.denominate(j) // its place was chosen for the old ones
	}
	var on []cluster.Held
	for i := range j.pods {
		p := &j.pods[i]
		if p.state == podRunning || p.state == podLeaving || p.kept() {
			on = append(on, cluster.Held{Owner: cluster.Owner{Job: j.slot, Pod: int32(i)}, Alloc: p.alloc})
		}
		if p.move() != nil && !p.move().later {
			on = append(on, cluster.Held{Owner: p.move().owner(), Alloc: p.move().to})
		}
	}
	e.changes.podsVanished(j)
	e.affinities.repel(j.Tasks, -1)

	// 2. The job's tasks have the new ones. They are cloned, as the driver may still use them.
	j.Tasks = slices.Clone(j.Tasks)
	for t := range j.Tasks {
		if meant(j.Tasks[t]) {
			j.Tasks[t].Labels, j.Tasks[t].Affinity = ev.Labels, ev.Affinity
		}
	}

	// 3. The pods get them, and counts of pods by labels are made again.
	e.affinities.repel(j.Tasks, 1)
	e.affinities.label(j, on)
	e.nominations.holdsChanged()
	if j.count[podLeaving] > 0 {
		e.nominations.goes(j)
	}
	e.changes.labelsChanged(j)
	e.waiting.enqueue(j, now)
	return nil
}

// setDisruptionProtected records whether disruption budgets keep a job from being evicted.
func (e *Engine) setDisruptionProtected(ev JobShielded) error {
	j, err := e.job(ev.Job)
	if err != nil {
		return err
	}
	if j.disruptionProtected == ev.Shielded {
		return nil
	}
	if ev.Shielded {
		e.runs.disruptionProtected++
	} else {
		e.runs.disruptionProtected--
	}
	j.disruptionProtected = ev.Shielded
	if !j.evictable() {
		return nil
	}
	// Failed searches are repeated after enough changes, and at once if evictions are allowed
	// again: a job may have waited for that alone.
	for i := range j.pods {
		if p := &j.pods[i]; p.state == podRunning {
			e.changes.evictableChanged(p.alloc.Node)
		}
	}
	if !j.disruptionProtected {
		e.changes.disruptionsAllowed(j)
	}
	return nil
}

// checkpoint records when a job saved its progress last. What an eviction loses counts from then.
func (e *Engine) checkpoint(now Time, ev Checkpointed) error {
	j, err := e.job(ev.Job)
	if err != nil {
		return err
	}
	at := ev.At
	if at == 0 {
		at = now
	}
	if at > now {
		return fmt.Errorf("job %s: checkpoint at %.9gs, which is later than now, %.9gs", ev.Job, at.Seconds(), now.Seconds())
	}
	if at <= j.saved {
		return nil
	}
	j.saved = at
	e.entitlement.checkpointed(j)
	// It loses less now if it restarts, so that a plan which cost too much may be worth while. Many
	// checkpoints cost one retry.
	if e.policy.Room.MaxMoves > 0 && e.policy.Room.Restarts && e.waiting.idle.count > 0 && j.evictable() && j.count[podRunning] > 0 {
		for i := range j.pods {
			if p := &j.pods[i]; p.state == podRunning {
				e.changes.evictableChanged(p.alloc.Node)
			}
		}
		e.wakes.retryAt(now, cluster.Plus(now, roomPause))
	}
	return nil
}

// estimate sets a new estimate of a job's run time, by which the policy may order jobs.
func (e *Engine) estimate(now Time, ev JobEstimated) error {
	j, err := e.job(ev.Job)
	if err != nil {
		return err
	}
	if err := checkDuration(ev.Job, "estimate", ev.Estimate); err != nil {
		return err
	}
	j.Estimate = ev.Estimate
	e.packs.estimated(j)
	if estimate, width := e.policy.estimateOf(&j.Job); j.key.estimate != estimate || j.key.width != width || e.policy.byRemaining() || e.packs.on(j) {
		// The heaps of waiting jobs are in this order: the job leaves them while it changes.
		waits := j.class != nil || e.waiting.pausing(j)
		e.waiting.dequeue(j)
		j.key.estimate, j.key.width = estimate, width
		e.changes.orderChanged()
		if waits {
			e.waiting.enqueue(j, now)
		}
	}
	return nil
}

// placement describes a pod where it is.
func (e *Engine) placement(j *job, i int) Placement {
	at := j.pods[i].placeOf()
	return e.placementAt(i, &at)
}

// placementAt describes a pod at a place.
func (e *Engine) placementAt(i int, a *cluster.Alloc) Placement {
	return Placement{
		Pod: i, Node: e.state.Node(a.Node).Spec.Name, GPUs: a.GPUs, GPU: a.Share, NICs: e.state.NICs(a.Node, a.GPUs),
		CPUMilli: a.CPUMilli, MemMiB: a.MemMiB,
	}
}
