package worker

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/muster-sched/muster/disagg/analyze"
	"github.com/muster-sched/muster/disagg/monitor"
	"github.com/muster-sched/muster/disagg/plan"
)

// Where is the place of a GPU of the plan: a device of this machine or, with an address, of one that runs muster disagg worker.
type Where struct {
	Address string
	Device  int
}

// Options say how to run requests.
type Options struct {
	GPUs     []Where // of the plan
	Requests int
	InFlight int           // requests at once
	Deadline time.Duration // for the driver to start, and for each iteration
	Modules  []string      // in PTX
	Split    int           // the plan's two GPUs are parts of one device, the first with so many multiprocessors; 0 for whole devices
	Slow     plan.Link     // the least that a transfer within a machine takes; 0 for as long as it takes
	Flat     bool          // all requests have the same priority
	Graphs   bool          // what a GPU does between transfers is a graph of the driver, launched at once
	// Arrivals is when each request comes, after the start of the run; nil: all are there from the beginning.
	Arrivals []time.Duration
	// Monitor lets one request run at a time, under the first placement, or all, those that came first under the first
	// placements and the others under the last. Requests change at the ends of iterations.
	Monitor *monitor.Config
	Me      string // where other sites reach Server
	Server  *Server
	// Content returns what a region contains at first, Input what a step that copies from the host brings to a request.
	Content func(region int) ([]byte, error)
	Input   func(request, step int) ([]byte, error)
	// Output takes what a step that copies to the host brought from a request; nil drops it.
	Output func(request, step int, data []byte) error
	// Keep takes a request's memory at its end, all that steps wrote, in the order of addresses; nil does not read it.
	Keep func(request int, memory []byte) error
}

// Request is one that ran. Times are since the run began.
type Request struct {
	Number      int
	Arrival     time.Duration
	Start, End  time.Duration
	Transfers   int
	Transferred int64 // bytes
}

// runner is a run.
type runner struct {
	o          *Options
	p          *Program
	placements [][]int
	sites      []int // of each GPU
	all        []worker
	gate       *gate
	meter      *meter
	start      *position
	moves      []*move // that the sites know, by their numbers
}

// worker is a site, here or elsewhere.
type worker interface {
	Connect(peers []string, dial Dial) error
	Write(region int, offset uint64, data []byte) error
	Define(code *Code) error
	Post(q Post) (Ended, error)
	Read(g, slot int, all []analyze.Range) ([]byte, error)
	Spent() (time.Duration, error)
	Close()
}

// Result is what a run did.
type Result struct {
	Requests []Request
	Switches int // of the policy, by the monitor
	// Driver is the CPU time of the driver's calls for the requests: what it costs to launch.
	Driver time.Duration
}

// Run runs requests. Without a monitor, the plan of request r is placement
// r modulo their number: the GPU of each step. It ends with the first error; nothing that it does waits for longer than the deadline.
func Run(ctx context.Context, p *Program, placements [][]int, o Options) (*Result, error) {
	choices := 0
	if o.Monitor != nil {
		if choices = len(placements); choices < 2 {
			return nil, fmt.Errorf("expected two placements to switch between, or more; found %d", choices)
		}
	}
	x := &runner{o: &o, p: p, placements: placements, gate: newGate(choices)}
	for _, gpu := range placements {
		p.Add(gpu)
	}
	addresses := x.locate()
	host, flags := x.compile()
	defer func() {
		for _, w := range x.all {
			w.Close()
		}
	}()
	if err := x.open(ctx, addresses, host, flags); err != nil {
		return nil, err
	}
	before, err := x.spent()
	if err != nil {
		return nil, err
	}
	all, err := x.run(ctx)
	if err != nil {
		return nil, err
	}
	after, err := x.spent()
	if err != nil {
		return nil, err
	}
	return &Result{all, x.gate.count(), after - before}, nil
}

