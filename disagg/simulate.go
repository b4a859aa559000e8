package disagg

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/muster-sched/muster/disagg/monitor"
	"github.com/muster-sched/muster/disagg/pipeline"
	"github.com/muster-sched/muster/disagg/plan"
	"github.com/muster-sched/muster/internal/table"
)

// SimPolicy names a way to run requests.
type SimPolicy string

// The policies of a simulation.
const (
	SimThroughput SimPolicy = "throughput" // the plan for throughput, requests in a pipeline, earlier ones first
	SimFIFO       SimPolicy = "fifo"       // the same plan and pipeline, without priorities
	SimSerial     SimPolicy = "serial"     // the same plan, one request at a time
	SimLatency    SimPolicy = "latency"    // the plan for latency, one request at a time
	SimMonitor    SimPolicy = "monitor"    // latency or throughput, as the monitor decides
	SimReplicas   SimPolicy = "replicas"   // each GPU serves requests alone
	SimOneGPU     SimPolicy = "one-gpu"    // the GPU serves alone that takes the least time
)

// SimPolicies lists them.
var SimPolicies = []SimPolicy{SimThroughput, SimFIFO, SimSerial, SimLatency, SimMonitor, SimReplicas, SimOneGPU}

// Simulator runs requests of one problem under policies.
type Simulator struct {
	Problem    *plan.Problem
	Requests   []pipeline.Request
	InFlight   int // of the policies with a pipeline
	Concurrent int // kernels on a GPU
	Options    plan.Options
	Monitor    monitor.Config
	// Apart lets the requests that came first run apart under the monitor's throughput, each by one of the plans of [Apart]
	// from that for latency on, and only the others by the plan for throughput.
	Apart bool

	throughput, latency []int // plans, once they are made
}

// Spec returns what a policy simulates.
func (s *Simulator) Spec(p SimPolicy) (*pipeline.Spec, error) {
	spec := &pipeline.Spec{Problem: s.Problem, Requests: s.Requests, Concurrent: s.Concurrent}
	switch p {
	case SimReplicas, SimOneGPU:
		plans, err := alone(s.Problem)
		if err != nil {
			return nil, err
		}
		if p == SimOneGPU {
			fastest(s.Problem, plans)
			plans = plans[:1]
		}
		spec.Policies = []pipeline.Policy{{Name: string(p), Plans: plans, InFlight: s.InFlight, Priority: true}}
		return spec, nil
	}
	var err error
	if s.throughput == nil && p != SimLatency {
		if s.throughput, err = placed(s.Problem, plan.Throughput, s.Options); err != nil {
			return nil, err
		}
	}
	if s.latency == nil && (p == SimLatency || p == SimMonitor) {
		if s.latency, err = placed(s.Problem, plan.Latency, s.Options); err != nil {
			return nil, err
		}
	}
	fast := pipeline.Policy{Name: string(SimThroughput), Plans: [][]int{s.throughput}, InFlight: s.InFlight, Priority: true}
	low := pipeline.Policy{Name: string(SimLatency), Plans: [][]int{s.latency}, InFlight: 1, Priority: true}
	switch p {
	case SimLatency:
		spec.Policies = []pipeline.Policy{low}
	case SimMonitor:
		if s.Apart {
			fast.Plans, fast.ByOrder = append(Apart(s.Problem, s.latency), s.throughput), true
		}
		spec.Policies, spec.Monitor = []pipeline.Policy{low, fast}, &s.Monitor
	case SimFIFO:
		fast.Priority = false
		spec.Policies = []pipeline.Policy{fast}
	case SimSerial:
		fast.InFlight = 1
		spec.Policies = []pipeline.Policy{fast}
	default:
		spec.Policies = []pipeline.Policy{fast}
	}
	return spec, nil
}

