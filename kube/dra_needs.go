package kube

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/translate"
)

// What a pod's claims ask for, in the engine's words.

// needs is what a pod needs of a node, claims and devices included.
type needs struct {
	request core.Request
	// reason and detail say why it cannot be placed, "" when it can.
	reason, detail string
	// together says that its gang must share its node, for they share devices.
	together bool
	claims   []claimNeed
}

// claimNeed is what is to be done about a claim when the pod is bound.
type claimNeed struct {
	claim    *claim
	carries  bool // its devices are the pod's
	consumer resourceapi.ResourceClaimConsumerReference
}

// refer notes which claims a pod refers to.
func (m *mirror) refer(p *pod) {
	for _, r := range p.object.deviceClaims {
		if r.claim != "" {
			m.claimOf(key(p.object.Namespace, r.claim)).users[p.object.UID] = p
		}
	}
}

// unrefer takes back that it refers to those.
func (m *mirror) unrefer(p *pod, refs []claimRef) {
	for _, r := range refs {
		k := key(p.object.Namespace, r.claim)
		c := m.dra.claims[k]
		if c == nil {
			continue
		}
		delete(c.users, p.object.UID)
		if c.carrier == p {
			c.carrier = nil
		}
		m.claimChanged(c)
		if c.object == nil && len(c.users) == 0 {
			delete(m.dra.claims, k)
		}
	}
}

// deviceClaimsSeen takes in the names of a pod's claims, which become known after
// the pod.
func (m *mirror) deviceClaimsSeen(p *pod, old *podObject) {
	if slices.Equal(p.object.deviceClaims, old.deviceClaims) {
		return
	}
	m.unrefer(p, old.deviceClaims)
	m.refer(p)
	m.reconsider(p)
}

// resolve finds out what a pod of ours needs.
func (m *mirror) resolve(p *pod) {
	if p.needs != nil || p.group == nil || !p.object.ours || p.state == podWaiting && !m.ours(p.group) {
		return
	}
	o, wrong := m.inherit(p)
	if wrong != nil {
		p.needs = &needs{request: o.request, reason: ReasonMisconfigured, detail: wrong.Error()}
		return
	}
	if o.attributes.GPUMemory > 0 && o.amounts.GPUs == 0 {
		m.resolveMemory(p, o)
		return
	}
	if len(o.deviceClaims) == 0 {
		if o != p.object || o.request.GPU > 0 && (m.dra.any || m.gpuKinds.others(o.resource)) {
			n := m.byResource(o)
			p.needs = &n
		}
		return
	}
	n := &needs{request: withSelector(o.request)}
	p.needs = n
	stop := func(reason, format string, args ...any) {
		if n.reason == "" || reason == ReasonMisconfigured {
			n.reason, n.detail = reason, fmt.Sprintf(format, args...)
		}
	}
	if !m.dra.served {
		stop(ReasonMisconfigured, "the pod has resource claims, but this cluster does not serve %s", resourceapi.SchemeGroupVersion)
		return
	}
	gpus, nics := 0, 0
	for i := range o.deviceClaims {
		r := &o.deviceClaims[i]
		if r.none {
			continue
		}
		c := m.claimOf(key(o.Namespace, r.claim))
		if r.claim == "" || c.object == nil || c.object.deleting {
			stop(ReasonClaimPending, "resource claim %s does not exist yet", cmp.Or(r.claim, r.name))
			continue
		}
		need, shared := claimNeed{claim: c, consumer: consumer(p)}, false
		if pg := m.podGroupOf(p.group); pg != nil {
			for _, g := range pg.deviceClaims {
				if g.name == r.name && g.source == r.source && g.template == r.template {
					shared = true
					need.consumer = resourceapi.ResourceClaimConsumerReference{
						APIGroup: schedulingv1beta1.GroupName, Resource: "podgroups", Name: pg.Name, UID: pg.UID,
					}
				}
			}
		}
		if r.template && !shared && c.object.owner != o.UID {
			stop(ReasonClaimPending, "resource claim %s belongs to another pod", r.claim)
			continue
		}
		m.resolveClaim(p, &need, stop, &gpus, &nics)
		n.claims = append(n.claims, need)
	}
	switch {
	case gpus > 0 && o.request.GPU > 0:
		stop(ReasonMisconfigured, "GPUs are requested by claims and by a resource or an annotation: expected one of them")
	case gpus > cluster.MaxGPUs:
		stop(ReasonMisconfigured, "%d GPUs are requested, expected at most %d per pod", gpus, cluster.MaxGPUs)
	case nics > gpus && p.state == podWaiting:
		stop(ReasonMisconfigured, "%d network devices and %d GPUs are requested: expected at most one network device per GPU", nics, gpus)
	}
	if n.reason != "" {
		m.dra.stuck[p] = true
	}
	if gpus > 0 {
		n.request.GPU = core.Milli(gpus) * core.WholeGPU
	}
	if nics > 0 {
		n.request.Selector = append(n.request.Selector, core.Requirement{Key: nicsLabel, Op: cluster.In, Values: []string{"paired"}})
	}
}

