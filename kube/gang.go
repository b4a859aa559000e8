package kube

import (
	"fmt"
	"maps"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// observeAgain takes in that a pod says otherwise than before how large its gang is, or how
// long it waits: someone has put it right. A gang of which a pod has a place is as it
// was begun.
func (m *mirror) observeAgain(p *pod, before *translate.Membership) {
	g, now := p.group, &p.object.membership
	same := before.Min == now.Min && before.Patience == now.Patience && maps.Equal(before.Roles, now.Roles)
	if same || g.count("", func(p *pod) bool { return p.state != podWaiting }) > 0 {
		return
	}
	for r := range before.Roles { // the least of others was perhaps said by pods that are gone
		delete(g.roles, r)
	}
	g.min, g.patience, g.sized = 0, 0, false
	for _, p := range g.pods {
		g.observe(&p.object.membership)
	}
	if g.submitted {
		m.withdraw(g)
	}
	m.touch(g)
}

// blocked says why the group cannot be submitted, "" when it can.
func (m *changes) blocked(g *group) (reason, detail string) {
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
		if !g.asking {
			g.asking = true
			m.acts.ask = append(m.acts.ask, g)
		}
		return ReasonGangUnknown, fmt.Sprintf("%s %s has not been observed yet", g.object.Kind, g.object.Name)
	}
	if detail := m.collecting(g); detail != "" {
		if reason, wrong := g.unready(); reason == ReasonMisconfigured && g.count("", (*pod).ready) == 0 {
			return reason, wrong // no pod that may come mends that
		}
		return ReasonCollecting, detail
	}
	ready := inOrder(g.pods, (*pod).ready)
	if len(ready) == 0 {
		if reason, detail := g.unready(); reason != "" {
			return reason, detail
		}
		return ReasonCollecting, "its pods have scheduling gates of other controllers"
	}
	a := m.attributesOf(g, ready[0])
	if reason, detail := m.turnedAway(g, ready[0], &a); reason != "" {
		return reason, detail
	}
	for _, l := range []string{a.Required, a.Preferred} {
		if _, ok := m.topologies.Level(l); !ok {
			return ReasonMisconfigured, fmt.Sprintf("unknown topology level %q: expected one of %s", l, m.topologies.Names())
		}
	}
	if wrong := m.termWithoutLevel(g); wrong != "" {
		return ReasonMisconfigured, wrong
	}
	if m.now < g.notBefore {
		m.acts.wake = min(m.acts.wake, g.notBefore)
		m.later = append(m.later, g)
		return core.BackOff.String(), fmt.Sprintf("%d failed starts; the next attempt is at %s", g.failures, clock(g.notBefore))
	}
	return "", ""
}

// collecting says which pods a gang lacks that is to be submitted; empty when it
// lacks none, or has waited for them long enough.
func (m *changes) collecting(g *group) string {
	if g.min <= 1 && len(g.roles) == 0 || g.soft { // it has waited, and is told of again
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
		return fmt.Sprintf("%s; at %s the existing pods start without the others", detail, clock(since+g.patience))
	}
	g.soft = true
	return ""
}

// podGroupOf returns the PodGroup of a group, nil when it has none or there is
// none.
func (t *tables) podGroupOf(g *group) *podGroupObject {
	if !g.native {
		return nil
	}
	return t.podGroups[key(g.id.Namespace, g.id.Name)]
}

// pause returns how long a gang waits after its nth failed start in a row: as the engine
// pauses jobs, and at least a second, for a start is many requests.
func (t *tables) pause(failures int) core.Time {
	r := t.policies.Policy().Requeue
	r.Backoff = max(r.Backoff, core.Second)
	if r.MaxBackoff > 0 {
		r.MaxBackoff = max(r.MaxBackoff, core.Second)
	}
	return r.Pause(failures)
}

// ofGPUs reports whether there is a PodGroup, and it says which GPUs its pods get.
func (o *podGroupObject) ofGPUs() bool { return o != nil && o.attributes.OfGPUs() }

