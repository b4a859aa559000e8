package reproduce

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

var schedmateLucid = Experiment{
	Name:  "schedmate-lucid",
	Title: "Lucid's packing, and what SchedMate adds to it: profiling bypassed, better estimates, packing cancelled",
	Takes: []string{"traces", "seeds"},
	run:   runSchedmateLucid,
}

// What the paper says of accuracy (§5.4, Mars): how much of a job's SM utilization a profiler and the advisor miss on average, how
// often the advisor's estimate of the run time is off by less than 100 %, and how often a metric tracker finds the throughput.
const (
	lucidProfilerError = 0.193
	advisorError       = 0.281
	advisorRight       = 0.857
	trackerFinds       = 0.843
)

// What we assume, as the paper does not say: the share of jobs for which the advisor finds similar ones, and the time after which
// the throughput beside another job is measured, "several tens of training steps".
const (
	advisorMatches = 0.85
	trackerSettles = 120 * core.Second
)

// lucidLoad is a cluster and jobs, each with a profile.
type lucidLoad struct {
	nodes int // of 8 GPUs, with those that profile
	// vcs are the virtual clusters, which are the queues of the jobs: each has nodes of its own beside those that profile, however many do. nil: there is
	// one, with all nodes that do not profile.
	vcs  []virtualCluster
	jobs []workload.Job
	// heavy says that jobs compute much, as those of Acme: their scores are Medium or Jumbo.
	heavy bool
	// profiling: on how many of the nodes, for how long at most, which jobs (Lucid's own settings for its traces).
	profilers int
	profile   core.Time
	mostGPUs  core.Milli
}

// lucidArm is how the jobs of a load are scheduled.
type lucidArm struct {
	policy string
	cancel int64 // replaces the policy's, if it is not 0
	// bypass and estimates say what is taken from similar jobs, for those that have some: the profile, so that they are not profiled;
	// and the run time.
	bypass, estimates bool
	// predicts says that the utilization of all jobs is predicted, so that none is profiled.
	predicts bool
	// idleFirst says that jobs are packed only where no GPUs are idle.
	idleFirst bool
	// oracle says that profiles and run times are known exactly.
	oracle bool
	// atOnce says that a job is in the main queue from its submission, though it is profiled first: as in the authors' simulator.
	atOnce bool
	// unmeasured is [workload.Profiles].Unmeasured.
	unmeasured float64
}

// lucidOutcome is the mean completion time and what was packed.
type lucidOutcome struct {
	jct    float64
	packed sim.Packed
	right  float64 // share of the estimates that are off by less than 100 %
}

// lucidJob is what an arm knows of a job.
type lucidJob struct {
	workload.Job
	profile  int
	matched  bool
	estimate core.Time
}

// play runs a load under an arm.
func (l *lucidLoad) play(ctx context.Context, p *workload.Profiles, a lucidArm, seed uint64) (out lucidOutcome, err error) {
	shared := *p
	shared.Unmeasured = a.unmeasured
	jobs := l.known(&shared, a, seed)
	for i := range jobs {
		if e := jobs[i].estimate.Seconds() / max(1, jobs[i].Duration.Seconds()); e < 2 {
			out.right++
		}
	}
	out.right /= float64(len(jobs))

	// 1. Jobs without a match are profiled, and some of them end there.
	toProfile := func(j *lucidJob) bool { return !j.matched && j.GPUs() <= l.mostGPUs }
	profilers := l.profilers
	if a.bypass {
		profilers = min(profilers, 1) // few jobs are left to profile
	} else if a.predicts {
		profilers = 0
	}
	left := map[string]core.Time{}
	if profilers > 0 {
		if left, err = l.profiled(ctx, profilers, jobs, toProfile); err != nil {
			return out, err
		}
	}

	// 2. The others go to the main queue.
	var sum float64
	var rest []workload.Job
	submitted := map[string]core.Time{}
	for i := range jobs {
		j := &jobs[i]
		at, was := left[j.Name]
		if was && j.Duration <= l.profile {
			sum += (at - j.Submitted).Seconds()
			continue
		}
		submitted[j.Name] = j.Submitted
		if was && !a.atOnce {
			j.Submitted = at
		}
		j.Estimate = j.estimate
		rest = append(rest, j.Job)
	}
	slices.SortStableFunc(rest, func(a, b workload.Job) int { return cmp.Compare(a.Submitted, b.Submitted) })
	d, _ := policy.ByName(a.policy)
	if a.idleFirst {
		d.Policy.Packing.First = false
	}
	if a.cancel > 0 {
		d.Policy.Packing.Cancel = a.cancel
	}
	for _, vc := range l.clusters(profilers) {
		own := rest
		if l.vcs != nil {
			own = slices.DeleteFunc(slices.Clone(rest), func(j workload.Job) bool { return j.Queue != vc.name })
		}
		ends := &endTimes{at: map[string]core.Time{}}
		stats, err := sim.Run(ctx, sim.Config{
			Cluster: nodesOf8(vc.nodes), Policy: d.Policy, Jobs: slicesSeq(own), Seed: seed,
			Models: sim.Models{Packing: sim.Packing{Profiles: &shared, Tracked: trackerFinds, Settle: trackerSettles}},
		}, ends)
		if err != nil {
			return out, err
		}
		for name, at := range ends.at {
			sum += (at - submitted[name]).Seconds()
		}
		out.packed.Jobs, out.packed.Cancelled = out.packed.Jobs+stats.Packed.Jobs, out.packed.Cancelled+stats.Packed.Cancelled
	}
	out.jct = sum / float64(len(jobs))
	return out, nil
}

