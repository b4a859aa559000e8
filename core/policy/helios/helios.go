// Package helios is the quasi-shortest service first of Helios ("Characterization and Prediction of Deep Learning
// Workloads in Large-Scale GPU Datacenters", Hu et al., SC 2021, §4.2): the job first that is expected to take the least GPU time.
package helios

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/policy/doc"
)

// Docs lists the policy. As in the authors' simulator the queue is strict, pods are placed by its rule consolidate, and no job is
// evicted. The paper's predictor is not part of it: estimates come with the jobs.
var Docs = []doc.Doc{{
	Name: "QSSF", Title: "The job first that is estimated to take the least GPU time; no job overtakes it",
	Source: "Helios (Hu et al., SC 2021) §4.2", Since: "v0.1", Policy: policy(),
}}

func policy() core.Policy {
	return core.Policy{
		Name:      "QSSF",
		Queueing:  core.Queueing{Mode: core.StrictFIFO, Order: core.ByEstimatedGPUTime},
		Requeue:   core.RequeuePolicy{Backoff: 10 * core.Second, MaxBackoff: 300 * core.Second},
		Placement: core.AllKinds(place.Consolidate),
	}
}
