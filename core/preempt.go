package core

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/quota"
)

// Preemption (Kant §3.2.3) is decided only as a whole plan: which pods leave
// and exactly where the job goes that they make room for. From then on the
// places are its own; when the last victim has left, it is bound.
//
// It cannot loop. Call a pod within quota when its queue's nominal quota covers
// it, the queue's running pods being counted in the order of their jobs: the
// least pods of a gang as one, those beyond them and those of other jobs each by
// itself. A job may evict only
//
//   - pods beyond quota, when it would itself be within (reclaim), or
//   - pods of jobs after it in the order, unless it would be beyond quota and
//     they are within (priority, backfill).
//
// Rank all jobs in the order. Each eviction of the first kind, and of the
// second among pods within quota, makes the set of jobs within quota greater
// when sets are compared by their first difference in that ranking; each other
// one leaves it and makes the set of running jobs greater the same way. Starts
// without evictions never make either smaller. There are finitely many sets, so
// that without new events evictions come to an end.

// victim is what is evicted together: a whole gang, or one pod of another job.
type victim struct {
	job    *job
	pod    int // -1 for a gang
	reason Reason
	// cost is the work that is lost: milli-GPU times time since the last
	// checkpoint, in milli-GPU seconds.
	cost int64
}

// pods yields the running pods of a victim.
func (v *victim) pods(yield func(int) bool) {
	if v.pod >= 0 {
		yield(v.pod)
		return
	}
	for i := range v.job.pods {
		if v.job.pods[i].state == podRunning && !yield(i) {
			return
		}
	}
}

// cheaper orders victims: low priority first, then what loses the least work,
// then the last in the order.
func (v *victim) cheaper(o *victim) int {
	return cmp.Or(-v.job.key.rank(&o.job.key), cmp.Compare(v.cost, o.cost),
		-cmp.Compare(v.job.key.seq, o.job.key.seq), cmp.Compare(v.pod, o.pod))
}

// nomination is a plan under way: a gang, or pods of another job, whose places
// are settled and that wait for victims to leave.
type nomination struct {
	job *job
	// outstanding counts victims' pods still on their nodes, planned the job's
	// pods whose places are not free yet.
	outstanding, planned int
}

// planned is a pod whose place on a node is not free yet. The node is closed
// meanwhile, so that nothing else takes it.
type planned struct {
	nomination *nomination
	pod        int
}

// budget counts evictions in the current interval.
type budget struct {
	interval int64
	spent    int
}

// rankTable holds how much evictable GPU runs at each class and priority.
type rankTable []rankEntry

type rankEntry struct {
	key key // class and priority alone
	gpu Milli
}

func (r *rankTable) add(j *job, gpu, by Milli) {
	if !j.evictable() {
		return
	}
	k := key{class: j.key.class, priority: j.key.priority}
	for i := range *r {
		if (*r)[i].key == k {
			(*r)[i].gpu += by * gpu
			return
		}
	}
	*r = append(*r, rankEntry{k, by * gpu})
}

// below reports whether anything evictable of a lower rank runs.
func (r rankTable) below(k *key) bool {
	return slices.ContainsFunc(r, func(e rankEntry) bool { return e.gpu > 0 && k.rank(&e.key) < 0 })
}

// evictFor makes a plan by which the job starts in place of others, and decides
// it. head says that the job has waited as the first longer than Backfill lets
// it. It reports whether there is such a plan.
func (e *Engine) evictFor(j *job, now Time, head bool) bool {
	if head && !e.mayBypass(j) || !head && !e.mayEvict(j) {
		return false
	}
	stamp := e.version << 1
	if head {
		stamp |= 1
	}
	if j.planned == stamp {
		return false
	}
	e.cover()
	within := e.wouldBeWithin(j)
	vs := e.victims(j, now, head, within)
	if len(vs) > 0 && e.plan(j, vs, now, within) {
		return true
	}
	if within && j.queue.Limited() && len(e.modelsOf(j)) > 1 {
		// It would be within quota on another model than the plan's.
		vs = e.victims(j, now, head, false)
		if len(vs) > 0 && e.plan(j, vs, now, false) {
			return true
		}
	}
	j.planned = stamp
	return false
}

