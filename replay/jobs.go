package replay

import (
	"fmt"
	"maps"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/eventlog"
	"github.com/muster-sched/muster/workload"
)

// A job of the log has one name from its submission until its end. If the log withdraws a
// job and submits one with the same name again (Kubernetes creates new pods for evicted
// ones), it is the same job if its pods were evicted, or if it has the same submission
// time. Its pods have lives, which continue in the pods that replace them.

// job is a job of the log.
type job struct {
	name  string // a new one, if others had it before
	spec  core.Job
	came  core.Time
	roles []core.Task
	lives []*life
	slots []*life   // by the pod's number; nil as long as that is not settled
	told  core.Time // when pods came last
	gone  core.Time
	over  bool // it was taken back, and did not come again
	// served is what it had received before the recording began, and deserved.
	served core.Served

	// For a gang: the number of its running pods, and its work.
	running int
	work    work
}

// life is a pod and the pods that replaced it.
type life struct {
	role  int
	came  core.Time
	found *core.PodRunning // where it ran when the job came
	work  work
	state eventlog.State
	// at is where it runs; lost is set if it was evicted and has no place.
	at   place
	lost bool
	gone core.Time // when it ended or was withdrawn
}

type place struct {
	node string
	gpus uint64
}

// work is the run time that counts.
type work struct {
	ran   bool
	first core.Time // when it ran first
	began core.Time // negative while it does not run
	done  core.Time
	// cut is the work since the last checkpoint at the last interruption: it counts if
	// there was no later run.
	cut core.Time
}

func (w *work) begin(now core.Time) {
	if !w.ran {
		w.ran, w.first = true, now
	}
	w.began = now
}

// end ends a time of running.
func (w *work) end(now, checkpoint core.Time, interrupted bool) {
	if w.began < 0 {
		return
	}
	ran := now - w.began
	w.began, w.cut = -1, 0
	if interrupted {
		w.cut = ran
		if checkpoint > 0 {
			w.cut = ran % checkpoint
		}
	}
	w.done += ran - w.cut
}

func (f *fold) newJob(spec core.Job) *job {
	j := &job{name: spec.Name, spec: spec, came: f.now, work: work{began: -1}}
	if n := f.names[spec.Name]; n > 0 {
		j.name = fmt.Sprintf("%s~%d", spec.Name, n+1)
	}
	f.names[spec.Name]++
	f.all = append(f.all, j)
	return j
}

// submitted processes a job that was submitted, or submitted again.
func (f *fold) submitted(told *eventlog.Job) {
	name := told.Name
	j := f.before.jobs[name]
	delete(f.before.jobs, name)
	if j == nil {
		if p := f.parked[name]; p != nil && (p.spec.Submitted == told.Submitted || slices.ContainsFunc(p.lives, func(l *life) bool { return l.lost })) {
			j = p
		}
	}
	delete(f.parked, name)
	if j == nil {
		j = f.newJob(told.Job)
		delete(f.taken, name)
	}
	j.over, j.told = false, f.now
	j.slots = make([]*life, len(told.Pods))
	f.jobs[name] = j
	f.unsettle(j)
	f.roles(j, told)
}

// roles updates the roles of a job; lives refer to them by index.
func (f *fold) roles(j *job, told *eventlog.Job) {
	for _, r := range told.Roles {
		at := f.role(j, r.Name)
		if at < 0 {
			if r.MinPods == 0 {
				r.MinPods = r.Pods // those that come later are not among all
			}
			j.roles = append(j.roles, r)
			continue
		}
		j.roles[at].Labels, j.roles[at].Affinity = r.Labels, r.Affinity
	}
}

func (f *fold) role(j *job, name string) int {
	return slices.IndexFunc(j.roles, func(t core.Task) bool { return t.Name == name })
}

func (f *fold) unsettle(j *job) {
	if !slices.Contains(f.unsettled, j) {
		f.unsettled = append(f.unsettled, j)
	}
}

// added processes pods that were added to a live job.
func (f *fold) added(ev *core.PodsAdded) {
	j := f.jobs[ev.Job]
	f.roles(j, f.tables.Jobs[ev.Job])
	for _, i := range ev.Pods {
		switch {
		case i == len(j.slots):
			j.slots = append(j.slots, nil)
		case !j.spec.Gang:
			j.slots[i] = nil
		case j.slots[i] != nil: // a member in place of another
			l := j.slots[i]
			l.state, l.lost = eventlog.Waiting, false
		}
	}
	j.told = f.now
	f.unsettle(j)
}

