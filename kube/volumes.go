package kube

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/storage"
)

// What the answers of the index of volumes ([storage.Index]) mean for pods: those that
// wait leave the engine's job and join it again where they may now be elsewhere, and
// bindings wait for volumes that are made for them.

// ReasonVolume is why a pod waits whose volumes are not ready.
const ReasonVolume = "VolumeNotReady"

// volumePatience is how long a volume may take to be made for a pod; the pod is
// then placed again.
const volumePatience = core.Time(10 * time.Minute)

// inStorage makes an observation of the index of volumes one of the tables.
func inStorage[T any](observe func(*storage.Index, T) storage.Change) func(*mirror, T) {
	return func(m *mirror, o T) { m.volumesChanged(observe(m.storage, o)) }
}

// volumesChanged takes over what the index of volumes answers otherwise now.
func (m *driver) volumesChanged(c storage.Change) {
	for _, uid := range c.Pods {
		if p := m.pods[uid]; p != nil {
			m.refit(p)
		}
	}
	for _, name := range c.Nodes {
		m.nodeDirty(name)
	}
	m.outdated = m.outdated || c.Drivers // pods that run take other amounts, and nodes have others
}

// usesVolumes is a pod as the index of volumes knows it.
func (p *pod) usesVolumes() storage.Pod {
	o := p.object
	return storage.Pod{
		UID: o.UID, Namespace: o.Namespace, Name: o.Name, Created: o.created, Claims: o.claims,
		Placed: p.state != podWaiting, Blocked: o.wrong != "" || o.otherGates,
	}
}

// refit compares what a pod needs now with what the engine knows of it. One that waits
// for a place, and needs something else, leaves the engine's job and joins it again; a
// gang of which nothing runs does so whole.
func (m *driver) refit(p *pod) {
	m.recount(p, m.storage.Needs(p.object.UID))
	g := p.group
	if g == nil {
		return
	}
	m.touch(g)
	if p.state != podWaiting || p.slot < 0 || g.draining {
		return
	}
	switch spec := p.request(); {
	case p.ready() && spec.Equal(&p.task.spec):
	case g.gang() && !g.runs():
		m.withdraw(g)
	default:
		m.leaveSlot(p)
	}
}

// recount takes over what a pod needs for its volumes. Where its node is smaller by
// what it takes, that is counted again.
func (m *changes) recount(p *pod, v *storage.Needs) {
	if !p.counted || slices.Equal(v.Attached, p.volumes.Attached) {
		p.volumes = v
		return
	}
	m.uncount(p)
	p.volumes = v
	m.countOn(p)
}

// provide has the volumes of a pod made for the node that it has got. Its binding
// waits for them.
func (m *changes) provide(b bindAct) {
	deadline := m.now + volumePatience
	b.pod.withheld = &b
	m.selectNodes(m.storage.Make(b.pod.object.UID, b.Node, deadline))
	m.acts.wake = min(m.acts.wake, deadline)
}

// selectNodes has nodes written into claims.
func (m *changes) selectNodes(list []storage.Choice) {
	for _, c := range list {
		m.acts.choose = append(m.acts.choose, act.SelectNode(c))
	}
}

// provided binds the pods whose volumes are there now, and gives up those whose
// volumes do not come.
func (m *driver) provided() {
	for _, uid := range m.storage.Making() {
		p := m.pods[uid]
		b := p.withheld
		done, failure := false, "the pod must leave again"
		if p.state == podBinding {
			var on *core.Node
			if n := m.nodes[b.Node]; n != nil {
				on = &n.told
			}
			done, failure = m.storage.Progress(uid, m.now, on)
		}
		switch {
		case failure != "":
			m.log.Info("a pod is not bound because its volumes are missing", "pod", p.object.Namespace+"/"+p.object.Name, "node", b.Node, "why", failure)
			m.notProvided(uid)
		case done:
			p.withheld = nil
			m.acts.bind = append(m.acts.bind, *b)
		default:
			m.acts.wake = min(m.acts.wake, m.storage.Deadline(uid))
		}
	}
}

// notProvided takes in that volumes cannot be made for a pod where it is.
func (m *driver) notProvided(uid types.UID) {
	p := m.pods[uid]
	if p == nil || p.withheld == nil {
		return
	}
	m.selectNodes(m.storage.GiveUp(uid))
	p.withheld = nil
	m.bound(uid, p.state == podBound, false)
}
