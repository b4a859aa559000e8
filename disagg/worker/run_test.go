//go:build linux

package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-sched/muster/disagg/analyze"
	"github.com/muster-sched/muster/disagg/monitor"
	"github.com/muster-sched/muster/disagg/ptx"
	"github.com/muster-sched/muster/disagg/ptx/interp"
	"github.com/muster-sched/muster/gpu/driver"
	"github.com/muster-sched/muster/gpu/gputest"
)

func TestMain(m *testing.M) { gputest.Main(m) }

// rig is a trace, ready to run on fake GPUs.
type rig struct {
	replay  *analyze.Replay
	modules []*ptx.Module
	data    *Data
	log     string
	o       Options

	switches int // of the last run
}

func newRig(t *testing.T, traceFile, module string, gpus int) *rig {
	t.Helper()
	r := &rig{log: filepath.Join(t.TempDir(), "log")}
	text, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ptx.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	trace, err := analyze.ReadTrace(traceFile)
	if err != nil {
		t.Fatal(err)
	}
	r.modules = []*ptx.Module{m}
	if r.replay, err = analyze.NewReplay(traceFile, trace, r.modules); err != nil {
		t.Fatal(err)
	}
	r.data = &Data{Replay: r.replay, Seed: 1}
	n := gputest.NewNode(t, 512)
	n.Set("MUSTER_FAKE_GPU_LOG", r.log)
	program, path, environment := n.Worker(t, gpus)
	r.o = Options{Requests: 4, InFlight: 3, Deadline: time.Minute, Modules: []string{m.Source}, Input: r.data.Input,
		Server: &Server{Driver: driver.Options{Program: program, Driver: path, Environment: environment}, Dial: Dialer(nil), Log: func(string, ...any) {}}}
	for g := range gpus {
		r.o.GPUs = append(r.o.GPUs, Where{Device: g})
	}
	return r
}

func layer(t *testing.T, gpus int) *rig {
	return newRig(t, "testdata/layer.json", "../ptx/testdata/shapes.ptx", gpus)
}

// on returns the GPU of each step by the names of nodes.
func (r *rig) on(gpu map[string]int) (all []int) {
	for _, s := range r.replay.Steps {
		all = append(all, gpu[s.Name])
	}
	return all
}

// run runs requests, and returns what each wrote.
func (r *rig) run(t *testing.T, ctx context.Context, placements ...[]int) ([]Request, [][]byte, error) {
	t.Helper()
	p, err := NewProgram(r.replay, len(r.o.GPUs))
	if err != nil {
		t.Fatal(err)
	}
	r.o.Content = func(region int) ([]byte, error) { return r.data.Content(p.Regions[region]) }
	kept := make([][]byte, r.o.Requests)
	r.o.Keep = func(request int, memory []byte) error { kept[request] = memory; return nil }
	ran, err := Run(ctx, p, placements, r.o)
	if err != nil {
		return nil, nil, err
	}
	r.switches = ran.Switches
	return ran.Requests, kept, nil
}