// mayEvict reports whether there may be anything to evict for the job.
func (e *Engine) mayEvict(j *job) bool {
	p := &e.policy.Preempt
	return p.Priority && e.ranks.below(&j.key) || p.Reclaim && j.queue.Limited()
}

// mayBypass reports whether what is free and what was backfilled together are
// as much GPU as the job needs.
func (e *Engine) mayBypass(j *job) bool {
	need := Milli(0)
	for t := range e.unit.Tasks {
		n := len(e.unit.Tasks[t].Pods)
		if !e.unit.Whole {
			n = min(n, 1)
		}
		need += Milli(n) * e.unit.Tasks[t].GPU()
	}
	have := e.bypassed
	for i, p := range e.state.Pools() {
		if j.class.pools>>(uint(i)%64)&1 == 1 {
			have += p.FreeMilli()
		}
	}
	return e.bypassed > 0 && have >= need
}

// victims returns what may be evicted for the job, the cheapest first: if
// within, provided that it starts within its quota.
func (e *Engine) victims(j *job, now Time, head, within bool) []victim {
	e.prepare(j)
	overrun := e.overrun(j)
	vs := e.victimList[:0]
	for _, v := range e.running {
		if v == j || !v.evictable() || j.Class == LP && v.Class == HP {
			continue
		}
		vs = e.addVictims(vs, claimant{j, now, head, within, overrun}, v)
	}
	slices.SortFunc(vs, func(a, b victim) int { return a.cheaper(&b) })
	e.victimList = vs
	return vs
}

// claimant is a job for which victims are sought, and what is known of it.
type claimant struct {
	*job
	now                   Time
	head, within, overrun bool
}

// addVictims adds what may be evicted of v: a gang whole or, when quota covers
// its least pods, those that are beyond both; single pods of other jobs.
func (e *Engine) addVictims(vs []victim, c claimant, v *job) []victim {
	limited := e.ledger.Limited()
	useful := false
	for i := range v.pods {
		p := &v.pods[i]
		useful = useful || p.state == podRunning && e.useful(c.job, v, p, c.overrun)
	}
	if !useful {
		return vs
	}
	if v.Gang {
		least := slices.IndexFunc(v.pods, func(p pod) bool { return p.state == podRunning && !(limited && p.extra) })
		if least < 0 {
			return vs
		}
		if reason, ok := e.mayTake(c.job, v, c.within, !limited || v.pods[least].within, c.head); ok {
			if e.settled(v.started, c.now) {
				vs = append(vs, victim{v, -1, reason, v.lost(c.now, -1)})
			}
			return vs
		}
	}
	for i := range v.pods {
		p := &v.pods[i]
		if p.state != podRunning || v.Gang && !(limited && p.extra) {
			continue
		}
		reason, ok := e.mayTake(c.job, v, c.within, !limited || p.within, c.head)
		if ok && e.useful(c.job, v, p, c.overrun) && e.settled(p.started, c.now) {
			vs = append(vs, victim{v, i, reason, v.lost(c.now, i)})
		}
	}
	return vs
}

// settled reports whether what started then has run for long enough; if not, it
// asks for another pass when it will have.
func (e *Engine) settled(started, now Time) bool {
	due := started + e.policy.Preempt.MinRuntime
	if now < due {
		e.retry(due)
	}
	return now >= due
}

// retry asks for another pass at t, when more may be evicted than now.
func (e *Engine) retry(t Time) {
	e.retryAt = min(e.retryAt, t)
	e.wake(t)
}

// mayTake says whether and why a pod of v may be evicted for j; see above.
func (e *Engine) mayTake(j, v *job, jWithin, vWithin, head bool) (Reason, bool) {
	p := &e.policy.Preempt
	if jWithin && !vWithin && p.Reclaim && v.queue != j.queue && j.GPUs() > 0 {
		return QuotaReclaim, true
	}
	if !jWithin && vWithin {
		return 0, false
	}
	switch {
	case p.Priority && j.key.rank(&v.key) < 0:
		return PriorityPreemption, true
	case head && p.Backfill && v.backfilled && j.key.before(&v.key):
		return BackfillPreemption, true
	}
	return 0, false
}

