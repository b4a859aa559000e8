package reproduce

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/defrag"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

var asiIPC = Experiment{
	Name:  "asi-ipc",
	Title: "Running pods moved together on the cluster asi: nodes used in part, waits, moves, plans beside the optimum",
	run:   runASIIPC,
	Takes: []string{"seeds", "full"},
}

// ipcEvery is the time from plan to plan. The paper does not say it. See docs/reproduce.md for
// what others give.
const ipcEvery = 3600 * core.Second

// ipcArms are the ways to plan that are compared.
var ipcArms = []struct {
	name   string
	defrag core.Defrag
}{
	{"no moves", core.Defrag{}},
	{"Muster", core.Defrag{Every: ipcEvery}},
	{"as published", core.Defrag{Every: ipcEvery, Algorithm: defrag.Published}},
	{"evictions", core.Defrag{Every: ipcEvery, Algorithm: defrag.Eviction}},
}

// The arms by their positions.
const (
	ipcNone = iota
	ipcMuster
	ipcPublished
	ipcEvictions
)

// ipcDays is the length of the replay, of which the first day is left out of the averages;
// ipcFullDays that of the paper.
const (
	ipcDays     = 4
	ipcFullDays = 60
	ipcDay      = 24 * 3600 * core.Second
)

// ipcRun is what a replay came to.
type ipcRun struct {
	metrics.Summary
	waits [2]classWait // of HP and LP jobs
	slack float64      // nodes used in part, the mean over time
	plan  time.Duration
	// rounds are the nodes vacated by one plan at the end within 1 to 5 rounds.
	rounds [5]int
}

func runASIIPC(ctx context.Context, o Options) (Result, error) {
	seeds, length := o.Seeds, ipcDays*ipcDay
	if o.Full {
		length = ipcFullDays * ipcDay
	}
	if len(seeds) == 0 {
		seeds = []int64{0}
	}
	runs := make([][]ipcRun, len(ipcArms))
	for a := range runs {
		runs[a] = make([]ipcRun, len(seeds))
	}
	n := len(ipcArms) * len(seeds)
	steps := newReplays(&o, n, length)
	say := func(i int) {
		o.say("%s, seed %d: %d days", ipcArms[i/len(seeds)].name, seeds[i%len(seeds)], length/ipcDay)
	}
	if err := inParallel(ctx, n, say, func(i int) (err error) {
		a, s := i/len(seeds), i%len(seeds)
		runs[a][s], err = replayIPC(ctx, a, uint64(seeds[s]), length, steps.of(i))
		return err
	}); err != nil {
		return nil, err
	}
	near, err := nearOptimum(ctx, &o)
	if err != nil {
		return nil, err
	}
	t := &Table{
		Caption: fmt.Sprintf("The built-in workload asi under the default policy, %d days, %d seed(s), averages over time from the second day on. Plans are made\n"+
			"every %s of that time; the reference: Heterogeneity at Hyperscale (ASI), §4.1.", length/ipcDay, len(seeds), time.Duration(ipcEvery)),
		Notes: []string{
			"Inputs of the workload, not outcomes: how full the cluster is (93 %), that 40 % of the tasks are locked, and that whatever else is not locked\n" +
				"moves, but for training jobs of several pods. The paper does not say how often it plans.",
			"As published: the paper's algorithm without Muster's two additions (full nodes are vacated too; pods go to nodes that stay in use). Evictions:\n" +
				"pods of nodes that are used in part go to random nodes; without the downtime that evictions have, which favours this baseline.",
			"The waits say NO if plans make them longer by more than a twentieth.",
			near.note,
		},
	}
	t.Rows = slices.Concat(ipcRows(runs), near.rows())
	return t, nil
}

