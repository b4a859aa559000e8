package coretest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
)

// every is the model of a quota over all models.
const every = "*"

// usages is what each queue uses of each account: its jobs' pods, and what its
// children use beyond what they keep for themselves. Nominated places of the
// engine are unknown here: usages are never more than the engine's.
type usages map[account]core.Milli

// account is a queue's dealings in a model, in every model, or in a resource, "/cpu"; the queue "" is
// above all others.
type account struct{ queue, model string }

// resourceOf returns the resource of an account, "" if it is of GPUs.
func resourceOf(account string) string {
	resource, _ := strings.CutPrefix(account, "/")
	if resource == account {
		return ""
	}
	return resource
}

func (w *Twin) queue(name string) *core.Queue {
	for i := range w.queues {
		if w.queues[i].Name == name {
			return &w.queues[i]
		}
	}
	return &core.Queue{}
}

// limited reports whether any queue has a quota.
func (w *Twin) limited() bool { return len(w.models())+len(w.resources()) > 0 }

// resources lists the accounts of resources of which any queue has a quota.
func (w *Twin) resources() []string {
	var out []string
	for i := range w.queues {
		for _, r := range w.queues[i].Resources {
			if a := "/" + r.Resource; !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out
}

// takes lists what a pod of a task takes on a node of a model, as far as quotas may count it.
func (w *Twin) takes(j *job, t *core.Task, model string) []extra {
	var out []extra
	if t.GPU > 0 {
		out = append(out, extra{j.Queue, model, t.GPU})
	}
	for _, a := range w.resources() {
		if n := takesOf(t, a); n > 0 {
			out = append(out, extra{j.Queue, a, n})
		}
	}
	return out
}

// takesOf returns how much a pod of a task takes of an account of a resource.
func takesOf(t *core.Task, account string) core.Milli {
	switch resource := resourceOf(account); resource {
	case "cpu":
		return core.Milli(t.CPUMilli)
	case "memory":
		return core.Milli(t.MemMiB)
	default:
		for _, o := range t.Others {
			if o.Name == resource {
				return core.Milli(o.Value)
			}
		}
	}
	return 0
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
	for _, r := range q.Resources {
		if r.Resource == resourceOf(model) {
			return core.Quota{Model: model, Nominal: r.Nominal, BorrowingLimit: r.BorrowingLimit, LendingLimit: r.LendingLimit}, true
		}
	}
	return core.Quota{BorrowingLimit: core.Unlimited, LendingLimit: core.Unlimited}, false
}

// weighing lists the accounts that GPUs of a model, or a resource, count against.
func (w *Twin) weighing(queue, model string) []string {
	q := w.counting(queue, model)
	var out []string
	if resourceOf(model) != "" {
		if q.Name != "" {
			out = append(out, model)
		}
		return out
	}
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
	if queue == "" && w.policy.Queueing.LendUnowned {
		sum += w.unowned(model)
	}
	for i := range w.queues {
		if c := w.queues[i].Name; w.queues[i].Parent == queue {
			sum += w.owned(c, model) - w.keeps(c, model)
		}
	}
	return sum
}

// unowned is what the nodes that are up have of an account beyond what queues own of it.
func (w *Twin) unowned(account string) core.Milli {
	left := core.Milli(0)
	for _, n := range w.nodes {
		switch resource := resourceOf(account); {
		case !n.up:
		case resource == "cpu":
			left += core.Milli(n.CPUMilli)
		case resource == "memory":
			left += core.Milli(n.MemMiB)
		case resource != "":
			for _, o := range n.Others {
				if o.Name == resource {
					left += core.Milli(o.Value)
				}
			}
		case account == every || account == n.Model:
			left += core.Milli(n.GPUs) * core.WholeGPU
		}
	}
	for i := range w.queues {
		m, listed := limit(&w.queues[i], account)
		left -= m.Nominal
		for _, other := range w.queues[i].Quota {
			if account == every && !listed {
				left -= other.Nominal
			}
		}
	}
	return max(0, left)
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
	for _, x := range w.running(func(*job) bool { return true }) {
		add(x.queue, x.model, x.gpu)
	}
	for _, x := range extra {
		add(x.queue, x.model, x.gpu)
	}
	out := usages{}
	for m := range w.models() {
		w.pass("", m, own, out)
	}
	for _, r := range w.resources() {
		w.pass("", r, own, out)
	}
	return out
}

// running lists what the running pods of some jobs take.
func (w *Twin) running(of func(*job) bool) []extra {
	var out []extra
	for _, j := range w.jobs {
		if !of(j) {
			continue
		}
		for i := range j.pods {
			if p := &j.pods[i]; p.state == running {
				out = append(out, w.takes(j, &j.Tasks[p.task], w.node(p.at.Node).Model)...)
			}
		}
	}
	return out
}

// extra is GPU of a model, or an amount of the account of a resource, that might be used beside.
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
		q := w.counting(x.queue, x.model)
		for _, m := range w.weighing(x.queue, x.model) {
			own, listed := limit(q, m)
			if q.Mode == 0 || !listed {
				continue
			}
			used := core.Milli(0)
			for _, y := range more {
				used += w.counted(q, m, y)
			}
			for _, y := range w.running(func(*job) bool { return true }) {
				used += w.counted(q, m, y)
			}
			if used > own.Nominal {
				return fmt.Errorf("jobs of Isolated queue %s use %d milli of %s, it owns %d", q.Name, used, m, own.Nominal)
			}
		}
	}
	return nil
}

