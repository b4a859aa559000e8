package elastic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/goodput"
	"github.com/muster-sched/muster/workload"
)

// truth is an application whose steps follow the model exactly: no noise, so what is learned can be compared.
var truth = params{alphaC: 0.02, betaC: 0.004, alphaN: 0.05, betaN: 0.002, alphaR: 0.01, betaR: 0.001, gamma: 2}

// fixture is an application "net" on two pools, the second one twice as fast, and on a third with no measurements of 12 GPUs.
func fixture() *workload.Elastic {
	a := &workload.ElasticApp{Name: "net", Steps: map[workload.ElasticPlace][]workload.StepTime{}}
	for _, m := range []struct {
		model   string
		perNode int
		speed   float64
	}{{"slow", 4, 1}, {"fast", 8, 2}} {
		for _, n := range goodput.Sizes(4, m.perNode) {
			if m.model == "slow" && n == 12 {
				continue
			}
			nodes := (n + m.perNode - 1) / m.perNode
			for _, b := range []float64{8, 16, 32, 64} {
				c := (truth.alphaC + truth.betaC*b) / m.speed
				step := truth.together(c, truth.exchange(nodes, n))
				p := workload.ElasticPlace{Model: m.model, Nodes: nodes, GPUs: n}
				a.Steps[p] = append(a.Steps[p], workload.StepTime{Batch: b, Step: step, Sync: step - c})
			}
		}
	}
	for _, batch := range []int{32, 128, 1024} {
		r := workload.ElasticRun{Batch: batch}
		for e := range 10 {
			r.Epochs = append(r.Epochs, workload.ElasticEpoch{Progress: 1000 * float64(e+1), GradSqr: 1, GradVar: 4 * float64(e+1)})
		}
		a.Runs = append(a.Runs, r)
	}
	return &workload.Elastic{Apps: []*workload.ElasticApp{a}}
}

func options() Options {
	return Options{
		Pools: []Pool{{"slow", 3, 4}, {"fast", 1, 8}}, Round: 60, Objective: goodput.SiaObjective,
		Restart: map[string]float64{"net": 20}, Expected: map[string]float64{"net": 20},
	}
}

func jobAt(i int, at float64) workload.ElasticJob {
	return workload.ElasticJob{Name: fmt.Sprintf("net-%d", i), Submitted: core.Time(at * float64(core.Second)), App: "net", Batch: 512}
}

// The model that is fitted predicts the steps that were seen, and others.
func TestFit(t *testing.T) {
	a, err := newApp(fixture().Apps[0], options().Pools, &Options{})
	if err != nil {
		t.Fatal(err)
	}
	j := &job{app: a, known: newKnown(2)}
	for p, most := range []int{8, 8} {
		j.observeAll(p, most)
		m := j.fitted(p)
		for k, n := range j.sizes[p] {
			for _, s := range j.at[p][k] {
				c := m.alphaC + m.betaC*s.Batch
				got := m.together(c, m.exchange(j.pools[p].nodes(n), n))
				if off := math.Abs(got/s.Step - 1); n <= most && off > 0.03 || off > 0.15 {
					t.Errorf("pool %d, %d GPUs, batch %v: a step of %v, want %v", p, n, s.Batch, got, s.Step)
				}
			}
		}
	}
}

// With steps of one GPU alone, several are taken to be as many times as fast.
func TestFitIsOptimistic(t *testing.T) {
	p := fit([]observation{{1, 1, 16, 0.1, 0.11}, {1, 1, 32, 0.2, 0.21}}, nil)
	g := gradients{1, 1e9} // larger batches cost no progress
	l := limits{16, 4096, 16, 32}
	one, four, eight := p.tune(g, 1, 1, l).goodput, p.tune(g, 1, 4, l).goodput, p.tune(g, 2, 8, l).goodput
	if four < 3.9*one || eight < 7.8*one {
		t.Errorf("goodput %v on one GPU, %v on 4, %v on 8", one, four, eight)
	}
}

