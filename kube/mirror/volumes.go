package mirror

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/storage"
	"github.com/muster-sched/muster/kube/tables"
)

// This file applies the answers of the index of volumes ([storage.Index]) to pods: waiting pods
// whose possible nodes have changed leave the engine's job and join it again, and bindings
// wait until their volumes have been made.

// volumePatience is how long a volume may take to be made for a pod; the pod is
// then placed again.
const volumePatience = core.Time(10 * time.Minute)

// inStorage turns an observation of the index of volumes into one of the tables.
func inStorage[T any](observe func(*storage.Index, T) storage.Change) func(*Mirror, T) {
	return func(m *Mirror, o T) { m.volumesChanged(observe(m.Storage, o)) }
}

// volumesChanged applies the answers of the index of volumes that have changed.
func (m *driver) volumesChanged(c storage.Change) {
	for _, uid := range c.Pods {
		if p := m.Pods[uid]; p != nil {
			m.refit(p)
		}
	}
	for _, name := range c.Nodes {
		m.nodeDirty(name)
	}
	m.outdated = m.outdated || c.Drivers // pods that run take other amounts, and nodes have others
}

// refit compares what a pod needs now with what the engine knows of it. One that waits
// for a place, and needs something else, leaves the engine's job and joins it again; a
// gang of which nothing runs does so whole.
func (m *driver) refit(p *tables.Pod) {
	m.recount(p, m.Storage.Needs(p.Object.UID))
	g := p.Group
	if g == nil {
		return
	}
	m.touch(g)
	if p.State != tables.PodWaiting || p.Slot < 0 || g.Draining {
		return
	}
	switch spec := p.Request(); {
	case p.Ready() && spec.Equal(&p.Task.Spec):
	// The gang starts as a whole or not at all: it is submitted again when this pod can be
	// placed too.
	case g.Gang() && !g.Runs():
		m.withdraw(g)
	default:
		m.leaveSlot(p)
	}
}

// recount applies what a pod needs for its volumes. If what the pod takes is subtracted from
// its node, that is counted again.
func (m *changes) recount(p *tables.Pod, v *storage.Needs) {
	if !p.Counted || slices.Equal(v.Attached, p.Volumes.Attached) {
		p.Volumes = v
		return
	}
	m.uncount(p)
	p.Volumes = v
	m.countOn(p)
}

// provide requests the volumes of a pod on its chosen node. Its binding waits for
// them.
func (m *changes) provide(b tables.Binding) {
	deadline := m.Now + volumePatience
	b.Of.Withheld = &b
	m.selectNodes(m.Storage.Make(b.Of.Object.UID, b.Node, deadline))
	m.acts.Wake = min(m.acts.Wake, deadline)
}

// selectNodes requests that nodes are written into claims.
func (m *changes) selectNodes(list []storage.Choice) {
	for _, c := range list {
		m.acts.Choose = append(m.acts.Choose, act.SelectNode(c))
	}
}

// provided binds the pods whose volumes are ready, and gives up those whose volumes are
// not made in time.
func (m *driver) provided() {
	for _, uid := range m.Storage.Making() {
		p := m.Pods[uid]
		b := p.Withheld
		done, failure := false, "the pod must leave again"
		// A pod that was evicted meanwhile is not bound, whether its volumes are ready or not.
		if p.State == tables.PodBinding {
			var on *core.Node
			if n := m.Nodes[b.Node]; n != nil {
				on = &n.Told
			}
			done, failure = m.Storage.Progress(uid, m.Now, on)
		}
		switch {
		case failure != "":
			m.log.Info("a pod is not bound because its volumes are missing", "pod", p.Object.Namespace+"/"+p.Object.Name, "node", b.Node, "why", failure)
			m.notProvided(uid)
		case done:
			p.Withheld = nil
			m.acts.Bind = append(m.acts.Bind, *b)
		default:
			m.acts.Wake = min(m.acts.Wake, m.Storage.Deadline(uid))
		}
	}
}

// notProvided handles volumes that cannot be made for a pod on its chosen node.
func (m *driver) notProvided(uid types.UID) {
	p := m.Pods[uid]
	if p == nil || p.Withheld == nil {
		return
	}
	m.selectNodes(m.Storage.GiveUp(uid))
	p.Withheld = nil
	m.bound(uid, p.State == tables.PodBound, false)
}
