package reproduce

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/muster-sched/muster/disagg"
	"github.com/muster-sched/muster/disagg/monitor"
	"github.com/muster-sched/muster/disagg/pipeline"
	"github.com/muster-sched/muster/disagg/plan"
	"github.com/muster-sched/muster/disagg/roofline"
	"github.com/muster-sched/muster/workload"
)

var tesseraMonitor = Experiment{
	Name:  "tessera-monitor",
	Title: "The online monitor on recorded and bursty arrivals, against fixed plans and without hysteresis",
	run:   runTesseraMonitor,
	Takes: []string{"traces", "full"},
}

// What we chose: every how many of the trace's requests arrive, so that the pair is neither idle nor
// overloaded, and which of its times. [monitor.Default] was chosen on the first 180 seconds, which are not used here.
const (
	azureConversations  = "azure-llm-2023/AzureLLMInferenceTrace_conv.csv.gz"
	monitorEvery        = 5
	monitorSpan         = 360 * pipeline.Second
	monitorLinkLoad     = 0.125
	burstCalm, burstHot = 0.6, 4.0 // requests a second
	burstCalmMean       = 20.0     // seconds
	burstHotMean        = 5.0
)

// The settings that the paper tried, W in milliseconds and beta (§V-D, Fig. 10), and some between.
var (
	monitorWindows = []int{2, 5, 10, 30, 100, 300, 1500}
	monitorBetas   = []float64{1.1, 1.5, 2, 3}
)

// monitorAlways is our monitor at a limit: throughput from the first request on, whatever is measured. Requests still change plans
// as others come and end, so it is none of the fixed policies.
var monitorAlways = monitor.Config{Window: monitor.Default.Window, Beta: 1, Calm: 3600 * pipeline.Second, Stall: monitor.Default.Stall}

// online is a workload for the monitor: arrivals whose tokens are known.
type online struct {
	name     string
	arrivals []disagg.Arrival
}

// served is what a policy came to: the mean over requests of milliseconds a token, and how often it switched.
type served struct {
	perToken float64
	switches int
}

// monitorBench is the pair with its plans.
type monitorBench struct {
	profile *disagg.Profile
	problem *plan.Problem // of groups of kernels
	plans   [][]int       // for latency, those apart from it, for throughput
}

func newMonitorBench() (*monitorBench, error) {
	profile, problem, err := tesseraProblem("200gbps", roofline.Batch{Prompts: 1, Sequences: 1})
	if err != nil {
		return nil, err
	}
	low, err := plan.Best(problem, plan.Latency, plan.Options{})
	if err != nil {
		return nil, err
	}
	fast, err := plan.Best(problem, plan.Throughput, plan.Options{LinkLoad: monitorLinkLoad})
	if err != nil {
		return nil, err
	}
	if low.At == nil || fast.At == nil {
		return nil, errors.New("the best plan is replicas")
	}
	b := &monitorBench{profile: profile}
	b.problem, b.plans = pipeline.Group(problem, append(disagg.Apart(problem, low.At), fast.At))
	return b, nil
}

// way is how requests are served: by one of the fixed policies or under a monitor, which may let the first ones run apart.
type way struct {
	fixed   disagg.SimPolicy
	monitor *monitor.Config
	apart   bool
}

// serve simulates a workload.
func (b *monitorBench) serve(w *online, by way) (served, error) {
	sim := &disagg.Simulator{Problem: b.problem, Concurrent: tesseraConcurrent, InFlight: tesseraInFlight, Requests: b.profile.Requests(w.arrivals, pipeline.Phases(b.problem), 1)}
	spec, err := sim.Spec(disagg.SimReplicas)
	if err != nil {
		return served{}, err
	}
	last := len(b.plans) - 1
	low := pipeline.Policy{Name: "latency", Plans: b.plans[:1], InFlight: 1, Priority: true}
	fast := pipeline.Policy{Name: "throughput", Plans: b.plans[last:], InFlight: tesseraInFlight, Priority: true}
	if by.apart {
		fast.Plans, fast.ByOrder = b.plans, true
	}
	switch by.fixed {
	case disagg.SimReplicas:
	case disagg.SimLatency:
		spec.Policies = []pipeline.Policy{low}
	case disagg.SimThroughput:
		spec.Policies = []pipeline.Policy{fast}
	default:
		spec.Policies, spec.Monitor = []pipeline.Policy{low, fast}, by.monitor
	}
	r, err := pipeline.Run(spec)
	if err != nil {
		return served{}, err
	}
	s := served{switches: len(r.Switches)}
	for i, x := range r.Requests {
		s.perToken += float64(x.Ended-x.Arrived) / 1e6 / float64(w.arrivals[i].Generated) / float64(len(r.Requests))
	}
	return s, nil
}

