package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/muster-sched/muster/disagg/analyze"
	"github.com/muster-sched/muster/disagg/plan"
	"github.com/muster-sched/muster/gpu/driver"
)

// Setup is what a site has to know before it runs requests.
type Setup struct {
	Session  string // which run it is
	Me       int    // which site this is
	Sites    []int  // of each GPU
	Devices  []int  // of each GPU, at its site
	Steps    []analyze.Again
	Regions  []Region
	Need     [][]bool // by GPU and region: whether it is needed there
	Calls    []bool   // by GPU: whether steps call cuBLAS there
	Initial  []bool   // by region: whether it contains something at first, and changes
	Modules  []string // in PTX
	Slots    int      // how many requests run at once
	Host     int64    // bytes of the host's memory for each
	Flags    int      // for each
	Deadline time.Duration
	Split    int       // the two GPUs are parts of a device, the first with so many multiprocessors; 0 is whole devices
	Slow     plan.Link // the least that a transfer within a site takes; 0 is as long as it takes
	Graphs   bool      // steps of a GPU between transfers are one launch
}

// check reports what of a setup cannot be.
func (s *Setup) check() error {
	if s.Me < 0 || s.Me >= MostGPUs || len(s.Sites) < 1 || len(s.Sites) > MostGPUs || len(s.Devices) != len(s.Sites) || len(s.Need) != len(s.Sites) || len(s.Calls) != len(s.Sites) || len(s.Initial) != len(s.Regions) ||
		s.Slots < 1 || s.Slots > MostInFlight || s.Split != 0 && (s.Split < 0 || len(s.Sites) != 2 || s.Sites[0] != s.Sites[1]) || s.Host < 0 || s.Host > 1<<40 || s.Flags < 0 || s.Flags > 1<<20 || s.Deadline <= 0 {
		return fmt.Errorf("expected the setup of a run; found that of %d GPUs and %d requests", len(s.Sites), s.Slots)
	}
	for g := range s.Need {
		if len(s.Need[g]) != len(s.Regions) || s.Sites[g] < 0 || s.Sites[g] >= MostGPUs {
			return fmt.Errorf("expected the setup of a run; found a GPU %d that does not fit it", g)
		}
	}
	for i := range s.Steps {
		k := &s.Steps[i]
		good := k.Kernel == "" || k.Module >= 0 && k.Module < len(s.Modules)
		if k.Routine != "" { // no other symbol of the library, and what is an address is one of a buffer
			all := analyze.Routine(k.Routine)
			good = good && k.Kernel == "" && len(all) > 0 && len(k.Args) == 8*len(all)
			for i, a := range all {
				good = good && (a == analyze.Address) == slices.Contains(k.Pointers, 8*i)
			}
		}
		for _, at := range k.Pointers {
			good = good && at >= 0 && at <= len(k.Args)-8
		}
		if !good {
			return fmt.Errorf("expected the setup of a run; found step %d: %+v", i, *k)
		}
	}
	return nil
}

// MostInFlight is how many requests may run at once.
const MostInFlight = 1024

// chunk is how much memory is read or written at once.
const chunk = 8 << 20

// workspace is what calls of cuBLAS may use beside their matrices, on each GPU and for each request that runs at once: as much as
// NVIDIA recommends for Hopper and Blackwell.
const workspace = 32 << 20

// site runs the GPUs of one machine.
type site struct {
	Setup
	process *driver.Process
	gpus    []driver.GPU // by GPU of the plan; Number is -1 for those of other sites
	kernels []map[string]int
	calls   []map[string]int // by GPU and symbol: routines of cuBLAS
	spaces  [][]uint64       // by GPU and slot: their workspaces
	bases   [][][]uint64     // by GPU, slot and region: addresses, 0 where there is none. The last slot has what memory contains at first
	links   map[stream]link
	scratch sync.Mutex // the first chunk of the host's memory

	ctx  context.Context         // until the site cannot go on; the cause is why
	fail context.CancelCauseFunc // it waits for nobody: who has mu may wait for a driver that hangs

	mu      sync.Mutex // guards links and what follows, and keeps the commands of a segment together
	codes   []*Code
	cut     []map[int][]int // of each code, its graphs
	streams map[placed]int
	events  map[recorded]int
	graphs  map[captured]int
	same    map[string]int // graphs by their commands
}

// placed is a stream of a slot; level is its priority, 0 is the most urgent one.
type placed struct {
	stream
	slot, level int
}

type recorded struct{ slot, op, gpu int }

// openSite starts the driver's process, loads the modules and allocates the memory; the context limits that.
func openSite(ctx context.Context, o driver.Options, s Setup) (x *site, err error) {
	o.Host = chunk + s.Slots*int(s.Host+int64(s.Flags)*hostAlign)
	x = &site{Setup: s, links: map[stream]link{}, streams: map[placed]int{}, events: map[recorded]int{}, graphs: map[captured]int{}, same: map[string]int{}}
	x.ctx, x.fail = context.WithCancelCause(context.Background())
	if x.process, err = driver.Start(ctx, o); err != nil {
		return nil, err
	}
	closing := context.AfterFunc(ctx, x.process.Close)
	err = x.prepare()
	if !closing() {
		err = fmt.Errorf("waiting for the CUDA driver to load modules and allocate memory: %w", context.Cause(ctx))
	}
	if err != nil {
		x.Close()
		return nil, err
	}
	go func() {
		<-x.process.Ended()
		x.fail(x.process.Err())
	}()
	return x, nil
}

