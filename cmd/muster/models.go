package main

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// modelFlags describe how the simulated cluster differs from the workload's.
type modelFlags struct {
	sim.Models
	estimates bool
	speed     map[string]string
	shutdown  string
	suspend   string
	slowdown  string
	failures  string
	profiles  string
}

func (f *modelFlags) register(flags *pflag.FlagSet) {
	f.SpreadCost = 0.27
	f.Repair = 3600 * core.Second
	f.HandOver = 60 * core.Second
	f.Failures = sim.Failures{Rate: 1, Detected: 1, Owner: 2 * 3600 * core.Second, Faulty: 4 * 3600 * core.Second}
	durationVar(flags, &f.StartDelay, "start-delay", "time from binding to the start of work")
	durationVar(flags, &f.HandOver, "hand-over", "time for which a pod that is moved runs at both places, after --start-delay")
	durationVar(flags, &f.Grace, "evict-grace", "time that evicted pods take to terminate")
	flags.StringVar(&f.shutdown, "evict-shutdown", "", "`MEAN,P95` of the time that evicted pods take, such as 13s,48s; those that take longer than --evict-grace are killed")
	flags.Float64Var(&f.CommShare, "comm-share", 0, "`SHARE` (0 to 1) of a gang's run time that is communication")
	flags.Float64Var(&f.SpreadCost, "spread-cost", f.SpreadCost, "`SHARE` by which communication slows down when a gang spans several leaf groups")
	flags.StringToStringVar(&f.speed, "gpu-speed", nil, "relative speeds of GPU models, as a `LIST` such as H800=1,A10=0.4; 1 for models not listed")
	flags.Lookup("gpu-speed").DefValue = ""
	flags.StringVar(&f.slowdown, "cpu-slowdown", "", "`MEDIAN,P90` of the share by which training jobs are slower on nodes where jobs without GPUs use more cores than others, such as 0.1,0.18")
	flags.Float64Var(&f.Interference.GPUJobsUse, "gpu-jobs-use", 1, "`SHARE` (0 to 1) of the cores they request that jobs with GPUs use, for --cpu-slowdown")
	flags.StringVar(&f.profiles, "profiles", "", "`FOLDER` of measured jobs, single_data.csv and colocate_info.csv: under a policy that packs, jobs share GPUs by them")
	flags.Float64Var(&f.Packing.Tracked, "tracked", 1, "`SHARE` (0 to 1) of the jobs whose throughput can be read from their logs, for --profiles")
	f.Packing.Settle = 120 * core.Second
	durationVar(flags, &f.Packing.Settle, "settle", "time after which the throughput of a job beside another one is measured, for --profiles")
	flags.Float64Var(&f.Similar, "similar", 1, "`SHARE` (0 to 1) of the jobs of which a similar one is known if one of the same application has ended, under policies with goodput.similar")
	durationVar(flags, &f.MTBF, "node-mtbf", "mean time between failures of a node; by default no node fails")
	durationVar(flags, &f.Repair, "node-repair", "mean time to repair a failed node")
	flags.StringVar(&f.failures, "failures", "", "let jobs fail as the `FILE` says, or as acme: the failures of the infrastructure that Acme published")
	flags.Float64Var(&f.Failures.Rate, "failure-rate", f.Failures.Rate, "`FACTOR` by which --failures happen more often")
	flags.Float64Var(&f.Failures.Detected, "detected", f.Failures.Detected, "`SHARE` (0 to 1) of failures whose cause is found, if the policy recovers")
	durationVar(flags, &f.Failures.Owner, "owner-time", "mean time after which owners submit jobs again that failed, or release those that are held")
	durationVar(flags, &f.Failures.Faulty, "faulty-time", "mean time for which a node stays faulty that is not cordoned; one that is is repaired after --node-repair")
	f.Failures.Test = 900 * core.Second
	durationVar(flags, &f.Failures.Test, "test-time", "how long a test of a node takes, under a policy with recovery.tests; it finds every fault")
	durationVar(flags, &f.Checkpoint, "checkpoint", "checkpoint interval of jobs whose workload gives none; by default they save no progress")
	durationVar(flags, &f.SaveWithin, "checkpoint-within", "how long jobs whose workload does not say it take to save their progress when they are asked to, which they are before an eviction; by default they are not asked")
	flags.StringVar(&f.suspend, "suspend", "", "`PAUSE,RESUME,MIB` of jobs whose workload does not say it, such as 5s,10s,163840: under a policy with preemption.maxSuspended they are suspended instead of evicted")
	flags.BoolVar(&f.estimates, "estimates", false, "give the engine the exact run time of each job, as an oracle")
}

func (f *modelFlags) check(c *cobra.Command) error {
	if !(f.CommShare >= 0 && f.CommShare <= 1) {
		return badUsage(c, "--comm-share: expected a number from 0 to 1; found %v", f.CommShare)
	}
	if !(f.Similar >= 0 && f.Similar <= 1) {
		return badUsage(c, "--similar: expected a number from 0 to 1; found %v", f.Similar)
	}
	if !(f.SpreadCost >= 0 && f.SpreadCost <= 1000) {
		return badUsage(c, "--spread-cost: expected a number from 0 to 1000; found %v", f.SpreadCost)
	}
	if err := f.checkShutdown(c); err != nil {
		return err
	}
	if err := f.checkSlowdown(c); err != nil {
		return err
	}
	if err := f.checkSuspend(c); err != nil {
		return err
	}
	if err := f.checkFailures(c); err != nil {
		return err
	}
	if err := f.openProfiles(c); err != nil {
		return err
	}
	f.Speed = map[string]float64{}
	for _, model := range slices.Sorted(maps.Keys(f.speed)) {
		v, err := strconv.ParseFloat(f.speed[model], 64)
		if err != nil || !(v >= 0.001 && v <= 1000) {
			return badUsage(c, "--gpu-speed: expected a speed from 0.001 to 1000 for %s; found %q", model, f.speed[model])
		}
		f.Speed[model] = v
	}
	return nil
}

