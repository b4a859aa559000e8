package worker

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/muster-sched/muster/disagg/analyze"
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
	Me       string        // where other sites reach Server
	Server   *Server
	// Content returns what a region contains at first, Input what a step that copies from the host brings to a request.
	Content func(region int) []byte
	Input   func(request, step int) []byte
	// Output takes what a step that copies to the host brought from a request; nil drops it.
	Output func(request, step int, data []byte) error
	// Keep takes a request's memory at its end, all that steps wrote, in the order of addresses; nil does not read it.
	Keep func(request int, memory []byte) error
}

// Request is one that ran. Times are since the run began.
type Request struct {
	Number      int
	Placement   int
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
	code       [][]*Code // by placement and segment
	numbers    [][]int   // of the code, at the sites

	mu     sync.Mutex
	active []int // requests, the first to arrive first
}

// worker is a site, here or elsewhere.
type worker interface {
	Connect(peers []string, dial Dial) error
	Write(region int, offset uint64, data []byte) error
	Define(code *Code) error
	Post(q Post) (Ended, error)
	Read(g, slot int, all []analyze.Range) ([]byte, error)
	Close()
}

// Run runs requests. The plan of request r is placement r modulo their number: the GPU of each step. It ends with the first
// error; no call of it waits for longer than the deadline.
func Run(ctx context.Context, p *Program, placements [][]int, o Options) ([]Request, error) {
	x := &runner{o: &o, p: p, placements: placements}
	for _, gpu := range placements {
		p.Add(gpu)
	}
	addresses := x.locate()
	x.compile()
	defer func() {
		for _, w := range x.all {
			w.Close()
		}
	}()
	if err := x.open(ctx, addresses); err != nil {
		return nil, err
	}
	return x.run(ctx)
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

// compile makes the code of all segments, for each placement.
func (x *runner) compile() {
	n := 0
	for _, gpu := range x.placements {
		state := x.p.first()
		var list []*Code
		var numbers []int
		for segment := range x.p.Segments {
			c := x.p.Compile(segment, state, gpu, x.sites)
			list, numbers, state = append(list, c), append(numbers, n), c.after
			n++
		}
		x.code, x.numbers = append(x.code, list), append(x.numbers, numbers)
	}
}

// open opens the sites, connects them, and writes what memory contains at first.
func (x *runner) open(ctx context.Context, addresses []string) error {
	s := Setup{Session: rand.Text(), Sites: x.sites, Regions: x.p.Regions, Need: x.p.Need, Initial: x.p.initial(), Modules: x.o.Modules, Slots: x.o.InFlight, Deadline: x.o.Deadline, Split: x.o.Split, Slow: x.o.Slow}
	for _, w := range x.o.GPUs {
		s.Devices = append(s.Devices, w.Device)
	}
	for i := range x.p.Steps {
		s.Steps = append(s.Steps, x.p.Steps[i].Again)
	}
	for _, list := range x.code {
		for _, c := range list {
			s.Host, s.Flags = max(s.Host, c.Host), max(s.Flags, c.Flags)
		}
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
		r, err := dialRemote(address, x.o.Server.Dial, x.o.Deadline)
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
		for _, list := range x.code {
			for _, c := range list {
				if err := w.Define(c); err != nil {
					return err
				}
			}
		}
	}
	return x.fill(ctx)
}

// fill writes what memory contains at first.
func (x *runner) fill(ctx context.Context) error {
	initial := x.p.initial()
	for i, r := range x.p.Regions {
		if !r.Shared && !initial[i] {
			continue
		}
		data := x.o.Content(i)
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
	var running sync.WaitGroup
	for r := range all {
		var slot int
		select {
		case slot = <-free:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		x.mu.Lock()
		x.active = append(x.active, r)
		x.mu.Unlock()
		running.Go(func() {
			all[r] = Request{Number: r, Placement: r % len(x.placements), Start: time.Since(began)}
			err := x.request(ctx, &all[r], slot, &counts[slot])
			all[r].End = time.Since(began)
			x.mu.Lock()
			x.active = slices.DeleteFunc(x.active, func(k int) bool { return k == r })
			x.mu.Unlock()
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

// level is the priority of a request: how many have arrived before it and have not ended.
func (x *runner) level(request int) int {
	if x.o.Flat {
		return 0
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Index(x.active, request)
}

// request runs the segments of a request, one after the other. The priority is that of the moment when a segment starts.
func (x *runner) request(ctx context.Context, r *Request, slot int, count *uint32) error {
	for segment, code := range x.code[r.Placement] {
		*count++
		q := Post{Code: x.numbers[r.Placement][segment], Slot: slot, Level: x.level(r.Number), Count: *count, Inputs: map[int][]byte{}}
		at := map[int]bool{}
		for i := range code.Ops {
			o := &code.Ops[i]
			at[o.site(x.sites)] = true
			if o.Kind == Execute && x.p.Steps[o.Step].FromHost() {
				q.Inputs[o.Step] = x.o.Input(r.Number, o.Step)
			}
			if o.Kind == Copy || o.Kind == Send {
				r.Transfers++
				r.Transferred += o.size()
			}
		}
		if err := x.segment(ctx, r, segment, q, at); err != nil {
			return err
		}
	}
	if x.o.Keep == nil {
		return nil
	}
	memory, err := x.memory(r.Placement, slot)
	if err != nil {
		return err
	}
	return x.o.Keep(r.Number, memory)
}

// segment runs a segment at all sites that have a part in it.
func (x *runner) segment(ctx context.Context, r *Request, segment int, q Post, at map[int]bool) error {
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
func (x *runner) memory(placement, slot int) ([]byte, error) {
	list := x.code[placement]
	state := list[len(list)-1].after
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
