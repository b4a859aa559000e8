package kube

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/peers"
	"github.com/muster-sched/muster/kube/stats"
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
	// admitted is what counts of it while pods of it have a place, nil before it was
	// submitted.
	admitted *admitted
	// settled is its PodGroup as it counts: as it was when a pod of the group got a
	// place, while one has.
	settled *podGroupObject
	// queue is where the engine's job is, once it was submitted.
	queue string
	// ran says that a pod of it had a place once.
	ran bool
	// journey is its way to its first pods running, while it is traced.
	journey *journey
	// worked says that a pod of it did its work, and is not there any more.
	worked bool
	// parked is set while its owner is suspended by us, and a while longer.
	parked  *parked
	counted stats.Group
	// asking says that its object is being read.
	asking bool
	// relabel says that what the engine knows of the pods around may be otherwise,
	// resized that what pods take is, which were resized in place.
	relabel, resized bool
	// warned says that people were told of keys of ours on it that there are not.
	warned bool
	// quarantine is set while the group is left out; see quarantine.go.
	quarantine *quarantine
	// shielded says that the engine was told not to evict it for others.
	shielded bool
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
	// ReasonPodGroupNotFound: the PodGroup that the pod names does not exist.
	ReasonPodGroupNotFound = "PodGroupNotFound"
	// ReasonQueueNotFound: the queue does not exist, or is not ready.
	ReasonQueueNotFound = "QueueNotFound"
	// ReasonQueueForbidden: the namespace cannot use the queue.
	ReasonQueueForbidden = "QueueForbidden"
	// ReasonPriorityClassNotFound: the PriorityClass that the job names does not exist.
	ReasonPriorityClassNotFound = "PriorityClassNotFound"
	// ReasonPriorityClassForbidden: the job must not use the PriorityClass that it names,
	// in its namespace or in its queue.
	ReasonPriorityClassForbidden = "PriorityClassForbidden"
	// ReasonMisconfigured: a label, annotation or field is not as expected.
	ReasonMisconfigured = devices.ReasonMisconfigured
	// ReasonGangUnknown: the object that defines the size of the gang cannot be read.
	ReasonGangUnknown = "GangUnknown"
)

// others is the group kind of pods of other schedulers that use GPUs: the
// engine knows each as a job that it may not touch.
const others = translate.Foreign

// groupOf returns the group of a pod, a new one if need be.
func (m *changes) groupOf(p *pod) *group {
	o := p.object
	id := o.membership.Group
	if !o.ours {
		id = translate.Group{Namespace: o.Namespace, Kind: others, Name: o.Name}
	}
	g := m.groups[id]
	if g == nil {
		g = &group{id: id, job: id.Job(), created: o.created, pods: map[types.UID]*pod{}, loose: map[types.UID]*pod{}}
		m.groups[id] = g
		if o.ours {
			m.seen++
		}
	}
	if len(g.pods) == 0 && !g.submitted {
		g.membership = membership{
			native: o.membership.Native, object: o.membership.Object, kind: o.membership.Kind,
		}
		if g.parked != nil && g.parked.until != core.Never {
			g.parked = nil
		}
	}
	g.observe(&o.membership)
	if o.created.Before(g.created) {
		g.created = o.created
	}
	return g
}

// startOver is reset for a group that is to be submitted as it is: what was told to
// leave, and is there, is drained still, and a gang that has waited long enough for
// its pods waits no more.
func (m *changes) startOver(g *group) {
	for _, p := range g.pods {
		m.notePod(p)
	}
	draining, broke, soft := g.draining, g.broke, g.soft
	g.reset()
	g.soft = soft
	if g.leaving() {
		g.draining, g.broke = draining, broke
	}
}