// settle gives lives to the added pods: first those of evicted pods, then new ones.
func (f *fold) settle() {
	for _, j := range f.unsettled {
		told := f.tables.Jobs[j.spec.Name]
		if told == nil {
			continue
		}
		for i := range j.slots {
			if j.slots[i] == nil {
				f.fill(j, told, i, func(l *life) bool { return l.work.began < 0 })
			}
		}
	}
	f.unsettled = f.unsettled[:0]
}

// fill gives a pod a life that fits and continues in it, or else a new one.
func (f *fold) fill(j *job, told *eventlog.Job, i int, fits func(*life) bool) {
	role := f.role(j, told.Roles[told.Pods[i].Role].Name)
	again := f.taken[told.Name] != nil
	for _, l := range j.lives {
		if l.lost && fits(l) && (l.role == role || again && l.gone == f.now) {
			j.goOn(l, i, role)
			return
		}
	}
	l := &life{role: role, came: j.told, work: work{began: -1}}
	j.lives = append(j.lives, l)
	j.slots[i] = l
}

// goOn continues a life in a pod.
func (j *job) goOn(l *life, pod, role int) {
	l.lost, l.role, l.state = false, role, eventlog.Waiting
	j.slots[pod] = l
}

// whereabouts records where the pods of a job are when the log withdraws it.
func (f *fold) whereabouts(name string) {
	j := f.jobs[name]
	if j == nil {
		return
	}
	at := map[place][]*life{}
	for i, p := range f.tables.Jobs[name].Pods {
		if p.Node != "" && j.slots[i] != nil {
			p := place{p.Node, p.GPUs}
			at[p] = append(at[p], j.slots[i])
		}
	}
	f.taken[name] = at
}

// moved processes a change of a pod's state or place.
func (f *fold) moved(_ core.Time, told *eventlog.Job, i int, to eventlog.State) {
	j := f.jobs[told.Name]
	if j == nil {
		return
	}
	var found *core.PodRunning
	if ev, ok := f.entry.Event.(core.PodRunning); ok && to == eventlog.Running {
		found = &ev
	}
	if j.slots[i] == nil {
		f.fillRunning(j, told, i, found)
	}
	l := j.slots[i]
	from := l.state
	l.state = to
	switch {
	case to == eventlog.Running:
		f.ran(j, told, l, found)
	case from == eventlog.Running:
		f.stopped(j, l, f.now, to != eventlog.Ended)
	}
	switch to {
	case eventlog.Ended, eventlog.Withdrawn:
		l.gone = f.now
		l.lost = from == eventlog.Leaving || to == eventlog.Withdrawn && l.work.ran
	}
}

// fillRunning gives a pod that is found running the life that ran there under the
// previous engine.
func (f *fold) fillRunning(j *job, told *eventlog.Job, i int, found *core.PodRunning) {
	at := place{}
	if found != nil {
		at = placeOf(found)
	}
	if were := f.taken[told.Name][at]; len(were) > 0 && found != nil {
		f.taken[told.Name][at] = were[1:]
		j.goOn(were[0], i, f.role(j, told.Roles[told.Pods[i].Role].Name))
		return
	}
	if found == nil || !slices.ContainsFunc(j.lives, func(l *life) bool { return l.lost && l.at == at }) {
		f.fill(j, told, i, func(l *life) bool { return l.at == place{} })
		return
	}
	f.fill(j, told, i, func(l *life) bool { return l.at == at })
}

func placeOf(ev *core.PodRunning) place {
	p := place{node: ev.Node}
	for _, g := range ev.GPUs {
		p.gpus |= 1 << g
	}
	return p
}

// ran records that a pod runs from now on.
func (f *fold) ran(j *job, told *eventlog.Job, l *life, found *core.PodRunning) {
	if l.work.began >= 0 {
		return // it was running when the engine was another, and went on
	}
	if found != nil && !l.work.ran && l.came == f.now && j.came == f.now {
		ev := *found
		ev.Node = f.machines.now[ev.Node]
		l.found = &ev
	}
	l.work.begin(f.now)
	if j.running++; j.running == 1 && j.work.began < 0 {
		j.work.begin(f.now)
	}
}

