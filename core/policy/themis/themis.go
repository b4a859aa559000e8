// Package themis is the finish-time fairness of Themis ("Themis: Fair and Efficient GPU Cluster Scheduling", Mahajan et al.,
// NSDI 2020): the job first that will have taken longest for what it would have taken with its fair share.
package themis

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/policy/doc"
)

// Docs lists the policy: the approximation that ASTRAEA's simulator uses, jobs in order of their finish-time fairness; Gavel and Shockwave, too, leave out the
// auctions. Themis itself offers GPUs whose leases are over to those jobs that are worst off, and holds an auction among them. The lease of 20 minutes is ours.
var Docs = []doc.Doc{{
	Name: "Themis", Title: "BestEffortFIFO; the job first with the worst finish-time fairness; leases of 20 minutes",
	Source: "Themis (Mahajan et al., NSDI 2020)", Since: "v0.1", Policy: policy(),
}}

func policy() core.Policy {
	return core.Policy{
		Name:      "Themis",
		Queueing:  core.Queueing{Mode: core.BestEffortFIFO, Order: core.FinishTimeFairness},
		Fairness:  core.Fairness{Lease: 1200 * core.Second},
		Requeue:   core.RequeuePolicy{Backoff: 10 * core.Second, MaxBackoff: 300 * core.Second},
		Placement: core.AllKinds(place.EBinpack),
	}
}
