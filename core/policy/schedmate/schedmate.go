// Package schedmate is what SchedMate (document 001, §4) makes of other schedulers with what it reads in code and logs.
package schedmate

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy/doc"
	"github.com/muster-sched/muster/core/policy/lucid"
)

// Docs lists the policies.
var Docs = []doc.Doc{{
	Name: "LucidPlus", Title: "Lucid that takes a packing back when the job that was there first becomes too slow",
	Source: "SchedMate §4.1", Since: "v0.1", Policy: lucidPlus(),
}}

// lucidPlus cancels a packing at a slowdown of more than 35 % (§4.1). The paper's §5.2 has 50 %.
func lucidPlus() core.Policy {
	p := lucid.Packing()
	p.Name = "LucidPlus"
	p.Packing.Cancel = 650
	return p
}
