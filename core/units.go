package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// units describes waiting jobs to the placer: what of them starts together, and what
// makes two of them alike.
type units struct {
	*Engine
	// unit is the last one described, tasks and pods are what it refers to.
	unit place.Unit
	// trimmed says that the unit lacks tasks for which bounds on what runs have no room: see trim.
	trimmed bool
	tasks   []place.Task
	pods    []int32
}

// prepare describes a waiting job to the placer. The unit is valid until the
// next call.
func (us *units) prepare(j *job) candidate { return us.prepareTurn(j, anyTurn) }

// prepareTurn is prepare for a part of the job.
func (us *units) prepareTurn(j *job, at turn) candidate {
	us.working = j.Name
	u := &us.unit
	// 1. The job as a whole: where its pods may be, and next to which others.
	*u = place.Unit{
		Job: j.slot, Strategy: us.policy.strategy(j), Whole: j.whole(),
		Inference: j.Kind == Inference, Exclusive: us.policy.Zone.Exclusive,
		Required: -1, Preferred: -1, Spread: len(j.pods) > 1, LP: j.Class == LP, Lends: j.lends(),
	}
	us.preferLent(j)
	terms := us.affinities.constrain(j)
	if terms && len(us.nominations.all)+len(us.nominations.going)+len(us.moves.all) > 0 {
		u.Absent = us.nominations.absent(j)
	}
	u.Left = us.nominations.leftBy(j)
	u.Required = levelOf(us.state, j.Topology.Required)
	u.Home, u.Joins = us.home(j)
	if j.Gang {
		u.Preferred = levelOf(us.state, j.Topology.Preferred)
		u.OneModel = true
		u.Closeness = j.Topology.Closeness
		u.Combinations = j.Combinations
	}
	if j.queue.Limited() {
		u.Room, u.Limits = j.room, j.queue.Limits()
	}

	// 2. The pods to be placed: of a gang that has not begun, those that it lacks of the minimum
	// of each task; of a stale one, those of the tasks that lack some; of another job, all that wait.
	lacking := us.staleGangs.lacking(j)
	us.tasks = us.tasks[:0]
	us.pods = us.pods[:0]
	for t := range j.Tasks {
		us.tasks = append(us.tasks, place.Task{Shape: us.shapeOf(j, t, at.model), Prefers: us.prefers(&j.Tasks[t])})
	}
	for t := range j.Tasks {
		task := &j.Tasks[t]
		from, most := len(us.pods), task.Pods
		lo, hi := j.span(t)
		if u.Whole {
			most = task.Minimum()
			if j.count[podDone]+j.count[podRunning] > 0 {
				most -= j.membersByTask()[t] // that are done, or run already, need no place
			}
		}
		if at.task >= 0 && at.task != t || lacking != nil && !lacking[t] {
			most = 0
		}
		for i := lo; i < hi && len(us.pods)-from < most; i++ {
			if p := &j.pods[i]; p.state == podWaiting && int(p.task) == t {
				us.pods = append(us.pods, int32(i))
			}
		}
		us.tasks[t].Pods = us.pods[from:len(us.pods):len(us.pods)]
	}
	us.trim(j)
	u.Tasks = us.tasks
	if terms {
		us.affinities.addTerms(j, u)
	}
	return candidate{j, u}
}

// prefers compiles the preferences of a task.
func (us *units) prefers(t *Task) []place.Preference {
	if t.Prefers == nil {
		return nil
	}
	out := make([]place.Preference, len(t.Prefers))
	for i, o := range t.Prefers {
		out[i] = place.Preference{Preference: o}
		out[i].Level, _ = us.state.TermLevel(o.Level)
	}
	return out
}

// preferLent says which lent nodes the unit prefers. On those an HP job evicts no pod for its GPUs, but
// the owner does at the end of its window: they suit a job that ends by then, or one that saves its
// progress, which loses little. Who loses all its work starts there last.
func (us *units) preferLent(j *job) {
	if j.Estimate > 0 {
		us.unit.Ends = cluster.Plus(us.now, j.Estimate)
	}
	if most := j.mostUnsaved(); most > 0 {
		us.unit.Saves = cluster.Plus(us.now, most)
	}
}

