package metrics

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// run drives a Collector in seconds, GPUs and names.
type run struct {
	t *testing.T
	*Collector
	jobs map[string]*sim.Live
}

func newRun(t *testing.T, o Options) *run {
	return &run{t: t, Collector: New(o), jobs: map[string]*sim.Live{}}
}

func (r *run) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// node adds (or changes) a node of 8 GPUs in a leaf group.
func (r *run) node(at int, name, leaf string, unhealthy ...int) {
	n := core.Node{Name: name, Model: "H800", GPUs: 8, Domains: []string{leaf}, Unhealthy: unhealthy}
	r.ok(r.Node(seconds(at), &n, true))
}

func (r *run) submit(at int, name string, gang bool, tasks ...core.Task) {
	l := &sim.Live{Job: workload.Job{Job: core.Job{
		Name: name, Gang: gang, Tasks: tasks, Submitted: seconds(at),
	}}}
	l.Pods = l.Job.Pods()
	r.jobs[name] = l
	r.ok(r.Submitted(seconds(at), l))
}

func (r *run) bind(at int, job string, pods ...core.Placement) {
	r.t.Helper()
	r.ok(r.Bound(seconds(at), r.jobs[job], pods, core.Placed))
}

func (r *run) release(at int, job string, why sim.Release, pods ...core.Placement) {
	r.t.Helper()
	r.ok(r.Released(seconds(at), r.jobs[job], pods, why, sim.Eviction{Told: seconds(at)}))
}

func (r *run) end(at int, job string) {
	r.t.Helper()
	r.ok(r.Ended(seconds(at), r.jobs[job], nil))
}

func seconds(s int) core.Time { return core.Time(s) * core.Second }

// task is pods of gpus whole GPUs each.
func task(pods, gpus int) core.Task {
	return core.Task{Pods: pods, Request: core.Request{GPU: core.Milli(gpus) * core.WholeGPU}}
}

