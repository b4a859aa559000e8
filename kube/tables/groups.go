package tables

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/journey"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/owners"
	"github.com/muster-sched/muster/kube/peers"
	"github.com/muster-sched/muster/kube/stats"
	"github.com/muster-sched/muster/kube/translate"
)

// This file turns groups of pods into the engine's jobs. A group is
//
//	collecting  while a gang has fewer pods than its minimum: the engine does not know it
//	submitted   the engine has the job; pods that come are added to it, pods that go leave it
//	draining    its pods were evicted; new pods wait meanwhile
//
// and, when the last of those has left, collecting again. It keeps the time at
// which it was first seen, and so its place in the queue.

// Group is the pods of one job.
type Group struct {
	ID  translate.Group
	Job string // its name as the engine's job
	Membership
	Created time.Time // when the first of its objects was; its place in the queue
	Pods    map[types.UID]*Pod
	Loose   map[types.UID]*Pod // those of them that the engine does not know
	// Slots are the pods by their number in the engine's job, nil for numbers of pods that
	// are over; Tasks are its roles in their order.
	Slots     []*Pod
	Tasks     []*Task
	Submitted bool // the engine has the job
	Draining  bool // its pods were evicted
	Dirty     bool // it must be brought up to date before the next decision
	// Broke says that it drains because it lost pods, not for another job; NotBefore is when it
	// is submitted again, after Failures failed starts in a row.
	Broke     bool
	NotBefore core.Time
	Failures  int
	InFlight  int     // bindings sent and not answered
	Waiting   Waiting // why its pods wait now
	Reported  Report  // what was reported to the API about that
	Shard     int     // which instance decides on it
	// Admitted is what counts for it while pods of it have a place, nil before it was
	// submitted.
	Admitted *Admitted
	// Settled is its PodGroup as it counts: as it was when a pod of the group got a
	// place, while one has.
	Settled *objects.PodGroup
	// Queue is the queue of the engine's job, once it was submitted.
	Queue string
	// Ran says that a pod of it had a place once.
	Ran bool
	// Journey is its way to its first pods running, while it is traced.
	Journey *journey.Tracked
	// Worked says that a pod of it succeeded and no longer exists.
	Worked bool
	// Returning is set while pods of it restart elsewhere.
	Returning *Returning
	// Parked is set while its owner is suspended by us, and a while longer.
	Parked  *Parked
	Counted stats.Group // as the census has it
	// Asking says that its objects are being read, Outdated that they have changed since: what they say now
	// counts when none of its pods has a place any longer.
	Asking, Outdated bool
	// Relabel says that what the engine knows about the pods around may be outdated; Resized
	// that pods were resized in place, so that they take other amounts, or may be moved
	// otherwise than before.
	Relabel, Resized bool
	// NeverOnLent says that its pods cannot be on lent GPUs, because a kubelet counts theirs.
	NeverOnLent bool
	// Warned says that events reported what its pods ask for in vain.
	Warned bool
	// Quarantine is set while the group is left out; see quarantine.go.
	Quarantine *Quarantine
	// Kept is what the engine counted for its job when it ended the job last.
	Kept Kept
	// DisruptionProtected says that the engine must not evict it for others.
	DisruptionProtected bool
}

// Foreign is the group kind of pods of other schedulers that use GPUs: the engine knows each
// as a job that it must not touch.
const Foreign = translate.Foreign

// Waiting is why pods of a group wait, as reported to the API.
type Waiting struct {
	// Reason is one of the engine's or one of ours, empty when nothing waits.
	Reason, Detail string
	Since          core.Time
}

// Report is what was last reported of a group.
type Report struct {
	Reason, Message string
	At              core.Time
	Told            core.Time // when an event was published last
}

// Parked marks a group without pods whose owner will make new ones.
type Parked struct {
	// Until is when it is forgotten, [core.Never] while its owner is suspended.
	Until core.Time
}

// Runs reports whether any pod does.
func (g *Group) Runs() bool {
	for _, p := range g.Pods {
		if p.Runs() {
			return true
		}
	}
	return false
}

// Placed reports whether any pod has a place, or one that is kept for it: what the group was submitted with
// counts then.
func (g *Group) Placed() bool {
	if g.Returning != nil {
		return true
	}
	for _, p := range g.Pods {
		if p.State != PodWaiting {
			return true
		}
	}
	return false
}

