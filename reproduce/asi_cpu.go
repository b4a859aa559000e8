package reproduce

import (
	"context"
	"fmt"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/report"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

var asiCPU = Experiment{
	Name:  "asi-cpu",
	Title: "Jobs without GPUs beside training: what they do, what they slow down, and the cores kept for idle GPUs",
	run:   runASICPU,
	Takes: []string{"seeds"},
}

const (
	asiCPUGPUs  = 15_541 // a tenth of asi
	asiCPUUntil = 48 * 3600 * core.Second
)

// cpuSetting is a way to place jobs without GPUs.
type cpuSetting struct {
	load     float64 // of jobs without GPUs; 0: as published
	strategy place.Strategy
	reserve  int64
}

func (c cpuSetting) String() string {
	if c.strategy == place.Random {
		return "random"
	}
	return fmt.Sprintf("LeastHarm, reserve %g", float64(c.reserve)/1000)
}

func (c cpuSetting) loadName() string {
	if c.load > 0 {
		return fmt.Sprintf("load %g", c.load)
	}
	return "published load"
}

// cpuSettings are the points of the curve. At the published load, nearly all the work is done
// whatever is kept: the other load has more than fits.
func cpuSettings() []cpuSetting {
	var out []cpuSetting
	for _, load := range []float64{0, 0.7} {
		out = append(out, cpuSetting{load, place.Random, 0})
		for _, reserve := range []int64{0, 250, 500, 750, 1000} {
			out = append(out, cpuSetting{load, place.LeastHarm, reserve})
		}
	}
	return out
}

// cpuOutcome is the sums over the seeds of what a setting gave.
type cpuOutcome struct {
	sim.CPUBesideGPU
	gar, lackCPU, lackCPUSmall float64
}

func runASICPU(ctx context.Context, o Options) (Result, error) {
	seeds := o.Seeds
	if len(seeds) == 0 {
		seeds = []int64{0}
	}
	settings := cpuSettings()
	all := make([]cpuOutcome, len(settings)*len(seeds))
	say := func(i int) { o.say("two days of asi-cpu, %s, seed %d", settings[i/len(seeds)], seeds[i%len(seeds)]) }
	if err := inParallel(ctx, len(all), say, func(i int) (err error) {
		all[i], err = settings[i/len(seeds)].play(ctx, uint64(seeds[i%len(seeds)]))
		return err
	}); err != nil {
		return nil, err
	}
	n := float64(len(seeds))
	sum := make([]cpuOutcome, len(settings))
	for i := range all {
		s, a := &sum[i/len(seeds)], &all[i]
		s.CPUOnlyCoreHours += a.CPUOnlyCoreHours / n
		s.TrainingGPUHours += a.TrainingGPUHours / n
		s.SlowedGPUHours += a.SlowedGPUHours / n
		s.Dominant += a.Dominant / n
		s.Utilization += a.Utilization / n
		s.gar += a.gar / n
		s.lackCPU += a.lackCPU / n
		s.lackCPUSmall += a.lackCPUSmall / n
	}
	return &Table{
		Caption: fmt.Sprintf("Two days of the built-in workload asi-cpu on a tenth of asi, %d seeds, under the default policy but for jobs without GPUs;\n"+
			"the reference: Heterogeneity at Hyperscale (ASI), §5.2.", len(seeds)),
		Notes: []string{
			"Inputs, not outcomes: the slowdown of training on CPU-job-dominant nodes (10 % median, 18 % P90), and with random placement the share of\n" +
				"such nodes and the cores in use, on which the load of jobs without GPUs is calibrated. The paper has no policy and no outcome to compare\n" +
				"with: it calls this an open challenge. So no row is judged.",
			"GPUs that lack CPU: idle GPUs that a pod could have but for the cores of their nodes (the cause of §4.1, Fig. 13).",
		},
		Rows:      cpuRows(settings, sum),
		tradeOffs: cpuTradeOffs(settings, sum),
	}, nil
}

// play runs a setting with a seed.
func (c cpuSetting) play(ctx context.Context, seed uint64) (cpuOutcome, error) {
	wo := workload.Options{Seed: seed, GPUs: asiCPUGPUs, CPULoad: c.load}
	cluster, err := workload.OpenCluster("asi-cpu", wo)
	if err != nil {
		return cpuOutcome{}, err
	}
	wo.Cluster = &cluster
	jobs, _, err := workload.OpenJobs("asi-cpu", wo)
	if err != nil {
		return cpuOutcome{}, err
	}
	doc, _ := policy.ByName("default")
	p := doc.Policy
	p.CPUOnly = core.CPUOnly{Strategy: &c.strategy, Reserve: c.reserve, GPUUse: int64(1000 * workload.ASIGPUJobsUse)}
	measure := metrics.New(metrics.Options{})
	stats, err := sim.Run(ctx, sim.Config{
		Cluster: cluster, Jobs: jobs, Policy: p, Seed: seed, Until: asiCPUUntil,
		Models: sim.Models{Interference: sim.Interference{Median: 0.1, P90: 0.18, GPUJobsUse: workload.ASIGPUJobsUse}},
	}, measure)
	if err == nil && stats.Interrupted {
		err = ctx.Err()
	}
	if err != nil {
		return cpuOutcome{}, err
	}
	s := measure.Summary()
	out := cpuOutcome{CPUBesideGPU: *stats.CPU, gar: s.GAR.Mean}
	for _, sh := range s.Fragmentation.Shapes {
		switch sh.Shape {
		case "8g128c":
			out.lackCPU = sh.CPU
		case "1g16c":
			out.lackCPUSmall = sh.CPU
		}
	}
	return out, nil
}

// cpuRows tells what became of each setting.
func cpuRows(settings []cpuSetting, sums []cpuOutcome) []Row {
	row := func(figure string, ours float64, unit string) Row {
		return Row{Figure: figure, Bound: "none", Ours: ours, Unit: unit, Within: true}
	}
	input := func(figure string, paper, ours float64) Row {
		return row(fmt.Sprintf("input, %s (published: %g %%)", figure, paper), ours, "%")
	}
	rows := []Row{
		input("nodes that are CPU-job-dominant, random placement", 80, 100*sums[0].Dominant),
		input("cores in use, median of the nodes, random placement", 31, 100*sums[0].Utilization),
	}
	for i, c := range settings {
		s, name := &sums[i], c.loadName()+", "+c.String()
		rows = append(rows,
			row(name+": work of jobs without GPUs", s.CPUOnlyCoreHours/1e6, "M core-hours"),
			row(name+": training lost to them", 100*s.SlowedGPUHours/max(s.TrainingGPUHours, 1), "%"),
			row(name+": idle GPUs that lack CPU, 8g128c", s.lackCPU, "GPUs"),
			row(name+": idle GPUs that lack CPU, 1g16c", s.lackCPUSmall, "GPUs"),
			row(name+": GPUs allocated", 100*s.gar, "%"))
	}
	return rows
}

// cpuTradeOffs are the curves, for each load: what work without GPUs costs in training, and in GPUs
// that are not allocated.
func cpuTradeOffs(settings []cpuSetting, sums []cpuOutcome) []report.TradeOff {
	var out []report.TradeOff
	for i, c := range settings {
		if i == 0 || c.load != settings[i-1].load {
			const work = "work of jobs without GPUs, M core-hours"
			out = append(out,
				report.TradeOff{Title: c.loadName() + ": training lost", X: work, Y: "GPU time of training lost to them, %"},
				report.TradeOff{Title: c.loadName() + ": GPUs allocated", X: work, Y: "GPUs allocated, %"})
		}
		s, kind, label := &sums[i], "LeastHarm", fmt.Sprintf("reserve %g", float64(c.reserve)/1000)
		if c.strategy == place.Random {
			kind, label = "random", "random"
		}
		for k, y := range []float64{100 * s.SlowedGPUHours / max(s.TrainingGPUHours, 1), 100 * s.gar} {
			t := &out[len(out)-2+k]
			if n := len(t.Lines); n == 0 || t.Lines[n-1].Name != kind {
				t.Lines = append(t.Lines, report.TradeCurve{Name: kind})
			}
			points := &t.Lines[len(t.Lines)-1].Points
			*points = append(*points, report.TradePoint{Label: label, X: s.CPUOnlyCoreHours / 1e6, Y: y})
		}
	}
	return out
}