// replayIPC replays one arm. At the end of that without moves, one plan is timed.
func replayIPC(ctx context.Context, arm int, seed uint64, length core.Time, progress func(core.Time, int, int)) (ipcRun, error) {
	var r ipcRun
	wo := workload.Options{Seed: seed}
	cluster, err := workload.OpenCluster("asi", wo)
	if err != nil {
		return r, err
	}
	wo.Cluster = &cluster
	jobs, _, err := workload.OpenJobs("asi", wo)
	if err != nil {
		return r, err
	}
	p, _ := policy.ByName("default")
	p.Policy.Defrag = ipcArms[arm].defrag
	c := metrics.New(metrics.Options{Levels: len(cluster.Levels), From: ipcDay})
	waits := &classWaits{missing: map[*sim.Live]int{}}
	config := sim.Config{Cluster: cluster, Jobs: jobs, Policy: p.Policy, Seed: seed, Until: length, Progress: progress}
	config.Models.HandOver = 60 * core.Second
	if arm == ipcNone {
		config.Ended = r.askPlans
	}
	stats, err := sim.Run(ctx, config, c, waits)
	if err == nil && stats.Interrupted {
		err = ctx.Err()
	}
	r.Summary, r.waits = c.Summary(), waits.until(stats.End)
	r.slack = r.GFR.Mean * float64(len(cluster.Nodes))
	return r, err
}

// askPlans times a plan, and counts what it vacates in few rounds.
func (r *ipcRun) askPlans(e *core.Engine) {
	for k := range r.rounds {
		begin := time.Now()
		plan := e.Consolidation(core.Defrag{Rounds: k + 1})
		r.plan = time.Since(begin)
		r.rounds[k] = len(plan.Vacated)
	}
}

// ipcRows compares the arms.
func ipcRows(runs [][]ipcRun) []Row {
	avg := func(arm int, of func(*ipcRun) float64) float64 {
		sum := 0.0
		for i := range runs[arm] {
			sum += of(&runs[arm][i])
		}
		return sum / float64(len(runs[arm]))
	}
	none := func(figure string, ours float64, unit string) Row {
		return Row{Figure: figure, Bound: "none", Ours: ours, Unit: unit, Within: true}
	}
	slack := func(r *ipcRun) float64 { return r.slack }
	fewer := func(arm int) float64 { return 100 * (1 - avg(arm, slack)/avg(ipcNone, slack)) }
	late := 0.0
	for i := range runs[ipcNone] {
		n := &runs[ipcNone][i].rounds
		late += 100 * float64(n[4]-n[2]) / float64(max(1, n[4])) / float64(len(runs[ipcNone]))
	}
	rows := []Row{
		atLeast("nodes used in part, fewer than without moves", 20.2, 20.2, fewer(ipcMuster), "%"),
		over("nodes used in part, fewer than with evictions", 0, 100*(1-avg(ipcMuster, slack)/avg(ipcEvictions, slack)), "%").said("replaced it"),
		atMost("a plan for 37,707 nodes", 120, 10, avg(ipcNone, func(r *ipcRun) float64 { return r.plan.Seconds() }), "s"),
		below("of the vacated nodes, those of the fourth and fifth round", 10, late, "%").said("becomes small"),
		none("nodes used in part, without moves", avg(ipcNone, slack), ""),
		none("as published: fewer than without moves", fewer(ipcPublished), "%"),
		none("evictions: fewer than without moves", fewer(ipcEvictions), "%"),
	}
	for class, name := range []string{"HP", "LP"} {
		wait := func(r *ipcRun) float64 { return r.waits[class].mean() }
		for arm := range ipcArms {
			row := none(name+" jobs, mean wait: "+ipcArms[arm].name, avg(arm, wait), "s")
			if arm == ipcMuster {
				row.How = "not longer by more than a twentieth"
				row.Within = avg(arm, wait) <= 1.05*avg(ipcNone, wait)
			}
			rows = append(rows, row)
		}
	}
	for arm := range ipcArms[1:] {
		name := ipcArms[arm+1].name
		days := func(r *ipcRun) float64 { return r.VirtualSeconds / 86400 }
		rows = append(rows,
			none(name+": pods moved a day", avg(arm+1, func(r *ipcRun) float64 { return float64(r.Migrations) / days(r) }), ""),
			none(name+": GPU-hours held twice a day", avg(arm+1, func(r *ipcRun) float64 { return r.MigrationGPUHours / (days(r) - 1) }), ""))
	}
	return rows
}

