package audit

import (
	"errors"
	"io/fs"
	"math"
	"os"

	"github.com/muster-sched/muster/workload"
)

// queue is an Isolated queue's limits and use, in milli-GPU by model, or a queue
// without.
type queue struct {
	name   string
	parent *queue
	limit  map[string]int64 // nil when there is none
	used   map[string]int64
}

// anyModel is the model of a quota over all models.
const anyModel = "*"

// readQueues reads queues.json; without one there are no queues to check.
func readQueues(path string) (map[string]*queue, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var file struct {
		Queues []struct {
			Name, Parent, Mode string
			Quota              []struct {
				Model   string
				Nominal float64
			}
		}
	}
	if err := readJSON(path, &file); err != nil {
		return nil, err
	}
	queues := map[string]*queue{}
	for _, r := range file.Queues {
		q := &queue{name: r.Name, parent: queues[r.Parent], used: map[string]int64{}}
		if r.Parent != "" && q.parent == nil {
			return nil, &workload.Error{File: path, Field: r.Name, Want: "a parent that comes before it, found " + r.Parent}
		}
		if r.Mode == "Isolated" && len(r.Quota) > 0 {
			q.limit = map[string]int64{}
			for _, x := range r.Quota {
				q.limit[x.Model] = int64(math.Round(x.Nominal * wholeGPU))
			}
		}
		queues[r.Name] = q
	}
	return queues, nil
}

// charge counts a pod against its queue and the queue's parents, and checks
// their quotas.
func (a *auditor) charge(j *job, n *node, p *pod, sign int64) {
	if p.amount() == 0 {
		return
	}
	for q := a.queues[j.queue]; q != nil; q = q.parent {
		if q.limit == nil {
			continue
		}
		for _, model := range []string{n.model, anyModel} {
			q.used[model] += sign * p.amount()
			limit, listed := q.limit[model]
			if _, all := q.limit[anyModel]; !listed && (all || model == anyModel) {
				continue
			}
			if sign > 0 && q.used[model] > limit {
				a.breach(Quota, "job %s brings Isolated queue %s to %d milli-GPU of model %s, nominal %d",
					j.name, q.name, q.used[model], model, limit)
			}
		}
	}
}
