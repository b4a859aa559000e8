package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/muster-sched/muster/core/quota"
)

// This file lets the users of a queue take turns where the queue is fair between them: see [quota.QueueSpec].FairUsers.
//
// The order says when it is the turn of such a queue. The first job of the user who holds least takes it. Jobs with GPUs take
// the turns of jobs with GPUs, and count by the GPUs that these hold; the others theirs, and by CPU. The order by which
// evictions are decided stays that of the jobs, so those end as docs/adr/0003 says.

// turns is whose turn it is in the queues that are fair between users.
//
// Invariant: a class of such a queue is in its line as long as it is in waiting.active or, under StrictFIFO, waiting.ready, or
// in waiting.borrowers. user.held adds up what the user's placed pods take there.
type turns struct {
	*Engine
	lines map[lineID]*line
}

// lineID says which jobs take turns with each other.
type lineID struct {
	queue *quota.Queue
	gpus  bool // jobs with GPUs
}

// line is the users of a queue, and the classes of their jobs that are to be tried.
type line struct {
	users map[string]*user
	next  heap[*class] // the class whose turn it is on top
}

// user is what a user holds in a queue.
type user struct {
	name string
	// held is milli-GPU times the rates of their models in thousandths, or milli-cores.
	held    int64
	classes []*class // in the line
}

// lineOf returns where the job takes its turns, nil if its queue is not fair between users.
func (ts *turns) lineOf(j *job) *line {
	if !j.queue.FairUsers {
		return nil
	}
	id := lineID{j.queue, j.GPUs() > 0}
	l := ts.lines[id]
	if l == nil {
		l = &line{users: map[string]*user{}}
		l.next = heap[*class]{less: ts.turnBefore, moved: func(c *class, at int) { c.at[3] = at }}
		if ts.lines == nil {
			ts.lines = map[lineID]*line{}
		}
		ts.lines[id] = l
	}
	return l
}

// user returns what a user holds, to change it.
func (l *line) user(name string) *user {
	u := l.users[name]
	if u == nil {
		u = &user{name: name}
		l.users[name] = u
	}
	return u
}

// turnBefore reports whether a class takes its turn before another one of its line: those that were not put off first, then
// those of tighter bounds, of the higher rank, of the user who holds less, in the order.
func (ts *turns) turnBefore(a, b *class) bool {
	if (a.at[2] < 0) != (b.at[2] < 0) {
		return a.at[2] < 0
	}
	if a.at[2] >= 0 && a.bound != b.bound {
		return a.bound.before(b.bound)
	}
	if r := cmp.Or(a.first.compare(b.first.precedence), cmp.Compare(a.held, b.held)); r != 0 {
		return r < 0
	}
	return ts.waiting.active.less(a, b)
}

// join puts a class that is to be tried in its line, or in its place there.
func (ts *turns) join(c *class) {
	if c.line != nil {
		c.line.next.fix(c.at[3])
		return
	}
	if c.line = ts.lineOf(c.head()); c.line != nil {
		u := c.line.user(c.head().User)
		u.classes = append(u.classes, c)
		c.user, c.held = u, u.held
		c.line.next.push(c)
	}
}

// leave takes a class out of its line, if it is in one.
func (ts *turns) leave(c *class) {
	if c.line == nil {
		return
	}
	c.line.next.remove(c, c.at[3])
	i := slices.Index(c.user.classes, c)
	c.user.classes = slices.Delete(c.user.classes, i, i+1)
	c.line.drop(c.user)
	c.line, c.user = nil, nil
}

// drop forgets a user who neither holds anything nor has a class in the line.
func (l *line) drop(u *user) {
	if u.held == 0 && len(u.classes) == 0 {
		delete(l.users, u.name)
	}
}

// next returns the class whose turn it is when that of c has come: c is the first of waiting.active, waiting.ready or
// waiting.borrowers.
func (ts *turns) next(c *class) *class {
	if c.line == nil {
		return c
	}
	return c.line.next.items[0]
}

// place counts what a pod has, or will have when plans are carried out, as held by its user (by 1), or no longer (by -1).
func (ts *turns) place(j *job, p *pod, by int64) {
	l := ts.lineOf(j)
	if l == nil {
		return
	}
	t := &j.Tasks[p.task]
	amount := t.CPUMilli
	if j.GPUs() > 0 {
		amount = 0
		if t.GPU > 0 {
			amount = int64(t.GPU) * ts.policy.Fairness.Rate(ts.state.Pool(p.alloc.Node).Model)
		}
	}
	u := l.user(j.User)
	u.held += by * amount
	// One after the other, so that all others are in order when one takes its new place.
	for _, c := range u.classes {
		c.held = u.held
		l.next.fix(c.at[3])
	}
	l.drop(u)
}

// placeAll is place for all pods of a job that have a place.
func (ts *turns) placeAll(j *job, by int64) {
	if !j.queue.FairUsers {
		return
	}
	for i := range j.pods {
		if p := &j.pods[i]; p.placed() {
			ts.place(j, p, by)
		}
	}
}

// recount counts all again after a queue became fair between users, or is so no longer.
func (ts *turns) recount() {
	for _, l := range ts.lines {
		for _, c := range l.next.items {
			c.line, c.user, c.at[3] = nil, nil, -1
		}
	}
	ts.lines = nil
	for _, j := range ts.jobs.slots {
		if j != nil {
			ts.placeAll(j, 1)
		}
	}
	ts.waiting.reclassify(ts.jobs.slots, ts.now)
}

// reorder puts the classes of all lines in order again after that of the jobs has changed.
func (ts *turns) reorder() {
	for _, l := range ts.lines {
		l.next.order()
	}
}

