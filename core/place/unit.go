// Package place decides where pods go among the nodes with room: Kant's
// Resource-aware Scheduler (RSCH, §3.3).
package place

import (
	"github.com/muster-sched/muster/core/cluster"
)

// Unit is what is placed together: a gang, or a job whose pods are placed one
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
	// Inference units may use the dedicated zone first, under ESpread; others
	// use it last, or not at all when it is Exclusive.
	Inference bool
	Exclusive bool
	Tasks     []Task
	// Required and Preferred are level numbers of the state, -1 for none.
	Required, Preferred int
	// Joins says that the job has pods already, in the domain Home of the level
	// Required: the rest must join them there.
	Joins bool
	Home  int32
	// OneModel says that pods that name no model and need GPUs are all to be on one:
	// the unit is a gang, or what is left of one of which no such pod runs yet.
	OneModel bool
	// Exhausted says that the last search for places for the unit gave up, see
	// [Placer.Exhausted].
	Exhausted bool
	// Absent returns how many of the pods with a label in a domain are not there yet,
	// as their places are kept for them, or are about to leave. nil when there are none.
	Absent func(label string, level int, domain int32) int
	// Left are nodes that pods of the job left for others that have not started yet:
	// it does not go back there meanwhile.
	Left []cluster.NodeID
	// Room returns how much more of a model the unit's queue may use; nil when
	// there is no limit.
	Room func(model string) cluster.Milli
}

// usesZone reports whether pods of the unit may run in the dedicated zone.
func (u *Unit) usesZone() bool { return u.Inference || !u.Exclusive }

// Task is a number of pods that are alike. Pods lists the numbers of those to
// place.
type Task struct {
	*Shape
	Pods []int32
	// Terms are the affinities of each pod.
	Terms []Term
	// Asked is what the pods ask for where Shape is less, as their gang is on one of the
	// models that they accept: they are spread over the domains of all. nil: Shape.
	Asked *Shape
	// After returns how many pods with a label in a domain (of anyLevel: in all) of the
	// unit's other tasks may come after those of the task: how evenly these are spread, and
	// whether one is the first of its group, does not depend on them. nil when there are none.
	After func(label string, level int, domain int32) int
}

// bound reports whether where the pods of the task may be depends on other pods.
func (t *Task) bound() bool { return len(t.Terms) > 0 }

// Term is a compiled affinity term.
type Term struct {
	cluster.Term
	Level int
	// Own says that the pods of the task itself carry the label. Mates lists the
	// unit's other tasks of which pods do that are to be placed with them.
	Own   bool
	Mates []int
	// Theirs says of an anti-affinity that it is that of the pods with the label: where
	// none of them may be, as the domain is not known, the task's pods may.
	Theirs bool
	// fewest is how many pods with the label the eligible domain has that has the
	// fewest, once it is known, after so many changes of labels; see Placer.fewest.
	fewest  int
	known   bool
	changes uint64
}
