package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/snapshot"
	"github.com/muster-sched/muster/workload"
)

// inputFlags select the cluster and workload to read or generate.
type inputFlags struct {
	clusterFormat string
	queues        string
	jobs          workload.Options
}

// register adds the flags that select and shape a workload.
func (f *inputFlags) register(flags *pflag.FlagSet) {
	o := &f.jobs
	flags.StringVar(&o.Format, "format", "", "the workload's `FORMAT`: "+strings.Join(workload.Formats(), ", ")+"; by default detected from the file")
	durationVar(flags, &o.From, "from", "omit jobs submitted before this time of the trace")
	durationVar(flags, &o.To, "to", "omit jobs submitted at or after this time of the trace")
	dateVar(flags, &o.FromWall, "from-date", "omit jobs submitted before this `DATE` (2017-10-03, or 2017-10-03T12:00:00)")
	dateVar(flags, &o.ToWall, "to-date", "omit jobs submitted at or after this `DATE`")
	durationVar(flags, &o.MinDuration, "min-duration", "omit jobs that run for less than this")
	durationVar(flags, &o.MaxDuration, "max-duration", "omit jobs that run for longer than this")
	flags.IntVar(&o.Sample, "sample", 0, "format sia: the `NUMBER` of the sample of jobs, from 1; by default the first one")
	flags.BoolVar(&o.Rebase, "rebase", false, "start the clock at the first remaining job")
	flags.Float64Var(&o.CPULoad, "cpu-load", 0, "asi-cpu: the `SHARE` of all cores that jobs without GPUs request, such as 0.5")
	flags.Float64Var(&o.Load, "load", 0, "built-in workloads: the `RATIO` of requested to available GPU time, such as 0.9")
	durationVar(flags, &o.Length, "length", "built-in workloads: the period in which jobs arrive")
	flags.IntVar(&o.GPUs, "gpus", 0, "built-in clusters: the `NUMBER` of GPUs")
}

// registerCluster adds the flags that shape a cluster.
func (f *inputFlags) registerCluster(flags *pflag.FlagSet) {
	flags.StringVar(&f.clusterFormat, "cluster-format", "", "the cluster's `FORMAT`; by default detected from the file")
	flags.StringVar(&f.queues, "queues", "", "`FILE` with the tenants' queues and quotas; by default queues.json next to the cluster's file, if it exists")
	flags.BoolVar(&f.jobs.Quotas, "quotas", false, "give the queues of a trace the quotas that the trace contains")
	flags.IntVar(&f.jobs.LeafSize, "leaf-size", 0, "clusters without a topology: the number of `NODES` in a leaf group")
	flags.IntVar(&f.jobs.SpineSize, "spine-size", 0, "clusters without a topology: the number of leaf `GROUPS` in a spine")
}

// maxGroup is the maximum number of nodes in a leaf group, and of leaf groups in a spine.
const maxGroup = 1_000_000

// check refuses flags that are out of range, contradict each other or mean nothing for
// this cluster, "" for none, and workload.
func (f *inputFlags) check(c *cobra.Command, cluster, jobs string) error {
	o := &f.jobs
	switch {
	case !(o.Load >= 0 && o.Load <= 10):
		return badUsage(c, "--load: expected a number above 0 and at most 10; found %v", o.Load)
	case o.Sample < 0 || o.Sample > 1000:
		return badUsage(c, "--sample: expected a number from 1 to 1000; found %d", o.Sample)
	case o.GPUs < 0:
		return badUsage(c, "--gpus: expected a number of at least 1; found %d", o.GPUs)
	case o.LeafSize < 0 || o.LeafSize > maxGroup:
		return badUsage(c, "--leaf-size: expected a number from 1 to %d; found %d", maxGroup, o.LeafSize)
	case o.SpineSize < 0 || o.SpineSize > maxGroup:
		return badUsage(c, "--spine-size: expected a number from 1 to %d; found %d", maxGroup, o.SpineSize)
	case o.To > 0 && o.From >= o.To:
		return badUsage(c, "--from: expected a time before --to; found %s", v1alpha1.Duration(o.From))
	case !o.ToWall.IsZero() && !o.FromWall.Before(o.ToWall):
		return badUsage(c, "--from-date: expected a date before --to-date; found %s", o.FromWall.Format("2006-01-02T15:04:05"))
	case o.MaxDuration > 0 && o.MinDuration > o.MaxDuration:
		return badUsage(c, "--min-duration: expected at most --max-duration; found %s", v1alpha1.Duration(o.MinDuration))
	}
	changed := func(names ...string) string {
		if i := slices.IndexFunc(names, c.Flags().Changed); i >= 0 {
			return names[i]
		}
		return ""
	}
	if name := changed("load", "cpu-load", "length"); name != "" && !isGenerator(jobs) {
		return badUsage(c, "--%s: expected a built-in workload with it; found %s", name, jobs)
	}
	if sized := isGenerator(cluster) || cluster == "" && isGenerator(jobs); changed("gpus") != "" && !sized {
		return badUsage(c, "--gpus: expected a built-in cluster with it; found %s", cmp.Or(cluster, jobs))
	}
	if name := changed("format", "from-date", "to-date"); name != "" && isGenerator(jobs) {
		return badUsage(c, "--%s: expected a workload from a file with it; found the built-in %s", name, jobs)
	}
	if changed("cluster-format") != "" && isGenerator(cluster) {
		return badUsage(c, "--cluster-format: expected a cluster from a file with it; found the built-in %s", cluster)
	}
	return nil
}

