package reproduce

import (
	"context"
	"fmt"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy/sia"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

var schedmateSia = Experiment{
	Name:  "schedmate-sia",
	Title: "Sia, which chooses GPUs and their number for each job, and what SchedMate adds to it: no profiling of jobs like earlier ones",
	Takes: []string{"traces", "seeds"},
	run:   runSchedmateSia,
}

// siaCluster is the cluster of both papers: T4, A100 and RTX 2080 Ti GPUs.
const siaCluster = "6x4:aws,2x8:dgx-ext,3x8:rtx"

// siaFigures are what a paper says of a policy on a workload: hours, and of Sia's paper what it says beside.
type siaFigures struct{ mean, p99, makespan, gpuHours, jobs, most float64 }

// siaTrace is a workload and what is published of it.
type siaTrace struct {
	name, file string
	// sia is from Sia's paper, Table 3, and spread what it allows of the mean and of the makespan; before and after are from SchedMate's, Table 3.
	sia, before, after siaFigures
	spread             [2]float64
}

var siaTraces = []siaTrace{
	{
		"Philly", "sia/workloads_philly.csv.gz",
		siaFigures{0.6, 9.5, 14.2, 4.0, 6.9, 31}, siaFigures{mean: 0.74, p99: 10.6, makespan: 14.7}, siaFigures{mean: 0.59, p99: 10.12, makespan: 14.4},
		[2]float64{0.1, 1.9},
	},
	{
		"Helios", "sia/workloads_saturn.csv.gz",
		siaFigures{0.7, 10.9, 14.9, 4.8, 7.4, 32}, siaFigures{mean: 0.83, p99: 12.0, makespan: 15.7}, siaFigures{mean: 0.72, p99: 10.7, makespan: 14.8},
		[2]float64{0.1, 1.7},
	},
}

// siaArm is a policy, and what the scheduler knows about jobs.
type siaArm struct {
	profile  core.Time
	similar  float64 // share of the jobs for which similar ones are looked for and found, if some have ended
	known    bool
	measured bool // steps take as long as was measured
}

// siaProfile is for how long Sia profiles a job on each GPU model.
var siaProfile = sia.Policy().Goodput.Profile

// siaOutcome is what became of the jobs of all samples of a workload.
type siaOutcome struct {
	siaFigures
	restarts, similar float64 // a job; share of the jobs
}

// play runs the samples of a workload, in each of them as if it were alone.
func (a siaArm) play(ctx context.Context, samples []sample, seed uint64) (out siaOutcome, err error) {
	outcomes := make([]*siaSink, len(samples))
	stats := make([]sim.Stats, len(samples))
	err = inParallel(ctx, len(samples), func(int) {}, func(i int) error {
		p := sia.Policy()
		p.Goodput.Profile, p.Goodput.Similar = a.profile, a.similar > 0
		outcomes[i] = &siaSink{round: p.Goodput.Round}
		config := sim.Config{Cluster: samples[i].cluster, Jobs: a.jobs(samples[i].jobs), Policy: p, Seed: seed<<32 | uint64(i), Models: sim.Models{Similar: a.similar, Known: a.known}}
		var err error
		stats[i], err = sim.Run(ctx, config, outcomes[i])
		if err == nil && stats[i].Ended != len(samples[i].jobs) {
			err = fmt.Errorf("sample %d: %d of %d jobs ended", i+1, stats[i].Ended, len(samples[i].jobs))
		}
		return err
	})
	if err != nil {
		return out, err
	}
	var took []float64
	n := float64(len(samples))
	for i, o := range outcomes {
		took = append(took, o.took...)
		out.makespan += stats[i].End.Seconds() / 3600 / n
		out.gpuHours += o.gpuSeconds / 3600
		out.jobs += o.jobs / float64(max(1, o.rounds)) / n
		out.most = max(out.most, float64(o.most))
		out.restarts += float64(stats[i].Trained.Restarts)
		out.similar += float64(stats[i].Trained.Similar)
	}
	all := float64(len(took))
	out.gpuHours, out.restarts, out.similar = out.gpuHours/all, out.restarts/all, out.similar/all
	for _, t := range took {
		out.mean += t / 3600 / all
	}
	slices.Sort(took)
	out.p99 = took[len(took)*99/100] / 3600
	return out, nil
}

// jobs yields jobs as the arm runs them.
func (a siaArm) jobs(jobs []workload.Job) workload.Jobs {
	fast := map[*workload.ElasticApp]*workload.ElasticApp{}
	return func(yield func(workload.Job, error) bool) {
		for _, j := range jobs {
			if a.measured {
				app := j.Training.App
				if fast[app] == nil {
					c := *app
					c.Slower = 1
					fast[app] = &c
				}
				j.Training = &workload.Training{App: fast[app], Batch: j.Training.Batch}
			}
			if !yield(j, nil) {
				return
			}
		}
	}
}

// siaSink measures a run.
type siaSink struct {
	took       []float64 // from the submission to the end of each job that ended, in seconds
	gpuSeconds float64
	round      core.Time
	// held is how many GPUs are in use since at, live how many jobs there are. jobs is the sum of those over the rounds, most the most at the end of one.
	held, live, most int
	at               core.Time
	jobs             float64
	rounds           int
}

func (s *siaSink) until(t core.Time) {
	for ; core.Time(s.rounds+1)*s.round < t; s.rounds++ {
		s.jobs += float64(s.live)
		s.most = max(s.most, s.live)
	}
	s.gpuSeconds += float64(s.held) * (t - s.at).Seconds()
	s.at = t
}

func (s *siaSink) Node(core.Time, *core.Node, bool) error { return nil }

func (s *siaSink) Submitted(t core.Time, _ *sim.Live) error {
	s.until(t)
	s.live++
	return nil
}

func (s *siaSink) Bound(t core.Time, _ *sim.Live, pods []core.Placement, _ core.Reason) error {
	s.until(t)
	for i := range pods {
		s.held += bits.OnesCount64(pods[i].GPUs)
	}
	return nil
}

func (s *siaSink) Released(t core.Time, _ *sim.Live, pods []core.Placement, _ sim.Release, _ sim.Eviction) error {
	s.until(t)
	for i := range pods {
		s.held -= bits.OnesCount64(pods[i].GPUs)
	}
	return nil
}

func (s *siaSink) Ended(t core.Time, j *sim.Live, _ *sim.Rejection) error {
	s.until(t)
	s.live--
	s.took = append(s.took, (t - j.Submitted).Seconds())
	return nil
}

// sample is a sample of a workload, and the cluster on which it runs.
type sample struct {
	cluster workload.Cluster
	jobs    []workload.Job
}

// openSamples reads the samples of a workload of Sia's authors.
func openSamples(file string) ([]sample, error) {
	n, err := workload.Samples(file)
	if err != nil {
		return nil, err
	}
	cluster, err := workload.OpenCluster(siaCluster, workload.Options{})
	if err != nil {
		return nil, err
	}
	out := make([]sample, n)
	for i := range out {
		out[i].cluster = cluster
		jobs, _, err := workload.OpenJobs(file, workload.Options{Sample: i + 1})
		if err != nil {
			return nil, err
		}
		for j, err := range jobs {
			if err != nil {
				return nil, err
			}
			out[i].jobs = append(out[i].jobs, j)
		}
	}
	return out, nil
}

// playSeeds is the mean over the seeds, and the means by seed.
func (a siaArm) playSeeds(ctx context.Context, samples []sample, seeds []uint64) (out siaOutcome, means []float64, err error) {
	n := float64(len(seeds))
	for _, s := range seeds {
		x, err := a.play(ctx, samples, s)
		if err != nil {
			return out, nil, err
		}
		means = append(means, x.mean)
		out.mean, out.p99, out.makespan = out.mean+x.mean/n, out.p99+x.p99/n, out.makespan+x.makespan/n
		out.restarts, out.similar = out.restarts+x.restarts/n, out.similar+x.similar/n
	}
	return out, means, nil
}

// siaBand is by which share figures may differ of which no spread is published.
const siaBand = 0.15

func runSchedmateSia(ctx context.Context, o Options) (Result, error) {
	if _, err := o.trace("sia/profile_placements.csv.gz", "measurements of Sia's authors"); err != nil {
		return nil, err
	}
	seeds := []uint64{0, 1, 2}
	if len(o.Seeds) > 0 {
		seeds = seeds[:0]
		for _, s := range o.Seeds {
			seeds = append(seeds, uint64(s))
		}
	}
	t := &Table{Caption: siaCaption}
	for i := range siaTraces {
		s := &siaTraces[i]
		file, err := o.trace(s.file, "workloads of Sia's authors")
		if err != nil {
			return nil, err
		}
		samples, err := openSamples(file)
		if err != nil {
			return nil, err
		}
		if err := s.compare(ctx, &o, t, samples, seeds); err != nil {
			return nil, err
		}
	}
	t.Notes = append(t.Notes, siaNote)
	return t, nil
}

const siaCaption = "Jobs on any number of GPUs (Sia, SOSP 2023; SchedMate §4.2, §5.3) on 24 T4, 24 RTX 2080 Ti and 16 A100 GPUs, in rounds of 60 s. Each job is as fast as Sia's authors measured\n" +
	"it to be. First Sia as in the simulator of its authors, which profiles no job; then Sia that profiles each job on each GPU model before it trains, as SchedMate describes it,\n" +
	"and Sia+, where jobs that are similar to one that has ended are not profiled and start with what was learned from that."

const siaNote = "Public: the workloads, step times, gradients, and the constants of the authors' simulator. Assumed by us: 30 s of profiling on one GPU of each model, beside the start, during which a job\n" +
	"does not train (no paper says it); similar jobs are found for 85 % of the jobs, if one of their application has ended. SchedMate lets a part of the jobs end early, and does not say which: here none does.\n" +
	"The engine places the pods of jobs on nodes: where what is free is in pieces, jobs restart elsewhere. In the authors' simulator they move for nothing."

// compare adds the rows of a workload.
func (s *siaTrace) compare(ctx context.Context, o *Options, t *Table, samples []sample, seeds []uint64) error {
	jobs := 0
	for _, x := range samples {
		jobs += len(x.jobs)
	}
	run := func(what string, a siaArm) (siaOutcome, []float64, error) {
		o.say("%s: %d samples, %s", s.name, len(samples), what)
		if a.similar > 0 && a.similar < 1 {
			return a.playSeeds(ctx, samples, seeds)
		}
		x, err := a.play(ctx, samples, 0)
		return x, nil, err
	}
	sia, _, err := run("Sia", siaArm{})
	if err != nil {
		return err
	}
	profiled, _, err := run("Sia that profiles", siaArm{profile: siaProfile})
	if err != nil {
		return err
	}
	plus, means, err := run("Sia+", siaArm{profile: siaProfile, similar: advisorMatches})
	if err != nil {
		return err
	}
	row := func(figure string, theirs, ours float64, unit string) Row {
		return within(s.name+": "+figure, theirs, ours, siaBand, unit)
	}
	t.Rows = append(t.Rows, asInputs(within(s.name+": jobs of a sample", 160, float64(jobs)/float64(max(1, len(samples))), 0, ""))...)
	t.Rows = append(t.Rows,
		s.spreadRow("Sia, mean JCT (Sia's paper)", s.sia.mean, s.spread[0], sia.mean),
		row("Sia, p99 JCT (Sia's paper)", s.sia.p99, sia.p99, "h"),
		s.spreadRow("Sia, makespan (Sia's paper)", s.sia.makespan, s.spread[1], sia.makespan),
		row("Sia, GPU-hours of a job (Sia's paper)", s.sia.gpuHours, sia.gpuHours, "h"),
		row("Sia, jobs at a time (Sia's paper)", s.sia.jobs, sia.jobs, ""),
		row("Sia, most jobs at a time (Sia's paper)", s.sia.most, sia.most, ""),
		row("Sia that profiles, mean JCT", s.before.mean, profiled.mean, "h"),
		row("Sia that profiles, p99 JCT", s.before.p99, profiled.p99, "h"),
		row("Sia that profiles, makespan", s.before.makespan, profiled.makespan, "h"),
		row("Sia+, mean JCT", s.after.mean, plus.mean, "h"),
		row("Sia+, p99 JCT", s.after.p99, plus.p99, "h"),
		row("Sia+, makespan", s.after.makespan, plus.makespan, "h"),
		s.shorter(profiled.mean, plus.mean),
		unpublished(s.name+": Sia+, mean JCT shorter than of Sia that profiles no job", 100*(1-plus.mean/sia.mean), "%"),
		unpublished(s.name+": Sia+, jobs with a similar one", 100*plus.similar, "%"),
		unpublished(s.name+": restarts of a job, Sia", sia.restarts, ""),
		unpublished(s.name+": restarts of a job, Sia that profiles", profiled.restarts, ""),
		unpublished(s.name+": restarts of a job, Sia+", plus.restarts, ""),
	)
	t.Notes = append(t.Notes, fmt.Sprintf("%s: by seed of what similar jobs are found, the mean JCT of Sia+ is %.3f to %.3f h.", s.name, slices.Min(means), slices.Max(means)))
	if s.name != siaTraces[0].name {
		return nil
	}
	return s.sensitivity(t, run)
}

// spreadRow compares a figure whose spread over the samples is published.
func (s *siaTrace) spreadRow(figure string, theirs, spread, ours float64) Row {
	r := withinPoints(s.name+": "+figure, theirs, spread, ours, "h")
	r.How = "within " + number(spread) + " h, their spread"
	return r
}

// shorter compares by how much Sia+ shortens the mean completion time, which the paper gives for three workloads as 13.3 to 20 %.
func (s *siaTrace) shorter(before, after float64) Row {
	x := 100 * (1 - after/before)
	low, high := 13.3, 20.3 // of Helios and of Philly, the least and the most
	return Row{
		Figure: s.name + ": Sia+, mean JCT shorter", Paper: 100 * (1 - s.after.mean/s.before.mean), Ours: x, Unit: "%",
		Within: x >= low && x <= high, How: "in the paper's range", Low: &low, High: &high,
	}
}

// sensitivity adds what our assumptions come to, on the first workload.
func (s *siaTrace) sensitivity(t *Table, run func(string, siaArm) (siaOutcome, []float64, error)) error {
	for _, c := range []struct {
		name string
		siaArm
	}{
		{"Sia that profiles for 10 s", siaArm{profile: 10 * core.Second}},
		{"Sia+ that profiles for 10 s", siaArm{profile: 10 * core.Second, similar: advisorMatches}},
		{"Sia that profiles for 60 s", siaArm{profile: 60 * core.Second}},
		{"Sia+ that profiles for 60 s", siaArm{profile: 60 * core.Second, similar: advisorMatches}},
		{"Sia+ that finds all similar jobs", siaArm{profile: siaProfile, similar: 1}},
		{"Sia that knows all measurements", siaArm{known: true}},
		{"Sia, steps as short as measured", siaArm{measured: true}},
	} {
		x, _, err := run(c.name, c.siaArm)
		if err != nil {
			return err
		}
		t.Rows = append(t.Rows, unpublished(s.name+": mean JCT, "+c.name, x.mean, "h"))
	}
	return nil
}
