package mirror

import (
	"maps"
	"slices"

	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/tables"
)

// This file applies the answers of the index of devices ([devices.Index]) to pods and nodes.

// inDevices turns an observation of the index of devices into one of the tables.
func inDevices[T any](observe func(*devices.Index, T) devices.Change) func(*Mirror, T) {
	return func(m *Mirror, o T) {
		m.devicesChanged(observe(m.Devices, o))
		m.endFreed()
	}
}

// Evicted pods that are gone leave their node for the engine only when the claims have given up their devices. Until then no other pod can
// have these: a plan that counts on them would be dropped, and further pods evicted for it.

// outlasted reports whether the claims of an evicted pod that is gone still have its devices. It is ended when they have not.
func (m *Mirror) outlasted(p *tables.Pod) bool {
	holds := p.State == tables.PodLeaving && !p.InFlight && m.Devices.Holds(p.Needs, p.Object.UID, p.Object.Namespace, p.Object.Extended)
	if holds {
		m.holding[p.Object.UID] = p
	}
	return holds
}

// endFreed ends the pods that are gone and whose claims have given up their devices.
func (m *Mirror) endFreed() {
	for _, uid := range slices.Sorted(maps.Keys(m.holding)) {
		if p := m.Pods[uid]; p == nil || !m.outlasted(p) {
			m.podGone(uid)
		}
	}
}

// devicesChanged applies the answers of the index of devices that have changed.
func (m *driver) devicesChanged(c devices.Change) {
	for _, w := range c.Warnings {
		m.log.Warn("cannot use the GPUs of a node", "node", w.Node, "why", w.Why)
	}
	m.acts.Release = append(m.acts.Release, c.Release...)
	for _, name := range c.Nodes {
		m.nodeDirty(name)
	}
	// First all outdated needs are removed, because resolving a pod reads those of others.
	for _, uid := range c.Stale {
		m.Pods[uid].Needs = nil
	}
	for _, uid := range c.Pods {
		if p := m.Pods[uid]; p != nil { // one that cannot be resolved must not block the others
			m.TakeIn(p.Object, func() { m.reconsider(p) })
		}
	}
	if c.Rebuild && m.engine != nil {
		if err := m.rebuild(); err != nil {
			m.log.Error("cannot rebuild the engine", "error", err)
		}
	}
}

// nodeDirty marks a node, so that it is described to the engine again.
func (m *changes) nodeDirty(name string) {
	if n := m.Nodes[name]; n != nil {
		m.dirtyNodes[name] = n
	}
}

// reconsider determines again what a waiting pod needs.
func (m *driver) reconsider(p *tables.Pod) {
	if p.State != tables.PodWaiting || p.Group == nil {
		return
	}
	p.Needs = nil
	if m.engine != nil {
		m.resolve(p)
		m.refit(p)
	}
}

// askDevices has the index of devices go on with what takes longer than a pass may.
func (m *driver) askDevices() {
	changed, again := m.Devices.Work(m.Now)
	m.devicesChanged(changed)
	m.acts.Wake = min(m.acts.Wake, again)
}

// recheck marks the pods for which devices, resources or models have appeared or
// disappeared, so that they are checked again.
func (m *driver) recheck() {
	changed, byResource := m.Devices.Again()
	m.devicesChanged(changed)
	if !byResource {
		return
	}
	for _, p := range m.Pods {
		if p.Object.Resource != "" {
			m.reconsider(p)
		}
	}
}

// claimRefsChanged handles the names of a pod's claims, which become known after the
// pod.
func (m *Mirror) claimRefsChanged(p *tables.Pod, before []devices.ClaimRef) {
	m.devicesChanged(m.Devices.Unrefer(p.Object.UID, p.Object.Namespace, before))
	m.Devices.Refer(p.Object.UID, p.Object.Namespace, p.Object.DeviceClaims)
	m.reconsider(p)
}

// resolve determines what one of our pods needs.
func (m *driver) resolve(p *tables.Pod) {
	if p.Needs != nil || p.Group == nil || !p.Object.Ours || p.State == tables.PodWaiting && !m.Ours(p.Group) {
		return
	}
	o, wrong := m.Inherit(p)
	if wrong != nil {
		p.Needs = &devices.Needs{Request: o.Request, Reason: tables.ReasonMisconfigured, Detail: wrong.Error()}
		return
	}
	ask := devices.Pod{
		State: p.AsHolder(), Namespace: o.Namespace, Node: p.Target, NodeMemory: m.NodeMemory(p.Target),
		Request: o.Request, Inherits: o != p.Object, Resource: o.Resource, Held: o.Held, Claims: o.DeviceClaims,
		Together: p.Group.Gang(),
	}
	if o.Amounts.GPUs == 0 {
		ask.Memory = o.Attributes.GPUMemory
	}
	if pg := m.PodGroupOf(p.Group); pg != nil {
		ask.PodGroup = &devices.PodGroup{Name: pg.Name, UID: pg.UID, Claims: pg.DeviceClaims}
		ask.Together = ask.Together || pg.Min > 1
	}
	needs, changed := m.Devices.Resolve(&ask, m.DeviceState)
	p.Needs = needs
	m.devicesChanged(changed)
}

// grant adds to bindings what is to be written into the claims of their pods.
func (m *driver) grant(list []tables.Binding) {
	starts := make([]devices.Start, len(list))
	for i := range list {
		p := list[i].Of
		starts[i] = devices.Start{
			Needs: p.Needs, Node: p.Target, GPUs: p.Devices, Resource: p.Object.Resource,
			Extends: len(p.Object.DeviceClaims) == 0 && devices.Described(&m.Nodes[p.Target].Told),
		}
	}
	granted, changed := m.Devices.Grant(starts)
	m.devicesChanged(changed)
	for i := range granted {
		list[i].Claims = append(list[i].Claims, granted[i].Claims...)
		if e := granted[i].Extended; e != nil {
			list[i].Extended = &act.Extended{Resource: e.Resource, Class: e.Class, Config: e.Config, Devices: e.Devices}
		}
	}
}

// notGranted handles a pod that was not bound after all.
func (m *driver) notGranted(p *tables.Pod) {
	if p.Needs.Claims() {
		m.Devices.Refuse(p.Needs)
		p.Needs = nil
		m.resolve(p)
	}
}
