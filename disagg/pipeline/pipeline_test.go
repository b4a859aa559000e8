package pipeline

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/disagg/monitor"
	"github.com/muster-sched/muster/disagg/plan"
)

// random draws a spec of two or three GPUs with all that a spec can have.
func random(t *rapid.T) *Spec {
	p := &plan.Problem{Shared: rapid.Bool().Draw(t, "shared")}
	gpus := rapid.IntRange(1, 3).Draw(t, "gpus")
	for g := range gpus {
		p.GPUs = append(p.GPUs, plan.GPU{Name: fmt.Sprint("g", g)})
		row := make([]plan.Link, gpus)
		for v := range row {
			row[v] = plan.Link{BytesPerSecond: 1e9, Latency: float64(rapid.IntRange(0, 30).Draw(t, "latency")) * 1e-9}
		}
		p.Links = append(p.Links, row)
	}
	kernels := rapid.IntRange(1, 7).Draw(t, "kernels")
	split := rapid.IntRange(0, kernels).Draw(t, "split")
	for k := range kernels {
		kernel := plan.Kernel{Name: fmt.Sprint("k", k), Phase: "a", Runs: 1}
		if k >= split {
			kernel.Phase = "b"
		}
		for range gpus {
			kernel.Seconds = append(kernel.Seconds, float64(rapid.IntRange(0, 40).Draw(t, "ns"))*1e-9)
		}
		p.Kernels = append(p.Kernels, kernel)
	}
	for range rapid.IntRange(0, 8).Draw(t, "edges") {
		from, to := rapid.IntRange(0, kernels-1).Draw(t, "from"), rapid.IntRange(0, kernels-1).Draw(t, "to")
		p.Edges = append(p.Edges, plan.Edge{From: from, To: to, Bytes: float64(rapid.IntRange(0, 50).Draw(t, "bytes")), Runs: 1, Next: from >= to || rapid.Bool().Draw(t, "next")})
	}
	s := &Spec{Problem: p, Concurrent: rapid.IntRange(1, 3).Draw(t, "concurrent"), Record: true}
	for i := range 2 {
		policy := Policy{Name: fmt.Sprint(i), InFlight: rapid.IntRange(1, 4).Draw(t, "in flight"), Priority: rapid.Bool().Draw(t, "priority"), ByOrder: rapid.Bool().Draw(t, "by order")}
		for range rapid.IntRange(1, 3).Draw(t, "plans") {
			at := make([]int, kernels)
			for k := range at {
				at[k] = rapid.IntRange(0, gpus-1).Draw(t, "at")
			}
			policy.Plans = append(policy.Plans, at)
		}
		s.Policies = append(s.Policies, policy)
	}
	if rapid.Bool().Draw(t, "monitored") {
		s.Monitor = &monitor.Config{Window: 100, Beta: 1.2, Calm: monitor.Time(rapid.IntRange(0, 500).Draw(t, "calm")), Every: monitor.Time(rapid.IntRange(0, 500).Draw(t, "every")), Burst: 3, Stall: 50,
			Barrier: rapid.Bool().Draw(t, "barrier")}
	}
	now := Time(0)
	for range rapid.IntRange(1, 12).Draw(t, "requests") {
		now += Time(rapid.IntRange(0, 200).Draw(t, "gap"))
		r := Request{Arrived: now}
		for range Phases(p) {
			r.Runs = append(r.Runs, rapid.IntRange(0, 3).Draw(t, "runs"))
		}
		s.Requests = append(s.Requests, r)
	}
	return s
}

// Whatever is simulated, the audit finds nothing, and a second run is the same.
func TestAudited(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := random(t)
		r, err := Run(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := Audit(s, r); err != nil {
			t.Fatal(err)
		}
		again, err := Run(s)
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("a second run differs (%v)", err)
		}
		for n, x := range r.Requests {
			if x.Ended < x.Started || x.Started < x.Arrived {
				t.Fatalf("request %d: %+v", n, x)
			}
		}
	})
}

// The switches of any run keep to the monitor's bounds.
func TestSwitchesAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := random(t)
		s.Monitor = &monitor.Config{Window: 60, Beta: 1.1, Calm: monitor.Time(rapid.IntRange(0, 400).Draw(t, "calm least")), Every: monitor.Time(rapid.IntRange(0, 800).Draw(t, "every")), Burst: 2, Stall: 40,
			Barrier: rapid.Bool().Draw(t, "barrier")}
		r, err := Run(s)
		if err != nil {
			t.Fatal(err)
		}
		if n, most := len(r.Switches), s.Monitor.MostSwitches(r.End); n > most {
			t.Fatalf("%d switches in %d ns; at most %d", n, r.End, most)
		}
		longest := Time(0)
		for _, it := range r.Record.Iterations {
			longest = max(longest, it.End-it.Start)
		}
		if most := s.Monitor.MostStalled(r.End, longest); r.Stalled > most {
			t.Fatalf("stalled for %d ns in %d; at most %d", r.Stalled, r.End, most)
		}
	})
}

