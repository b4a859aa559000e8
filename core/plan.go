package core

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// A plan is found by trial in the state's journal: victims are lifted off their
// nodes, the cheapest first, until the job fits; then those that turn out not to
// be in the way are put back. What the trial did is rolled back in any case:
// nominate.go carries a plan out.

// budget counts evictions in the current interval.
type budget struct {
	interval int64
	spent    int
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

// roomWith reports whether the prepared unit, or one pod of it when it starts pod
// by pod, would find room by count if all the victims left. False is certain.
// O(victims + nodes they are on and pods there).
func (e *Engine) roomWith(vs []victim) bool {
	e.trial++
	e.tried = e.tried[:0]
	for k := range vs {
		for i := range vs[k].pods {
			p := &vs[k].job.pods[i]
			p.trial = e.trial
			e.tried = append(e.tried, p.alloc.Node)
		}
	}
	slices.Sort(e.tried)
	e.tried = slices.Compact(e.tried)
	return e.placer.RoomWith(&e.unit, e.tried, e.withoutTried)
}

// withoutTried returns what a node would have free without the pods of the
// current trial.
func (e *Engine) withoutTried(id cluster.NodeID) (gpus uint64, cpu, mem int64) {
	n := e.state.Node(id)
	gpus, cpu, mem = n.Healthy(), n.Spec.CPUMilli, n.Spec.MemMiB
	for i := range n.Pods {
		h := &n.Pods[i]
		if e.slots[h.Owner.Job].pods[h.Owner.Pod].trial != e.trial {
			gpus &^= h.Alloc.GPUs
			cpu -= h.Alloc.CPUMilli
			mem -= h.Alloc.MemMiB
		}
	}
	return gpus, cpu, mem
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
		p.lifted = true
		e.lifted = append(e.lifted, liftedPod{v.job, i})
	}
}

// liftedPod is a pod that a trial has taken out of the ledger, unless it was put
// back meanwhile.
type liftedPod struct {
	job *job
	pod int
}

// dropLifted puts the lifted pods back into the ledger.
func (e *Engine) dropLifted() {
	for _, l := range e.lifted {
		if p := &l.job.pods[l.pod]; p.lifted {
			p.lifted = false
			e.charge(l.job, p, 1)
		}
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
		for i := range v.pods {
			v.job.pods[i].lifted = false
		}
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
		e.due = min(e.due, Time(interval+1)*p.Interval)
		return false
	}
	return true
}
