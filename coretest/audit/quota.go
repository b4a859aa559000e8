package audit

import (
	"errors"
	"io/fs"
	"math"
	"os"

	"github.com/muster-sched/muster/workload"
)

// queue is a queue's quota and use, in milli-GPU by model or anyModel.
type queue struct {
	name     string
	weight   float64 // among its siblings
	parent   *queue
	isolated bool
	nominal  map[string]int64 // nil without quota
	used     map[string]int64 // by jobs that count against nominal
	locked   map[string]int64 // by those of them that are locked
	// below is what the queue and those below it own together, tree what they use of it.
	below, tree map[string]int64
	// all bounds what runs, perUser what each user's jobs do; users are those that had any.
	all, perUser bounds
	users        map[string]*bounds
	// resources is the quota and use of CPU, in milli-cores, and of memory, in MiB.
	resources [2]resource
}

// resource is a queue's quota and use of CPU or of memory, with the fields of [queue].
type resource struct {
	listed                             bool
	nominal, used, locked, below, tree int64
}

var resources = [2]struct {
	name, unit string
	scale      float64 // of a unit, in a core or byte
}{{"cpu", "milli-cores", 1000}, {"memory", "MiB", 1.0 / (1 << 20)}}

// anyModel is the model of a quota over all models, noLimit what a queue owns without limit.
const (
	anyModel = "*"
	noLimit  = int64(1) << 40
)

// readQueues reads queues.json; without one there are no queues to check.
func readQueues(path string) (map[string]*queue, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var file struct {
		Queues []struct {
			Name, Parent, Mode                    string
			Weight                                *float64
			MaxRunningJobs, MaxRunningJobsPerUser int64
			MaxRunningGPUs, MaxRunningGPUsPerUser float64
			Quota                                 []struct {
				Model   string
				Nominal float64
			}
			Resources []struct {
				Name    string
				Nominal float64
			}
		}
	}
	if err := readJSON(path, &file); err != nil {
		return nil, err
	}
	queues := map[string]*queue{}
	for _, r := range file.Queues {
		q := &queue{
			name: r.Name, parent: queues[r.Parent], isolated: r.Mode == "Isolated",
			used: map[string]int64{}, locked: map[string]int64{}, below: map[string]int64{}, tree: map[string]int64{},
			all: bounds{jobs: r.MaxRunningJobs, gpu: milli(r.MaxRunningGPUs)}, perUser: bounds{jobs: r.MaxRunningJobsPerUser, gpu: milli(r.MaxRunningGPUsPerUser)},
			users: map[string]*bounds{},
		}
		if q.weight = 1; r.Weight != nil {
			q.weight = *r.Weight
		}
		if r.Parent != "" && q.parent == nil {
			return nil, &workload.Error{File: path, Field: r.Name, Want: "a parent that comes before it, found " + r.Parent}
		}
		for _, x := range r.Quota {
			if q.nominal == nil {
				q.nominal = map[string]int64{}
			}
			q.nominal[x.Model] = milli(x.Nominal)
			if x.Nominal < 0 { // without limit
				q.nominal[x.Model] = noLimit
			}
			for up := q; up != nil; up = up.parent {
				up.below[x.Model] += q.nominal[x.Model]
			}
		}
		for _, x := range r.Resources {
			for k := range resources {
				if resources[k].name != x.Name {
					continue
				}
				own := &q.resources[k]
				own.listed, own.nominal = true, int64(math.Round(x.Nominal*resources[k].scale))
				if x.Nominal < 0 {
					own.nominal = noLimit
				}
				for up := q; up != nil; up = up.parent {
					up.resources[k].below += own.nominal
				}
			}
		}
		queues[r.Name] = q
	}
	return queues, nil
}

func milli(gpus float64) int64 { return int64(math.Round(gpus * wholeGPU)) }