// pair is a graph of two GPUs whose kernels go to and fro: 10 us on each side, and 5 us between.
func pair(cuts int) (*plan.Problem, []int) {
	p := &plan.Problem{GPUs: []plan.GPU{{Name: "A"}, {Name: "B"}}, Links: [][]plan.Link{{{}, {BytesPerSecond: 1e9, Latency: 1e-6}}, {{BytesPerSecond: 1e9, Latency: 1e-6}, {}}}}
	var at []int
	for k := range 2 * cuts {
		p.Kernels = append(p.Kernels, plan.Kernel{Name: fmt.Sprint("k", k), Runs: 1, Seconds: []float64{10e-6, 10e-6}})
		if k > 0 {
			p.Edges = append(p.Edges, plan.Edge{From: k - 1, To: k, Bytes: 4000, Runs: 1})
		}
		at = append(at, k%2)
	}
	return p, at
}

func closed(p *plan.Problem, policy Policy, requests int) *Spec {
	s := &Spec{Problem: p, Policies: []Policy{policy}, Concurrent: 1, Record: true}
	for range requests {
		s.Requests = append(s.Requests, Request{Runs: []int{1}})
	}
	return s
}

// One request at a time takes the sum of its kernels and transfers, which is the planner's latency.
func TestALoneRequestTakesTheSum(t *testing.T) {
	p, at := pair(3)
	s := closed(p, Policy{Plans: [][]int{at}, InFlight: 1}, 4)
	r, err := Run(s)
	if err != nil {
		t.Fatal(err)
	}
	const one = 6*10_000 + 5*5_000
	for n, x := range r.Requests {
		if x.Ended-x.Started != one || x.Executed != one {
			t.Errorf("request %d took %d and executed %d; want %d", n, x.Ended-x.Started, x.Executed, one)
		}
	}
	if want := 1e9 / float64(one); r.Steady < 0.999*want || r.Steady > 1.001*want {
		t.Errorf("steady %g a second; want %g", r.Steady, want)
	}
}