// reset forgets what the engine was told.
func (g *group) reset() {
	g.slots, g.tasks, g.submitted, g.draining, g.broke, g.soft = nil, nil, false, false, false, false
	g.relabel, g.resized, g.shielded = false, false, false
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
func (m *driver) advance(g *group) {
	m.noteGroup(g)
	m.settleTerms(g)
	m.regroup(g)
	if g.resized && g.submitted {
		m.tellAnew(g)
	}
	m.tellSurroundings(g)
	if g.quarantine != nil && m.confine(g) {
		return
	}
	if !m.ours(g) {
		m.follow(g)
		return
	}
	if g.draining {
		if g.leaving() {
			if !g.submitted { // the engine is new: it must know what they hold
				m.submit(g)
			}
			// Who waits starts with the gang again, not beside those that leave.
			for _, p := range inOrder(g.pods, func(p *pod) bool { return p.state == podWaiting && p.slot >= 0 }) {
				m.leaveSlot(p)
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
	m.warn(g)
	if len(g.loose) > 0 || !g.submitted {
		m.waiters[g] = true
	}
	if g.submitted && g.gang() && !g.runs() && g.few((*pod).stands) != "" {
		m.withdraw(g)
	}
	if g.submitted && g.native && m.podGroupOf(g) == nil && !g.runs() {
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

// withdraw ends the engine's job; the pods stay.
func (m *driver) withdraw(g *group) {
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

// How large a gang is, and what it lacks until the engine may know it.

// membership is what decides how large a gang is.
type membership struct {
	native bool
	object *translate.ObjectRef
	kind   core.Kind
	// min is the gang's least pods, 0 or 1 for no gang; roles the least of each
	// role of which there is one, 0 while that is not known.
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

// observe takes in what a pod says of how large the gang is, and how long it waits.
func (g *group) observe(s *translate.Membership) {
	g.needs(s.Min, s.Roles)
	g.sized = g.sized || s.Minimum() > 0
	g.patience = max(g.patience, s.Patience)
}

// needs takes in what an object says about the size of the gang.
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
			return fmt.Sprintf("the minimum number of pods of %s in the gang is not known", role)
		case there < least:
			return fmt.Sprintf("%d of the %d pods of %s that the gang needs exist and are ready", there, least, role)
		}
	}
	there := len(g.pods) // the most that ok may pick: large gangs come pod by pod
	if there >= g.min {
		there = g.count("", ok)
	}
	if there < g.min {
		return fmt.Sprintf("%d of the %d pods of the gang exist and are ready", there, g.min)
	}
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
	case list[0].needs != nil && list[0].needs.Reason != "":
		return list[0].needs.Reason, list[0].needs.Detail
	}
	return ReasonVolume, list[0].volumes.Wait
}

// said is what was last reported of a group.
type said struct {
	reason, message string
	at              core.Time
	told            core.Time // when an event was published last
}

// waits reports whether pods of a group wait for a place.
func (g *group) waits() bool {
	for _, p := range g.pods {
		if p.state == podWaiting {
			return true
		}
	}
	return false
}

// unreported reports whether the reason of a waiting pod has not been written.
func (g *group) unreported() bool {
	for _, p := range g.pods {
		if p.state == podWaiting && p.said == "" && !p.object.otherGates {
			return true
		}
	}
	return false
}

// inherits reports whether a pod of the group is.
func (g *group) inherits() bool {
	for _, p := range g.pods {
		if p.inherited() {
			return true
		}
	}
	return false
}

// What the engine is told of a group: its job, the roles of its pods, and the pods
// that come later.

// task is a role of a group: pods that are alike.
type task struct {
	name, role string
	spec       core.Request
	around     peers.Surroundings // as the engine was told
	free       []int              // numbers of pods that are over
	slots      int                // numbers that were given to its pods
}

// as is the task as the engine is told of it.
func (t *task) as(pods, least int) core.Task {
	return core.Task{Name: t.name, Pods: pods, MinPods: least, Request: t.spec, Labels: t.around.Labels, Affinity: t.around.Terms}
}

func (g *group) task(name string) *task {
	for _, t := range g.tasks {
		if t.name == name {
			return t
		}
	}
	return nil
}

// spread says how many pods of each task a gang starts with: the least of each
// role and, where that of the gang is more, of those that come first.
func (g *group) spread(pods map[*task][]*pod) map[*task]int {
	least, roles, rest := map[*task]int{}, maps.Clone(g.roles), max(g.min, 1)
	if g.soft {
		roles, rest = nil, 1
	}
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

// together reports whether pods of the group share devices, and so a node.
func (g *group) together() bool {
	for _, p := range g.pods {
		if p.needs != nil && p.needs.Together {
			return true
		}
	}
	return false
}

// clearReports returns what is to be written of pods that waited and run now.
func (m *changes) clearReports(g *group) []act.Report {
	var out []act.Report
	for _, p := range g.pods {
		if (p.said != "" || p.inherited()) && p.state != podWaiting {
			p.said = ""
			out = append(out, act.Report{Pod: p.ref(), Shard: g.shard})
		}
	}
	pg := m.podGroupOf(g)
	if pg != nil && (g.said.reason != "" || !pg.scheduled) && !g.waits() {
		out = append(out, act.Report{Pod: pg.ref(), PodGroup: true, Shard: g.shard})
	}
	g.said = said{}
	return out
}