// clusters are what jobs run on that are not being profiled.
func (l *lucidLoad) clusters(profilers int) []virtualCluster {
	if l.vcs == nil {
		return []virtualCluster{{"", l.nodes - profilers}}
	}
	return l.vcs
}

// profiled runs those jobs that are to be profiled on the nodes for that, those with the fewest GPUs first, each for the limit at
// most (Lucid §3.2). It returns when they left.
func (l *lucidLoad) profiled(ctx context.Context, nodes int, jobs []lucidJob, which func(*lucidJob) bool) (map[string]core.Time, error) {
	var to []workload.Job
	for i := range jobs {
		if which(&jobs[i]) {
			j := jobs[i].Job
			// Equal estimates: the order is by GPUs, then by submission.
			j.Duration, j.Estimate, j.Sharing = min(j.Duration, l.profile), core.Second, core.Sharing{}
			to = append(to, j)
		}
	}
	d, _ := policy.ByName("QSSF")
	ends := &endTimes{at: map[string]core.Time{}}
	_, err := sim.Run(ctx, sim.Config{Cluster: nodesOf8(nodes), Policy: d.Policy, Jobs: slicesSeq(to)}, ends)
	return ends.at, err
}

// known gives each job a profile, and what the arm knows of that and of its run time. Profiles and matches are the same for all arms.
func (l *lucidLoad) known(p *workload.Profiles, a lucidArm, seed uint64) []lucidJob {
	// The advisor's estimates are log-normal about the run time: then this sigma has the paper's share of them below 200 %.
	sigma := math.Ln2 / (math.Sqrt2 * math.Erfinv(2*advisorRight-1))
	means := newRunningMeans(l.jobs)
	out := make([]lucidJob, len(l.jobs))
	for i := range l.jobs {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		j := lucidJob{Job: l.jobs[i]}
		for j.profile = rng.IntN(len(p.Solo)); l.heavy && p.Solo[j.profile].Sharing.Score == core.Tiny; {
			j.profile = rng.IntN(len(p.Solo))
		}
		match, z, noise := rng.Float64() < advisorMatches, rng.NormFloat64(), rng.NormFloat64()
		if j.Profile != "" {
			j.profile, _ = p.Find(j.Profile)
		}
		j.Profile = p.Solo[j.profile].Name
		miss, below := lucidProfilerError, true // a profiler sees too little, while a job warms up (§4.1)
		j.estimate = means.before(&l.jobs[i])
		if a.estimates && match {
			j.estimate = core.Time(float64(j.Duration) * math.Exp(sigma*z))
		}
		if a.bypass && match {
			j.matched, miss, below = true, advisorError, false
		}
		j.matched = j.matched || a.predicts
		if below && !a.predicts {
			noise = -math.Abs(noise)
		}
		if a.oracle {
			j.estimate, miss = j.Duration, 0
		}
		j.Sharing = seen(p, j.profile, miss*noise*math.Sqrt(math.Pi/2)) // E|z| of a normal z is sqrt(2/pi)
		out[i] = j
	}
	return out
}

