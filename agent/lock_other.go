//go:build !linux

package agent

import (
	"errors"
	"os"
)

func lockFile(*os.File) error { return errors.New("the agent runs on Linux only") }