// tune finds about the best of all ways to split all batches.
func TestTuneIsBrute(t *testing.T) {
	l := limits{32, 1024, 8, 64}
	for _, g := range []gradients{{1, 1}, {1, 100}, {1, 10_000}} {
		for _, n := range []int{1, 2, 4, 8} {
			nodes := (n + 3) / 4
			best := 0.0
			for batch := 8; batch <= 64; batch++ {
				for steps := 1; n*batch*steps <= 1024; steps++ {
					all, c := float64(n*batch*steps), truth.alphaC+truth.betaC*float64(batch)
					if all >= 32 && !(n == 1 && all > 32 && steps == 1) {
						best = max(best, 32*g.gain(all/32)/(float64(steps-1)*c+truth.together(c, truth.exchange(nodes, n))))
					}
				}
			}
			if got := truth.tune(g, nodes, n, l).goodput; got > best*1.0001 || got < 0.93*best {
				t.Errorf("%+v on %d GPUs: %v, the best is %v", g, n, got, best)
			}
		}
	}
}

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		total       float64
		gpus        int
		batch, step int
	}{{32, 1, 32, 1}, {64, 1, 32, 2}, {65, 1, 33, 2}, {256, 2, 64, 2}, {257, 2, 43, 3}, {256, 8, 32, 1}} {
		if b, s := split(c.total, c.gpus, 32, 64); b != c.batch || s != c.step {
			t.Errorf("%v on %d GPUs: %d steps of %d, want %d of %d", c.total, c.gpus, s, b, c.step, c.batch)
		}
	}
}

