package core

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/quota"
)

// covered is what is weighed as one while quotas are dealt out: the least pods
// of a running gang, or one other pod.
type covered struct {
	job *job
	pod int // -1 for the least pods of a gang
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
// are served in their order; one that does not fit is passed over. The pods that
// a gang has beyond its least come after those and are covered one by one: else
// one of them could push its whole gang beyond quota by starting. Where no queue
// has a quota, nothing is marked and all are covered.
func (e *Engine) cover() {
	if e.coverAt == e.version || !e.ledger.Limited() {
		return
	}
	e.coverAt = e.version
	e.units = e.units[:0]
	for _, j := range e.running {
		e.units = j.cover(e.units)
	}
	for _, n := range e.filling {
		if n.job.run < 0 {
			e.units = n.job.cover(e.units)
		}
	}
	slices.SortFunc(e.units, compareCovered)
	clear(e.dealt)
	for _, u := range e.units {
		claims := e.claims(u)
		within := e.covers(claims)
		if u.pod >= 0 && u.job.Gang && !u.job.leastWithin() {
			within = false
		}
		if within {
			for _, c := range claims {
				e.dealt[c.account] += c.gpu
			}
		}
		for i := range u.job.pods {
			if p := &u.job.pods[i]; u.has(i, p) {
				p.within = within
			}
		}
	}
}

// has reports whether pod i belongs to the unit.
func (u covered) has(i int, p *pod) bool {
	if u.pod < 0 {
		return !p.extra
	}
	return u.pod == i
}

// placed reports whether the pod has a place that counts against its quota.
func (p *pod) placed() bool {
	return p.state == podRunning || p.state == podHeld || p.state == podPlanned
}

// cover appends the units of a running or nominated job.
func (j *job) cover(units []covered) []covered {
	if !j.Gang {
		for i := range j.pods {
			if j.pods[i].placed() {
				units = append(units, covered{j, i})
			}
		}
		return units
	}
	units = append(units, covered{j, -1})
	first := 0
	for t := range j.Tasks {
		task := &j.Tasks[t]
		pods := j.pods[first : first+task.Pods]
		least := task.minPods()
		for i := range pods {
			if pods[i].state == podDone {
				least--
			}
		}
		for _, running := range [2]bool{true, false} {
			for i := range pods {
				if p := &pods[i]; p.placed() && (p.state == podRunning) == running {
					p.extra = least <= 0
					least--
				}
			}
		}
		for i := range pods {
			if pods[i].placed() && pods[i].extra {
				units = append(units, covered{j, first + i})
			}
		}
		first += task.Pods
	}
	return units
}

// leastWithin reports whether the least pods of a running gang are covered.
func (j *job) leastWithin() bool {
	for i := range j.pods {
		if p := &j.pods[i]; p.placed() && !p.extra {
			return p.within
		}
	}
	return true
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
		if !u.has(i, p) || !p.placed() {
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
	accounts := q.Governing(model)
	if len(accounts) == 0 {
		e.claimed = append(e.claimed, claim{account{nil, model}, gpu}) // it may not even use the model
	}
	for _, m := range accounts {
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

// wouldCover reports whether nominal quota would cover the waiting job in these
// places.
func (e *Engine) wouldCover(j *job, placed []place.Placed) bool {
	if !j.queue.Limited() {
		return true
	}
	e.claimed = e.claimed[:0]
	for i := range placed {
		if gpu := placed[i].Alloc.GPU(); gpu > 0 {
			e.claim(j.queue, e.state.Pool(placed[i].Alloc.Node).Model, gpu)
		}
	}
	return e.coversBefore(j, slices.Clone(e.claimed))
}

// coversBefore is covers for a job that comes in the order between the running
// ones: those before it, and what runs of it already, are served first.
func (e *Engine) coversBefore(j *job, wants []claim) bool {
	clear(e.dealt)
	if j.Gang && !j.leastWithin() {
		return false
	}
	for _, u := range e.units {
		if u.job != j && !u.job.key.before(&j.key) {
			break
		}
		if u.pod >= 0 && !u.job.pods[u.pod].within || u.pod < 0 && !u.job.leastWithin() {
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
