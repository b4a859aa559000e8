// Command muster-devcluster runs a whole Kubernetes control plane with simulated GPU
// nodes in one process: etcd, kube-apiserver and the controllers that jobs need, on
// 127.0.0.1, from one node to tens of thousands. It does not schedule pods: that is the
// task of Muster, or of the stock scheduler, which the binary also contains.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func main() {
	tuneGC()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// tuneGC trades memory for time while little memory is in use: with a few nodes the API
// server spends a fifth of its time on garbage collection. GOGC and GOMEMLIMIT override
// it, as in any Go program.
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(11 << 30)
	}
}

// Exit codes.
const (
	exitDone = iota
	exitFailed
	exitBadInput
)

// run runs the command line args and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:   "muster-devcluster",
		Short: "A Kubernetes control plane with simulated GPU nodes",
		Long: `Runs a whole Kubernetes control plane with simulated GPU nodes in one process, on
127.0.0.1. It has no scheduler of its own.

Exit codes: 0 success, 1 failure, 2 bad input (one line on stderr says what was
expected).`,
	}
	root.AddCommand(newUp(), newFail(), newRepair(), newScheduler())
	strict(root)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return exitDone
	}
	fmt.Fprintln(stderr, "muster-devcluster: "+strings.Join(strings.Fields(message(err)), " "))
	if isBadInput(err) {
		return exitBadInput
	}
	return exitFailed
}
