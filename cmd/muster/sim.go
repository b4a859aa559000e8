package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/replay"
	"github.com/muster-sched/muster/report"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// simFlags are the flags of muster sim.
type simFlags struct {
	inputFlags
	events            string
	recording         *replay.Recording // of events
	cluster, workload string
	policies          []string
	seed              uint64
	until             core.Time
	models            modelFlags
	window            metrics.Options
	advice            adviceFlags
	out               string
	asJSON            bool
}

func newSim() *cobra.Command {
	var f simFlags
	c := &cobra.Command{
		Use:   "sim (--cluster C --workload W | --events LOG) [--policy P]",
		Short: "Replay a workload on a cluster, on a virtual clock",
		Long: `Sim replays a workload on a simulated cluster with the same engine that schedules
real clusters, and measures how full the cluster was and how long jobs waited.

C and W are files, plain or gzip-compressed, or the name of a built-in workload:` + generatorList() + `
C may also be a list such as 64x8:H800,32x4:A10: nodes x GPUs : GPU model.

P is a policy file or a built-in policy:` + policyList() + `
Separate several policies by commas; they run in parallel.

LOG is a folder that muster scheduler --record wrote, or one of its files. The
nodes and jobs of that cluster come and go as recorded, and P decides. By default P
is "recorded", the policy that the cluster used. The run ends where the log ends.

DIR receives report.html, summary.json, timeseries.csv, jobs.csv, waits.csv,
frames.json.gz, decisions.jsonl.gz, and the inputs as cluster.csv and
workload.csv.gz. With several policies it receives one folder of these files per
policy, and a report.html that compares the policies.

An interrupt (Ctrl-C) ends the run at its current virtual time: the files are
complete up to then, and the exit code is 1. A second interrupt kills the process.`,
		Example: `  muster sim --cluster kant-training --workload kant-training --seed 1 --out run
  muster sim --cluster 64x8:H800 --workload jobs.csv.gz --policy StrictFIFO,Backfill --out runs
  muster sim --cluster cluster.csv --workload jobs.csv --policy mine.yaml --until 7d --json
  muster sim --events /var/lib/muster/events --policy recorded,mine.yaml --out runs
  muster sim --cluster 16x8 --workload jobs.csv --policy LucidSJF --advisor history --history jobs.db`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.register(c)
	return c
}

func (f *simFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.cluster, "cluster", "", "the cluster `C`; optional for a built-in workload")
	flags.StringVar(&f.workload, "workload", "", "the workload `W`")
	flags.StringVar(&f.events, "events", "", "the event log `LOG` of a cluster, instead of C and W")
	flags.StringSliceVar(&f.policies, "policy", []string{"default"}, "the policy `P`, or several: P,P,…")
	flags.Uint64Var(&f.seed, "seed", 0, "generate built-in workloads from this `NUMBER`; the same seed gives the same run")
	durationVar(flags, &f.until, "until", "end the run at this virtual time")
	flags.StringVar(&f.out, "out", "", "write the run to the folder `DIR`, which must be new, empty, or written by Muster before")
	flags.BoolVar(&f.asJSON, "json", false, "print only the summary, as JSON, on stdout")
	f.inputFlags.register(flags)
	f.registerCluster(flags)
	flags.BoolVar(&f.jobs.Misfits, "misfits", false, "reject jobs that fit on no node, instead of refusing the whole workload")
	f.models.register(flags)
	f.advice.register(c)
	durationVar(flags, &f.window.From, "window-from", "start of the virtual time over which metrics are averaged")
	durationVar(flags, &f.window.To, "window-to", "end of the virtual time over which metrics are averaged")
	completePolicy(c)
}

func (f *simFlags) run(c *cobra.Command) error {
	if err := f.complete(c); err != nil {
		return err
	}
	cluster, err := f.openInput()
	if err != nil {
		return err
	}
	policies, err := f.loadPolicies(c)
	if err != nil {
		return err
	}
	if err := f.models.checkSpeeds(c, &cluster); err != nil {
		return err
	}
	if err := f.advice.check(c, &f.models, len(policies)); err != nil {
		return err
	}
	runs, err := f.keep(policies, func(folder *runlog.Folder) ([]simulated, error) {
		return f.runAll(c, &cluster, policies, folder)
	})
	if err != nil {
		return err
	}
	if err := f.print(c, runs); err != nil {
		return err
	}
	return f.interrupted(runs)
}

// recorded names the policy of a log.
const recorded = "recorded"

// notRecorded are the flags that say what a log does.
var notRecorded = []string{
	"cluster", "workload", "cluster-format", "format", "queues", "quotas", "leaf-size", "spine-size", "misfits", "from", "to", "from-date", "to-date",
	"min-duration", "max-duration", "rebase", "load", "cpu-load", "length", "gpus", "seed", "node-mtbf", "node-repair",
}

