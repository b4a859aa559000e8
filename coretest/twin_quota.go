package coretest

import (
	"fmt"

	"github.com/muster-sched/muster/core"
)

// every is the model of a quota over all models.
const every = "*"

// usages is what each queue uses of each account: its jobs' pods, and what its
// children use beyond what they keep for themselves. Nominated places of the
// engine are unknown here: usages are never more than the engine's.
type usages map[account]core.Milli

// account is a queue's dealings in a model or in every model; the queue "" is
// above all others.
type account struct{ queue, model string }

func (w *Twin) queue(name string) *core.Queue {
	for i := range w.queues {
		if w.queues[i].Name == name {
			return &w.queues[i]
		}
	}
	return &core.Queue{}
}

// models lists the models for which any queue has a quota.
func (w *Twin) models() map[string]bool {
	out := map[string]bool{}
	for i := range w.queues {
		for _, m := range w.queues[i].Quota {
			out[m.Model] = true
		}
	}
	return out
}

// limit returns the queue's own quota for a model; false when it lists none.
func limit(q *core.Queue, model string) (core.Quota, bool) {
	for _, m := range q.Quota {
		if m.Model == model {
			return m, true
		}
	}
	return core.Quota{BorrowingLimit: core.Unlimited, LendingLimit: core.Unlimited}, false
}

// weighing lists the accounts that GPUs of a model count against.
func (w *Twin) weighing(queue, model string) []string {
	q := w.counting(queue)
	var out []string
	for _, m := range []string{model, every} {
		if _, listed := limit(q, m); w.models()[m] && (listed || q.Name == "") {
			out = append(out, m)
		}
	}
	return out
}

// owned is what a queue has with what its children lend it, keeps what it does
// not lend in turn.
func (w *Twin) owned(queue, model string) core.Milli {
	m, _ := limit(w.queue(queue), model)
	sum := m.Nominal
	for i := range w.queues {
		if c := w.queues[i].Name; w.queues[i].Parent == queue {
			sum += w.owned(c, model) - w.keeps(c, model)
		}
	}
	return sum
}

func (w *Twin) keeps(queue, model string) core.Milli {
	q := w.queue(queue)
	m, _ := limit(q, model)
	lends := m.LendingLimit
	if q.Mode != 0 {
		lends = 0
	}
	return max(0, w.owned(queue, model)-lends)
}

// borrows returns how much more than it owns a queue may use.
func (w *Twin) borrows(queue, model string) core.Milli {
	q := w.queue(queue)
	if q.Mode != 0 {
		return 0
	}
	m, _ := limit(q, model)
	return m.BorrowingLimit
}

// usages adds up what runs; extra is counted as running too.
func (w *Twin) usages(extra ...extra) usages {
	own := usages{}
	add := func(queue, model string, gpu core.Milli) {
		for _, m := range w.weighing(queue, model) {
			own[account{queue, m}] += gpu
		}
	}
	for _, j := range w.jobs {
		for i := range j.pods {
			if p := &j.pods[i]; p.state == running {
				if gpu := j.Tasks[p.task].GPU; gpu > 0 {
					add(j.Queue, w.node(p.at.Node).Model, gpu)
				}
			}
		}
	}
	for _, x := range extra {
		add(x.queue, x.model, x.gpu)
	}
	out := usages{}
	for m := range w.models() {
		w.pass("", m, own, out)
	}
	return out
}

// extra is GPU that might be used beside.
type extra struct {
	queue, model string
	gpu          core.Milli
}

// pass computes the usage of a queue from that of its children.
func (w *Twin) pass(queue, model string, own, out usages) core.Milli {
	sum := own[account{queue, model}]
	for i := range w.queues {
		if c := w.queues[i].Name; w.queues[i].Parent == queue {
			sum += max(0, w.pass(c, model, own, out)-w.keeps(c, model))
		}
	}
	out[account{queue, model}] = sum
	return sum
}

