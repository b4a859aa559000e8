// Package tiresias is the discretised two-dimensional LAS, and Gittins index, of Tiresias ("Tiresias: A GPU Cluster Manager for Distributed Deep
// Learning", Gu et al., NSDI 2019): the jobs first that have received the least GPU time so far, or that are likeliest to end soon.
package tiresias

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/policy/doc"
)

// Docs lists the policies. The distribution of the second is learned from the jobs that end: the paper takes it as known.
var Docs = []doc.Doc{{
	Name: "Tiresias", Title: "BestEffortFIFO; the jobs first that have received less than 5 GPU-hours so far, by submission; others leave for them after a minute",
	Source: "Tiresias (Gu et al., NSDI 2019)", Since: "v0.1", Policy: policy("Tiresias", core.LeastAttained),
}, {
	Name: "TiresiasGittins", Title: "Tiresias, but at each level the jobs first that are likeliest to end soon for what that takes, by the jobs that have ended so far",
	Source: "Tiresias (Gu et al., NSDI 2019)", Since: "v0.2", Policy: policy("TiresiasGittins", core.GittinsIndex),
}}

func policy(name string, order core.Order) core.Policy {
	return core.Policy{
		Name:      name,
		Queueing:  core.Queueing{Mode: core.BestEffortFIFO, Order: order},
		Fairness:  core.Fairness{Lease: 60 * core.Second, Levels: []core.Time{5 * 3600 * core.Second}},
		Requeue:   core.RequeuePolicy{Backoff: 10 * core.Second, MaxBackoff: 300 * core.Second},
		Placement: core.AllKinds(place.Consolidate),
	}
}
