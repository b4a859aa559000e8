package pipeline

import (
	"container/heap"
	"fmt"
	"slices"

	"github.com/muster-sched/muster/disagg/monitor"
)

// place is a policy and one of its plans, or -1 for any.
type place struct{ policy, plan int }

// request is a request in progress.
type request struct {
	number    int
	runs      []int
	policy    int
	plan      int   // of the policy
	wants     place // what it is to run under
	agreed    Time  // from when on
	route     *route
	phase     int // of the current or next iteration
	iteration int // of the phase
	serial    int // of all
	left      int // kernels of the iteration that have not ended
	began     Time
	next      []int // of each GPU, the place of its next kernel in the route
	queued    []bool
	waits     []int
	due       []*transfer // for later iterations, not counted yet
}

type eventKind int

// In the order in which events of one instant are handled: an iteration that starts when a policy comes into force runs under
// it, and a window that ends then is of the switch.
const (
	windowEnds eventKind = iota
	resumes
	kernelEnds
	transferEnds
	arrives
)

type event struct {
	at     Time
	kind   eventKind
	on     int // a GPU
	number int // a version, or in which order it was scheduled
}

type events []event

func (h events) Len() int { return len(h) }
func (h events) Less(i, j int) bool {
	a, b := h[i], h[j]
	switch {
	case a.at != b.at:
		return a.at < b.at
	case a.kind != b.kind:
		return a.kind < b.kind
	case a.on != b.on:
		return a.on < b.on
	}
	return a.number < b.number
}
func (h events) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *events) Push(x any)   { *h = append(*h, x.(event)) }
func (h *events) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

// simulation is the state of a run.
type simulation struct {
	spec   *Spec
	prog   *program
	routes [][]*route // [policy][plan]
	result *Result
	events events
	gpus   []gpu
	ports  []port
	now    Time
	ready  int // how many things became ready

	arrived  int        // requests
	waiting  int        // the first that has not started
	active   []*request // in progress, in order of arrival
	launched int        // iterations under way
	held     []*request // whose next iteration waits at the barrier of a switch
	ended    int
	assigned [][]Time // [policy][plan], the work left of its requests

	policy    int
	target    int // the policy that a switch leads to, or -1
	watch     *monitor.Monitor
	present   Time // of requests in this window, summed
	executed  Time
	presentAt Time

	progress float64 // of requests, in requests
	steady   [2]struct {
		at       Time
		progress float64
		busy     []Time
	}
}

// Run simulates a spec. Its errors are about the spec.
func Run(spec *Spec) (*Result, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	prog, err := compile(spec.Problem)
	if err != nil {
		return nil, err
	}
	n := len(spec.Problem.GPUs)
	s := &simulation{spec: spec, prog: prog, gpus: make([]gpu, n), ports: make([]port, n), target: -1}
	s.result = &Result{Requests: make([]Served, len(spec.Requests)), GPUs: make([]Usage, n)}
	if spec.Record {
		s.result.Record = &Record{}
	}
	for _, p := range spec.Policies {
		var routes []*route
		for _, at := range p.Plans {
			routes = append(routes, prog.route(at))
		}
		s.routes = append(s.routes, routes)
		s.assigned = append(s.assigned, make([]Time, len(routes)))
	}
	s.schedule(spec.Requests[0].Arrived, arrives, 0)
	if spec.Monitor != nil {
		s.watch = monitor.New(*spec.Monitor)
		s.schedule(spec.Monitor.Window, windowEnds, 0)
	}
	for s.ended < len(spec.Requests) {
		s.instant()
	}
	s.finish()
	return s.result, nil
}

func (s *simulation) schedule(at Time, kind eventKind, on int) {
	s.ready++
	heap.Push(&s.events, event{at, kind, on, s.ready})
}

// instant handles all events of the next instant, and then starts what can start: a choice sees
// all that is ready at its time.
func (s *simulation) instant() {
	s.now = s.events[0].at
	for len(s.events) > 0 && s.events[0].at == s.now {
		s.handle(heap.Pop(&s.events).(event))
	}
	s.admit()
	for g := range s.gpus {
		if s.gpus[g].fill(s.now, s.spec.Concurrent) {
			s.scheduleEnd(g)
		}
	}
	s.transmit()
}

func (s *simulation) scheduleEnd(g int) {
	d := &s.gpus[g]
	if len(d.resident) > 0 {
		heap.Push(&s.events, event{d.ends(), kernelEnds, g, d.version})
	}
}

func (s *simulation) handle(e event) {
	switch e.kind {
	case kernelEnds:
		if s.gpus[e.on].version != e.number {
			return
		}
		for _, l := range s.gpus[e.on].finish(s.now) {
			s.kernelEnded(l, e.on)
		}
		s.scheduleEnd(e.on)
	case transferEnds:
		s.landed(e.on)
	case arrives:
		s.presence()
		s.result.Requests[s.arrived].Arrived = s.now
		s.arrived++
		if s.arrived < len(s.spec.Requests) {
			s.schedule(s.spec.Requests[s.arrived].Arrived, arrives, 0)
		}
	case windowEnds:
		s.window()
	case resumes:
		s.resume()
	}
}

