package reproduce

import (
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// arm is one side of a comparison: a built-in workload, on the cluster of that
// name, under a policy. Its name is that of its run folder.
type arm struct {
	name, workload string
	policy         core.Policy
}

// outcome is the result of a run.
type outcome struct {
	metrics.Summary
	// use is what each queue used of its quotas; see quotaUse.
	use []usage
	// pending is the share of the week during which a job waited.
	pending float64
}

// week is what the averages over time are of: the arrivals of the built-in
// workloads, without the time in which the cluster empties.
const week = 7 * 24 * 3600 * core.Second

// replayAll replays every arm with every seed, and returns the outcomes by arm
// and by seed. If o.folder is set, the runs of the first seed are kept in its folder
// Runs, with a page that compares them.
func replayAll(ctx context.Context, o *Options, arms []arm, seeds []int64) ([][]outcome, error) {
	out := make([][]outcome, len(arms))
	for i := range out {
		out[i] = make([]outcome, len(seeds))
	}
	say := func(i int) {
		if i%len(seeds) == 0 {
			o.say("%s: %d runs", arms[i/len(seeds)].name, len(seeds))
		}
	}
	err := inParallel(ctx, len(arms)*len(seeds), say, func(i int) (err error) {
		a, s := i/len(seeds), i%len(seeds)
		folder := o.folder
		if s > 0 {
			folder = nil
		}
		out[a][s], err = arms[a].replay(ctx, uint64(seeds[s]), folder)
		return err
	})
	if err != nil || o.folder == nil {
		return out, err
	}
	var folders []string
	for i := range arms {
		folders = append(folders, arms[i].name)
	}
	return out, o.folder.Compare(Runs, folders)
}

// replay makes one run and keeps it in a folder of Runs in folder, if set.
func (a *arm) replay(ctx context.Context, seed uint64, folder *runlog.Folder) (outcome, error) {
	var r outcome
	o := workload.Options{Seed: seed}
	cluster, err := workload.OpenCluster(a.workload, o)
	if err != nil {
		return r, err
	}
	o.Cluster = &cluster
	jobs, _, err := workload.OpenJobs(a.workload, o)
	if err != nil {
		return r, err
	}
	window := metrics.Options{To: week}
	w, err := runlog.Create("", &cluster, window)
	if folder != nil {
		w, err = folder.CreateRun(path.Join(Runs, a.name), &cluster, window)
	}
	if err != nil {
		return r, err
	}
	begin := time.Now()
	use := newQuotaUse(&cluster)
	stats, err := sim.Run(ctx, sim.Config{Cluster: cluster, Jobs: jobs, Policy: a.policy, Seed: seed}, w, use)
	if err == nil && stats.Interrupted {
		err = ctx.Err()
	}
	if err != nil {
		return r, errors.Join(err, w.Abort())
	}
	r.use, r.pending = use.until(week), pending(w.Series())
	r.Summary, err = w.Close(runlog.Facts{
		Policy: a.policy.Name, Rules: metrics.NewRules(&a.policy, 0), Seed: seed, Cluster: a.workload, Workload: a.workload, Decisions: int64(stats.Decisions), Wall: time.Since(begin),
	})
	return r, err
}

// pending returns the share of the week's samples at which a job waited.
func pending(series []metrics.Sample) float64 {
	n, waiting := 0, 0
	for _, s := range series {
		if s.T > week {
			break
		}
		n++
		if s.Pending > 0 {
			waiting++
		}
	}
	return float64(waiting) / float64(max(n, 1))
}

// sampleSeeds returns the seeds to sample with: those asked for, else 0 and so
// on, ten of them or, for the full experiment, fifty.
func (o *Options) sampleSeeds() []int64 {
	if len(o.Seeds) > 0 {
		return o.Seeds
	}
	n := 10
	if o.Full {
		n = 50
	}
	seeds := make([]int64, n)
	for i := range seeds {
		seeds[i] = int64(i)
	}
	return seeds
}

// mean returns the mean of a figure over the seeds.
func mean(runs []outcome, figure func(*outcome) float64) float64 {
	sum := 0.0
	for i := range runs {
		sum += figure(&runs[i])
	}
	return sum / float64(len(runs))
}

// gain returns by how many per cent more a figure is than in the base, with the
// same seed: the median over the seeds.
func gain(runs, base []outcome, figure func(*outcome) float64) float64 {
	all := make([]float64, len(runs))
	for i := range runs {
		all[i] = 100 * (figure(&runs[i])/figure(&base[i]) - 1)
	}
	slices.Sort(all)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

func sor(r *outcome) float64       { return 100 * r.SOR }
func medianGAR(r *outcome) float64 { return 100 * r.GAR.P50 }
func meanGAR(r *outcome) float64   { return 100 * r.GAR.Mean }
func gfr(r *outcome) float64       { return 100 * r.GFR.Mean }

// wait returns the mean wait of a size class of jobs, in seconds; 0 when there
// are none.
func wait(class string) func(*outcome) float64 {
	return func(r *outcome) float64 {
		for _, w := range r.JWTD {
			if w.Class == class {
				return w.Mean
			}
		}
		return 0
	}
}

// groups returns how many times the fewest leaf groups the jobs of a class were
// spread over.
func groups(class string) func(*outcome) float64 {
	return func(r *outcome) float64 {
		for _, d := range r.JTTED {
			if d.Class == class {
				return d.GroupRatio
			}
		}
		return 0
	}
}