// alone computes what a request writes, by the interpreter on one memory.
func (r *rig) alone(t *testing.T, request int) []byte {
	t.Helper()
	p, err := NewProgram(r.replay, 1)
	if err != nil {
		t.Fatal(err)
	}
	m := &interp.Memory{}
	for _, x := range p.Regions {
		content, err := r.data.Content(x)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Add(&interp.Buffer{Name: fmt.Sprintf("%#x", x.From), Address: x.From, Data: content}); err != nil {
			t.Fatal(err)
		}
	}
	programs := map[int]*interp.Program{}
	bytes := func(x analyze.Range) []byte { b := m.Find(x.From); return b.Data[x.From-b.Address : x.To-b.Address] }
	written := make([]bool, len(p.atoms))
	for i, s := range r.replay.Steps {
		switch {
		case s.FromHost():
			input, err := r.data.Input(request, i)
			if err != nil {
				t.Fatal(err)
			}
			copy(bytes(s.To), input)
		case s.ToHost():
		case s.Kernel == "":
			copy(bytes(s.To), bytes(s.From))
		default:
			if programs[s.Module] == nil {
				if programs[s.Module], err = interp.Load(r.modules[s.Module], m); err != nil {
					t.Fatal(err)
				}
			}
			l := interp.Launch{Kernel: s.Kernel, Grid: s.Grid, Block: s.Block, Shared: s.Shared}
			for _, at := range r.places(s) {
				l.Args = append(l.Args, s.Args[at.At:at.At+at.Bytes])
			}
			if _, err := programs[s.Module].Run(l, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, a := range p.writes[i] {
			written[a] = true
		}
	}
	var all []byte
	for a, is := range written {
		if is {
			all = append(all, bytes(p.atoms[a])...)
		}
	}
	return all
}

func (r *rig) places(s analyze.Step) []ptx.Place {
	for i := range r.modules[s.Module].Nodes {
		if n := &r.modules[s.Module].Nodes[i]; n.Kind == ptx.Define && n.Func.Name == s.Kernel && n.Block != nil {
			return n.Func.Places()
		}
	}
	return nil
}

// logged returns the lines of the fake driver's log that begin with a word.
func (r *rig) logged(t *testing.T, word string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(r.log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), word+" "); ok {
			lines = append(lines, rest)
		}
	}
	return lines
}

var split = map[string]int{"attend": 1, "add": 1, "result": 1}

// Requests in a pipeline on two GPUs write, each, the bytes that the interpreter writes for it on one memory, and the
// driver copies between the GPUs what the plan cuts and nothing else.
func TestPipeline(t *testing.T) {
	r := layer(t, 2)
	r.o.Requests = 6
	ran, kept, err := r.run(t, t.Context(), r.on(split))
	if err != nil {
		t.Fatal(err)
	}
	different := 0
	for i := range kept {
		if want := r.alone(t, i); !slices.Equal(kept[i], want) {
			t.Errorf("request %d wrote other bytes", i)
		}
		if i > 0 && !slices.Equal(kept[i], kept[0]) {
			different++
		}
		if ran[i].Transfers != 6 || ran[i].Transferred != 6*4096 {
			t.Errorf("request %d: %+v", i, ran[i])
		}
	}
	if different != 5 {
		t.Errorf("%d requests wrote what others did not, want 5", different)
	}
	copies := map[string]int{}
	for _, line := range r.logged(t, "peer") {
		copies[line]++
	}
	if copies["0 1 4096"] != 2*3*6 || len(copies) != 1 { // of each request and iteration, append to attend and down to add
		t.Errorf("copies %v", copies)
	}
	if n := len(r.logged(t, "kernel")); n != 4*3*6 {
		t.Errorf("%d kernels, want 72", n)
	}
}

// Buffers may touch, as those of an allocator do: the weights before what up reads, what it writes before the weights after it.
func TestBuffersTouch(t *testing.T) {
	text, err := os.ReadFile("testdata/layer.json")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "trace.json")
	moved := strings.NewReplacer("0x20000", "0xf000", "0x30000", "0x41000", "0x60000", "0x53000", "0x70000", "0x56000").Replace(string(text))
	if err := os.WriteFile(file, []byte(moved), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, gpu := range []map[string]int{split, {"feed": 1, "down": 1}, {"up": 1, "append": 1, "add": 1}} {
		r := newRig(t, file, "../ptx/testdata/shapes.ptx", 2)
		r.o.Requests = 2
		_, kept, err := r.run(t, t.Context(), r.on(gpu))
		if err != nil {
			t.Fatal(err)
		}
		for i := range kept {
			if !slices.Equal(kept[i], r.alone(t, i)) {
				t.Errorf("on %v request %d wrote other bytes", gpu, i)
			}
		}
	}
}

