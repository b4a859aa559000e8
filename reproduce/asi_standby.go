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

// The length of a replay: two nights, or a week; one night where LP jobs wait, which takes longest.
const (
	standbyLength = 60 * 3600 * core.Second
	standbyFull   = 7 * 24 * 3600 * core.Second
	standbyNight  = 36 * 3600 * core.Second
)

// The replays of a seed. In the last one more LP jobs come, standbyMore for each of the workload:
// so many that on each GPU model that is lent some wait throughout the nights.
const (
	standbyWithout = iota
	standbyWith
	standbyBacklog
	standbyArms
	standbyMore = 0.6
)

var standbyNames = [standbyArms]string{"without Standby", "with Standby", "with Standby and more LP jobs"}

// standbyRun is a replay.
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
	runs := make([][standbyArms]standbyRun, len(seeds))
	steps := newReplays(&o, standbyArms*len(seeds), length)
	say := func(i int) { o.say("seed %d, %s", seeds[i/standbyArms], standbyNames[i%standbyArms]) }
	if err := inParallel(ctx, standbyArms*len(seeds), say, func(i int) (err error) {
		of := length
		if i%standbyArms == standbyBacklog {
			of = min(of, standbyNight)
		}
		runs[i/standbyArms][i%standbyArms], err = replayStandby(ctx, i%standbyArms, uint64(seeds[i/standbyArms]), of, steps.of(i))
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
			fmt.Sprintf("asi asks for 93 %% of the GPUs, those that are lent included, so at night other GPUs are idle, too. The paper harvests 90 %% in a fleet whose LP\n"+
				"demand it does not publish. So the row that is compared is that of a fleet where LP jobs wait: with %.0f %% more LP jobs than in asi, alike ones.", 100*standbyMore),
		},
		Rows:   standbyRows(runs),
		stacks: []report.Stack{standbyHours(runs[0][standbyWith].hours)},
	}, nil
}

// replayStandby replays the workload as one of the arms.
func replayStandby(ctx context.Context, arm int, seed uint64, length core.Time, progress func(core.Time, int, int)) (standbyRun, error) {
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
	jobs := all
	switch arm {
	case standbyWithout:
		jobs = changed(all, func(j *workload.Job) { j.Standby = nil })
	case standbyBacklog:
		jobs = withMore(all, standbyMore)
	}
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

// withMore yields the jobs, and a share more LP jobs than there are, each like the one before it.
func withMore(jobs workload.Jobs, share float64) workload.Jobs {
	return func(yield func(workload.Job, error) bool) {
		due := 0.0
		for j, err := range jobs {
			if !yield(j, err) {
				return
			}
			if j.Class != core.LP {
				continue
			}
			if due += share; due >= 1 {
				due--
				j.Name += "-more"
				if !yield(j, err) {
					return
				}
			}
		}
	}
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

// lentShares sums up what was lent in one arm, by what became of it, in per cent.
func lentShares(runs [][standbyArms]standbyRun, arm int) (shares [lentCauses]float64) {
	sum := 0.0
	for i := range runs {
		for _, parts := range runs[i][arm].hours {
			for cause, x := range parts {
				shares[cause] += x
				sum += x
			}
		}
	}
	for cause := range shares {
		shares[cause] *= 100 / max(1, sum)
	}
	return shares
}

// standbyRows compares with §4.2, over all seeds.
func standbyRows(runs [][standbyArms]standbyRun) []Row {
	most, resumed, longest := 0.0, 0.0, 0.0
	at, took, p95 := 0, 0.0, 0.0
	var left, leftP95 float64
	var waits [standbyArms][2]classWait
	for i := range runs {
		for arm := range runs[i] {
			for class := range waits[arm] {
				waits[arm][class].jobs += runs[i][arm].waits[class].jobs
				waits[arm][class].sum += runs[i][arm].waits[class].sum
			}
			if s := runs[i][arm].Standby; s != nil {
				longest = max(longest, s.Max)
			}
		}
		r := &runs[i][standbyWith]
		for h, parts := range r.hours {
			gpuHours := 0.0
			for _, x := range parts {
				gpuHours += x
			}
			if gpuHours > most {
				most, at = gpuHours, h%24
			}
		}
		if s := r.Standby; s != nil {
			resumed, took, p95 = resumed+float64(s.Resumptions), took+float64(s.Resumptions)*s.Mean, max(p95, s.P95)
		}
		if e := r.Evictions; e != nil {
			left, leftP95 = left+e.Mean/float64(len(runs)), max(leftP95, e.P95)
		}
	}
	causes, backlog := lentShares(runs, standbyWith), lentShares(runs, standbyBacklog)
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
	return []Row{
		atLeast("Standby GPU-hours harvested, where LP jobs wait", 90, 90, backlog[lentUsed], "%").because("the sizes of the pods that lend, and of LP pods, are not published:\n" +
			"most LP pods of asi want 8 GPUs, while most of the pods that lend have one"),
		none("not harvested there: the LP jobs that wait for the model do not fit", backlog[lentMisfit], "%"),
		none("not harvested there: as many LP pods run on other GPUs of the model", backlog[lentElsewhere], "%"),
		none("LP jobs, mean wait there", wait(standbyBacklog, core.LP), "s"),
		none("HP jobs, mean wait there", wait(standbyBacklog, core.HP), "s"),
		none("Standby GPU-hours harvested, with the LP jobs of asi", causes[lentUsed], "%"),
		none("not harvested: LP jobs wait for the model, and do not fit", causes[lentMisfit], "%"),
		none("not harvested: as many LP pods run on other GPUs of the model", causes[lentElsewhere], "%"),
		none("not harvested: no LP job wants the model", causes[lentUnwanted], "%"),
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
}
