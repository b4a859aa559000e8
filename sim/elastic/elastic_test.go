package elastic

import (
	"math"
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
	a := &workload.ElasticApp{Name: "net", Steps: map[workload.ElasticPlace][]workload.StepTime{}, Restart: 20, Expected: 20}
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

func pools() []Pool { return []Pool{{"slow", 3, 4}, {"fast", 1, 8}} }

// submitted is a job of the fixture.
func submitted(t *testing.T, o Options, m *workload.Elastic) *Job {
	t.Helper()
	j, _, err := New(o).Submit(0, &workload.Training{App: m.Apps[0], Batch: 512})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// The model that is fitted predicts the steps that were seen, and others.
func TestFit(t *testing.T) {
	a, err := newApp(fixture().Apps[0], pools())
	if err != nil {
		t.Fatal(err)
	}
	j := &Job{app: a, known: newKnown(2)}
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
	a, err := newApp(fixture().Apps[0], pools())
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

// task is the number of the alternative with so many GPUs of a model.
func task(t *testing.T, j *Job, name string) int {
	t.Helper()
	i := slices.IndexFunc(j.Tasks(), func(c core.Task) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no alternative %s among %v", name, j.Tasks())
	}
	return i
}

// train lets a job run to its end, and says how long that takes.
func train(j *Job) (took float64) {
	for !j.Ended() {
		n := j.Next() * (1 + 1e-9)
		j.Advance(n)
		took += n
	}
	return took
}

// A job on one GPU is idle while it starts, and then takes its steps.
func TestOneGPU(t *testing.T) {
	m := fixture()
	for i := range m.Apps[0].Runs { // larger batches get no further
		for e := range m.Apps[0].Runs[i].Epochs {
			m.Apps[0].Runs[i].Epochs[e].GradVar = 0
		}
	}
	j := submitted(t, Options{Pools: pools(), Known: true}, m)
	j.Start(task(t, j, "slow-1"))
	// A batch of 32 in steps of 32: 10,000 steps.
	step := m.Apps[0].Steps[workload.ElasticPlace{Model: "slow", Nodes: 1, GPUs: 1}][2].Step
	if took, want := train(j), 20+10_000*step; math.Abs(took-want) > 0.02*want {
		t.Errorf("took %v s, want about %v", took, want)
	}
}

// A job keeps what it has done when it stops, however its time is cut, and is idle again when it starts.
func TestStop(t *testing.T) {
	j, cut := submitted(t, Options{Pools: pools()}, fixture()), submitted(t, Options{Pools: pools()}, fixture())
	j.Start(task(t, j, "slow-1"))
	cut.Start(task(t, cut, "slow-1"))
	whole, pieces := train(j), 0.0
	for range 10 {
		cut.Advance(50)
		pieces += 50
	}
	cut.Stop()
	if cut.Advance(1000); !math.IsInf(cut.Next(), 1) {
		t.Error("it goes on when it has stopped")
	}
	cut.Start(task(t, cut, "slow-1"))
	if pieces += train(cut); math.Abs(pieces-whole-20) > 0.05*whole {
		t.Errorf("took %v s with a stop, %v without", pieces, whole)
	}
}

// Profiling takes a start and its time on each pool; a job like one that has ended needs none, and knows at once what that learned.
func TestProfiling(t *testing.T) {
	apps := New(Options{Pools: pools(), Profile: 30, Similar: func(n int) bool { return n == 2 }})
	w := &workload.Training{App: fixture().Apps[0], Batch: 512}
	j, _, err := apps.Submit(0, w)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		on   string
		left []string // on what it may run then
	}{{"fast-1", []string{"slow-1"}}, {"slow-1", []string{"slow-1", "slow-2", "fast-1", "fast-2"}}} {
		j.Start(task(t, j, c.on))
		if j.Idle() != 50 || j.Next() != 50 {
			t.Errorf("on %s it is idle for %v s, want 50", c.on, j.Idle())
		}
		j.Advance(60)
		if j.progress != 0 || !math.IsInf(j.Next(), 1) {
			t.Errorf("on %s it trains before the round is over", c.on)
		}
		var may []string
		for i, g := range j.Goodputs() {
			if g > 0 {
				may = append(may, j.Tasks()[i].Name)
			}
		}
		if !slices.Equal(may, c.left) {
			t.Errorf("after %s it may run on %v, want %v", c.on, may, c.left)
		}
	}
	if train(j); j.Goodputs()[task(t, j, "slow-2")] <= j.Goodputs()[task(t, j, "slow-1")] {
		t.Error("two GPUs are worth no more than one")
	}
	apps.End(j)
	for n, want := range map[int]bool{1: false, 2: true} {
		o, similar, err := apps.Submit(n, w)
		if err != nil || similar != want || o.toProfile() == want {
			t.Errorf("job %d: similar %v, to be profiled %v, %v", n, similar, o.toProfile(), err)
		}
	}
}

// What was measured bounds what a job may have: as many GPUs as its largest batch has parts of the smallest size, and twice as many as were seen.
func TestGoodputs(t *testing.T) {
	j := submitted(t, Options{Pools: pools()}, fixture())
	positive := func() (n int) {
		for _, g := range j.Goodputs() {
			if g > 0 {
				n++
			}
		}
		return n
	}
	if n := positive(); n != 2 {
		t.Errorf("%d ways to run before any step was seen, want one GPU of each pool", n)
	}
	for _, on := range []string{"slow-1", "slow-2", "slow-4"} {
		j.Start(task(t, j, on))
		j.Advance(25)
	}
	if n := positive(); n != 4+4 { // 1, 2, 4 and 8 GPUs of each
		t.Errorf("%d ways to run after 4 GPUs, want 8", n)
	}
}

// Of places that were not measured, the nearest counts; steps of ten times the time take ten times as long.
func TestFixed(t *testing.T) {
	m := fixture()
	j := submitted(t, Options{Pools: pools()}, m)
	near := j.nearest("slow", 3, 6) // the fewest of those two GPUs off, on as many nodes as there are
	if p := m.Apps[0].Steps[workload.ElasticPlace{Model: "slow", Nodes: 2, GPUs: 8}]; &near[0] != &p[0] {
		t.Error("6 GPUs on 3 nodes are not as fast as 8 on 2")
	}
	was := j.Alone("slow", 4)
	m.Apps[0].Slower = 10
	if is := j.Alone("slow", 4); math.Abs((is-20)/(was-20)-10) > 0.01 {
		t.Errorf("takes %v s, with steps of ten times the time %v", was, is)
	}
}

func TestBadTrainings(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options, *workload.Training)
		want   string
	}{
		{"batch", func(_ *Options, w *workload.Training) { w.Batch = 31 }, "a batch of at least 32 for application net, found 31"},
		{"model", func(o *Options, _ *workload.Training) { o.Pools[0].Model = "new" }, "step times of one GPU of model new"},
		{"nodes", func(o *Options, _ *workload.Training) { o.Pools[1].Nodes = 20 }, "step times of 40 GPUs of model fast"},
	} {
		o, w := Options{Pools: pools()}, &workload.Training{App: fixture().Apps[0], Batch: 512}
		c.change(&o, w)
		if _, _, err := New(o).Submit(0, w); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
