//go:build !linux

package supervise

import (
	"context"
	"os"
)

// Run is criu.ErrUnavailable: it takes Linux.
func (j *Job) Run(ctx context.Context, _ <-chan os.Signal) (code int, err error) {
	return 1, j.Whole.CRIU.Check(ctx)
}