// Leaving reports whether evicted pods still exist.
func (g *Group) Leaving() bool {
	for _, p := range g.Pods {
		if p.State == PodLeaving {
			return true
		}
	}
	return false
}

// Ending returns the pods of a gang that are on nodes if all of them leave, else none. A scheduler
// that has just started sees from the API alone that pods leave: they are being deleted.
func (g *Group) Ending() (leaving []*Pod) {
	if !g.Gang() {
		return nil
	}
	for _, p := range g.Pods {
		switch {
		case p.State == PodWaiting:
		case p.State == PodLeaving || p.State == PodBound && p.Object.Deleting:
			leaving = append(leaving, p)
		default:
			return nil
		}
	}
	return leaving
}

// Waits reports whether pods of a group wait for a place.
func (g *Group) Waits() bool {
	for _, p := range g.Pods {
		if p.State == PodWaiting {
			return true
		}
	}
	return false
}

// Unreported reports whether the reason of a waiting pod has not been written.
func (g *Group) Unreported() bool {
	for _, p := range g.Pods {
		if p.State == PodWaiting && p.Said == "" && !p.Object.OtherGates {
			return true
		}
	}
	return false
}

// Inherits reports whether a pod of the group is inherited.
func (g *Group) Inherits() bool {
	for _, p := range g.Pods {
		if p.Inherited() {
			return true
		}
	}
	return false
}

// Wait records why the group's pods wait.
func (g *Group) Wait(now core.Time, reason, detail string) {
	if g.Waiting.Reason != reason {
		g.Waiting.Since = now
	}
	g.Waiting.Reason, g.Waiting.Detail = reason, detail
}

// Unready says why a pod of the group cannot be placed as it is, "" when all could
// but for scheduling gates of others.
func (g *Group) Unready() (reason, detail string) {
	list := InOrder(g.Pods, func(p *Pod) bool { return p.State == PodWaiting && !p.Ready() && !p.Object.OtherGates })
	switch {
	case len(list) == 0:
		return "", ""
	case list[0].Object.TooComplex:
		return ReasonTooComplex, list[0].Object.Wrong
	case list[0].Object.Wrong != "":
		return ReasonMisconfigured, list[0].Object.Wrong
	case list[0].Needs != nil && list[0].Needs.Reason != "":
		return list[0].Needs.Reason, list[0].Needs.Detail
	case list[0].Around.Refused:
		return ReasonTooComplex, fmt.Sprintf("the pods of the namespace select pods in other namespaces by %d different selectors in affinity terms, or did within the last minutes: it waits until some of them are no longer used", peers.MaxElsewhere)
	}
	return ReasonVolume, list[0].Volumes.Wait
}

// ClearReports forgets what was reported about the group, and returns what to write about its
// pods that waited and run now; pg is its PodGroup, nil for none.
func (g *Group) ClearReports(pg *objects.PodGroup) []act.Report {
	var out []act.Report
	for _, p := range g.Pods {
		if (p.Said != "" || p.Inherited()) && p.State != PodWaiting {
			p.Said = ""
			out = append(out, act.Report{Pod: p.Ref(), Shard: g.Shard})
		}
	}
	if pg != nil && (g.Reported.Reason != "" || !pg.Scheduled) && !g.Waits() {
		out = append(out, act.Report{Pod: pg.Ref(), PodGroup: true, Shard: g.Shard})
	}
	g.Reported = Report{}
	return out
}

// Reportable reports whether this instance reports why a group waits.
func (t *Tables) Reportable(g *Group) bool { return t.Groups[g.ID] == g && g.Waits() && t.Ours(g) }

// GroupNamed finds the group of an engine's job.
func (t *Tables) GroupNamed(job string) *Group {
	if g := t.Jobs[job]; g != nil {
		return g
	}
	for _, g := range t.Groups {
		if g.Job == job {
			return g
		}
	}
	return nil
}

// Reset forgets what the engine knows.
func (g *Group) Reset() {
	g.Slots, g.Tasks, g.Submitted, g.Draining, g.Broke, g.Soft = nil, nil, false, false, false, false
	g.Relabel, g.Resized, g.DisruptionProtected, g.Returning = false, false, false, nil
	for uid, p := range g.Pods {
		p.Slot, p.Task, p.Devices, p.Needs, p.Dismissed = -1, nil, 0, nil, false
		p.Transfer, p.DoubleOf, p.Returns = nil, nil, false
		g.Loose[uid] = p
	}
}