// replays reports how far several replays of the same length are, and when they will be done.
type replays struct {
	o      *Options
	length core.Time
	begun  time.Time

	mu   sync.Mutex
	now  []core.Time
	next time.Time
}

func newReplays(o *Options, n int, length core.Time) *replays {
	return &replays{o: o, length: length, begun: time.Now(), now: make([]core.Time, n), next: time.Now().Add(replaysSay)}
}

// replaysSay is the time from one message to the next.
const replaysSay = 20 * time.Second

// of returns the function that takes the progress of one replay.
func (r *replays) of(i int) func(now core.Time, submitted, ended int) {
	return func(now core.Time, _, _ int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.now[i] = min(now, r.length)
		if time.Now().Before(r.next) {
			return
		}
		r.next = time.Now().Add(replaysSay)
		done := 0.0
		for _, t := range r.now {
			done += t.Seconds() / r.length.Seconds() / float64(len(r.now))
		}
		if done > 0 {
			left := time.Duration(float64(time.Since(r.begun)) * (1 - done) / done)
			r.o.say("%.0f %% replayed, about %s left", 100*done, left.Round(time.Second))
		}
	}
}

// classWait sums up how long jobs waited for their first start.
type classWait struct {
	jobs int
	sum  core.Time
}

func (w *classWait) mean() float64 { return w.sum.Seconds() / float64(max(1, w.jobs)) }

// classWaits is a [sim.Sink] that measures, by class, how long jobs wait until all their pods have
// been bound for the first time. Those that run from the start do not count.
type classWaits struct {
	missing map[*sim.Live]int // pods, of the jobs that wait
	waits   [2]classWait
	// all, if set, counts the jobs by their waits in seconds.
	all *[2]map[float64]int
}

var _ sim.Sink = (*classWaits)(nil)

// Submitted implements [sim.Sink].
func (w *classWaits) Submitted(t core.Time, l *sim.Live) error {
	if t > 0 {
		w.missing[l] = l.Pods
	}
	return nil
}

// Bound implements [sim.Sink].
func (w *classWaits) Bound(t core.Time, l *sim.Live, pods []core.Placement, _ core.Reason) error {
	if left, ok := w.missing[l]; ok {
		if w.missing[l] = left - len(pods); left == len(pods) {
			w.count(l, t)
		}
	}
	return nil
}

// Released implements [sim.Sink].
func (w *classWaits) Released(_ core.Time, l *sim.Live, pods []core.Placement, why sim.Release, _ sim.Eviction) error {
	if _, ok := w.missing[l]; ok && why != sim.Finished {
		w.missing[l] += len(pods)
	}
	return nil
}

// Ended implements [sim.Sink].
func (w *classWaits) Ended(t core.Time, l *sim.Live, _ *sim.Rejection) error {
	if _, ok := w.missing[l]; ok {
		w.count(l, t)
	}
	return nil
}

// Node implements [sim.Sink].
func (w *classWaits) Node(core.Time, *core.Node, bool) error { return nil }

func (w *classWaits) count(l *sim.Live, t core.Time) {
	delete(w.missing, l)
	w.waits[l.Class].jobs++
	w.waits[l.Class].sum += t - l.Submitted
	if w.all != nil {
		w.all[l.Class][(t-l.Submitted).Seconds()]++
	}
}

// until counts the jobs that wait at the end for as long as they have waited.
func (w *classWaits) until(end core.Time) [2]classWait {
	for l := range w.missing {
		w.count(l, end)
	}
	return w.waits
}
