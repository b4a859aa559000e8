package reproduce

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"github.com/muster-sched/muster/core/goodput"
	"github.com/muster-sched/muster/sim/elastic"
	"github.com/muster-sched/muster/workload"
)

var schedmateSia = Experiment{
	Name:  "schedmate-sia",
	Title: "Sia, which chooses GPUs and their number for each job, and what SchedMate adds to it: no profiling of jobs like earlier ones",
	Takes: []string{"traces", "seeds"},
	run:   runSchedmateSia,
}

// siaOptions are the cluster, the rules and the constants of the simulator of Sia's authors (its default cluster; the command of its page).
func siaOptions() elastic.Options {
	return elastic.Options{
		Pools:     []elastic.Pool{{Model: "aws", Nodes: 6, PerNode: 4}, {Model: "dgx-ext", Nodes: 2, PerNode: 8}, {Model: "rtx", Nodes: 3, PerNode: 8}},
		Round:     60,
		Objective: goodput.SiaObjective,
		Restart:   map[string]float64{"cifar10": 50, "deepspeech2": 25, "bert": 120, "yolov3": 80, "imagenet": 250},
		Expected:  map[string]float64{"cifar10": 30, "deepspeech2": 25, "bert": 120, "yolov3": 45, "imagenet": 250},
		Slower:    map[string]float64{"cifar10": 1.8, "deepspeech2": 1.2, "bert": 1.2, "yolov3": 1.2, "imagenet": 1.2},
	}
}

// siaProfile is for how long a job is profiled on each GPU model, in seconds: our assumption, no paper says it of its simulations.
const siaProfile = 30

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

// siaArm is what the scheduler knows about jobs.
type siaArm struct {
	profile  float64
	similar  float64 // share of the jobs for which similar ones are looked for and found, if some have ended
	known    bool
	measured bool // steps take as long as was measured
}

// siaOutcome is what became of the jobs of all samples of a workload.
type siaOutcome struct {
	siaFigures
	restarts, similar float64 // a job; share of the jobs
}

// play runs the samples of a workload, in each of them as if it were alone.
func (a siaArm) play(ctx context.Context, m *workload.Elastic, samples [][]workload.ElasticJob, seed uint64) (out siaOutcome, err error) {
	outcomes := make([]elastic.Outcome, len(samples))
	err = inParallel(ctx, len(samples), func(int) {}, func(i int) error {
		o := siaOptions()
		o.Profile, o.Known = a.profile, a.known
		if a.measured {
			o.Slower = nil
		}
		if a.similar > 0 {
			o.Similar = func(job int) bool {
				return rand.New(rand.NewPCG(seed, uint64(i)<<32|uint64(job))).Float64() < a.similar
			}
		}
		var err error
		outcomes[i], err = elastic.Run(m, samples[i], o)
		return err
	})
	if err != nil {
		return out, err
	}
	var took []float64
	n := float64(len(samples))
	for _, o := range outcomes {
		took = append(took, o.Took...)
		out.makespan += o.Makespan / 3600 / n
		out.gpuHours += o.GPUSeconds / 3600
		out.jobs += o.Mean / n
		out.most = max(out.most, float64(o.Most))
		out.restarts += float64(o.Restarts)
		out.similar += float64(o.Similar)
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

// playSeeds is the mean over the seeds, and the means by seed.
func (a siaArm) playSeeds(ctx context.Context, m *workload.Elastic, samples [][]workload.ElasticJob, seeds []uint64) (out siaOutcome, means []float64, err error) {
	n := float64(len(seeds))
	for _, s := range seeds {
		x, err := a.play(ctx, m, samples, s)
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
	profiles, err := o.trace("sia/profile_placements.csv.gz", "measurements of Sia's authors")
	if err != nil {
		return nil, err
	}
	m, err := workload.OpenElastic(filepath.Dir(profiles))
	if err != nil {
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
		samples, err := workload.OpenElasticJobs(file)
		if err != nil {
			return nil, err
		}
		if err := s.compare(ctx, &o, t, m, samples, seeds); err != nil {
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
	"These rows are not the engine's: sim/elastic chooses by core/goodput, and knows GPUs by their number alone, as the authors' simulator does."

// compare adds the rows of a workload.
func (s *siaTrace) compare(ctx context.Context, o *Options, t *Table, m *workload.Elastic, samples [][]workload.ElasticJob, seeds []uint64) error {
	jobs := 0
	for _, x := range samples {
		jobs += len(x)
	}
	run := func(what string, a siaArm) (siaOutcome, []float64, error) {
		o.say("%s: %d samples, %s", s.name, len(samples), what)
		if a.similar > 0 && a.similar < 1 {
			return a.playSeeds(ctx, m, samples, seeds)
		}
		x, err := a.play(ctx, m, samples, 0)
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
		{"Sia that profiles for 10 s", siaArm{profile: 10}},
		{"Sia+ that profiles for 10 s", siaArm{profile: 10, similar: advisorMatches}},
		{"Sia that profiles for 60 s", siaArm{profile: 60}},
		{"Sia+ that profiles for 60 s", siaArm{profile: 60, similar: advisorMatches}},
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