// Has sets a pod's number in the engine's job.
func (g *Group) Has(p *Pod, slot int, t *Task) {
	p.Slot, p.Task = slot, t
	if slot == len(g.Slots) {
		g.Slots = append(g.Slots, p)
		t.slots++
	} else {
		g.Slots[slot] = p
	}
	delete(g.Loose, p.Object.UID)
}

// SettleTerms determines which PodGroup counts for the group (Settled); now is the one that
// exists, nil for none. A record on a pod, which another instance may have written, takes
// precedence over what this one has seen.
func (g *Group) SettleTerms(now *objects.PodGroup) {
	if !g.Native {
		return
	}
	placed, record := false, ""
	for _, p := range g.Pods {
		if o := p.Object; p.State != PodWaiting {
			placed = true
			// Of several records, the first by text counts: all instances must choose the same.
			if o.GroupRecord != "" && (record == "" || o.GroupRecord < record) {
				record = o.GroupRecord
			}
		}
	}
	switch {
	case !placed:
		g.Settled = now
	case record != "" && (g.Settled == nil || g.Settled.Said != record):
		g.Settled = now.AsRecorded(g.ID, record)
	case g.Settled == nil || now != nil && now.Said == g.Settled.Said:
		g.Settled = now
	case now != nil && (now.Attributes.Estimate != g.Settled.Attributes.Estimate || !now.Attributes.LastCheckpoint.Equal(g.Settled.Attributes.LastCheckpoint)):
		x := *g.Settled
		x.Attributes.LastCheckpoint, x.Attributes.Estimate = now.Attributes.LastCheckpoint, now.Attributes.Estimate
		g.Settled = &x
	}
}

// The size of a gang, and what it lacks until it can be submitted.

// Membership determines the size of a gang.
type Membership struct {
	Native  bool                  // it has a PodGroup of Kubernetes
	Objects []translate.ObjectRef // what says more of the job than its pods, such as its size
	Kind    core.Kind
	Stage   string // the part of its owner's pods that it is, empty for all
	// Min is the gang's minimum, 0 or 1 for no gang; Roles has the minimum of each role
	// that has one, 0 while it is not known.
	Min   int
	Roles map[string]int
	// Patience is how long the gang waits for its pods to be created; 0 and Never mean for
	// ever. Soft says that this time is over, and pods start one by one.
	Patience core.Time
	Soft     bool
	// Says is what the objects say, nil until they have been read; Sized says that pods give
	// the size of the gang.
	Says  *owners.Gang
	Sized bool
}

// Observe handles what a pod says about the size of the gang, and its patience.
func (g *Group) Observe(s *translate.Membership) {
	g.Needs(s.Min, s.Roles)
	g.Sized = g.Sized || s.Minimum() > 0
	g.Patience = max(g.Patience, s.Patience)
}

// Needs handles what an object says about the size of the gang.
func (g *Group) Needs(pods int, roles map[string]int) {
	sum := 0
	if len(roles) > 0 {
		if g.Roles == nil {
			g.Roles = map[string]int{}
		}
		for r, n := range roles {
			g.Roles[r] = max(g.Roles[r], n)
		}
	}
	for _, n := range g.Roles {
		sum += n
	}
	g.Min = max(g.Min, pods, sum)
}

// Gang reports whether the pods start together.
func (g *Group) Gang() bool { return g.Min > 1 && !g.Soft }

// Broken reports whether fewer pods stay than the gang needs to go on.
func (g *Group) Broken(stays func(*Pod) bool) bool {
	// A gang that is found running may have fewer pods than its minimum, because some have
	// succeeded. That does not break it; so its numbers count, if they are lower.
	if g.Count("", stays) < min(g.Min, len(g.Slots)) {
		return true
	}
	for role, minimum := range g.Roles {
		slots := 0
		for _, t := range g.Tasks {
			if t.role == role {
				slots += t.slots
			}
		}
		if g.Count(role, stays) < min(minimum, slots) {
			return true
		}
	}
	return false
}

