package main

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/report"
	"github.com/muster-sched/muster/workload"
)

func newTrace() *cobra.Command {
	c := &cobra.Command{
		Use:   "trace",
		Short: "Inspect workloads",
	}
	c.AddCommand(newTraceInfo())
	return c
}

func newTraceInfo() *cobra.Command {
	var (
		f       inputFlags
		cluster string
		asJSON  bool
		page    string
	)
	c := &cobra.Command{
		Use:   "info W",
		Short: "Describe a workload: its jobs, sizes, durations, arrivals and demand",
		Long: `Info describes a workload, from a file or built in: the jobs, GPU-hours and HP jobs
by kind, class, GPU model, size and queue; the distribution of sizes, cores and
durations; the demand over the week; and with --cluster the share of a cluster that
the jobs would use. Box plots span the 10th to the 90th percentile, thick from the
25th to the 75th, with a mark at the median. Demand is the number of GPUs that the
jobs would hold if none waited, averaged by the hour.

Formats, detected from the file: ` + strings.Join(workload.Formats(), ", ") + `
Built-in workloads:` + generatorList(),
		Example: `  muster trace info kant-training
  muster trace info jobs.csv.gz --from 7d --to 14d
  muster trace info asi --length 7d --cluster asi
  muster trace info asi --length 7d --html asi.html
  muster trace info run/workload.csv.gz --json`,
		Args: arguments("W"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(c, cluster, args[0]); err != nil {
				return err
			}
			s, err := f.describe(args[0], cluster)
			if err != nil {
				return err
			}
			if page != "" {
				if err := writePage(page, args[0], &s); err != nil {
					return err
				}
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), s)
			}
			return report.TraceText(c.OutOrStdout(), args[0], &s)
		},
	}
	c.Flags().SortFlags = false
	c.Flags().BoolVar(&asJSON, "json", false, "print the description as JSON")
	c.Flags().StringVar(&page, "html", "", "also write a page with plots to `FILE`")
	c.Flags().StringVar(&cluster, "cluster", "", "also print the share of the cluster `C` that the jobs would use")
	f.register(c.Flags())
	f.registerCluster(c.Flags())
	c.Flags().Uint64Var(&f.jobs.Seed, "seed", 0, "generate built-in workloads from this `NUMBER`")
	return c
}

// writePage writes the page about a workload to a file.
func writePage(path, name string, s *workload.Summary) error {
	page, err := os.Create(path)
	if err != nil {
		return &workload.Error{File: path, Want: "a writable file; found: " + err.Error()}
	}
	return errors.Join(report.TraceHTML(page, name, s), page.Close())
}

// describe describes a workload, beside a cluster if one is named: a made-up
// workload is then one for that cluster, a file need not fit it.
func (f *inputFlags) describe(path, cluster string) (workload.Summary, error) {
	var on, sized *workload.Cluster
	if cluster != "" {
		c, err := f.openCluster(cluster)
		if err != nil {
			return workload.Summary{}, err
		}
		on = &c
	}
	if isGenerator(path) {
		sized = on
	}
	jobs, err := f.openJobs(path, sized)
	if err != nil {
		return workload.Summary{}, err
	}
	s, err := workload.Describe(jobs)
	if err == nil && on != nil {
		s.Over(on)
	}
	return s, err
}
