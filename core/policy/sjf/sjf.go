// Package sjf is shortest job first, by the estimated run time: the yardstick
// that queueing studies compare with.
package sjf

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/policy/doc"
)

// Docs lists the policy.
var Docs = []doc.Doc{{
	Name: "SJF", Title: "The shortest estimated job first; nobody passes it", Source: "Hu et al., SC 2021, §4 (as a baseline)", Since: "v0.1",
	Policy: core.Policy{
		Name:      "SJF",
		Queueing:  core.Queueing{Mode: core.StrictFIFO, Order: core.ByEstimate},
		Placement: [len(core.Kinds)]place.Strategy{place.EBinpack, place.EBinpack, place.EBinpack, place.EBinpack},
		Requeue:   core.RequeuePolicy{Backoff: 10 * core.Second, MaxBackoff: 300 * core.Second},
	},
}}