// monitorWorkloads returns the recorded arrivals, if the trace is there, and generated bursts.
func monitorWorkloads(o *Options) ([]online, error) {
	span, seeds := monitorSpan, uint64(1)
	if o.Full {
		seeds = 3
	}
	var all []online
	for seed := range seeds {
		all = append(all, online{fmt.Sprintf("bursts %d", seed+1), burstArrivals(span, seed+1)})
	}
	path, err := o.trace(azureConversations, "Azure LLM inference, conversations")
	if workload.IsBadInput(err) {
		return all, nil
	}
	read, err := disagg.ReadArrivals(path)
	if err != nil {
		return nil, err
	}
	parts := []pipeline.Time{1}
	if o.Full {
		parts = []pipeline.Time{1, 2, 3}
	}
	for _, n := range parts {
		var some []disagg.Arrival
		for i, a := range disagg.Part(read, n*span, (n+1)*span, 1) {
			if i%monitorEvery == 0 && a.Generated > 0 {
				some = append(some, a)
			}
		}
		if len(some) > 0 {
			all = append(all, online{fmt.Sprintf("azure from %d s", n*span/pipeline.Second), some})
		}
	}
	return all, nil
}

// burstArrivals alternates between calm and bursts, each for an exponential time, with Poisson arrivals. Sizes
// are skewed as those of conversations are: exponential, with the means of the paper's medians, and 16 tokens at least generated.
func burstArrivals(span pipeline.Time, seed uint64) (all []disagg.Arrival) {
	r := rand.New(rand.NewPCG(seed, 1))
	end := float64(span) / 1e9
	for now, hot := 0.0, false; now < end; hot = !hot {
		rate, mean := burstCalm, burstCalmMean
		if hot {
			rate, mean = burstHot, burstHotMean
		}
		until := min(end, now+mean*r.ExpFloat64())
		for at := now + r.ExpFloat64()/rate; at < until; at += r.ExpFloat64() / rate {
			all = append(all, disagg.Arrival{At: pipeline.Time(math.Round(at * 1e9)), Context: 1 + int(1020*r.ExpFloat64()), Generated: 16 + int(113*r.ExpFloat64())})
		}
		now = until
	}
	return all
}

func runTesseraMonitor(ctx context.Context, o Options) (Result, error) {
	workloads, err := monitorWorkloads(&o)
	if err != nil {
		return nil, err
	}
	b, err := newMonitorBench()
	if err != nil {
		return nil, err
	}
	d := monitor.Default
	t := &Table{
		Caption: "GPT-oss 20B on an A100 and an L40S at 200 Gbps, requests that arrive over 360 s, simulated; latency per generated token, mean over requests. Reference: Tessera\n" +
			"(arXiv:2604.10180), §V-D and Fig. 10.",
		Notes: []string{
			fmt.Sprintf("Our monitor: W %d ms, beta %g; back to latency after %d ms of calm windows with at most one request; %d switches at once and one more every %d ms; workers agree on a switch in %d ms, and requests go\n"+
				"on meanwhile; under throughput the first request has the plan for latency, the next one the GPU that it leaves idle. Without hysteresis: none of that, for W of 2, 5, 10, 30, 100, 300, 1500 ms and beta of 1.1, 1.5, 2, 3, and as in the paper requests stop until\n"+
				"the workers agree; then with our switch, at which they go on; then also with the first requests apart. Each time it is the best setting by hindsight. Ours was chosen on the first 180 s of the trace and on bursts of other seeds.", d.Window/1e6, d.Beta, d.Calm/1e6, d.Burst, d.Every/1e6, d.Stall/1e6),
			"Inputs: rooflines of Table I for one prompt and one sequence, the time of a stall (the paper's 30 ms), and the load: every fifth request of the trace, at its own time; of the bursts, 0.6 a second for 20 s and 4 a second\n" +
				"for 5 s on average, sizes exponential. There is no continuous batching, which the paper's engine has. The plan for latency serves one request at a time, that for throughput up to eight.",
			"As far as \"aggressive\" and \"conservative\" go we compare the worst of the paper's two settings of each with the best of its sweeps, all without hysteresis: W of 30 ms or beta of 1.1; W of 1.5 s or beta of 3.",
		},
	}
	for i := range workloads {
		rows, err := b.compare(ctx, &o, &workloads[i])
		if err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows, rows...)
	}
	if !slices.ContainsFunc(workloads, func(w online) bool { return w.name != "bursts 1" }) {
		t.Notes = append(t.Notes, "The trace "+azureConversations+" is missing, so the paper's figures are compared with bursts alone; set its folder with --traces or $MUSTER_TRACES.")
	}
	return t, nil
}

