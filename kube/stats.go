package kube

import (
	"cmp"
	"context"
	"math/bits"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/core"
)

// Stats is how a cluster stands, as the scheduler sees it.
type Stats struct {
	// Models are the GPU models there are, by name; Queues the queues, by name.
	Models []ModelStats
	Queues []QueueStats
	// Nodes counts nodes, Open those that take new pods.
	Nodes, Open int
	// Jobs counts jobs of Muster's that are not over.
	Jobs int
	// Waiting, Bound and Running count pods: those without a place, those with
	// one, and those of them that have started there.
	Waiting, Bound, Running int
	// Reasons counts the jobs that wait, by why.
	Reasons map[string]int
}

// ModelStats is how the GPUs of a model stand.
type ModelStats struct {
	Model string
	Nodes int
	// GPUs counts devices, Unhealthy those that may not be used; Used is how
	// much of them pods hold.
	GPUs, Unhealthy int
	Used            core.Milli
	// Fragmented counts nodes of which some GPUs are free and some are not.
	Fragmented int
}

// QueueStats is how a queue stands: itself, without those below it.
type QueueStats struct {
	Name string
	// Used is what its jobs hold of each GPU model.
	Used map[string]core.Milli
	// Waiting counts jobs of which pods wait, Running jobs of which pods run.
	Waiting, Running int
}

// Stats asks how the cluster stands. It costs a look at every pod, and waits
// for the scheduler's pass under way.
func (s *Scheduler) Stats(ctx context.Context) (Stats, error) {
	answer := make(chan Stats, 1)
	s.box.put(func(m *mirror) { answer <- m.stats() })
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		return Stats{}, ctx.Err()
	}
}

func (m *mirror) stats() Stats {
	st := Stats{Reasons: map[string]int{}}
	models := map[string]*ModelStats{}
	for _, n := range m.nodes {
		if n.gone || !n.known {
			continue
		}
		st.Nodes++
		if !n.told.Cordoned {
			st.Open++
		}
		if n.told.GPUs == 0 {
			continue
		}
		of := models[n.told.Model]
		if of == nil {
			of = &ModelStats{Model: n.told.Model}
			models[n.told.Model] = of
		}
		of.Nodes++
		of.GPUs += n.told.GPUs
		of.Unhealthy += bits.OnesCount64(n.sick)
		var used [64]core.Milli
		for _, p := range n.pods {
			for d := p.devices; d != 0; d &= d - 1 {
				used[bits.TrailingZeros64(d)] += p.share()
			}
		}
		free, full := true, true
		for d := range n.told.GPUs {
			of.Used += used[d]
			free = free && used[d] == 0
			full = full && used[d] >= core.WholeGPU
		}
		if !free && !full {
			of.Fragmented++
		}
	}
	queues := map[string]*QueueStats{}
	for name := range m.queues.told {
		queues[name] = &QueueStats{Name: name, Used: map[string]core.Milli{}}
	}
	for _, g := range m.groups {
		m.count(g, &st, queues)
	}
	for _, of := range models {
		st.Models = append(st.Models, *of)
	}
	slices.SortFunc(st.Models, func(a, b ModelStats) int { return strings.Compare(a.Model, b.Model) })
	for _, name := range sortedKeys(queues) {
		st.Queues = append(st.Queues, *queues[name])
	}
	return st
}

// count adds a group to what is counted.
func (m *mirror) count(g *group, st *Stats, queues map[string]*QueueStats) {
	var first *pod
	waits, runs := false, false
	used := map[string]core.Milli{}
	for _, p := range g.pods {
		first = p
		if p.state == podWaiting {
			st.Waiting++
			waits = true
			continue
		}
		st.Bound++
		if p.object.phase == v1.PodRunning {
			st.Running++
		}
		runs = true
		if n := m.nodes[p.target]; n != nil {
			used[n.told.Model] += core.Milli(bits.OnesCount64(p.devices)) * p.share()
		}
	}
	if waits {
		st.Reasons[cmp.Or(g.waiting.reason, "New")]++
	}
	if first == nil || g.id.Kind == others {
		return
	}
	st.Jobs++
	q := queues[m.queueOf(g, m.attributesOf(g, first))]
	if q == nil {
		return
	}
	if waits {
		q.Waiting++
	}
	if runs {
		q.Running++
	}
	for model, n := range used {
		q.Used[model] += n
	}
}
