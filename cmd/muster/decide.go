package main

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/snapshot"
)

func newDecide() *cobra.Command {
	var (
		from   snapshotFlags
		rounds int
		asJSON bool
	)
	c := &cobra.Command{
		Use:   "decide --snapshot FILE",
		Short: "Print what the engine would decide for a cluster described by a file, and why",
		Long: `Decide describes a cluster to the engine, runs one scheduling pass and prints the
decisions with their reasons. With --rounds it runs several passes, one second
apart. Before each further pass it carries out the decisions of the previous one:
bound pods start and evicted pods leave. No job finishes in between.`,
		Example: `  muster decide --snapshot cluster.yaml
  muster decide --snapshot cluster.yaml --rounds 3 --json
  muster decide --snapshot cluster.yaml --policy StrictFIFO
  kubectl get configmap snapshot -o jsonpath='{.data.snapshot}' | muster decide --snapshot -`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			if rounds < 1 {
				return badUsage(c, "--rounds: expected a number of at least 1; found %d", rounds)
			}
			s, err := from.open(c)
			if err != nil {
				return err
			}
			answer, err := snapshot.Run(s, rounds)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), answer)
			}
			return answer.WriteText(c.OutOrStdout())
		},
	}
	from.register(c)
	c.Flags().IntVar(&rounds, "rounds", 1, "run `N` scheduling passes")
	c.Flags().BoolVar(&asJSON, "json", false, "print the answer as JSON")
	return c
}

// snapshotFlags select the snapshot.
type snapshotFlags struct{ file, policy string }

func (f *snapshotFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.file, "snapshot", "", "`FILE` that describes the cluster, in YAML or JSON; - reads standard input")
	c.Flags().StringVar(&f.policy, "policy", "", "scheduling `POLICY`, a built-in name or a file; by default the snapshot's")
	completePolicy(c)
}

func (f *snapshotFlags) open(c *cobra.Command) (snapshot.Snapshot, error) {
	if f.file == "" {
		return snapshot.Snapshot{}, badUsage(c, "--snapshot: expected a file; found nothing")
	}
	data, err := f.read(c.InOrStdin())
	if err != nil {
		return snapshot.Snapshot{}, unreadable(f.file, err)
	}
	s, err := snapshot.Parse(f.file, data, builtin)
	if err != nil || f.policy == "" {
		return s, err
	}
	s.Policy, err = loadPolicy(c, f.policy)
	return s, err
}

func (f *snapshotFlags) read(stdin io.Reader) ([]byte, error) {
	const most = 64 << 20
	if f.file == "-" {
		return readAll(stdin, most)
	}
	return readFile(f.file, most)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