// podGroupSeen takes in a PodGroup as it is now. That it asks for more pods, or for
// fewer, counts for a gang that waits.
func (m *mirror) podGroupSeen(o *podGroupObject) {
	old := m.podGroups[keyOf(o)]
	m.podGroups[keyOf(o)] = o
	g := m.groups[translate.Group{Namespace: o.Namespace, Kind: translate.ByPodGroup, Name: o.Name}]
	if g != nil && old != nil && old.min != o.min && g.submitted && !g.runs() && !g.leaving() {
		m.withdraw(g) // it is weighed again
	}
	m.touchNative(keyOf(o), old.ofGPUs() || o.ofGPUs())
}

func (m *mirror) podGroupGone(k types.NamespacedName) {
	old := m.podGroups[k]
	delete(m.podGroups, k)
	m.touchNative(k, old.ofGPUs())
}

func (m *mirror) podGroupsListed(list []*podGroupObject) {
	compare(m, m.podGroups, list, keyOf, m.podGroupSeen, m.podGroupGone)
}

// termsOf returns the PodGroup of a group as it counts for it: as it was when a pod of
// the group got a place, while one has, else as it is. It is nil when there is none.
func (t *tables) termsOf(g *group) *podGroupObject {
	if g.settled != nil {
		return g.settled
	}
	return t.podGroupOf(g)
}

// settleTerms brings up to date what [mirror.termsOf] returns. A record on a pod, which
// another instance may have written, goes before what this one has seen.
func (m *changes) settleTerms(g *group) {
	if !g.native {
		return
	}
	placed, record := false, ""
	for _, p := range g.pods {
		if o := p.object; p.state != podWaiting {
			placed = true
			if o.groupRecord != "" && (record == "" || o.groupRecord < record) {
				record = o.groupRecord
			}
		}
	}
	now := m.podGroupOf(g)
	switch {
	case !placed:
		g.settled = now
	case record != "" && (g.settled == nil || g.settled.said != record):
		g.settled = now.asRecorded(g.id, record)
	case g.settled == nil || now != nil && now.said == g.settled.said:
		g.settled = now
	case now != nil && (now.attributes.Estimate != g.settled.attributes.Estimate || !now.attributes.LastCheckpoint.Equal(g.settled.attributes.LastCheckpoint)):
		x := *g.settled
		x.attributes.LastCheckpoint, x.attributes.Estimate = now.attributes.LastCheckpoint, now.attributes.Estimate
		g.settled = &x
	}
}

// asRecorded is a PodGroup, nil for one that is gone, that says what a record has.
func (o *podGroupObject) asRecorded(id translate.Group, record string) *podGroupObject {
	x := podGroupObject{ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name}}
	if o != nil {
		x = *o
	}
	said := translate.ReadSaid(record)
	x.read(&schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Labels: said.Labels, Annotations: said.Annotations}})
	if o != nil {
		x.attributes.LastCheckpoint, x.attributes.Estimate = o.attributes.LastCheckpoint, o.attributes.Estimate
	}
	return &x
}

// touchNative has the pods of a PodGroup looked at again: what they ask for too,
// where that may be otherwise.
func (m *mirror) touchNative(k types.NamespacedName, asks bool) {
	if g := m.groups[translate.Group{Namespace: k.Namespace, Kind: translate.ByPodGroup, Name: k.Name}]; g != nil {
		m.settleTerms(g)
		for _, p := range g.pods {
			if len(p.object.deviceClaims) > 0 || asks {
				m.reconsider(p)
			}
			m.keepRecord(p)
		}
		m.touch(g)
	}
}

// asked takes in what an object says of its gang, or why it could not be read: it
// reports whether to read it again.
func (m *mirror) asked(id translate.Group, says *translate.Gang, err error) bool {
	g := m.groups[id]
	switch {
	case g == nil:
		return false
	case err == nil:
		g.asking = false
	case len(g.pods) == 0 || g.submitted || g.object == nil || g.says != nil || !m.ours(g):
		g.asking = false
		return false
	default:
		m.noteGroup(g)
		g.wait(m.now, ReasonGangUnknown, fmt.Sprintf("%s %s cannot be read: %v", g.object.Kind, g.object.Name, err))
		return true
	}
	g.says = says
	if !says.Since.IsZero() && says.Since.Before(g.created) {
		g.created = says.Since
	}
	if says.Attributes.OfGPUs() {
		for _, p := range g.pods {
			m.reconsider(p)
		}
	}
	m.touch(g)
	return false
}