// openCluster returns the cluster that path names.
func (f *inputFlags) openCluster(path string) (workload.Cluster, error) {
	o := f.jobs
	o.Format = f.clusterFormat
	c, err := workload.OpenCluster(path, o)
	if err != nil {
		return c, err
	}
	file := f.queues
	if beside := filepath.Join(filepath.Dir(path), runlog.Queues); file == "" && isFile(path) && isFile(beside) {
		file = beside
	}
	if file == "" {
		return c, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return c, &workload.Error{File: file, Want: "a file that can be read; found: " + err.Error()}
	}
	c.Queues, err = snapshot.ParseQueues(file, data)
	return c, err
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// openJobs returns the workload that path names, for cluster c.
func (f *inputFlags) openJobs(path string, c *workload.Cluster) (workload.Jobs, error) {
	o := f.jobs
	o.Cluster = c
	jobs, _, err := workload.OpenJobs(path, o)
	return jobs, err
}

// isGenerator reports whether name generates both a cluster and a workload.
func isGenerator(name string) bool {
	return slices.ContainsFunc(workload.Builtins(), func(b workload.Builtin) bool { return b.Name == name })
}

// generatorNames returns the names of the built-in generators.
func generatorNames() []string {
	var names []string
	for _, g := range workload.Builtins() {
		names = append(names, g.Name)
	}
	return names
}

// generatorList describes the built-in generators, for help texts.
func generatorList() string {
	var b strings.Builder
	for _, g := range workload.Builtins() {
		b.WriteString("\n  " + pad(g.Name, 20) + g.Title)
	}
	return b.String()
}

// durationVar adds a flag for a duration, such as 7d or 3600.
func durationVar(flags *pflag.FlagSet, to *core.Time, name, usage string) {
	flags.Var((*durationFlag)(to), name, usage)
}

type durationFlag core.Time

func (d *durationFlag) Set(s string) error {
	var v v1alpha1.Duration
	if err := v.UnmarshalText([]byte(s)); err != nil {
		return fmt.Errorf("expected %w", err)
	}
	*d = durationFlag(v)
	return nil
}

func (d *durationFlag) String() string {
	if *d == 0 {
		return ""
	}
	return v1alpha1.Duration(*d).String()
}

func (*durationFlag) Type() string { return "DURATION" }

// dateVar adds a flag for a date or a date with a time.
func dateVar(flags *pflag.FlagSet, to *time.Time, name, usage string) {
	flags.Var((*dateFlag)(to), name, usage)
}

type dateFlag time.Time

func (d *dateFlag) Set(s string) error {
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, s); err == nil {
			*d = dateFlag(t)
			return nil
		}
	}
	return fmt.Errorf("expected a date such as 2017-10-03 or 2017-10-03T12:00:00")
}

func (d *dateFlag) String() string {
	if time.Time(*d).IsZero() {
		return ""
	}
	return time.Time(*d).Format("2006-01-02T15:04:05")
}

func (*dateFlag) Type() string { return "DATE" }

// complete makes the shell offer values for a flag.
func complete(c *cobra.Command, flag string, values func() []string) {
	_ = c.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values(), cobra.ShellCompDirectiveDefault
	})
}
