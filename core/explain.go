package core

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/frag"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/quota"
)

// Explanation says what state a job is in and, if some of it waits, why.
type Explanation struct {
	Job string
	// Reason is meaningful if pods wait; Detail gives its numbers.
	Reason Reason
	Detail string
	// Waiting, Running and Leaving count pods; nominated ones wait. Moving counts those of
	// the running ones that are being moved, Standby those that lend their GPUs.
	Waiting, Running, Leaving, Moving, Standby int
	// Ahead counts the waiting jobs before it in the order of all jobs, without those that can never start: [MostAhead] stands for
	// as many or more. Since is when it began to wait.
	Ahead int
	Since Time
	// Settled is when the first job that may be evicted for it will have run for its minimum
	// time, Never if it does not wait for that.
	Settled Time
	// EvictsAt is when it will evict others, when these will have run for their minimum time, if nothing else
	// changes; Never if that is not to be seen. Evicts says which, by name.
	EvictsAt Time
	Evicts   []Victim
	// Delayed is until when it evicts no others, although there may be enough to evict, because it has
	// not waited for long enough; Never if that does not keep it: see [Preempt.Delay].
	Delayed Time
	// Stops is when the job is stopped because its gang has had fewer pods than its minimum for too long,
	// Never if it has enough: see [RequeuePolicy.StaleGrace].
	Stops Time
	// Owed is what the job's queue and those below it are owed of the GPU models that the job accepts,
	// if pods of it wait and the policy has [Queueing.FairShare].
	Owed []Share
	// Turn says which queue or job is before it because it received less of the GPU time that it deserved, under orders
	// by what was received, or because its user holds less, if their queue is fair between users; "" if none is.
	Turn string
}

// Explain explains a job, and returns false if there is no such live job. It costs O(nodes), and the first since the last event or pass
// O(classes of waiting jobs): it is for users' questions.
func (e *Engine) Explain(name string) (Explanation, bool) {
	j := e.jobs.byName[name]
	if j == nil {
		return Explanation{}, false
	}
	if e.inquiry == nil {
		e.inquiry = e.Inquire()
	}
	q := e.inquiry
	x := Explanation{
		Job: name, Since: j.since, Running: int(j.count[podRunning]), Leaving: j.leaving(),
		Waiting: j.waiting(), Moving: j.movesNow(), Standby: int(j.standing), Settled: Never, EvictsAt: Never, Delayed: Never, Stops: e.staleGangs.until(j),
	}
	x.Ahead = q.ahead(j)
	if x.Waiting > 0 {
		e.working = name
		x.Reason, x.Detail = q.why(j)
		x.Detail += j.behind() + e.recovery.text(j)
		if strings.Contains(x.Detail, tooYoung) {
			x.Settled = q.firstSettled(j)
			x.EvictsAt, x.Evicts = e.evictsLater(j, x.Settled)
		}
		x.Owed, x.Turn = e.shares.of(j), cmp.Or(e.longTerm.turn(j), e.turns.text(j))
		if e.delayed(j) {
			x.Delayed = e.mayEvictFrom(j)
		}
		e.working = ""
	}
	return x, true
}

// delayed reports whether the job evicts no others yet, although there may be enough to evict.
func (e *Engine) delayed(j *job) bool {
	if e.policy.Preempt.Delay == 0 || e.now >= e.mayEvictFrom(j) || j.class == nil || j.NeverPreempts {
		return false
	}
	e.units.compile(j.class)
	w := e.units.prepare(j)
	_, crowded := w.crowded()
	return !crowded && e.planner.mayEvict(w, false)
}