// On one GPU nothing is transferred; replicas take turns. What no node accesses is nowhere.
func TestReplicas(t *testing.T) {
	r := layer(t, 2)
	used := r.replay.Buffers
	r.replay.Buffers = append(slices.Clone(used), analyze.Content{Name: "unused", Range: analyze.Range{From: 1 << 40, To: 1 << 60}}) // more than there is
	ran, kept, err := r.run(t, t.Context(), alone(0, len(r.replay.Steps)), alone(1, len(r.replay.Steps)))
	r.replay.Buffers = used
	if err != nil {
		t.Fatal(err)
	}
	on := map[string]int{}
	for _, line := range r.logged(t, "kernel") {
		on[line[:1]]++
	}
	for i := range kept {
		if !slices.Equal(kept[i], r.alone(t, i)) || ran[i].Transfers != 0 {
			t.Errorf("request %d wrote other bytes, or transferred: %+v", i, ran[i])
		}
	}
	if on["0"] != 24 || on["1"] != 24 {
		t.Errorf("kernels by GPU: %v", on)
	}
}

// An earlier request has a more urgent stream than a later one.
func TestPriorities(t *testing.T) {
	r := layer(t, 2)
	r.o.Requests, r.o.InFlight = 8, 8
	var wait sync.WaitGroup // until all have started, so that none ends before
	wait.Add(8)
	input := r.o.Input
	var first [8]sync.Once
	r.o.Input = func(request, step int) ([]byte, error) {
		first[request].Do(func() { wait.Done(); wait.Wait() })
		return input(request, step)
	}
	if _, _, err := r.run(t, t.Context(), r.on(split)); err != nil {
		t.Fatal(err)
	}
	by := map[string]int{}
	for _, line := range r.logged(t, "kernel") {
		by[strings.Fields(line)[1]]++
	}
	for _, x := range r.o.Server.sites {
		for at := range x.streams {
			if at.level > 5 {
				t.Errorf("a stream of level %d; the driver has 6 priorities", at.level)
			}
		}
	}
	if by["-5"] < 12 || by["-4"] < 4 || by["-3"] < 4 { // each has an iteration of four kernels at least at its first rank
		t.Errorf("kernels by priority: %v", by)
	}
}