// withSelector returns a request with further requirements, its lists its own.
func withSelector(r core.Request, more ...core.Requirement) core.Request {
	r.Selector = slices.Concat(r.Selector, more)
	return r
}

// consumer is how a claim names the pod.
func consumer(p *pod) resourceapi.ResourceClaimConsumerReference {
	return resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: p.object.Name, UID: p.object.UID}
}

// resolveClaim adds what a claim needs to what its pod needs: devices if the pod
// carries them, the node where they are if another does.
func (m *mirror) resolveClaim(p *pod, need *claimNeed, stop func(reason, format string, args ...any), gpus, nics *int) {
	c, o := need.claim, need.claim.object
	if o.wrong != "" && !o.allocated {
		stop(ReasonMisconfigured, "resource claim %s: %s", o.Name, o.wrong)
		return
	}
	carrier, gang := m.carrier(c), m.inGang(p)
	if p.state != podWaiting {
		if need.carries = carrier == p; !need.carries {
			return
		}
		if o.spec != nil {
			var ignored int
			m.resolveRequests(p, o, func(string, string, ...any) {}, &ignored, &ignored)
		}
		*gpus += len(m.gpusOf(c, p.target))
		return
	}
	if o.allocated {
		switch other, live := m.inUse(c, p, need.consumer.UID); {
		case live:
		case other != "":
			stop(ReasonClaimPending, "resource claim %s is still reserved for %s", o.Name, other)
			return
		default:
			// Left over from a start that failed, or from a gang that left.
			m.acts.release = append(m.acts.release, act.Claim{
				Namespace: o.Namespace, Name: o.Name, UID: o.UID, Consumer: need.consumer, Last: true,
			})
			stop(ReasonClaimPending, "the devices of resource claim %s are being released", o.Name)
			return
		}
		if o.node != nil {
			if err := translate.InNodes(o.node, &p.needs.request); err != nil {
				stop(ReasonMisconfigured, "resource claim %s: %v", o.Name, err)
			}
		}
		return
	}
	switch {
	case carrier != nil && carrier != p && carrier.slot < 0 && carrier.state == podWaiting && !carrier.ready():
		carrier.needs = nil // another goes first
		fallthrough
	case carrier == nil || carrier == p:
		c.carrier, need.carries = p, true
	case carrier.group == p.group && gang:
		p.needs.together = true
		return
	default:
		stop(ReasonClaimPending, "the devices of resource claim %s must first be allocated to pod %s", o.Name, carrier.object.Name)
		return
	}
	m.resolveRequests(p, o, stop, gpus, nics)
}

