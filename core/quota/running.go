package quota

import "fmt"

// Running bounds what jobs of a queue and of all below it run at one time, or what those of each user
// do. The zero value bounds nothing.
type Running struct {
	Jobs int   // a job counts as long as one of its pods has a place, or has yet to leave it
	GPU  Milli // of any model
}

// MaxRunning is the largest bound on jobs.
const MaxRunning = 1 << 31

// bounds reports whether the queue bounds what runs.
func (q *QueueSpec) bounds() bool {
	return q.MaxRunning != Running{} || q.MaxRunningPerUser != Running{}
}

// bound counts in or out a queue that bounds what runs, or is fair between users.
func (l *Ledger) bound(q *Queue, by int) {
	if q.bounds() {
		l.bounded += by
	}
	if q.FairUsers {
		l.fairUsers += by
	}
}

// Follows reports whether what runs must be counted: a queue bounds it, or is fair between users.
func (l *Ledger) Follows() bool { return l.bounded|l.fairUsers != 0 }

// FairUsers returns how many queues are fair between users.
func (l *Ledger) FairUsers() int { return l.fairUsers }

// checkRunning reports what is wrong with the bounds of a queue.
func checkRunning(q *QueueSpec) error {
	for _, r := range []Running{q.MaxRunning, q.MaxRunningPerUser} {
		if r.Jobs < 0 || r.Jobs > MaxRunning || r.GPU < 0 || r.GPU > MaxQuota {
			return fmt.Errorf("queue %s: at most %d jobs and %d milli-GPU may run, expected 1..%d and 1..%d, or 0 for no bound", q.Name, r.Jobs, r.GPU, MaxRunning, MaxQuota)
		}
	}
	return nil
}

// Bounded reports whether any queue bounds what runs. Without one, nothing is counted.
func (l *Ledger) Bounded() bool { return l.bounded > 0 }

// Bounded reports whether this queue, or one above it, bounds what runs, and whether one of them does
// for each user. It costs O(depth of the tree).
func (q *Queue) Bounded() (bounded, perUser bool) {
	if q.ledger.bounded == 0 {
		return false, false
	}
	for up := q; up != nil; up = up.parent {
		bounded = bounded || up.bounds()
		perUser = perUser || up.MaxRunningPerUser != Running{}
	}
	return bounded, perUser
}

// Run counts jobs and GPU of a user as running in the queue and all above it; negative numbers take
// that back.
func (q *Queue) Run(user string, jobs int, gpu Milli) {
	for up := q; up != nil; up = up.parent {
		up.running.add(jobs, gpu)
		if up.byUser == nil {
			up.byUser = map[string]*Running{}
		}
		of := up.byUser[user]
		if of == nil {
			of = &Running{}
			up.byUser[user] = of
		}
		if of.add(jobs, gpu); *of == (Running{}) {
			delete(up.byUser, user)
		}
	}
}

func (r *Running) add(jobs int, gpu Milli) {
	r.Jobs += jobs
	r.GPU += gpu
}

// Recount forgets what is counted as running. The caller counts it again with [Queue.Run].
func (l *Ledger) Recount() {
	l.root.running, l.root.byUser = Running{}, nil
	for _, q := range l.order {
		q.running, q.byUser = Running{}, nil
	}
}

// A Crowd is a bound that has no room for a job.
type Crowd struct {
	Queue   string
	PerUser bool
	User    string
	// What runs, what the job needs beside, and the bound: of jobs, or else of GPU.
	Jobs, MostJobs   int
	GPU, Needs, Most Milli
}

// Crowded returns the first bound, from the queue upwards, that has no room for more jobs of a
// user, 0 or 1, and more GPU; false if all have. A bound on GPU keeps no job that needs none.
func (q *Queue) Crowded(user string, jobs int, gpu Milli) (Crowd, bool) {
	for up := q; up != nil; up = up.parent {
		if !up.bounds() {
			continue
		}
		of := Running{}
		if u := up.byUser[user]; u != nil {
			of = *u
		}
		for _, c := range [2]struct {
			runs, most Running
			perUser    bool
		}{{up.running, up.MaxRunning, false}, {of, up.MaxRunningPerUser, true}} {
			switch x := (Crowd{Queue: up.Name, PerUser: c.perUser, User: user}); {
			case c.most.Jobs > 0 && jobs > 0 && c.runs.Jobs+jobs > c.most.Jobs:
				x.Jobs, x.MostJobs = c.runs.Jobs, c.most.Jobs
				return x, true
			case c.most.GPU > 0 && gpu > 0 && c.runs.GPU+gpu > c.most.GPU:
				x.GPU, x.Needs, x.Most = c.runs.GPU, gpu, c.most.GPU
				return x, true
			}
		}
	}
	return Crowd{}, false
}

// RunRoom returns how much more GPU the bounds let a user's jobs in the queue run: [Unlimited] without
// one. It may be negative after a bound was lowered.
func (q *Queue) RunRoom(user string) Milli {
	room := Unlimited
	for up := q; up != nil; up = up.parent {
		if most := up.MaxRunning.GPU; most > 0 {
			room = min(room, most-up.running.GPU)
		}
		if most := up.MaxRunningPerUser.GPU; most > 0 {
			of := Milli(0)
			if u := up.byUser[user]; u != nil {
				of = u.GPU
			}
			room = min(room, most-of)
		}
	}
	return room
}

// MostRunning returns how much GPU the bounds let a user's jobs in the queue run if nothing else ran: [Unlimited] without one.
func (q *Queue) MostRunning() Milli {
	most := Unlimited
	for up := q; up != nil; up = up.parent {
		for _, r := range [2]Running{up.MaxRunning, up.MaxRunningPerUser} {
			if r.GPU > 0 {
				most = min(most, r.GPU)
			}
		}
	}
	return most
}

// String says what the bound is and why it has no room.
func (c Crowd) String() string {
	who := "queue " + c.Queue
	if c.PerUser {
		user := c.User
		if user == "" {
			user = "without a name"
		}
		who = fmt.Sprintf("user %s in queue %s", user, c.Queue)
	}
	if c.MostJobs > 0 {
		return fmt.Sprintf("%s: %d of at most %d jobs run", who, c.Jobs, c.MostJobs)
	}
	return fmt.Sprintf("%s: %s of at most %s GPUs are in use, and it needs %s", who, c.GPU.GPUs(), c.Most.GPUs(), c.Needs.GPUs())
}
