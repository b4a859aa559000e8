package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/disagg"
	"github.com/muster-sched/muster/disagg/analyze"
	"github.com/muster-sched/muster/disagg/ptx"
	"github.com/muster-sched/muster/disagg/worker"
	"github.com/muster-sched/muster/gpu/driver"
	"github.com/muster-sched/muster/workload"
)

// disaggRun are the flags of muster disagg run.
type disaggRun struct {
	trace, plan, driver, data, outputs string
	listen, slow, arrivals             string
	latencyPlans                       []string
	monitor                            monitorFlags
	split                              int
	flat, graphs                       bool
	files                              workerTLS
	on                                 []string
	requests, inFlight                 int
	timeout                            time.Duration
	seed                               uint64
	check, asJSON                      bool
}

func newDisaggRun() *cobra.Command {
	var f disaggRun
	c := &cobra.Command{
		Use:   "run FILE.ptx... --trace TRACE.json --plan PLAN.json [--requests N]",
		Short: "Run requests on GPUs by a plan: each kernel where the plan puts it",
		Long: `Run carries out the kernels, calls of cuBLAS, copies and fills of a trace, once for each
request, on the GPUs of a plan that muster disagg plan --json printed. Each request has a stream and memory of
its own on each GPU, and priority over those that came later. What a kernel reads and
another GPU wrote is transferred before, on streams of their own.

GPU n of the plan is device n of this machine, unless --on says otherwise; other machines
run muster disagg worker, and transfers go over the network. A copy to the
host is an output of the request, and a copy from the host an input. Without files in
--data, inputs and buffers that the trace has no values of are random.

It takes the program bin/gpu/muster-gpu-worker, which make gpu builds. MUSTER_CUBLAS names
another libcublas.so than the one that the linker finds.`,
		Example: `  muster disagg run model.ptx --trace trace.json --plan plan.json --requests 8 --check
  muster disagg run model.ptx --trace trace.json --plan plan.json --requests 64 --graphs --check
  muster disagg run model.ptx --trace trace.json --plan plan.json --on A100=0 --on L40S=0
  muster disagg run model.ptx --trace trace.json --plan plan.json --on L40S=10.0.0.2:7441/0 --listen 10.0.0.1:7440 \
    --tls-cert node-1.crt --tls-key node-1.key --tls-ca ca.crt
  muster disagg run model.ptx --trace trace.json --plan plan.json --latency-plan latency.json \
    --arrivals poisson:20 --requests 500
  muster disagg run model.ptx --trace trace.json --plan plan.json --data in/ --outputs out/ --json
  muster disagg run model.ptx --trace trace.json --plan plan.json --driver bin/gpu-fake/libcuda.so.1`,
		Args: func(_ *cobra.Command, files []string) error {
			if len(files) == 0 {
				return fmt.Errorf("expected FILE.ptx; found 0 arguments")
			}
			return nil
		},
		RunE: func(c *cobra.Command, files []string) error { return f.run(c, files) },
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.trace, "trace", "", "run the nodes of this `FILE`")
	flags.StringVar(&f.plan, "plan", "", "the `FILE` with the plan, as muster disagg plan --json prints it")
	flags.StringArrayVar(&f.latencyPlans, "latency-plan", nil, "the `FILE` with a plan of the same GPUs for latency, between which and --plan the monitor switches as requests wait; can be repeated: those that came first take these plans in turn, all others --plan")
	flags.StringArrayVar(&f.on, "on", nil, "where a GPU of the plan is: `GPU=[HOST:PORT/]DEVICE`; two may be one device; can be repeated")
	flags.IntVar(&f.split, "split", 0, "the plan's two GPUs are parts of one device, the first with this `COUNT` of its multiprocessors (CUDA 12.4)")
	flags.StringVar(&f.slow, "slow-link", "", "transfers within a machine take at least what they would on this `LINK`, such as 25gbps/10us")
	flags.BoolVar(&f.flat, "no-priorities", false, "all requests have the same priority")
	flags.BoolVar(&f.graphs, "graphs", false, "what a GPU does between transfers is a CUDA graph, launched at once")
	flags.IntVar(&f.requests, "requests", 1, "how many requests")
	flags.IntVar(&f.inFlight, "in-flight", 4, "how many requests run at once at most")
	flags.StringVar(&f.arrivals, "arrivals", "closed", "the `ARRIVALS`: closed, all at once; poisson:RATE, random, so many a second; or a file, as of muster disagg simulate")
	f.monitor.add(c)
	flags.StringVar(&f.data, "data", "", "the `DIR` with the content of buffers, each in a file of its name, and the inputs of requests, NODE.REQUEST from NODE.0 on, or NODE.REQUEST.ITERATION")
	flags.StringVar(&f.outputs, "outputs", "", "write the outputs of requests to this `DIR`, as NODE.REQUEST, or NODE.REQUEST.ITERATION of nodes that run in several")
	flags.Uint64Var(&f.seed, "seed", 1, "the seed of random content")
	flags.BoolVar(&f.check, "check", false, "run the same requests before, one by one and on the first GPU alone, and compare all memory that they wrote")
	flags.StringVar(&f.driver, "driver", os.Getenv("MUSTER_GPU_DRIVER"), "the `PATH` of the driver, libcuda.so.1; by default where the linker finds it")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:0", "with GPUs of other machines: the `ADDRESS` where they reach this one")
	f.files.add(c)
	flags.DurationVar(&f.timeout, "timeout", time.Minute, "how long the driver may take to start and load the modules, and an iteration to end")
	flags.BoolVar(&f.asJSON, "json", false, "print the requests as JSON")
	return c
}

