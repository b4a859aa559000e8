package pipeline

import (
	"cmp"
	"fmt"
	"slices"
)

// Audit checks a recorded run by what its spec says, from the record alone: it shares no code with
// the simulation. It returns the first thing that is wrong, or nil:
//
//  1. Each request runs each kernel of its iterations once, on the GPU of its plan, and iterations follow each other.
//  2. A kernel starts once it is ready: after the kernel before it of its request on its GPU, and after all its transfers.
//  3. A GPU runs at most Concurrent kernels, does no work faster than it can, and loses less than a nanosecond a kernel.
//  4. No GPU leaves a kernel waiting that it has room for, and none starts out of order.
//  5. Each edge between two GPUs is one transfer of the right length, after its kernel; a GPU receives one at a time.
//  6. An iteration runs under the policy and the plan that its request is to run under, once the workers have agreed, and none at the barrier of a switch.
func Audit(spec *Spec, result *Result) error {
	a := &audit{spec: spec, rec: result.Record, changes: result.Switches, served: result.Requests, iterations: map[[2]int]*Iteration{}, ran: map[[3]int]*KernelRun{}, sent: map[[3]int]*TransferRun{}}
	for n, name := range Phases(spec.Problem) {
		a.kernels = append(a.kernels, nil)
		for k := range spec.Problem.Kernels {
			if spec.Problem.Kernels[k].Phase == name {
				a.kernels[n] = append(a.kernels[n], k)
			}
		}
	}
	a.phaseOf = make([]int, len(spec.Problem.Kernels))
	for n, kernels := range a.kernels {
		for _, k := range kernels {
			a.phaseOf[k] = n
		}
	}
	for _, step := range []func() error{a.structure, a.transfers, a.readiness, a.devices, a.receivers, a.switches} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

type audit struct {
	spec       *Spec
	rec        *Record
	changes    []Switch
	served     []Served
	kernels    [][]int                 // of each phase
	phaseOf    []int                   // of each kernel
	iterations map[[2]int]*Iteration   // by request and number
	ran        map[[3]int]*KernelRun   // by request, iteration and kernel
	sent       map[[3]int]*TransferRun // by request, iteration and edge
}

func (a *audit) plan(i *Iteration) []int { return a.spec.Policies[i.Policy].Plans[i.Plan] }

func (a *audit) structure() error {
	p := a.spec.Problem
	for i := range a.rec.Kernels {
		k := &a.rec.Kernels[i]
		key := [3]int{k.Request, k.Iteration, k.Kernel}
		if a.ran[key] != nil {
			return fmt.Errorf("request %d, iteration %d: kernel %s ran twice", k.Request, k.Iteration, p.Kernels[k.Kernel].Name)
		}
		a.ran[key] = k
	}
	for i := range a.rec.Iterations {
		it := &a.rec.Iterations[i]
		a.iterations[[2]int{it.Request, it.Number}] = it
	}
	runs := 0
	for n, r := range a.spec.Requests {
		number, last := 0, r.Arrived
		for phase, times := range r.Runs {
			for range times {
				it := a.iterations[[2]int{n, number}]
				if it == nil || it.Phase != phase || it.Start < last {
					return fmt.Errorf("request %d: iteration %d is missing, of another phase, or early", n, number)
				}
				ends := it.Start
				for _, k := range a.kernels[phase] {
					runs++
					run := a.ran[[3]int{n, number, k}]
					if run == nil || run.GPU != a.plan(it)[k] || run.Start < it.Start {
						return fmt.Errorf("request %d, iteration %d: kernel %s did not run, on another GPU, or early", n, number, p.Kernels[k].Name)
					}
					ends = max(ends, run.End)
				}
				if ends != it.End {
					return fmt.Errorf("request %d: iteration %d ends at %d, its kernels at %d", n, number, it.End, ends)
				}
				number, last = number+1, it.End
			}
		}
	}
	if runs != len(a.rec.Kernels) || len(a.iterations) != len(a.rec.Iterations) {
		return fmt.Errorf("%d kernels and %d iterations ran; expected %d and %d", len(a.rec.Kernels), len(a.rec.Iterations), runs, len(a.iterations))
	}
	return nil
}

// ordinal returns the place of an iteration among those of its phase, and their number.
func (a *audit) ordinal(it *Iteration) (place, all int) {
	place = it.Number
	for phase, n := range a.spec.Requests[it.Request].Runs {
		if phase == it.Phase {
			return place, n
		}
		place -= n
	}
	return place, 0
}

// leads reports whether an iteration's run of an edge's first kernel has a reader at all.
func (a *audit) leads(it *Iteration, edge int) bool {
	p := a.spec.Problem
	e := p.Edges[edge]
	from, to := a.phaseOf[e.From], a.phaseOf[e.To]
	place, all := a.ordinal(it)
	switch {
	case from == to && e.Next:
		return place+1 < all
	case from == to:
		return true
	case from > to:
		return false
	}
	return all-place <= a.spec.Requests[it.Request].Runs[to]
}

func (a *audit) transfers() error {
	p := a.spec.Problem
	for i := range a.rec.Transfers {
		t := &a.rec.Transfers[i]
		e := p.Edges[t.Edge]
		key := [3]int{t.Request, t.Iteration, t.Edge}
		from := a.ran[[3]int{t.Request, t.Iteration, e.From}]
		link := p.Links[t.From][t.To]
		takes := 1e9 * (link.Latency + e.Bytes/link.BytesPerSecond)
		if d := float64(t.End-t.Start) - takes; a.sent[key] != nil || from == nil || from.GPU != t.From || from.End > t.Start || from.End != t.Ready || d > 0.5 || d < -0.5 {
			return fmt.Errorf("request %d, iteration %d: transfer of edge %d is double, early, or of the wrong length", t.Request, t.Iteration, t.Edge)
		}
		a.sent[key] = t
	}
	expected := 0
	for i := range a.rec.Iterations {
		it := &a.rec.Iterations[i]
		at := a.plan(it)
		for n, e := range p.Edges {
			if a.phaseOf[e.From] != it.Phase || at[e.From] == at[e.To] || !a.leads(it, n) {
				continue
			}
			expected++
			if t := a.sent[[3]int{it.Request, it.Number, n}]; t == nil && !e.Next || t != nil && t.To != at[e.To] {
				return fmt.Errorf("request %d, iteration %d: edge %d was not transferred to its reader", it.Request, it.Number, n)
			}
		}
	}
	// What no request waited for may be under way at the end: transfers into the next iteration whose
	// reader ran under another policy.
	if len(a.sent) > expected || len(a.sent) < expected && a.spec.Monitor == nil {
		return fmt.Errorf("%d transfers; expected %d", len(a.sent), expected)
	}
	return nil
}

// readiness recomputes when each kernel became ready.
func (a *audit) readiness() error {
	p := a.spec.Problem
	into := make([][]int, len(p.Kernels))
	for i, e := range p.Edges {
		into[e.To] = append(into[e.To], i)
	}
	for i := range a.rec.Iterations {
		it := &a.rec.Iterations[i]
		before := make([]Time, len(p.GPUs))
		for g := range before {
			before[g] = it.Start
		}
		for _, k := range a.kernels[it.Phase] {
			run := a.ran[[3]int{it.Request, it.Number, k}]
			ready := before[run.GPU]
			for _, edge := range into[k] {
				for _, from := range a.writers(it, edge) {
					if t := a.sent[[3]int{it.Request, from, edge}]; t != nil {
						ready = max(ready, t.End)
					}
				}
			}
			if run.Ready != ready || run.Start < ready {
				return fmt.Errorf("request %d, iteration %d: kernel %s was ready at %d and ran at %d; expected %d", it.Request, it.Number, p.Kernels[k].Name, run.Ready, run.Start, ready)
			}
			before[run.GPU] = run.End
		}
	}
	return nil
}

// writers returns the iterations whose runs of an edge's first kernel an iteration reads.
func (a *audit) writers(it *Iteration, edge int) (all []int) {
	p := a.spec.Problem
	e := p.Edges[edge]
	same := a.phaseOf[e.From] == a.phaseOf[e.To]
	place, _ := a.ordinal(it)
	switch {
	case same && e.Next && place > 0:
		return []int{it.Number - 1}
	case same && !e.Next:
		return []int{it.Number}
	case !same && place == 0:
		for n := range it.Number {
			all = append(all, n)
		}
	}
	return all
}

// devices sweeps over what waits and runs on each GPU.
func (a *audit) devices() error {
	for g := range a.spec.Problem.GPUs {
		var runs []*KernelRun
		for i := range a.rec.Kernels {
			if a.rec.Kernels[i].GPU == g {
				runs = append(runs, &a.rec.Kernels[i])
			}
		}
		if err := a.device(g, runs); err != nil {
			return err
		}
	}
	return nil
}

func (a *audit) device(g int, runs []*KernelRun) error {
	name := a.spec.Problem.GPUs[g].Name
	var times []Time
	var work, busy Time
	for _, r := range runs {
		times = append(times, r.Ready, r.Start, r.End)
		own := Time(1e9*a.spec.Problem.Kernels[r.Kernel].Seconds[g] + 0.5)
		work += own
		if r.End-r.Start < own {
			return fmt.Errorf("%s: kernel %d of request %d took %d of %d ns", name, r.Kernel, r.Request, r.End-r.Start, own)
		}
	}
	slices.Sort(times)
	times = slices.Compact(times)
	byReady, byStart := slices.Clone(runs), slices.Clone(runs)
	slices.SortFunc(byReady, func(a, b *KernelRun) int { return cmp.Compare(a.Ready, b.Ready) })
	slices.SortFunc(byStart, func(a, b *KernelRun) int { return cmp.Compare(a.Start, b.Start) })
	var waiting, running []*KernelRun // at the time, before the next
	for i, now := range times {
		for len(byReady) > 0 && byReady[0].Ready == now {
			waiting, byReady = append(waiting, byReady[0]), byReady[1:]
		}
		for len(byStart) > 0 && byStart[0].Start == now {
			running, byStart = append(running, byStart[0]), byStart[1:]
		}
		waiting = slices.DeleteFunc(waiting, func(r *KernelRun) bool { return r.Start == now })
		running = slices.DeleteFunc(running, func(r *KernelRun) bool { return r.End <= now && r.End > r.Start || r.End == now })
		if i+1 == len(times) {
			break
		}
		if len(running) > 0 {
			busy += times[i+1] - now
		}
		switch {
		case len(running) > a.spec.Concurrent:
			return fmt.Errorf("%s runs %d kernels at %d; expected at most %d", name, len(running), now, a.spec.Concurrent)
		case len(running) < a.spec.Concurrent && len(waiting) > 0:
			return fmt.Errorf("%s leaves kernel %d of request %d waiting at %d, and has room", name, waiting[0].Kernel, waiting[0].Request, now)
		}
		for _, r := range running {
			for _, w := range waiting {
				if r.Start == now && w.Ready < now && a.first(w, r) { // what takes no time makes others ready in the same instant
					return fmt.Errorf("%s starts request %d at %d before request %d", name, r.Request, now, w.Request)
				}
			}
		}
	}
	if busy < work || busy > work+Time(len(runs)) {
		return fmt.Errorf("%s was busy for %d ns with %d ns of work", name, busy, work)
	}
	return nil
}

// first reports whether a waiting kernel should have run before another that started.
func (a *audit) first(w, r *KernelRun) bool {
	priority := func(k *KernelRun) bool {
		return a.spec.Policies[a.iterations[[2]int{k.Request, k.Iteration}].Policy].Priority
	}
	switch {
	case priority(w) != priority(r):
		return false // of two policies
	case priority(w):
		return w.Request < r.Request
	}
	return w.Ready < r.Ready
}

func (a *audit) receivers() error {
	runs := slices.Clone(a.rec.Transfers)
	slices.SortFunc(runs, func(a, b TransferRun) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End)) })
	free := make([]Time, len(a.spec.Problem.GPUs))
	for _, t := range runs {
		ends := []int{t.To}
		if a.spec.Problem.Shared {
			ends = append(ends, t.From)
		}
		for _, g := range ends {
			if t.Start < free[g] {
				return fmt.Errorf("%s: a transfer begins at %d; its link is busy until %d", a.spec.Problem.GPUs[g].Name, t.Start, free[g])
			}
			free[g] = t.End
		}
	}
	return nil
}

