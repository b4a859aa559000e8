// Package astraea is the policy of ASTRAEA ("ASTRAEA: A Fair Deep Learning Scheduler for Multi-tenant GPU Clusters", Ye et
// al., IEEE TPDS 2022): long-term GPU-time fairness of tenants and of their jobs, with leases.
package astraea

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/policy/doc"
)

// Docs lists the policy. The lease of 15 minutes is that of the authors' simulator; how quota, classes and priorities count
// beside is ours, and so is what a change must gain.
var Docs = []doc.Doc{{
	Name: "Astraea", Title: "BestEffortFIFO; the queue first that received the least of the GPU time that it deserved, then its job that did; leases of 15 minutes",
	Source: "ASTRAEA (Ye et al.), Muster", Since: "v0.1", Policy: policy(),
}}

func policy() core.Policy {
	return core.Policy{
		Name:     "Astraea",
		Queueing: core.Queueing{Mode: core.BestEffortFIFO, Order: core.LongTermFairness, LendUnowned: true},
		Preempt: core.Preempt{
			Priority: core.InQueue, Reclaim: true, MinRuntime: 300 * core.Second, MaxMinRuntime: 3600 * core.Second,
		},
		Fairness:  core.Fairness{Lease: 900 * core.Second},
		Requeue:   core.RequeuePolicy{Backoff: 10 * core.Second, MaxBackoff: 300 * core.Second},
		Placement: core.AllKinds(place.EBinpack),
	}
}