// stopped records that a pod no longer runs.
func (f *fold) stopped(j *job, l *life, now core.Time, interrupted bool) {
	l.work.end(now, j.spec.Checkpoint, interrupted)
	l.at = place{}
	if j.running--; j.running == 0 {
		j.work.end(now, j.spec.Checkpoint, interrupted)
	}
}

// park records that the log withdraws a job. Lives that have not ended may continue if it
// is submitted again.
func (f *fold) park(j *job) {
	if j == nil {
		return
	}
	delete(f.jobs, j.spec.Name)
	f.parked[j.spec.Name] = j
	j.over, j.gone = true, f.now
	for _, l := range j.lives {
		if l.state == eventlog.Waiting && !l.lost {
			l.lost, l.gone = true, f.now
		}
	}
}

// start records that a new engine begins: the next entries describe the present state.
func (f *fold) start() {
	f.settle()
	f.before = standing{at: f.seen, jobs: f.jobs, nodes: map[string]core.Node{}, queues: map[string]core.Queue{}, names: maps.Clone(f.machines.now)}
	for name, n := range f.tables.Nodes {
		f.before.nodes[name] = n.Node
	}
	for name, q := range f.tables.Queues {
		f.before.queues[name] = q
	}
	for name, j := range f.jobs {
		for i, l := range j.slots {
			if l.state == eventlog.Running || l.state == eventlog.Leaving || l.state == eventlog.Waiting {
				p := &f.tables.Jobs[name].Pods[i]
				l.lost, l.gone, l.at = true, f.seen, place{p.Node, p.GPUs}
			}
		}
	}
	f.jobs = map[string]*job{}
	f.starting, f.restored = true, f.entry.Begin.Snapshot > 0
}

// started records that the engine has the present state: everything that was not in it
// has ended.
func (f *fold) started() {
	f.settle()
	f.starting = false
	f.compare()
	for _, ev := range f.served {
		f.recording.Changes = append(f.recording.Changes, workload.Change{At: f.now, Event: ev})
	}
	f.first, f.served = false, nil
	stop := func(j *job) {
		for _, l := range j.lives {
			if l.lost && l.work.began >= 0 {
				f.stopped(j, l, f.before.at, false)
				l.lost, l.state = false, eventlog.Ended
			}
		}
	}
	for _, j := range f.jobs {
		stop(j)
	}
	for name, j := range f.before.jobs {
		stop(j)
		j.over, j.gone = true, f.before.at
		f.parked[name] = j
	}
	f.before = standing{}
}

// list returns the jobs for the simulator.
func (f *fold) list() []workload.Job {
	var all []workload.Job
	for _, j := range f.all {
		all = append(all, f.jobsOf(j)...)
	}
	slices.SortStableFunc(all, func(a, b workload.Job) int { return int(min(max(a.Submitted-b.Submitted, -1), 1)) })
	return all
}

// together is the time after the first pod within which pods that arrive belong to the
// same job.
const together = 10 * core.Second

// jobsOf returns a job, and the jobs into which its later pods are made.
func (f *fold) jobsOf(j *job) []workload.Job {
	var all []workload.Job
	rest := j.lives
	if j.spec.Gang {
		members := f.members(j)
		if len(members) > 0 {
			gone := j.gone
			for _, l := range j.lives {
				gone = max(gone, l.gone)
			}
			run := runOf(&j.work, j.over || j.ended(), gone)
			all = append(all, f.make(j, j.name, true, members, []workload.Run{run}))
		}
		rest = slices.DeleteFunc(slices.Clone(rest), func(l *life) bool { return slices.Contains(members, l) })
	}
	for len(rest) > 0 {
		first := rest[0]
		group := slices.DeleteFunc(slices.Clone(rest), func(l *life) bool { return !l.with(first) })
		rest = slices.DeleteFunc(slices.Clone(rest), func(l *life) bool { return l.with(first) })
		name := j.name
		if len(all) > 0 {
			name = fmt.Sprintf("%s+%d", j.name, len(all))
		}
		slices.SortStableFunc(group, func(a, b *life) int { return a.role - b.role })
		runs := make([]workload.Run, len(group))
		for i, l := range group {
			over := l.state == eventlog.Ended || l.state == eventlog.Withdrawn || l.lost
			runs[i] = runOf(&l.work, over, l.gone)
		}
		all = append(all, f.make(j, name, false, group, runs))
	}
	return all
}

