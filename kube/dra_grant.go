package kube

import (
	"fmt"
	"math/bits"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/translate"
)

// The devices that a decision names, given to the claims of its pods.

// grant adds to bindings what to write into the claims of their pods: the devices
// that the engine chose, for the pods that carry them, and for the others that
// share them.
func (m *mirror) grant(list []bindAct) {
	wrong := map[*claim]string{}
	for i := range list {
		if p := list[i].pod; p.needs != nil {
			m.deal(p, wrong)
		}
	}
	for i := range list {
		p := list[i].pod
		if p.needs == nil {
			continue
		}
		if v := m.dra.nodes[p.target]; len(p.object.deviceClaims) == 0 && p.devices != 0 && v != nil && m.nodes[p.target].told.Labels[gpusLabel] != "" {
			gpus, _ := v.devices(p.devices)
			list[i].Extended = &act.Extended{Resource: p.object.resource, Devices: gpus}
			if class := m.dra.resources[p.object.resource]; class != nil {
				list[i].Extended.Class, list[i].Extended.Config = class.Name, class.config
			}
		}
		for _, need := range p.needs.claims {
			c := need.claim
			if c.object == nil {
				continue
			}
			list[i].Claims = append(list[i].Claims, act.Claim{
				Namespace: c.object.Namespace, Name: c.object.Name, UID: c.object.UID, Version: c.object.ResourceVersion,
				Finalizer: c.object.finalizer, Consumer: need.consumer, Allocation: c.granted, Wrong: wrong[c],
			})
		}
	}
}

// deal gives the devices of a pod to the requests of the claims that it carries.
func (m *mirror) deal(p *pod, wrong map[*claim]string) {
	v := m.dra.nodes[p.target]
	if v == nil || v.inventory == nil {
		return
	}
	gpus, nics := v.devices(p.devices)
	for _, need := range p.needs.claims {
		c := need.claim
		if !need.carries || c.object == nil || c.object.allocated {
			continue
		}
		var grants []translate.Grant
		for j := range c.object.spec.Requests {
			r := &c.object.spec.Requests[j]
			g := m.choose(r, v, &gpus, &nics)
			if g == nil {
				wrong[c] = fmt.Sprintf("node %s no longer has the devices for request %s", p.target, r.Name)
				break
			}
			grants = append(grants, *g)
		}
		if wrong[c] == "" {
			c.granted = c.object.spec.Allocation(p.target, grants)
		}
	}
}

// notGranted takes in that a pod was not bound after all.
func (m *mirror) notGranted(p *pod) {
	if p.needs == nil || len(p.needs.claims) == 0 {
		return
	}
	for _, need := range p.needs.claims {
		if need.carries {
			need.claim.granted = nil
		}
	}
	p.needs = nil
	m.resolve(p)
}

// lifted notes the devices of a pod that went while its claims were written: they
// are not free before that is over.
func (m *mirror) lifted(p *pod) {
	v := m.dra.nodes[p.target]
	if p.inFlight && v != nil && p.devices != 0 {
		m.dra.inFlight[p.object.UID], _ = v.devices(p.devices)
	}
}

// devices names the GPUs of a set, and the NICs that are nearest to them.
func (v *published) devices(set uint64) (gpus, nics []translate.DeviceID) {
	for s := set; s != 0 && v.inventory != nil; s &= s - 1 {
		i := bits.TrailingZeros64(s)
		if i >= len(v.inventory.GPUs) {
			break
		}
		gpus = append(gpus, v.inventory.GPUs[i].DeviceID)
		if nic := v.inventory.Layout[i].NIC; nic >= 0 {
			nics = append(nics, v.inventory.NICs[nic].DeviceID)
		}
	}
	return gpus, nics
}

// landed takes in that it is over.
func (m *mirror) landed(uid types.UID) {
	for _, d := range m.dra.inFlight[uid] {
		m.nodeDirty(m.dra.pools[poolID{d.Driver, d.Pool}])
	}
	delete(m.dra.inFlight, uid)
}

// choose takes the devices of a request from those that the engine chose.
func (m *mirror) choose(r *translate.ClaimRequest, v *published, gpus, nics *[]translate.DeviceID) *translate.Grant {
	for i := range r.Any {
		need := &r.Any[i]
		class := m.dra.classes[need.Class]
		if class == nil {
			continue
		}
		q, err := m.askSelector(class, need.Selectors)
		if err != nil {
			continue
		}
		from, count := gpus, need.Count
		if a := v.answers[q]; a.nics == translate.MatchAll && a.gpus == translate.MatchNone {
			from = nics
		} else if a.gpus != translate.MatchAll {
			continue
		} else if count == 0 {
			count = v.inventory.Count()
		}
		if len(*from) < count {
			continue
		}
		grant := &translate.Grant{Need: need, Devices: (*from)[:count], Config: class.config}
		*from = (*from)[count:]
		return grant
	}
	return nil
}
