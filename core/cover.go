package core

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/quota"
)

// covered is a running gang or pod while quotas are dealt out.
type covered struct {
	job *job
	pod int // -1 for a gang
}

// account names a queue's nominal quota for a model or for all.
type account struct {
	owner *quota.Node
	model string
}

// claim is what a unit asks of an account.
type claim struct {
	account
	gpu Milli
}

// cover marks the running pods that their queues' nominal quotas cover. Jobs
// are served in their order; one that does not fit is passed over. Where no
// queue has a quota, nothing is marked and all are covered.
func (e *Engine) cover() {
	if e.coverAt == e.version || !e.ledger.Limited() {
		return
	}
	e.coverAt = e.version
	e.units = e.units[:0]
	for _, j := range e.running {
		if j.Gang {
			e.units = append(e.units, covered{j, -1})
			continue
		}
		for i := range j.pods {
			if j.pods[i].state == podRunning {
				e.units = append(e.units, covered{j, i})
			}
		}
	}
	for _, n := range e.filling {
		e.units = n.job.cover(e.units)
	}
	slices.SortFunc(e.units, compareCovered)
	clear(e.dealt)
	for _, u := range e.units {
		claims := e.claims(u)
		within := e.covers(claims)
		if within {
			for _, c := range claims {
				e.dealt[c.account] += c.gpu
			}
		}
		for i := range u.job.pods {
			if u.pod < 0 || u.pod == i {
				u.job.pods[i].within = within
			}
		}
	}
}

// cover appends the units of a nominated job that are not among the running.
func (j *job) cover(units []covered) []covered {
	if j.Gang && j.count[podRunning] == 0 {
		return append(units, covered{j, -1})
	}
	for i := range j.pods {
		if s := j.pods[i].state; !j.Gang && (s == podHeld || s == podPlanned) {
			units = append(units, covered{j, i})
		}
	}
	return units
}

func compareCovered(a, b covered) int {
	if a.job != b.job {
		if a.job.key.before(&b.job.key) {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.pod, b.pod)
}

// covers reports whether the accounts can bear the claims beside what is dealt
// already.
func (e *Engine) covers(claims []claim) bool {
	for _, c := range claims {
		if c.owner == nil {
			return false
		}
		nominal, _ := c.owner.Nominal(c.model)
		if e.dealt[c.account]+c.gpu > nominal {
			return false
		}
	}
	return true
}

// claims returns what a running unit asks of the nominal quotas.
func (e *Engine) claims(u covered) []claim {
	e.claimed = e.claimed[:0]
	if !u.job.queue.Limited() {
		return e.claimed
	}
	for i := range u.job.pods {
		p := &u.job.pods[i]
		if u.pod >= 0 && u.pod != i || p.state != podRunning && p.state != podHeld && p.state != podPlanned {
			continue
		}
		if gpu := u.job.gpu(p); gpu > 0 {
			e.claim(u.job.queue, e.state.Pool(p.alloc.Node).Model, gpu)
		}
	}
	return e.claimed
}

// claim adds a demand for a model to e.claimed.
func (e *Engine) claim(q *quota.Node, model string, gpu Milli) {
	for _, m := range q.Governing(model) {
		a := account{q.Owner(m), m}
		if i := slices.IndexFunc(e.claimed, func(c claim) bool { return c.account == a }); i >= 0 {
			e.claimed[i].gpu += gpu
			continue
		}
		e.claimed = append(e.claimed, claim{a, gpu})
	}
}

// wouldBeWithin reports whether nominal quota would cover the waiting job (one
// pod of it when it starts pod by pod), on one of the models it accepts.
func (e *Engine) wouldBeWithin(j *job) bool {
	if !j.queue.Limited() {
		return true
	}
	for _, model := range e.modelsOf(j) {
		e.claimed = e.claimed[:0]
		for t := range e.unit.Tasks {
			task := &e.unit.Tasks[t]
			n := len(task.Pods)
			if !e.unit.Whole {
				n = min(n, 1)
			}
			if gpu := Milli(n) * task.GPU(); gpu > 0 {
				m := model
				if own := task.Models(); !slices.Contains(own, m) && len(own) > 0 {
					m = own[0]
				}
				e.claim(j.queue, m, gpu)
			}
		}
		wants := slices.Clone(e.claimed)
		if e.coversBefore(j, wants) {
			return true
		}
	}
	return false
}

// coversBefore is covers for a job that comes in the order between the running
// ones: only those before it are served first.
func (e *Engine) coversBefore(j *job, wants []claim) bool {
	clear(e.dealt)
	for _, u := range e.units {
		if !u.job.key.before(&j.key) {
			break
		}
		first := max(u.pod, 0)
		if !u.job.pods[first].within {
			continue
		}
		for _, c := range e.claims(u) {
			e.dealt[c.account] += c.gpu
		}
	}
	return e.covers(wants)
}

// modelsOf returns the models that a waiting job accepts, in order.
func (e *Engine) modelsOf(j *job) []string {
	var out []string
	for _, sh := range j.class.shapes {
		for _, m := range sh.Models() {
			if !slices.Contains(out, m) {
				out = append(out, m)
			}
		}
	}
	return out
}
