package kube

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/translate"
)

// From groups of pods to the engine's jobs. A group is
//
//	collecting  while a gang has fewer pods than its least: the engine does not know it
//	submitted   the engine has the job; pods that come are added to it, pods that go leave it
//	draining    its pods were told to leave; what comes meanwhile waits
//
// and, when the last of those has left, collecting again. It keeps the time at
// which it was first seen, and so its place in the queue.

// group is the pods of one job.
type group struct {
	id  translate.Group
	job string
	membership
	created time.Time
	pods    map[types.UID]*pod
	loose   map[types.UID]*pod // those of them that the engine does not know
	// Of the engine's job: pods by number, nil for numbers of pods that are
	// over; roles in their order.
	slots     []*pod
	tasks     []*task
	submitted bool
	draining  bool
	dirty     bool
	// broke says that it drains because it fell apart, not for another job's
	// good; notBefore is when it is submitted again.
	broke     bool
	notBefore core.Time
	failures  int
	inFlight  int // bindings sent and not answered
	waiting   waiting
	said      said
	shard     int // which instance decides on it
	// queue is where the engine's job is, once it was submitted.
	queue string
	// ran says that a pod of it had a place once.
	ran bool
	// journey is its way to its first pods running, while somebody traces it.
	journey *journey
	// worked says that a pod of it did its work, and is not there any more.
	worked bool
	// parked is set while its owner is suspended by us, and a while longer.
	parked  *parked
	counted groupCount
	// relabel says that what the engine knows of the pods around may be otherwise,
	// resized that what pods take is, which were resized in place.
	relabel, resized bool
}

// membership is what decides how large a gang is.
type membership struct {
	native bool
	object *translate.ObjectRef
	kind   core.Kind
	// min is the gang's least pods, 0 or 1 for no gang; roles the least of each
	// role of which there is one, 0 while nobody has said it.
	min   int
	roles map[string]int
	// patience is how long the gang waits for its pods to be made; 0 and Never for
	// ever. soft says that it was too long, and pods start one by one.
	patience core.Time
	soft     bool
	// says is what the object says, nil until it has been asked; sized that pods
	// say how large the gang is.
	says  *translate.Gang
	sized bool
}

// task is a role of a group: pods that are alike.
type task struct {
	name, role string
	spec       core.Request
	around     surroundings // as the engine was told
	free       []int        // numbers of pods that are over
	slots      int          // numbers that were given to its pods
}

// as is the task as the engine is told of it.
func (t *task) as(pods, least int) core.Task {
	return core.Task{Name: t.name, Pods: pods, MinPods: least, Request: t.spec, Labels: t.around.labels, Affinity: t.around.terms}
}

// waiting is why pods of a group wait, as the API is told.
type waiting struct {
	// reason is one of the engine's or one of ours, empty when nothing waits.
	reason, detail string
	since          core.Time
}

// Reasons for which a job waits before the engine knows it. The engine's own
// are [core.Reason].
const (
	// ReasonCollecting: the gang has fewer pods than it needs.
	ReasonCollecting = "Collecting"
	// ReasonPodGroupNotFound: there is no PodGroup of the name the pod gives.
	ReasonPodGroupNotFound = "PodGroupNotFound"
	// ReasonQueueNotFound: there is no queue of that name, or it is not ready.
	ReasonQueueNotFound = "QueueNotFound"
	// ReasonQueueForbidden: the namespace may not use the queue.
	ReasonQueueForbidden = "QueueForbidden"
	// ReasonMisconfigured: a label, annotation or field is not as expected.
	ReasonMisconfigured = "Misconfigured"
	// ReasonGangUnknown: the object that says how large the gang is cannot be
	// read.
	ReasonGangUnknown = "GangUnknown"
)

// others is the group kind of pods of other schedulers that use GPUs: the
// engine knows each as a job that it may not touch.
const others = "foreign"