// on places a pod on the first gpus devices from device first.
func on(node string, pod, first, gpus int) core.Placement {
	return core.Placement{Pod: pod, Node: node, GPUs: (1<<gpus - 1) << first, GPU: core.WholeGPU}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// Two nodes of 8 GPUs. The averages are over 10 s to 110 s.
func TestGARAndGFROverTime(t *testing.T) {
	r := newRun(t, Options{Levels: 1})
	r.node(0, "n0", "a")
	r.node(0, "n1", "a")
	r.submit(10, "small", false, task(1, 4))
	r.bind(20, "small", on("n0", 0, 0, 4)) // 4 of 16, 1 of 2 fragmented
	r.submit(30, "big", false, task(1, 8))
	r.bind(30, "big", on("n1", 0, 0, 8)) // 12 of 16, 1 of 2 fragmented
	r.release(60, "small", sim.Finished, on("n0", 0, 0, 4))
	r.end(60, "small") // 8 of 16, none fragmented
	r.release(110, "big", sim.Finished, on("n1", 0, 0, 8))
	r.end(110, "big")

	s := r.Summary()
	near(t, "window from", s.Window.From, 10)
	near(t, "window to", s.Window.To, 110)
	mean := (10*0 + 10*4 + 30*12 + 50*8) / 16. / 100
	near(t, "GAR mean", s.GAR.Mean, mean)
	near(t, "SOR", s.SOR, mean)
	near(t, "GAR p5", s.GAR.P5, 0)
	near(t, "GAR p50", s.GAR.P50, 0.5)
	near(t, "GAR p95", s.GAR.P95, 0.75)
	near(t, "GFR mean", s.GFR.Mean, 40*0.5/100)
	near(t, "GFR p95", s.GFR.P95, 0.5)
	near(t, "makespan", s.MakespanSeconds, 100)
	near(t, "JCT mean", s.JCT.Mean, (50+80)/2.)
	near(t, "queueing mean", s.Queueing.Mean, (10+0)/2.)
	if want := (Jobs{Submitted: 2, Completed: 2}); s.Jobs != want {
		t.Errorf("jobs = %+v, want %+v", s.Jobs, want)
	}
}

// GPUs that two jobs share are allocated once, until the second one has left them.
func TestSharedGPUsCountOnce(t *testing.T) {
	r := newRun(t, Options{})
	r.node(0, "n0", "a")
	is := func(at int, want core.Milli) {
		t.Helper()
		if got := r.Sample().Allocated / core.WholeGPU; got != want {
			t.Errorf("at %d s %d GPUs are allocated, want %d", at, got, want)
		}
	}
	for _, name := range []string{"x", "y", "z"} {
		r.submit(0, name, false, task(1, 4))
	}
	r.bind(10, "x", on("n0", 0, 0, 4))
	r.bind(20, "y", on("n0", 0, 0, 4))
	is(20, 4)
	r.release(30, "x", sim.Finished, on("n0", 0, 0, 4))
	is(30, 4)
	r.bind(40, "z", on("n0", 0, 0, 4))
	is(40, 4)
	r.release(50, "z", sim.Finished, on("n0", 0, 0, 4))
	is(50, 4)
	r.release(60, "y", sim.Finished, on("n0", 0, 0, 4))
	is(60, 0)
}

func TestGivenWindow(t *testing.T) {
	r := newRun(t, Options{From: seconds(40), To: seconds(60)})
	r.node(0, "n0", "a")
	r.submit(0, "j", false, task(1, 8))
	r.bind(50, "j", on("n0", 0, 0, 8))
	r.release(90, "j", sim.Finished, on("n0", 0, 0, 8))
	r.end(90, "j")
	s := r.Summary()
	near(t, "GAR mean", s.GAR.Mean, 0.5)
	near(t, "from", s.Window.From, 40)
	near(t, "to", s.Window.To, 60)
}

// A GPU that is unhealthy or on a cordoned or lost node is not available.
func TestAvailability(t *testing.T) {
	r := newRun(t, Options{})
	r.node(0, "n0", "a", 7)
	r.node(0, "n1", "a")
	r.submit(0, "j", false, task(1, 7))
	r.bind(0, "j", on("n0", 0, 0, 7))
	is := func(when string, allocated, available, fragmented, nodes int64) {
		t.Helper()
		s := r.Sample()
		got := [4]int64{int64(s.Allocated / core.WholeGPU), s.Available, s.FragmentedNodes, s.GPUNodes}
		if want := [4]int64{allocated, available, fragmented, nodes}; got != want {
			t.Errorf("%s: allocated, available, fragmented, GPU nodes = %v, want %v", when, got, want)
		}
	}
	is("all seven healthy GPUs taken", 7, 15, 0, 2)
	r.node(1, "n0", "a")
	is("the eighth recovered", 7, 16, 1, 2)
	r.node(2, "n0", "a", 0, 1)
	is("two GPUs in use failed", 5, 14, 1, 2)
	cordoned := core.Node{Name: "n0", Model: "H800", GPUs: 8, Cordoned: true}
	r.ok(r.Node(seconds(3), &cordoned, true))
	is("cordoned", 0, 8, 1, 2)
	r.ok(r.Node(seconds(4), &cordoned, false))
	is("lost", 0, 8, 0, 1)
	r.release(4, "j", sim.NodeLost, on("n0", 0, 0, 7))
	r.node(5, "n0", "a")
	is("back, empty", 0, 16, 0, 2)
}

func TestFractionsFragment(t *testing.T) {
	r := newRun(t, Options{})
	r.node(0, "n0", "a")
	r.submit(0, "j", false, core.Task{Pods: 2, Request: core.Request{GPU: 250}})
	quarter := func(pod int) core.Placement {
		return core.Placement{Pod: pod, Node: "n0", GPUs: 1 << 3, GPU: 250}
	}
	r.bind(0, "j", quarter(0), quarter(1))
	if s := r.Sample(); s.Allocated != 500 || s.FragmentedNodes != 1 {
		t.Errorf("sample = %+v, want 500 allocated and one fragmented node", s)
	}
}

// A gang that must start with two pods and gets the second later than the
// first counts for GAR at once, for SOR and JWTD when it is whole.
func TestGangCountsWhenWhole(t *testing.T) {
	r := newRun(t, Options{Levels: 1})
	r.node(0, "n0", "a")
	r.node(0, "n1", "a")
	gang := task(3, 4)
	gang.MinPods = 2
	r.submit(0, "g", true, gang)
	r.bind(10, "g", on("n0", 0, 0, 4))
	r.bind(30, "g", on("n0", 1, 4, 4))
	r.bind(40, "g", on("n1", 2, 0, 4)) // counts from its own binding
	r.release(50, "g", sim.Finished, on("n0", 0, 0, 4), on("n0", 1, 4, 4), on("n1", 2, 0, 4))
	r.end(50, "g")
	s := r.Summary()
	near(t, "GAR mean", s.GAR.Mean, (20*4+10*8+10*12)/16./50)
	near(t, "SOR", s.SOR, (10*8+10*12)/16./50)
	near(t, "wait", s.JWTD[0].Mean, 30)
}

// An eviction makes the job wait again: queueing counts both waits, JWTD the
// first alone. Pods that are evicted at one instant are one preemption.
func TestEvictedJobWaitsAgain(t *testing.T) {
	r := newRun(t, Options{})
	r.node(0, "n0", "a")
	r.submit(0, "g", true, task(2, 4))
	a, b := on("n0", 0, 0, 4), on("n0", 1, 4, 4)
	r.bind(5, "g", a, b)
	r.jobs["g"].Lost = 8000 * 3600
	r.release(20, "g", sim.Preempted, a)
	r.release(20, "g", sim.Preempted, b)
	r.bind(50, "g", a, b)
	r.release(60, "g", sim.Reclaimed, a, b)
	r.bind(60, "g", a, b)
	r.release(100, "g", sim.Finished, a, b)
	r.end(100, "g")
	s := r.Summary()
	near(t, "wait", s.JWTD[0].Mean, 5)
	if math.Abs(s.Queueing.P50/35-1) > 0.01 {
		t.Errorf("queueing = %v, want 35", s.Queueing.P50)
	}
	near(t, "lost GPU hours", s.LostGPUHours, 8)
	if s.Preemptions != 2 {
		t.Errorf("%d preemptions, want 2", s.Preemptions)
	}
}

// A pod that is being moved holds two places. The job runs on, and is one that has moved if the
// old one becomes free.
func TestMoves(t *testing.T) {
	r := newRun(t, Options{})
	r.node(0, "n0", "a")
	r.node(0, "n1", "a")
	r.submit(0, "j", false, task(1, 4))
	a, b := on("n0", 0, 0, 4), on("n1", 0, 4, 4)
	r.bind(0, "j", a)
	r.ok(r.Moving(seconds(10), r.jobs["j"], b, core.Requested, ""))
	r.ok(r.MoveOver(seconds(20), r.jobs["j"], b, nil))
	r.ok(r.Moving(seconds(30), r.jobs["j"], b, core.Requested, ""))
	r.ok(r.MoveOver(seconds(50), r.jobs["j"], a, &b))
	r.release(100, "j", sim.Finished, b)
	r.end(100, "j")
	s := r.Summary()
	near(t, "GAR mean", s.GAR.Mean, (100*4+30*4)/16./100)
	near(t, "SOR", s.SOR, (100*4+30*4)/16./100)
	near(t, "migration GPU hours", s.MigrationGPUHours, 30*4/3600.)
	if s.Migrations != 1 {
		t.Errorf("%d migrations, want 1", s.Migrations)
	}
}

// Six pods of 3 GPUs fit two on a node: three nodes at best, which one leaf
// group of three holds. Here they use four nodes in two groups.
func TestDistanceFromTheFewestNodes(t *testing.T) {
	r := newRun(t, Options{Levels: 1})
	for _, n := range []string{"a0", "a1", "a2", "b0", "b1"} {
		r.node(0, n, n[:1])
	}
	r.submit(0, "g", true, task(6, 3))
	r.bind(0, "g", on("a0", 0, 0, 3), on("a0", 1, 3, 3), on("a1", 2, 0, 3), on("a1", 3, 3, 3),
		on("a2", 4, 0, 3), on("b0", 5, 0, 3))
	s := r.Summary()
	if len(s.JTTED) != 1 || s.JTTED[0].Class != "17-32" {
		t.Fatalf("jtted = %+v, want class 17-32 alone", s.JTTED)
	}
	near(t, "node ratio", s.JTTED[0].NodeRatio, 4/3.)
	near(t, "group ratio", s.JTTED[0].GroupRatio, 2)
	// 15 GPUs in one group, 3 in the other.
	if s.Topology.Gangs != 1 || s.Topology.Spanning != 1 {
		t.Errorf("topology = %+v, want one gang in several groups", s.Topology)
	}
	near(t, "entropy", s.Topology.Entropy, 5./6*math.Log(6./5)+math.Log(6)/6)
	near(t, "cross GPUs", s.Topology.CrossGPUs, 3)
	near(t, "GPUs", s.Topology.GPUs, 18)
}

// Without a leaf group a node is a group of its own.
func TestNodesWithoutALeafGroup(t *testing.T) {
	r := newRun(t, Options{Levels: 2})
	r.node(0, "n0", "spine") // the leaf level is missing
	r.node(0, "n1", "spine")
	r.submit(0, "g", true, task(2, 8))
	r.bind(0, "g", on("n0", 0, 0, 8), on("n1", 1, 0, 8))
	j, _ := r.Job(0, r.jobs["g"])
	if j.Groups != 2 || j.FewestGroups != 2 {
		t.Errorf("groups = %d, fewest %d, want 2 and 2", j.Groups, j.FewestGroups)
	}
}

func TestClassOf(t *testing.T) {
	for m, want := range map[core.Milli]string{
		0: "<1", 999: "<1", 1000: "1", 1500: "2", 2000: "2", 3000: "3-4", 4000: "3-4", 5000: "5-8",
		8000: "5-8", 9000: "9-16", 16000: "9-16", 1024000: "513-1024", 1025000: "1025-2048",
		2048000: "1025-2048", 2048001: ">2048", 1e9: ">2048",
	} {
		if got := ClassOf(m).String(); got != want {
			t.Errorf("ClassOf(%d) = %s, want %s", m, got, want)
		}
	}
}

// The histogram must agree with sorting, to 0.5 %.
func TestHistogramAgainstSorting(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var h Histogram
		var all []float64
		for range 1 + rng.IntN(2000) {
			s := math.Exp(rng.NormFloat64()*4 + 3)
			if rng.IntN(4) == 0 {
				s = 0
			}
			h.Add(s)
			all = append(all, s)
		}
		slices.Sort(all)
		for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 1} {
			want := all[int(math.Ceil(q*float64(len(all))))-1]
			if got := h.Quantile(q); math.Abs(got-want) > 0.005*want+least {
				t.Errorf("quantile %v of %d = %v, want %v", q, len(all), got, want)
			}
		}
	}
}

