// Package pipeline simulates requests that run on the plans of package plan, as the workers of
// Tessera (arXiv:2604.10180, §III-C) run them: event by event, in exact order.
//
// A request is a stream of iterations; an iteration runs the kernels of one phase in their order,
// each on the GPU of the plan. On a GPU the kernels of a request follow each other. A kernel whose
// input another GPU wrote waits for the transfer. Transfers have streams of their own, so that a
// GPU computes while it receives. An iteration starts when the one before it of the same request has
// ended, as the launch of a captured graph does.
//
// Times are whole nanoseconds, and all ties are broken by numbers, so that the same [Spec] gives the
// same result on every machine. [Audit] checks a recorded run by other code.
//
// program.go compiles plans, run.go has the events, device.go the GPUs and the links.
package pipeline

import (
	"fmt"

	"github.com/muster-sched/muster/disagg/monitor"
	"github.com/muster-sched/muster/disagg/plan"
)

// Time is nanoseconds since the simulation began.
type Time = monitor.Time

// Second is a second.
const Second Time = 1e9

// Spec is what to simulate.
type Spec struct {
	Problem *plan.Problem
	// Policies are what requests can run under. The first is in force at the beginning; without
	// a monitor it stays so. A monitor chooses between the first, its latency policy, and the
	// second.
	Policies []Policy
	Monitor  *monitor.Config
	// Requests are in order of arrival. Their numbers in results are their indexes.
	Requests []Request
	// Concurrent is how many kernels a GPU runs at once, from 1 to 8. They share it equally: no
	// time is gained by that.
	Concurrent int
	// Record keeps each kernel, transfer and iteration in Result.Record.
	Record bool
	// Progress, if set, is called now and then with the number of requests that have ended.
	Progress func(ended int)
}

// Policy is where kernels run, and how many requests are in progress at once.
type Policy struct {
	Name string
	// Plans has the GPU of each kernel. Of several plans a request takes the one whose requests
	// in progress have the least work left, and keeps it: replicas are a plan a GPU.
	Plans [][]int
	// ByOrder gives the requests in progress the plans by their order of arrival instead: the first has the first
	// plan, and those for which none is left have the last. When one ends, those behind it change.
	ByOrder bool
	// InFlight is how many requests are in progress at most; others wait in order of arrival.
	InFlight int
	// Priority makes GPUs and links serve the request that arrived first. Otherwise they serve
	// what became ready first.
	Priority bool
}

// Request arrives at a time and runs each phase this often, in the order of [Phases].
type Request struct {
	Arrived Time
	Runs    []int
}

// Phases returns the names of a problem's phases, in the order of their first kernels.
func Phases(p *plan.Problem) (names []string) {
	seen := map[string]bool{}
	for i := range p.Kernels {
		if name := p.Kernels[i].Phase; !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// Result is what a run came to.
type Result struct {
	Requests []Served // by number
	End      Time     // when the last request ended
	GPUs     []Usage
	Switches []Switch
	// Stalled is the time in which requests were in progress and none could start an iteration,
	// because policies were being switched.
	Stalled Time
	// Steady is requests per second while as many are in progress as may be: from the end of the
	// first InFlight of them until the last InFlight are left. It is 0 of fewer than
	// three times as many requests, or if they are not all alike.
	Steady float64
	// Idle is, of each GPU, the share of that time in which it ran no kernel; nil without Steady.
	Idle   []float64
	Record *Record
}

// Served is when a request started and ended. Executed is its kernels and the transfers that they
// waited for, summed, without any wait for a GPU, a link or a turn.
type Served struct {
	Arrived, Started, Ended, Executed Time
	Runs                              []int
}

// Usage is how long a GPU ran kernels, and how long its link received.
type Usage struct{ Busy, Receiving Time }

// Switch is a change of policy: decided at a time, in force from Resumed on.
type Switch struct {
	Decided, Resumed Time
	Policy           int
}

// Record is all that happened, in the order of the ends.
type Record struct {
	Kernels    []KernelRun
	Transfers  []TransferRun
	Iterations []Iteration
}

// KernelRun is one run of a kernel on a GPU. Iteration counts those of the request from 0.
type KernelRun struct {
	GPU, Request, Iteration, Kernel int
	Ready, Start, End               Time
}

// TransferRun is one transfer of an edge. Iteration is that of the kernel that wrote.
type TransferRun struct {
	Edge, From, To, Request, Iteration int
	Ready, Start, End                  Time
}

// Iteration is one run of a phase.
type Iteration struct {
	Request, Number, Phase, Policy, Plan int
	Start, End                           Time
}

// check reports the first thing that is wrong with a spec.
func (s *Spec) check() error {
	if err := s.Problem.Check(); err != nil {
		return err
	}
	phases := len(Phases(s.Problem))
	switch {
	case len(s.Policies) == 0, s.Monitor != nil && len(s.Policies) < 2:
		return fmt.Errorf("expected a policy, and two with a monitor; found %d", len(s.Policies))
	case s.Concurrent < 1 || s.Concurrent > mostConcurrent:
		return fmt.Errorf("concurrent kernels: expected from 1 to %d; found %d", mostConcurrent, s.Concurrent)
	case len(s.Requests) == 0:
		return fmt.Errorf("requests: expected at least one")
	}
	for i := range s.Policies {
		p := &s.Policies[i]
		if p.InFlight < 1 || len(p.Plans) == 0 {
			return fmt.Errorf("policy %s: expected a plan, and at least one request in flight", p.Name)
		}
		for _, at := range p.Plans {
			if len(at) != len(s.Problem.Kernels) {
				return fmt.Errorf("policy %s: expected a GPU for each of %d kernels; found %d", p.Name, len(s.Problem.Kernels), len(at))
			}
		}
	}
	last := Time(0)
	for i, r := range s.Requests {
		if r.Arrived < last || len(r.Runs) != phases {
			return fmt.Errorf("request %d: expected an arrival after the one before, and runs of %d phases", i, phases)
		}
		last = r.Arrived
		for _, n := range r.Runs {
			if n < 0 {
				return fmt.Errorf("request %d: expected runs of at least 0; found %d", i, n)
			}
		}
	}
	if s.Monitor != nil {
		return s.Monitor.Check()
	}
	return nil
}
