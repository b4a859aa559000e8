// Package pause pauses and resumes a job whose processes are on several nodes,
// as a whole: all are paused, or all go on (docs/adr/0026).
//
// A [Coordinator] decides, one goal after the other, each with a higher epoch. A
// [Member] on each node leads its processes to the newest goal. Both are state
// machines without clock, goroutine or I/O; [Pause], [Resume] and [Local] drive them.
package pause

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-sched/muster/checkpoint"
)

// Goal is where all processes of a job are led.
type Goal uint8

// The goals. Of a pause: Gate, Save, Keep, and Release if it fails. Of a resume:
// Restore, Release, and Keep instead of Release if it fails.
const (
	None    Goal = iota
	Gate         // on the first phase of the backend's path after Running: calls wait; under a lease
	Save         // at its end: the memory is on the host; under a lease
	Keep         // there, for any time
	Restore      // on the first phase again, with the memory on the GPU; without a lease
	Release      // running
)

var goals = []string{"None", "Gate", "Save", "Keep", "Restore", "Release"}

func (g Goal) String() string { return goals[g] }

// MarshalText writes the goal's name.
func (g Goal) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText reads a goal's name.
func (g *Goal) UnmarshalText(text []byte) error {
	i := slices.Index(goals, string(text))
	if i < 0 {
		return fmt.Errorf("goal %q: expected one of %v", text, goals)
	}
	*g = Goal(i)
	return nil
}

// Request asks a member to lead its processes to a goal.
type Request struct {
	Job   string        `json:"job"`
	Epoch uint64        `json:"epoch"` // of the decision; an epoch has one goal
	Goal  Goal          `json:"goal"`
	Lease time.Duration `json:"lease"` // after which a process that is not kept goes on by itself
}

// Reply is how far a member has come.
type Reply struct {
	Epoch   uint64  `json:"epoch"` // of the request; of a Stale one, the epoch that the member obeys
	Outcome Outcome `json:"outcome"`
	Detail  string  `json:"detail"` // of what failed, for people
}

// Outcome is how an attempt to reach a goal ended.
type Outcome string

// The outcomes.
const (
	Busy    Outcome = ""        // it has not ended; never sent
	Reached Outcome = "Reached" // all processes are there
	Late    Outcome = "Late"    // a process did not come to rest in time, or its lease ran out
	Open    Outcome = "Open"    // a gate is open, and the goal does not start there
	Failed  Outcome = "Failed"  // another attempt soon will not help: no memory, a full disk
	Gone    Outcome = "Gone"    // a process has ended; the others are there
	Stale   Outcome = "Stale"   // the member obeys a newer decision
)

// Step is one local act of a member on one of its processes.
type Step struct {
	Epoch   uint64 // under which it began
	Process int    // index
	To      checkpoint.Phase
	Keep    bool          // end the lease of the saved process instead
	Lease   time.Duration // 0 is none
}
