package gpu

import (
	"os/exec"
	"syscall"
)

// apart lets a program outlive an interrupt of the terminal, and this process.
func apart(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