// Nearest says where the least must be freed for the job to start, at most this many places, if
// it waits because what is free is in the wrong places: too few GPUs together, too little CPU or
// another resource beside them, or not within one domain. O(nodes).
func (e *Engine) Nearest(name string, most int) []frag.Finding {
	j := e.jobs.byName[name]
	if j == nil || j.waiting() == 0 || j.class == nil {
		return nil
	}
	q := e.Inquire()
	switch reason, _ := q.why(j); reason {
	case Stranded, InsufficientCPU, InsufficientMemory, InsufficientPods, InsufficientOther, GPUSharing, InsufficientDevices, TopologyTooTight:
	default:
		return nil
	}
	e.units.compile(j.class)
	u := e.units.prepare(j).unit
	if !u.Whole {
		q.onePossible(u)
	}
	return e.placer.Nearest(u, most)
}

// Waiting yields the names of the jobs with waiting pods, in their order.
func (e *Engine) Waiting() iter.Seq[string] {
	var js []*job
	for _, j := range e.jobs.byName {
		if j.waiting() > 0 {
			js = append(js, j)
		}
	}
	e.sortByOrder(js)
	return func(yield func(string) bool) {
		for _, j := range js {
			if !yield(j.Name) {
				return
			}
		}
	}
}

// An Inquiry explains why jobs wait, for many of them at one moment: jobs that are alike get
// their answer from one count of the nodes. It is valid until the next event or pass.
type Inquiry struct {
	e     *Engine
	first *job // under StrictFIFO it holds back all others
	said  map[alike]answer
	never map[*class]bool // whether the jobs of a class can never start
	order []*job          // see ahead; nil until it is asked for
}

// alike is what jobs have in common which get the same answer.
type alike struct {
	class      *class
	precedence precedence // which weaker jobs it may evict
	first      bool       // see Inquiry.first
	keeps      string     // why it must not borrow
	user       string
	runs       bool // a pod of it has a place: its class may have to be found again
}

type answer struct {
	reason Reason
	detail string
}

// Inquire begins an inquiry.
func (e *Engine) Inquire() *Inquiry {
	e.unowned.lend()
	q := &Inquiry{e: e, said: map[alike]answer{}, never: map[*class]bool{}}
	q.first = q.firstReady()
	return q
}

// Why says why pods of the job wait, as Explain does, and returns false if none do. It costs
// O(nodes) for the first of jobs that are alike, O(1) for the others.
func (q *Inquiry) Why(name string) (Reason, string, bool) {
	j := q.e.jobs.byName[name]
	if j == nil || j.waiting() == 0 {
		return 0, "", false
	}
	if j.nomination != nil || j.class == nil {
		reason, detail := q.why(j)
		return reason, detail + q.e.recovery.text(j), true
	}
	key := alike{j.class, j.key.precedence, j == q.first, j.keeps(), "", false}
	if bounded, _ := j.queue.Bounded(); bounded {
		key.user, key.runs = j.User, j.counted > 0
	}
	a, ok := q.said[key]
	if !ok {
		a.reason, a.detail = q.why(j)
		q.said[key] = a
	}
	return a.reason, a.detail + j.behind() + q.e.recovery.text(j), true
}

// behind says of a job whose evictions lost all its work that it is not where its submission would
// put it; "" of others.
func (j *job) behind() string {
	if j.class == nil || j.nomination != nil || j.key.submit == j.Submitted-j.bonus {
		return ""
	}
	return "; it was evicted and saves no progress, so it waits behind the jobs that came before its eviction"
}

// Counted is how many answers were computed, not copied from an alike job.
func (q *Inquiry) Counted() int { return len(q.said) }

// waiting counts the pods that wait, nominated ones, too.
func (j *job) waiting() int {
	return int(j.count[podWaiting]+j.count[podHeld]+j.count[podPlanned]) - j.old()
}

// leaving counts the pods that were told to leave and are still on their nodes.
func (j *job) leaving() int { return int(j.count[podLeaving]) + j.old() }

// old counts the pods that restart elsewhere and are still on their old nodes.
func (j *job) old() int {
	if j.nomination == nil {
		return 0
	}
	return j.nomination.old
}