// completeRecorded is complete for a log.
func (f *simFlags) completeRecorded(c *cobra.Command) error {
	for _, name := range notRecorded {
		if c.Flags().Changed(name) {
			return badUsage(c, "--%s: expected no such flag with --events; the log determines it", name)
		}
	}
	f.cluster, f.workload = f.events, f.events
	if !c.Flags().Changed("policy") {
		f.policies = []string{recorded}
	}
	return nil
}

// openInput opens the cluster, or the log.
func (f *simFlags) openInput() (workload.Cluster, error) {
	if f.events == "" {
		return f.openCluster(f.cluster)
	}
	r, err := replay.Read(f.events)
	if err != nil {
		return workload.Cluster{}, err
	}
	f.recording = r
	if f.until == 0 {
		f.until = r.End
	}
	return r.Cluster, nil
}

// openJobs opens the workload for a cluster, or has it from the log.
func (f *simFlags) openJobs(cluster *workload.Cluster) (workload.Jobs, error) {
	if f.recording != nil {
		return f.recording.Jobs(), nil
	}
	return f.inputFlags.openJobs(f.workload, cluster)
}

// loadPolicies returns the policies to run under.
func (f *simFlags) loadPolicies(c *cobra.Command) ([]core.Policy, error) {
	if f.recording == nil {
		return loadPolicies(c, f.policies)
	}
	p := f.recording.Policy
	p.Name = recorded
	return loadPolicies(c, f.policies, p)
}

// complete fills in what the flags leave open, and checks them.
func (f *simFlags) complete(c *cobra.Command) error {
	if f.window.To > 0 && f.window.From >= f.window.To {
		return badUsage(c, "--window-from: expected a time before --window-to; found %s", v1alpha1.Duration(f.window.From))
	}
	if f.until > 0 && f.window.From >= f.until {
		return badUsage(c, "--window-from: expected a time before --until; found %s", v1alpha1.Duration(f.window.From))
	}
	if f.events != "" {
		if err := f.completeRecorded(c); err != nil {
			return err
		}
		return f.models.check(c)
	}
	if f.workload == "" {
		return badUsage(c, "--workload: expected a file or the name of a built-in workload; found nothing")
	}
	if f.cluster == "" && isGenerator(f.workload) {
		f.cluster = f.workload
	}
	if f.cluster == "" && !isFile(f.workload) {
		return badUsage(c, "--workload: expected a file or the name of a built-in workload; found %q%s", f.workload, didYouMean(f.workload, generatorNames()))
	}
	if f.cluster == "" {
		return badUsage(c, "--cluster: expected a file, a list such as 64x8:H800 or the name of a built-in cluster; found nothing")
	}
	f.jobs.Seed = f.seed
	if err := f.inputFlags.check(c, f.cluster, f.workload); err != nil {
		return err
	}
	return f.models.check(c)
}

// simulated is a run that was made.
type simulated struct {
	stats   sim.Stats
	summary metrics.Summary
}

// keep makes the runs in the folder to write to, nil if there is none, and puts
// them in place, with the page that compares several.
func (f *simFlags) keep(policies []core.Policy, run func(*runlog.Folder) ([]simulated, error)) ([]simulated, error) {
	if f.out == "" {
		return run(nil)
	}
	folder, err := runlog.OpenFolder(f.out)
	if err != nil {
		return nil, err
	}
	several := len(policies) > 1
	if several {
		err = folder.Claim(runlog.Page)
	}
	var runs []simulated
	if err == nil {
		runs, err = run(folder)
	}
	if err == nil && several {
		var folders []string
		for i := range policies {
			folders = append(folders, policies[i].Name)
		}
		err = folder.Compare("", folders)
	}
	if err != nil {
		return nil, errors.Join(err, folder.Discard())
	}
	return runs, folder.Commit()
}

// runAll replays the workload under every policy, as many at a time as there
// are cores.
func (f *simFlags) runAll(c *cobra.Command, cluster *workload.Cluster, policies []core.Policy, folder *runlog.Folder) ([]simulated, error) {
	ctx, stop := interruptible(c)
	defer stop()
	p := newProgress(c.ErrOrStderr(), len(policies))
	defer p.finish()
	if p.onTerminal() {
		go f.count(ctx, cluster, p)
	}
	runs := make([]simulated, len(policies))
	err := inParallel(len(policies), func(i int) (err error) {
		name := policies[i].Name
		if len(policies) == 1 {
			name = ""
		}
		w, err := create(folder, name, cluster, f.window)
		if err == nil {
			err = f.replay(ctx, c, cluster, policies[i], w, p.of(i), &runs[i])
		}
		if err != nil && !isBadInput(err) {
			return fmt.Errorf("policy %s: %w", policies[i].Name, err)
		}
		return err
	})
	return runs, err
}

