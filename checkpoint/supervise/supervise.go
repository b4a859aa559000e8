// Package supervise runs a command whose processes move to an image when they have to leave, or are asked to, and come back from it:
// here, or where the command is run again.
package supervise

import (
	"io"
	"path/filepath"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/offload"
)

// Job is a command that goes on elsewhere.
type Job struct {
	Name        string // of its image
	Command     []string
	Dir         string   // where agents find the job, as a process that saves itself: gpu.Self
	Environment []string // of the command, beside MUSTER_GPU_DIR, which is the folder of Whole: that of the job alone
	Whole       *offload.Whole
	Pause       checkpoint.Options
	Within      time.Duration // the time for the image
	Restore     time.Duration // the time for the way back
	Out, Err    io.Writer     // what the command prints
	Say         func(string)  // what happens, a line each
}

// Moved is the exit code of a job that is in an image: that of a process that SIGTERM ended.
const Moved = 128 + 15

// Folder is the folder of the job's own processes, in one that agents look into: they lead the job alone.
func Folder(dir, name string) string { return filepath.Join(dir, "."+name) }
