// Package sia is Sia (Subramanya et al., SOSP 2023), for jobs that can run on any number of GPUs of several models: each round
// says on how many of which.
package sia

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/policy/doc"
)

// Docs lists the policies.
var Docs = []doc.Doc{{
	Name: "Sia", Title: "Every minute, how many GPUs of which model each job runs on, so that the goodputs of all count most; jobs are profiled first",
	Source: "Sia §3; SchedMate §4.2", Since: "v0.1", Policy: Policy(),
}}

// Policy is Sia. A round is a minute and a restart is expected to take half of one, as in the simulator of its authors. That a job is profiled
// for 30 s on one GPU of each model is our assumption: the paper says that it is, and not for how long. What is free in pieces is put
// together by restarts: there, jobs move for nothing.
func Policy() core.Policy {
	return core.Policy{
		Name:      "Sia",
		Queueing:  core.Queueing{Mode: core.BestEffortFIFO, Order: core.BySubmission},
		Requeue:   core.RequeuePolicy{Backoff: 10 * core.Second, MaxBackoff: 300 * core.Second},
		Placement: core.AllKinds(place.Consolidate),
		Goodput:   core.Goodput{Round: 60 * core.Second, Restart: 30 * core.Second, Profile: 30 * core.Second},
		Room:      core.Room{MaxMoves: 16, Restarts: true},
	}
}
