package workload

import (
	"github.com/muster-sched/muster/core"
)

// asiRow is the jobs of one group, class and size, before they are distributed over GPU
// models.
type asiRow struct {
	group *asiGroup
	size  asiSize
	class core.Class
	share float64 // of the jobs, in per cent
	life  logNormal
	work  float64   // GPU-seconds of the row's jobs in every hundred jobs
	prior []float64 // how much each pool is preferred
}

// asiEntries distributes the mix over the pools: together the entries request the load of
// the options and, within it, the shares of each pool that its columns hp and all give.
func asiEntries(pools []asiPool, o *Options) []asiEntry {
	rows, work := asiRows(pools)
	rate := or(o.Load, asiLoad) * float64(asiGPUs(pools)) / work // hundreds of jobs a second
	var entries []asiEntry
	for _, class := range []core.Class{core.HP, core.LP} {
		for _, r := range spreadOver(pools, rows, class) {
			for i := range pools {
				if r.prior[i] == 0 {
					continue
				}
				for _, cores := range r.group.cores {
					e := r.entry(&pools[i], cores, o)
					e.rate = rate * r.share * r.prior[i] / float64(len(r.group.cores))
					entries = append(entries, e)
				}
			}
		}
	}
	return entries
}

// asiRows returns the rows of the mix that fit the pools, and the work of all.
func asiRows(pools []asiPool) (rows []asiRow, work float64) {
	for g := range asiGroups {
		group := &asiGroups[g]
		for _, size := range group.sizes {
			for class, part := range []float64{group.hp, 100 - group.hp} {
				r := asiRow{group: group, size: size, class: core.Class(class), life: group.life}
				if size.gpus > gpusPerNode {
					r.life = group.burst
				}
				r.share = group.share * size.share / 100 * part / 100
				r.work = r.share * size.gpus * r.life.cutMean(asiLongest.Seconds())
				if r.prefers(pools) {
					rows = append(rows, r)
					work += r.work
				}
			}
		}
	}
	return rows, work
}

// prefers fills in the pools that the row prefers, and reports whether there are any. A
// pool must have nodes that hold the row's pods, and a job must use at most an eighth of
// the pool, or 8 GPUs.
func (r *asiRow) prefers(pools []asiPool) bool {
	found := false
	r.prior = make([]float64, len(pools))
	for i, p := range pools {
		if r.size.pod <= float64(p.gpus) && r.size.gpus <= max(gpusPerNode, 0.125*float64(p.nodes*p.gpus)) {
			r.prior[i] = r.group.on[p.model]
		}
		found = found || r.prior[i] > 0
	}
	return found && r.share > 0
}

// spreadOver divides the rows of a class among the pools by iterative proportional
// fitting: alternately in proportion to the demand for each pool and to the size of each
// row. prior becomes the share of the row's jobs that each pool gets.
func spreadOver(pools []asiPool, all []asiRow, class core.Class) []asiRow {
	var rows []asiRow
	for _, r := range all {
		if r.class == class {
			rows = append(rows, r)
		}
	}
	const turns = 200
	for range turns {
		for i, p := range pools {
			want := p.hp
			if class == core.LP {
				want = p.all - p.hp
			}
			sum := 0.0
			for _, r := range rows {
				sum += r.work * r.prior[i]
			}
			for _, r := range rows {
				if sum > 0 {
					r.prior[i] *= want * float64(p.nodes*p.gpus) / sum
				}
			}
		}
		for _, r := range rows {
			sum := 0.0
			for _, w := range r.prior {
				sum += w
			}
			for i := range r.prior {
				r.prior[i] /= sum
			}
		}
	}
	return rows
}

// The trends of XPU-A: from day 120 of six months, when kernels for it became available,
// HP jobs request 2.5 times as much of it (figure 6); LP jobs, which use what is left,
// request less.
var (
	asiAdopted   = trend{0.6735, 1.6838, 120.0 / 181, 125.0 / 181}
	asiDisplaced = trend{1.3576, 0.2511, 120.0 / 181, 125.0 / 181}
)

// entry returns the row's jobs on a pool.
func (r *asiRow) entry(p *asiPool, cores int64, o *Options) asiEntry {
	g := r.group
	e := asiEntry{life: r.life, day: g.day, trend: g.trend, alike: p.alike}
	if p.model == "XPU-A" && r.class == core.HP {
		e.trend = asiAdopted
	} else if p.model == "XPU-A" {
		e.trend = asiDisplaced
	}
	j := &e.job
	j.Kind, j.Class, j.Priority, j.Checkpoint = g.kind, r.class, normalPriority, g.checkpoint
	if r.class == core.LP {
		j.Priority = lowPriority
	} else {
		e.locked = g.locked / 100
	}
	pods := int(r.size.gpus / r.size.pod)
	perGPU := min(float64(cores), or(o.CoresCap, 1)*float64(p.cores/int64(p.gpus)))
	milli := int64(min(perGPU*r.size.pod, float64(p.cores)) * 1000)
	j.Tasks = []core.Task{{Name: g.models, Pods: pods, Request: core.Request{
		GPU: core.Milli(r.size.pod * float64(core.WholeGPU)), CPUMilli: milli, MemMiB: milli * asiPodMiB / 1000, Models: []string{p.model},
	}}}
	if g.models == "pd" {
		// Prefill and decode, each half of the pods.
		j.Tasks = []core.Task{j.Tasks[0], j.Tasks[0]}
		j.Tasks[0].Name, j.Tasks[0].Pods = "prefill", pods/2
		j.Tasks[1].Name, j.Tasks[1].Pods = "decode", pods-pods/2
	}
	if j.Gang = g.gang && pods > 1; j.Gang {
		j.Topology.Preferred = "leaf"
		e.near = asiNear * float64(min(1, p.nodes/p.leaves(o)/pods)) // none where a leaf group is too small
	}
	return e
}
