// Package lucid is Lucid (Hu et al., ASPLOS 2023), and the baselines of its simulator (§4.1):
// strict queues, and shortest remaining time first, over the placement rule it calls
// consolidate. They are yardsticks: studies of queueing report them, and ours can be compared.
package lucid

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/policy/doc"
)

// Docs lists the policies.
var Docs = []doc.Doc{
	named("LucidFIFO", "First come, first served; no job overtakes the first waiting job", core.BySubmission),
	named("LucidSJF", "The shortest estimated job first; no job overtakes it", core.ByEstimate),
	preemptive(named("LucidSRTF", "The job first that is estimated to end soonest; others leave for it after a minute", core.ShortestRemaining)),
	{Name: "Lucid", Title: "Two jobs share GPUs if their profiles allow it; else the job first with the least estimated GPU time, others may pass",
		Source: "Lucid §3.2-3.4", Since: "v0.1", Policy: Packing()},
}

// Packing is Lucid itself, as its authors' simulator does it: a job is packed with the first running one of as many GPUs whose
// sharing score and memory allow it and which is not expected to be much shorter; if there is none, it gets GPUs of its own.
// Profiles and estimates come with the jobs.
func Packing() core.Policy {
	return core.Policy{
		Name:      "Lucid",
		Queueing:  core.Queueing{Mode: core.BestEffortFIFO, Order: core.ByEstimatedGPUTime},
		Requeue:   core.RequeuePolicy{Backoff: 10 * core.Second, MaxBackoff: 300 * core.Second},
		Placement: core.AllKinds(place.Consolidate),
		Packing:   core.Packing{On: true, MemMiB: 24 * 1024, First: true, Longest: 2000},
	}
}

// preemptive lets jobs leave that have run for a minute. The authors' simulator looks each second.
func preemptive(d doc.Doc) doc.Doc {
	d.Policy.Queueing.Mode, d.Policy.Fairness.Lease = core.BestEffortFIFO, 60*core.Second
	return d
}

func named(name, title string, o core.Order) doc.Doc {
	p := core.Policy{
		Name:      name,
		Queueing:  core.Queueing{Mode: core.StrictFIFO, Order: o},
		Requeue:   core.RequeuePolicy{Backoff: 10 * core.Second, MaxBackoff: 300 * core.Second},
		Placement: core.AllKinds(place.Consolidate),
	}
	return doc.Doc{Name: name, Title: title, Source: "Lucid §4.1 (baselines)", Since: "v0.1", Policy: p}
}