// groupOf returns the group of a pod, a new one if need be.
func (m *mirror) groupOf(p *pod) *group {
	o := p.object
	id := o.membership.Group
	if !o.ours {
		id = translate.Group{Namespace: o.Namespace, Kind: others, Name: o.Name}
	}
	g := m.groups[id]
	if g == nil {
		g = &group{id: id, job: id.Job(), created: o.created, pods: map[types.UID]*pod{}, loose: map[types.UID]*pod{}}
		m.groups[id] = g
	}
	if len(g.pods) == 0 && !g.submitted {
		g.membership = membership{
			native: o.membership.Native, object: o.membership.Object, kind: o.membership.Kind,
		}
		if g.parked != nil && g.parked.until != core.Never {
			g.parked = nil
		}
	}
	g.needs(o.membership.Min, o.membership.Roles)
	g.sized = g.sized || o.membership.Least() > 0
	g.patience = max(g.patience, o.membership.Patience)
	if o.created.Before(g.created) {
		g.created = o.created
	}
	return g
}

// startOver is reset for a group that is to be submitted as it is: what was told to
// leave, and is there, is drained still.
func (m *mirror) startOver(g *group) {
	for _, p := range g.pods {
		m.notePod(p)
	}
	draining, broke := g.draining, g.broke
	g.reset()
	if g.leaving() {
		g.draining, g.broke = draining, broke
	}
}

// needs takes in what somebody says of how large the gang is.
func (g *group) needs(pods int, roles map[string]int) {
	sum := 0
	if len(roles) > 0 {
		if g.roles == nil {
			g.roles = map[string]int{}
		}
		for r, n := range roles {
			g.roles[r] = max(g.roles[r], n)
		}
	}
	for _, n := range g.roles {
		sum += n
	}
	g.min = max(g.min, pods, sum)
}

// reset forgets what the engine was told.
func (g *group) reset() {
	g.slots, g.tasks, g.submitted, g.draining, g.broke, g.soft = nil, nil, false, false, false, false
	g.relabel, g.resized = false, false
	for uid, p := range g.pods {
		p.slot, p.task, p.devices, p.needs, p.dismissed = -1, nil, 0, nil, false
		g.loose[uid] = p
	}
}

// has gives a pod its number in the engine's job.
func (g *group) has(p *pod, slot int, t *task) {
	p.slot, p.task = slot, t
	if slot == len(g.slots) {
		g.slots = append(g.slots, p)
		t.slots++
	} else {
		g.slots[slot] = p
	}
	delete(g.loose, p.object.UID)
}

func (g *group) gang() bool { return g.min > 1 && !g.soft }

// broken reports whether fewer pods stay than must for the gang to stand.
func (g *group) broken(stays func(*pod) bool) bool {
	if g.count("", stays) < min(g.min, len(g.slots)) {
		return true
	}
	for role, least := range g.roles {
		slots := 0
		for _, t := range g.tasks {
			if t.role == role {
				slots += t.slots
			}
		}
		if g.count(role, stays) < min(least, slots) {
			return true
		}
	}
	return false
}

// count counts the pods of a role, of all when it is empty, that ok picks.
func (g *group) count(role string, ok func(*pod) bool) int {
	n := 0
	for _, p := range g.pods {
		if (role == "" || p.object.membership.Role == role) && ok(p) {
			n++
		}
	}
	return n
}

// few says which pods the gang lacks to start with those that ok picks; empty
// when it lacks none.
func (g *group) few(ok func(*pod) bool) string {
	for _, role := range slices.Sorted(maps.Keys(g.roles)) {
		switch least, there := g.roles[role], g.count(role, ok); {
		case least == 0:
			return fmt.Sprintf("nobody has said how many pods of %s the gang needs", role)
		case there < least:
			return fmt.Sprintf("%d of the %d pods of %s that the gang needs are there and ready", there, least, role)
		}
	}
	there := len(g.pods) // the most that ok may pick: large gangs come pod by pod
	if there >= g.min {
		there = g.count("", ok)
	}
	if there < g.min {
		return fmt.Sprintf("%d of the %d pods of the gang are there and ready", there, g.min)
	}
	return ""
}

// runs reports whether a pod that the engine knows is bound or being bound, and
// stays.
func (p *pod) runs() bool { return p.slot >= 0 && (p.state == podBinding || p.state == podBound) }

// runs reports whether any pod does.
func (g *group) runs() bool {
	for _, p := range g.pods {
		if p.runs() {
			return true
		}
	}
	return false
}

// leaving reports whether pods that were told to leave are still there.
func (g *group) leaving() bool {
	for _, p := range g.pods {
		if p.state == podLeaving {
			return true
		}
	}
	return false
}