// held returns what the user of a job holds, in the units of user.held.
func (ts *turns) held(j *job) int64 {
	if u := ts.lineOf(j).users[j.User]; u != nil {
		return u.held
	}
	return 0
}

// UserHolds is what a user holds in a queue that is fair between users: GPUs, by [Fairness].Rates, of jobs with GPUs, and milli-cores of those
// without any.
type UserHolds struct {
	User     string
	GPU      Milli
	CPUMilli int64
}

// UsersHold returns what the users of each queue hold that is fair between users, those who hold most GPUs first, then cores, then by name. It
// has all who hold something or whose jobs are to be tried.
func (e *Engine) UsersHold() map[string][]UserHolds {
	at := map[string]map[string]UserHolds{}
	for id, l := range e.turns.lines {
		all := at[id.queue.Name]
		if all == nil {
			all = map[string]UserHolds{}
			at[id.queue.Name] = all
		}
		for name, u := range l.users {
			is := all[name]
			if is.User = name; id.gpus {
				is.GPU = Milli(u.held / 1000)
			} else {
				is.CPUMilli = u.held
			}
			all[name] = is
		}
	}
	out := map[string][]UserHolds{}
	for queue, all := range at {
		out[queue] = slices.SortedFunc(maps.Values(all), func(a, b UserHolds) int {
			return cmp.Or(cmp.Compare(b.GPU, a.GPU), cmp.Compare(b.CPUMilli, a.CPUMilli), cmp.Compare(a.User, b.User))
		})
	}
	return out
}

// wants returns what the pods of a job that wait would add to that.
func (ts *turns) wants(j *job) int64 {
	sum := int64(0)
	for i, n := range j.waitingByTask() {
		t := &j.Tasks[i]
		switch {
		case j.GPUs() == 0:
			sum += int64(n) * t.CPUMilli
		case t.GPU > 0:
			sum += int64(n) * int64(t.GPU) * ts.policy.Fairness.RequestRate(t.Models)
		}
	}
	return sum
}

// text says which job comes before a waiting one because its user holds less; "" if none does.
func (ts *turns) text(j *job) string {
	if !j.queue.FairUsers || !j.takesTurns() {
		return ""
	}
	first := j
	for _, o := range ts.jobs.byName {
		if !o.takesTurns() || ts.lineOf(o) != ts.lineOf(j) || o.key.precedence != j.key.precedence {
			continue
		}
		if x, y := ts.held(o), ts.held(first); x < y || x == y && ts.comesBefore(o, first) {
			first = o
		}
	}
	if ts.held(first) == ts.held(j) {
		return ""
	}
	return fmt.Sprintf("%s holds %s in queue %s; before this job comes %s of %s, who holds %s", userText(j), ts.heldText(j), j.queue.Name, first.Name, userText(first), ts.heldText(first))
}

func userText(j *job) string {
	if j.User == "" {
		return "user without a name"
	}
	return "user " + j.User
}

// heldText writes what the user of a job holds.
func (ts *turns) heldText(j *job) string {
	held := ts.held(j)
	if j.GPUs() == 0 {
		return Milli(held).GPUs() + " cores"
	}
	text := Milli(held/1000).GPUs() + " GPUs"
	if len(ts.policy.Fairness.Rates) > 0 {
		text += " by fairness.rates"
	}
	return text
}

// queued is the jobs of a user that wait for their turns.
type queued struct {
	held int64
	jobs []*job
}

// takesTurns reports whether a job that waits takes a turn of its line, or will when something is freed: not while it is paused or
// held, and not if the nodes, even empty, do not hold it.
func (j *job) takesTurns() bool { return j.class != nil && j.class.state != classRejected }

// arrange puts jobs, which are in the order, into that in which they would be tried if each started in its turn. Those that take
// no turn stay where the order has them, and nothing is counted as held for them: another user would come first for what they do not
// get.
func (ts *turns) arrange(js []*job) {
	if !slices.ContainsFunc(js, func(j *job) bool { return j.queue.FairUsers }) {
		return
	}
	// 1. In each line, the user whose turn it is.
	at := make(map[*job]int, len(js))
	lines := map[*line]*heap[*queued]{}
	type userOf struct {
		line *line
		name string
	}
	users := map[userOf]*queued{}
	for i, j := range js {
		at[j] = i
		l := ts.lineOf(j)
		if l == nil || !j.takesTurns() {
			continue
		}
		if lines[l] == nil {
			lines[l] = &heap[*queued]{moved: func(*queued, int) {}, less: func(a, b *queued) bool {
				x, y := a.jobs[0], b.jobs[0]
				return cmp.Or(x.key.compare(y.key.precedence), cmp.Compare(a.held, b.held), cmp.Compare(at[x], at[y])) < 0
			}}
		}
		u := users[userOf{l, j.User}]
		if u == nil {
			u = &queued{held: ts.held(j)}
			users[userOf{l, j.User}] = u
			lines[l].items = append(lines[l].items, u)
		}
		u.jobs = append(u.jobs, j)
	}
	for _, h := range lines {
		h.order()
	}

	// 2. The first job that is left says whose turn it is: its own, or that of its line.
	out := make([]*job, 0, len(js))
	started := make(map[*job]bool, len(js))
	for _, j := range js {
		h := lines[ts.lineOf(j)]
		if !j.takesTurns() {
			h = nil
		}
		for h != nil && !started[j] {
			u := h.items[0]
			next := u.jobs[0]
			out, started[next] = append(out, next), true
			u.held += ts.wants(next)
			if u.jobs = u.jobs[1:]; len(u.jobs) == 0 {
				h.remove(u, 0)
			} else {
				h.fix(0)
			}
		}
		if h == nil {
			out = append(out, j)
		}
	}
	copy(js, out)
}
