// Command muster schedules jobs on shared AI clusters. This binary is the scheduler for
// Kubernetes and its command line. It also replays workloads, audits runs, and asks the
// engine what it would do and why. Called as kubectl-muster it is a plugin of kubectl.
package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// pluginName is the name under which kubectl finds the binary as its plugin.
const pluginName = "kubectl-muster"

// isPlugin reports whether a binary is called as a plugin of kubectl.
func isPlugin(program string) bool {
	return strings.TrimSuffix(filepath.Base(program), ".exe") == pluginName
}

// The groups of commands.
var (
	onCluster = &cobra.Group{ID: "cluster", Title: "On a Kubernetes cluster:"}
	without   = &cobra.Group{ID: "without", Title: "Without a cluster:"}
)

// newRoot puts the commands together. The plugin of kubectl has the same ones.
func newRoot(plugin bool) *cobra.Command {
	root := &cobra.Command{
		Use:   "muster",
		Short: "The scheduler for shared AI clusters",
		Long: `Muster queues, places, packs and preempts AI jobs on shared GPU clusters.

Exit codes: 0 success, 1 the command failed or was interrupted, 2 bad input (one
line on stderr says where it is and what was expected).`,
		Version: fullVersion(),
	}
	root.SetVersionTemplate("muster {{.Version}}\n") // as the command prints it, also as a plugin
	if plugin {
		root.Use = pluginName
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl muster"}
	}
	root.AddGroup(onCluster, without)
	for _, c := range []*cobra.Command{
		newUp(), newScheduler(), newSubmit(), newQueue(), newJobs(), newNodes(), newTop(), newDrain(), newRelease(), newExplain(),
	} {
		c.GroupID = onCluster.ID
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{
		newSim(), newDecide(), newFrag(), newDefrag(), newAudit(), newFair(), newPause(), newResume(), newCheckpoint(), newRestore(), newRun(), newImage(), newAgent(), newTrack(), newDiagnose(), newAdvise(), newHistory(), newMigrate(), newDisagg(), newTrace(), newReproduce(), newBench(),
	} {
		c.GroupID = without.ID
		root.AddCommand(c)
	}
	root.AddCommand(newVersion())
	return root
}