// why says why pods of the job wait. The reasons are in the order in which a pass would find
// them.
func (q *Inquiry) why(j *job) (Reason, string) {
	switch {
	case j.suspended != nil:
		return Suspended, j.suspended.text(q.e)
	case j.unchosen && !j.held:
		return q.e.alternatives.notChosen(j)
	}
	return q.whyNotStarted(j)
}

// whyNotStarted is why for a job that is neither suspended nor waits for a choice.
func (q *Inquiry) whyNotStarted(j *job) (Reason, string) {
	// 1. It is in no class: it is not tried at all.
	switch {
	case j.restarts() && j.nomination.lead == j.nomination:
		return j.nomination.why, fmt.Sprintf("it restarts elsewhere; its places are reserved; its pods still leaving: %d", j.nomination.old)
	case j.restarts():
		return Consolidation, fmt.Sprintf("it restarts elsewhere to make room for job %s; its places are reserved; its pods still leaving: %d", j.nomination.lead.job.Name, j.nomination.old)
	case j.nomination != nil && q.e.moves.toward(j.nomination) > 0:
		return Victims, fmt.Sprintf("its places are reserved; pods still leaving: %d, of them moving elsewhere: %d%s", j.nomination.outstanding, q.e.moves.toward(j.nomination), j.nomination.inWaves())
	case j.nomination != nil:
		return Victims, fmt.Sprintf("its places are reserved; evicted pods still leaving: %d", j.nomination.outstanding)
	case j.held:
		return Held, q.e.recovery.jobs[j.Name].held
	case j.class == nil && j.count[podLeaving] > 0:
		return MemberLost, fmt.Sprintf("pods of the job still leaving: %d", j.count[podLeaving])
	case q.e.waiting.pausing(j) && j.delay != nil:
		return HPExpected, j.delay.text(q.e.expected.slot)
	case q.e.waiting.pausing(j):
		return BackOff, fmt.Sprintf("%d failed starts; the next attempt is in %s", j.failures, secondsText(max(0, j.notBefore-q.e.now)))
	case j.class == nil:
		return MemberLost, j.missing()
	}

	// 2. Even an empty cluster would not hold it.
	q.e.units.compile(j.class)
	w := q.e.units.prepare(j)
	u := w.unit
	if !j.class.possible && !q.e.units.trimmed {
		if s := q.e.placer.TooLarge(u); s.Lack != place.NoLack {
			return NoNode, s.Detail
		}
	}
	if !u.Whole {
		q.onePossible(u) // the pods that start one by one wait for the same: one of them says what
	}

	// 3. It or its user runs as much as it may. Its queue lacks quota: for ever, of its own, until
	// others have run for long enough, or for now.
	if c, crowded := w.crowded(); crowded {
		return MaxRunning, c.String()
	}
	if w.overrun() {
		switch never := q.neverText(j, u); {
		case never != "":
			return ExceedsQuota, never
		case j.pinned && w.lacks(j.queue.PinnedLeft):
			return MustNotBorrow, q.quotaText(j, u)
		case q.firstSettled(j) != Never:
			return MinRuntime, q.quotaText(j, u) + tooYoung
		}
		return QuotaExceeded, q.quotaText(j, u)
	}

	// 4. It lacks room. Evictions would make some if jobs were not too young, or protected.
	u.Exhausted = j.class.exhausted
	if s := q.e.placer.Why(u); s.Lack != place.NoLack {
		weaker := func(o *job) bool { return q.e.policy.Preempt.outranks(j, o) }
		young := ""
		if q.firstSettled(j) != Never {
			young = tooYoung
		}
		return lackReasons[s.Lack], s.Detail + young + q.protectedText(j, q.e.policy.Preempt.Priority != NoPriority, "jobs of lower rank", weaker)
	}

	// 5. There is room by count. It has no quota where the room is, another job is first, or the
	// pods do not fit together.
	if q.e.placer.Barred(u) {
		if j.pinned && w.shortSomewhere(j.queue.PinnedLeft) {
			return MustNotBorrow, q.quotaText(j, u)
		}
		return QuotaExceeded, q.quotaText(j, u)
	}
	if first := q.firstReady(); first != nil && first != j {
		return HeldBack, fmt.Sprintf("job %s is first and does not fit; under StrictFIFO no job overtakes it", first.Name)
	}
	if j.class.state == classStuck && u.Whole && len(u.Tasks) > 1 {
		return Resources, "its tasks fit separately but not together; " + j.nextAttempt()
	}
	return Resources, "it fits by count; " + j.nextAttempt()
}

