package reproduce

import (
	"context"
	"fmt"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
)

var kantInference = Experiment{
	Name:  "kant-inference",
	Title: "Kant's inference clusters: quota use, GPUs allocated, fragmentation by size of the cluster",
	Takes: []string{"seeds", "full"},
	run:   runKantInference, makesRuns: true,
}

// inferenceClusters are the clusters of Kant Figure 15, the largest first.
var inferenceClusters = []string{"i7", "i2", "a10"}

func runKantInference(ctx context.Context, o Options) (Result, error) {
	d, _ := policy.ByName("EBinpack")
	var arms []arm
	for _, c := range inferenceClusters {
		a := arm{name: c, workload: "kant-inference-" + c, policy: d.Policy}
		if c == "i2" {
			a.workload = "kant-inference"
		}
		arms = append(arms, a)
	}
	seeds := o.sampleSeeds()
	runs, err := replayAll(ctx, &o, arms, seeds)
	if err != nil {
		return nil, err
	}
	i7, i2, a10 := runs[0], runs[1], runs[2]
	t := &Table{Caption: fmt.Sprintf("A week of Kant's inference clusters, %d seeds, after Kant §5.2: i7 with 1,024 GPUs, i2 with 192, a10 with 88,\n"+
		"of several models, shared by tenants with quotas. Queueing by Backfill, placement by E-Binpack. Means over the seeds.", len(seeds))}
	t.Rows = append(t.Rows, allocationRows(i7, i2, a10)...)
	t.Rows = append(t.Rows, quotaRows(i2)...)
	t.Notes = []string{
		fmt.Sprintf("GFR: i7 %.1f %%, i2 %.1f %%, a10 %.1f %%. GAR: i7 %.1f %%, i2 %.1f %%, a10 %.1f %%. A service is pending for %.1f %% of the time in i7, for %.1f %%\n"+
			"in i2, and for %.1f %% in a10, which has 11 nodes. In i2 no service is ever pending with %.0f of %d seeds.",
			mean(i7, gfr), mean(i2, gfr), mean(a10, gfr), mean(i7, meanGAR), mean(i2, meanGAR), mean(a10, meanGAR),
			mean(i7, pendingTime), mean(i2, pendingTime), mean(a10, pendingTime), mean(i2, neverPending)*float64(len(seeds)), len(seeds)),
		"Bands: the services are generated to request as much as was allocated on the paper's clusters, so GAR follows from the workload (2 points:\n" +
			"the difference between seeds). The scheduler determines that almost no service waits, how fragmented the clusters are, and that no quota is\n" +
			"exceeded. 5 % of the time: in a few weeks a large service waits long. We chose the sizes of i7 and a10; the paper gives only their order.\n" +
			"The band of GFR is half to double, and that of its growth is the direction.",
		"Quotas: the paper plots their use in Figures 10 to 12 without numbers. Ours is the mean over the week, and has no band; the row says NO\n" +
			"if a tenant ever used more than its quota and what it may borrow.",
	}
	return t, nil
}

// allocationRows compares how full and how fragmented the clusters are (§5.2.2,
// Figures 13 to 15).
func allocationRows(i7, i2, a10 []outcome) []Row {
	grows := func(figure string, small, big []outcome) Row {
		return atLeast(figure, 1, 1, mean(small, gfr)/mean(big, gfr), "x").said("increases")
	}
	waits := atMost("i2: time with a service pending", 0, 5, mean(i2, pendingTime), "%").said("no jobs were pending")
	gar := asInputs(withinPoints("i2: GAR", 93, 2, mean(i2, meanGAR), "%"))
	return append(gar,
		waits,
		roughly("i2: GFR", 6.5, mean(i2, gfr), "%"),
		grows("GFR of i2 over i7", i2, i7),
		grows("GFR of a10 over i2", a10, i2),
	)
}

func pendingTime(r *outcome) float64 { return 100 * r.pending }

func neverPending(r *outcome) float64 {
	if r.pending > 0 {
		return 0
	}
	return 1
}

// quotaRows returns what tenants use of their quotas (§5.2.1).
func quotaRows(runs []outcome) []Row {
	var rows []Row
	for i, u := range runs[0].use {
		if u.quota.Nominal == 0 {
			continue // of the other model alone
		}
		row := Row{
			Figure: fmt.Sprintf("i2: %s, use of %s GPUs of %s", u.queue, number(float64(u.quota.Nominal)/float64(core.WholeGPU)), u.quota.Model),
			Bound:  "none", Unit: "%", Within: true, How: "never beyond its limit",
		}
		for k := range runs {
			used := &runs[k].use[i]
			row.Ours += 100 * used.gpus * float64(core.WholeGPU) / float64(u.quota.Nominal) / float64(len(runs))
			row.Within = row.Within && used.peak <= u.quota.Nominal+u.quota.BorrowingLimit
		}
		rows = append(rows, row)
	}
	return rows
}