// Enough requests in flight hide the transfers: the stage time bounds the throughput, and priorities
// come close to it.
func TestAPipelineHidesTransfers(t *testing.T) {
	p, at := pair(6)
	stage := 6 * 10e-6
	for _, priority := range []bool{false, true} {
		s := closed(p, Policy{Plans: [][]int{at}, InFlight: 4, Priority: priority}, 40)
		r, err := Run(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := Audit(s, r); err != nil {
			t.Fatal(err)
		}
		if share := r.Steady * stage; share > 1.0001 || priority && share < 0.95 {
			t.Errorf("priority %t: %.3f of the bound", priority, share)
		}
	}
}

// A kernel that runs is not interrupted, even by a request that arrived earlier; the next choice is its.
func TestNoPreemption(t *testing.T) {
	p := &plan.Problem{GPUs: []plan.GPU{{Name: "A"}, {Name: "B"}}, Links: [][]plan.Link{{{}, {BytesPerSecond: 1e9}}, {{BytesPerSecond: 1e9}, {}}}}
	for k, us := range []float64{10, 5, 10} {
		p.Kernels = append(p.Kernels, plan.Kernel{Name: fmt.Sprint("k", k), Runs: 1, Seconds: []float64{us * 1e-6, us * 1e-6}})
	}
	p.Edges = []plan.Edge{{From: 0, To: 1}, {From: 1, To: 2}}
	s := closed(p, Policy{Plans: [][]int{{0, 1, 0}}, InFlight: 3, Priority: true}, 3)
	r, err := Run(s)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, k := range r.Record.Kernels {
		if k.GPU == 0 {
			order = append(order, fmt.Sprintf("%d.%d@%d", k.Request, k.Kernel, k.Start/1000))
		}
	}
	want := []string{"0.0@0", "1.0@10", "0.2@20", "1.2@30", "2.0@40", "2.2@55"}
	if !reflect.DeepEqual(order, want) {
		t.Errorf("GPU A runs %v; want %v", order, want)
	}
}

// Kernels that run together share the GPU: two of 10 us end after 20.
func TestConcurrentKernelsShare(t *testing.T) {
	p := &plan.Problem{GPUs: []plan.GPU{{Name: "A"}}, Links: [][]plan.Link{{{}}}, Kernels: []plan.Kernel{{Name: "k", Runs: 1, Seconds: []float64{10e-6}}}}
	s := closed(p, Policy{Plans: [][]int{{0}}, InFlight: 2}, 2)
	s.Concurrent = 2
	s.Requests[1].Arrived = 5000
	r, err := Run(s)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := r.Requests[0].Ended, r.Requests[1].Ended; a != 15_000 || b != 20_000 {
		t.Errorf("they end at %d and %d ns; want 15000 and 20000", a, b)
	}
}

// What requests wait for a switch is no reason for the next switch: a request that was not alone at first has two.
func TestSwitchesCauseNoSwitches(t *testing.T) {
	p := &plan.Problem{Links: [][]plan.Link{{{}, {BytesPerSecond: 1e9}}, {{BytesPerSecond: 1e9}, {}}}, GPUs: []plan.GPU{{Name: "A"}, {Name: "B"}}}
	p.Kernels = []plan.Kernel{{Name: "k", Runs: 1, Seconds: []float64{10e-6, 10e-6}}}
	s := &Spec{Problem: p, Concurrent: 1, Monitor: &monitor.Config{Window: 30_000, Beta: 1.1, Stall: 100_000}, Record: true}
	s.Policies = []Policy{{Name: "latency", Plans: [][]int{{0}}, InFlight: 1}, {Name: "throughput", Plans: [][]int{{0}, {1}}, InFlight: 2}}
	s.Requests = []Request{{Runs: []int{200}}, {Arrived: 5000, Runs: []int{1}}}
	for _, barrier := range []bool{false, true} {
		s.Monitor.Barrier = barrier
		r, err := Run(s)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Switches) != 2 {
			t.Errorf("barrier %t: %d switches; want one to throughput and one back: %v", barrier, len(r.Switches), r.Switches)
		}
		// The switch is decided at 30 us. The second request runs at once, beside the first, which it delays by its 10 us;
		// or both stop for 100 us, and once more on the way back.
		ends := Time(2_010_000)
		if barrier {
			ends = 2_200_000
		}
		if got := r.Requests[0].Ended; got != ends || !barrier && r.Stalled != 0 {
			t.Errorf("barrier %t: the first request ends at %d ns and %d were stalled; want %d", barrier, got, r.Stalled, ends)
		}
		if second := r.Requests[1].Ended; (second < 100_000) == barrier {
			t.Errorf("barrier %t: the second request ends at %d ns", barrier, second)
		}
		if err := Audit(s, r); err != nil {
			t.Error(err)
		}
	}
}