// openProfiles reads --profiles.
func (f *modelFlags) openProfiles(c *cobra.Command) (err error) {
	if t := f.Packing.Tracked; !(t >= 0 && t <= 1) {
		return badUsage(c, "--tracked: expected a number from 0 to 1; found %v", t)
	}
	if err := partner(c, f.profiles != "", "profiles", "tracked", "settle"); err != nil {
		return err
	}
	if f.profiles != "" {
		f.Packing.Profiles, err = workload.OpenProfiles(f.profiles)
	}
	return err
}

// partner refuses flags that mean nothing without another one.
func partner(c *cobra.Command, given bool, with string, flags ...string) error {
	for _, name := range flags {
		if !given && c.Flags().Changed(name) {
			return badUsage(c, "--%s: expected --%s too", name, with)
		}
	}
	return nil
}

// checkShutdown reads --evict-shutdown.
func (f *modelFlags) checkShutdown(c *cobra.Command) error {
	if f.shutdown == "" {
		return nil
	}
	mean, p95, both := strings.Cut(f.shutdown, ",")
	if !both || (*durationFlag)(&f.Shutdown.Mean).Set(mean) != nil || (*durationFlag)(&f.Shutdown.P95).Set(p95) != nil {
		return badUsage(c, "--evict-shutdown: expected two durations, such as 13s,48s; found %q", f.shutdown)
	}
	if err := f.Shutdown.Check(f.Grace); err != nil {
		return badUsage(c, "--evict-shutdown with --evict-grace: %v", err)
	}
	return nil
}

// checkSuspend reads --suspend.
func (f *modelFlags) checkSuspend(c *cobra.Command) error {
	if f.suspend == "" {
		return nil
	}
	parts := strings.Split(f.suspend, ",")
	var err error
	if len(parts) == 3 {
		f.Suspend.HostMemMiB, err = strconv.ParseInt(parts[2], 10, 64)
	}
	if len(parts) != 3 || err != nil || f.Suspend.HostMemMiB < 1 || f.Suspend.HostMemMiB > core.MaxAmount ||
		(*durationFlag)(&f.Suspend.Pause).Set(parts[0]) != nil || (*durationFlag)(&f.Suspend.Resume).Set(parts[1]) != nil {
		return badUsage(c, "--suspend: expected two durations and the MiB of a pod's image, such as 5s,10s,163840; found %q", f.suspend)
	}
	return nil
}

// checkFailures reads --failures.
func (f *modelFlags) checkFailures(c *cobra.Command) (err error) {
	m := &f.Failures
	if !(m.Rate > 0 && m.Rate <= 1e6) {
		return badUsage(c, "--failure-rate: expected a number above 0, at most 1000000; found %v", m.Rate)
	}
	if !(m.Detected >= 0 && m.Detected <= 1) {
		return badUsage(c, "--detected: expected a number from 0 to 1; found %v", m.Detected)
	}
	if err := partner(c, f.failures != "", "failures", "failure-rate", "detected", "owner-time", "faulty-time", "test-time"); err != nil {
		return err
	}
	m.Repair = f.Repair
	if f.failures != "" {
		m.Kinds, err = workload.OpenFailures(f.failures)
	}
	return err
}

// checkSlowdown reads --cpu-slowdown.
func (f *modelFlags) checkSlowdown(c *cobra.Command) error {
	m := &f.Interference
	if f.slowdown != "" {
		median, p90, _ := strings.Cut(f.slowdown, ",")
		var err [2]error
		m.Median, err[0] = strconv.ParseFloat(median, 64)
		m.P90, err[1] = strconv.ParseFloat(p90, 64)
		if err[0] != nil || err[1] != nil || m.Median == 0 {
			return badUsage(c, "--cpu-slowdown: expected two shares above 0, such as 0.1,0.18; found %q", f.slowdown)
		}
	}
	if err := m.Check(); err != nil {
		return badUsage(c, "--cpu-slowdown with --gpu-jobs-use: %v", err)
	}
	return nil
}

// checkSpeeds refuses the speed of a GPU model that the cluster does not have.
func (f *modelFlags) checkSpeeds(c *cobra.Command, cluster *workload.Cluster) error {
	var models []string
	for i := range cluster.Nodes {
		if m := cluster.Nodes[i].Model; m != "" && !slices.Contains(models, m) {
			models = append(models, m)
		}
	}
	slices.Sort(models)
	for _, m := range slices.Sorted(maps.Keys(f.Speed)) {
		if !slices.Contains(models, m) {
			return badUsage(c, "--gpu-speed: expected GPU models of the cluster, %s; found %q", strings.Join(models, ", "), m)
		}
	}
	return nil
}
