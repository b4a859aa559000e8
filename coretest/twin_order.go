package coretest

import (
	"cmp"
	"fmt"
	"math/bits"

	"github.com/muster-sched/muster/core"
)

// sizeBonus is how much earlier than it was a new job counts as submitted.
func (w *Twin) sizeBonus(j *core.Job) core.Time {
	if j.Class == core.HP {
		return 0
	}
	return w.policy.Queueing.SizeWeight * core.Time(j.GPUs()) / core.Time(core.WholeGPU)
}

// requeued notes that a pod of a job has left: one that was evicted and saves no progress may wait
// behind others now.
func (w *Twin) requeued(now core.Time, j *job, p *pod) {
	if (p == nil || p.evicted && j.suspended == nil) && w.policy.Requeue.Timestamp == core.EvictionTime && j.Checkpoint == 0 && j.SaveWithin == 0 {
		j.ordered = now - j.bonus
	}
}

// estimateOf returns by what a job is ordered that has an estimate, in whole seconds, or those times milli-GPU and then milli-GPU.
func (w *Twin) estimateOf(j *job, estimate core.Time) (int64, core.Milli) {
	switch w.policy.Queueing.Order {
	case core.ByEstimate:
		return int64(estimate / core.Second), 0
	case core.ByEstimatedGPUTime:
		sum := core.Milli(0)
		for i := range j.pods {
			sum += j.Tasks[j.pods[i].task].GPU
		}
		return int64(estimate/core.Second) * int64(sum), sum
	}
	return 0, 0
}

// inOrder checks the order of the jobs that wait; why says for which reason each does.
func (w *Twin) inOrder(names []string, why func(string) core.Reason) error {
	var last *job
	var lastAt *job
	turns := w.turnsOf(names, why)
	for i, name := range names {
		j := w.jobs[name]
		if j.unordered {
			if !turns.out[j] {
				turns.start(j)
			}
			continue
		}
		if w.fairOrder() {
			if last != nil && !w.turnsBetween(last, j) && w.compareServed(last, j) >= 0 {
				return fmt.Errorf("job %s comes before %s in the order: expected it behind\n%s\n%s", last.Name, j.Name, w.servedText(last), w.servedText(j))
			}
			last = j
			continue
		}
		at, err := turns.take(i, j)
		if err != nil {
			return err
		}
		if at == nil {
			continue
		}
		if last != nil && cmp.Or(cmp.Compare(last.Class, j.Class), cmp.Compare(j.Priority, last.Priority), comparePlaces(lastAt, at)) > 0 {
			return fmt.Errorf("job %s comes before %s in the order: expected it behind", last.Name, j.Name)
		}
		last, lastAt = j, at
	}
	return nil
}

// ownersFirst checks, after a pass, that no job started on GPUs that it borrows while a job
// waits that could have had these GPUs without borrowing them: within the nominal quota of its
// queue, or within what a queue above it owns together with those below it, while the other one
// borrows from beyond that queue. Under StrictFIFO a job within quota may borrow in its turn.
//
// It knows this of single pods that start by themselves, when no pod is leaving: then the engine
// keeps no places. Usage only grows in such a pass, so what is left at its end was left before.
func (w *Twin) ownersFirst(ds []core.Decision) error {
	if !w.limited() || w.policy.Queueing.Mode == core.StrictFIFO || !w.Settled() {
		return nil
	}
	for k := range ds {
		if ds[k].Op == core.Evict || ds[k].Op == core.Migrate || ds[k].Op == core.Resume || kept(&ds[k]) && ds[k].Reason != core.Consolidation {
			return nil // it was a plan that started, or one was begun
		}
	}
	for k := range ds {
		if ds[k].Op != core.Bind {
			continue
		}
		b := w.jobs[ds[k].Job]
		if w.pinned(b) || b.Foreign {
			continue
		}
		for _, name := range w.Live() {
			j := w.jobs[name]
			for i := range j.pods {
				if at := w.couldHave(j, i, b, ds[k].Pods); at != "" && w.borrowsPast(b, ds[k:], j, &j.Tasks[j.pods[i].task]) {
					return fmt.Errorf("job %s borrows what it has on %s, and pod %d of %s waits, whose queue owns it", b.Name, at, i, j.Name)
				}
			}
		}
	}
	return nil
}

// couldHave returns a node on which the waiting pod would find room in place of a pod of b that
// started there, "" if there is none.
func (w *Twin) couldHave(j *job, i int, b *job, start []core.Placement) string {
	p := &j.pods[i]
	t := &j.Tasks[p.task]
	plain := len(t.Labels) == 0 && len(t.Affinity) == 0 && j.Topology.Required == "" && p.left == nil && len(j.left) == 0
	resources := t.GPU == 0 && len(w.takes(j, t, "")) > 0 && w.policy.CPUOnly.Reserve == 0
	putOff := w.had != nil && j.Class == core.LP && (j.Estimate > 0 || j.estimated) // perhaps, by a forecast
	if j == b || j.Gang || j.failed || putOff || w.pinned(j) || p.state != waiting || t.GPU < core.WholeGPU && !resources || !plain {
		return ""
	}
	for k := range start {
		at := &start[k]
		n, own := w.node(at.Node), &b.Tasks[b.pods[at.Pod].task]
		fits := (t.GPU == 0 || at.GPU == core.WholeGPU && bits.OnesCount64(at.GPUs) >= int(t.GPU/core.WholeGPU)) && t.CPUMilli <= at.CPUMilli && t.MemMiB <= at.MemMiB
		for _, a := range t.Others {
			has := int64(0)
			for _, o := range own.Others {
				if o.Name == a.Name {
					has = o.Value
				}
			}
			fits = fits && a.Value <= has
		}
		for range w.lenders(n.Name) {
			fits = false
		}
		if !fits || w.suits(j, t, n) != nil || fromSets(t, n, at.GPUs, 1) == 0 {
			continue
		}
		there := &b.pods[at.Pod]
		there.state = waiting
		allowed := w.allowsJob(j, t, n.Model)
		there.state = running
		if allowed {
			return at.Node
		}
	}
	return ""
}

