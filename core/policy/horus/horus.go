// Package horus is Horus (Yeung et al., IEEE TPDS 2022), a scheduler that lets jobs share GPUs by their predicted utilization. Studies of
// packing report it as a yardstick.
package horus

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/policy/doc"
)

// Docs lists the policy. It is Horus's placement, with its cost; at most two jobs share GPUs, and the utilization comes with the jobs. The queue is
// the plain one of Horus, in which others may pass the first job; its K-means queues (Horus+) are not there.
var Docs = []doc.Doc{{
	Name: "Horus", Title: "Idle GPUs first; else two jobs share GPUs where that costs least by their utilization and memory",
	Source: "Horus, and the weights of its simulator", Since: "v0.1",
	Policy: core.Policy{
		Name:      "Horus",
		Queueing:  core.Queueing{Mode: core.BestEffortFIFO, Order: core.BySubmission},
		Requeue:   core.RequeuePolicy{Backoff: 10 * core.Second, MaxBackoff: 300 * core.Second},
		Placement: core.AllKinds(place.Consolidate),
		Packing:   core.Packing{On: true, MemMiB: 24 * 1024, LeastCost: true},
	},
}}