// seen is what is seen of a profile if its utilization is measured with a relative error: with that error, and a score that is as much higher or lower as
// the scores of such utilizations are.
func seen(p *workload.Profiles, i int, err float64) core.Sharing {
	s := p.Solo[i].Sharing
	level := func(u float64) int {
		switch {
		case u < tinyBelow:
			return 0
		case u < mediumBelow:
			return 1
		}
		return 2
	}
	u := p.Solo[i].Utilization
	s.Use = int16(min(max(math.Round(1000*u*(1+err)), 0), 1000))
	shift := level(u*(1+err)) - level(u)
	s.Score = core.SharingScore(min(max(int(s.Score)+shift, int(core.Tiny)), int(core.Jumbo)))
	return s
}

// Utilizations below which most profiles are tiny, or medium.
const tinyBelow, mediumBelow = 0.4, 0.65

// runningMeans is the mean run time of the jobs of the same queue and as many GPUs that have ended before: what Lucid's estimator
// comes to without names of users and jobs.
type runningMeans struct {
	ends []workload.Job // in the order of their ends if none had waited
	next int
	of   map[meanKey]runTimes
}

type meanKey struct {
	queue string
	gpus  core.Milli
}

type runTimes struct {
	sum core.Time
	n   int
}

func newRunningMeans(jobs []workload.Job) *runningMeans {
	m := &runningMeans{ends: slices.Clone(jobs), of: map[meanKey]runTimes{}}
	slices.SortStableFunc(m.ends, func(a, b workload.Job) int { return cmp.Compare(a.Submitted+a.Duration, b.Submitted+b.Duration) })
	return m
}

// before returns the mean of the jobs that had ended when one was submitted; an hour if there were none. Jobs come in order.
func (m *runningMeans) before(j *workload.Job) core.Time {
	for ; m.next < len(m.ends) && m.ends[m.next].Submitted+m.ends[m.next].Duration <= j.Submitted; m.next++ {
		e := &m.ends[m.next]
		for _, k := range meanKeys(e) {
			x := m.of[k]
			m.of[k] = runTimes{x.sum + e.Duration, x.n + 1}
		}
	}
	for _, k := range meanKeys(j) {
		if x := m.of[k]; x.n > 0 {
			return x.sum / core.Time(x.n)
		}
	}
	return 3600 * core.Second
}

// meanKeys are the groups of a job, the narrowest first.
func meanKeys(j *workload.Job) []meanKey {
	return []meanKey{{j.Queue, j.GPUs()}, {"", j.GPUs()}, {"", 0}}
}

// endTimes is a sink that keeps when jobs ended.
type endTimes struct {
	means
	at map[string]core.Time
}

// Ended implements [sim.Sink].
func (e *endTimes) Ended(t core.Time, j *sim.Live, _ *sim.Rejection) error {
	e.at[j.Name] = t
	return nil
}

func nodesOf8(n int) workload.Cluster {
	c, err := workload.OpenCluster(fmt.Sprintf("%dx8", n), workload.Options{})
	if err != nil {
		panic(err)
	}
	return c
}

func slicesSeq(jobs []workload.Job) workload.Jobs {
	return func(yield func(workload.Job, error) bool) {
		for _, j := range jobs {
			if !yield(j, nil) {
				return
			}
		}
	}
}

// lucidCodeFigures are the mean completion times that Lucid's code gave when we ran it with known run times, in seconds, by set. Our
// runs drew the jobs' profiles with numpy's generator, seed 1.
var lucidCodeFigures = []float64{25_569, 8_522, 29_407}

const lucidCodeBand = 0.02