// useful reports whether evicting a pod of v could help j: it frees GPUs that j
// can use or quota that j lacks.
func (e *Engine) useful(j, v *job, p *pod, overrun bool) bool {
	if j.class.pools&e.poolBit(p.alloc.Node) != 0 {
		return true
	}
	if !overrun {
		return false
	}
	model := e.state.Pool(p.alloc.Node).Model
	return slices.Contains(v.queue.Governing(model), quota.AnyModel)
}

// lost returns the work that an eviction of the job's running pods, or of one
// of them, loses.
func (j *job) lost(now Time, pod int) int64 {
	var gpu Milli
	since := j.started
	for i := range j.pods {
		if j.pods[i].state == podRunning && (pod < 0 || i == pod) {
			gpu += j.gpu(&j.pods[i])
			if pod >= 0 {
				since = j.pods[i].started
			}
		}
	}
	age := now - max(since, j.saved)
	if j.Checkpoint > 0 {
		age %= j.Checkpoint
	}
	return int64(gpu) * int64(age/1e6) / 1e3
}

// plan finds the victims and the places and, if that succeeds, decides them.
func (e *Engine) plan(j *job, vs []victim, now Time, within bool) bool {
	u := e.prepare(j)
	overrun := e.overrun(j)
	if !u.Whole {
		onePod(u)
	}
	e.lifted = e.lifted[:0]
	var placed []place.Placed
	var gone []victim
	single := len(u.Tasks) == 1 && len(u.Tasks[0].Pods) == 1 && u.Required < 0
	if single && !overrun {
		placed, gone = e.planPod(j, u, vs)
	}
	if several := j.queue.Limited() && len(u.Tasks[0].Models()) > 1; placed == nil && (!single || overrun || several) {
		e.state.Rollback(0)
		e.dropLifted()
		placed, gone = e.planGang(j, u, vs)
	}
	if placed != nil && within && !e.wouldCover(j, placed) {
		placed = nil
	}
	if placed != nil {
		placed = slices.Clone(placed)
		gone = e.spareNeedless(j, placed, gone)
	}
	evicted := 0
	for i := range gone {
		for range gone[i].pods {
			evicted++
		}
	}
	ok := placed != nil && e.affordsEvictions(evicted, now)
	e.state.Rollback(0)
	e.dropLifted()
	if ok {
		e.nominate(j, placed, gone, now)
	}
	return ok
}

// onePod reduces a unit that starts pod by pod to its first pod.
func onePod(u *place.Unit) {
	for t := range u.Tasks {
		if len(u.Tasks[t].Pods) > 0 {
			u.Tasks = u.Tasks[t : t+1]
			u.Tasks[0].Pods = u.Tasks[0].Pods[:1]
			return
		}
	}
}

// lift takes a victim's pods out of the state and the ledger for a trial.
func (e *Engine) lift(v *victim) {
	for i := range v.pods {
		p := &v.job.pods[i]
		e.state.Remove(cluster.Owner{Job: v.job.slot, Pod: int32(i)}, p.alloc.Node)
		e.charge(v.job, p, -1)
		e.lifted = append(e.lifted, liftedPod{v.job, i})
	}
}

// liftedPod is a pod that a trial has taken out of the ledger.
type liftedPod struct {
	job *job
	pod int
}

// dropLifted puts the lifted pods back into the ledger.
func (e *Engine) dropLifted() {
	for _, l := range e.lifted {
		e.charge(l.job, &l.job.pods[l.pod], 1)
	}
	e.lifted = e.lifted[:0]
}

// onNode is what a victim holds on a node.
type onNode struct {
	node   cluster.NodeID
	victim int
	gpus   uint64
}

// victimsByNode lists who is on which node, by node.
func victimsByNode(vs []victim) []onNode {
	var at []onNode
	for k := range vs {
		for i := range vs[k].pods {
			a := &vs[k].job.pods[i].alloc
			at = append(at, onNode{a.Node, k, a.GPUs})
		}
	}
	slices.SortFunc(at, func(a, b onNode) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.victim, b.victim))
	})
	once := at[:0]
	for _, o := range at {
		if n := len(once); n > 0 && once[n-1].node == o.node && once[n-1].victim == o.victim {
			once[n-1].gpus |= o.gpus
			continue
		}
		once = append(once, o)
	}
	return once
}

// price is what the victims on a node come to: the strongest claim among them,
// then their cost.
type price struct {
	claim *key
	cost  int64
}