// turn is a change of what a request is to run under, on which the workers have agreed later.
type turn struct {
	at, agreed   Time
	policy, plan int // -1 is any plan
}

// turns returns the changes for a request: the switches, and the ends of the requests before it where plans go by order.
func (a *audit) turns(n int) []turn {
	stall, barrier := Time(0), false
	if m := a.spec.Monitor; m != nil {
		stall, barrier = m.Stall, m.Barrier
	}
	const same = -1
	all := []turn{{at: -1}}
	for _, c := range a.changes {
		t := turn{at: c.Decided, agreed: c.Resumed, policy: c.Policy}
		if barrier {
			t.at = c.Resumed
		}
		if c.Resumed > 0 { // otherwise it was decided when the last iterations were under way
			all = append(all, t)
		}
	}
	for _, r := range a.served[:n] {
		all = append(all, turn{at: r.Ended, agreed: r.Ended + stall, policy: same})
	}
	slices.SortStableFunc(all, func(a, b turn) int { return cmp.Compare(a.at, b.at) })
	var turns []turn
	policy, before := 0, n
	for i, t := range all {
		if t.policy == same {
			before--
		} else {
			policy = t.policy
		}
		t.policy, t.plan = policy, -1
		if p := &a.spec.Policies[policy]; p.ByOrder {
			t.plan = min(before, len(p.Plans)-1)
		}
		if last := len(turns) - 1; i == 0 || turns[last].policy != t.policy || turns[last].plan != t.plan {
			turns = append(turns, t)
		}
	}
	return turns
}