// Whole nodes that were not measured are between those that were.
func TestStepsBetween(t *testing.T) {
	a, err := newApp(fixture().Apps[0], options().Pools, &Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, m, h := a.steps(a.pools[0], 8)[2], a.steps(a.pools[0], 12)[2], a.steps(a.pools[0], 16)[2]
	if m.Batch != l.Batch || math.Abs(m.Step-(l.Step+h.Step)/2) > 1e-9 || math.Abs(m.Sync-(l.Sync+h.Sync)/2) > 1e-9 {
		t.Errorf("12 GPUs %+v, 8 %+v, 16 %+v", m, l, h)
	}
	if step, _ := stepOf([]workload.StepTime{{Batch: 2, Step: 1}, {Batch: 4, Step: 3}}, 3); step != 2 {
		t.Errorf("a batch between two takes %v, want 2", step)
	}
}

// A job on one GPU waits for the round, is idle while it starts, and then takes its steps.
func TestOneGPU(t *testing.T) {
	o := options()
	o.Pools = []Pool{{"slow", 1, 1}}
	m := fixture()
	for i := range m.Apps[0].Runs { // larger batches get no further
		for e := range m.Apps[0].Runs[i].Epochs {
			m.Apps[0].Runs[i].Epochs[e].GradVar = 0
		}
	}
	o.Known = true
	out, err := Run(m, []workload.ElasticJob{jobAt(0, 10)}, o)
	if err != nil {
		t.Fatal(err)
	}
	// A batch of 32 in steps of 32: 10,000 steps.
	step := m.Apps[0].Steps[workload.ElasticPlace{Model: "slow", Nodes: 1, GPUs: 1}][2].Step
	if want := 60 - 10 + 20 + 10_000*step; math.Abs(out.Took[0]-want) > 0.02*want || out.Restarts != 0 {
		t.Errorf("took %v s with %d restarts, want about %v and none", out.Took[0], out.Restarts, want)
	}
}

// Profiling takes a start and its time on each pool, in whole rounds; a job like one that has ended needs none, and knows at once what the other one learned.
func TestProfilingIsBypassed(t *testing.T) {
	jobs := []workload.ElasticJob{jobAt(0, 0), jobAt(1, 40_000)}
	run := func(change func(*Options)) Outcome {
		o := options()
		change(&o)
		out, err := Run(fixture(), jobs, o)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	plain := run(func(*Options) {})
	profiled := run(func(o *Options) { o.Profile = 30 })
	plus := run(func(o *Options) { o.Profile, o.Similar = 30, func(int) bool { return true } })
	if profiled.Took[0] < plain.Took[0]+60 || profiled.Took[1] < plain.Took[1]+60 {
		t.Errorf("took %v, with profiling %v", plain.Took, profiled.Took)
	}
	if plus.Similar != 1 || plus.Took[0] != profiled.Took[0] || plus.Took[1] >= plain.Took[1] {
		t.Errorf("%d similar; took %v, with profiling %v, without %v", plus.Similar, plus.Took, profiled.Took, plain.Took)
	}
	if slow := run(func(o *Options) { o.Slower = map[string]float64{"net": 10} }); slow.Took[0] < 3*plain.Took[0] {
		t.Errorf("steps of ten times the time take %v, others %v", slow.Took, plain.Took)
	}
}

// Many jobs: in each round they hold no more GPUs than there are, each a configuration, and twice as many as seen at most.
func TestRounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	o := options()
	o.Profile = 15
	o.Similar = func(i int) bool { return i%3 == 0 }
	var jobs []workload.ElasticJob
	for i := range 40 {
		jobs = append(jobs, jobAt(i, float64(i)*200*rng.Float64()))
	}
	slices.SortFunc(jobs, func(a, b workload.ElasticJob) int { return int(a.Submitted - b.Submitted) })
	r := &run{Options: o, free: []int{12, 8}, finished: map[string]*job{}}
	if err := r.open(fixture(), jobs); err != nil {
		t.Fatal(err)
	}
	var out Outcome
	for n := 1; r.left > 0; n++ {
		if n > 100_000 {
			t.Fatal("it does not end")
		}
		r.round(float64(n)*o.Round, &out)
		left := slices.Clone(r.free)
		for _, j := range r.active {
			if j.pool < 0 {
				continue
			}
			if left[j.pool] -= j.gpus; left[j.pool] < 0 || !slices.Contains(j.sizes[j.pool], j.gpus) || j.gpus > max(1, 2*slices.Max(j.most)) {
				t.Fatalf("round %d: job %s on %d GPUs of pool %d, %v are left", n, j.ElasticJob.Name, j.gpus, j.pool, left)
			}
			if j.profiling && (j.gpus != 1 || j.progress > 0) || !j.profiling && slices.Contains(j.unprofiled, true) && j.progress > 0 {
				t.Fatalf("round %d: job %s trains before it is profiled", n, j.ElasticJob.Name)
			}
		}
	}
	if out.Most < 5 || out.Similar == 0 {
		t.Errorf("at most %d jobs at a time, %d similar", out.Most, out.Similar)
	}
	a, err := Run(fixture(), jobs, o)
	b, _ := Run(fixture(), jobs, o)
	if err != nil || !slices.Equal(a.Took, b.Took) {
		t.Errorf("two runs differ: %v, %v, %v", a.Took, b.Took, err)
	}
}

func TestBadRuns(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options, *workload.ElasticJob)
		want   string
	}{
		{"application", func(_ *Options, j *workload.ElasticJob) { j.App = "web" }, `expected an application that was measured, found "web"`},
		{"batch", func(_ *Options, j *workload.ElasticJob) { j.Batch = 31 }, "a batch of at least 32, found 31"},
		{"model", func(o *Options, _ *workload.ElasticJob) { o.Pools[0].Model = "new" }, "step times of one GPU of model new"},
		{"nodes", func(o *Options, _ *workload.ElasticJob) { o.Pools[1].Nodes = 20 }, "step times of 40 GPUs of model fast"},
	} {
		o, j := options(), jobAt(0, 0)
		c.change(&o, &j)
		if _, err := Run(fixture(), []workload.ElasticJob{j}, o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