// borrowsPast reports whether a job that was bound by the first of these decisions, of a pass,
// surely borrowed from beyond a queue within which the pod of a task would not have to borrow.
func (w *Twin) borrowsPast(b *job, ds []core.Decision, j *job, t *core.Task) bool {
	model := ""
	for _, at := range ds[0].Pods {
		if at.GPUs != 0 {
			if m := w.node(at.Node).Model; model != "" && m != model {
				return false
			} else {
				model = m
			}
		}
	}
	// 1. The nominal quotas of resources against which the pod counts must cover it, too. One that takes
	// no GPUs comes before whatever b borrows.
	for _, x := range w.takes(j, t, model) {
		q := w.counting(j.Queue, x.model)
		if own, _ := limit(q, x.model); resourceOf(x.model) != "" && q.Name != "" && own.Nominal-w.countedAll(q, x.model) < x.gpu {
			return false
		}
	}
	if t.GPU == 0 {
		for _, x := range w.takes(b, &b.Tasks[b.pods[ds[0].Pods[0].Pod].task], model) {
			counts := len(w.weighing(j.Queue, x.model)) > 0
			if counts && resourceOf(x.model) != "" && w.borrowsBeyond(b, ds, w.counting(b.Queue, x.model).Name, x.model) {
				return true
			}
		}
		return false
	}
	owner := w.counting(j.Queue, model)
	if model == "" || len(w.weighing(j.Queue, model)) == 0 || owner.Name == "" {
		return false
	}
	// 2. Its own nominal quota, whatever b is, as long as b borrows at all.
	room := func(q *core.Queue) core.Milli {
		left := core.Unlimited
		for _, m := range w.weighing(j.Queue, model) {
			own, _ := limit(q, m)
			left = min(left, own.Nominal-w.countedAll(q, m))
		}
		return left
	}
	if w.borrowsBeyond(b, ds, w.counting(b.Queue, model).Name, model) && room(owner) >= t.GPU {
		return true
	}
	// 3. What a queue above owns together with those below it: only if its children lend all
	// that they own and may borrow without limit, so that no sums but its own matter. Under fair
	// shares, jobs that keep their queues within what these are owed come before.
	if w.shares != nil {
		return false
	}
	now := w.usages()
	for top := owner.Name; top != ""; top = w.queue(top).Parent {
		if w.under(b.Queue, top) || b.Queue == top {
			return false
		}
		enough := true
		for _, m := range w.weighing(j.Queue, model) {
			for q := j.Queue; q != top; q = w.queue(q).Parent {
				enough = enough && w.keeps(q, m) == 0 && w.borrows(q, m) == core.Unlimited
			}
			enough = enough && w.owned(top, m)-now[account{top, m}] >= t.GPU
		}
		// b borrows at least from where its path meets that of top.
		meet := w.queue(top).Parent
		for meet != "" && !w.under(b.Queue, meet) && b.Queue != meet {
			meet = w.queue(meet).Parent
		}
		beyond := b.Queue
		for beyond != "" && w.queue(beyond).Parent != meet {
			beyond = w.queue(beyond).Parent
		}
		if enough && beyond != "" && w.borrowsBeyond(b, ds, beyond, model) {
			return true
		}
	}
	return false
}

// borrowsBeyond reports whether a job that was bound by the first of these decisions surely
// borrowed from beyond a queue above it, or from beyond the nominal quota of its own: at the end of
// the pass each of these is used up, on the way to that queue, and no other job below it has started
// since.
func (w *Twin) borrowsBeyond(b *job, ds []core.Decision, beyond, model string) bool {
	for k := range ds[1:] {
		if d := &ds[1+k]; d.Op == core.Bind && (w.jobs[d.Job].Queue == beyond || w.under(w.jobs[d.Job].Queue, beyond)) {
			return false
		}
	}
	own := w.counting(b.Queue, model)
	now := w.usages()
	for _, m := range w.weighing(b.Queue, model) {
		nominal, listed := limit(own, m)
		over := listed && w.countedAll(own, m) > nominal.Nominal
		for q := b.Queue; over; q = w.queue(q).Parent {
			over = over && (q == own.Name && q == beyond || now[account{q, m}] > w.owned(q, m))
			if q == beyond || q == "" {
				break
			}
		}
		if over {
			return true
		}
	}
	return false
}

// countedAll sums up what runs that counts against a queue's nominal quota.
func (w *Twin) countedAll(q *core.Queue, model string) core.Milli {
	sum := core.Milli(0)
	for _, x := range w.running(func(*job) bool { return true }) {
		sum += w.counted(q, model, x)
	}
	return sum
}
