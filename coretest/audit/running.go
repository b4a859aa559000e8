package audit

// bounds are those of a queue on what runs in it and below it at one time, 0 for none, and what
// does.
type bounds struct {
	jobs, gpu   int64
	runs, inUse int64
}

// bounded counts a pod that runs in the queues of its job, or that no longer does, and checks that no more
// runs than they allow, altogether and of one user.
func (a *auditor) bounded(j *job, p *pod, sign int64) {
	jobs := int64(0)
	if sign > 0 && j.running == 0 || sign < 0 && j.running == 1 {
		jobs = sign
	}
	j.running += sign
	for q := a.queues[j.queue]; q != nil; q = q.parent {
		if q.all.jobs+q.all.gpu+q.perUser.jobs+q.perUser.gpu == 0 {
			continue
		}
		if q.users[j.user] == nil {
			user := q.perUser
			q.users[j.user] = &user
		}
		for _, b := range []*bounds{&q.all, q.users[j.user]} {
			b.runs += jobs
			b.inUse += sign * p.amount()
			if jobs > 0 && b.jobs > 0 && b.runs > b.jobs {
				a.breach(Running, "job %s of user %q is number %d that runs in queue %s, of at most %d", j.name, j.user, b.runs, q.name, b.jobs)
			}
			if sign*p.amount() > 0 && b.gpu > 0 && b.inUse > b.gpu {
				a.breach(Running, "job %s of user %q brings what runs in queue %s to %d milli-GPU, of at most %d", j.name, j.user, q.name, b.inUse, b.gpu)
			}
		}
	}
}