// plus returns the price with one more victim.
func (p price) plus(v *victim) price {
	if v.job.key.rank(p.claim) < 0 {
		p.claim = &v.job.key
	}
	p.cost += 1 + v.cost
	return p
}

func (p price) less(o price) bool {
	if r := p.claim.rank(o.claim); r != 0 {
		return r > 0
	}
	return p.cost < o.cost
}

// planPod finds the node on which the pod gets room at the lowest price.
func (e *Engine) planPod(j *job, u *place.Unit, vs []victim) ([]place.Placed, []victim) {
	at := victimsByNode(vs)
	var best []onNode
	var lowest price
	weakest := key{class: LP + 1} // below every job's claim
	for len(at) > 0 {
		n := 1
		devices := e.state.Node(at[0].node).Whole | at[0].gpus
		for n < len(at) && at[n].node == at[0].node {
			devices |= at[n].gpus
			n++
		}
		if bits.OnesCount64(devices) < u.Tasks[0].GPUs {
			at = at[n:]
			continue
		}
		cost, used, takes := price{&weakest, 0}, 0, e.placer.Takes(u, at[0].node)
		for used < n && !takes {
			v := &vs[at[used].victim]
			if cost = cost.plus(v); best != nil && !cost.less(lowest) {
				break
			}
			e.lift(v)
			used++
			takes = e.placer.Takes(u, at[0].node)
		}
		if used > 0 && takes {
			best, lowest = at[:used], cost
		}
		e.state.Rollback(0)
		e.dropLifted()
		at = at[n:]
	}
	if best == nil {
		return nil, nil
	}
	var gone []victim
	for _, o := range best {
		gone = append(gone, vs[o.victim])
		e.lift(&vs[o.victim])
	}
	for k := 0; k < len(vs) && e.overrun(j); k++ {
		if !slices.ContainsFunc(gone, func(g victim) bool { return g.job == vs[k].job && g.pod == vs[k].pod }) {
			gone = append(gone, vs[k])
			e.lift(&vs[k])
		}
	}
	if e.overrun(j) {
		return nil, nil
	}
	placed := e.placer.PodOn(u, best[0].node)
	if len(placed) == 0 || !e.affords(j, placed) {
		return nil, nil
	}
	return placed, gone
}

// planGang lifts victims, the cheapest first, until the gang can be placed.
func (e *Engine) planGang(j *job, u *place.Unit, vs []victim) ([]place.Placed, []victim) {
	step := 1
	for k := 0; k < len(vs); {
		for end := min(k+step, len(vs)); k < end; k++ {
			e.lift(&vs[k])
		}
		if e.overrun(j) || !e.placer.MayFit(u) {
			continue
		}
		mark := e.state.Mark()
		if placed, ok := e.placer.Gang(u); ok {
			if e.affords(j, placed) {
				return placed, slices.Clone(vs[:k])
			}
			e.state.Rollback(mark)
		}
		step *= 2 // what fits by count does not fit in place: lift more at once
	}
	return nil, nil
}

// spareNeedless puts victims back that turn out not to be in the way, the most
// costly first.
func (e *Engine) spareNeedless(j *job, placed []place.Placed, gone []victim) []victim {
	for _, p := range placed {
		if gpu := p.Alloc.GPU(); gpu > 0 {
			j.queue.Add(e.state.Pool(p.Alloc.Node).Model, gpu)
		}
	}
	kept := gone[:0:0]
	for k := len(gone) - 1; k >= 0; k-- {
		if !e.putBack(j, &gone[k]) {
			kept = append(kept, gone[k])
		}
	}
	for _, p := range placed {
		if gpu := p.Alloc.GPU(); gpu > 0 {
			j.queue.Add(e.state.Pool(p.Alloc.Node).Model, -gpu)
		}
	}
	slices.Reverse(kept)
	return kept
}

