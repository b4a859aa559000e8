// Package classic is weighted max-min fairness: each queue's part of the cluster is in proportion to its weight, and what it does not need
// goes to the others. It is the yardstick of studies of fairness; Ghodsi et al. (DRF, NSDI 2011, §2) describe it.
package classic

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/policy/doc"
)

// Docs lists the policy. Queues need a quota to have a share; one of 0 will do.
var Docs = []doc.Doc{{
	Name: "WeightedShare", Title: "BestEffortFIFO; queues get GPUs in proportion to their weights at each moment, and take them back from those that have more",
	Source: "weighted max-min fairness", Since: "v0.1", Policy: policy(),
}}

func policy() core.Policy {
	return core.Policy{
		Name:      "WeightedShare",
		Queueing:  core.Queueing{Mode: core.BestEffortFIFO, Order: core.BySubmission, FairShare: true, LendUnowned: true},
		Preempt:   core.Preempt{Reclaim: true, MinRuntime: 300 * core.Second},
		Requeue:   core.RequeuePolicy{Backoff: 10 * core.Second, MaxBackoff: 300 * core.Second},
		Placement: core.AllKinds(place.EBinpack),
	}
}