// create begins a run in a folder of that name in folder, if there is one.
func create(folder *runlog.Folder, name string, cluster *workload.Cluster, window metrics.Options) (*runlog.Writer, error) {
	if folder == nil {
		return runlog.Create("", cluster, window)
	}
	return folder.CreateRun(name, cluster, window)
}

// replay makes one run.
func (f *simFlags) replay(ctx context.Context, c *cobra.Command, cluster *workload.Cluster, policy core.Policy, w *runlog.Writer, progress func(core.Time, int, int), r *simulated) error {
	jobs, err := f.openJobs(cluster)
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	advisor, done, err := f.advice.open(c)
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	begin := time.Now()
	config := sim.Config{
		Cluster: *cluster, Jobs: jobs, Policy: policy, Seed: f.seed, Until: f.until,
		Estimates: f.models.estimates, Advisor: advisor, Models: f.models.Models, Progress: progress,
	}
	if f.recording != nil {
		config.Changes = f.recording.Changes
	}
	if r.stats, err = sim.Run(ctx, config, w); err != nil {
		return errors.Join(err, w.Abort(), done(false))
	}
	rules := metrics.NewRules(&policy, f.models.Grace)
	rules.Estimates = f.models.estimates
	if f.recording != nil && f.recording.Counts {
		rules.LongTerm = nil // the files of the run do not say what was received before it
	}
	r.summary, err = w.Close(runlog.Facts{
		Policy: policy.Name, Rules: rules, Seed: f.seed, Cluster: f.cluster, Workload: f.workload, Decisions: int64(r.stats.Decisions), Wall: time.Since(begin), Interrupted: r.stats.Interrupted,
		Defrag: r.stats.Defrag, Forecast: r.stats.Forecast, Period: policy.Spot.Period,
		Grace: f.models.Grace,
		CPU:   r.stats.CPU, Failures: r.stats.Failures, Packed: r.stats.Packed, Trained: r.stats.Trained,
	})
	if err == nil {
		err = f.checkWindow(c, r)
	}
	return errors.Join(err, done(err == nil))
}

// checkWindow returns an error if the window that was asked for lies outside the run: the
// averages would be 0. A run that was interrupted did not get as far.
func (f *simFlags) checkWindow(c *cobra.Command, r *simulated) error {
	w := r.summary.Window
	switch {
	case w.From < w.To || r.summary.Jobs.Submitted == 0 || r.stats.Interrupted:
	case f.window.From > 0 && f.window.From.Seconds() >= w.To:
		return badUsage(c, "--window-from: expected a time before the last event of the run under %s, at %s; found %s",
			r.summary.Policy, v1alpha1.Duration(r.stats.End), v1alpha1.Duration(f.window.From))
	case f.window.To > 0 && f.window.To.Seconds() <= w.From:
		return badUsage(c, "--window-to: expected a time after the first submission, at %gs; found %s", w.From, v1alpha1.Duration(f.window.To))
	}
	return nil
}

// count tells p how many jobs there are.
func (f *simFlags) count(ctx context.Context, cluster *workload.Cluster, p *progress) {
	jobs, err := f.openJobs(cluster)
	if err != nil {
		return
	}
	n := 0
	for _, err := range jobs {
		if err != nil || ctx.Err() != nil {
			return
		}
		n++
	}
	p.expect(n)
}

// print prints the summaries.
func (f *simFlags) print(c *cobra.Command, runs []simulated) error {
	var (
		summaries []metrics.Summary
		reports   []report.Run
	)
	for _, r := range runs {
		summaries = append(summaries, r.summary)
		reports = append(reports, report.Run{Name: r.summary.Policy, Summary: r.summary})
	}
	out := c.OutOrStdout()
	switch {
	case f.asJSON && len(runs) == 1:
		return runlog.WriteSummary(out, summaries[0])
	case f.asJSON:
		return writeJSON(out, map[string]any{"runs": summaries})
	}
	if err := report.Text(out, reports); err != nil || f.out == "" {
		return err
	}
	_, err := fmt.Fprintf(out, "\nThe files are in %s; see %s.\n", f.out, filepath.Join(f.out, runlog.Page))
	return err
}

// interrupted returns an error if a run was interrupted.
func (f *simFlags) interrupted(runs []simulated) error {
	var when []string
	for i := range runs {
		if r := &runs[i]; r.stats.Interrupted {
			when = append(when, report.Seconds(r.stats.End.Seconds()))
		}
	}
	if when == nil {
		return nil
	}
	text := "interrupted at virtual time " + strings.Join(when, ", ")
	if f.out != "" {
		text += "; the files in " + f.out + " are complete up to then"
	}
	return errors.New(text)
}

// inParallel calls f with 0..n-1, as many at a time as there are cores, and
// returns the first error in that order.
func inParallel(n int, f func(i int) error) error {
	errs := make([]error, n)
	turn := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for i := range n {
		turn <- struct{}{}
		all.Go(func() {
			defer func() { <-turn }()
			errs[i] = f(i)
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