// charge counts a pod against the quota of the nearest queue upwards that has any, and
// checks that no Isolated queue's jobs use more than its own, nor more with those below
// it than all of them own.
func (a *auditor) charge(j *job, n *node, p *pod, sign int64) {
	a.bounded(j, p, sign)
	q := a.queues[j.queue]
	for q != nil && q.nominal == nil {
		q = q.parent
	}
	if sign > 0 && j.bound == 0 {
		j.exposed = false
	}
	a.chargeResources(j, p, sign)
	if p.amount() == 0 {
		return
	}
	if j.locked && sign > 0 && a.exposes(q, n.model, p.amount()) {
		j.exposed = true
	}
	if q == nil {
		return
	}
	_, all := q.nominal[anyModel]
	for _, model := range []string{n.model, anyModel} {
		nominal, listed := q.nominal[model]
		if !listed && (all || model == anyModel || a.free(model)) {
			continue
		}
		q.used[model] += sign * p.amount()
		if j.locked {
			q.locked[model] += sign * p.amount()
		}
		for up := q; up != nil; up = up.parent {
			up.tree[model] += sign * p.amount()
		}
		if sign < 0 {
			continue
		}
		if q.isolated && q.used[model] > nominal {
			a.breach(Quota, "job %s brings Isolated queue %s to %d milli-GPU of model %s, nominal %d",
				j.name, q.name, q.used[model], model, nominal)
			continue
		}
		for up := q; up != nil; up = up.parent {
			if up.isolated && up.tree[model] > up.below[model] {
				a.breach(Quota, "job %s brings Isolated queue %s and those below it to %d milli-GPU of model %s, nominal %d",
					j.name, up.name, up.tree[model], model, up.below[model])
			}
		}
	}
}

// chargeResources is charge for CPU and memory: each counts against the quota of the nearest queue upwards
// that lists it.
func (a *auditor) chargeResources(j *job, p *pod, sign int64) {
	for k, amount := range [2]int64{p.cpu, p.mem} {
		q := a.queues[j.queue]
		for q != nil && !q.resources[k].listed {
			q = q.parent
		}
		if q == nil || amount == 0 {
			continue
		}
		own := &q.resources[k]
		if j.locked && sign > 0 && own.locked+amount > own.nominal {
			j.exposed = true
		}
		own.used += sign * amount
		if j.locked {
			own.locked += sign * amount
		}
		for up := q; up != nil; up = up.parent {
			up.resources[k].tree += sign * amount
		}
		if sign < 0 {
			continue
		}
		of := &resources[k]
		if q.isolated && own.used > own.nominal {
			a.breach(Quota, "job %s brings Isolated queue %s to %d %s of %s, nominal %d", j.name, q.name, own.used, of.unit, of.name, own.nominal)
			continue
		}
		for up := q; up != nil; up = up.parent {
			if sum := &up.resources[k]; up.isolated && sum.tree > sum.below {
				a.breach(Quota, "job %s brings Isolated queue %s and those below it to %d %s of %s, nominal %d",
					j.name, up.name, sum.tree, of.unit, of.name, sum.below)
			}
		}
	}
}

// exposes reports whether a locked job that gets so much of a model beside the others that
// count against the quota of q, nil for none, has more than nominal quota covers. The
// engine starts no job so: it was found running.
func (a *auditor) exposes(q *queue, model string, amount int64) bool {
	if a.free(model) {
		return false
	}
	if q == nil {
		return true
	}
	governed := false
	for _, m := range []string{model, anyModel} {
		nominal, listed := q.nominal[m]
		if listed && q.locked[m]+amount > nominal {
			return true
		}
		governed = governed || listed
	}
	return !governed
}

// free reports whether no queue has a quota of the GPU model, nor of all models together.
func (a *auditor) free(model string) bool {
	for _, q := range a.queues {
		_, listed := q.nominal[model]
		_, all := q.nominal[anyModel]
		if listed || all {
			return false
		}
	}
	return true
}