// disaggRan is what muster disagg run did.
type disaggRan struct {
	GPUs       []string     `json:"gpus"`
	Requests   []ranRequest `json:"requests"`
	PerSecond  float64      `json:"requests_per_second"`
	Launching  float64      `json:"launch_us"` // CPU time of the driver's calls, for each request
	Switches   int          `json:"switches"`  // of the monitor
	Transfers  int          `json:"transfers"` // of all requests
	Bytes      int64        `json:"transferred_bytes"`
	Equal      int          `json:"equal"` // requests whose memory was compared, and equal
	comparable bool
	monitored  bool
}

// ranRequest is a request; times are milliseconds since the start of the run.
type ranRequest struct {
	Request   int     `json:"request"`
	Arrival   float64 `json:"arrival_ms"`
	Start     float64 `json:"start_ms"`
	End       float64 `json:"end_ms"`
	Transfers int     `json:"transfers"`
	Bytes     int64   `json:"transferred_bytes"`
}

// checkFlags says what is wrong with the flags by themselves.
func (f *disaggRun) checkFlags(c *cobra.Command) error {
	switch {
	case f.trace == "" || f.plan == "":
		return badUsage(c, "--trace, --plan: expected a file of each; found %q and %q", f.trace, f.plan)
	case f.requests < 1 || f.requests > 1e7:
		return badUsage(c, "--requests: expected a number from 1 to 10000000; found %d", f.requests)
	case f.inFlight < 1 || f.inFlight > worker.MostInFlight:
		return badUsage(c, "--in-flight: expected a number from 1 to %d; found %d", worker.MostInFlight, f.inFlight)
	case f.timeout <= 0:
		return badUsage(c, "--timeout: expected more than 0; found %s", f.timeout)
	}
	if f.data != "" {
		if _, err := os.ReadDir(f.data); err != nil {
			return badUsage(c, "--data: expected a folder that can be read; found: %v", err)
		}
	}
	return nil
}

