// Package fgd is the placement rules that FGD's study compares (Weng et al.,
// USENIX ATC 2023, §6.1): fragmentation gradient descent itself and its rivals.
// Whoever fits starts; none of them evicts.
package fgd

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/policy/doc"
)

// Docs lists the policies.
var Docs = []doc.Doc{
	rule(place.FGD, "The node whose GPUs lose the least usefulness to typical pods", "§4"),
	rule(place.BestFit, "The node with the least CPU and GPU left over", "§6.1"),
	rule(place.DotProduct, "The node whose free CPU and GPU vector is least aligned with the request", "§6.1"),
	rule(place.GPUPacking, "Shared GPUs first, then nodes in use, then idle ones", "§6.1"),
	rule(place.GPUClustering, "Nodes whose pods request the same number of GPUs", "§6.1"),
	rule(place.Random, "A random node that fits", "§6.1"),
}

func rule(s place.Strategy, title, section string) doc.Doc {
	p := core.Policy{
		Name:      s.String(),
		Queueing:  core.Queueing{Mode: core.BestEffortFIFO},
		Requeue:   core.RequeuePolicy{Backoff: 10 * core.Second, MaxBackoff: 300 * core.Second},
		Placement: core.AllKinds(s),
	}
	return doc.Doc{Name: p.Name, Title: title, Source: "FGD " + section, Since: "v0.1", Policy: p}
}
