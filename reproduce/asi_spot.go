package reproduce

import (
	"context"
	"fmt"
	"math/bits"
	"os"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/report"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

var asiSpot = Experiment{
	Name:  "asi-spot",
	Title: "Spot jobs beside HP jobs under SpotGPU, compared with HP jobs alone and with random victims",
	run:   runASISpot,
	Takes: []string{"traces", "seeds"},
}

const (
	spotTrace = "spot-gpu-v2026/node_info_df.csv.gz"
	spotDay   = 24 * 3600 * core.Second
	// Jobs arrive for spotDays; the first is not counted, and after the last the run goes on for
	// another so that jobs can end.
	spotDays = 6
	// spotAsked is the load with more spot jobs than fit, of all GPUs, HP included.
	spotAsked = 1.2
)

// spotCase is a run: the load of HP and spot jobs together, 0 for HP jobs alone.
type spotCase struct {
	policy  string
	load    float64
	unsaved bool // no spot job saves its progress
	// forecast puts spot jobs off that would lose their work; run times are known.
	forecast bool
}

// The runs of a seed. The published load is ASI's, HP and spot together.
const (
	spotAlone = iota
	spotOurs
	spotBaseline
	spotFull
	spotPerGPU
	spotUnsaved
	spotUnsavedBaseline
	spotForecast
	spotForecastUnsaved
	spotCases
)

var spotRuns = [spotCases]spotCase{
	spotAlone: {policy: "SpotGPU"}, spotOurs: {policy: "SpotGPU", load: 0.93}, spotBaseline: {policy: "SpotGPUBaseline", load: 0.93},
	spotFull: {policy: "SpotGPU", load: spotAsked}, spotPerGPU: {policy: "SpotGPUPerGPU", load: 0.93},
	spotUnsaved: {policy: "SpotGPU", load: 0.93, unsaved: true}, spotUnsavedBaseline: {policy: "SpotGPUBaseline", load: 0.93, unsaved: true},
	spotForecast: {policy: "SpotGPU", load: 0.93, forecast: true}, spotForecastUnsaved: {policy: "SpotGPU", load: 0.93, unsaved: true, forecast: true},
}

// runASISpot replays the spot fleet with each seed, with and without spot jobs.
func runASISpot(ctx context.Context, o Options) (Result, error) {
	seeds := o.Seeds
	if len(seeds) == 0 {
		seeds = []int64{0, 1, 2}
	}
	fleet, where := "spot", "the built-in fleet spot, as the trace is not there"
	if path, err := o.trace(spotTrace, "the Alibaba spot-GPU fleet"); err == nil {
		fleet, where = path, "the nodes of the Alibaba spot-GPU fleet"
	} else if _, there := os.Stat(o.Traces); o.Traces != "" && there != nil {
		return nil, err
	}
	cluster, err := workload.OpenCluster(fleet, workload.Options{})
	if err != nil {
		return nil, err
	}
	all := make([]*spotRun, spotCases*len(seeds))
	say := func(i int) {
		c := spotRuns[i%spotCases]
		o.say("%s, load %g, seed %d", c.policy, c.load, seeds[i/spotCases])
	}
	if err := inParallel(ctx, len(all), say, func(i int) (err error) {
		all[i], err = runSpot(ctx, &cluster, spotRuns[i%spotCases], uint64(seeds[i/spotCases]))
		return err
	}); err != nil {
		return nil, err
	}
	var sums [spotCases]*spotRun
	for i, r := range all {
		k := i % spotCases
		if sums[k] == nil {
			sums[k] = newSpotRun()
		}
		sums[k].add(r, i/spotCases)
	}
	tiny, err := compareAppendix(ctx, &o, appendixTries)
	if err != nil {
		return nil, err
	}
	return &Table{
		Caption: fmt.Sprintf("%d days of the built-in workload spot on %s, %d seeds; the reference:\n"+
			"Heterogeneity at Hyperscale (ASI), §4.2 and Fig. 9.", spotDays, where, len(seeds)),
		Notes: []string{
			"Inputs: the nodes; the HP load (68 %, ASI); sizes, run times and hours of arrival of jobs (the marginals of the spot-GPU trace, whose jobs are not\n" +
				"public); checkpoint intervals (a third of the spot jobs each has none, 10 minutes, an hour: assumed); shutdowns (13 s, P95 48 s, killed at 60 s: ASI).",
			"Allocation is measured with more spot jobs than fit (120 % are requested, HP included): what the scheduler makes of them is the outcome. Run times are\n" +
				"compared at 93 %, ASI's load, by the spot jobs that ended under both policies.",
			"With a forecast is under the policy field spot.forecast, and run times are known beforehand: see docs/spot.md. The paper has no such figure.",
			"SpotGPUBaseline is the paper's: no co-location and no eviction history in the ranking, random victims. It puts back victims that turn out to be\n" +
				"needless, as SpotGPU does, so it is stronger than the paper's.",
			tiny.note(),
		},
		Rows:   append(spotRows(&sums), tiny.rows()...),
		stacks: []report.Stack{spotParts(&sums)},
	}, nil
}

// spotParts is the plot of what the completion times of spot jobs consist of.
func spotParts(of *[spotCases]*spotRun) report.Stack {
	s := report.Stack{
		Title: "Completion time of a spot job, mean", Unit: "h", Note: "Of the jobs that ended under SpotGPUBaseline and under the policy; its own row: under SpotGPU.",
		Parts: []report.StackPart{{Name: "runs once"}, {Name: "repeats lost work"}, {Name: "waits"}},
	}
	for _, k := range []int{spotBaseline, spotOurs, spotPerGPU} {
		other := of[spotBaseline]
		if k == spotBaseline {
			other = of[spotOurs]
		}
		once, repeats, waits := of[k].parts(other)
		s.Names = append(s.Names, spotRuns[k].policy)
		for i, x := range [...]float64{once, repeats, waits} {
			s.Parts[i].Values = append(s.Parts[i].Values, x/3600)
		}
	}
	return s
}

func spotRows(of *[spotCases]*spotRun) []Row {
	alone, ours, baseline, full := of[spotAlone], of[spotOurs], of[spotBaseline], of[spotFull]
	none := func(figure string, x float64, unit string) Row {
		return Row{Figure: figure, Bound: "none", Ours: x, Unit: unit, Within: true}
	}
	input := func(figure string, x float64, unit string) Row {
		r := none(figure, x, unit)
		r.Note = "input"
		return r
	}
	better := func(a, b float64) float64 { return 100 * (1 - a/b) }
	lp, lpBase := ours.completion(baseline), baseline.completion(ours)
	perGPU := of[spotPerGPU]
	_, repeats, waits := baseline.parts(ours)
	return []Row{
		input("GPUs allocated, HP jobs alone (the paper: 68)", alone.allocated(core.HP), "%"),
		atLeast("GPUs allocated, HP and spot jobs", 93, 93, full.allocated(core.HP)+full.allocated(core.LP), "%"),
		within("GPUs of HP jobs beside spot jobs, to HP jobs alone", 1, full.allocated(core.HP)/alone.allocated(core.HP), 0.01, "").said("HP unharmed"),
		atLeast("completion time of spot jobs, shorter than the baseline's", 24, 24, better(lp, lpBase), "%").because("under the baseline, a spot job runs for most of that time:\n" +
			"no scheduler shortens it by more than what waits and repeats. How long spot jobs wait at ASI, and how often they save, is not published:\n" +
			"if none saves, see below, SpotGPU shortens it by almost twice as much, which is half of what the paper has"),
		none("the same if no spot job saves its progress", better(of[spotUnsaved].completion(of[spotUnsavedBaseline]), of[spotUnsavedBaseline].completion(of[spotUnsaved])), "%"),
		none("completion time of spot jobs with a forecast, shorter than without", better(of[spotForecast].completion(ours), ours.completion(of[spotForecast])), "%"),
		none("spot GPU-hours that had to be repeated, with a forecast", of[spotForecast].lost/3.6e6, ""),
		none("evictions of spot jobs, with a forecast", float64(of[spotForecast].evictions), ""),
		none("if no spot job saves: completion time with a forecast, shorter than without", better(of[spotForecastUnsaved].completion(of[spotUnsaved]), of[spotUnsaved].completion(of[spotForecastUnsaved])), "%"),
		none("if no spot job saves: spot GPU-hours that had to be repeated", of[spotUnsaved].lost/3.6e6, ""),
		none("if no spot job saves: the same, with a forecast", of[spotForecastUnsaved].lost/3.6e6, ""),
		within("completion time of HP jobs with a forecast, to SpotGPU", 1, of[spotForecast].hp()/ours.hp(), 0.01, "").said("without affecting HP"),
		none("completion time of spot jobs, SpotGPU", lp/3600, "h"),
		none("completion time of spot jobs, SpotGPUBaseline", lpBase/3600, "h"),
		none("the part of it that repeats lost work, SpotGPUBaseline", 100*repeats/lpBase, "%"),
		none("the part of it that waits, SpotGPUBaseline", 100*waits/lpBase, "%"),
		none("completion time of spot jobs, SpotGPUPerGPU, shorter than the baseline's", better(perGPU.completion(baseline), baseline.completion(perGPU)), "%"),
		none("spot GPU-hours that had to be repeated, SpotGPUPerGPU", perGPU.lost/3.6e6, ""),
		none("spot GPU-hours that had to be repeated, SpotGPU", ours.lost/3.6e6, ""),
		none("spot GPU-hours that had to be repeated, SpotGPUBaseline", baseline.lost/3.6e6, ""),
		none("evictions of spot jobs, SpotGPUPerGPU", float64(perGPU.evictions), ""),
		none("evictions of spot jobs, SpotGPU", float64(ours.evictions), ""),
		none("evictions of spot jobs, SpotGPUBaseline", float64(baseline.evictions), ""),
		within("completion time of HP jobs, SpotGPU to HP jobs alone", 1, ours.hp()/alone.hp(), 0.01, "").said("without affecting HP"),
		none("completion time of HP jobs, SpotGPUPerGPU to HP jobs alone", perGPU.hp()/alone.hp(), ""),
		within("completion time of HP jobs, SpotGPU to the baseline", 1, ours.hp()/baseline.hp(), 0.01, "").said("without affecting HP"),
		none("wait of HP jobs, HP jobs alone, mean", alone.waited(), "s"),
		none("wait of HP jobs, SpotGPU, mean", ours.waited(), "s"),
		none("wait of HP jobs, SpotGPUBaseline, mean", baseline.waited(), "s"),
		input("evicted pods left after, mean (the paper: 13)", ours.latency(), "s"),
		input("evicted pods that were killed (the paper: below 5)", ours.killed(), "%"),
	}
}

// runSpot runs one case with a seed.
func runSpot(ctx context.Context, cluster *workload.Cluster, c spotCase, seed uint64) (*spotRun, error) {
	length := spotDays * spotDay
	opt := workload.Options{Seed: seed, Load: c.load, Length: length, Cluster: cluster}
	if c.load == 0 {
		opt.Load = 0.68
	}
	jobs, _, err := workload.OpenJobs("spot", opt)
	if err != nil {
		return nil, err
	}
	if c.unsaved {
		jobs = changed(jobs, func(j *workload.Job) { j.Checkpoint = 0 })
	}
	p, _ := policy.ByName(c.policy)
	if c.forecast {
		p.Policy.Spot.Period = spotDay
		jobs = changed(jobs, func(j *workload.Job) { j.Estimate = j.Duration })
	}
	r := newSpotRun()
	stats, err := sim.Run(ctx, sim.Config{
		Cluster: *cluster, Jobs: jobs, Policy: p.Policy, Seed: seed, Until: length + spotDay,
		Models: sim.Models{Grace: 60 * core.Second, Shutdown: sim.Shutdown{Mean: 13 * core.Second, P95: 48 * core.Second}},
	}, r)
	if err == nil && stats.Interrupted {
		err = ctx.Err()
	}
	return r, err
}

// spotTime is what became of the time of a job: it runs once, and the rest of the time in which it
// is bound it repeats what evictions cost it.
type spotTime struct{ all, bound, once core.Time }

// spotTurn is for how long a job was bound, up to its last start.
type spotTurn struct{ bound, since core.Time }

// changed yields jobs as change leaves them.
func changed(jobs workload.Jobs, change func(*workload.Job)) workload.Jobs {
	return func(yield func(workload.Job, error) bool) {
		for j, err := range jobs {
			if change(&j); !yield(j, err) {
				return
			}
		}
	}
}

// spotRun is a [sim.Sink] that measures a run by class.
type spotRun struct {
	gpus       float64
	held       [2]core.Milli
	used       [2]float64 // GPU-seconds in the window
	now        core.Time
	window     float64             // seconds, over all runs
	took       map[string]spotTime // of spot jobs that came in the window
	running    map[*sim.Live]spotTurn
	hpTook     []float64
	hpWaits    []float64
	started    map[*sim.Live]bool
	lost       float64 // milli-GPU seconds of spot jobs
	evictions  int
	left, kill int
	leaveTime  float64
}

var _ sim.Sink = (*spotRun)(nil)

func newSpotRun() *spotRun {
	return &spotRun{took: map[string]spotTime{}, running: map[*sim.Live]spotTurn{}, started: map[*sim.Live]bool{}}
}

// add adds the run of a seed.
func (r *spotRun) add(o *spotRun, seed int) {
	r.gpus = o.gpus
	for c := range r.used {
		r.used[c] += o.used[c]
	}
	r.window += (spotDays - 1) * spotDay.Seconds()
	for name, t := range o.took {
		r.took[fmt.Sprint(seed, name)] = t
	}
	r.hpTook, r.hpWaits = append(r.hpTook, o.hpTook...), append(r.hpWaits, o.hpWaits...)
	r.lost += o.lost
	r.evictions, r.left, r.kill, r.leaveTime = r.evictions+o.evictions, r.left+o.left, r.kill+o.kill, r.leaveTime+o.leaveTime
}

func (r *spotRun) allocated(c core.Class) float64 { return 100 * r.used[c] / (r.gpus * r.window) }

// completion returns the mean completion time of the spot jobs that ended in another run, too.
func (r *spotRun) completion(o *spotRun) float64 {
	once, repeats, waits := r.parts(o)
	return once + repeats + waits
}

// parts returns that by its parts: the mean time of a job's run, of what it repeats, and of waiting.
func (r *spotRun) parts(o *spotRun) (once, repeats, waits float64) {
	var sum [3]core.Time // in whole milliseconds: the order of the jobs must not matter
	n := 0
	for name, t := range r.took {
		if _, ok := o.took[name]; ok {
			for i, x := range [...]core.Time{t.once, t.bound - t.once, t.all - t.bound} {
				sum[i] += x / (core.Second / 1000)
			}
			n++
		}
	}
	mean := func(i int) float64 { return float64(sum[i]) / 1000 / float64(max(1, n)) }
	return mean(0), mean(1), mean(2)
}

func (r *spotRun) hp() float64      { return meanOf(r.hpTook) }
func (r *spotRun) waited() float64  { return meanOf(r.hpWaits) }
func (r *spotRun) latency() float64 { return r.leaveTime / float64(max(1, r.left)) }
func (r *spotRun) killed() float64  { return 100 * float64(r.kill) / float64(max(1, r.left)) }

func meanOf(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(max(1, len(xs)))
}

// counts reports whether a job came in the window.
func (r *spotRun) counts(l *sim.Live) bool {
	return l.Submitted >= spotDay && l.Submitted < spotDays*spotDay
}

func (r *spotRun) advance(t core.Time) {
	from, to := max(r.now, spotDay), min(t, spotDays*spotDay)
	r.now = t
	if to > from {
		for c := range r.held {
			r.used[c] += float64(r.held[c]) / float64(core.WholeGPU) * (to - from).Seconds()
		}
	}
}

func (r *spotRun) hold(l *sim.Live, pods []core.Placement, by core.Milli) {
	for i := range pods {
		r.held[l.Class] += by * core.Milli(bits.OnesCount64(pods[i].GPUs)) * pods[i].GPU
	}
}

// Node implements [sim.Sink].
func (r *spotRun) Node(t core.Time, n *core.Node, up bool) error {
	r.advance(t)
	if up {
		r.gpus += float64(n.GPUs)
	}
	return nil
}

// Submitted implements [sim.Sink].
func (r *spotRun) Submitted(t core.Time, _ *sim.Live) error {
	r.advance(t)
	return nil
}

// Bound implements [sim.Sink].
func (r *spotRun) Bound(t core.Time, l *sim.Live, pods []core.Placement, _ core.Reason) error {
	r.advance(t)
	r.hold(l, pods, 1)
	if l.Class == core.LP {
		r.running[l] = spotTurn{r.running[l].bound, t}
	}
	if l.Class == core.HP && r.counts(l) && !r.started[l] {
		r.started[l] = true
		r.hpWaits = append(r.hpWaits, (t - l.Submitted).Seconds())
	}
	return nil
}

// Released implements [sim.Sink].
func (r *spotRun) Released(t core.Time, l *sim.Live, pods []core.Placement, why sim.Release, by sim.Eviction) error {
	r.advance(t)
	r.hold(l, pods, -1)
	if turn, ok := r.running[l]; ok && l.Bound == 0 {
		r.running[l] = spotTurn{bound: turn.bound + t - turn.since}
	}
	if why == sim.Preempted {
		r.left += len(pods)
		r.leaveTime += float64(len(pods)) * (t - by.Told).Seconds()
		if by.Killed {
			r.kill += len(pods)
		}
		if l.Bound == 0 {
			r.evictions++
		}
	}
	return nil
}

// Ended implements [sim.Sink].
func (r *spotRun) Ended(t core.Time, l *sim.Live, rejected *sim.Rejection) error {
	r.advance(t)
	if l.Class == core.LP {
		r.lost += l.Lost
	}
	turn := r.running[l]
	delete(r.started, l)
	delete(r.running, l)
	switch took := t - l.Submitted; {
	case rejected != nil || !r.counts(l):
	case l.Class == core.LP:
		r.took[l.Name] = spotTime{took, turn.bound, l.Duration}
	default:
		r.hpTook = append(r.hpTook, took.Seconds())
	}
	return nil
}
