//go:build !linux

package supervise

import (
	"context"
	"os"
)

// Signals are those that a job gets, by Run.
var Signals = []os.Signal{os.Interrupt}

// Run is criu.ErrUnavailable: it takes Linux.
func (j *Job) Run(ctx context.Context, _ <-chan os.Signal) (code int, err error) {
	return 1, j.Whole.CRIU.Check(ctx)
}
