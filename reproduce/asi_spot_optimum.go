package reproduce

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/internal/optimum"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

const (
	appendixTries = 40
	appendixStep  = 600 * core.Second
	// appendixAlpha weighs saved work against evictions. The paper gives no weight.
	appendixAlpha = 1
)

// The schedules of a tiny instance: two optima, as Appendix A is printed, and where pods stay on
// their nodes and HP jobs start at once; and those of the policies, which do not know what comes.
const (
	appendixPrinted = iota
	appendixBest
	appendixFirst
)

var appendixPolicies = [...]string{"SpotGPU", "SpotGPUPerGPU", "SpotGPUBaseline"}

type appendixResults [appendixFirst + len(appendixPolicies)]optimum.SpotResult

// appendix sums up tiny instances.
type appendix struct {
	sum       appendixResults
	objective [len(appendixResults{})]float64
	reached   int // instances in which SpotGPU does as well as the best
	gpuSteps  int
	tries     int
}

// compareAppendix runs tiny instances, and finds their optima.
func compareAppendix(ctx context.Context, o *Options, tries int) (*appendix, error) {
	all := make([]appendixResults, tries)
	say := func(i int) {
		if i == 0 {
			o.say("%d tiny instances, and the optimum of each", tries)
		}
	}
	if err := inParallel(ctx, tries, say, func(i int) (err error) {
		all[i], err = solveAppendix(ctx, uint64(i))
		return err
	}); err != nil {
		return nil, err
	}
	a := &appendix{tries: tries}
	for i := range all {
		s := newAppendix(uint64(i))
		for k, r := range all[i] {
			sum := &a.sum[k]
			sum.Evictions, sum.Runs, sum.Saved = sum.Evictions+r.Evictions, sum.Runs+r.Runs, sum.Saved+r.Saved
			a.objective[k] += s.Objective(r, appendixAlpha)
		}
		if s.Objective(all[i][appendixFirst], appendixAlpha) <= s.Objective(all[i][appendixBest], appendixAlpha) {
			a.reached++
		}
		for _, g := range s.Nodes {
			a.gpuSteps += g * s.Steps
		}
	}
	return a, nil
}

// solveAppendix returns what the schedules of an instance come to.
func solveAppendix(ctx context.Context, seed uint64) (rs appendixResults, err error) {
	s := newAppendix(seed)
	rs[appendixPrinted] = s.Best(appendixAlpha)
	s.Stay, s.AtOnce = true, true
	rs[appendixBest] = s.Best(appendixAlpha)
	for i, name := range appendixPolicies {
		if rs[appendixFirst+i], err = runAppendix(ctx, &s, name); err != nil {
			return rs, fmt.Errorf("instance %d, %s: %w", seed, name, err)
		}
	}
	return rs, nil
}

// rows are without a figure of the paper, which has none.
func (a *appendix) rows() []Row {
	row := func(what string, x float64, unit string) Row {
		return Row{Figure: "tiny instances, Appendix A: " + what, Bound: "none", Ours: x, Unit: unit, Within: true}
	}
	var rows []Row
	for k, name := range append([]string{"the optimum as printed", "the optimum"}, appendixPolicies[:]...) {
		rows = append(rows, row("objective, "+name, a.objective[k]/float64(a.tries), ""))
	}
	return append(rows, row("SpotGPU reaches the optimum", 100*float64(a.reached)/float64(a.tries), "%"))
}

func (a *appendix) note() string {
	terms := func(k int) string {
		r := a.sum[k]
		return fmt.Sprintf("%d and %.1f %%", r.Evictions, 100*float64(r.Saved)/float64(a.gpuSteps))
	}
	return fmt.Sprintf("Tiny instances: %d random ones of 3 nodes of 4 GPUs, 4 spot jobs, 2 HP jobs and 8 steps. The objective is (2a), evictions for each run less the share\n"+
		"of GPU time that is saved work, less being better; its weight alpha is unpublished: %d. An optimum knows what comes. As printed, pods change nodes at\n"+
		"each step and HP jobs wait for spot jobs; in \"the optimum\" they do not. Evictions and GPU time saved: as printed %s, the optimum %s,\n"+
		"SpotGPU %s, SpotGPUPerGPU %s, SpotGPUBaseline %s.",
		a.tries, appendixAlpha, terms(appendixPrinted), terms(appendixBest), terms(appendixFirst), terms(appendixFirst+1), terms(appendixFirst+2))
}