// inOrder returns the pods that ok picks, by name: worker-2 comes
// before worker-10, so that neighbours in a job become neighbours in the
// cluster.
func inOrder(pods map[types.UID]*pod, ok func(*pod) bool) []*pod {
	var list []*pod
	for _, p := range pods {
		if ok(p) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *pod) int {
		return cmp.Or(cmp.Compare(len(a.object.Name), len(b.object.Name)), cmp.Compare(a.object.Name, b.object.Name),
			cmp.Compare(a.object.UID, b.object.UID))
	})
	return list
}

// advance brings the engine's job up to date with the group.
func (m *mirror) advance(g *group) {
	m.noteGroup(g)
	m.regroup(g)
	if g.resized && g.submitted {
		m.tellAnew(g)
	}
	m.tellSurroundings(g)
	if !m.ours(g) {
		m.follow(g)
		return
	}
	if g.draining {
		if g.leaving() {
			if !g.submitted { // the engine is new: it must know what they hold
				m.submit(g)
			}
			return
		}
		if g.broke {
			g.failures++
			g.notBefore = m.now + m.pause(g.failures)
		} else {
			g.failures = 0
		}
		m.withdraw(g)
	}
	if len(g.pods) == 0 {
		m.withdraw(g)
		if !m.stays(g) {
			delete(m.groups, g.id)
		}
		return
	}
	for _, p := range g.loose {
		m.resolve(p)
	}
	if len(g.loose) > 0 || !g.submitted {
		m.waiters[g] = true
	}
	if g.submitted && g.gang() && !g.runs() && g.few((*pod).stands) != "" {
		m.withdraw(g)
	}
	if !g.submitted {
		if reason, detail := m.blocked(g); reason != "" {
			g.wait(m.now, reason, detail)
			return
		}
		m.submit(g)
		return
	}
	m.add(g)
}

// stands reports whether a pod runs or could.
func (p *pod) stands() bool { return p.state != podLeaving && (p.state != podWaiting || p.ready()) }

// withdraw ends the engine's job; the pods stay.
func (m *mirror) withdraw(g *group) {
	if g.submitted {
		m.mustTell(core.JobEnded{Job: g.job})
		delete(m.jobs, g.job)
	}
	for _, p := range g.pods {
		m.notePod(p)
	}
	g.worked = false
	g.reset()
}

// wait notes why the group's pods wait.
func (g *group) wait(now core.Time, reason, detail string) {
	if g.waiting.reason != reason {
		g.waiting.since = now
	}
	g.waiting.reason, g.waiting.detail = reason, detail
}

// blocked says why the group cannot be submitted, "" when it can.
func (m *mirror) blocked(g *group) (reason, detail string) {
	pg := m.podGroupOf(g)
	switch {
	case pg != nil && pg.min > 0: // else a label may say more, as on a Job whose controller made a basic group
		g.min = pg.min
		g.needs(0, pg.attributes.Roles)
	case g.says != nil && !g.sized:
		g.needs(g.says.Min, g.says.Roles)
	}
	for _, p := range g.pods {
		if p.state != podWaiting || g.id.Kind == others {
			return "", "" // it is there: the engine must know
		}
	}
	switch {
	case g.native && pg == nil:
		return ReasonPodGroupNotFound, fmt.Sprintf("PodGroup %s does not exist", g.id.Name)
	case pg != nil && pg.wrong != "":
		return ReasonMisconfigured, pg.wrong
	case g.object != nil && g.says == nil:
		m.acts.ask = append(m.acts.ask, g)
		return ReasonGangUnknown, fmt.Sprintf("%s %s has not been read yet", g.object.Kind, g.object.Name)
	}
	if detail := m.collecting(g); detail != "" {
		return ReasonCollecting, detail
	}
	ready := inOrder(g.pods, (*pod).ready)
	if len(ready) == 0 {
		if reason, detail := g.unready(); reason != "" {
			return reason, detail
		}
		return ReasonCollecting, "its pods have scheduling gates of others"
	}
	a := m.attributesOf(g, ready[0])
	if reason, detail := m.queues.blocks(m, m.queueOf(g, a), g.id.Namespace); reason != "" {
		return reason, detail
	}
	for _, l := range []string{a.Required, a.Preferred} {
		if _, ok := m.level(l); !ok {
			return ReasonMisconfigured, fmt.Sprintf("topology level %q is unknown: expected one of %s", l, m.levelNames())
		}
	}
	if wrong := m.cannotMean(g); wrong != "" {
		return ReasonMisconfigured, wrong
	}
	if m.now < g.notBefore {
		m.acts.wake = min(m.acts.wake, g.notBefore)
		m.later = append(m.later, g)
		return core.BackOff.String(), fmt.Sprintf("%d failed starts; it is tried again in %.3gs", g.failures, (g.notBefore - m.now).Seconds())
	}
	return "", ""
}