// placed returns the best plan that has a GPU for each kernel.
func placed(p *plan.Problem, o plan.Objective, options plan.Options) ([]int, error) {
	best, err := plan.Best(p, o, options)
	if err != nil {
		return nil, err
	}
	var found *plan.Candidate
	for i, c := range best.Others {
		if c.At != nil && (found == nil || c.Seconds < found.Seconds*(1-1e-9)) {
			found = &best.Others[i]
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%s: found no plan that puts each kernel on a GPU", o)
	}
	return found.At, nil
}

// alone returns the plans with all kernels on one GPU that fit, by GPU.
func alone(p *plan.Problem) (plans [][]int, err error) {
	var total int64
	for _, b := range p.Buffers {
		total += b
	}
	for g, gpu := range p.GPUs {
		if gpu.Memory == 0 || gpu.Memory >= total {
			plans = append(plans, slices.Repeat([]int{g}, len(p.Kernels)))
		}
	}
	if plans == nil {
		return nil, &plan.NoRoom{Need: total}
	}
	return plans, nil
}

// fastest sorts plans with all kernels on one GPU by the time of a request.
func fastest(p *plan.Problem, plans [][]int) {
	seconds := func(at []int) (sum float64) {
		for k, g := range at {
			sum += p.Kernels[k].Runs * p.Kernels[k].Seconds[g]
		}
		return sum
	}
	slices.SortStableFunc(plans, func(a, b []int) int { return cmp.Compare(seconds(a), seconds(b)) })
}

// Apart returns plans for requests that share no GPU: the given one, and each GPU alone that it leaves idle and that has the
// memory, the fastest first.
func Apart(p *plan.Problem, at []int) [][]int {
	plans := [][]int{at}
	if all, err := alone(p); err == nil {
		fastest(p, all)
		for _, one := range all {
			if !slices.Contains(at, one[0]) {
				plans = append(plans, one)
			}
		}
	}
	return plans
}

// Outcome is what a simulation came to, as JSON. Times are milliseconds.
type Outcome struct {
	Policy     SimPolicy `json:"policy"`
	Requests   int       `json:"requests"` // a simulated request is a batch of Batch
	Batch      int       `json:"batch"`
	Seconds    float64   `json:"seconds"` // from the first arrival to the last end
	Throughput float64   `json:"requests_per_second"`
	// Steady is requests per second while as many are in progress as may be, if requests are alike and enough.
	Steady   float64        `json:"steady_requests_per_second,omitempty"`
	Latency  Percentiles    `json:"latency_ms"`  // from arrival to end
	Waiting  Percentiles    `json:"waiting_ms"`  // from arrival to start
	Executed Percentiles    `json:"executed_ms"` // kernels and transfers without any wait
	GPUs     []OutcomeGPU   `json:"gpus"`
	Switches []OutcomeMoved `json:"switches,omitempty"`
	Stalled  float64        `json:"stalled_ms"`
	Audited  int            `json:"audited_kernels,omitempty"` // runs of kernels that the audit checked
}

// Percentiles are of requests, by nearest rank.
type Percentiles struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// OutcomeGPU is the shares of the whole time in which a GPU ran kernels and received.
type OutcomeGPU struct {
	Name      string  `json:"name"`
	Busy      float64 `json:"busy"`
	Receiving float64 `json:"receiving"`
}

// OutcomeMoved is a switch to a policy.
type OutcomeMoved struct {
	Decided float64 `json:"decided_ms"`
	Resumed float64 `json:"resumed_ms"`
	To      string  `json:"to"`
}

func millis(t pipeline.Time) float64 { return float64(t) / 1e6 }

func percentiles(times []pipeline.Time) Percentiles {
	slices.Sort(times)
	sum := 0.0
	for _, t := range times {
		sum += millis(t)
	}
	at := func(share int) float64 { return millis(times[(len(times)*share+99)/100-1]) }
	return Percentiles{Mean: sum / float64(len(times)), P50: at(50), P90: at(90), P99: at(99), Max: at(100)}
}

// NewOutcome summarizes a run.
func NewOutcome(p SimPolicy, spec *pipeline.Spec, r *pipeline.Result, batch int) *Outcome {
	o := &Outcome{Policy: p, Requests: len(r.Requests), Batch: batch, Stalled: millis(r.Stalled), Steady: r.Steady * float64(batch)}
	span := r.End - r.Requests[0].Arrived
	o.Seconds = float64(span) / 1e9
	if span > 0 {
		o.Throughput = float64(batch*len(r.Requests)) / o.Seconds
	}
	var latency, waiting, executed []pipeline.Time
	for _, x := range r.Requests {
		latency = append(latency, x.Ended-x.Arrived)
		waiting = append(waiting, x.Started-x.Arrived)
		executed = append(executed, x.Executed)
	}
	o.Latency, o.Waiting, o.Executed = percentiles(latency), percentiles(waiting), percentiles(executed)
	for g, u := range r.GPUs {
		o.GPUs = append(o.GPUs, OutcomeGPU{spec.Problem.GPUs[g].Name, float64(u.Busy) / float64(max(1, span)), float64(u.Receiving) / float64(max(1, span))})
	}
	for _, s := range r.Switches {
		o.Switches = append(o.Switches, OutcomeMoved{millis(s.Decided), millis(s.Resumed), spec.Policies[s.Policy].Name})
	}
	return o
}

// WriteOutcomes writes outcomes of the same requests for people.
func WriteOutcomes(w io.Writer, all []*Outcome) error {
	first := all[0]
	unit := "requests"
	if first.Batch > 1 {
		unit = fmt.Sprintf("batches of %d requests", first.Batch)
	}
	fmt.Fprintf(w, "%d %s.\n\n", first.Requests, unit)
	t := table.Table{Align: "lrrrrrrl"}
	t.Add("POLICY", "REQ/S", "STEADY", "P50 MS", "P90 MS", "P99 MS", "SWITCHES", "BUSY")
	for _, o := range all {
		steady, switches := "-", "-"
		if o.Steady > 0 {
			steady = fmt.Sprintf("%.4g", o.Steady)
		}
		if o.Policy == SimMonitor {
			switches = fmt.Sprint(len(o.Switches))
		}
		var busy []string
		for _, g := range o.GPUs {
			busy = append(busy, fmt.Sprintf("%s %.0f %%", g.Name, 100*g.Busy))
		}
		t.Add(string(o.Policy), fmt.Sprintf("%.4g", o.Throughput), steady, fmt.Sprintf("%.2f", o.Latency.P50), fmt.Sprintf("%.2f", o.Latency.P90), fmt.Sprintf("%.2f", o.Latency.P99), switches, strings.Join(busy, ", "))
	}
	if err := t.Write(w, 0); err != nil {
		return err
	}
	for _, o := range all {
		if o.Audited > 0 {
			if _, err := fmt.Fprintf(w, "\n%s: audited, %d runs of kernels.\n", o.Policy, o.Audited); err != nil {
				return err
			}
		}
	}
	return nil
}