// spent is the CPU time of the driver's calls at all sites.
func (x *runner) spent() (sum time.Duration, err error) {
	for _, w := range x.all {
		t, err := w.Spent()
		if err != nil {
			return 0, err
		}
		sum += t
	}
	return sum, nil
}

// locate makes a site of each machine. This one is the address "".
func (x *runner) locate() (addresses []string) {
	for _, w := range x.o.GPUs {
		at := slices.Index(addresses, w.Address)
		if at < 0 {
			at = len(addresses)
			addresses = append(addresses, w.Address)
		}
		x.sites = append(x.sites, at)
	}
	return addresses
}

// open opens the sites, connects them, and writes what memory contains at first.
func (x *runner) open(ctx context.Context, addresses []string, host int64, flags int) error {
	s := Setup{Session: rand.Text(), Sites: x.sites, Regions: x.p.Regions, Need: x.p.Need, Calls: x.p.Calls, Initial: x.p.initial(), Modules: x.o.Modules, Slots: x.o.InFlight, Deadline: x.o.Deadline, Split: x.o.Split, Slow: x.o.Slow, Graphs: x.o.Graphs, Host: host, Flags: flags}
	for _, w := range x.o.GPUs {
		s.Devices = append(s.Devices, w.Device)
	}
	for i := range x.p.Steps {
		s.Steps = append(s.Steps, x.p.Steps[i].Again)
	}
	limited, stop := context.WithTimeout(ctx, x.o.Deadline)
	defer stop()
	for me, address := range addresses {
		s.Me = me
		if address == "" {
			w, err := x.o.Server.open(limited, s)
			if err != nil {
				return err
			}
			x.all = append(x.all, w)
			continue
		}
		r, err := dialRemote(ctx, address, x.o.Server.Dial, x.o.Deadline)
		if err != nil {
			return err
		}
		x.all = append(x.all, r)
		if err := r.Open(s); err != nil {
			return err
		}
	}
	peers := slices.Clone(addresses)
	if at := slices.Index(peers, ""); at >= 0 {
		peers[at] = x.o.Me
	}
	for _, w := range x.all {
		if err := w.Connect(peers, x.o.Server.Dial); err != nil {
			return err
		}
		for _, m := range x.moves {
			if err := w.Define(m.code); err != nil {
				return err
			}
		}
	}
	return x.fill(ctx)
}

