// Package workload reads clusters and workloads from files (public traces and Muster's
// own CSV) and generates them from seeds.
//
// [OpenCluster] and [OpenJobs] take a path or a built-in name. A file's header row
// determines its format. Each format has a source file here that turns its columns into
// nodes and jobs, and a line in the table formats. Each built-in has a line in the table
// generators.
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

// Job is a job of a workload: what is submitted, when (Job.Submitted, from the workload's
// start), and what happens then.
type Job struct {
	core.Job
	// Duration is how long the job runs once all its pods run.
	Duration core.Time
	Outcome  Outcome
	// Profile names what it does on its GPUs, of measured [Profiles]; empty if nothing is known.
	Profile string
	// Training says how fast it is on any number of GPUs; nil if that was not measured. Then its Duration is 0, and follows from it.
	Training *Training
	// Standby are the windows in which its pods lend their GPUs, if it is an HP job.
	Standby []Window
	// Recorded is what else is known about a job of a recorded cluster; nil for other
	// jobs.
	Recorded *Recorded
}

// Recorded is what a job did in a cluster that was recorded, as far as a file
// has no column for it.
type Recorded struct {
	// Spec is the job as the engine received it; Job.Job has only what files can express.
	// Its Submitted, which orders the queue, is when the user submitted the job: not
	// after it arrived, and negative if that was before the recording began.
	Spec core.Job
	// Found are the pods that run when the job is submitted, and their nodes; while there
	// is no room for them, they wait.
	Found []core.PodRunning
	// Served is what it had received and deserved when it was submitted.
	Served core.Served
	// Runs has an entry for each pod, or one for a whole gang.
	Runs []Run
}

// Run is how long a pod, or a gang, works.
type Run struct {
	// Duration is [Endless] if it worked until the end of the recording.
	Duration core.Time
	// Withdrawn is when it leaves, whether it works at that time or not; 0 for never.
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

// Error is an error in the input: its position and what was expected there.
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

// IsBadInput reports whether err is about invalid input, for which a command exits with
// code 2.
func IsBadInput(err error) bool {
	var e *Error
	return errors.As(err, &e)
}
