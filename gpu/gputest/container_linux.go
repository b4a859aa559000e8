package gputest

import (
	"os/exec"
	"syscall"
	"testing"
)

// StartContained starts a program, with the shim, in a PID namespace of its own, as a
// container has. Its PID is that in there. The test is skipped where that is not permitted.
func (n *Node) StartContained(tb testing.TB) *Program {
	tb.Helper()
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	probe := exec.Command("true")
	probe.SysProcAttr = attr
	if err := probe.Run(); err != nil {
		tb.Skipf("no PID namespace can be made here: %v", err)
	}
	n.attr = attr
	defer func() { n.attr = nil }()
	return n.Start(tb)
}