// inUse reports whether a pod that has a node uses a claim, or else names who
// beside p, or the consumer that stands for it, the claim is reserved for.
func (m *mirror) inUse(c *claim, p *pod, consumer types.UID) (other string, live bool) {
	for _, u := range c.users {
		if u != p && u.state != podWaiting {
			return "", true
		}
	}
	for _, r := range c.object.consumers {
		if u := m.pods[r.UID]; u != nil && u != p && u.state != podWaiting {
			return "", true
		}
		if r.UID != p.object.UID && r.UID != consumer {
			other = r.Resource + " " + r.Name
		}
	}
	return other, false
}

// inGang reports whether a pod's group starts whole.
func (m *mirror) inGang(p *pod) bool {
	pg := m.podGroupOf(p.group)
	return pg != nil && pg.min > 1 || p.group.gang()
}

// carrier returns the pod to which the devices of a claim are counted, nil when
// there is none.
func (m *mirror) carrier(c *claim) *pod {
	if c.carrier != nil && m.pods[c.carrier.object.UID] == c.carrier {
		return c.carrier
	}
	c.carrier = nil
	if c.object == nil || !c.object.allocated {
		return nil
	}
	for _, r := range c.object.consumers {
		if p := c.users[r.UID]; p != nil && p.state != podWaiting {
			c.carrier = p
			return p
		}
	}
	if list := inOrder(c.users, func(p *pod) bool { return p.state != podWaiting }); len(list) > 0 {
		c.carrier = list[0]
	}
	return c.carrier
}

// resolveRequests adds the requests of a claim to what a pod needs.
func (m *mirror) resolveRequests(p *pod, o *deviceClaimObject, stop func(reason, format string, args ...any), gpus, nics *int) {
	fail := func(reason, format string, args ...any) {
		stop(reason, "resource claim "+o.Name+": "+format, args...)
	}
	type span struct{ gpus, nics, firstGPU, firstNIC int }
	spans := make([]span, len(o.spec.Requests))
	for i := range o.spec.Requests {
		r := &o.spec.Requests[i]
		var any [][]core.Requirement
		count, nic := 0, false
		for j := range r.Any {
			need := &r.Any[j]
			class := m.dra.classes[need.Class]
			if class == nil {
				fail(ReasonClaimPending, "request %s: device class %s does not exist", need.Name, need.Class)
				return
			}
			if class.wrong != "" {
				fail(ReasonMisconfigured, "device class %s: %s", class.Name, class.wrong)
				return
			}
			q, err := m.askSelector(class, need.Selectors)
			if err != nil {
				fail(ReasonMisconfigured, "request %s: %v", need.Name, err)
				return
			}
			switch {
			case q.gpus == 0 && q.nics == 0:
				if len(r.Any) == 1 {
					fail(ReasonClaimPending, "request %s: no node publishes such a device", need.Name)
					return
				}
				continue
			case q.gpus > 0 && q.nics > 0:
				fail(ReasonMisconfigured, "request %s: its selectors match both GPUs and network devices; expected one kind", need.Name)
				return
			case q.nics > 0:
				nic, count = true, max(1, need.Count)
				any = append(any, []core.Requirement{{Key: q.label + "-nics", Op: cluster.In, Values: []string{"all"}}})
				if need.Count == 0 {
					fail(ReasonMisconfigured, "request %s: allocation mode All is only supported for GPUs; expected a count of network devices", need.Name)
				}
				continue
			case q.all == 0:
				fail(ReasonMisconfigured, "request %s: its selectors match some GPUs of a node but not all; expected selectors that choose nodes, such as by model", need.Name)
				return
			}
			with := []core.Requirement{{Key: q.label, Op: cluster.In, Values: []string{"all"}}}
			count = need.Count
			if need.Count == 0 {
				if len(q.sizes) > 1 {
					fail(ReasonMisconfigured, "request %s: nodes have %s such GPUs, so allocation mode All is ambiguous; expected a count", need.Name, sizes(q.sizes))
					return
				}
				for n := range q.sizes {
					count = n
				}
				with = append(with, core.Requirement{Key: gpusLabel, Op: cluster.In, Values: []string{strconv.Itoa(count)}})
			}
			any = append(any, with)
		}
		switch len(any) {
		case 0:
			fail(ReasonClaimPending, "request %s: no node publishes such a device", r.Name)
			return
		case 1:
			p.needs.request.Selector = append(p.needs.request.Selector, any[0]...)
		default:
			translate.AddAlternatives(&p.needs.request, any)
		}
		spans[i] = span{firstGPU: *gpus, firstNIC: *nics}
		if nic {
			spans[i].nics = count
			*nics += count
		} else {
			spans[i].gpus = count
			*gpus += count
		}
	}
	for i := range o.spec.Constraints {
		k := &o.spec.Constraints[i]
		sum := span{firstGPU: -1, firstNIC: -1}
		for j, s := range spans {
			if !k.Concerns(&o.spec.Requests[j]) {
				continue
			}
			if s.gpus > 0 && sum.firstGPU < 0 {
				sum.firstGPU = s.firstGPU
			}
			if s.nics > 0 && sum.firstNIC < 0 {
				sum.firstNIC = s.firstNIC
			}
			sum.gpus, sum.nics = sum.gpus+s.gpus, sum.nics+s.nics
		}
		aligned := sum.gpus == 1 && sum.nics == 1 && sum.firstGPU == sum.firstNIC
		q := m.ask(fmt.Sprintf("constraint\x00%s\x00%d\x00%d\x00%t", k.Key(), sum.gpus, sum.nics, aligned), func(v *translate.Inventory) answer {
			if v.Count() > 0 && k.Holds(v, sum.gpus, sum.nics, aligned) {
				return answer{gpus: translate.MatchAll}
			}
			return answer{}
		})
		if q.all == 0 {
			fail(ReasonMisconfigured, "the constraint on %s is not supported: on no node does it hold for all devices that can be chosen", k.Attribute)
			return
		}
		p.needs.request.Selector = append(p.needs.request.Selector, core.Requirement{Key: q.label, Op: cluster.In, Values: []string{"all"}})
	}
}