// Count counts the pods of a role, of all when it is empty, that ok picks.
func (g *Group) Count(role string, ok func(*Pod) bool) int {
	n := 0
	for _, p := range g.Pods {
		if (role == "" || p.Object.Membership.Role == role) && ok(p) {
			n++
		}
	}
	return n
}

// Few says which pods the gang lacks to start with those that ok picks; empty if it lacks
// none.
func (g *Group) Few(ok func(*Pod) bool) string {
	for _, role := range slices.Sorted(maps.Keys(g.Roles)) {
		switch minimum, there := g.Roles[role], g.Count(role, ok); {
		case minimum == 0:
			return fmt.Sprintf("the minimum number of pods of %s in the gang is not known", role)
		case there < minimum:
			return fmt.Sprintf("%d of the %d pods of %s that the gang needs exist and are ready", there, minimum, role)
		}
	}
	there := len(g.Pods) // the most that ok may pick: large gangs come pod by pod
	if there >= g.Min {
		there = g.Count("", ok)
	}
	if there < g.Min {
		return fmt.Sprintf("%d of the %d pods of the gang exist and are ready", there, g.Min)
	}
	return ""
}

// Lacks says which pods a gang lacks before it can be submitted; empty if it lacks none, or has waited for them
// long enough.
func (g *Group) Lacks() string {
	if g.Min <= 1 && len(g.Roles) == 0 || g.Soft { // it has waited, and is submitted again
		return ""
	}
	lacks := g.Few(func(*Pod) bool { return true })
	if lacks == "" && g.Count("", (*Pod).Ready) > 0 { // with none ready, why says more
		lacks = g.Few((*Pod).Ready)
	}
	return lacks
}

// What the engine receives of a group: its job, the roles of its pods, and later pods.

// Task is a role of a group: pods that are alike.
type Task struct {
	Name, role string
	Spec       core.Request
	Prefers    []core.Preference  // of the labels of nodes
	Around     peers.Surroundings // as the engine knows them
	Free       []int              // numbers of pods that have ended
	slots      int                // numbers that were given to its pods
}

// As returns the task in the engine's form.
func (t *Task) As(pods, minimum int) core.Task {
	return core.Task{Name: t.Name, Pods: pods, MinPods: minimum, Request: t.Spec, Labels: t.Around.Labels, Affinity: t.Around.Terms, Prefers: slices.Concat(t.Prefers, t.Around.Prefers)}
}