// compare returns the rows of a workload.
func (b *monitorBench) compare(ctx context.Context, o *Options, w *online) ([]Row, error) {
	ways := []way{{fixed: disagg.SimLatency}, {fixed: disagg.SimThroughput}, {fixed: disagg.SimReplicas}, {monitor: &monitor.Default, apart: true}, {monitor: &monitorAlways, apart: true}}
	first, settings := len(ways), len(monitorWindows)*len(monitorBetas)
	for kind := range 3 { // the paper's; with our switch; and with requests apart
		for _, window := range monitorWindows {
			for _, beta := range monitorBetas {
				c := &monitor.Config{Window: monitor.Time(window) * 1e6, Beta: beta, Stall: monitor.Default.Stall, Barrier: kind == 0}
				ways = append(ways, way{monitor: c, apart: kind == 2})
			}
		}
	}
	results := make([]served, len(ways))
	err := inParallel(ctx, len(ways), func(i int) { o.say("%s: %d of %d settings", w.name, i+1, len(ways)) }, func(i int) (err error) {
		results[i], err = b.serve(w, ways[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	low, fast, replicas, ours, always, rest := results[0], results[1], results[2], results[3], results[4], results[first:]
	at := func(window int, beta float64) served {
		return rest[slices.Index(monitorWindows, window)*len(monitorBetas)+slices.Index(monitorBetas, beta)]
	}
	best, sweep := [3]int{0, settings, 2 * settings}, math.Inf(1)
	for i, s := range rest {
		if kind := i / settings; s.perToken < rest[best[kind]].perToken {
			best[kind] = i
		}
	}
	for i, s := range rest[:settings] {
		if monitorWindows[i/len(monitorBetas)] == 300 || monitorBetas[i%len(monitorBetas)] == 1.5 {
			sweep = min(sweep, s.perToken)
		}
	}
	row := func(figure string, x float64, unit string) Row {
		return Row{Figure: w.name + ", " + figure, Ours: x, Unit: unit, Bound: "none", Within: true}
	}
	goal := func(figure string, x float64) Row { // the paper has no such comparison
		r := row(figure+" (ours to be above 1)", x, "x")
		r.Within = x > 1
		return r
	}
	setting := func(figure string, i int) Row {
		c := ways[first+i].monitor
		return row(fmt.Sprintf("%s (W %d ms, beta %g)", figure, c.Window/1e6, c.Beta), rest[i].perToken, "ms")
	}
	return []Row{
		row("requests", float64(len(w.arrivals)), ""),
		row("plan for latency", low.perToken, "ms"),
		row("plan for throughput", fast.perToken, "ms"),
		row("replicas", replicas.perToken, "ms"),
		row("our monitor", ours.perToken, "ms"),
		row("our monitor, switches", float64(ours.switches), ""),
		row("our monitor at the limit: always throughput", always.perToken, "ms"),
		row("paper's W and beta without hysteresis", at(300, 1.5).perToken, "ms"),
		row("paper's W and beta, switches", float64(at(300, 1.5).switches), ""),
		setting("best without hysteresis", best[0]),
		setting("best without hysteresis, our switch", best[1]),
		setting("best without hysteresis, our switch, the first requests apart", best[2]),
		over(w.name+", best fixed policy over our monitor", 1, min(low.perToken, fast.perToken, replicas.perToken)/ours.perToken, "x").said("any statically decided policy suboptimal"),
		goal("best without hysteresis over our monitor", rest[best[0]].perToken/ours.perToken),
		goal("the same, our switch, over our monitor", rest[best[1]].perToken/ours.perToken),
		goal("the same, the first requests apart, over our monitor", rest[best[2]].perToken/ours.perToken),
		within(w.name+", aggressive over the best", 1.32, max(at(30, 1.5).perToken, at(300, 1.1).perToken)/sweep, 0.2, "x"),
		within(w.name+", conservative over the best", 1.55, max(at(1500, 1.5).perToken, at(300, 3).perToken)/sweep, 0.2, "x"),
	}, nil
}