// putBack undoes a lift where nothing has taken the victim's place and the
// quotas still hold.
func (e *Engine) putBack(j *job, v *victim) bool {
	mark := e.state.Mark()
	ok := !slices.ContainsFunc(j.Affinity, func(t Term) bool { return slices.Contains(v.job.Labels, t.Label) })
	n := 0
	for i := range v.pods {
		p := &v.job.pods[i]
		if !ok || e.state.Blocks(&p.alloc) != "" {
			ok = false
			break
		}
		e.state.Place(cluster.Owner{Job: v.job.slot, Pod: int32(i)}, p.alloc)
		e.charge(v.job, p, 1)
		n++
	}
	for t := range j.Tasks {
		for _, model := range j.class.shapes[t].Models() {
			ok = ok && j.queue.Room(model) >= 0
		}
	}
	for i := range v.pods {
		ok = ok && v.job.queue.Room(e.state.Pool(v.job.pods[i].alloc.Node).Model) >= 0
	}
	if ok {
		e.lifted = slices.DeleteFunc(e.lifted, func(l liftedPod) bool {
			return l.job == v.job && (v.pod < 0 || l.pod == v.pod)
		})
		return true
	}
	e.state.Rollback(mark)
	for i := range v.pods {
		if n == 0 {
			break
		}
		e.charge(v.job, &v.job.pods[i], -1)
		n--
	}
	return false
}

// affordsEvictions reports whether so many evictions stay within the budget of
// the interval. A plan that is larger than the budget has an interval alone.
func (e *Engine) affordsEvictions(n int, now Time) bool {
	p := &e.policy.Preempt
	if p.Budget == 0 || p.Interval == 0 {
		return true
	}
	interval := int64(now / p.Interval)
	if e.budget.interval != interval {
		e.budget = budget{interval: interval}
	}
	if e.budget.spent > 0 && e.budget.spent+n > p.Budget {
		e.retry(Time(interval+1) * p.Interval)
		return false
	}
	return true
}

// nominate decides a plan: it tells the victims to leave and keeps the places
// for the job.
func (e *Engine) nominate(j *job, placed []place.Placed, gone []victim, now Time) {
	if len(gone) == 0 {
		// Nobody needs to leave after all.
		for i := range placed {
			e.state.Place(cluster.Owner{Job: j.slot, Pod: placed[i].Pod}, placed[i].Alloc)
		}
		e.state.Commit()
		e.bind(j, placed, now, e.howStarted(j))
		return
	}
	e.dequeue(j)
	n := j.nomination
	if n == nil {
		n = &nomination{job: j}
		j.nomination = n
		e.filling = append(e.filling, n)
	}
	for k := range gone {
		e.evict(&gone[k], n)
	}
	for i := range placed {
		p := &j.pods[placed[i].Pod]
		p.alloc = placed[i].Alloc
		e.charge(j, p, 1)
		if e.state.Holds(&p.alloc) {
			e.state.Place(cluster.Owner{Job: j.slot, Pod: placed[i].Pod}, p.alloc)
			j.set(p, podHeld)
			continue
		}
		j.set(p, podPlanned)
		n.planned++
		e.plans[p.alloc.Node] = append(e.plans[p.alloc.Node], planned{n, int(placed[i].Pod)})
		e.state.Close(p.alloc.Node)
	}
	e.state.Commit()
	e.version++
	e.enqueue(j, now) // the other pods of a job that is no gang
}

// evict tells a victim to leave for a nomination.
func (e *Engine) evict(v *victim, n *nomination) {
	from := len(e.places)
	pods := slices.Collect(v.pods)
	for _, i := range pods {
		p := &v.job.pods[i]
		e.places = append(e.places, e.placement(v.job, i))
		e.charge(v.job, p, -1)
		p.leavingFor = n
		n.outstanding++
		v.job.set(p, podLeaving)
		e.stopped(v.job, p)
	}
	e.quotaOpen = true
	e.budget.spent += len(pods)
	if v.job.Gang && v.pod < 0 {
		e.denominate(v.job)
		v.job.begun = false
		e.dequeue(v.job) // pods of it that waited to join the gang
	}
	e.out = append(e.out, Decision{
		Op: Evict, Job: v.job.Name, Pods: e.places[from:len(e.places):len(e.places)], Reason: v.reason, For: n.job.Name,
	})
}

