package mirror

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/feed"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/owners"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// observeAgain handles a pod that now says something else of its job, such as the size of its gang: a user
// has corrected it. A job of which a pod has a place keeps the values with which it
// started.
func (m *Mirror) observeAgain(p *tables.Pod, old *objects.Pod) {
	g, before, now := p.Group, &old.Membership, &p.Object.Membership
	same := before.Min == now.Min && before.Patience == now.Patience && maps.Equal(before.Roles, now.Roles)
	if same && old.Says == p.Object.Says || g.Placed() {
		return
	}
	for r := range before.Roles { // the minimum of other roles may come from pods that are gone
		delete(g.Roles, r)
	}
	g.Min, g.Patience, g.Sized = 0, 0, false
	for _, p := range g.Pods {
		g.Observe(&p.Object.Membership)
	}
	m.weighAgain(g)
}

// blocked says why the group cannot be submitted, "" when it can.
func (m *changes) blocked(g *tables.Group) (reason, detail string) {
	// 1. How large the gang is: a PodGroup says so before labels of pods, and these before the
	// object that owns them.
	pg := m.PodGroupOf(g)
	switch {
	case pg != nil && pg.Min > 0: // else a label may say more, as on a Job whose controller made a basic group
		g.Min = pg.Min
		g.Needs(0, pg.Attributes.Roles)
	case g.Says != nil && !g.Sized:
		g.Needs(g.Says.Min, g.Says.Roles)
	}
	// 2. Nothing holds up a group that has a place: its devices would count as free.
	for _, p := range g.Pods {
		if p.State != tables.PodWaiting || g.ID.Kind == tables.Foreign {
			return "", "" // it is there: the engine must know
		}
	}
	// 3. The object that gives the size of the gang must exist.
	switch {
	case g.Native && pg == nil:
		return tables.ReasonPodGroupNotFound, fmt.Sprintf("PodGroup %s does not exist", g.ID.Name)
	case pg != nil && pg.Wrong != "":
		return tables.ReasonMisconfigured, pg.Wrong
	case len(g.Objects) > 0 && g.Says == nil:
		return g.Unread()
	}
	// 4. So must its pods, as many as it needs of each role.
	if detail := m.collecting(g); detail != "" {
		if reason, wrong := g.Unready(); reason == tables.ReasonMisconfigured && g.Count("", (*tables.Pod).Ready) == 0 {
			return reason, wrong // no later pod corrects that
		}
		return tables.ReasonCollecting, detail
	}
	ready := tables.InOrder(g.Pods, (*tables.Pod).Ready)
	if len(ready) == 0 {
		if reason, detail := g.Unready(); reason != "" {
			return reason, detail
		}
		return tables.ReasonCollecting, "its pods have scheduling gates of other controllers"
	}
	// 5. What it requests must exist, and the group must be allowed to use it.
	a := m.AttributesOf(g, ready[0])
	if reason, detail := m.TurnedAway(g, ready[0], &a); reason != "" {
		return reason, detail
	}
	if wrong := m.Misplaced(g, &a); wrong != "" {
		return tables.ReasonMisconfigured, wrong
	}
	// 6. A start that failed is not tried again at once.
	if m.Now < g.NotBefore {
		m.acts.Wake = min(m.acts.Wake, g.NotBefore)
		m.later = append(m.later, g)
		return core.BackOff.String(), fmt.Sprintf("%d failed starts; the next attempt is at %s", g.Failures, translate.Clock(g.NotBefore))
	}
	return "", ""
}

// stall has a group wait; what its objects say is read again where that may be why.
func (m *changes) stall(g *tables.Group, reason, detail string) {
	ask, later, at := g.Stall(m.Now, reason, detail)
	m.acts.Ask, m.later, m.acts.Wake = append(m.acts.Ask, ask...), append(m.later, later...), min(m.acts.Wake, at)
}

// collecting says which pods a gang lacks before it can be submitted; empty if it lacks
// none, or has waited for them long enough.
func (m *changes) collecting(g *tables.Group) string {
	detail, patience := g.Lacks(), m.PatienceOf(g)
	if detail == "" || patience == 0 || patience == core.Never {
		return detail
	}
	// Its patience counts from when it was first found to lack pods. The loop is woken when that
	// is over, for nothing else may happen then.
	since := m.Now
	if g.Waiting.Reason == tables.ReasonCollecting {
		since = g.Waiting.Since
	}
	if m.Now < since+patience {
		m.acts.Wake = min(m.acts.Wake, since+patience)
		m.later = append(m.later, g)
		return fmt.Sprintf("%s; at %s the existing pods start without the others", detail, translate.Clock(since+patience))
	}
	g.Soft = true
	return ""
}

