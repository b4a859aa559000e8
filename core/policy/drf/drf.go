// Package drf is dominant resource fairness ("Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", Ghodsi et al.,
// NSDI 2011): the queue first whose greatest share of any resource is the least, for its weight.
package drf

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/policy/doc"
)

// Docs lists the policy. As in the paper's Algorithm 1 no job is evicted. There a job that does not fit holds up the others; here they pass it,
// so that a gang cannot keep all GPUs idle.
var Docs = []doc.Doc{{
	Name: "DominantShare", Title: "BestEffortFIFO; the queue first with the least dominant share of GPUs, CPU and memory for its weight; no preemption",
	Source: "DRF (Ghodsi et al., NSDI 2011), Algorithm 1", Since: "v0.2", Policy: policy(),
}}

func policy() core.Policy {
	return core.Policy{
		Name:      "DominantShare",
		Queueing:  core.Queueing{Mode: core.BestEffortFIFO, Order: core.DominantShare, LendUnowned: true},
		Requeue:   core.RequeuePolicy{Backoff: 10 * core.Second, MaxBackoff: 300 * core.Second},
		Placement: core.AllKinds(place.EBinpack),
	}
}