func (f *disaggRun) run(c *cobra.Command, files []string) error {
	if err := f.checkFlags(c); err != nil {
		return err
	}
	var modules []*ptx.Module
	slow, err := disagg.ParseLinks(strings.Fields(f.slow))
	if err != nil || len(slow.Pairs) > 0 {
		return badUsage(c, "--slow-link: expected a link such as 25gbps or 25gbps/10us; found %q", f.slow)
	}
	o := worker.Options{Deadline: f.timeout, Split: f.split, Slow: slow.All, Flat: f.flat, Graphs: f.graphs}
	for _, file := range files {
		m, err := readPTX(file)
		if err != nil {
			return err
		}
		modules, o.Modules = append(modules, m), append(o.Modules, m.Source)
	}
	t, err := analyze.ReadTrace(f.trace)
	if err != nil {
		return err
	}
	replay, err := analyze.NewReplay(f.trace, t, modules)
	if err != nil {
		return err
	}
	answer, placements, err := readPlan(f.plan, replay)
	if err != nil {
		return err
	}
	if err := f.switching(c, replay, answer, &placements, &o); err != nil {
		return err
	}
	if o.Arrivals, err = f.times(c); err != nil {
		return err
	}
	o.Requests, o.InFlight = f.requests, min(f.inFlight, f.requests)
	if o.GPUs, err = f.where(c, answer); err != nil {
		return err
	}
	if f.split != 0 && (f.split < 0 || len(o.GPUs) != 2 || o.GPUs[0].Address != o.GPUs[1].Address) {
		return badUsage(c, "--split: expected a plan of two GPUs on one machine, and a number above 0; found %d GPUs and %d", len(o.GPUs), f.split)
	}
	end, err := f.serve(c, &o)
	if err != nil {
		return err
	}
	defer end()
	ctx, stop := interruptible(c)
	defer stop()
	ran, err := f.requestsOn(ctx, replay, placements, o)
	if missing := (*driver.Missing)(nil); errors.As(err, &missing) {
		return &usageError{"the trace calls cuBLAS: expected libcublas.so of CUDA 11, 12 or 13 where its GPU is; found: " + missing.Text + "; install it there, or let MUSTER_CUBLAS name it"}
	}
	if err != nil {
		return err
	}
	for i, g := range answer.GPUs {
		ran.GPUs = append(ran.GPUs, fmt.Sprintf("%s: device %d", g.Name, o.GPUs[i].Device))
		if at := o.GPUs[i].Address; at != "" {
			ran.GPUs[i] += " of " + at
		}
	}
	if f.asJSON {
		err = writeJSON(c.OutOrStdout(), ran)
	} else {
		err = ran.write(c.OutOrStdout())
	}
	if err == nil && f.check && ran.Equal < len(ran.Requests) {
		err = fmt.Errorf("%d requests wrote other bytes than on one GPU", len(ran.Requests)-ran.Equal)
	}
	return err
}

// readPlan reads a plan of the nodes of a trace.
func readPlan(file string, replay *analyze.Replay) (*disagg.Answer, [][]int, error) {
	answer, err := disagg.ReadAnswer(file)
	if err != nil {
		return nil, nil, err
	}
	placements, err := worker.Placements(answer, replay)
	if err != nil {
		field, want, _ := strings.Cut(err.Error(), ": expected ")
		return nil, nil, &workload.Error{File: file, Field: field, Want: want}
	}
	return answer, placements, nil
}

// switching reads the plans for latency, if there are any, and the monitor's parameters.
func (f *disaggRun) switching(c *cobra.Command, replay *analyze.Replay, throughput *disagg.Answer, placements *[][]int, o *worker.Options) error {
	watch, err := f.monitor.get()
	if err != nil {
		return badUsage(c, "%s", err)
	}
	if len(f.latencyPlans) == 0 {
		return nil
	}
	var all [][]int
	for _, file := range f.latencyPlans {
		latency, gpu, err := readPlan(file, replay)
		if err != nil {
			return err
		}
		same := slices.EqualFunc(latency.GPUs, throughput.GPUs, func(a, b disagg.AnswerGPU) bool { return a.Name == b.Name })
		if !same || len(gpu) != 1 || len(*placements) != 1 {
			return &workload.Error{File: file, Field: "gpus", Want: "a plan of the same GPUs as " + f.plan + ", and none of the two of replicas; found others"}
		}
		all = append(all, gpu...)
	}
	o.Monitor = &watch
	*placements = append(all, *placements...)
	return nil
}