// withinQuota checks every account that grew.
func (w *Twin) withinQuota(before usages, extra ...extra) error {
	for a, used := range w.usages(extra...) {
		if used <= before[a] {
			continue
		}
		most := w.owned(a.queue, a.model)
		if a.queue != "" {
			b := w.borrows(a.queue, a.model)
			if b == core.Unlimited {
				continue
			}
			most += b
		}
		if used > most {
			return fmt.Errorf("queue %q uses %d milli of %s, %d are allowed", a.queue, used, a.model, most)
		}
	}
	for _, x := range extra {
		if !w.lists(x.queue, x.model) {
			return fmt.Errorf("queue %q may not use %s", x.queue, x.model)
		}
	}
	return w.isolatedWithin(extra...)
}

// isolatedWithin checks that what would be used beside counts against no more than the
// nominal quotas of queues that do not borrow, of those above them or below.
func (w *Twin) isolatedWithin(more ...extra) error {
	for _, x := range more {
		q := w.counting(x.queue)
		for _, m := range w.weighing(x.queue, x.model) {
			own, listed := limit(q, m)
			if q.Mode == 0 || !listed {
				continue
			}
			used := core.Milli(0)
			for _, y := range more {
				used += w.counted(q, m, y)
			}
			for _, j := range w.jobs {
				for i := range j.pods {
					if p := &j.pods[i]; p.state == running && j.Tasks[p.task].GPU > 0 {
						used += w.counted(q, m, extra{j.Queue, w.node(p.at.Node).Model, j.Tasks[p.task].GPU})
					}
				}
			}
			if used > own.Nominal {
				return fmt.Errorf("jobs of Isolated queue %s use %d milli of %s, it owns %d", q.Name, used, m, own.Nominal)
			}
		}
	}
	return nil
}

// counting returns the queue that owns the quotas against which jobs of a queue count.
func (w *Twin) counting(queue string) *core.Queue {
	q := w.queue(queue)
	for len(q.Quota) == 0 && q.Name != "" {
		q = w.queue(q.Parent)
	}
	return q
}

// counted returns how much of x counts against a queue's quota for a model, or every.
func (w *Twin) counted(q *core.Queue, model string, x extra) core.Milli {
	if w.counting(x.queue).Name == q.Name && (model == every || model == x.model) {
		return x.gpu
	}
	return 0
}

// lists reports whether the queue may use a model at all.
func (w *Twin) lists(queue, model string) bool {
	return len(w.models()) == 0 || len(w.weighing(queue, model)) > 0
}

// allows reports whether the queue may use so much more of a model.
func (w *Twin) allows(queue, model string, gpu core.Milli) bool {
	if gpu == 0 {
		return true
	}
	now := w.usages()
	return !w.cut(queue, model, now) && w.withinQuota(now, extra{queue, model, gpu}) == nil
}

// cut reports whether the queue may use nothing of a model: after a cut of quotas, what
// others use beyond all of them is missing to everyone.
func (w *Twin) cut(queue, model string, now usages) bool {
	for _, m := range w.weighing(queue, model) {
		for q := queue; ; q = w.queue(q).Parent {
			if now[account{q, m}] > w.owned(q, m) && (q == "" || w.borrows(q, m) != core.Unlimited) {
				return true
			}
			if q == "" {
				break
			}
		}
	}
	return false
}

// withinNominal reports whether all running pods of a queue are certainly within its own quota:
// it owns its accounts, alone, and uses no more of any.
func (w *Twin) withinNominal(queue string) bool {
	q := w.queue(queue)
	if len(q.Quota) == 0 {
		return false
	}
	used := map[string]core.Milli{}
	for _, j := range w.jobs {
		switch {
		case j.Queue == queue && j.nominated, w.under(j.Queue, queue):
			return false // the engine has promised more than runs
		case j.Queue != queue:
			continue
		}
		for i := range j.pods {
			if p := &j.pods[i]; p.state == running {
				model := w.node(p.at.Node).Model
				if gpu := j.Tasks[p.task].GPU; gpu > 0 {
					used[model] += gpu
					used[every] += gpu
				}
			}
		}
	}
	for model, gpu := range used {
		own, listed := limit(q, model)
		if listed && gpu > own.Nominal || model != every && len(w.weighing(queue, model)) == 0 {
			return false
		}
	}
	return true
}

