// Command muster schedules jobs on shared AI clusters. This binary replays
// workloads, audits runs, and asks the engine what it would do and why.
package main

import (
	"os"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// newRoot puts the commands together.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "muster",
		Short: "The scheduler for shared AI clusters",
		Long: `Muster queues, places, packs and preempts AI jobs on shared GPU clusters.

Exit codes: 0 done, 1 the run failed or was interrupted, 2 bad input (one line
on stderr says where it is and what was expected).`,
	}
	root.AddCommand(
		newUp(), newScheduler(),
		newSim(),
		newDecide(),
		newExplain(),
		newAudit(),
		newTrace(),
		newReproduce(), newBench(),
		newVersion(),
	)
	return root
}