// admit starts the requests that wait, while the policy has room.
func (s *simulation) admit() {
	p := &s.spec.Policies[s.chosen()]
	for !s.atBarrier() && s.waiting < s.arrived && len(s.active) < p.InFlight {
		n, k := len(s.gpus), len(s.spec.Problem.Kernels)
		r := &request{number: s.waiting, runs: s.spec.Requests[s.waiting].Runs, next: make([]int, n), queued: make([]bool, n), waits: make([]int, k)}
		s.waiting++
		s.active = append(s.active, r)
		r.wants = s.wanted(r)
		served := &s.result.Requests[r.number]
		served.Started, served.Runs = s.now, r.runs
		s.choose(r)
		s.iterate(r)
	}
}

// choose gives a request the policy and the plan that it wants; if it is any, that whose requests have the least work left.
func (s *simulation) choose(r *request) {
	r.policy, r.plan = r.wants.policy, max(0, r.wants.plan)
	assigned := s.assigned[r.policy]
	for i := range assigned {
		if r.wants.plan < 0 && assigned[i] < assigned[r.plan] {
			r.plan = i
		}
	}
	r.route = s.routes[r.policy][r.plan]
	for phase, n := range r.runs {
		assigned[r.plan] += Time(n) * r.route.seconds[phase]
	}
	for phase := range r.phase { // what is behind it is no work left
		assigned[r.plan] -= Time(r.runs[phase]) * r.route.seconds[phase]
	}
	if r.phase < len(r.runs) {
		assigned[r.plan] -= Time(r.iteration) * r.route.seconds[r.phase]
	}
}

// iterate starts the next iteration of a request, or ends the request.
func (s *simulation) iterate(r *request) {
	for r.phase < len(r.runs) && r.iteration == r.runs[r.phase] {
		r.phase, r.iteration = r.phase+1, 0
	}
	if r.phase == len(r.runs) {
		s.end(r)
		return
	}
	if s.atBarrier() {
		s.held = append(s.held, r)
		return
	}
	if w := r.wants; (w.policy != r.policy || w.plan >= 0 && w.plan != r.plan) && s.now >= r.agreed {
		s.assigned[r.policy][r.plan] -= s.remaining(r)
		s.choose(r)
	}
	s.launched++
	r.began = s.now
	kernels := s.prog.kernels[r.phase]
	r.left = len(kernels)
	for _, k := range kernels {
		r.waits[k] = r.route.waits[k]
	}
	later := r.due[:0]
	for _, t := range r.due {
		switch to := s.prog.p.Edges[t.edge].To; {
		case t.landed:
		case s.prog.phaseOf[to] != r.phase:
			later = append(later, t)
		default:
			t.counted = true
			r.waits[to]++
		}
	}
	r.due = later
	for g := range s.gpus {
		r.next[g] = 0
		s.offer(r, g)
	}
}

// offer queues a request's next kernel on a GPU, if its inputs are there.
func (s *simulation) offer(r *request, g int) {
	on := r.route.on[r.phase][g]
	if r.queued[g] || r.next[g] == len(on) || r.waits[on[r.next[g]]] > 0 {
		return
	}
	k := on[r.next[g]]
	r.queued[g] = true
	heap.Push(&s.gpus[g].queue, &launch{r: r, kernel: k, at: s.rank(r, 0), left: int64(s.prog.work[k][g]) * parts, ready: s.now})
}

func (s *simulation) rank(r *request, class int) rank {
	s.ready++
	at := rank{class: class, ready: s.ready}
	if s.spec.Policies[r.policy].Priority {
		at.request = r.number
	}
	return at
}

func (s *simulation) kernelEnded(l *launch, g int) {
	r := l.r
	work := s.prog.work[l.kernel][g]
	s.account(r, work, l.counted)
	if total := s.total(r); total > 0 {
		s.progress += float64(work) / float64(total)
	}
	if rec := s.result.Record; rec != nil {
		rec.Kernels = append(rec.Kernels, KernelRun{g, r.number, r.serial, l.kernel, l.ready, l.start, s.now})
	}
	for _, edge := range r.route.sends[l.kernel] {
		if s.prog.sent(edge, r.iteration, r.runs) {
			s.send(r, edge, g)
		}
	}
	r.queued[g] = false
	r.next[g]++
	r.left--
	if r.left > 0 {
		s.offer(r, g)
		return
	}
	if rec := s.result.Record; rec != nil {
		rec.Iterations = append(rec.Iterations, Iteration{r.number, r.serial, r.phase, r.policy, r.plan, r.began, s.now})
	}
	s.launched--
	s.assigned[r.policy][r.plan] -= r.route.seconds[r.phase]
	r.iteration++
	r.serial++
	s.iterate(r)
	s.drained()
}