func (g *Group) task(name string) *Task {
	for _, t := range g.Tasks {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// TaskOf finds the role of a pod, or makes one. Pods that name the same role have separate
// roles here if they request different things of their nodes or of the pods around, or if
// selectors of other pods select only some of them.
func (g *Group) TaskOf(p *Pod, view *peers.View) *Task {
	spec, around := p.Request(), g.around(p, view)
	if g.ID.Kind == Foreign {
		spec = amountsOf(p.Takes())
		spec.GPU = max(spec.GPU, p.Object.Request.GPU) // of a stranded pod
	}
	role := cmp.Or(p.Object.Membership.Role, translate.MainRole)
	for _, t := range g.Tasks {
		if t.is(role, &spec, p.Object.Prefers, around) {
			return t
		}
	}
	// A new one has the first name that is free: main, main-2, main-3.
	name := role
	for i := 2; g.task(name) != nil; i++ {
		name = fmt.Sprintf("%s-%d", role, i)
	}
	t := &Task{Name: name, role: role, Spec: spec, Prefers: p.Object.Prefers, Around: *around}
	g.Tasks = append(g.Tasks, t)
	return t
}

// MaxTasks is the maximum number of roles of a job: kinds of pods that differ in what they
// ask for. A pod is compared with all of them, and the search for places goes by them.
const MaxTasks = 100

// TooMany returns an error if the pods of a group are of too many kinds.
func (g *Group) TooMany() error {
	if len(g.Tasks) <= MaxTasks {
		return nil
	}
	return errTooMany
}

var errTooMany = fmt.Errorf("the pods of the job ask for more than %d different things: expected pods that are alike, or several jobs", MaxTasks)

// Full returns an error if a pod cannot join the job of a group, because it is of one kind too
// many.
func (g *Group) Full(p *Pod, view *peers.View) error {
	if len(g.Tasks) < MaxTasks || slices.ContainsFunc(g.Tasks, func(t *Task) bool { return t.Takes(p, view) }) {
		return nil
	}
	return errTooMany
}

func (t *Task) is(role string, spec *core.Request, prefers []core.Preference, around *peers.Surroundings) bool {
	return t.role == role && t.Spec.CPUMilli == spec.CPUMilli && t.Spec.GPU == spec.GPU && around.Equal(&t.Around) && reflect.DeepEqual(&t.Spec, spec) && reflect.DeepEqual(t.Prefers, prefers)
}

// Takes reports whether a pod of ours is alike those of the role.
func (t *Task) Takes(p *Pod, view *peers.View) bool {
	spec := p.Request()
	return t.is(cmp.Or(p.Object.Membership.Role, translate.MainRole), &spec, p.Object.Prefers, p.Group.around(p, view))
}

// Spread returns how many pods of each task a gang starts with: the minimum of each role
// and, if the gang's minimum is larger, more of the first tasks.
func (g *Group) Spread(pods map[*Task][]*Pod) map[*Task]int {
	minimum, roles, rest := map[*Task]int{}, maps.Clone(g.Roles), max(g.Min, 1)
	if g.Soft {
		roles, rest = nil, 1
	}
	// Each role gets its minimum, as far as it has pods. Tasks of one role, whose requests
	// differ, share it.
	for _, t := range g.Tasks {
		n := min(roles[t.role], len(pods[t]))
		if n > 0 {
			roles[t.role] -= n
		}
		minimum[t], rest = n, rest-n
	}
	// What the gang's minimum needs beyond that comes from the first roles.
	for _, t := range g.Tasks {
		n := min(max(rest, 0), len(pods[t])-minimum[t])
		minimum[t], rest = minimum[t]+n, rest-n
	}
	return minimum
}

// Roles adds the roles of a group to the description of its job. It returns the pods of each, and how many numbers beside
// theirs it has: of pods that a stale gang has lost. It stops when there are too many roles.
func (t *Tables) Roles(g *Group, list []*Pod, k *Kept, job *core.Job) (byTask map[*Task][]*Pod, lack map[*Task]int) {
	view := t.LookAround()
	byTask = map[*Task][]*Pod{}
	for _, p := range list {
		task := g.TaskOf(p, view)
		if byTask[task] = append(byTask[task], p); g.TooMany() != nil {
			return byTask, nil
		}
	}
	if job.Gang && k.StaleSince > 0 {
		lack = g.lacking(byTask)
	}
	minimum := g.Spread(byTask)
	for _, task := range g.Tasks {
		as := task.As(len(byTask[task])+lack[task], 0)
		switch n := minimum[task] + lack[task]; {
		case !job.Gang:
		case n == 0:
			as.MinPods = core.Elastic
		default:
			as.MinPods = n
		}
		job.Tasks = append(job.Tasks, as)
	}
	if a := t.AttributesOf(g, list[0]); a.Combinations != "" && job.Gang {
		_ = combine(&a, job) // a running gang counts whatever is written on it since
	}
	return byTask, lack
}

// lacking returns how many pods each task lacks of a gang that was stale: they were there, and have not succeeded. It is nil
// if a role has no pod that shows what the others were.
func (g *Group) lacking(pods map[*Task][]*Pod) map[*Task]int {
	lack, first, have, all := map[*Task]int{}, map[string]*Task{}, map[string]int{}, 0
	for _, t := range g.Tasks {
		if first[t.role] == nil {
			first[t.role] = t
		}
		have[t.role] += len(pods[t])
		all += len(pods[t])
	}
	for role, n := range g.Roles {
		if n > have[role] && first[role] == nil {
			return nil
		} else if n > have[role] {
			lack[first[role]] += n - have[role]
			all += n - have[role]
		}
	}
	if all < g.Min {
		lack[g.Tasks[0]] += g.Min - all
	}
	return lack
}

// Absent adds a number of a task that no pod has.
func (g *Group) Absent(t *Task) int {
	t.Free = append(t.Free, len(g.Slots))
	g.Slots = append(g.Slots, nil)
	t.slots++
	return len(g.Slots) - 1
}

// Together reports whether pods of the group share devices, and so a node.
func (g *Group) Together() bool {
	for _, p := range g.Pods {
		if p.Needs != nil && p.Needs.Together {
			return true
		}
	}
	return false
}
