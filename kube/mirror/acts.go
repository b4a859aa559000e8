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
	// suspend lists the groups of which all pods must leave.
	suspend []tables.Suspension
	// move lists the pods that must leave for another node.
	move []act.Move
	// stay lists the pods of drained nodes that are locked.
	stay []act.Stay
	// count lists the pods that were about to be evicted, and must be counted again.
	count []act.Pod
	// choose lists the volume claims into which a node must be written.
	choose []act.SelectNode
	// ask lists the groups whose object must be read, because it gives the size of the gang.
	ask []*tables.Group
	// release lists the claims whose devices must be given back.
	release []translate.ClaimWrite
	// report lists what must be written about jobs that waited and now start.
	report []act.Report
	// standby lists what must be written about pods that lend their GPUs.
	standby []act.Report
	// warn lists the events about what users wrote on pods.
	warn []act.Warning
	// record lists what counts for pods until they end, to be written into their statuses.
	record []act.Record
	// wake is when to decide again; [core.Never] if there is no need.
	wake core.Time
}

// values returns the acts in the form in which they are carried out, without references to
// tables.
func (a *acts) values(n tables.Notice) act.Acts {
	out := act.Acts{
		Release: slices.Clone(a.release), Select: slices.Clone(a.choose), Move: slices.Clone(a.move), Stay: slices.Clone(a.stay), Count: slices.Clone(a.count),
		Report: slices.Clone(a.report), Standby: slices.Clone(a.standby), Record: slices.Clone(a.record), Warn: slices.Clone(a.warn),
	}
	for i := range a.bind {
		out.Bind = append(out.Bind, a.bind[i].Bind)
	}
	for i := range a.evict {
		out.Evict = append(out.Evict, a.evict[i].Value(n))
	}
	for i := range a.suspend {
		out.Suspend = append(out.Suspend, a.suspend[i].Value(n))
	}
	for _, g := range a.ask {
		out.Read = append(out.Read, act.ReadGang{Group: g.ID, Objects: g.Objects})
	}
	return out
}
