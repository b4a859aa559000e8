package devices

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/selector"
	"github.com/muster-sched/muster/kube/translate"
)

// Which of the devices of a pod each request of its claims gets.

// dealt is a request of a claim, and what it gets.
type dealt struct {
	claim   *claim
	request *translate.ClaimRequest
	options []option
	chosen  *option // nil for none
	devices []translate.DeviceID
}

// option is an alternative of a request that a node has: of some GPUs, or of some network devices.
type option struct {
	need  *translate.DeviceNeed
	class *Class
	count int
	gpus  uint64
	nics  []translate.DeviceID
}

// want returns what the request wants of GPUs if it gets any of some alternatives.
func want(options ...option) (w cluster.Want) {
	for i := range options {
		if o := &options[i]; o.gpus != 0 {
			w.Devices, w.N = w.Devices|o.gpus, o.count
		}
	}
	return w
}

// deal distributes the devices of a pod to the requests of the claims that it carries.
func (x *Index) deal(s *Start, wrong map[*claim]string) {
	v := x.published[s.Node]
	if v == nil || v.inventory == nil {
		return
	}
	// 1. Of each request the first alternative with which all others can still be met.
	var all []*dealt
	var wants []cluster.Want
	for _, need := range s.Needs.claims {
		c := need.claim
		if !need.carries || c.object == nil || c.object.allocated {
			continue
		}
		for j := range c.object.spec.Requests {
			d := &dealt{claim: c, request: &c.object.spec.Requests[j]}
			d.options = x.optionsOf(d.request, v)
			all, wants = append(all, d), append(wants, want(d.options...))
		}
	}
	for i, d := range all {
		for k := range d.options {
			wants[i] = want(d.options[k])
			if d.options[k].gpus == 0 || cluster.Distribute(s.GPUs, 0, wants, nil) != nil {
				d.chosen = &d.options[k]
				break
			}
		}
		if d.chosen == nil {
			wants[i] = cluster.Want{}
		}
	}

	// 2. The GPUs, and the network devices that are nearest to them, in the order of the requests for GPUs.
	given := cluster.Distribute(s.GPUs, 0, wants, nil)
	var nics []translate.DeviceID
	rest := s.GPUs
	for i, d := range all {
		if d.chosen != nil && given != nil {
			var near []translate.DeviceID
			d.devices, near = v.devices(given[i])
			nics, rest = append(nics, near...), rest&^given[i]
		}
	}
	_, near := v.devices(rest)
	nics = append(nics, near...)
	for _, d := range all {
		for k := 0; d.chosen != nil && d.chosen.gpus == 0 && k < len(nics) && len(d.devices) < d.chosen.count; {
			if !slices.Contains(d.chosen.nics, nics[k]) {
				k++
				continue
			}
			d.devices = append(d.devices, nics[k])
			nics = slices.Delete(nics, k, k+1)
		}
	}

	// 3. A claim gets devices for all of its requests, or none.
	grants := map[*claim][]translate.Grant{}
	for _, d := range all {
		switch {
		case wrong[d.claim] != "":
		case d.chosen == nil || len(d.devices) != d.chosen.count:
			wrong[d.claim] = fmt.Sprintf("node %s no longer has the devices for request %s", s.Node, d.request.Name)
		default:
			grants[d.claim] = append(grants[d.claim], translate.Grant{Need: d.chosen.need, Devices: d.devices, Config: d.chosen.class.config})
		}
	}
	for c, list := range grants {
		if wrong[c] == "" {
			c.granted = c.object.spec.Allocation(s.Node, list)
		}
	}
}

// optionsOf returns the alternatives of a request that a node has, in their order.
func (x *Index) optionsOf(r *translate.ClaimRequest, v *published) []option {
	var out []option
	for i := range r.Any {
		need := &r.Any[i]
		class := x.classes[need.Class]
		if class == nil {
			continue
		}
		q := x.asked(class, need.Selectors)
		if q == nil || q.compiled == nil {
			continue // the class is another by now
		}
		o := option{need: need, class: class, count: need.Count}
		switch a := v.answers[q]; {
		case a.nics != selector.None && a.gpus == selector.None:
			o.nics = q.nicsOf(v)
		case a.gpus != selector.None && a.nics == selector.None:
			if o.gpus = a.devices; o.count == 0 { // allocation mode All
				o.count = bits.OnesCount64(o.gpus)
			}
		default:
			continue
		}
		out = append(out, o)
	}
	return out
}

// nicsOf returns the network devices of a node for which a question holds.
func (q *question) nicsOf(v *published) []translate.DeviceID {
	var out []translate.DeviceID
	for i := range v.inventory.NICs {
		if d := &v.inventory.NICs[i]; q.compiled.Holds(d) {
			out = append(out, d.DeviceID)
		}
	}
	return out
}