// collecting says which pods a gang lacks that is to be submitted; empty when it
// lacks none, or has waited for them long enough.
func (m *mirror) collecting(g *group) string {
	if g.min <= 1 && len(g.roles) == 0 || g.soft { // it has waited, and is told of anew
		return ""
	}
	detail := g.few(func(*pod) bool { return true })
	if detail == "" && g.count("", (*pod).ready) > 0 { // with none ready, why says more
		detail = g.few((*pod).ready)
	}
	if detail == "" || g.patience == 0 || g.patience == core.Never {
		return detail
	}
	since := m.now
	if g.waiting.reason == ReasonCollecting {
		since = g.waiting.since
	}
	if m.now < since+g.patience {
		m.acts.wake = min(m.acts.wake, since+g.patience)
		m.later = append(m.later, g)
		return fmt.Sprintf("%s; in %.3gs those that are there start without the others", detail, (since + g.patience - m.now).Seconds())
	}
	g.soft = true
	return ""
}

// unready says why a pod of the group cannot be placed as it is, "" when all could
// but for scheduling gates of others.
func (g *group) unready() (reason, detail string) {
	list := inOrder(g.pods, func(p *pod) bool { return p.state == podWaiting && !p.ready() && !p.object.otherGates })
	switch {
	case len(list) == 0:
		return "", ""
	case list[0].object.wrong != "":
		return ReasonMisconfigured, list[0].object.wrong
	case list[0].needs != nil && list[0].needs.reason != "":
		return list[0].needs.reason, list[0].needs.detail
	}
	return ReasonVolume, list[0].volumes.wait
}

// podGroupOf returns the PodGroup of a group, nil when it has none or there is
// none.
func (m *mirror) podGroupOf(g *group) *podGroupObject {
	if !g.native {
		return nil
	}
	return m.podGroups[key(g.id.Namespace, g.id.Name)]
}

// pause is how long a gang waits after so many failed starts.
func (m *mirror) pause(failures int) core.Time {
	r := m.policy.Requeue
	return min(max(r.Backoff, core.Second)<<min(failures-1, 20), max(r.MaxBackoff, core.Second))
}

// attributesOf is what is said of the job: by its PodGroup, and by the pod
// where that says more.
func (m *mirror) attributesOf(g *group, p *pod) translate.Attributes {
	a := p.object.attributes
	if g.says != nil {
		a = a.Over(&g.says.Attributes)
	}
	if pg := m.podGroupOf(g); pg != nil {
		a = a.Over(&pg.attributes)
		if a.Required == "" {
			a.Required = pg.required
		}
	}
	return a
}

// queueOf names the queue of a group: what its pods say, else its namespace,
// else the default.
func (m *mirror) queueOf(g *group, a translate.Attributes) string {
	return cmp.Or(a.Queue, translate.NamespaceQueue(m.namespaces[g.id.Namespace]), DefaultQueue)
}

// level returns the engine's name of a topology level, of the narrowest of
// several.
func (m *mirror) level(names string) (string, bool) {
	narrowest, found := "", -1
	for name := range strings.SplitSeq(names, ",") {
		l, ok := m.oneLevel(name)
		if !ok {
			return "", false
		}
		i := slices.IndexFunc(m.levels, func(o translate.Level) bool { return o.Name == l })
		switch l {
		case cluster.HBDLevel:
			i = len(m.levels)
		case cluster.NodeLevel:
			i = len(m.levels) + 1
		}
		if i >= found {
			narrowest, found = l, i
		}
	}
	return narrowest, true
}

