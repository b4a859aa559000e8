package core_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
)

// packing is an engine under a policy that packs, with nodes of two GPUs.
type packing struct {
	t interface {
		Helper()
		Fatalf(string, ...any)
	}
	*core.Engine
	now core.Time
}

func newPacking(t *testing.T, name string, change func(*core.Policy), nodes int) *packing {
	t.Helper()
	d, _ := policy.ByName(name)
	if change != nil {
		change(&d.Policy)
	}
	e, err := core.New(core.Config{Policy: d.Policy})
	if err != nil {
		t.Fatal(err)
	}
	p := &packing{t, e, 0}
	p.tell(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
	for i := range nodes {
		p.tell(core.NodeAdded{Node: core.Node{Name: fmt.Sprintf("n%d", i), Model: "A", GPUs: 2, CPUMilli: 8000}})
	}
	return p
}

func (p *packing) tell(ev core.Event) {
	p.t.Helper()
	if err := p.Apply(p.now, ev); err != nil {
		p.t.Fatalf("%T: %v", ev, err)
	}
}

// submit adds a job of so many GPUs, with a score, GPU memory in GiB and an estimate in seconds.
func (p *packing) submit(name string, gpus int, score core.SharingScore, gib, estimate int) {
	p.t.Helper()
	p.tell(core.JobSubmitted{Job: core.Job{
		Name: name, Queue: "q", Submitted: p.now, Estimate: core.Time(estimate) * core.Second,
		Sharing: core.Sharing{Score: score, MemMiB: int32(gib) * 1024},
		Tasks:   []core.Task{{Pods: 1, Request: core.Request{GPU: core.Milli(gpus) * core.WholeGPU, CPUMilli: 1000}}},
	}})
}

// pass makes a pass a second later, and spells what it decided: "b on n0 01 (Packed with a)".
func (p *packing) pass() string {
	p.now += core.Second
	var all []string
	for _, d := range p.Decide(p.now) {
		if len(d.Pods) == 0 {
			continue
		}
		text := fmt.Sprintf("%s %s on %s %02b (%s", d.Op, d.Job, d.Pods[0].Node, d.Pods[0].GPUs, d.Reason)
		if d.For != "" {
			text += " with " + d.For
		}
		all = append(all, text+")")
	}
	return strings.Join(all, ", ")
}

func (p *packing) want(want string) {
	p.t.Helper()
	if got := p.pass(); got != want {
		p.t.Fatalf("at %gs:\n got %s\nwant %s", p.now.Seconds(), got, want)
	}
}

// Lucid §3.3.1: scores add up to at most 2 (a jumbo and a tiny job), memory fits, both have as many GPUs, at most two share, and the
// one that joins is not expected to run for more than twice as long.
func TestWhichJobsShare(t *testing.T) {
	for _, c := range []struct {
		name               string
		gpus               int
		score              core.SharingScore
		gib, estimate      int
		host               core.SharingScore
		hostGiB, estimate2 int
		packed             bool
	}{
		{"two medium ones", 2, core.Medium, 10, 100, core.Medium, 10, 100, true},
		{"a tiny one with a jumbo one", 2, core.Tiny, 4, 100, core.Jumbo, 20, 100, true},
		{"a medium one with a jumbo one", 2, core.Medium, 4, 100, core.Jumbo, 10, 100, false},
		{"two jumbo ones", 2, core.Jumbo, 4, 100, core.Jumbo, 4, 100, false},
		{"too much memory", 2, core.Tiny, 5, 100, core.Tiny, 20, 100, false},
		{"fewer GPUs", 1, core.Tiny, 5, 100, core.Tiny, 5, 100, false},
		{"twice as long", 2, core.Tiny, 5, 200, core.Tiny, 5, 100, true},
		{"longer than that", 2, core.Tiny, 5, 201, core.Tiny, 5, 100, false},
		{"nothing is known", 2, core.NotShared, 0, 100, core.Tiny, 5, 100, false},
		{"nothing is known of the host", 2, core.Tiny, 5, 100, core.NotShared, 0, 100, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPacking(t, "Lucid", nil, 1)
			p.submit("host", 2, c.host, c.hostGiB, c.estimate2)
			p.want("bind host on n0 11 (Placed)")
			p.submit("guest", c.gpus, c.score, c.gib, c.estimate)
			if got := p.pass(); (got == "bind guest on n0 11 (Packed with host)") != c.packed || !c.packed && got != "" {
				t.Errorf("decided %q, packed should be %v", got, c.packed)
			}
		})
	}
}