func (a *audit) switches() error {
	for i := range a.rec.Iterations {
		it := &a.rec.Iterations[i]
		for _, c := range a.changes {
			if a.spec.Monitor.Barrier && c.Resumed > 0 && (it.Start > c.Decided && it.Start < c.Resumed || it.Start < c.Resumed && it.End > c.Resumed-a.spec.Monitor.Stall) {
				return fmt.Errorf("request %d: iteration %d is under way from %d to %d, in the switch from %d to %d", it.Request, it.Number, it.Start, it.End, c.Decided, c.Resumed)
			}
		}
	}
	for n := range a.spec.Requests {
		turns := a.turns(n)
		var last *Iteration
		for number := 0; a.iterations[[2]int{n, number}] != nil; number++ {
			it := a.iterations[[2]int{n, number}]
			allowed := false
			for k, t := range turns {
				switch {
				case t.at > it.Start || k+1 < len(turns) && turns[k+1].at < it.Start:
					// One that changes in the instant of the start may have come before it or after it.
				case last == nil || it.Start >= t.agreed:
					allowed = allowed || it.Policy == t.policy && (t.plan < 0 || it.Plan == t.plan)
				default:
					allowed = allowed || it.Policy == last.Policy && it.Plan == last.Plan
				}
			}
			if !allowed {
				return fmt.Errorf("request %d: iteration %d runs under plan %d of policy %d, which it is not to", n, number, it.Plan, it.Policy)
			}
			last = it
		}
	}
	return nil
}