func TestEmptySummaryIsJSON(t *testing.T) {
	b, err := json.Marshal(New(Options{}).Summary())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{`"jwtd":[]`, `"jtted":[]`, `"window":{`, `"makespan_s":0`} {
		if !strings.Contains(string(b), key) {
			t.Errorf("%s lacks %s", b, key)
		}
	}
}

func BenchmarkJob(b *testing.B) {
	c := New(Options{Levels: 1})
	for i := range 1000 {
		n := core.Node{Name: string(rune('a'+i%26)) + string(rune('0'+i/26)), Model: "H800", GPUs: 8}
		_ = c.Node(0, &n, true)
	}
	p := []core.Placement{{Node: "a0", GPUs: 0xff, GPU: core.WholeGPU}}
	tasks := []core.Task{task(1, 8)}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := seconds(i)
		l := &sim.Live{Job: workload.Job{Job: core.Job{Name: "j", Tasks: tasks, Submitted: at}}, Pods: 1}
		_ = c.Submitted(at, l)
		_ = c.Bound(at, l, p, core.Placed)
		_ = c.Released(at, l, p, sim.Finished, sim.Eviction{})
		_ = c.Ended(at, l, nil)
	}
}

// A pod of a failed job is behind it, and no longer waits; bound again, it
// counts once.
func TestFailedPodIsDone(t *testing.T) {
	r := newRun(t, Options{})
	r.node(0, "n0", "a")
	r.submit(0, "j", false, task(2, 1))
	a, b := on("n0", 0, 0, 1), on("n0", 1, 1, 1)
	r.bind(10, "j", a)
	r.release(20, "j", sim.Failed, a)
	r.bind(30, "j", b) // whole: one behind it, one bound
	r.release(60, "j", sim.Failed, b)
	r.bind(60, "j", b)
	r.release(90, "j", sim.Failed, b)
	r.end(90, "j")
	s := r.Summary()
	near(t, "wait", s.JWTD[0].Mean, 30)
	near(t, "queueing", s.Queueing.Mean, 30)
}
