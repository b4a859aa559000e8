// Package schedmate is what SchedMate (document 001, §4) makes of other schedulers with what it reads in code and logs.
package schedmate

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy/doc"
	"github.com/muster-sched/muster/core/policy/lucid"
	"github.com/muster-sched/muster/core/policy/sia"
)

// Docs lists the policies.
var Docs = []doc.Doc{{
	Name: "LucidPlus", Title: "Lucid that takes a packing back when the job that was there first becomes too slow",
	Source: "SchedMate §4.1", Since: "v0.1", Policy: lucidPlus(),
}, {
	Name: "SiaPlus", Title: "Sia that profiles no job of which a similar one has ended",
	Source: "SchedMate §4.2", Since: "v0.1", Policy: siaPlus(),
}}

// siaPlus starts a job with what was learned of a similar one (§4.2).
func siaPlus() core.Policy {
	p := sia.Policy()
	p.Name = "SiaPlus"
	p.Goodput.Similar = true
	return p
}

// lucidPlus cancels a packing at a slowdown of more than 35 % (§4.1). The paper's §5.2 has 50 %.
func lucidPlus() core.Policy {
	p := lucid.Packing()
	p.Name = "LucidPlus"
	p.Packing.Cancel = 650
	return p
}