// A guest has the GPUs when its host ends, and is host to the next one. Nobody else gets them.
func TestAGuestInherits(t *testing.T) {
	p := newPacking(t, "Lucid", nil, 1)
	p.submit("a", 2, core.Medium, 4, 100)
	p.want("bind a on n0 11 (Placed)")
	p.submit("b", 2, core.Medium, 4, 100)
	p.submit("c", 2, core.Medium, 4, 100)
	p.want("bind b on n0 11 (Packed with a)")
	p.tell(core.JobEnded{Job: "a"})
	p.submit("alone", 2, core.NotShared, 0, 1)
	p.want("bind c on n0 11 (Packed with b)")
	p.tell(core.JobEnded{Job: "c"})
	p.want("")
	p.tell(core.JobEnded{Job: "b"})
	p.want("bind alone on n0 11 (Placed)")
}

// By default a job is packed although GPUs are idle, as in the authors' simulator; Packing.First false takes idle ones before.
func TestIdleGPUsFirst(t *testing.T) {
	p := newPacking(t, "Lucid", func(p *core.Policy) { p.Packing.First = false }, 2)
	p.submit("a", 2, core.Tiny, 4, 100)
	p.submit("b", 2, core.Tiny, 4, 100)
	p.submit("c", 2, core.Tiny, 4, 100)
	p.want("bind a on n0 11 (Placed), bind b on n1 11 (Placed), bind c on n0 11 (Packed with a)")
}

// Horus: idle GPUs come first. Then a job goes where that costs least. For one that uses 60 % of its GPUs and 4 GiB of 24, the utilization costs 0.05
// beside fits, 0.3 beside low, 1.6 x 0.3 beside high and nothing beside heavy; the memory costs 0.98 there, and 0.43 beside the others. That of
// large does not suffice. Scores do not count.
func TestCheapestHost(t *testing.T) {
	p := newPacking(t, "Horus", nil, 5)
	submit := func(name string, use int16, gib int32) {
		p.tell(core.JobSubmitted{Job: core.Job{
			Name: name, Queue: "q", Submitted: p.now, Sharing: core.Sharing{Score: core.Jumbo, MemMiB: gib * 1024, Use: use},
			Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: 2 * core.WholeGPU, CPUMilli: 1000}}},
		}})
	}
	submit("high", 700, 4)
	submit("low", 100, 4)
	submit("heavy", 400, 14)
	submit("fits", 350, 4)
	submit("large", 400, 21)
	p.want("bind high on n0 11 (Placed), bind low on n1 11 (Placed), bind heavy on n2 11 (Placed), bind fits on n3 11 (Placed), bind large on n4 11 (Placed)")
	for _, host := range []string{"n3 11 (Packed with fits)", "n1 11 (Packed with low)", "n0 11 (Packed with high)", "n2 11 (Packed with heavy)"} {
		submit("beside-"+host[:2], 600, 4)
		p.want("bind beside-" + host[:2] + " on " + host)
	}
	submit("left", 600, 4)
	p.want("")
}