// counting returns the queue that owns the quotas against which jobs of a queue count: of a
// resource, or of GPUs of whatever model.
func (w *Twin) counting(queue, model string) *core.Queue {
	q := w.queue(queue)
	owns := func() bool {
		_, listed := limit(q, model)
		return resourceOf(model) == "" && len(q.Quota) > 0 || resourceOf(model) != "" && listed
	}
	for q.Name != "" && !owns() {
		q = w.queue(q.Parent)
	}
	return q
}

// counted returns how much of x counts against a queue's quota for a model, every, or a resource.
func (w *Twin) counted(q *core.Queue, model string, x extra) core.Milli {
	if w.counting(x.queue, x.model).Name == q.Name && (model == every && resourceOf(x.model) == "" || model == x.model) {
		return x.gpu
	}
	return 0
}

// lists reports whether the queue may use a model, or a resource, at all.
func (w *Twin) lists(queue, model string) bool {
	return resourceOf(model) != "" || w.free(model) || len(w.weighing(queue, model)) > 0
}

// free reports whether no queue has a quota of a GPU model, nor of all models together: it has no limit then.
func (w *Twin) free(model string) bool { return !w.models()[model] && !w.models()[every] }

// allows reports whether the queue may use so much more.
func (w *Twin) allows(more []extra) bool {
	if len(more) == 0 {
		return true
	}
	now := w.usages()
	cut := func(x extra) bool { return !w.perhaps && w.cut(x.queue, x.model, now) }
	return !slices.ContainsFunc(more, cut) && w.withinQuota(now, more...) == nil &&
		(!w.nominal || w.withinOwn(more))
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
	if len(q.Quota) == 0 && len(w.models()) > 0 || !w.limited() {
		return false
	}
	used := map[string]core.Milli{}
	for _, j := range w.jobs {
		switch {
		case j.Queue == queue && (j.nominated || j.restarts != core.Placed), w.under(j.Queue, queue):
			return false // the engine has promised more than runs
		case j.Queue != queue:
			continue
		}
		for i := range j.pods {
			if p := &j.pods[i]; p.state == running {
				for _, x := range w.takes(j, &j.Tasks[p.task], w.node(p.at.Node).Model) {
					used[x.model] += x.gpu
					if resourceOf(x.model) == "" {
						used[every] += x.gpu
					}
				}
			}
		}
	}
	for model, amount := range used {
		own, listed := limit(q, model)
		if resourceOf(model) != "" && !listed {
			if len(w.weighing(queue, model)) > 0 {
				return false // a queue above owns it
			}
			continue
		}
		if listed && amount > own.Nominal || model != every && !w.lists(queue, model) {
			return false
		}
	}
	return true
}