func runSchedmateLucid(ctx context.Context, o Options) (Result, error) {
	file, err := o.trace("philly/jobs.csv.gz", "Philly, job level")
	if err != nil {
		return nil, err
	}
	solo, err := o.trace("lucid-profiles/single_data.csv", "profiles of Lucid's authors")
	if err != nil {
		return nil, err
	}
	venus, err := o.trace("helios-venus/cluster_throughput.csv.gz", "arrivals of Helios Venus")
	if err != nil {
		return nil, err
	}
	if _, err := o.trace("helios-venus/"+venusVCFile, "virtual clusters of Helios Venus"); err != nil {
		return nil, err
	}
	p, err := workload.OpenProfiles(filepath.Dir(solo))
	if err != nil {
		return nil, err
	}
	t := &Table{Caption: lucidCaption}
	var philly []lucidLoad
	for i := range phillySets {
		s := &phillySets[i]
		jobs, err := s.load(file)
		if err != nil {
			return nil, err
		}
		l := s.asLucidLoad(jobs)
		philly = append(philly, l)
		o.say("%s: %d jobs, Lucid with known run times", s.name, len(jobs))
		draw := newNumpyRand(1)
		l.jobs = slices.Clone(jobs)
		for k := range l.jobs {
			l.jobs[k].Profile = p.Solo[draw.integers(uint32(len(p.Solo)))].Name
		}
		got, err := l.play(ctx, p, lucidArm{policy: "Lucid", oracle: true, atOnce: true, unmeasured: 1}, 0)
		if err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows, rerun(within(s.name+" mean JCT, known run times (authors' code, our run)", lucidCodeFigures[i], got.jct, lucidCodeBand, "s")))
	}
	seeds := []uint64{0, 1, 2, 3, 4}
	if len(o.Seeds) > 0 {
		seeds = seeds[:0]
		for _, s := range o.Seeds {
			seeds = append(seeds, uint64(s))
		}
	}
	for _, c := range []struct {
		name string
		load func(seed uint64) (lucidLoad, error)
	}{
		{"Philly W1", func(uint64) (lucidLoad, error) { return philly[0], nil }},
		{"Philly W1s", func(uint64) (lucidLoad, error) { return philly[1], nil }},
		{"Saturn-shaped", func(seed uint64) (lucidLoad, error) { return saturnLoad(seed), nil }},
		{"Venus-shaped", func(seed uint64) (lucidLoad, error) { return venusLoad(venus, seed) }},
		{"Acme-shaped", func(seed uint64) (lucidLoad, error) { return acmeLoad(seed), nil }},
	} {
		if err := compareLucid(ctx, &o, t, p, c.name, c.load, seeds); err != nil {
			return nil, err
		}
	}
	return t, nil
}

const lucidCaption = "Jobs that share GPUs (SchedMate §4.1, §5.3). Each job has one of the 66 profiles that Lucid's authors measured on an RTX 3090; two that share\n" +
	"GPUs run at the speeds of the 1,388 pairs that they measured, others at the mean of the pairs with the same sharing scores.\n" +
	"First, Lucid with known run times, compared with our run of the authors' code. Then Lucid as it is, and with SchedMate."

// asLucidLoad is a set of Philly with Lucid's settings for it: two nodes profile jobs of at most 4 GPUs for at most 80 s.
func (s *phillySet) asLucidLoad(jobs []workload.Job) lucidLoad {
	var nodes int
	fmt.Sscanf(s.cluster, "%dx8", &nodes)
	return lucidLoad{nodes: nodes, jobs: jobs, profilers: 2, profile: 80 * core.Second, mostGPUs: 4 * core.WholeGPU}
}

// drawnLoad is the load that is wanted of the workloads that are drawn: GPU time of the jobs to that of the GPUs.
const drawnLoad = 0.9

// venusLoad is 14 days of arrivals, on as many nodes as make that load; Lucid's settings for Venus: jobs of at most 8 GPUs are profiled
// for at most 200 s.
func venusLoad(file string, seed uint64) (lucidLoad, error) {
	jobs, err := venusShaped(file, 14, seed)
	if err != nil {
		return lucidLoad{}, err
	}
	nodes := int(math.Ceil(loadOf(jobs, 1) / drawnLoad))
	vcs, err := venusVCs(filepath.Join(filepath.Dir(file), venusVCFile), nodes-2)
	if err != nil {
		return lucidLoad{}, err
	}
	assign(jobs, vcs, seed)
	return lucidLoad{nodes: nodes, vcs: vcs, jobs: jobs, profilers: 2, profile: 200 * core.Second, mostGPUs: 8 * core.WholeGPU}, nil
}

// saturnLoad is 3 days, on as many nodes as make that load, with the settings for Venus: Lucid's code has none for Saturn.
func saturnLoad(seed uint64) lucidLoad {
	jobs := saturnShaped(3, seed)
	nodes := int(math.Ceil(loadOf(jobs, 1) / drawnLoad))
	vcs := saturnVCs(nodes - 2)
	assign(jobs, vcs, seed)
	return lucidLoad{nodes: nodes, vcs: vcs, jobs: jobs, profilers: 2, profile: 200 * core.Second, mostGPUs: 8 * core.WholeGPU}
}

// acmeLoad is 6,000 jobs on the 128 GPUs of §5.2, of which one node profiles for at most 100 s, as there.
func acmeLoad(seed uint64) lucidLoad {
	return lucidLoad{
		nodes: 16, jobs: acmeShaped(6000, 128, drawnLoad, seed), heavy: true, profilers: 1, profile: 100 * core.Second, mostGPUs: 8 * core.WholeGPU,
	}
}