// shapeOf returns the shape of a task's waiting pods: on model m alone if they accept it, on
// all their models if m is "".
func (us *units) shapeOf(j *job, t int, m string) *place.Shape {
	sh := j.class.shapes[t]
	if m != "" && sh.GPU() > 0 && slices.Contains(sh.Models(), m) {
		r := *us.request(j, t)
		r.Models, r.Speeds = []string{m}, nil
		return us.shape(j, &r)
	}
	return sh
}

// shape returns the shape of pods of a job that make a request.
func (us *units) shape(j *job, r *Request) *place.Shape {
	switch {
	case j.GPUs() == 0:
		return us.placer.CPUOnly(r)
	case us.standbys.ever && j.borrowsDevices():
		return us.placer.ShapeOnLent(r)
	}
	return us.placer.Shape(r)
}

// home returns the domain of the required level in which the job has pods, and false if it
// has none or none is required. If nodes have moved, its pods may be in several: the first
// known one counts. Pods that leave count, too, and those for which places are kept, since
// other pods of a job that is no gang may start meanwhile. A gang waits for both.
func (us *units) home(j *job) (int32, bool) {
	if j.Topology.Required == "" || !j.placed() && j.count[podLeaving] == 0 {
		return 0, false
	}
	has := false
	for i := range j.pods {
		p := &j.pods[i]
		if p.state != podRunning && (j.Gang || p.state != podLeaving && !p.kept()) {
			continue
		}
		if d := us.state.Domain(p.alloc.Node, levelOf(us.state, j.Topology.Required)); d >= 0 {
			return d, true
		}
		has = true
	}
	return -1, has
}

// base returns the model of the gang's running pods that name no model and need GPUs: the
// other such pods must join them. "" if none runs. It costs O(pods) at worst.
func (us *units) base(j *job) string {
	if !j.Gang || j.count[podRunning] == 0 {
		return ""
	}
	for i := range j.pods {
		p := &j.pods[i]
		if t := &j.Tasks[p.task]; p.state == podRunning && t.GPU > 0 && len(t.Models) == 0 {
			return us.state.Pool(p.alloc.Node).Model
		}
	}
	return ""
}

// request returns what a waiting pod of a task requests now.
func (us *units) request(j *job, t int) *Request {
	r := &j.Tasks[t].Request
	base := ""
	switch {
	case len(j.Combinations) > 0:
		base = us.combinedOn(j, t)
	case r.GPU > 0 && len(r.Models) == 0:
		base = us.base(j)
	}
	if base == "" {
		return r
	}
	joins := *r
	joins.Models = []string{base}
	return &joins
}

// combinedOn returns the model of the running pods of a task with GPUs, "" if none runs. Others of a job that lists combinations
// join them: it has started on one of these. It costs O(pods) at worst.
func (us *units) combinedOn(j *job, t int) string {
	if j.count[podRunning] == 0 || j.Tasks[t].GPU == 0 {
		return ""
	}
	lo, hi := j.span(t)
	for i := lo; i < hi; i++ {
		if p := &j.pods[i]; int(p.task) == t && p.state == podRunning {
			return us.state.Pool(p.alloc.Node).Model
		}
	}
	return ""
}

// compile makes sure that the class's shapes match the nodes as they are: which pools they
// may use changes when nodes come or change.
func (us *units) compile(c *class) {
	us.working = c.head().Name
	if c.shapes != nil && c.epoch == us.state.Epoch() {
		return
	}
	j := c.head()
	c.shapes, c.asked, c.epoch, c.pools, c.models = c.shapes[:0], nil, us.state.Epoch(), 0, c.models[:0]
	for t := range j.Tasks {
		c.shapes = append(c.shapes, us.shape(j, us.request(j, t)))
	}
	for i, m := range us.runs.poolModels() {
		for _, sh := range c.shapes {
			if sh.Accepts(us.state.Pools()[i]) {
				c.pools |= 1 << (uint(i) % 64)
				if !slices.Contains(c.models, m) {
					c.models = append(c.models, m)
				}
			}
		}
	}
	us.waiting.onModels(c)
}