// times returns when requests arrive; nil is at once.
func (f *disaggRun) times(c *cobra.Command) (all []time.Duration, err error) {
	kind, rate, random := strings.Cut(f.arrivals, ":")
	var list []disagg.Arrival
	switch {
	case f.arrivals == "closed":
		return nil, nil
	case random && kind == "poisson":
		x, err := strconv.ParseFloat(rate, 64)
		if err != nil || !(x > 0 && x <= 1e9) {
			return nil, badUsage(c, "--arrivals: expected a rate above 0 such as poisson:1.5; found %q", f.arrivals)
		}
		list = disagg.Poisson(f.requests, x, f.seed)
	default:
		if list, err = disagg.ReadArrivals(f.arrivals); err != nil {
			return nil, err
		}
		if !c.Flags().Changed("requests") {
			f.requests = len(list)
		}
		if len(list) < f.requests {
			return nil, badUsage(c, "--requests: expected at most the %d of %s; found %d", len(list), f.arrivals, f.requests)
		}
	}
	for _, a := range list[:f.requests] {
		all = append(all, time.Duration(a.At))
	}
	return all, nil
}

// where reads --on.
func (f *disaggRun) where(c *cobra.Command, a *disagg.Answer) ([]worker.Where, error) {
	all := make([]worker.Where, len(a.GPUs))
	for i := range all {
		all[i].Device = i
	}
	for _, text := range f.on {
		name, place, _ := strings.Cut(text, "=")
		i := slices.IndexFunc(a.GPUs, func(g disagg.AnswerGPU) bool { return g.Name == name })
		address, number, elsewhere := strings.Cut(place, "/")
		if !elsewhere {
			address, number = "", place
		}
		device, err := strconv.Atoi(number)
		_, _, bad := net.SplitHostPort(address)
		if i < 0 || err != nil || device < 0 || elsewhere && bad != nil {
			return nil, badUsage(c, "--on: expected a GPU of the plan and its device, such as %s=0 or %[1]s=10.0.0.2:7441/0; found %q", a.GPUs[0].Name, text)
		}
		all[i] = worker.Where{Address: address, Device: device}
	}
	return all, nil
}

// serve lets other machines of the run reach this one, if there are any.
func (f *disaggRun) serve(c *cobra.Command, o *worker.Options) (end func(), err error) {
	config, err := f.files.config(c)
	if err != nil {
		return nil, err
	}
	o.Server = &worker.Server{Own: true, Driver: driver.Options{Program: gpuProgram("muster-gpu-worker", "MUSTER_GPU_WORKER"), Driver: f.driver}, Dial: worker.Dialer(config), Log: func(string, ...any) {}}
	here := func(w worker.Where) bool { return w.Address == "" }
	if !slices.ContainsFunc(o.GPUs, here) || !slices.ContainsFunc(o.GPUs, func(w worker.Where) bool { return !here(w) }) {
		return func() {}, nil
	}
	l, err := listenFor(c, f.listen, config)
	if err != nil {
		return nil, err
	}
	if err := reachableFrom(o.GPUs, f.listen); err != nil {
		l.Close()
		return nil, badUsage(c, "--listen: %v", err)
	}
	host, _, _ := net.SplitHostPort(f.listen)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	o.Me = net.JoinHostPort(host, port)
	go o.Server.Serve(l)
	return func() { l.Close() }, nil
}

// reachableFrom reports why other machines cannot reach this one at an address: they get it as it is.
func reachableFrom(all []worker.Where, listen string) error {
	host, _, _ := net.SplitHostPort(listen)
	me := net.ParseIP(host)
	local := host == "localhost" || me != nil && me.IsLoopback()
	for _, w := range all {
		there, _, _ := net.SplitHostPort(w.Address)
		ip := net.ParseIP(there)
		if w.Address != "" && (host == "" || me != nil && me.IsUnspecified() || local && ip != nil && !ip.IsLoopback()) {
			return fmt.Errorf("expected an address at which %s reaches this machine; found %q", w.Address, listen)
		}
	}
	return nil
}