// lucidArms are what is compared: Lucid first, then it with SchedMate.
var lucidArms = []struct {
	name string
	lucidArm
}{
	{"Lucid", lucidArm{policy: "Lucid"}},
	{"LucidPlus", lucidArm{policy: "LucidPlus", bypass: true, estimates: true}},
	{"LucidPlus, cancelled below 0.50", lucidArm{policy: "LucidPlus", cancel: 500, bypass: true, estimates: true}},
	{"Lucid with profiling bypassed alone", lucidArm{policy: "Lucid", bypass: true}},
	{"Lucid with the advisor's estimates alone", lucidArm{policy: "Lucid", estimates: true}},
	{"Lucid with packing cancelled alone", lucidArm{policy: "LucidPlus"}},
	{"LucidPlus, packed only when no GPUs are idle", lucidArm{policy: "LucidPlus", bypass: true, estimates: true, idleFirst: true}},
	{"Lucid, packed only when no GPUs are idle", lucidArm{policy: "Lucid", idleFirst: true}},
	{"QSSF with Lucid's estimates", lucidArm{policy: "QSSF"}},
	{"Horus", lucidArm{policy: "Horus", predicts: true}},
}

// The paper's range of Lucid's mean JCT over that of Lucid with SchedMate, over its traces (Fig. 10 (d)).
const lucidLow, lucidHigh = 1.23, 1.91

// compareLucid adds the rows of a load.
func compareLucid(ctx context.Context, o *Options, t *Table, p *workload.Profiles, name string, load func(uint64) (lucidLoad, error), seeds []uint64) error {
	sums := make([]lucidOutcome, len(lucidArms))
	low, high, offered, jobs := math.Inf(1), 0.0, 0.0, 0
	var early [2]float64 // Lucid, and with SchedMate
	for _, seed := range seeds {
		l, err := load(seed)
		if err != nil {
			return err
		}
		o.say("%s, seed %d: %d jobs", name, seed, len(l.jobs))
		offered, jobs = offered+loadOf(l.jobs, l.nodes)/float64(len(seeds)), len(l.jobs)
		var first float64
		for i, a := range lucidArms {
			got, err := l.play(ctx, p, a.lucidArm, seed)
			if err != nil {
				return err
			}
			if i == 0 {
				first = got.jct
			}
			if i == 1 {
				low, high = min(low, first/got.jct), max(high, first/got.jct)
			}
			sums[i].jct += got.jct
			sums[i].right += got.right
			sums[i].packed.Jobs += got.packed.Jobs
			sums[i].packed.Cancelled += got.packed.Cancelled
		}
		exits := l
		exits.jobs = exitEarly(l.jobs, seed)
		for i := range early {
			got, err := exits.play(ctx, p, lucidArms[i].lucidArm, seed)
			if err != nil {
				return err
			}
			early[i] += got.jct
		}
	}
	n := float64(len(seeds))
	var packed []string
	for i, a := range lucidArms {
		s := &sums[i]
		if i == 1 {
			t.Rows = append(t.Rows, atLeast(name+", mean JCT of Lucid over LucidPlus", lucidLow, lucidLow, sums[0].jct/s.jct, "x"),
				unpublished(name+", the same if half of the jobs exit early", early[0]/early[1], "x"))
		}
		t.Rows = append(t.Rows, Row{Figure: name + ", mean JCT, " + a.name, Ours: s.jct / n, Unit: "s", Bound: "none", Within: true})
		if s.packed.Jobs > 0 {
			packed = append(packed, fmt.Sprintf("%s %.0f (%.0f)", a.name, float64(s.packed.Jobs)/n, float64(s.packed.Cancelled)/n))
		}
	}
	t.Notes = append(t.Notes, fmt.Sprintf("%s: %d jobs, load %.2f. Lucid over LucidPlus is %.2f to %.2f over the seeds; the paper has %.2f to %.2f over its traces.\n"+
		"Off by less than 100 %% are %.0f %% of Lucid's estimates, %.0f %% of LucidPlus's (the paper, on Mars: 27.7 %% and 85.7 %%).\n"+
		"Packings a run, and those of them that were cancelled: %s.",
		name, jobs, offered, low, high, lucidLow, lucidHigh, 100*sums[0].right/n, 100*sums[1].right/n, strings.Join(packed, "; ")))
	return nil
}