// SchedMate §4.1: job B is packed with job A. When A has less than 65 % of its throughput, B goes back to the queue, and is never
// packed again.
func TestPackingIsCancelled(t *testing.T) {
	p := newPacking(t, "LucidPlus", nil, 1)
	p.submit("A", 2, core.Medium, 4, 100)
	p.want("bind A on n0 11 (Placed)")
	p.submit("B", 2, core.Medium, 4, 100)
	p.want("bind B on n0 11 (Packed with A)")
	p.tell(core.JobSlowed{Job: "B", Share: 100}) // the one that came later does not count
	p.tell(core.JobSlowed{Job: "A", Share: 650})
	p.want("")
	p.tell(core.JobSlowed{Job: "A", Share: 649})
	p.want("evict B on n0 11 (PackingCancelled with A)")
	p.tell(core.PodsGone{Job: "B"})
	p.want("")
	p.submit("C", 2, core.Medium, 4, 50)
	p.want("bind C on n0 11 (Packed with A)")
	p.tell(core.JobEnded{Job: "A"})
	p.tell(core.JobEnded{Job: "C"})
	p.want("bind B on n0 11 (Placed)")
	p.submit("D", 2, core.Tiny, 4, 50)
	p.want("")
}

// Both are lost with their node, and start again elsewhere.
func TestPackedNodeIsLost(t *testing.T) {
	p := newPacking(t, "Lucid", nil, 1)
	p.submit("a", 2, core.Medium, 4, 100)
	p.submit("b", 2, core.Medium, 4, 100)
	p.want("bind a on n0 11 (Placed), bind b on n0 11 (Packed with a)")
	p.tell(core.NodeLost{Node: "n0"})
	p.want("")
	p.tell(core.NodeAdded{Node: core.Node{Name: "n0", Model: "A", GPUs: 2, CPUMilli: 1500}})
	p.want("bind a on n0 11 (Placed)") // no CPU is left for the other one
}

// An engine that is built again finds two jobs on the same GPUs.
func TestPackedJobsAreFound(t *testing.T) {
	p := newPacking(t, "Lucid", nil, 1)
	p.now = 100 * core.Second
	for _, name := range []string{"a", "b", "c"} {
		p.submit(name, 2, core.Tiny, 4, 100)
	}
	p.tell(core.PodRunning{Job: "a", Node: "n0", GPUs: []int{0, 1}})
	p.tell(core.PodRunning{Job: "b", Node: "n0", GPUs: []int{0, 1}})
	if err := p.Apply(p.now, core.PodRunning{Job: "c", Node: "n0", GPUs: []int{0, 1}}); err == nil {
		t.Error("a third one is found on the same GPUs, expected an error")
	}
	p.tell(core.JobEnded{Job: "a"})
	p.want("bind c on n0 11 (Packed with b)")
}

func TestPackingGoesWithNoPreemption(t *testing.T) {
	d, _ := policy.ByName("default")
	d.Policy.Packing = core.Packing{On: true, MemMiB: 1}
	if _, err := core.New(core.Config{Policy: d.Policy}); err == nil {
		t.Error("a policy that evicts and packs is accepted")
	}
}

