package reproduce

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/muster-sched/muster/advisor"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/semantic/estimate"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

var schedmateStandalone = Experiment{
	Name:  "schedmate-standalone",
	Title: "Shortest job first on the advisor's estimates, compared with QSSF and Tiresias",
	Takes: []string{"traces", "seeds"},
	run:   runSchedmateStandalone,
}

// By how much SchedMate's mean JCT is below that of others (§5.3, case study 3), in per cent.
const (
	belowQSSF     = 25.7
	belowTiresias = 16
)

// standaloneArm is a policy, with what predicts run times for it.
type standaloneArm struct {
	name, policy string
	advisor      func() (sim.Advisor, error)
	exact        bool // it knows the run times
	shares       bool // jobs may share GPUs, and have profiles
}

func standaloneArms(ctx context.Context) []standaloneArm {
	history := func() (sim.Advisor, error) { return advisor.NewHistory(ctx, nil, estimate.Default, true) }
	rolling := func() (sim.Advisor, error) { return &advisor.Rolling{}, nil }
	return []standaloneArm{
		{name: "FIFO", policy: "LucidFIFO"},
		{name: "Tiresias", policy: "Tiresias"},
		{name: "QSSF, rolling estimate", policy: "QSSF", advisor: rolling},
		{name: "SchedMate", policy: "LucidSJF", advisor: history},
		{name: "SJF, rolling estimate", policy: "LucidSJF", advisor: rolling},
		{name: "QSSF, the advisor's estimate", policy: "QSSF", advisor: history},
		{name: "SRTF, the advisor's estimate", policy: "LucidSRTF", advisor: history},
		{name: "SJF, exact run times", policy: "LucidSJF", exact: true},
		{name: "QSSF, exact run times", policy: "QSSF", exact: true},
		{name: "Horus", policy: "Horus", shares: true},
	}
}

func runSchedmateStandalone(ctx context.Context, o Options) (Result, error) {
	file, err := o.trace("philly/jobs.csv.gz", "Philly, job level")
	if err != nil {
		return nil, err
	}
	philly, err := phillySets[0].load(file)
	if err != nil {
		return nil, err
	}
	solo, err := o.trace("lucid-profiles/single_data.csv", "profiles of Lucid's authors")
	if err != nil {
		return nil, err
	}
	profiles, err := workload.OpenProfiles(filepath.Dir(solo))
	if err != nil {
		return nil, err
	}
	t := &Table{Caption: "Mean JCT under stand-alone SchedMate, which is SJF on the advisor's estimates (§4.3), and under others. Nodes of 8 GPUs.\n" +
		"Reference: SchedMate §5.3, case study 3, a sample of Acme of June to August 2023 that is not public.", Notes: standaloneNotes}
	arms := standaloneArms(ctx)
	o.say("philly: %d jobs", len(philly))
	jct, err := runStandalone(ctx, arms, philly, phillySets[0].cluster, profiles)
	if err != nil {
		return nil, err
	}
	t.Rows = append(t.Rows, standaloneRows("philly", arms, jct)...)
	const seeds = 3
	mean := make([]float64, len(arms))
	for seed := range uint64(seeds) {
		r := recurringJobs{jobs: 6000, days: 14, spread: 0.5, seed: seed + 1}
		jobs := r.make()
		o.say("generated, seed %d: %d jobs", seed+1, len(jobs))
		jct, err := runStandalone(ctx, arms, jobs, fmt.Sprintf("%dx8", int(loadOf(jobs, 1)/standaloneLoad)+1), profiles)
		if err != nil {
			return nil, err
		}
		for i := range jct {
			mean[i] += jct[i] / seeds
		}
	}
	t.Rows = append(t.Rows, standaloneRows("generated", arms, mean)...)
	of := []uint64{1, 2, 3}
	if len(o.Seeds) > 0 {
		of = of[:0]
		for _, s := range o.Seeds {
			of = append(of, uint64(s))
		}
	}
	rows, err := runAcme(ctx, &o, acmeJobsEach, of, profiles)
	if err != nil {
		return nil, err
	}
	t.Rows = append(t.Rows, rows...)
	return t, nil
}

// standaloneLoad is the GPU time of the generated jobs, relative to what the cluster has until the last submission.
const standaloneLoad = 0.98

// runStandalone returns the mean JCT of each arm, in seconds. Jobs that share GPUs have profiles by chance.
func runStandalone(ctx context.Context, arms []standaloneArm, jobs []workload.Job, nodes string, profiles *workload.Profiles) ([]float64, error) {
	var jct []float64
	for _, a := range arms {
		c, err := workload.OpenCluster(nodes, workload.Options{})
		if err != nil {
			return nil, err
		}
		d, _ := policy.ByName(a.policy)
		config := sim.Config{Cluster: c, Policy: d.Policy, Estimates: a.exact, Jobs: func(yield func(workload.Job, error) bool) {
			for _, j := range jobs {
				j.Checkpoint = core.Second // nothing is lost but the seconds that a preemption costs
				if !yield(j, nil) {
					return
				}
			}
		}}
		if a.shares {
			config.Models.Packing.Profiles = profiles
		}
		if a.advisor != nil {
			if config.Advisor, err = a.advisor(); err != nil {
				return nil, err
			}
		}
		var m means
		if _, err := sim.Run(ctx, config, &m); err != nil {
			return nil, err
		}
		jct = append(jct, m.jct/float64(m.ended))
	}
	return jct, nil
}

// standaloneRows are the figures of a set: by how much SchedMate is below others, and what their mean JCTs are.
func standaloneRows(set string, arms []standaloneArm, jct []float64) []Row {
	of := map[string]float64{}
	for i, a := range arms {
		of[a.name] = jct[i]
	}
	below := func(name, other string) float64 { return 100 * (1 - of[name]/of[other]) }
	const ours, qssf, srtf = "SchedMate", "QSSF, rolling estimate", "SRTF, the advisor's estimate"
	rows := []Row{
		atLeast(set+": SchedMate below QSSF", belowQSSF, belowQSSF, below(ours, qssf), "%"),
		atLeast(set+": SchedMate below Tiresias", belowTiresias, belowTiresias, below(ours, "Tiresias"), "%"),
		{Figure: set + ": " + srtf + ", below QSSF", Bound: "none", Ours: below(srtf, qssf), Unit: "%", Within: true},
		{Figure: set + ": " + srtf + ", below Tiresias", Bound: "none", Ours: below(srtf, "Tiresias"), Unit: "%", Within: true},
	}
	for i, a := range arms {
		rows = append(rows, Row{Figure: set + ": mean JCT, " + a.name, Bound: "none", Ours: jct[i], Unit: "s", Within: true})
	}
	return rows
}

var standaloneNotes = []string{strings.Join([]string{
	"philly is the week from 2017-10-01 on 108 nodes, without anything synthesised: the advisor knows a job's virtual cluster and GPUs, as QSSF's estimate does.",
	"generated is the mean of three seeds of the jobs of schedmate-modules with a spread of 0.5, with users and names, on as many nodes as they keep 98 % busy.",
}, " "), strings.Join([]string{
	"QSSF orders by estimated GPU time, SJF by estimated time. With exact run times SJF is behind QSSF, too: an order that does not look at GPUs",
	"lets large short jobs go before small ones. QSSF here has its rolling estimate without gradient boosting. Under Horus jobs share GPUs, by",
	"profiles of Lucid's authors that are drawn by chance, whose utilization it knows exactly; so it is not compared on the same terms.",
	"On these two sets no job fails.",
}, " "), acmeNote}
