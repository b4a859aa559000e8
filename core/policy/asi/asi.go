// Package asi is the policies of ASI ("Heterogeneity at Hyperscale", OSDI 2026): SpotGPU's
// scheduling of HP and spot jobs (§4.2), and the baseline to which the paper compares it.
package asi

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/policy/doc"
)

// Docs lists the policies. The paper does not say how jobs queue: BestEffortFIFO is ours, and so
// are the pauses after failed starts.
var Docs = []doc.Doc{
	named("SpotGPU", "BestEffortFIFO; HP with HP, spot apart, by evictions so far; HP evicts the spot jobs that lose the least work", policy()),
	perGPU(),
	named("SpotGPUBaseline", "SpotGPU's yardstick: EBinpack, and HP evicts random spot jobs", baseline()),
}

func named(name, title string, p core.Policy) doc.Doc {
	p.Name = name
	return doc.Doc{Name: name, Title: title, Source: "ASI §4.2", Since: "v0.1", Policy: p}
}

func policy() core.Policy {
	return core.Policy{
		Queueing:  core.Queueing{Mode: core.BestEffortFIFO},
		Preempt:   core.Preempt{Priority: core.InCluster, Reclaim: true, HPOnly: true, EvictGrace: 60 * core.Second},
		Requeue:   core.RequeuePolicy{Backoff: 10 * core.Second, MaxBackoff: 300 * core.Second},
		Placement: core.AllKinds(place.Spot),
	}
}

// perGPU is ours: a published rule with another cost.
func perGPU() doc.Doc {
	p := policy()
	p.Preempt.Victims = core.LeastWorkPerGPU
	d := named("SpotGPUPerGPU", "SpotGPU, but HP evicts the spot jobs that lose the least work for each GPU that they free", p)
	d.Source = "Muster; ASI §4.2"
	return d
}

// baseline is without co-location and eviction awareness in the ranking of nodes, which leaves
// task packing, and with random victims.
func baseline() core.Policy {
	p := policy()
	p.Placement = core.AllKinds(place.EBinpack)
	p.Preempt.Victims = core.RandomVictims
	return p
}