// onePossible reduces a unit that starts pod by pod to the first of its pods that an empty
// cluster would hold.
func (q *Inquiry) onePossible(u *place.Unit) {
	for t := range u.Tasks {
		one := *u
		if one.Tasks = u.Tasks[t : t+1]; len(u.Tasks[t].Pods) > 0 && q.e.placer.TooLarge(&one).Lack == place.NoLack {
			u.Tasks, u.Combinations = one.Tasks, nil // these are of all tasks
			u.Tasks[0].Pods = u.Tasks[0].Pods[:1]
			return
		}
	}
}

// tooYoung says that the job waits until others have run for their minimum time; when that is,
// Explanation.Settled says.
const tooYoung = "; jobs that could be evicted for it have not reached their minimum run time"

// firstSettled returns when the first job that may be evicted for this one will have run for
// its minimum time, as far as the last search found; Never if none is too young.
func (q *Inquiry) firstSettled(j *job) Time {
	first := Never
	for _, a := range j.class.attempts {
		if a != nil && a.of.precedence == j.key.precedence && a.settled > q.e.now {
			first = min(first, a.settled)
		}
	}
	return first
}

// neverText says why the job's queue could never hold what the job needs at once; "" if it
// could.
func (q *Inquiry) neverText(j *job, u *place.Unit) string {
	// 1. A task by itself needs too much, on each model that it accepts.
	needs, never := map[string]Milli{}, candidate{j, u}.lacksAlone(j.most)
	var parts, models []string
	for t := range u.Tasks {
		task := &u.Tasks[t]
		need := Milli(len(task.Pods)) * task.GPU()
		own := task.Models()
		for _, m := range own {
			if never && need > j.most(m) {
				parts = append(parts, q.mostText(j, m, need))
			}
		}
		if len(own) == 1 && need > 0 {
			if !slices.Contains(models, own[0]) {
				models = append(models, own[0])
			}
			needs[own[0]] += need
		}
	}

	// 2. Else the tasks that accept one model only may need too much of it together.
	if !never {
		for _, m := range models {
			if needs[m] > j.most(m) {
				parts = append(parts, q.mostText(j, m, needs[m]))
			}
		}
	}

	// 3. All tasks together may need too much of a resource.
	for _, r := range j.queue.Limits() {
		if need := resourceNeed(u, r); need > 0 && need > j.most(r) {
			parts = append(parts, q.mostText(j, r, need))
		}
	}
	slices.Sort(parts)
	return strings.Join(slices.Compact(parts), "; ")
}

// resourceNeed returns how much of a resource, by its account, the pods of a unit take together.
func resourceNeed(u *place.Unit, account string) Milli {
	need := Milli(0)
	for t := range u.Tasks {
		task := &u.Tasks[t]
		need = cluster.Plus(need, cluster.Times(len(task.Pods), task.Takes(account)))
	}
	return need
}

func (q *Inquiry) mostText(j *job, of string, need Milli) string {
	name, text := quota.AccountText(of), func(amount Milli) string { return quota.AmountText(of, amount) }
	if !j.queue.MayUse(of) {
		return fmt.Sprintf("queue %s has no quota for %s", j.queue.Name, name)
	}
	if j.pinned && j.queue.Owned(of) < need {
		return fmt.Sprintf("needs %s of %s at once; jobs of queue %s that must not borrow can never hold more than %s",
			text(need), name, j.queue.Name, text(j.most(of)))
	}
	return fmt.Sprintf("needs %s of %s at once; queue %s can never hold more than %s", text(need), name, j.queue.Name, text(j.most(of)))
}

