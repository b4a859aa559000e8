package mirror

import (
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// acts is what is to be written to the API since the last pass, in order.
type acts struct {
	bind  []tables.Binding
	evict []tables.Eviction
	// suspend has the groups of which all pods are to leave.
	suspend []tables.Suspension
	// move has the pods that are to leave for another node.
	move []act.Move
	// stay has the pods of drained nodes that are locked.
	stay []act.Stay
	// count has the pods that were to be evicted, and are to be counted again.
	count []act.Pod
	// choose has the volume claims into which a node is to be written.
	choose []act.SelectNode
	// ask has the groups whose object is to be read: how large is the gang?
	ask []*tables.Group
	// release has the claims whose devices are to be given back.
	release []translate.ClaimWrite
	// report has what is to be written of jobs that waited and start.
	report []act.Report
	// warn has the events about what users wrote on pods.
	warn []act.Warning
	// record has what counts of pods until they end, to be written into their statuses.
	record []act.Record
	// wake is when to decide again, [core.Never] for no need.
	wake core.Time
}

// values returns the acts as they are carried out, which refer to no table.
func (a *acts) values() act.Acts {
	out := act.Acts{
		Release: slices.Clone(a.release), Select: slices.Clone(a.choose), Move: slices.Clone(a.move), Stay: slices.Clone(a.stay), Count: slices.Clone(a.count),
		Report: slices.Clone(a.report), Record: slices.Clone(a.record), Warn: slices.Clone(a.warn),
	}
	for i := range a.bind {
		out.Bind = append(out.Bind, a.bind[i].Bind)
	}
	for i := range a.evict {
		out.Evict = append(out.Evict, a.evict[i].Value())
	}
	for i := range a.suspend {
		out.Suspend = append(out.Suspend, a.suspend[i].Value())
	}
	for _, g := range a.ask {
		out.Read = append(out.Read, act.ReadGang{Group: g.ID, Object: *g.Object})
	}
	return out
}
