// Package tiresias is the discretised two-dimensional LAS of Tiresias ("Tiresias: A GPU Cluster Manager for Distributed Deep
// Learning", Gu et al., NSDI 2019): the jobs first that have received the least GPU time so far.
package tiresias

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/policy/doc"
)

// Docs lists the policy.
var Docs = []doc.Doc{{
	Name: "Tiresias", Title: "BestEffortFIFO; the jobs first that have received less than 5 GPU-hours so far, by submission; others leave for them after a minute",
	Source: "Tiresias (Gu et al., NSDI 2019)", Since: "v0.1", Policy: policy(),
}}

func policy() core.Policy {
	return core.Policy{
		Name:      "Tiresias",
		Queueing:  core.Queueing{Mode: core.BestEffortFIFO, Order: core.LeastAttained},
		Fairness:  core.Fairness{Lease: 60 * core.Second, Levels: []core.Time{5 * 3600 * core.Second}},
		Requeue:   core.RequeuePolicy{Backoff: 10 * core.Second, MaxBackoff: 300 * core.Second},
		Placement: core.AllKinds(place.Consolidate),
	}
}
