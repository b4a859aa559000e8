package tables

import (
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/translate"
)

// Acts is what is to be written to the API since the last pass, in order.
type Acts struct {
	Bind  []Binding
	Evict []Eviction
	// Together lists the pods of gangs that leave one by one, after they have saved themselves together.
	Together [][]Eviction
	// Suspend lists the groups of which all pods must leave.
	Suspend []Suspension
	// Move lists the pods that must leave for another node.
	Move []act.Move
	// Stay lists the pods of drained nodes that are locked.
	Stay []act.Stay
	// Count lists the pods that were about to be evicted, and must be counted again.
	Count []act.Pod
	// Choose lists the volume claims into which a node must be written.
	Choose []act.SelectNode
	// Ask lists the groups whose object must be read, because it gives the size of the gang.
	Ask []*Group
	// Forget lists the groups whose objects need no longer be followed.
	Forget []translate.Group
	// Release lists the claims whose devices must be given back.
	Release []translate.ClaimWrite
	// Report lists what must be written about jobs that waited and now start.
	Report []act.Report
	// Standby lists what must be written about pods that lend their GPUs.
	Standby []act.Report
	// Warn lists the events about what users wrote on pods.
	Warn []act.Warning
	// Record lists what counts for pods until they end, to be written into their statuses.
	Record []act.Record
	// Wake is when to decide again; [core.Never] if there is no need.
	Wake core.Time
}

// Values returns the acts in the form in which they are carried out, without references to tables.
func (a *Acts) Values(n Notice) act.Acts {
	out := act.Acts{
		Release: slices.Clone(a.Release), Select: slices.Clone(a.Choose), Move: slices.Clone(a.Move), Stay: slices.Clone(a.Stay), Count: slices.Clone(a.Count),
		Report: slices.Clone(a.Report), Standby: slices.Clone(a.Standby), Record: slices.Clone(a.Record), Warn: slices.Clone(a.Warn), Forget: slices.Clone(a.Forget),
	}
	for i := range a.Bind {
		out.Bind = append(out.Bind, a.Bind[i].Bind)
	}
	for i := range a.Evict {
		out.Evict = append(out.Evict, a.Evict[i].Value(n))
	}
	for _, gang := range a.Together {
		var list []act.Evict
		for i := range gang {
			list = append(list, gang[i].Together(n))
		}
		out.Together = append(out.Together, list)
	}
	for i := range a.Suspend {
		out.Suspend = append(out.Suspend, a.Suspend[i].Value(n))
	}
	for _, g := range a.Ask {
		out.Read = append(out.Read, act.ReadGang{Group: g.ID, Objects: g.Objects})
	}
	return out
}

// Drop forgets the acts, which have been handed over.
func (a *Acts) Drop() {
	*a = Acts{
		Bind: a.Bind[:0], Evict: a.Evict[:0], Together: a.Together[:0], Suspend: a.Suspend[:0], Move: a.Move[:0], Stay: a.Stay[:0], Count: a.Count[:0], Choose: a.Choose[:0],
		Ask: a.Ask[:0], Forget: a.Forget[:0], Release: a.Release[:0], Report: a.Report[:0], Standby: a.Standby[:0], Warn: a.Warn[:0], Record: a.Record[:0], Wake: core.Never,
	}
}