func (m *mirror) oneLevel(name string) (string, bool) {
	if t := m.topologies.objects[m.topologies.used]; t != nil {
		if l, ok := t.Spec.Level(name); ok {
			name = l
		}
	}
	switch name {
	case "", cluster.NodeLevel, cluster.HBDLevel:
		return name, true
	case v1alpha1.HostnameLabel:
		return cluster.NodeLevel, true
	}
	for _, l := range m.levels {
		if l.Name == name || l.Label == name {
			return l.Name, true
		}
	}
	return "", false
}

// levelNames lists the levels for those who named another.
func (m *mirror) levelNames() string {
	names := make([]string, 0, len(m.levels)+2)
	for _, l := range m.levels {
		names = append(names, l.Name)
	}
	return strings.Join(append(names, cluster.NodeLevel, cluster.HBDLevel), ", ")
}

// submit tells the engine of the job with all its pods.
func (m *mirror) submit(g *group) {
	ours := m.ours(g)
	list := inOrder(g.pods, func(p *pod) bool { return p.state != podWaiting || p.ready() && !g.draining && ours })
	job := core.Job{Name: g.job, Kind: g.kind, Submitted: min(m.now, core.Time(g.created.UnixNano()))}
	if g.id.Kind == others {
		job.Queue, job.Locked, job.NotPreemptible = OthersQueue, true, true
	} else {
		m.describe(g, list[0], &job)
	}
	if !ours { // it is as it is
		job.Locked, job.NotPreemptible, job.Gang, job.Topology = true, true, false, core.Job{}.Topology
	}
	g.queue = job.Queue
	byTask, known := map[*task][]*pod{}, views{}
	for _, p := range list {
		t := m.taskOf(g, p, known)
		byTask[t] = append(byTask[t], p)
	}
	least := g.spread(byTask)
	for _, t := range g.tasks {
		task := t.as(len(byTask[t]), 0)
		switch n := least[t]; {
		case !job.Gang:
		case n == 0:
			task.MinPods = core.Elastic
		default:
			task.MinPods = n
		}
		job.Tasks = append(job.Tasks, task)
	}
	if err := m.tell(core.JobSubmitted{Job: job}); err != nil {
		g.reset()
		g.wait(m.now, ReasonMisconfigured, err.Error())
		return
	}
	g.submitted, g.relabel = true, false
	m.setOff(g)
	g.worked = g.worked || g.runs() && len(list) < g.min // it is found so: some may have done their work before
	m.jobs[g.job] = g
	for _, t := range g.tasks {
		for _, p := range byTask[t] {
			g.has(p, len(g.slots), t)
		}
	}
	for _, p := range list {
		m.settleIn(p)
	}
	if a := m.attributesOf(g, list[0]); !a.LastCheckpoint.IsZero() {
		m.mustTell(core.Checkpointed{Job: g.job, At: min(m.now, core.Time(a.LastCheckpoint.UnixNano()))})
	}
}

// spread says how many pods of each task a gang starts with: the least of each
// role and, where that of the gang is more, of those that come first.
func (g *group) spread(pods map[*task][]*pod) map[*task]int {
	least, roles, rest := map[*task]int{}, maps.Clone(g.roles), max(g.min, 1)
	for _, t := range g.tasks {
		n := min(roles[t.role], len(pods[t]))
		if n > 0 {
			roles[t.role] -= n
		}
		least[t], rest = n, rest-n
	}
	for _, t := range g.tasks {
		n := min(max(rest, 0), len(pods[t])-least[t])
		least[t], rest = least[t]+n, rest-n
	}
	return least
}

// describe fills in what is said of the job.
func (m *mirror) describe(g *group, p *pod, job *core.Job) {
	a := m.attributesOf(g, p)
	job.Queue = m.queueOf(g, a)
	if reason, _ := m.queues.blocks(m, job.Queue, g.id.Namespace); reason == ReasonQueueNotFound {
		job.Queue = DefaultQueue // its pods run: they must be counted somewhere
	}
	if a.KindGiven {
		job.Kind = a.Kind
	}
	job.Class, job.Priority = a.Class, p.object.priority
	if value, ok := m.priorities[a.PriorityClass]; ok {
		job.Priority = value
	}
	if pg := m.podGroupOf(g); pg != nil && pg.priority != nil {
		job.Priority = *pg.priority
	}
	job.Gang = g.gang()
	job.NotPreemptible, job.Locked = a.NotPreemptible, a.Locked
	job.MinRuntime, job.Checkpoint, job.Estimate = a.MinRuntime, a.Checkpoint, a.Estimate
	job.Topology.Required, _ = m.level(a.Required)
	job.Topology.Preferred, _ = m.level(a.Preferred)
	if g.together() {
		job.Topology.Required = cluster.NodeLevel
	}
}