func (x *site) prepare() error {
	p := x.process
	var parts [2]driver.GPU
	if x.Split > 0 {
		var err error
		if parts, _, err = p.Split(x.Devices[0], x.Split); err != nil {
			return fmt.Errorf("GPU %d: %w", x.Devices[0], err)
		}
	}
	for g, at := range x.Sites {
		x.gpus, x.kernels, x.bases = append(x.gpus, driver.GPU{Number: -1}), append(x.kernels, map[string]int{}), append(x.bases, nil)
		x.calls, x.spaces = append(x.calls, map[string]int{}), append(x.spaces, make([]uint64, x.Slots))
		if at != x.Me || !slices.Contains(x.Need[g], true) {
			continue
		}
		if x.Split > 0 {
			x.gpus[g] = parts[g]
			continue
		}
		var err error
		if x.gpus[g], err = p.Use(x.Devices[g]); err != nil {
			return fmt.Errorf("GPU %d: %w", x.Devices[g], err)
		}
	}
	if err := p.ShareHost(); err != nil {
		return err
	}
	for g := range x.gpus {
		if x.gpus[g].Number < 0 {
			continue
		}
		if err := x.load(g); err != nil {
			return err
		}
		if err := x.allocate(g); err != nil {
			return err
		}
	}
	return nil
}

// load loads the modules of which a kernel runs, and the routines that are called.
func (x *site) load(g int) error {
	modules := map[int]int{}
	for i := range x.Steps {
		s := &x.Steps[i]
		if _, ok := x.calls[g][s.Routine]; !ok && s.Routine != "" && x.Calls[g] {
			f, err := x.process.Routine(x.gpus[g].Number, s.Routine)
			if err != nil {
				return err
			}
			x.calls[g][s.Routine] = f
		}
		if _, ok := x.kernels[g][s.Kernel]; ok || s.Kernel == "" {
			continue
		}
		m, ok := modules[s.Module]
		if !ok {
			var err error
			if m, err = x.process.Load(x.gpus[g].Number, x.Modules[s.Module]); err != nil {
				return err
			}
			modules[s.Module] = m
		}
		f, err := x.process.Function(m, s.Kernel)
		if err != nil {
			return fmt.Errorf("kernel %s: %w", s.Kernel, err)
		}
		x.kernels[g][s.Kernel] = f
	}
	return nil
}

// allocate allocates the regions that steps may access on a GPU: shared ones once, the others for each slot and, if they
// contain something at first, once more.
func (x *site) allocate(g int) error {
	x.bases[g] = make([][]uint64, x.Slots+1)
	for slot := range x.bases[g] {
		x.bases[g][slot] = make([]uint64, len(x.Regions))
		for i, r := range x.Regions {
			switch {
			case !x.Need[g][i] || slot == x.Slots && !r.Shared && !x.Initial[i]:
			case r.Shared && slot > 0:
				x.bases[g][slot][i] = x.bases[g][0][i]
			default:
				at, err := x.process.Alloc(x.gpus[g].Number, r.size())
				if err != nil {
					return fmt.Errorf("%d bytes for request %d of %d: %w", r.size(), slot+1, x.Slots, err)
				}
				x.bases[g][slot][i] = at
			}
		}
	}
	for slot := 0; x.Calls[g] && slot < x.Slots; slot++ {
		var err error
		if x.spaces[g][slot], err = x.process.Alloc(x.gpus[g].Number, workspace); err != nil {
			return fmt.Errorf("%d bytes in which cuBLAS works, for request %d of %d: %w", workspace, slot+1, x.Slots, err)
		}
	}
	return nil
}

// address returns where a trace's address is on a GPU, for a slot.
func (x *site) address(g, slot int, at uint64) uint64 {
	i := find(x.Regions, at)
	if i < 0 || x.bases[g] == nil || x.bases[g][slot][i] == 0 {
		return 0
	}
	return x.bases[g][slot][i] + at - x.Regions[i].From
}

