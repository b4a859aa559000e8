// Package supervise runs a command whose processes move to an image when they have to leave, and come back from it
// where the command is run again.
package supervise

import (
	"io"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/checkpoint/offload"
)

// Job is a command that goes on elsewhere.
type Job struct {
	Name        string // of its image
	Command     []string
	Environment []string // of the command, beside MUSTER_GPU_DIR
	Whole       *offload.Whole
	Pause       checkpoint.Options
	Within      time.Duration // the time for the image after SIGTERM
	Restore     time.Duration // the time for the way back
	Out, Err    io.Writer     // what the command prints
	Say         func(string)  // what happens, a line each

	stale *image.Entry // from which the job went on, and which is still to be deleted
}

// Moved is the exit code of a job that is in an image: that of a process that SIGTERM ended.
const Moved = 128 + 15
