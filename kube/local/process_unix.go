//go:build unix

package local

import (
	"os/exec"
	"syscall"
)

// apart keeps a terminal's interrupt from a command: it is for us, and the
// cluster ends after what uses it.
func apart(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