// dropAmounts drops the lists of amounts of jobs that have ended, if there are many: a user may write another resource, or another
// amount of one, on each pod.
func (e *Engine) dropAmounts() {
	if e.state.ManyAmounts() {
		e.state.KeepAmounts(e.jobs.requests)
		e.waiting.forgetShapes(false)
	}
}

// classOf returns what decides whether, and where, the job's waiting pods start. Whatever
// decides that must be part of it: else a job would wait because another one does not fit.
func (us *units) classOf(j *job) classID {
	id := classID{strategy: us.policy.strategy(j), inference: j.Kind == Inference, whole: j.whole(), never: j.NeverPreempts, gpu: -1, borrows: us.standbys.ever && j.borrowsDevices()}
	if j.queue.Limited() {
		id.queue, id.pinned = j.queue, j.pinned
	}
	if us.policy.Preempt.Priority == InQueue || us.policy.byQueue() {
		id.queue = j.queue
	}
	// 1. Most jobs have one task and nothing special: their class is compared field by field.
	if bounded, perUser := j.queue.Bounded(); bounded {
		id.queue, id.runs = j.queue, j.counted > 0
		if perUser {
			id.user = j.User
		}
	}
	if j.queue.FairUsers {
		id.queue, id.user = j.queue, j.User
	}
	if us.packs.on(j) {
		if id.sharing = j.Sharing; !us.policy.Packing.LeastCost {
			id.sharing.Use = 0
		}
		if o := us.policy.Queueing.Order; us.policy.Packing.Longest > 0 && o != ByEstimate && o != ByEstimatedGPUTime {
			id.estimate = j.Estimate
		}
	}
	left := us.nominations.leftBy(j)
	if len(j.Tasks) == 1 {
		t := &j.Tasks[0]
		models := us.request(j, 0).Accepted()
		id.gpu, id.cpu, id.mem, id.picker = t.GPU, t.CPUMilli, t.MemMiB, t.Picker
		if id.whole {
			id.pods = t.Minimum() - int(j.count[podRunning]+j.count[podDone])
		}
		if len(models) == 1 {
			id.models = models[0]
		} else if len(models) > 1 {
			id.models = strings.Join(models, "|")
		}
		constrained := t.Others != nil || t.From != nil || t.Selector != nil || t.AnyOf != nil || t.Tolerations != nil || t.Prefers != nil || !plain(t)
		if !constrained && j.Topology.none() && left == nil && j.suspended == nil {
			return id
		}
	}

	// 2. The others are spelled out, with the domain and the model that they must join. Two gangs
	// with pods in l0 wait to join them there. When the pods of one gang have ended, that gang
	// may start anywhere, and the other one still waits.
	var b strings.Builder
	fmt.Fprintf(&b, "%+v", j.Topology)
	if j.suspended != nil {
		fmt.Fprintf(&b, " suspended %d", j.slot)
	}
	if home, ok := us.home(j); ok {
		fmt.Fprintf(&b, " in %d", home)
	}
	if base := us.base(j); base != "" {
		fmt.Fprintf(&b, " on %q", base)
	}
	if left != nil {
		fmt.Fprintf(&b, " not on %d", left)
	}
	us.spellCombinations(&b, j)
	waiting, members, lacking := j.waitingByTask(), j.membersByTask(), us.staleGangs.lacking(j)
	for t := range j.Tasks {
		n := 0
		if waiting[t] > 0 && (lacking == nil || lacking[t]) {
			n = 1
		}
		if id.whole {
			n = j.Tasks[t].Minimum() - members[t]
		}
		fmt.Fprintf(&b, " %d %q %+v %+v", n, j.Tasks[t].Labels, j.Tasks[t].Affinity, j.Tasks[t].Request)
		if j.Tasks[t].Prefers != nil {
			fmt.Fprintf(&b, " prefers %v", j.Tasks[t].Prefers)
		}
	}
	id.more = b.String()
	return id
}

// spellCombinations spells out the combinations that a job lists, and which of their models its tasks must join.
func (us *units) spellCombinations(b *strings.Builder, j *job) {
	if len(j.Combinations) == 0 {
		return
	}
	fmt.Fprintf(b, " combined as %v", j.Combinations)
	for t := range j.Tasks {
		fmt.Fprintf(b, " on %q", us.combinedOn(j, t))
	}
}