// minRuntime is how long a job asks to run before it can be evicted, as far as the
// policy lets it.
func (w *Twin) minRuntime(j *job) core.Time {
	if p := &w.policy.Preempt; (!w.protects(j) || j.exposed || j.doubtful) && p.MaxMinRuntime > 0 {
		return min(j.MinRuntime, p.MaxMinRuntime)
	}
	return j.MinRuntime
}

// protects reports whether the policy lets the job ask to be kept.
func (w *Twin) protects(j *job) bool {
	p := &w.policy.Preempt
	return !p.Unprotected && (p.ProtectedQueues == nil || slices.ContainsFunc(p.ProtectedQueues, func(q string) bool {
		return j.Queue == q || w.under(j.Queue, q)
	}))
}

// pinned reports whether a job must not borrow, as it would not give back.
func (w *Twin) pinned(j *job) bool {
	p := &w.policy.Preempt
	return w.protects(j) && (j.Locked || j.NotPreemptible || p.MaxMinRuntime > 0 && j.MinRuntime > p.MaxMinRuntime)
}

// pinnedWithin checks, after pods of a job that must not borrow have started, that these pods and
// all such jobs are within the nominal quotas for the models of those pods. doubt counts jobs for which it is unknown
// whether they are protected. The job may be exposed: then what it had does not count, but it
// must not borrow more.
func (w *Twin) pinnedWithin(j *job, start []core.Placement, doubt bool) error {
	if !w.pinned(j) {
		return nil
	}
	var of, more []extra
	for _, at := range start {
		takes := w.takes(j, &j.Tasks[j.pods[at.Pod].task], w.node(at.Node).Model)
		of = append(of, takes...)
		if !w.holdsOn(j, doubt) && !j.Foreign {
			more = append(more, takes...)
		}
	}
	return w.pinnedRoom(j.Queue, of, more, doubt)
}

// pinnedRoom checks that all running pods of jobs that must not borrow, and more beside them, are within
// the nominal quotas against which jobs of a queue count for what is listed.
func (w *Twin) pinnedRoom(queue string, of, more []extra, doubt bool) error {
	held := append(w.running(func(o *job) bool { return w.holdsOn(o, doubt) || o.Foreign }), more...)
	for _, x := range of {
		owner := w.counting(queue, x.model)
		for _, m := range w.weighing(queue, x.model) {
			own, _ := limit(owner, m) // of a queue that nobody owns quota for, nothing
			used := core.Milli(0)
			for _, y := range held {
				used += w.counted(owner, m, y)
			}
			if used > own.Nominal {
				return fmt.Errorf("jobs of queue %s that must not borrow use %d milli of %s, and it owns %d", owner.Name, used, m, own.Nominal)
			}
		}
	}
	return nil
}

// allowsJob reports whether one more pod of a task of the job may surely be on a node of a model.
func (w *Twin) allowsJob(j *job, t *core.Task, model string) bool {
	more := w.takes(j, t, model)
	if !w.allows(more) || !w.boundsAllow(j, t.GPU) {
		return false
	}
	return !w.pinned(j) || len(more) == 0 || w.pinnedRoom(j.Queue, more, more, !w.perhaps) == nil
}

// holdsOn reports whether a job must not borrow as long as it runs; doubt is the answer
// for jobs for which this is unknown.
func (w *Twin) holdsOn(j *job, doubt bool) bool {
	return w.pinned(j) && !j.exposed && (doubt || !j.doubtful)
}

