// Package workload reads clusters and workloads from files (public traces and
// Muster's own CSV) and makes them up from seeds.
//
// [OpenCluster] and [OpenJobs] take a path or a built-in name. A file's format
// is told by its header row; each format has a file here that says how its
// columns become nodes and jobs, and a line in the table formats. Each built-in
// has a line in the table generators.
package workload

import (
	"errors"
	"fmt"
	"iter"

	"github.com/muster-sched/muster/core"
)

// Cluster is a described cluster.
type Cluster struct {
	// Levels names the topology levels, widest first; the last is the leaf
	// group.
	Levels []string
	Nodes  []core.Node
	// Queues are the tenants' queues where the source knows them; parents come
	// first.
	Queues []core.Queue
}

// Outcome is how a job of a trace ended.
type Outcome uint8

// The outcomes a trace can record.
const (
	Completed Outcome = iota
	Failed
	Cancelled
)

func (o Outcome) String() string { return [...]string{"completed", "failed", "cancelled"}[o] }

// Job is a job of a workload: what is submitted, when (Job.Submitted, from the
// workload's start), and what then happens.
type Job struct {
	core.Job
	// Duration is how long the job runs once all its pods run.
	Duration core.Time
	Outcome  Outcome
	// Recorded is what else is known of a job of a recorded cluster; nil of others.
	Recorded *Recorded
}

// Recorded is what a job did in a cluster that was recorded, as far as a file
// has no column for it.
type Recorded struct {
	// Spec is the job as the engine is told of it, of which the other has what
	// files can say. Its Submitted, which orders the queue, is when the user
	// submitted it: no later than when it came, and negative before the recording
	// began.
	Spec core.Job
	// Found are pods that run when the job is submitted, and where; as long as
	// there is no room, they wait.
	Found []core.PodRunning
	// Runs has an entry for each pod, or one for a whole gang.
	Runs []Run
}

// Run is how long a pod, or a gang, works.
type Run struct {
	// Duration is [Endless] when it did so to the end.
	Duration core.Time
	// Withdrawn is when it leaves, whether it works then or not; 0 for never.
	Withdrawn core.Time
}

// Change is something that happens to the nodes or queues of a recorded cluster.
type Change struct {
	At    core.Time
	Event core.Event
}

// Jobs yields jobs in the order of their submission. It stops after the first
// error. Readers stream: they hold one job at a time.
type Jobs = iter.Seq2[Job, error]

// Error is bad input: where it is and what was expected there.
type Error struct {
	File string
	// Line counts from 1, header included; 0 when the whole file is meant.
	Line  int
	Field string
	// Want says what was expected, in words, and what was found.
	Want string
}

func (e *Error) Error() string {
	s := e.File
	if e.Line > 0 {
		s += fmt.Sprintf(":%d", e.Line)
	}
	if e.Field != "" {
		s += ": " + e.Field
	}
	return s + ": " + e.Want
}

// IsBadInput reports whether err says that some input is not as it should be,
// which ends a command with exit code 2.
func IsBadInput(err error) bool {
	var e *Error
	return errors.As(err, &e)
}
