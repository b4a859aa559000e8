package main

import (
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/report"
	"github.com/muster-sched/muster/runlog"
)

func newFair() *cobra.Command {
	var asJSON bool
	by := "queue"
	c := &cobra.Command{
		Use:   "fair DIR...",
		Short: "Show who received the GPU time that they deserved in a run",
		Long: `Fair reads folders that muster sim wrote, and shows what GPU time queues and jobs
received of what they deserved: the GPUs, at each instant, divided by weight among
the queues that have jobs, and in a queue among its jobs, no more to anyone than
it requests (long-term GPU-time fairness). The index of a queue is what it received
to what it deserved. Rho, the finish-time fairness of a job, is what it deserved
until it ended to what it needed. Several folders are compared.

With --by user it shows the users of each queue: what the jobs of a queue deserved,
divided in the same way among the users whose jobs they are. That is the same
whether the queue is fair between users or not.`,
		Example: `  muster sim --workload kant-training --seed 1 --out run
  muster fair run
  muster fair --by user run
  muster sim --workload kant-training --seed 1 --policy default,StrictFIFO --out runs
  muster fair runs/default runs/StrictFIFO`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("expected DIR; found 0 arguments")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if by != "queue" && by != "user" {
				return badUsage(c, "--by: expected one of queue, user; found %q", by)
			}
			type fair struct {
				Run      string            `json:"run"`
				Policy   string            `json:"policy"`
				Fairness *metrics.Fairness `json:"fairness"`
				JCT      metrics.Times     `json:"jct"`
				// Over has what queues and jobs lacked, and the indexes of the queues, over time.
				Over []fairOver `json:"over_time"`
			}
			var runs []report.Run
			var all []fair
			var over []metrics.FairRow
			for _, dir := range args {
				s, rows, err := runlog.ReadFair(dir)
				if err != nil {
					return err
				}
				runs, over = append(runs, report.Run{Name: filepath.Base(dir), Summary: s}), rows
				all = append(all, fair{filepath.Base(dir), s.Policy, s.Fairness, s.JCT, newFairOver(rows)})
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), all)
			}
			if by == "user" {
				return report.FairUsersText(c.OutOrStdout(), runs, over)
			}
			return report.FairText(c.OutOrStdout(), runs, over)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the figures as JSON, of queues, jobs and users")
	c.Flags().StringVar(&by, "by", by, "show what each `KIND` received: queue or user")
	return c
}

// fairOver is what each queue has received and deserved up to T, in seconds, and the shares that all of them, the jobs that
// ended, and users lacked.
type fairOver struct {
	T       float64         `json:"t"`
	Tenants float64         `json:"tenants_unfairness"`
	Jobs    float64         `json:"jobs_unfairness"`
	Users   float64         `json:"users_unfairness"`
	Queues  []fairQueueOver `json:"queues"`
}

type fairQueueOver struct {
	Queue    string  `json:"queue"`
	Own      bool    `json:"own,omitempty"`
	Received float64 `json:"received_gpu_hours"`
	Deserved float64 `json:"deserved_gpu_hours"`
}

func newFairOver(rows []metrics.FairRow) []fairOver {
	out := []fairOver{}
	for _, r := range rows {
		x := fairOver{T: r.T.Seconds(), Tenants: r.Tenants, Jobs: r.Jobs, Users: r.Users}
		for _, q := range r.Queues {
			x.Queues = append(x.Queues, fairQueueOver{q.Queue, q.Own, q.Received, q.Deserved})
		}
		out = append(out, x)
	}
	return out
}