// podGroupSeen handles the current state of a PodGroup. What it says now counts for a gang that waits.
func (m *Mirror) podGroupSeen(o *objects.PodGroup) {
	old := m.PodGroups[objects.KeyOf(o)]
	m.PodGroups[objects.KeyOf(o)] = o
	g := m.Groups[translate.Group{Namespace: o.Namespace, Kind: translate.ByPodGroup, Name: o.Name}]
	if g != nil && old != nil && !old.SaysSame(o) {
		m.weighAgain(g)
	}
	m.touchNative(objects.KeyOf(o), old.OfGPUs() || o.OfGPUs())
}

func (m *Mirror) podGroupGone(k types.NamespacedName) {
	old := m.PodGroups[k]
	delete(m.PodGroups, k)
	m.touchNative(k, old.OfGPUs())
}

func (m *Mirror) podGroupsListed(list []*objects.PodGroup) {
	feed.Compare(m, m.PodGroups, list, objects.KeyOf, m.podGroupSeen, m.podGroupGone)
}

// touchNative marks the pods of a PodGroup, so that they are checked again, with their
// requests where those may have changed.
func (m *Mirror) touchNative(k types.NamespacedName, asks bool) {
	if g := m.Groups[translate.Group{Namespace: k.Namespace, Kind: translate.ByPodGroup, Name: k.Name}]; g != nil {
		g.SettleTerms(m.PodGroupOf(g))
		for _, p := range g.Pods {
			if len(p.Object.DeviceClaims) > 0 || asks {
				m.reconsider(p)
			}
			m.keepRecord(p)
		}
		m.touch(g)
	}
}

// split puts the waiting pods of a group into the stages in which their owner starts them, if it does.
func (m *driver) split(g *tables.Group, says *owners.Gang) {
	if len(says.Stages) == 0 || g.Stage != "" {
		return
	}
	m.Stages[g.ID] = says
	for _, p := range tables.InOrder(g.Pods, func(p *tables.Pod) bool {
		return p.State == tables.PodWaiting && says.StageOf(p.Object.Membership.Role) != ""
	}) {
		o := *p.Object
		m.podOver(p)
		m.Stage(&o)
		m.newPod(&o)
	}
	m.touch(g)
}

// weighAgain withdraws a group of which no pod has a place: it is submitted as it is now.
func (m *driver) weighAgain(g *tables.Group) {
	if g.Submitted && !g.Placed() {
		m.withdraw(g)
	}
	m.touch(g)
}

// objectChanged handles that an object of a group has changed since it was read: it is read again, at once if
// no pod has a place.
func (m *changes) objectChanged(id translate.Group) {
	switch g := m.Groups[id]; {
	case g == nil || len(g.Objects) == 0 || !m.Ours(g):
		m.acts.Forget = append(m.acts.Forget, id)
	case g.Placed() || len(g.Pods) == 0:
		g.Outdated = true
	default:
		g.Asking = true
		m.acts.Ask = append(m.acts.Ask, g)
	}
}

// readAnew has a group of which no pod has a place any longer wait until its objects, which have changed
// meanwhile, have been read.
func (m *driver) readAnew(g *tables.Group) {
	if g.Outdated && !g.Placed() {
		m.withdraw(g)
		g.Outdated = false
		g.Unsay()
	}
}

// unfollow has the objects of a group no longer be followed.
func (m *changes) unfollow(g *tables.Group) {
	if len(g.Objects) > 0 {
		m.acts.Forget = append(m.acts.Forget, g.ID)
	}
}

// asked handles what an object says about its gang, or why it could not be read, and
// reports whether to read it again.
func (m *Mirror) asked(id translate.Group, says *owners.Gang, err error) bool {
	g := m.Groups[id]
	if g == nil {
		m.acts.Forget = append(m.acts.Forget, id)
		return false
	}
	before := g.Says
	switch {
	case before != nil && g.Placed(): // it has what it was submitted with
		g.Asking, g.Outdated = false, true
		return false
	case err == nil && g.Same(says):
		return g.Asking
	case err == nil:
		m.weighAgain(g)
	case len(g.Pods) == 0 || len(g.Objects) == 0 || g.Placed() || !m.Ours(g):
		g.Asking = false
		return false
	case !tables.Corrigible(err) && (g.Submitted || before != nil && !g.Stuck()): // it waits by what was read
		g.Asking = g.Submitted && act.IsTransient(err)
		return g.Asking
	default:
		if m.NoteGroup(g); g.Submitted {
			m.weighAgain(g)
		}
		g.Unanswered(m.Now, err)
		return true
	}
	if m.split(g, says); len(g.Pods) == 0 {
		return false
	}
	if g.Says = says.Only(g.Stage); says.Levels != nil {
		m.relabel(g)
	}
	if !says.Since.IsZero() && says.Since.Before(g.Created) {
		g.Created = says.Since
	}
	if says.Attributes.OfGPUs() || before != nil && before.Attributes.OfGPUs() {
		for _, p := range g.Pods {
			m.reconsider(p)
		}
	}
	m.touch(g)
	return g.Asking
}