// What goes wrong ends the run with an error, soon.
func TestFailures(t *testing.T) {
	type ran struct {
		rig  *rig
		err  error
		took time.Duration
	}
	run := func(change func(r *rig), during func(r *rig)) ran {
		r := layer(t, 2)
		r.o.Requests = 200
		change(r)
		if during != nil {
			input := r.o.Input
			once := sync.Once{}
			r.o.Input = func(request, step int) ([]byte, error) {
				if request == 2 {
					once.Do(func() { during(r) })
				}
				return input(request, step)
			}
		}
		began := time.Now()
		_, _, err := r.run(t, t.Context(), r.on(split))
		return ran{r, err, time.Since(began)}
	}
	t.Run("killed", func(t *testing.T) {
		x := run(func(*rig) {}, func(r *rig) {
			for _, s := range r.o.Server.sites {
				syscall.Kill(s.process.PID, syscall.SIGKILL)
			}
		})
		if !errors.Is(x.err, driver.ErrEnded) {
			t.Errorf("error %v", x.err)
		}
	})
	t.Run("kernel", func(t *testing.T) {
		x := run(func(r *rig) {
			for i := range r.replay.Steps {
				if s := &r.replay.Steps[i]; s.Name == "down" && s.Iteration == 1 { // it reads 2^20 columns
					binary.LittleEndian.PutUint32(s.Args[24:], 1<<20)
				}
			}
		}, nil)
		var failed *driver.Error
		if !errors.As(x.err, &failed) || failed.Name != "CUDA_ERROR_LAUNCH_FAILED" {
			t.Errorf("error %v", x.err)
		}
	})
	t.Run("kernel on a part of a GPU", func(t *testing.T) {
		x := run(func(r *rig) {
			r.o.Split, r.o.Graphs, r.o.Deadline = 10, true, 20*time.Second
			r.o.GPUs = []Where{{}, {}}
			for i := range r.replay.Steps {
				if s := &r.replay.Steps[i]; s.Name == "up" && s.Iteration == 1 { // in a graph
					binary.LittleEndian.PutUint32(s.Args[24:], 1<<20)
				}
			}
		}, nil)
		var failed *driver.Error
		if !errors.As(x.err, &failed) || failed.Name != "CUDA_ERROR_LAUNCH_FAILED" {
			t.Errorf("error %v", x.err)
		}
	})
	t.Run("memory", func(t *testing.T) {
		x := run(func(r *rig) { r.o.InFlight = 200 }, nil)
		var failed *driver.Error
		if !errors.As(x.err, &failed) || failed.Name != "CUDA_ERROR_OUT_OF_MEMORY" {
			t.Errorf("error %v", x.err)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		x := run(func(r *rig) {
			r.o.Deadline = 2 * time.Second
			r.o.Modules[0] = strings.Replace(r.o.Modules[0], "bar.sync 0;", "FOREVER: bra FOREVER;", 1)
		}, nil)
		if x.err == nil || !strings.Contains(x.err.Error(), "did not end within 2s") {
			t.Errorf("error %v", x.err)
		}
	})
	t.Run("hung", func(t *testing.T) {
		x := run(func(r *rig) { r.o.Deadline = 2 * time.Second }, func(r *rig) {
			for _, s := range r.o.Server.sites { // a pipe and a buffer of 64 KiB each are full, so that the next segment waits
				syscall.Kill(s.process.PID, syscall.SIGSTOP)
				syscall.Wait4(s.process.PID, nil, syscall.WUNTRACED, nil)
				s.process.Do("%060000d", 0)
				s.process.Flush()
				s.process.Do("%065535d", 0)
			}
		})
		if x.err == nil || !strings.Contains(x.err.Error(), "did not end within 2s") {
			t.Errorf("error %v", x.err)
		}
	})
	t.Run("hung at the start", func(t *testing.T) {
		x := run(func(r *rig) {
			r.o.Deadline = 2 * time.Second
			r.o.Server.Driver.Program = filepath.Join(t.TempDir(), "hangs")
			if err := os.WriteFile(r.o.Server.Driver.Program, []byte("#!/bin/sh\necho ready\nexec sleep 60\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, nil)
		if !errors.Is(x.err, context.DeadlineExceeded) {
			t.Errorf("error %v", x.err)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		r := layer(t, 2)
		input := r.o.Input
		r.o.Input = func(request, step int) ([]byte, error) { stop(); return input(request, step) }
		if _, _, err := r.run(t, ctx, r.on(split)); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}

// Under a monitor that switches as often as it can, requests write the same; where they wait it leaves the plan for latency.
// However often it switches, a site keeps the code of the two plans only.
func TestMonitor(t *testing.T) {
	var r *rig
	for _, network := range []bool{false, true} {
		r = layer(t, 2)
		servers := []*Server{r.o.Server}
		if network {
			servers = append(servers, apart(t, r, nil))
		}
		r.o.Requests, r.o.Graphs = 8, !network
		r.o.Monitor = &monitor.Config{Window: 1e6, Beta: 1}
		for i := range r.o.Requests {
			r.o.Arrivals = append(r.o.Arrivals, time.Duration(i/4*100)*time.Millisecond)
		}
		var codes []int
		input := r.o.Input
		r.o.Input = func(request, step int) ([]byte, error) {
			if request == r.o.Requests-1 {
				for _, v := range servers {
					v.mu.Lock()
					for _, x := range v.sites {
						x.mu.Lock()
						codes = append(codes, len(x.codes))
						x.mu.Unlock()
					}
					v.mu.Unlock()
				}
			}
			return input(request, step)
		}
		other := map[string]int{"feed": 1, "down": 1}
		_, kept, err := r.run(t, t.Context(), r.on(other), r.on(split))
		if err != nil {
			t.Fatal(err)
		}
		for i := range kept {
			if !slices.Equal(kept[i], r.alone(t, i)) {
				t.Errorf("request %d wrote other bytes", i)
			}
		}
		if r.switches == 0 {
			t.Error("the monitor never switched")
		}
		if len(codes) < 3 || slices.ContainsFunc(codes, func(n int) bool { return n != 2*3 }) {
			t.Errorf("sites keep the code of %d segments; expected the three iterations of two plans", codes)
		}
	}
	r.o.GPUs = append(r.o.GPUs, Where{})
	if _, _, err := r.run(t, t.Context(), r.on(split)); err == nil {
		t.Error("a monitor with one placement")
	}
}
