// Package value is Muster's own placement: by what free GPUs are worth to the
// requests that come. docs/placement.md explains it.
package value

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/policy/doc"
	"github.com/muster-sched/muster/core/policy/kant"
)

// Docs lists the policy.
var Docs = []doc.Doc{{
	Name: "Value", Title: "Backfill; the node that loses the least worth to the requests that come", Source: "Muster", Since: "v0.1",
	Policy: policy(),
}}

func policy() core.Policy {
	p := kant.Base()
	p.Name = "Value"
	for k := range p.Placement {
		p.Placement[k] = place.Value
	}
	return p
}