// expose notes, when a pod of a task is found running on a node of a model, whether its job
// is protected still. Places that the engine keeps are not known here.
func (w *Twin) expose(j *job, t *core.Task, model string) {
	if j.running() == 0 {
		j.protect()
	}
	if !w.pinned(j) || j.Foreign {
		return
	}
	for _, x := range w.takes(j, t, model) {
		w.exposeBy(j, x)
	}
}

// exposeBy is expose for what a pod takes of one account.
func (w *Twin) exposeBy(j *job, x extra) {
	owner, accounts := w.counting(j.Queue, x.model), w.weighing(j.Queue, x.model)
	if !w.lists(j.Queue, x.model) {
		j.exposed = true
	}
	for _, m := range accounts {
		own, _ := limit(owner, m)
		least, most := x.gpu, x.gpu
		for _, o := range w.jobs {
			for i := range o.pods {
				p := &o.pods[i]
				if !w.holdsOn(o, true) || p.state == leaving || p.state == waiting && !o.nominated || p.state >= done {
					continue
				}
				on := x.model // of one that waits, on whichever model
				if p.state == running {
					on = w.node(p.at.Node).Model
				}
				for _, y := range w.takes(o, &o.Tasks[p.task], on) {
					most += w.counted(owner, m, y)
					if p.state == running && !o.doubtful {
						least += w.counted(owner, m, y)
					}
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
// within nominal quota, as far as the twin knows what the queue uses and the job takes; and within what it is
// owed, if the plan takes what others have beyond that, or what they are owed. The decisions begin with the evictions
// of the plan.
func (w *Twin) reclaimsWithin(name string, ds []core.Decision) error {
	f := w.jobs[name]
	if f == nil {
		return nil // another check reports it
	}
	reclaims, byShare, fromOwed, used := false, false, "", map[string]core.Milli{}
	count := func(j *job, i int, by core.Milli) {
		for _, x := range w.takes(j, &j.Tasks[j.pods[i].task], w.node(j.pods[i].at.Node).Model) {
			used[x.model] += by * x.gpu
			if resourceOf(x.model) == "" {
				used[every] += by * x.gpu
			}
		}
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
		j := w.jobs[d.Job]
		reclaims = reclaims || d.Reason == core.QuotaReclaim
		byShare = byShare || d.Reason == core.FairShareReclaim
		if d.Reason != core.QuotaReclaim && j != nil && j.Queue != f.Queue && w.hasShared(j, d.Pods) && w.keepsToShare(j.Queue) {
			fromOwed = j.Queue
		}
		if j != nil && j.Queue == f.Queue {
			for _, at := range d.Pods {
				count(j, at.Pod, -1)
			}
		}
	}
	if !reclaims && !byShare && fromOwed == "" {
		return nil
	}
	models := map[string]bool{}
	for t := range f.Tasks {
		task := &f.Tasks[t]
		if len(task.Models) != 1 {
			models[""] = true
		}
		for _, m := range task.Models {
			models[m] = true
		}
	}
	for m := range used {
		own, listed := limit(w.queue(f.Queue), m)
		need := f.needOf(m)
		if alone := m == every || resourceOf(m) != "" || len(models) == 1 && models[m]; reclaims && need > 0 && listed && alone && used[m]+need > own.Nominal {
			return fmt.Errorf("reclaim for %s, whose queue %s would use %d milli of %s, and owns %d", name, f.Queue, used[m]+need, m, own.Nominal)
		}
	}
	if w.hasBelow(f.Queue) {
		return nil
	}
	divided := w.divided(f.Queue)
	if len(models) == 1 && !models[""] && !w.free(slices.Collect(maps.Keys(models))[0]) {
		divided = slices.AppendSeq(divided, maps.Keys(models))
	}
	for _, m := range divided {
		claim, then := w.claim(f.Queue, m), used[m]+f.needOf(m)
		if f.needOf(m) == 0 {
			continue // what the queue has of it does not change
		}
		if byShare && then > claim {
			return fmt.Errorf("reclaim by share for %s, whose queue %s would use %d milli of %s, and is owed %d", name, f.Queue, then, m, claim)
		}
		if own := w.nominalFor(f.Queue, m); fromOwed != "" && then > claim && then > own {
			return fmt.Errorf("queue %s keeps to its share, and gives up some for %s, whose queue %s would use %d milli of %s, owns %d and is owed %d",
				fromOwed, name, f.Queue, then, m, own, claim)
		}
	}
	return nil
}

// hasShared reports whether any of the pods takes what is divided: others are never within what a queue is owed.
func (w *Twin) hasShared(j *job, pods []core.Placement) bool {
	return slices.ContainsFunc(pods, func(p core.Placement) bool {
		t := &j.Tasks[j.pods[p.Pod].task]
		return t.GPU > 0 && len(w.models()) > 0 || slices.ContainsFunc(w.divided(j.Queue), func(r string) bool { return takesOf(t, r) > 0 })
	})
}

// divided lists the accounts of the resources in which a quota limits a queue.
func (w *Twin) divided(queue string) []string {
	return slices.DeleteFunc(w.resources(), func(r string) bool { return len(w.weighing(queue, r)) == 0 })
}

// needOf returns how much of a resource, or else of GPUs, the job needs to start: the rest of a gang's
// minimum, or the smallest pod of another job.
func (j *job) needOf(account string) core.Milli {
	need, smallest := core.Milli(0), core.Unlimited
	whole := j.members()
	for t := range j.Tasks {
		task := &j.Tasks[t]
		takes := task.GPU
		if resourceOf(account) != "" {
			takes = takesOf(task, account)
		}
		need += core.Milli(max(0, minimum(task)-whole[t])) * takes
		smallest = min(smallest, takes)
	}
	if !j.Gang || j.whole() {
		return smallest
	}
	return need
}

// claim returns what others leave for that a queue is owed of a model, for all jobs below it.
func (w *Twin) claim(queue, model string) core.Milli {
	for _, s := range w.shares[queue] {
		if s.Model == model {
			return s.Claim()
		}
	}
	return 0
}

// nominalFor returns what the queue whose quota counts owns of a model or resource, at most.
func (w *Twin) nominalFor(queue, model string) core.Milli {
	most := core.Milli(0)
	accounts := []string{model, every}
	if resourceOf(model) != "" {
		accounts = accounts[:1]
	}
	for _, m := range accounts {
		own, _ := limit(w.counting(queue, m), m)
		most = max(most, own.Nominal)
	}
	return most
}

// keepsToShare reports whether the jobs of a queue certainly have no more than it is owed of any model or resource,
// under fair shares.
func (w *Twin) keepsToShare(queue string) bool {
	used, known := w.usedBy(queue)
	if w.shares == nil || !known {
		return false
	}
	for m, gpu := range used {
		if gpu > w.claim(queue, m) {
			return false
		}
	}
	return true
}

// usedBy returns what runs of a queue, by model or resource, as far as it is divided, and whether that is all that it has: no queues are below it, and
// no places are kept for its jobs.
func (w *Twin) usedBy(queue string) (used map[string]core.Milli, known bool) {
	used = map[string]core.Milli{}
	for _, j := range w.jobs {
		if j.Queue != queue {
			continue
		}
		if j.nominated || j.restarts != core.Placed || j.Foreign {
			return nil, false
		}
		for i := range j.pods {
			if p := &j.pods[i]; p.state == running {
				t := &j.Tasks[p.task]
				if t.GPU > 0 && len(w.models()) > 0 {
					used[w.node(p.at.Node).Model] += t.GPU
				}
				for _, r := range w.divided(queue) {
					used[r] += takesOf(t, r)
				}
			}
		}
	}
	return used, !w.hasBelow(queue)
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

// lessUnowned notes that there may be less that no queue owns: as if a quota had been cut.
func (w *Twin) lessUnowned() {
	if w.policy.Queueing.LendUnowned {
		w.quotaSet++
	}
}