// taskOf finds the role of a pod, or makes one. Pods that say the same role and
// ask for different things, of their nodes or of the pods around, or that others
// mean alone, have roles of their own.
func (m *mirror) taskOf(g *group, p *pod, known views) *task {
	spec, around := p.request(), m.surroundingsOf(p, known)
	if g.id.Kind == others {
		spec = amountsOf(p.takes())
	}
	role := cmp.Or(p.object.membership.Role, translate.MainRole)
	name := role
	for i := 2; ; i++ {
		t := g.task(name)
		if t == nil {
			t = &task{name: name, role: role, spec: spec, around: *around}
			g.tasks = append(g.tasks, t)
			return t
		}
		if around.equal(&t.around) && reflect.DeepEqual(t.spec, spec) {
			return t
		}
		name = fmt.Sprintf("%s-%d", role, i)
	}
}

func (g *group) task(name string) *task {
	for _, t := range g.tasks {
		if t.name == name {
			return t
		}
	}
	return nil
}

// add tells the engine of pods that came to a job it has.
func (m *mirror) add(g *group) {
	ours := m.ours(g)
	list := inOrder(g.loose, func(p *pod) bool { return p.state != podLeaving && (p.state != podWaiting || p.ready() && ours) })
	byTask, known := map[*task][]*pod{}, views{}
	var order []*task
	for _, p := range list {
		t := m.taskOf(g, p, known)
		if byTask[t] == nil {
			order = append(order, t)
		}
		byTask[t] = append(byTask[t], p)
	}
	for _, t := range order {
		ev := core.PodsAdded{Job: g.job, Task: t.as(len(byTask[t]), core.Elastic)}
		for _, p := range byTask[t] {
			slot := len(g.slots)
			if k := len(t.free); k > 0 {
				slot, t.free = t.free[k-1], t.free[:k-1]
			}
			g.has(p, slot, t)
			ev.Pods = append(ev.Pods, p.slot)
		}
		m.mustTell(ev)
		for _, p := range byTask[t] {
			m.settleIn(p)
		}
	}
}

// settleIn tells the engine where a pod is that has a place already.
func (m *mirror) settleIn(p *pod) {
	if p.state != podWaiting {
		m.adopt(p)
	}
}

// podGroupSeen takes in a PodGroup as it is now.
func (m *mirror) podGroupSeen(o *podGroupObject) {
	m.podGroups[key(o.Namespace, o.Name)] = o
	m.touchNative(o.Namespace, o.Name)
}

func (m *mirror) podGroupGone(namespace, name string) {
	delete(m.podGroups, key(namespace, name))
	m.touchNative(namespace, name)
}

func (m *mirror) podGroupsListed(list []*podGroupObject) {
	there := make(map[types.NamespacedName]bool, len(list))
	for _, o := range list {
		there[key(o.Namespace, o.Name)] = true
		m.podGroupSeen(o)
	}
	for k := range m.podGroups {
		if !there[k] {
			m.podGroupGone(k.Namespace, k.Name)
		}
	}
}

func (m *mirror) touchNative(namespace, name string) {
	if g := m.groups[translate.Group{Namespace: namespace, Kind: "podgroup", Name: name}]; g != nil {
		for _, p := range g.pods {
			if len(p.object.deviceClaims) > 0 {
				m.reconsider(p)
			}
		}
		m.touch(g)
	}
}

// asked takes in what an object says of its gang, or why it could not be read.
func (m *mirror) asked(id translate.Group, says *translate.Gang, err error) {
	g := m.groups[id]
	if g == nil {
		return
	}
	if err != nil {
		m.noteGroup(g)
		g.wait(m.now, ReasonGangUnknown, fmt.Sprintf("%s %s cannot be read: %v", g.object.Kind, g.object.Name, err))
		return
	}
	g.says = says
	if !says.Since.IsZero() && says.Since.Before(g.created) {
		g.created = says.Since
	}
	m.touch(g)
}