// TestPackingInvariants plays random jobs: a GPU has at most two jobs, two only if both may share it, and both are on the same GPUs.
func TestPackingInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, _ := policy.ByName("LucidPlus")
		d.Policy.Packing.First = rapid.Bool().Draw(t, "first")
		e, _ := core.New(core.Config{Policy: d.Policy})
		p := &packing{t, e, 0}
		p.tell(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
		for i := range 2 {
			p.tell(core.NodeAdded{Node: core.Node{Name: fmt.Sprintf("n%d", i), Model: "A", GPUs: 4}})
		}
		jobs := map[string]*onGPUs{}
		for step := range rapid.IntRange(1, 40).Draw(t, "steps") {
			var running []string
			for i := range step {
				if j := jobs[fmt.Sprint(i)]; j != nil && j.gpus != 0 {
					running = append(running, fmt.Sprint(i))
				}
			}
			switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
			case what < 5 || len(running) == 0:
				name, score := fmt.Sprint(step), core.SharingScore(rapid.IntRange(0, 3).Draw(t, "score"))
				p.submit(name, rapid.IntRange(1, 4).Draw(t, "gpus"), score, rapid.IntRange(1, 20).Draw(t, "GiB"), 100)
				jobs[name] = &onGPUs{score: score}
			case what < 8:
				name := rapid.SampledFrom(running).Draw(t, "ends")
				p.tell(core.JobEnded{Job: name})
				delete(jobs, name)
			case what < 9:
				p.tell(core.JobSlowed{Job: rapid.SampledFrom(running).Draw(t, "slow"), Share: 600})
			default:
				p.tell(core.NodeLost{Node: "n1"})
				p.tell(core.NodeAdded{Node: core.Node{Name: "n1", Model: "A", GPUs: 4}})
				for _, j := range jobs {
					if j.node == "n1" {
						j.gpus = 0
					}
				}
			}
			p.now += core.Second
			for _, d := range p.Decide(p.now) {
				switch d.Op {
				case core.Bind:
					*jobs[d.Job] = onGPUs{jobs[d.Job].score, d.Pods[0].Node, d.Pods[0].GPUs, d.Reason == core.Packed}
				case core.Evict:
					if jobs[d.Job].gpus != d.Pods[0].GPUs {
						t.Fatalf("%s is evicted from GPUs %b, and has %b", d.Job, d.Pods[0].GPUs, jobs[d.Job].gpus)
					}
					*jobs[d.Job] = onGPUs{score: core.NotShared}
					p.tell(core.PodsGone{Job: d.Job})
				}
			}
			checkSharing(t, jobs)
		}
	})
}

// onGPUs is where a job is.
type onGPUs struct {
	score  core.SharingScore
	node   string
	gpus   uint64
	packed bool
}

func checkSharing(t *rapid.T, jobs map[string]*onGPUs) {
	for a, x := range jobs {
		with := 0
		for b, y := range jobs {
			if a == b || x.node != y.node || x.gpus&y.gpus == 0 {
				continue
			}
			with++
			if x.gpus != y.gpus || x.score == core.NotShared || y.score == core.NotShared || x.score+y.score > core.Jumbo+core.Tiny || !x.packed && !y.packed {
				t.Fatalf("%s %+v and %s %+v share GPUs", a, x, b, y)
			}
		}
		if with > 1 {
			t.Fatalf("%s shares its GPUs with %d jobs", a, with)
		}
	}
}

// A job that may share GPUs keeps its one pod and its labels: with another pod it was no longer known as one of a pair, and the GPUs of a
// guest were given again.
func TestPackedJobsStayAsTheyAre(t *testing.T) {
	p := newPacking(t, "Lucid", nil, 2)
	p.submit("host", 2, core.Tiny, 1, 100)
	p.submit("guest", 2, core.Tiny, 1, 100)
	p.pass()
	for _, ev := range []core.Event{
		core.PodsAdded{Job: "host", Pods: []int{1}, Task: core.Task{Request: core.Request{GPU: 2 * core.WholeGPU, CPUMilli: 1000}}},
		core.JobRelabelled{Job: "host", Labels: []string{"x"}},
	} {
		if err := p.Apply(p.now, ev); err == nil || !strings.Contains(err.Error(), "it may share GPUs") {
			t.Errorf("%T: error %v", ev, err)
		}
	}
}

// A host that is expected to run longer than was said takes guests that it did not take.
func TestLongerHostTakesGuests(t *testing.T) {
	p := newPacking(t, "Lucid", func(c *core.Policy) { c.Packing.Longest = 1000 }, 1)
	p.submit("host", 2, core.Tiny, 1, 100)
	p.pass()
	p.submit("guest", 2, core.Tiny, 1, 500)
	if got := p.pass(); strings.Contains(got, "guest") {
		t.Fatalf("guest joins a host that ends before it: %s", got)
	}
	p.tell(core.JobEstimated{Job: "host", Estimate: 1000 * core.Second})
	if got := p.pass(); !strings.Contains(got, "guest") {
		t.Errorf("the host runs as long as the guest, and %q was decided", got)
	}
}
