package kube

import (
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/devices"
)

// What the answers of the index of devices ([devices.Index]) mean for pods and nodes.

// ReasonClaimPending is why a pod waits whose resource claim does not exist or is not free.
const ReasonClaimPending = devices.ReasonClaimPending

// inDevices makes an observation of the index of devices one of the tables.
func inDevices[T any](observe func(*devices.Index, T) devices.Change) func(*mirror, T) {
	return func(m *mirror, o T) { m.devicesChanged(observe(m.devices, o)) }
}

// devicesChanged takes over what the index of devices answers otherwise now.
func (m *driver) devicesChanged(c devices.Change) {
	for _, w := range c.Warnings {
		m.log.Warn("cannot use the GPUs of a node", "node", w.Node, "why", w.Why)
	}
	m.acts.release = append(m.acts.release, c.Release...)
	for _, name := range c.Nodes {
		m.nodeDirty(name)
	}
	for _, uid := range c.Stale {
		m.pods[uid].needs = nil
	}
	for _, uid := range c.Pods {
		if p := m.pods[uid]; p != nil { // one that cannot be resolved must not keep the others from it
			m.takeIn(p.object, func() { m.reconsider(p) })
		}
	}
	if c.Rebuild && m.engine != nil {
		if err := m.rebuild(); err != nil {
			m.log.Error("cannot rebuild the engine", "error", err)
		}
	}
}

// nodeDirty has a node described to the engine again.
func (m *changes) nodeDirty(name string) {
	if n := m.nodes[name]; n != nil {
		m.dirtyNodes[name] = n
	}
}

// reconsider finds out again what a waiting pod needs.
func (m *driver) reconsider(p *pod) {
	if p.state != podWaiting || p.group == nil {
		return
	}
	p.needs = nil
	if m.engine != nil {
		m.resolve(p)
		m.refit(p)
	}
}

// recheck has pods looked at again for which devices, resources or models have come or
// gone.
func (m *driver) recheck() {
	changed, byResource := m.devices.Again()
	m.devicesChanged(changed)
	if !byResource {
		return
	}
	for _, p := range m.pods {
		if p.object.resource != "" {
			m.reconsider(p)
		}
	}
}

// claimRefsChanged takes in the names of a pod's claims, which become known after the
// pod.
func (m *mirror) claimRefsChanged(p *pod, before []devices.ClaimRef) {
	m.devicesChanged(m.devices.Unrefer(p.object.UID, p.object.Namespace, before))
	m.devices.Refer(p.object.UID, p.object.Namespace, p.object.deviceClaims)
	m.reconsider(p)
}

// resolve finds out what a pod of ours needs.
func (m *driver) resolve(p *pod) {
	if p.needs != nil || p.group == nil || !p.object.ours || p.state == podWaiting && !m.ours(p.group) {
		return
	}
	o, wrong := m.inherit(p)
	if wrong != nil {
		p.needs = &devices.Needs{Request: o.request, Reason: ReasonMisconfigured, Detail: wrong.Error()}
		return
	}
	ask := devices.Pod{
		State: p.asHolder(), Namespace: o.Namespace, Node: p.target, NodeMemory: m.nodeMemory(p.target),
		Request: o.request, Inherits: o != p.object, Resource: o.resource, Held: o.held, Claims: o.deviceClaims,
		Together: p.group.gang(),
	}
	if o.amounts.GPUs == 0 {
		ask.Memory = o.attributes.GPUMemory
	}
	if pg := m.podGroupOf(p.group); pg != nil {
		ask.PodGroup = &devices.PodGroup{Name: pg.Name, UID: pg.UID, Claims: pg.deviceClaims}
		ask.Together = ask.Together || pg.min > 1
	}
	needs, changed := m.devices.Resolve(&ask, m.deviceState)
	p.needs = needs
	m.devicesChanged(changed)
}

// deviceState is how a pod is, as the index of devices asks when it resolves another.
func (t *tables) deviceState(uid types.UID) (devices.State, bool) {
	p := t.pods[uid]
	if p == nil {
		return devices.State{}, false
	}
	return p.asHolder(), true
}

func (p *pod) asHolder() devices.State {
	s := devices.State{
		UID: p.object.UID, Name: p.object.Name, Placed: p.state != podWaiting,
		Stuck: p.state == podWaiting && p.slot < 0 && !p.ready(),
	}
	if p.group != nil {
		s.Job = p.group.id
	}
	return s
}

// grant adds to bindings what is to be written into the claims of their pods.
func (m *driver) grant(list []bindAct) {
	starts := make([]devices.Start, len(list))
	for i := range list {
		p := list[i].pod
		starts[i] = devices.Start{
			Needs: p.needs, Node: p.target, GPUs: p.devices, Resource: p.object.resource,
			Extends: len(p.object.deviceClaims) == 0 && devices.Described(&m.nodes[p.target].told),
		}
	}
	granted, changed := m.devices.Grant(starts)
	m.devicesChanged(changed)
	for i := range granted {
		list[i].Claims = append(list[i].Claims, granted[i].Claims...)
		if e := granted[i].Extended; e != nil {
			list[i].Extended = &act.Extended{Resource: e.Resource, Class: e.Class, Config: e.Config, Devices: e.Devices}
		}
	}
}

// notGranted takes in that a pod was not bound after all.
func (m *driver) notGranted(p *pod) {
	if p.needs.Claims() {
		m.devices.Refuse(p.needs)
		p.needs = nil
		m.resolve(p)
	}
}

// forDevices is a node as the index of devices knows it.
func (n *node) forDevices() devices.Node {
	o := n.object
	return devices.Node{Name: o.Name, Resources: o.gpus, GPUs: o.node.GPUs, Model: o.node.Model, Memory: n.memory()}
}

// memory is how much the GPUs of a node have in MiB, 0 when it is not known.
func (n *node) memory() int64 {
	mib, err := strconv.ParseInt(n.object.node.Labels[v1alpha1.MemoryLabel], 10, 64)
	if err != nil || mib < 0 || mib > core.MaxAmount {
		return 0
	}
	return mib
}

func (t *tables) nodeMemory(name string) int64 {
	if n := t.nodes[name]; n != nil {
		return n.memory()
	}
	return 0
}