// minRuntime is how long a job asks to run before it can be evicted, as far as the
// policy lets it.
func (w *Twin) minRuntime(j *job) core.Time {
	if p := &w.policy.Preempt; (p.Unprotected || j.exposed || j.doubtful) && p.MaxMinRuntime > 0 {
		return min(j.MinRuntime, p.MaxMinRuntime)
	}
	return j.MinRuntime
}

// pinned reports whether a job must not borrow, as it would not give back.
func (w *Twin) pinned(j *job) bool {
	p := &w.policy.Preempt
	return !p.Unprotected && (j.Locked || j.NotPreemptible || p.MaxMinRuntime > 0 && j.MinRuntime > p.MaxMinRuntime)
}

// pinnedWithin checks, after pods of a job that must not borrow have started, that these pods and
// all such jobs of its queue are within its nominal quota for the models of those pods. It
// knows it of queues that own quota themselves. doubt counts jobs for which it is unknown
// whether they are protected. The job may be exposed: then what it had does not count, but it
// must not borrow more.
func (w *Twin) pinnedWithin(j *job, start []core.Placement, doubt bool) error {
	if !w.pinned(j) {
		return nil
	}
	more := map[string]core.Milli{}
	for _, at := range start {
		if gpu := j.Tasks[j.pods[at.Pod].task].GPU; !w.holdsOn(j, doubt) && !j.Foreign {
			more[w.node(at.Node).Model] += gpu
			more[every] += gpu
		}
	}
	for _, at := range start {
		if model := w.node(at.Node).Model; at.GPUs != 0 {
			if err := w.pinnedRoom(j.Queue, model, more, doubt); err != nil {
				return err
			}
		}
	}
	return nil
}

// pinnedRoom checks that all running pods of jobs that must not borrow, and more beside them, by
// model and in every model, are within the nominal quotas against which jobs of a queue count for a model. It checks only
// queues that own quota themselves.
func (w *Twin) pinnedRoom(queue, model string, more map[string]core.Milli, doubt bool) error {
	used := map[string]core.Milli{model: more[model], every: more[every]}
	for _, o := range w.jobs {
		for i := range o.pods {
			if p := &o.pods[i]; o.Queue == queue && (w.holdsOn(o, doubt) || o.Foreign) && p.state == running {
				used[every] += o.Tasks[p.task].GPU
				if m := w.node(p.at.Node).Model; m == model {
					used[m] += o.Tasks[p.task].GPU
				}
			}
		}
	}
	for _, m := range []string{model, every} {
		if own, listed := limit(w.queue(queue), m); listed && used[m] > own.Nominal {
			return fmt.Errorf("jobs of queue %s that must not borrow use %d milli of %s, and it owns %d", queue, used[m], m, own.Nominal)
		}
	}
	return nil
}

// allowsJob reports whether the job may surely use so much more of a model.
func (w *Twin) allowsJob(j *job, model string, gpu core.Milli) bool {
	if !w.allows(j.Queue, model, gpu) {
		return false
	}
	return !w.pinned(j) || gpu == 0 || w.knowsPinned(j) && w.pinnedRoom(j.Queue, model, map[string]core.Milli{model: gpu, every: gpu}, true) == nil
}

// holdsOn reports whether a job must not borrow as long as it runs; doubt is the answer
// for jobs for which this is unknown.
func (w *Twin) holdsOn(j *job, doubt bool) bool {
	return w.pinned(j) && !j.exposed && (doubt || !j.doubtful)
}

