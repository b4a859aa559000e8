// Package sim replays a workload against the engine on a virtual clock.
package sim

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// Sink receives what happens in a run, in time order. Times count from the
// workload's start. Arguments are valid during the call only, except *Live,
// which is the same pointer for all calls about one job.
type Sink interface {
	// Node reports that a node exists (up) or is lost. All nodes of the cluster come
	// first, at time 0.
	Node(t core.Time, n *core.Node, up bool) error
	// Submitted reports that a job was submitted.
	Submitted(t core.Time, j *Live) error
	// Bound reports that pods were bound.
	Bound(t core.Time, j *Live, pods []core.Placement, why core.Reason) error
	// Released reports that pods left their nodes; by is zero unless they were evicted.
	Released(t core.Time, j *Live, pods []core.Placement, why Release, by Eviction) error
	// Ended reports that a job has ended: with its outcome, or as rejected if rejected is
	// not nil. Its pods have already been released.
	Ended(t core.Time, j *Live, rejected *Rejection) error
}

// Eviction is the decision to evict pods: the job for which they made room, empty if
// there is none, and the time of the decision. Killed pods did not shut down within the grace.
type Eviction struct {
	For    string
	Told   core.Time
	Killed bool
}

// Live is a job from its submission to its end.
type Live struct {
	workload.Job
	// Pods is the number of pods of the job.
	Pods int
	// Bound counts the pods bound now.
	Bound int
	// Lost is the GPU time (milli-GPU times seconds) of work that the job had to repeat.
	Lost float64
	// Tag is for the sink's use.
	Tag any
}

// Rejection is why a job was rejected.
type Rejection struct {
	Reason core.Reason
	Detail string
}

// Release is why a pod left its node.
type Release uint8

// The causes of a release, as decisions.jsonl.gz spells them.
const (
	Finished Release = iota
	Failed
	Cancelled
	Preempted
	Reclaimed
	Migrated // it has moved: what it leaves is its old place
	NodeLost
	MoveFailed // it runs on: what it leaves is the place that it was being moved to
	Restarted  // it is evicted to make room for a job, and a place is kept in which it starts again
	LeaseOver  // it has run for its lease, and leaves for a job that has received less
	Crashed    // it failed, and its job goes on later
	Suspended  // it goes on where it was, with the work that it has done
	Resized    // its job goes on as another of its tasks, or waits
)

func (r Release) String() string {
	return [...]string{"finished", "failed", "cancelled", "preempted", "reclaimed", "migrated", "node_lost", "move_failed", "restarted", "lease_over", "crashed", "suspended", "resized"}[r]
}