// with reports whether two lives are of one job, the other being the first. Those
// that were withdrawn before they ran are jobs of their own: a job is whole when
// all its pods ran.
func (l *life) with(first *life) bool {
	return l.came-first.came <= together && l.unserved() == first.unserved()
}

// unserved reports whether a life ended before it ever ran.
func (l *life) unserved() bool {
	return !l.work.ran && (l.lost || l.state == eventlog.Withdrawn)
}

// ended reports whether all pods of a job have.
func (j *job) ended() bool {
	return !slices.ContainsFunc(j.lives, func(l *life) bool {
		return l.state != eventlog.Ended && l.state != eventlog.Withdrawn && !l.lost
	})
}

// members are the pods that a gang starts with, by role: those that came before
// it started, or soon after, unless they were withdrawn while it ran.
func (f *fold) members(j *job) []*life {
	var all []*life
	for _, l := range j.lives {
		late := j.work.ran && l.came > max(j.came+together, j.work.first)
		if j.roles[l.role].MinPods != core.Elastic && !late && !(j.work.ran && l.unserved()) {
			all = append(all, l)
		}
	}
	slices.SortStableFunc(all, func(a, b *life) int { return a.role - b.role })
	return all
}

// runOf returns the run time of a life or gang with work w.
func runOf(w *work, over bool, gone core.Time) workload.Run {
	switch {
	case !over:
		return workload.Run{Duration: workload.Endless}
	case !w.ran:
		return workload.Run{Duration: workload.Endless, Withdrawn: max(gone, 1)}
	}
	return workload.Run{Duration: min(w.done+w.cut, workload.Endless-1)}
}

// make builds a job, a gang or not, from lives, which are in the order of their roles.
func (f *fold) make(j *job, name string, gang bool, lives []*life, runs []workload.Run) workload.Job {
	out := workload.Job{Job: j.spec, Recorded: &workload.Recorded{Runs: runs}}
	out.Name, out.Submitted = name, lives[0].came
	for _, l := range lives {
		out.Submitted = min(out.Submitted, l.came)
	}
	since := out.Submitted
	if out.Submitted == j.came {
		since = min(since, j.spec.Submitted-f.zero)
	}
	out.Gang = gang
	if !gang {
		out.Topology = core.TopologyRequest{}
	}
	out.Tasks = nil
	role := -1
	for i, l := range lives {
		if l.role != role {
			role = l.role
			t := j.roles[role]
			t.Pods = 0
			out.Tasks = append(out.Tasks, t)
		}
		out.Tasks[len(out.Tasks)-1].Pods++
		if l.found != nil {
			ev := *l.found
			ev.Job, ev.Pod = name, i
			ev.Started -= f.zero
			out.Recorded.Found = append(out.Recorded.Found, ev)
		}
	}
	withdrawn := true
	for i := range runs {
		out.Duration = max(out.Duration, runs[i].Duration)
		withdrawn = withdrawn && runs[i].Withdrawn > 0
	}
	if withdrawn {
		out.Outcome = workload.Cancelled
	}
	for i := range out.Tasks {
		t := &out.Tasks[i]
		if !gang || t.MinPods >= t.Pods {
			t.MinPods = 0 // all
		}
	}
	if name == j.name {
		out.Recorded.Served = j.served
	}
	f.layers.job(&out.Job)
	out.Recorded.Spec = out.Job
	out.Recorded.Spec.Submitted = since
	out.Job = plain(out.Job)
	return out
}

// counted records what queues and jobs had received, and deserved, when the first engine began. What later engines begin with
// is what the earlier ones counted.
func (f *fold) counted(ev *core.GPUTimeCounted) {
	f.recording.Counts = true
	if len(ev.Queues) > 0 {
		f.served = append(f.served, core.GPUTimeCounted{At: ev.At - f.zero, Queues: ev.Queues})
	}
	for i := range ev.Jobs {
		f.jobs[ev.Jobs[i].Job].served = ev.Jobs[i].Served
	}
}
