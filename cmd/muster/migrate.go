package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/migrate"
)

func newMigrate() *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate FILE...",
		Short: "Turn the queues of KAI, Kueue, Volcano, YuniKorn or Koordinator into Muster's, or move a pod or a process",
		Long: `Migrate reads the queues of another scheduler from files, or with - from the
standard input, and prints Muster's: Queue of KAI and of Volcano, ClusterQueue
and Cohort of Kueue, queues.yaml of YuniKorn or the ConfigMap that has it,
ElasticQuota of Koordinator. Give it all queues of a cluster at once: elsewhere
a queue's amounts include those of the queues below it, here they do not.

Messages on stderr say what is set elsewhere, such as in the policy, and which
fields have no counterpart. If there are any of those, the exit code is 1; the
queues are printed all the same.

Migrate pod moves a running pod to another node, and migrate process a process of this machine.`,
		Example: `  kubectl get queues.scheduling.run.ai -o yaml | muster migrate - >queues.yaml
  kubectl get clusterqueues,cohorts -o yaml | muster migrate -
  kubectl get elasticquotas -A -o yaml | muster migrate -
  muster migrate queues.yaml
  muster migrate pod train-7b-0-x2xlp --to gpu-017
  muster migrate process 4711 --to node-2:9440 --store /shared/images --tls-cert client.crt --tls-key client.key --tls-ca ca.crt`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("expected FILE, or - for the standard input; found 0 arguments")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			var queues migrate.Queues
			for _, file := range args {
				data, err := os.ReadFile(file)
				if file == "-" {
					data, err = io.ReadAll(c.InOrStdin())
				}
				if err == nil {
					err = queues.Read(data)
				}
				if err != nil {
					return &usageError{fmt.Sprintf("%s: %v", file, err)}
				}
			}
			if err := queues.Write(c.OutOrStdout()); err != nil {
				return err
			}
			for _, note := range queues.Notes {
				fmt.Fprintf(c.ErrOrStderr(), "note: %s\n", note)
			}
			for _, what := range queues.Refused {
				fmt.Fprintf(c.ErrOrStderr(), "not read: %s\n", what)
			}
			if n := len(queues.Refused); n > 0 {
				return fmt.Errorf("fields that have no counterpart: %d", n)
			}
			return nil
		},
	}
	c.AddCommand(newMigratePod(), newMigrateProcess())
	return c
}