// settleNode gives places on a node, as far as they are free now, to the pods
// they are planned for.
func (e *Engine) settleNode(node cluster.NodeID) {
	list := e.plans[node]
	for k := 0; k < len(list); {
		n, p := list[k].nomination, &list[k].nomination.job.pods[list[k].pod]
		if !e.state.Holds(&p.alloc) {
			k++
			continue
		}
		e.state.Place(cluster.Owner{Job: n.job.slot, Pod: int32(list[k].pod)}, p.alloc)
		n.job.set(p, podHeld)
		n.planned--
		list = slices.Delete(list, k, k+1)
		e.state.Open(node)
	}
	e.setPlans(node, list)
}

func (e *Engine) setPlans(node cluster.NodeID, list []planned) {
	if len(list) == 0 {
		delete(e.plans, node)
		return
	}
	e.plans[node] = list
}

// fulfil binds the nominated jobs whose victims have all left, and queues again
// those whose places were lost meanwhile.
func (e *Engine) fulfil(now Time) {
	for k := 0; k < len(e.filling); {
		n := e.filling[k]
		if n.outstanding > 0 {
			k++
			continue
		}
		if n.planned > 0 {
			e.dequeue(n.job)
			e.denominate(n.job)
			e.enqueue(n.job, now)
			continue
		}
		e.filling = slices.Delete(e.filling, k, k+1)
		j := n.job
		j.nomination = nil
		from := len(e.places)
		e.setBackfilled(j, false)
		for i := range j.pods {
			if p := &j.pods[i]; p.state == podHeld {
				e.charge(j, p, -1)
				e.bound(j, p, now)
				e.places = append(e.places, e.placement(j, i))
			}
		}
		j.begun = true
		e.appeared(j)
		e.out = append(e.out, Decision{Op: Bind, Job: j.Name, Pods: e.places[from:len(e.places):len(e.places)], Reason: MadeRoom})
		e.enqueue(j, now)
	}
}

// denominate gives up a job's nomination and the places kept for it.
func (e *Engine) denominate(j *job) {
	n := j.nomination
	if n == nil {
		return
	}
	j.nomination = nil
	e.filling = slices.DeleteFunc(e.filling, func(o *nomination) bool { return o == n })
	for i := range j.pods {
		p := &j.pods[i]
		switch p.state {
		case podHeld:
			e.state.Remove(cluster.Owner{Job: j.slot, Pod: int32(i)}, p.alloc.Node)
		case podPlanned:
			e.setPlans(p.alloc.Node, slices.DeleteFunc(e.plans[p.alloc.Node], func(x planned) bool {
				return x.nomination == n && x.pod == i
			}))
			e.state.Open(p.alloc.Node)
		default:
			continue
		}
		e.charge(j, p, -1)
		e.quotaOpen = true
		j.set(p, podWaiting)
		e.free(p.alloc.Node)
		e.vanished(j)
	}
	e.state.Commit()
	e.version++
}

// dropPlans gives up the nominations that count on a node.
func (e *Engine) dropPlans(node cluster.NodeID, now Time) {
	for _, n := range slices.Clone(e.filling) {
		for i := range n.job.pods {
			p := &n.job.pods[i]
			if (p.state == podHeld || p.state == podPlanned) && p.alloc.Node == node {
				j := n.job
				e.dequeue(j)
				e.denominate(j)
				e.enqueue(j, now)
				break
			}
		}
	}
}

// helpHead evicts backfilled pods for the first waiting job when it has waited
// too long, and for the first that lacks quota (Kant §3.2.2, Table 1).
func (e *Engine) helpHead(now Time) {
	if !e.policy.Preempt.Backfill {
		return
	}
	for {
		helped := false
		if len(e.ready.items) > 0 && e.ready.items[0].state == classStuck {
			helped = e.helpOne(e.ready.items[0].head(), now)
		}
		if j := e.firstOverrun(); j != nil && !helped {
			helped = e.helpOne(j, now)
		}
		if !helped {
			return
		}
	}
}

func (e *Engine) helpOne(j *job, now Time) bool {
	if due := j.since + e.policy.Queueing.HeadWait; now < due {
		e.wake(due)
		return false
	}
	e.compile(j.class)
	e.prepare(j)
	return e.evictFor(j, now, true)
}

// firstOverrun returns the first job that waits for quota, nil without any.
func (e *Engine) firstOverrun() *job {
	var first *job
	for _, c := range e.idle {
		if c.state == classOverrun && (first == nil || c.head().key.before(&first.key)) {
			first = c.head()
		}
	}
	return first
}
