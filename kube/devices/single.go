package devices

import (
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/translate"
)

// Requests whose selectors hold for single devices of a node: the engine picks among these, which it knows as a device set
// by the label of the question.

// singles is what is known of such requests while a pod is resolved.
type singles struct {
	gpuRequests, nicRequests int
	lastGPUs                 *question // what the last request for GPUs asks of them, nil if it has alternatives
	nicsOfSome               []nicsOfSome
}

// nicsOfSome is a request for network devices whose selectors hold for some of a node.
type nicsOfSome struct {
	name  string
	nics  *question
	need  *translate.DeviceNeed
	count int
}

// inSet requires that a question holds for all GPUs of the node or, if the engine picks among those for which it
// holds, for some.
func inSet(q *question) core.Requirement {
	values := []string{"all"}
	if q.single {
		values = append(values, "some")
	}
	return core.Requirement{Key: q.label, Op: cluster.In, Values: values}
}

// from adds to the request that so many GPUs more are of those for which a question holds.
func (r *resolution) from(q *question, count int) {
	list := slices.Clone(r.out.Request.From)
	i, ok := slices.BinarySearchFunc(list, q.label, func(a core.Amount, name string) int { return strings.Compare(a.Name, name) })
	if !ok {
		list = slices.Insert(list, i, core.Amount{Name: q.label})
	}
	if list[i].Value += int64(count); list[i].Value == 0 {
		list = slices.Delete(list, i, i+1)
	}
	r.out.Request.From = list
}

// addNICs turns requests for some network devices of a node into requests for the GPUs to which these are the nearest: each GPU
// that the engine picks brings its own. With several requests for GPUs, or for network devices, it would have to pick
// for all of them at once.
func (r *resolution) addNICs() {
	for _, s := range r.nicsOfSome {
		class := r.classes[s.need.Class]
		if r.nicRequests != 1 || r.gpuRequests != 1 || r.lastGPUs == nil || class == nil {
			r.stop(ReasonMisconfigured, "request %s: its selectors match some network devices of a node but not all; expected it beside one request for GPUs and no other for network devices, or selectors that choose nodes", s.name)
			return
		}
		selector, err := translate.CompileSelector(slices.Concat(class.selectors, s.need.Selectors))
		if err != nil {
			return // it was compiled before
		}
		both := r.beside(r.lastGPUs, s.nics, selector)
		if both.gpus == 0 {
			r.stop(ReasonMisconfigured, "request %s: on no node is such a network device the nearest to a GPU that the pod requests", s.name)
			return
		}
		r.require(inSet(both))
		if both.single {
			n := min(s.count, r.gpus)
			if r.lastGPUs.single {
				r.from(r.lastGPUs, -n)
			}
			r.from(both, n)
		}
	}
}

// either returns the question whether one of several holds.
func (x *Index) either(of []*question) *question {
	key := "either"
	for _, q := range of {
		key += "\x00" + q.label
	}
	return x.ask(key, func(v *translate.Inventory) (a answer) {
		held := uint64(0)
		for _, q := range of {
			held |= q.answer(v).devices
		}
		a.hold(v, func(i int) bool { return held>>i&1 == 1 })
		return a
	})
}

// beside returns the question for which GPUs the first one holds, and a selector for their network devices.
func (x *Index) beside(gpus, nics *question, selector *translate.Selector) *question {
	return x.ask("beside\x00"+gpus.label+"\x00"+nics.label, func(v *translate.Inventory) (a answer) {
		of := gpus.answer(v).devices
		a.hold(v, func(i int) bool {
			nic := v.Layout[i].NIC
			return of>>i&1 == 1 && nic >= 0 && selector.Holds(&v.NICs[nic])
		})
		return a
	})
}