// fill writes what memory contains at first.
func (x *runner) fill(ctx context.Context) error {
	initial := x.p.initial()
	for i, r := range x.p.Regions {
		needed := slices.ContainsFunc(x.p.Need, func(need []bool) bool { return need[i] })
		if !needed || !r.Shared && !initial[i] {
			continue
		}
		data, err := x.o.Content(i)
		if err != nil {
			return err
		}
		for _, w := range x.all {
			for at := 0; at < len(data); at += chunk {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := w.Write(i, uint64(at), data[at:min(len(data), at+chunk)]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// run runs the requests: each starts when a slot is free, in order.
func (x *runner) run(ctx context.Context) ([]Request, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	free := make(chan int, x.o.InFlight)
	counts := make([]uint32, x.o.InFlight)
	for slot := range x.o.InFlight {
		free <- slot
	}
	all := make([]Request, x.o.Requests)
	began := time.Now()
	if x.o.Monitor != nil {
		x.meter = newMeter(func() time.Duration { return time.Since(began) })
		go watch(ctx, *x.o.Monitor, x.meter, x.gate)
		go x.arrive(ctx, began)
	}
	var running sync.WaitGroup
	for r := range all {
		all[r].Number = r
		if x.o.Arrivals != nil {
			all[r].Arrival = x.o.Arrivals[r]
		}
		select {
		case <-time.After(all[r].Arrival - time.Since(began)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		var slot int
		select {
		case slot = <-free:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		x.gate.arrive(r)
		running.Go(func() {
			all[r].Start = time.Since(began)
			err := x.request(ctx, &all[r], slot, &counts[slot])
			all[r].End = time.Since(began)
			x.gate.end(r)
			x.meter.add(-1)
			if err != nil {
				stop(fmt.Errorf("request %d: %w", r, err))
				return
			}
			free <- slot
		})
	}
	ended := make(chan struct{})
	go func() {
		running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return all, context.Cause(ctx)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// arrive tells the meter when requests come.
func (x *runner) arrive(ctx context.Context, began time.Time) {
	if x.o.Arrivals == nil {
		x.meter.add(x.o.Requests)
		return
	}
	for _, at := range x.o.Arrivals {
		select {
		case <-time.After(at - time.Since(began)):
			x.meter.add(1)
		case <-ctx.Done():
			return
		}
	}
}

// request runs the segments of a request, one after the other. The placement and the priority are those of the moment when
// a segment starts.
func (x *runner) request(ctx context.Context, r *Request, slot int, count *uint32) error {
	at := x.start
	for at.segment < len(x.p.Segments) {
		placement, rank, err := x.gate.enter(ctx, r.Number)
		if err != nil {
			return err
		}
		if placement < 0 {
			placement = r.Number % len(x.placements)
		}
		if x.o.Flat {
			rank = 0
		}
		*count++
		m := x.move(at, placement)
		q := Post{Code: m.number, Slot: slot, Level: rank, Count: *count}
		if m.number < 0 {
			q.Once = m.code
		}
		end := x.meter.start(at.segment)
		err = x.segment(ctx, r, at.segment, m.code, q)
		end()
		if err != nil {
			return err
		}
		at = m.to
	}
	if x.o.Keep == nil {
		return nil
	}
	memory, err := x.memory(at.state, slot)
	if err != nil {
		return err
	}
	return x.o.Keep(r.Number, memory)
}

// segment runs a segment at all sites that have a part in it.
func (x *runner) segment(ctx context.Context, r *Request, segment int, code *Code, q Post) error {
	at := map[int]bool{}
	q.Inputs = map[int][]byte{}
	for i := range code.Ops {
		o := &code.Ops[i]
		at[o.site(x.sites)] = true
		if o.Kind == Execute && x.p.Steps[o.Step].FromHost() {
			data, err := x.o.Input(r.Number, o.Step)
			if err != nil {
				return err
			}
			q.Inputs[o.Step] = data
		}
		if o.Kind == Copy || o.Kind == Send {
			r.Transfers++
			r.Transferred += o.size()
		}
	}
	type answer struct {
		Ended
		err error
	}
	answers := make(chan answer, len(at))
	for s := range at {
		go func() {
			e, err := x.all[s].Post(q)
			answers <- answer{e, err}
		}()
	}
	limit := time.NewTimer(x.o.Deadline)
	defer limit.Stop()
	for range at {
		select {
		case a := <-answers:
			if a.err != nil {
				return a.err
			}
			for step, data := range a.Outputs {
				if x.o.Output != nil {
					if err := x.o.Output(r.Number, step, data); err != nil {
						return err
					}
				}
			}
		case <-limit.C:
			s := x.p.Segments[segment]
			return fmt.Errorf("iteration %d%s did not end within %s", s.Iteration, of(s.Graph), x.o.Deadline)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func of(graph string) string {
	if graph == "" {
		return ""
	}
	return " of " + graph
}

// memory reads what the steps of a request wrote, in the order of addresses, each byte where it was written last.
func (x *runner) memory(state []version, slot int) ([]byte, error) {
	var memory []byte
	for a := 0; a < len(state); {
		b := a
		var atoms []int32
		for ; b < len(state) && state[b].home == state[a].home && (state[b].writer >= 0) == (state[a].writer >= 0); b++ {
			atoms = append(atoms, int32(b))
		}
		if state[a].writer >= 0 {
			g := int(state[a].home)
			data, err := x.all[x.sites[g]].Read(g, slot, x.p.ranges(atoms))
			if err != nil {
				return nil, err
			}
			memory = append(memory, data...)
		}
		a = b
	}
	return memory, nil
}
