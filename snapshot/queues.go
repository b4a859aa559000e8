package snapshot

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/api/strict"
	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// ParseQueues reads the queues section of a snapshot by itself, as queues.json
// of a run has it: an object with a field queues. Parents come first in the
// result. Errors are of type [*workload.Error].
func ParseQueues(name string, data []byte) ([]core.Queue, error) {
	var f struct {
		Queues []queue `json:"queues"`
	}
	src, err := strict.Decode(name, data, &f)
	if err != nil {
		return nil, err
	}
	r := reader{src: src}
	err = r.listed(&file{Queues: f.Queues})
	return r.s.Queues, err
}

func (r *reader) queues(f *file) error {
	if len(f.Queues) == 0 {
		r.queue = map[string]bool{}
		return r.openQueues(f)
	}
	return r.listed(f)
}

// listed reads the queues that the file lists.
func (r *reader) listed(f *file) error {
	r.queue = map[string]bool{}
	for i := range f.Queues {
		q, at := &f.Queues[i], fmt.Sprintf("queues[%d]", i)
		if err := r.unique(r.queue, at+".name", q.Name); err != nil {
			return err
		}
		if err := r.checkQuota(q, at); err != nil {
			return err
		}
	}
	r.addParents(f)
	return r.orderQueues(f.Queues)
}

// addParents adds the parents that the file names and does not list: top-level
// queues without a quota of their own.
func (r *reader) addParents(f *file) {
	for i := range f.Queues {
		if parent := f.Queues[i].Parent; parent != "" && !r.queue[parent] {
			r.queue[parent] = true
			f.Queues = append(f.Queues, queue{Name: parent})
		}
	}
}

// openQueues makes the queues that jobs name, without limits, for a snapshot
// that has none.
func (r *reader) openQueues(f *file) error {
	for i := range f.Jobs {
		j := &f.Jobs[i]
		if j.Queue == "" {
			j.Queue = "default"
		}
		if !r.queue[j.Queue] {
			r.queue[j.Queue] = true
			r.s.Queues = append(r.s.Queues, core.Queue{Name: j.Queue, Weight: 1})
		}
	}
	return nil
}

func (r *reader) checkQuota(q *queue, at string) error {
	models := map[string]bool{}
	for i, e := range q.Quota {
		path := fmt.Sprintf("%s.quota[%d]", at, i)
		if err := r.unique(models, path+".model", e.Model); err != nil {
			return err
		}
		if e.Model != "*" && cluster.CheckModel(e.Model) != nil {
			return r.src.Errorf(path+".model", "* or a GPU model, whose name does not begin with /; found %q", e.Model)
		}
	}
	resources := map[string]bool{}
	for i, e := range q.Resources {
		if err := r.unique(resources, fmt.Sprintf("%s.resources[%d].name", at, i), string(e.Name)); err != nil {
			return err
		}
	}
	return nil
}

// orderQueues adds the queues, parents first, or finds why there is no such
// order.
func (r *reader) orderQueues(queues []queue) error {
	index := map[string]int{}
	for i := range queues {
		index[queues[i].Name] = i
	}
	added := make([]bool, len(queues))
	for i := range queues {
		chain, err := r.ancestors(queues, index, added, i)
		if err != nil {
			return err
		}
		for _, k := range slices.Backward(chain) {
			added[k] = true
			q := &queues[k]
			r.s.Queues = append(r.s.Queues, q.Queue(q.Name))
			entry := q.GPUTime.Queue(q.Name)
			if err := served(r, fmt.Sprintf("queues[%d].gpuTime", k), &r.s.Counted.Queues, entry, entry.All, entry.Own); err != nil {
				return err
			}
		}
	}
	v1alpha1.Contain(r.s.Queues, func(name string) bool { return queues[index[name]].QuotaScope == "Subtree" })
	return nil
}

// ancestors lists queue i and those above it that were not added yet, innermost
// first.
func (r *reader) ancestors(queues []queue, index map[string]int, added []bool, i int) ([]int, error) {
	var chain []int
	for !added[i] {
		chain = append(chain, i)
		parent := queues[i].Parent
		if parent == "" {
			break
		}
		next := index[parent]
		if slices.Contains(chain, next) {
			return nil, r.src.Errorf(fmt.Sprintf("queues[%d].parent", i), "a queue that is not below this one; found %q", parent)
		}
		i = next
	}
	return chain, nil
}
