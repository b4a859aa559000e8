// Package muster is Muster's own policy: Kant's queueing, and placement by what
// free GPUs are worth to the requests that come. docs/placement.md explains it.
package muster

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/policy/doc"
	"github.com/muster-sched/muster/core/policy/kant"
)

// Docs lists the policy.
var Docs = []doc.Doc{{
	Name: "default", Title: "Backfill; fair shares; the node whose free GPUs lose the least value to expected requests; all preemptions",
	Source: "Muster; Kant §3.2", Since: "v0.1", Policy: policy(),
}}

func policy() core.Policy {
	p := kant.Base()
	p.Name = "default"
	p.Queueing.LendUnowned, p.Queueing.FairShare = true, true
	p.Room = core.Room{MaxMoves: 64, Restarts: true, AssumedWait: 3600 * core.Second}
	p.Placement = core.AllKinds(place.Value)
	return p
}
