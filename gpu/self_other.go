//go:build !linux

package gpu

import (
	"errors"
	"os"
	"syscall"
)

func isLocked(*os.File) (bool, error)              { return false, errors.ErrUnsupported }
func signalOf(*os.File, int, syscall.Signal) error { return errors.ErrUnsupported }