// By order, the first request stays on A while another begins on B as soon as the monitor chooses throughput. When the first has
// ended the other goes to A, with the iteration that it starts once the workers have agreed. Otherwise both go to B.
func TestByOrder(t *testing.T) {
	p := &plan.Problem{Links: [][]plan.Link{{{}, {BytesPerSecond: 1e9}}, {{BytesPerSecond: 1e9}, {}}}, GPUs: []plan.GPU{{Name: "A"}, {Name: "B"}}}
	p.Kernels = []plan.Kernel{{Name: "k", Runs: 1, Seconds: []float64{10e-6, 10e-6}}}
	s := &Spec{Problem: p, Concurrent: 1, Monitor: &monitor.Config{Window: 30_000, Beta: 1.1, Calm: Second, Stall: 45_000}, Record: true}
	s.Requests = []Request{{Runs: []int{10}}, {Arrived: 5000, Runs: []int{20}}}
	low := Policy{Name: "latency", Plans: [][]int{{0}}, InFlight: 1}
	for _, c := range []struct {
		fast Policy
		want []string // what starts on another GPU than the iteration before it of its request
		ends [2]Time
	}{
		{Policy{Plans: [][]int{{0}, {1}}, ByOrder: true, InFlight: 2}, []string{"0 A 0", "1 B 30", "1 A 150"}, [2]Time{100_000, 230_000}},
		{Policy{Plans: [][]int{{1}}, InFlight: 2}, []string{"0 A 0", "1 B 30", "0 B 80"}, [2]Time{110_000, 250_000}}, // in turn from 80 us on
	} {
		s.Policies = []Policy{low, c.fast}
		r, err := Run(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := Audit(s, r); err != nil {
			t.Error(err)
		}
		var got []string
		on := [2]int{-1, -1}
		for _, k := range r.Record.Kernels {
			if on[k.Request] != k.GPU {
				on[k.Request] = k.GPU
				got = append(got, fmt.Sprintf("%d %s %d", k.Request, p.GPUs[k.GPU].Name, k.Ready/1000))
			}
		}
		if a, b := r.Requests[0].Ended, r.Requests[1].Ended; !slices.Equal(got, c.want) || a != c.ends[0] || b != c.ends[1] {
			t.Errorf("by order %t: %q, they end at %d and %d; want %q, %d", c.fast.ByOrder, got, a, b, c.want, c.ends)
		}
	}
}

// Of three requests the third changes twice, each time to the plan of one that has ended, and without a monitor at once.
func TestByOrderWithoutAMonitor(t *testing.T) {
	p := &plan.Problem{Links: [][]plan.Link{{{}, {BytesPerSecond: 1e9}}, {{BytesPerSecond: 1e9}, {}}}, GPUs: []plan.GPU{{Name: "A"}, {Name: "B"}}}
	p.Kernels = []plan.Kernel{{Name: "k", Runs: 1, Seconds: []float64{10e-6, 20e-6}}, {Name: "l", Runs: 1, Seconds: []float64{10e-6, 20e-6}}}
	s := &Spec{Problem: p, Concurrent: 8, Record: true, Requests: []Request{{Runs: []int{1}}, {Runs: []int{1}}, {Runs: []int{5}}}}
	s.Policies = []Policy{{Plans: [][]int{{0, 0}, {1, 1}, {1, 0}}, ByOrder: true, InFlight: 3}}
	r, err := Run(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := Audit(s, r); err != nil {
		t.Error(err)
	}
	var plans []int
	for _, it := range r.Record.Iterations {
		if it.Request == 2 {
			plans = append(plans, it.Plan)
		}
	}
	if want := []int{2, 1, 0, 0, 0}; !slices.Equal(plans, want) {
		t.Errorf("the third request runs by the plans %d; want %d", plans, want)
	}
}

// The audit finds what is wrong: a record that was changed is refused.
func TestTheAuditFinds(t *testing.T) {
	p, at := pair(3)
	for name, change := range map[string]func(*Record){
		"a kernel that overlaps":     func(r *Record) { r.Kernels[3].Start -= 20_000; r.Kernels[3].Ready -= 20_000 },
		"a transfer that is short":   func(r *Record) { r.Transfers[0].End-- },
		"a transfer that is early":   func(r *Record) { r.Transfers[1].Start -= 9000; r.Transfers[1].End -= 9000 },
		"a transfer that is missing": func(r *Record) { r.Transfers = r.Transfers[1:] },
		"a kernel twice":             func(r *Record) { r.Kernels = append(r.Kernels, r.Kernels[0]) },
		"a kernel on another GPU":    func(r *Record) { r.Kernels[0].GPU = 1 },
		"a kernel that waits for nothing": func(r *Record) {
			last := &r.Kernels[len(r.Kernels)-1]
			last.Start++
			last.End++
			r.Iterations[len(r.Iterations)-1].End++
		},
		"an iteration that is missing": func(r *Record) { r.Iterations = r.Iterations[:len(r.Iterations)-1] },
	} {
		s := closed(p, Policy{Plans: [][]int{at}, InFlight: 2, Priority: true}, 4)
		r, err := Run(s)
		if err != nil {
			t.Fatal(err)
		}
		change(r.Record)
		if Audit(s, r) == nil {
			t.Errorf("%s: the audit finds nothing", name)
		}
	}
}

// So it does where a request runs by another plan than its place in the order gives, if by the same GPU.
func TestTheAuditFindsAnotherPlan(t *testing.T) {
	p, _ := pair(1)
	s := closed(p, Policy{Plans: [][]int{{0, 0}, {1, 1}, {1, 1}}, ByOrder: true, InFlight: 3, Priority: true}, 3)
	r, err := Run(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := Audit(s, r); err != nil {
		t.Fatal(err)
	}
	last := slices.IndexFunc(r.Record.Iterations, func(it Iteration) bool { return it.Request == 2 })
	r.Record.Iterations[last].Plan = 1
	if err := Audit(s, r); err == nil {
		t.Error("the audit finds nothing")
	}
}

// A lone request takes as long on groups of kernels as on the kernels, under any of the plans.
func TestGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := random(t)
		s.Monitor, s.Requests = nil, s.Requests[:1]
		s.Policies = s.Policies[:1]
		all := s.Policies[0].Plans
		small, plans := Group(s.Problem, all)
		for i := range all {
			var ended [2]Time
			for n, spec := range []*Spec{{Problem: s.Problem}, {Problem: small}} {
				spec.Policies, spec.Requests, spec.Concurrent = []Policy{{Plans: [][]int{[][][]int{all, plans}[n][i]}, InFlight: 1}}, s.Requests, 1
				r, err := Run(spec)
				if err != nil {
					t.Fatal(err)
				}
				ended[n] = r.End
			}
			if ended[0] != ended[1] {
				t.Fatalf("plan %d: kernels end at %d, groups at %d", i, ended[0], ended[1])
			}
		}
	})
}