// newAppendix returns an instance: spot jobs fill the nodes, and HP jobs come.
func newAppendix(seed uint64) optimum.Spot {
	r := rand.New(rand.NewPCG(seed, 2))
	s := optimum.Spot{Nodes: []int{4, 4, 4}, Steps: 8}
	for i := range 6 {
		t := optimum.SpotTask{HP: i >= 4, Arrives: r.IntN(2), Pods: 1 + r.IntN(2), GPUs: []int{1, 2, 4}[r.IntN(3)]}
		work, every := 3+r.IntN(5), 1+r.IntN(4)
		if t.HP {
			t.Arrives, work, every = 2+r.IntN(3), 2+r.IntN(2), 1
		}
		for done := every; every < 4 && done < work; done += every {
			t.Milestones = append(t.Milestones, done)
		}
		t.Milestones = append(t.Milestones, work)
		s.Tasks = append(s.Tasks, t)
	}
	return s
}

// runAppendix has a policy schedule the instance, without knowing what comes.
func runAppendix(ctx context.Context, s *optimum.Spot, name string) (optimum.SpotResult, error) {
	var cluster workload.Cluster
	for i, g := range s.Nodes {
		cluster.Nodes = append(cluster.Nodes, core.Node{Name: fmt.Sprint("n", i), GPUs: g, Model: "H20"})
	}
	var jobs []workload.Job
	for i, t := range s.Tasks {
		j := workload.Job{Duration: core.Time(t.Milestones[len(t.Milestones)-1]) * appendixStep}
		j.Name, j.Queue, j.Gang, j.Submitted = fmt.Sprint("t", i), "q", true, core.Time(t.Arrives)*appendixStep
		j.Tasks = []core.Task{{Pods: t.Pods, Request: core.Request{GPU: core.Milli(t.GPUs) * core.WholeGPU}}}
		if !t.HP {
			j.Class = core.LP
		}
		if len(t.Milestones) > 1 {
			j.Checkpoint = core.Time(t.Milestones[0]) * appendixStep
		}
		jobs = append(jobs, j)
	}
	slices.SortStableFunc(jobs, func(a, b workload.Job) int { return int(a.Submitted - b.Submitted) })
	p, _ := policy.ByName(name)
	log := appendixLog{s: s, runs: make([][]optimum.SpotRun, len(s.Tasks))}
	_, err := sim.Run(ctx, sim.Config{
		Cluster: cluster, Policy: p.Policy, Until: core.Time(s.Steps) * appendixStep,
		Jobs: func(yield func(workload.Job, error) bool) {
			for _, j := range jobs {
				if !yield(j, nil) {
					return
				}
			}
		},
	}, &log)
	if err != nil {
		return optimum.SpotResult{}, err
	}
	for i, runs := range log.runs {
		if last := len(runs) - 1; last >= 0 && runs[last].Start == s.Steps {
			log.runs[i] = runs[:last] // beyond the horizon
		} else if last >= 0 && runs[last].End < 0 {
			runs[last].End = s.Steps
		}
	}
	return s.Result(log.runs)
}

// appendixLog is a [sim.Sink] that keeps the runs of each task.
type appendixLog struct {
	s    *optimum.Spot
	runs [][]optimum.SpotRun
}

// task returns the runs of a job.
func (l *appendixLog) task(j *sim.Live) *[]optimum.SpotRun {
	var i int
	fmt.Sscanf(j.Name, "t%d", &i)
	return &l.runs[i]
}

// Bound implements [sim.Sink].
func (l *appendixLog) Bound(t core.Time, j *sim.Live, pods []core.Placement, _ core.Reason) error {
	run := optimum.SpotRun{Start: int(t / appendixStep), End: -1, Nodes: make([]int, len(l.s.Nodes))}
	for i := range pods {
		var n int
		fmt.Sscanf(pods[i].Node, "n%d", &n)
		run.Nodes[n]++
	}
	runs := l.task(j)
	*runs = append(*runs, run)
	return nil
}

// Released implements [sim.Sink].
func (l *appendixLog) Released(t core.Time, j *sim.Live, _ []core.Placement, _ sim.Release, _ sim.Eviction) error {
	runs := *l.task(j)
	runs[len(runs)-1].End = int(t / appendixStep)
	return nil
}

// Node implements [sim.Sink].
func (*appendixLog) Node(core.Time, *core.Node, bool) error { return nil }

// Submitted implements [sim.Sink].
func (*appendixLog) Submitted(core.Time, *sim.Live) error { return nil }

// Ended implements [sim.Sink].
func (*appendixLog) Ended(core.Time, *sim.Live, *sim.Rejection) error { return nil }
