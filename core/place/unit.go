// Package place decides where pods go among the nodes with room: Kant's
// Resource-aware Scheduler (RSCH, §3.3).
package place

import (
	"github.com/muster-sched/muster/core/cluster"
)

// Unit is the pods of a job that are placed together: a gang, or pods that are placed one
// by one.
type Unit struct {
	// Job is the slot of the job, the owner of its pods.
	Job      int32
	Strategy Strategy
	// Whole units are gangs.
	Whole bool
	// Spread says that the job has several pods, to be kept on different nodes
	// by the strategies that spread.
	Spread bool
	// LP says that the job is low priority; it matters to the strategy Spot alone.
	LP bool
	// Lends says that its pods are expected to lend their devices at times: see together.go.
	Lends bool
	// Inference units may use the dedicated zone first, under ESpread; others
	// use it last, or not at all when it is Exclusive.
	Inference bool
	Exclusive bool
	Tasks     []Task
	// Required and Preferred are level numbers of the state, -1 for none.
	Required, Preferred int
	// Closeness is by how much, in thousandths, each level between the pods of the gang
	// lengthens its run time; if it is 0, the fastest models come first, however far apart.
	Closeness int64
	// Combinations are the only models on which the tasks of the gang may be together; nil: all that
	// they accept.
	Combinations []Combination
	// Joins says that other pods of the job are in the domain Home of the level Required: the
	// pods of the unit must join them there.
	Joins bool
	Home  int32
	// OneModel says that the pods that name no model and need GPUs must all be on one model:
	// the unit is a gang, or the rest of a gang of which no such pod runs yet.
	OneModel bool
	// Exhausted says that the last search for places for the unit gave up, see
	// [Placer.Exhausted].
	Exhausted bool
	// Absent returns how many of the pods with a label that a domain hosts have not arrived
	// yet, as they wait for victims to leave, or are about to leave. nil when there are none.
	Absent func(label string, level int, domain int32) int
	// Left lists the nodes from which pods of the job were evicted for jobs that have not
	// started yet: until then no pod of the job goes back there.
	Left []cluster.NodeID
	// Ends and Saves say for how long nodes must be lent at least for pods of the unit to prefer
	// them: those that are until it is expected to end, if that is known, come first; then those
	// until it has saved its progress once, if it does. 0: neither is known.
	Ends, Saves cluster.Time
	// Room returns how much more of a model, or of one of Limits, the unit's queue may use; nil
	// when there is no limit. Limits are the accounts of resources that quotas limit, see
	// [cluster.AccountOf].
	Room   func(account string) cluster.Milli
	Limits []string
}

// usesZone reports whether pods of the unit may run in the dedicated zone.
func (u *Unit) usesZone() bool { return u.Inference || !u.Exclusive }

// Task is pods of a unit that are alike. Pods lists the numbers, within the job, of those
// to place.
type Task struct {
	*Shape
	Pods []int32
	// Terms are the affinities of each pod.
	Terms []Term
	// Prefers is what each pod prefers: see prefer.go.
	Prefers []Preference
	// Asked is the whole request of the pods where Shape is narrower, because their gang runs
	// on one of the models that they accept. Spread counts the domains of all those models.
	// nil: Shape.
	Asked *Shape
	// After returns how many pods with a label in a domain belong to the unit's other tasks
	// and may be placed after those of this task (of level -1: in the whole cluster). The
	// spread of this task's pods, and whether one is the first of its group, do not depend on
	// them. nil when there are none.
	After func(label string, level int, domain int32) int
}

// bound reports whether the nodes that pods of the task may use depend on other pods.
func (t *Task) bound() bool { return len(t.Terms) > 0 }

// Term is a compiled affinity term.
type Term struct {
	cluster.Term
	Level int
	// Own says that the pods of the task itself carry the label. Mates lists the other tasks
	// of the unit whose pods carry it and are placed together with them.
	Own   bool
	Mates []int
	// Theirs says that this is the other side of an anti-affinity: the pods with the label ask
	// to be apart from the task's pods. On nodes of which the domain is not known none of
	// those can be, so the task's pods may.
	Theirs bool
	// fewest is what Placer.countFewest found last, if known, at that count of label changes: the
	// fewest pods of a domain, which domain that is, and the fewest of another.
	fewest   int
	fewestAt int32
	next     int
	known    bool
	changes  uint64
}
