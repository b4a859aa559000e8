package reproduce

import (
	"context"
	"fmt"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/report"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

var asiStandby = Experiment{
	Name:  "asi-standby",
	Title: "HP services of asi lend their GPUs at night, and LP jobs use them (ASI §4.2, Fig. 16)",
	run:   runASIStandby,
	Takes: []string{"seeds", "full"},
}

// The length of a replay: two nights, or a week.
const (
	standbyLength = 60 * 3600 * core.Second
	standbyFull   = 7 * 24 * 3600 * core.Second
)

// standbyRun is a replay with Standby or without.
type standbyRun struct {
	metrics.Summary
	waits [2]classWait          // by class
	hours [][lentCauses]float64 // GPU-hours that were lent in each hour, by what became of them
}

func runASIStandby(ctx context.Context, o Options) (Result, error) {
	seeds, length := o.Seeds, standbyLength
	if o.Full {
		length = standbyFull
	}
	if len(seeds) == 0 {
		seeds = []int64{0}
	}
	runs := make([][2]standbyRun, len(seeds))
	steps := newReplays(&o, 2*len(seeds), length)
	say := func(i int) { o.say("seed %d, %s Standby", seeds[i/2], [...]string{"without", "with"}[i%2]) }
	if err := inParallel(ctx, 2*len(seeds), say, func(i int) (err error) {
		runs[i/2][i%2], err = replayStandby(ctx, i%2 == 1, uint64(seeds[i/2]), length, steps.of(i))
		return err
	}); err != nil {
		return nil, err
	}
	return &Table{
		Caption: fmt.Sprintf("The built-in workload asi-standby under the default policy, %.0f hours, %d seed(s); the reference: Heterogeneity at Hyperscale (ASI),\n"+
			"§4.2 and Fig. 16.", length.Seconds()/3600, len(seeds)),
		Notes: []string{
			"Inputs, not outcomes: who lends and when (the paper plots Fig. 16; in its text are the surge at midnight and its 10,000 GPU-hours), how long\n" +
				"evicted pods take to shut down (13 s on average, P95 48 s, killed after 60 s), and how full the cluster is (93 %).",
			"Without Standby is the same workload in which no job lends.",
		},
		Rows:   standbyRows(runs),
		stacks: []report.Stack{standbyHours(runs[0][1].hours)},
	}, nil
}

// replayStandby replays the workload. Without lends, its windows are left out.
func replayStandby(ctx context.Context, lends bool, seed uint64, length core.Time, progress func(core.Time, int, int)) (standbyRun, error) {
	var r standbyRun
	wo := workload.Options{Seed: seed}
	cluster, err := workload.OpenCluster("asi-standby", wo)
	if err != nil {
		return r, err
	}
	wo.Cluster = &cluster
	all, _, err := workload.OpenJobs("asi-standby", wo)
	if err != nil {
		return r, err
	}
	jobs := workload.Jobs(func(yield func(workload.Job, error) bool) {
		for j, err := range all {
			if !lends {
				j.Standby = nil
			}
			if !yield(j, err) {
				return
			}
		}
	})
	p, _ := policy.ByName("default")
	c := metrics.New(metrics.Options{Levels: len(cluster.Levels)})
	waits := &classWaits{missing: map[*sim.Live]int{}}
	lent := newLentIdle()
	config := sim.Config{Cluster: cluster, Jobs: jobs, Policy: p.Policy, Seed: seed, Until: length, Progress: progress}
	config.Models.Grace = 60 * core.Second
	config.Models.Shutdown = sim.Shutdown{Mean: 13 * core.Second, P95: 48 * core.Second}
	stats, err := sim.Run(ctx, config, c, waits, lent)
	if err == nil && stats.Interrupted {
		err = ctx.Err()
	}
	r.Summary, r.waits = c.Summary(), waits.until(stats.End)
	r.hours = lent.until(stats.End)
	return r, err
}

// standbyHours is the plot of what was lent, by what became of it.
func standbyHours(hours [][lentCauses]float64) report.Stack {
	s := report.Stack{
		Title: "Lent in each hour", Unit: "GPU-hours",
		Note:  "What LP jobs used, and why they did not use the rest: those that wait for the GPU model do not fit, LP pods run on as many other GPUs of the model, or no LP job wants it.",
		Parts: []report.StackPart{{Name: "harvested"}, {Name: "do not fit"}, {Name: "run elsewhere"}, {Name: "not wanted"}},
	}
	for cause := range s.Parts {
		for _, h := range hours {
			s.Parts[cause].Values = append(s.Parts[cause].Values, h[cause])
		}
	}
	return s
}

// standbyRows compares with §4.2, over all seeds.
func standbyRows(runs [][2]standbyRun) []Row {
	lent, used, most, resumed, longest := 0.0, 0.0, 0.0, 0.0, 0.0
	at, took, p95 := 0, 0.0, 0.0
	var left, leftP95 float64
	var causes [lentCauses]float64
	var waits [2][2]classWait
	for i := range runs {
		for arm := range runs[i] {
			for class := range waits[arm] {
				waits[arm][class].jobs += runs[i][arm].waits[class].jobs
				waits[arm][class].sum += runs[i][arm].waits[class].sum
			}
		}
		r := &runs[i][1]
		for h, parts := range r.hours {
			gpuHours := 0.0
			for cause, x := range parts {
				gpuHours += x
				causes[cause] += x
			}
			if gpuHours > most {
				most, at = gpuHours, h%24
			}
		}
		if s := r.Standby; s != nil {
			lent, used, longest = lent+s.GPUHours, used+s.Harvested, max(longest, s.Max)
			resumed, took, p95 = resumed+float64(s.Resumptions), took+float64(s.Resumptions)*s.Mean, max(p95, s.P95)
		}
		if e := r.Evictions; e != nil {
			left, leftP95 = left+e.Mean/float64(len(runs)), max(leftP95, e.P95)
		}
	}
	none := func(figure string, ours float64, unit string) Row {
		return Row{Figure: figure, Bound: "none", Ours: ours, Unit: unit, Within: true}
	}
	input := func(figure string, ours float64, unit, paper string) Row {
		row := none(figure, ours, unit)
		row.Note = "an input; the paper: " + paper
		return row
	}
	wait := func(arm int, class core.Class) float64 { return waits[arm][class].mean() }
	hp := none("HP jobs, mean wait, with Standby", wait(1, core.HP), "s")
	hp.How, hp.Within = "not longer by more than a twentieth", wait(1, core.HP) <= 1.05*wait(0, core.HP)
	rows := []Row{
		atLeast("Standby GPU-hours harvested", 90, 90, 100*used/max(1, lent), "%"),
		none("not harvested: LP jobs wait for the model, and do not fit", 100*causes[lentMisfit]/max(1, lent), "%"),
		none("not harvested: as many LP pods run on other GPUs of the model", 100*causes[lentElsewhere]/max(1, lent), "%"),
		none("not harvested: no LP job wants the model", 100*causes[lentUnwanted]/max(1, lent), "%"),
		atMost("an HP pod resumes after at most", 60, 60, longest, "s"),
		over("LP jobs, mean wait, shorter than without Standby", 0, 100*(1-wait(1, core.LP)/max(1, wait(0, core.LP))), "%").said("returns it to productive use"),
		hp,
		none("HP jobs, mean wait, without Standby", wait(0, core.HP), "s"),
		none("LP jobs, mean wait, with Standby", wait(1, core.LP), "s"),
		none("LP jobs, mean wait, without Standby", wait(0, core.LP), "s"),
		none("an HP pod resumes after, mean", took/max(1, resumed), "s"),
		none("an HP pod resumes after, P95", p95, "s"),
		none("HP pods resumed", resumed, ""),
		input("Standby GPU-hours in the busiest hour", most, "", "as much as 10,000"),
		input("the busiest hour of the day", float64(at), "h", "midnight"),
		input("evicted pods leave after, mean", left, "s", "13 s"),
		input("evicted pods leave after, P95", leftP95, "s", "48 s"),
	}
	rows[0].Note = "neither the LP jobs of ASI's nights nor the sizes of the pods that lend are published. asi asks for 93 % of the GPUs with those that\n" +
		"are lent: at night other GPUs are free too, and most LP pods want 8 GPUs, while most of the pods that lend have one"
	return rows
}