// expose notes, when a pod with so much GPU of a model is found running, whether its job
// is protected still. Places that the engine keeps are not known here.
func (w *Twin) expose(j *job, model string, gpu core.Milli) {
	if j.running() == 0 {
		j.protect()
	}
	if !w.pinned(j) || j.Foreign || gpu == 0 || len(w.models()) == 0 {
		return
	}
	owner, accounts := w.counting(j.Queue), w.weighing(j.Queue, model)
	if len(accounts) == 0 {
		j.exposed = true
	}
	for _, m := range accounts {
		own, _ := limit(owner, m)
		least, most := gpu, gpu
		for _, o := range w.jobs {
			for i := range o.pods {
				p := &o.pods[i]
				if !w.holdsOn(o, true) || p.state == leaving || p.state == waiting && !o.nominated || p.state >= done {
					continue
				}
				x := extra{o.Queue, model, o.Tasks[p.task].GPU} // of one that waits, on whichever model
				if p.state == running {
					x.model = w.node(p.at.Node).Model
				}
				most += w.counted(owner, m, x)
				if p.state == running && !o.doubtful {
					least += w.counted(owner, m, x)
				}
			}
		}
		j.exposed = j.exposed || least > own.Nominal
		j.doubtful = j.doubtful || most > own.Nominal
	}
}

// protect records that nothing of the job runs: it is protected as before, unless the
// engine keeps a place for it.
func (j *job) protect() {
	j.doubtful = (j.exposed || j.doubtful) && j.nominated
	j.exposed = false
}

// knowsPinned reports whether pinnedRoom says all there is to say of a job that must
// not borrow: queues below others share quota with jobs that it does not count.
func (w *Twin) knowsPinned(j *job) bool {
	return !w.pinned(j) || len(w.models()) == 0 || len(w.queue(j.Queue).Quota) > 0 && !w.hasBelow(j.Queue)
}

// hasBelow reports whether a queue has others below it.
func (w *Twin) hasBelow(queue string) bool {
	for i := range w.queues {
		if w.queues[i].Parent == queue {
			return true
		}
	}
	return false
}

// reclaimsWithin checks that a job for which a plan reclaims quota leaves its queue
// within nominal quota, as far as the twin knows what the queue uses and the job takes.
// The decisions begin with the evictions of the plan.
func (w *Twin) reclaimsWithin(name string, ds []core.Decision) error {
	f := w.jobs[name]
	if f == nil {
		return nil // another check reports it
	}
	reclaims, used := false, map[string]core.Milli{}
	count := func(j *job, i int, by core.Milli) {
		gpu := by * j.Tasks[j.pods[i].task].GPU
		used[every] += gpu
		used[w.node(j.pods[i].at.Node).Model] += gpu
	}
	for _, j := range w.jobs {
		for i := range j.pods {
			if j.Queue == f.Queue && j.pods[i].state == running {
				count(j, i, 1)
			}
		}
	}
	for k := range ds {
		d := &ds[k]
		if d.Op != core.Evict || d.For != name {
			break // others may have started since
		}
		reclaims = reclaims || d.Reason == core.QuotaReclaim
		if j := w.jobs[d.Job]; j != nil && j.Queue == f.Queue {
			for _, at := range d.Pods {
				count(j, at.Pod, -1)
			}
		}
	}
	if !reclaims {
		return nil
	}
	need, smallest, models := core.Milli(0), core.Unlimited, map[string]bool{}
	whole := f.members()
	for t := range f.Tasks {
		task := &f.Tasks[t]
		need += core.Milli(max(0, minimum(task)-whole[t])) * task.GPU
		smallest = min(smallest, task.GPU)
		if len(task.Models) != 1 {
			models[""] = true
		}
		for _, m := range task.Models {
			models[m] = true
		}
	}
	if !f.Gang || f.whole() {
		need = smallest
	}
	for m := range used {
		own, listed := limit(w.queue(f.Queue), m)
		if alone := m == every || len(models) == 1 && models[m]; listed && alone && used[m]+need > own.Nominal {
			return fmt.Errorf("reclaim for %s, whose queue %s would use %d milli of %s, and owns %d", name, f.Queue, used[m]+need, m, own.Nominal)
		}
	}
	return nil
}

// under reports whether a queue is below another.
func (w *Twin) under(queue, top string) bool {
	for queue != "" {
		if queue = w.queue(queue).Parent; queue == top {
			return true
		}
	}
	return false
}