func sizes(of map[int]int) string {
	var out []string
	for _, n := range slices.Sorted(maps.Keys(of)) {
		out = append(out, strconv.Itoa(n))
	}
	return strings.Join(out, " or ")
}

// gpusOf returns which GPUs of a node a claim has, by the engine's numbers.
func (m *mirror) gpusOf(c *claim, node string) []int {
	p := m.dra.nodes[node]
	if p == nil || p.inventory == nil || c.object == nil {
		return nil
	}
	devices := c.object.devices
	if !c.object.allocated {
		devices = translate.AllocatedDevices(c.granted)
	}
	var out []int
	for i := range p.inventory.GPUs {
		if d := &p.inventory.GPUs[i]; d.Name != "" && slices.Contains(devices, d.DeviceID) {
			out = append(out, i)
		}
	}
	return out
}

// claimed returns the GPUs of the claims that a pod carries, where it is; false
// when it has no claims.
func (m *mirror) claimed(p *pod) ([]int, bool) {
	if p.object.extended != "" {
		if c := m.dra.claims[key(p.object.Namespace, p.object.extended)]; c != nil {
			return m.gpusOf(c, p.target), true
		}
	}
	if p.needs == nil || len(p.needs.claims) == 0 {
		return nil, false
	}
	var out []int
	for i := range p.needs.claims {
		if n := &p.needs.claims[i]; n.carries {
			out = append(out, m.gpusOf(n.claim, p.target)...)
		}
	}
	return out, true
}

// together reports whether pods of the group share devices, and so a node.
func (g *group) together() bool {
	for _, p := range g.pods {
		if p.needs != nil && p.needs.together {
			return true
		}
	}
	return false
}