// firstReady returns the first job under StrictFIFO, where those that would borrow come last;
// nil if no job is ready. It costs O(waiting classes).
func (q *Inquiry) firstReady() *job {
	var first *job
	nearest := 0
	for _, c := range q.e.waiting.ready.items {
		if reach := q.e.units.boundOf(c.head(), own).reach; first == nil || reach > nearest || reach == nearest && c.head().key.before(&first.key) {
			first, nearest = c.head(), reach
		}
	}
	if first == nil || !first.queue.FairUsers {
		return first
	}
	next := first.class
	for _, c := range q.e.waiting.ready.items {
		if c.line == next.line && q.e.turns.turnBefore(c, next) && q.e.units.boundOf(c.head(), own).reach == nearest {
			next = c
		}
	}
	return next.head()
}

var lackReasons = map[place.Lack]Reason{
	place.TooLarge: NoNode, place.GPUs: Resources, place.Together: Stranded, place.CPU: InsufficientCPU,
	place.Memory: InsufficientMemory, place.Pods: InsufficientPods, place.Other: InsufficientOther, place.Sharing: GPUSharing, place.Devices: InsufficientDevices, place.Constraint: Affinity, place.Topology: TopologyTooTight,
}

// protectedText says how much GPU is held by jobs that the job could evict if they were not
// disruption-protected; "" if none is, or if the policy does not evict for this (on).
func (q *Inquiry) protectedText(j *job, on bool, who string, ranksBelow func(*job) bool) string {
	if !on || q.e.runs.disruptionProtected == 0 {
		return ""
	}
	held := Milli(0)
	for _, o := range q.e.runs.jobs {
		if !o.disruptionProtected || !o.evictable() || !ranksBelow(o) {
			continue
		}
		for i := range o.pods {
			if p := &o.pods[i]; p.state == podRunning && j.class.pools&poolBit(q.e.state.Node(p.alloc.Node)) != 0 {
				held += o.gpu(p)
			}
		}
	}
	if held == 0 {
		return ""
	}
	return fmt.Sprintf("; %s that must not be evicted now hold %s GPUs", who, held.GPUs())
}

// quotaText says which queue lacks how much quota.
func (q *Inquiry) quotaText(j *job, u *place.Unit) string {
	var parts []string
	for t := range u.Tasks {
		task := &u.Tasks[t]
		need := Milli(len(task.Pods)) * task.GPU()
		for _, model := range task.Models() {
			if j.room(model) >= need || task.GPU() == 0 {
				continue
			}
			// What it must own is short, though there may be quota to borrow.
			if j.pinned && j.queue.PinnedLeft(model) < need {
				parts = append(parts, q.pinnedText(j, model, need))
				continue
			}
			for _, m := range j.queue.Governing(model) {
				text := accountText(j.queue, m, need)
				if j.queue.Available(m) < need && !slices.Contains(parts, text) {
					parts = append(parts, text)
				}
			}
			if !j.queue.MayUse(model) {
				parts = append(parts, fmt.Sprintf("queue %s has no quota for %s", j.queue.Name, model))
			}
		}
	}
	for _, r := range j.queue.Limits() {
		switch need := resourceNeed(u, r); {
		case need == 0 || j.room(r) >= need:
		case j.pinned && j.queue.PinnedLeft(r) < need:
			parts = append(parts, q.pinnedText(j, r, need))
		case j.queue.Available(r) < need:
			parts = append(parts, accountText(j.queue, r, need))
		}
	}
	// No task lacks quota by itself. All together may; else an Isolated queue waits for GPUs
	// that its evicted pods still hold.
	if parts == nil && j.pinned && (candidate{j, u}).lacks(j.queue.PinnedLeft) {
		return fmt.Sprintf("queue %s needs %s GPUs within its nominal quota because the job %s and so must not borrow: too few are left for such jobs",
			j.queue.Name, candidate{j, u}.needed().GPUs(), j.keeps())
	}
	if parts == nil {
		parts = q.quotaTogether(j, u)
	}
	if parts == nil {
		parts = []string{fmt.Sprintf("queue %s gets its quota back when the evicted pods have left", j.queue.Name)}
	}
	return strings.Join(slices.Compact(parts), "; ")
}