// Write writes what a region contains at first, on all GPUs that need it.
func (x *site) Write(region int, offset uint64, data []byte) error {
	x.scratch.Lock()
	defer x.scratch.Unlock()
	if region < 0 || region >= len(x.Regions) || offset > x.Regions[region].size() || uint64(len(data)) > x.Regions[region].size()-offset {
		return fmt.Errorf("expected bytes of a region; found %d at %d of region %d", len(data), offset, region)
	}
	for g := range x.gpus {
		if x.gpus[g].Number < 0 || x.bases[g][x.Slots][region] == 0 {
			continue
		}
		x.mu.Lock()
		s := x.streamOf(placed{stream{g, g}, 0, 0})
		x.mu.Unlock()
		to := x.bases[g][x.Slots][region] + offset
		for at := 0; at < len(data); at += chunk {
			n := copy(x.process.Host[:chunk], data[at:])
			x.process.Do("put %d %d 0 %d", s, to+uint64(at), n)
			if err := x.reached(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// reached waits until a stream has done what was submitted to it.
func (x *site) reached(s int) error {
	done := make(chan struct{})
	x.process.Notify(s, func() { close(done) })
	x.process.Flush()
	select {
	case <-done:
		return nil
	case <-x.ctx.Done():
		return context.Cause(x.ctx)
	case <-time.After(x.Deadline):
		return fmt.Errorf("the driver did not copy memory within %s", x.Deadline)
	}
}

// Read returns bytes of a slot's memory on a GPU.
func (x *site) Read(g, slot int, all []analyze.Range) ([]byte, error) {
	x.scratch.Lock()
	defer x.scratch.Unlock()
	if g < 0 || g >= len(x.gpus) || x.gpus[g].Number < 0 || slot < 0 || slot >= x.Slots {
		return nil, fmt.Errorf("expected a GPU and a slot of site %d; found %d and %d", x.Me, g, slot)
	}
	x.mu.Lock()
	s := x.streamOf(placed{stream{g, g}, slot, 0})
	x.mu.Unlock()
	var data []byte
	for _, r := range all {
		for at := r.From; at < r.To; at += chunk {
			n := min(r.To-at, chunk)
			x.process.Do("get %d 0 %d %d", s, x.address(g, slot, at), n)
			if err := x.reached(s); err != nil {
				return nil, err
			}
			data = append(data, x.process.Host[:n]...)
		}
	}
	return data, nil
}

// streamOf returns a stream, and makes it if it is new. Transfers are urgent: what they bring is waited for.
func (x *site) streamOf(at placed) int {
	g := &x.gpus[x.own(at.stream)]
	at.level = min(at.level, g.Background-g.Urgent)
	if at.from != at.to {
		at.level = 0
	}
	s, ok := x.streams[at]
	if !ok {
		s = x.process.Stream(g.Number, g.Urgent+at.level)
		x.streams[at] = s
	}
	return s
}

// eventOf returns the event of an operation of a slot.
func (x *site) eventOf(slot, op, g int) int {
	at := recorded{slot, op, g}
	e, ok := x.events[at]
	if !ok {
		e = x.process.Event(x.gpus[g].Number, false)
		x.events[at] = e
	}
	return e
}

// own returns the GPU of this site that a stream is on: of transfers the sender, if it is here.
func (x *site) own(s stream) int {
	if x.Sites[s.from] == x.Me {
		return s.from
	}
	return s.to
}

// Define adds the code of a segment; Post names it by its number.
func (x *site) Define(code *Code) error {
	if err := x.checkCode(code); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.codes = append(x.codes, code)
	var cut map[int][]int
	if x.Graphs {
		cut = code.graphs()
	}
	x.cut = append(x.cut, cut)
	return nil
}

// checkCode reports what of the code of a segment cannot be.
func (x *site) checkCode(code *Code) error {
	for i := range code.Ops {
		o := &code.Ops[i]
		good := o.Kind <= Receive && o.GPU >= 0 && o.GPU < len(x.Sites) && o.From >= 0 && o.From < len(x.Sites) && o.Step >= 0 && o.Step < len(x.Steps)
		good = good && o.Host >= -1 && x.hostBytes(o) >= 0 && x.hostBytes(o) <= x.Host-o.Host && o.Flag >= 0 && o.Flag <= x.Flags
		for _, k := range o.Waits {
			good = good && k >= 0 && k < i && code.Ops[k].site(x.Sites) == o.site(x.Sites)
		}
		if !good {
			return fmt.Errorf("expected the code of a segment; found operation %d: %+v", i, *o)
		}
	}
	return nil
}

// hostBytes is how much of the host's memory an operation uses.
func (x *site) hostBytes(o *Op) int64 {
	switch step := &x.Steps[o.Step]; {
	case o.Kind == Send || o.Kind == Receive:
		return o.size()
	case o.Kind == Execute && step.FromHost():
		return int64(step.To.To - step.To.From)
	case o.Kind == Execute && step.ToHost():
		return int64(step.From.To - step.From.From)
	}
	return 0
}

// host is where the host's memory of a slot starts, after its flags.
func (x *site) host(slot int) int64 {
	return chunk + int64(slot)*(x.Host+int64(x.Flags)*hostAlign) + int64(x.Flags)*hostAlign
}

// flag is where a flag of a slot is.
func (x *site) flag(slot, flag int) int64 {
	return chunk + int64(slot)*(x.Host+int64(x.Flags)*hostAlign) + int64(flag)*hostAlign
}

var errClosed = errors.New("the run has ended")

// Spent is the CPU time of the driver's calls until now, of those that carry out commands.
func (x *site) Spent() (time.Duration, error) { return x.process.Spent() }

// Close ends the driver's process, and all that waits for it.
func (x *site) Close() {
	x.fail(errClosed)
	x.process.Close()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, l := range x.links {
		l.close()
	}
}