// account counts time that a request executed; some was counted in earlier windows.
func (s *simulation) account(r *request, t, counted Time) {
	s.result.Requests[r.number].Executed += t
	s.executed += t - counted
}

// total is the work of a whole request on its plan.
func (s *simulation) total(r *request) (sum Time) {
	for phase, n := range r.runs {
		sum += Time(n) * r.route.seconds[phase]
	}
	return sum
}

func (s *simulation) send(r *request, edge, from int) {
	to := r.route.at[s.prog.p.Edges[edge].To]
	class := 0
	if s.spec.Problem.Edges[edge].Next {
		class = 1
	}
	t := &transfer{r: r, edge: edge, from: from, to: to, iteration: r.serial, at: s.rank(r, class), takes: s.prog.wire[edge][from][to], ready: s.now}
	if s.prog.edges[edge] == within {
		t.counted = true
	} else {
		r.due = append(r.due, t)
	}
	heap.Push(&s.ports[to].queue, t)
}

// transmit starts transfers. With shared links both ends have to be free: of those whose first
// transfer can start, the port with the lowest rank starts.
func (s *simulation) transmit() {
	for {
		best := -1
		for g := range s.ports {
			p := &s.ports[g]
			if len(p.queue) == 0 || p.carrying != nil {
				continue
			}
			if from := &s.ports[p.queue[0].from]; s.spec.Problem.Shared && (p.sending || from.sending || from.carrying != nil) {
				continue
			}
			if best < 0 || p.queue[0].at.less(s.ports[best].queue[0].at) {
				best = g
			}
		}
		if best < 0 {
			return
		}
		p := &s.ports[best]
		p.carrying = heap.Pop(&p.queue).(*transfer)
		p.carrying.start = s.now
		if s.spec.Problem.Shared {
			s.ports[p.carrying.from].sending = true
		}
		s.schedule(s.now+p.carrying.takes, transferEnds, best)
	}
}

func (s *simulation) landed(g int) {
	p := &s.ports[g]
	t := p.carrying
	p.carrying = nil
	p.busy += t.takes
	if s.spec.Problem.Shared {
		s.ports[t.from].sending = false
	}
	if rec := s.result.Record; rec != nil {
		rec.Transfers = append(rec.Transfers, TransferRun{t.edge, t.from, t.to, t.r.number, t.iteration, t.ready, t.start, s.now})
	}
	t.landed = true
	if !s.spec.Problem.Edges[t.edge].Next {
		s.account(t.r, t.takes, t.counts)
	}
	if t.counted {
		to := s.prog.p.Edges[t.edge].To
		t.r.waits[to]--
		s.offer(t.r, t.r.route.at[to])
	}
}

func (s *simulation) end(r *request) {
	s.presence()
	s.active = slices.DeleteFunc(s.active, func(x *request) bool { return x == r })
	s.ended++
	agreed := s.now
	if s.spec.Monitor != nil {
		agreed += s.spec.Monitor.Stall
	}
	s.review(agreed)
	served := &s.result.Requests[r.number]
	served.Ended = s.now
	s.result.End = max(s.result.End, s.now)
	s.mark()
	if s.spec.Progress != nil && s.ended%16 == 0 {
		s.spec.Progress(s.ended)
	}
}

// mark keeps where the steady time begins and ends.
func (s *simulation) mark() {
	most := s.spec.Policies[0].InFlight
	for i, at := range [2]int{most, len(s.spec.Requests) - most} {
		if s.ended == at {
			m := &s.steady[i]
			m.at, m.progress = s.now, s.progress
			for g := range s.gpus {
				s.gpus[g].advance(s.now)
				m.busy = append(m.busy, s.gpus[g].busy)
			}
		}
	}
}

func (s *simulation) finish() {
	for policy, assigned := range s.assigned {
		if slices.ContainsFunc(assigned, func(left Time) bool { return left != 0 }) {
			panic(fmt.Sprintf("pipeline: all requests have ended, and plans of policy %d have the work %v left", policy, assigned))
		}
	}
	for g := range s.gpus {
		s.result.GPUs[g] = Usage{Busy: s.gpus[g].busy, Receiving: s.ports[g].busy}
	}
	alike := !slices.ContainsFunc(s.spec.Requests, func(r Request) bool { return !slices.Equal(r.Runs, s.spec.Requests[0].Runs) })
	first, last := &s.steady[0], &s.steady[1]
	if !alike || len(s.spec.Requests) < 3*s.spec.Policies[0].InFlight || last.at <= first.at {
		return
	}
	span := last.at - first.at
	s.result.Steady = (last.progress - first.progress) / (float64(span) / 1e9)
	for g := range s.gpus {
		s.result.Idle = append(s.result.Idle, 1-float64(last.busy[g]-first.busy[g])/float64(span))
	}
}