// pinnedText says how much of its nominal quota a queue has left for a job that must not
// borrow, and why the job must not.
func (q *Inquiry) pinnedText(j *job, of string, need Milli) string {
	return fmt.Sprintf("queue %s needs %s of %s within its nominal quota because the job %s and so must not borrow: %s left for such jobs",
		j.queue.Name, quota.AmountText(of, need), quota.AccountText(of), j.keeps(), quota.AmountText(of, max(0, j.queue.PinnedLeft(of))))
}

// keeps says why a job must not borrow; "" if it may.
func (j *job) keeps() string {
	switch {
	case !j.pinned:
		return ""
	case !j.Locked && !j.NotPreemptible && !j.Foreign:
		return fmt.Sprintf("runs for %s before it can be evicted", durationText(j.MinRuntime))
	}
	return "must not be evicted"
}

// quotaTogether says which accounts lack quota for the tasks of a gang together.
func (q *Inquiry) quotaTogether(j *job, u *place.Unit) []string {
	needs := map[string]Milli{}
	var parts, accounts []string
	for t := range u.Tasks {
		if models := u.Tasks[t].Models(); len(models) == 1 {
			for _, m := range j.queue.Governing(models[0]) {
				if needs[m] == 0 {
					accounts = append(accounts, m)
				}
				needs[m] += Milli(len(u.Tasks[t].Pods)) * u.Tasks[t].GPU()
			}
		}
	}
	for _, m := range accounts {
		if needs[m] > j.queue.Available(m) {
			parts = append(parts, accountText(j.queue, m, needs[m]))
		}
	}
	return parts
}

func accountText(q *quota.Queue, account string, need Milli) string {
	owner, name := q.Owner(account), quota.AccountText(account)
	text := func(amount Milli) string { return quota.AmountText(account, amount) }
	if owner == nil {
		return fmt.Sprintf("queue %s owns no %s quota and no other queue lends enough: needs %s", q.Name, name, text(need))
	}
	nominal, _ := owner.Nominal(account)
	out := fmt.Sprintf("queue %s needs %s of %s: quota %s, in use %s, available with borrowing %s", owner.Name, text(need), name,
		text(nominal), text(owner.InUse(account)), text(max(0, owner.Available(account))))
	if owner.InUse(account)+max(0, owner.Available(account)) < nominal { // others have some of its own
		out += borrowersText(owner, account)
	}
	return out
}

// mostBorrowers is how many queues are named that borrow.
const mostBorrowers = 3

// borrowersText says which other queues borrow of an account, and how much; "" if none does.
func borrowersText(q *quota.Queue, account string) string {
	var parts []string
	all := q.Borrowers(account)
	for _, b := range all[:min(len(all), mostBorrowers)] {
		parts = append(parts, fmt.Sprintf("queue %s %s", b.Queue, quota.AmountText(account, b.Amount)))
	}
	switch more := len(all) - len(parts); {
	case parts == nil:
		return ""
	case more > 0:
		parts = append(parts, fmt.Sprintf("and %d more queues", more))
	}
	return " (borrowed by others: " + strings.Join(parts, ", ") + ")"
}

// durationText writes a time in the largest unit that it is a multiple of.
func durationText(t Time) string {
	for _, u := range []struct {
		unit Time
		name string
	}{{24 * 3600 * Second, "d"}, {3600 * Second, "h"}, {60 * Second, "m"}} {
		if t >= u.unit && t%u.unit == 0 {
			return fmt.Sprintf("%d%s", t/u.unit, u.name)
		}
	}
	return secondsText(t)
}

func secondsText(t Time) string { return fmt.Sprintf("%.3gs", t.Seconds()) }