// requestsOn runs the requests and, to compare, before that the same requests on one GPU.
func (f *disaggRun) requestsOn(ctx context.Context, replay *analyze.Replay, placements [][]int, o worker.Options) (*disaggRan, error) {
	data := &worker.Data{Replay: replay, Folder: f.data, Seed: f.seed}
	ran := &disaggRan{comparable: f.check, monitored: o.Monitor != nil}
	var sums [][sha256.Size]byte
	if f.check {
		first := [][]int{make([]int, len(replay.Steps))}
		alone := o
		alone.InFlight, alone.Monitor, alone.Arrivals, alone.Graphs = 1, nil, nil, false
		sums = make([][sha256.Size]byte, o.Requests)
		alone.Keep = func(r int, memory []byte) error { sums[r] = sha256.Sum256(memory); return nil }
		if _, err := run1(ctx, replay, data, first, alone); err != nil {
			return nil, fmt.Errorf("on the first GPU alone: %w", err)
		}
		differ := make(chan int, o.Requests)
		o.Keep = func(r int, memory []byte) error {
			if sha256.Sum256(memory) != sums[r] {
				differ <- r
			}
			return nil
		}
		defer func() { ran.Equal = o.Requests - len(differ) }()
	}
	if f.outputs != "" {
		if err := os.MkdirAll(f.outputs, 0o755); err != nil {
			return nil, unwritable(f.outputs, err)
		}
		o.Output = func(r, step int, content []byte) error {
			return writeFile(filepath.Join(f.outputs, data.Name(r, step)), func(w io.Writer) error {
				_, err := io.Copy(w, bytes.NewReader(content))
				return err
			})
		}
	}
	result, err := run1(ctx, replay, data, placements, o)
	if err != nil {
		return nil, err
	}
	all := result.Requests
	ran.Switches, ran.Launching = result.Switches, 1e6*result.Driver.Seconds()/float64(len(all))
	for _, r := range all {
		ran.Requests = append(ran.Requests, ranRequest{r.Number, 1e3 * r.Arrival.Seconds(), 1e3 * r.Start.Seconds(), 1e3 * r.End.Seconds(), r.Transfers, r.Transferred})
		ran.Transfers, ran.Bytes = ran.Transfers+r.Transfers, ran.Bytes+r.Transferred
	}
	last := slices.MaxFunc(all, func(a, b worker.Request) int { return int(a.End - b.End) })
	ran.PerSecond = float64(len(all)) / (last.End - all[0].Start).Seconds()
	return ran, nil
}

// run1 runs requests under placements.
func run1(ctx context.Context, replay *analyze.Replay, data *worker.Data, placements [][]int, o worker.Options) (*worker.Result, error) {
	p, err := worker.NewProgram(replay, len(o.GPUs))
	if err != nil {
		return nil, err
	}
	o.Content = func(region int) ([]byte, error) { return data.Content(p.Regions[region]) }
	o.Input = data.Input
	return worker.Run(ctx, p, placements, o)
}

func (r *disaggRan) write(w io.Writer) error {
	fmt.Fprintf(w, "%d requests on %s.\n", len(r.Requests), strings.Join(r.GPUs, ", "))
	fmt.Fprintf(w, "%.1f requests a second; %d transfers between GPUs, %.3f MB.\n", r.PerSecond, r.Transfers, float64(r.Bytes)/1e6)
	fmt.Fprintf(w, "The driver's calls take %.1f us of CPU time a request.\n", r.Launching)
	var latency []float64
	for _, x := range r.Requests {
		latency = append(latency, x.End-x.Arrival)
	}
	slices.Sort(latency)
	n := len(latency)
	fmt.Fprintf(w, "Latency: median %.3f ms, P99 %.3f ms.\n", latency[n/2], latency[(99*n-1)/100])
	if r.monitored {
		fmt.Fprintf(w, "The monitor switched %d times.\n", r.Switches)
	}
	if r.comparable {
		fmt.Fprintf(w, "Memory is equal to that on the first GPU alone for %d of %d requests.\n", r.Equal, len(r.Requests))
	}
	return nil
}
