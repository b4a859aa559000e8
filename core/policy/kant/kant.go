// Package kant is the policies of Kant: queueing by StrictFIFO, BestEffortFIFO
// and Backfill (§3.2.2), placement by Binpack, E-Binpack, Spread and E-Spread
// (§3.3.3, §3.3.4).
package kant

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/policy/doc"
)

const minute = 60 * core.Second

// Docs lists the policies. The paper gives no constants: those of Base are ours.
var Docs = []doc.Doc{
	named("StrictFIFO", "No job overtakes the first waiting job", "§3.2.2, Table 1", queueing(core.StrictFIFO)),
	named("BestEffortFIFO", "Any job that fits starts; large jobs may starve", "§3.2.2, Table 1", queueing(core.BestEffortFIFO)),
	named("Backfill", "Any job that fits starts, but is evicted again if the first waiting job waits too long", "§3.2.2, Table 1", queueing(core.Backfill)),
	named("Binpack", "Backfill; the node with the fewest free GPUs that fits", "§3.3.3", placing(place.Binpack)),
	named("EBinpack", "Backfill; Binpack by job and by leaf group, keeps whole groups for large jobs", "§3.3.3", placing(place.EBinpack)),
	named("Spread", "Backfill; the node with the most free GPUs, replicas apart", "§3.3.4", placing(place.Spread)),
	named("ESpread", "Backfill; small inference pods spread over a dedicated zone, the rest by E-Binpack", "§3.3.4", espread()),
}

func named(name, title, section string, p core.Policy) doc.Doc {
	p.Name = name
	return doc.Doc{Name: name, Title: title, Source: "Kant " + section, Since: "v0.1", Policy: p}
}

// Base is what the policies have in common: Backfill, E-Binpack, all preemptions.
func Base() core.Policy {
	return core.Policy{
		Queueing: core.Queueing{Mode: core.Backfill, HeadWait: 60 * minute},
		Preempt: core.Preempt{
			Priority: core.InCluster, Reclaim: true, Backfill: true,
			MinRuntime: 5 * minute, MaxMinRuntime: 60 * minute,
		},
		Requeue:   core.RequeuePolicy{Backoff: 10 * core.Second, MaxBackoff: 5 * minute},
		Placement: core.AllKinds(place.EBinpack),
	}
}

func queueing(m core.Mode) core.Policy {
	p := Base()
	p.Queueing.Mode = m
	p.Preempt.Backfill = m == core.Backfill
	return p
}

func placing(s place.Strategy) core.Policy {
	p := Base()
	p.Placement = core.AllKinds(s)
	return p
}

func espread() core.Policy {
	p := placing(place.ESpread)
	p.Zone.Share = 0.1
	return p
}
