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
		if r.nicRequests != 1 || r.gpuRequests != 1 || r.lastGPUs == nil {
			r.stop(ReasonMisconfigured, "request %s: its selectors match some network devices of a node but not all; expected it beside one request for GPUs and no other for network devices, or selectors that choose nodes", s.name)
			return
		}
		both := r.beside(r.lastGPUs, s.nics)
		if both == nil || !r.await(both, true, s.name, r.stop) {
			return
		}
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

// either returns the question whether one of several holds, nil if it may not be asked.
func (r *resolution) either(of []*question) *question {
	key := "either"
	for _, q := range of {
		key += "\x00" + q.label
	}
	return r.ask(key, true, func(q *question) {
		q.parts = of
		q.answers = func(v *translate.Inventory) (a answer) {
			held := uint64(0)
			for _, q := range of {
				held |= q.answers(v).devices
			}
			a.hold(v, func(i int) bool { return held>>i&1 == 1 })
			return a
		}
	})
}

// beside returns the question for which GPUs the first one holds, and the selectors of the second one for their network devices; nil
// if it may not be asked.
func (r *resolution) beside(gpus, nics *question) *question {
	return r.ask("beside\x00"+gpus.label+"\x00"+nics.label, true, func(q *question) {
		q.parts = []*question{gpus, nics}
		q.answers = func(v *translate.Inventory) (a answer) {
			of := gpus.answers(v).devices
			a.hold(v, func(i int) bool {
				nic := v.Layout[i].NIC
				return of>>i&1 == 1 && nic >= 0 && nics.compiled.Holds(&v.NICs[nic])
			})
			return a
		}
	})
}
