package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/disagg"
	"github.com/muster-sched/muster/disagg/monitor"
	"github.com/muster-sched/muster/disagg/pipeline"
)

// disaggSimulate are the flags of muster disagg simulate.
type disaggSimulate struct {
	disaggInput
	arrivals, svg        string
	policies             []string
	requests, batch      int
	inFlight, concurrent int
	from, to             time.Duration
	stretch              float64
	seed                 uint64
	monitor              monitorFlags
	apart                bool
	audit, asJSON        bool
}

// monitorFlags are the parameters of the monitor.
type monitorFlags struct {
	config                     monitor.Config
	window, stall, calm, every time.Duration
}

func (f *monitorFlags) add(c *cobra.Command) {
	f.config = monitor.Default
	flags := c.Flags()
	flags.DurationVar(&f.window, "window", time.Duration(f.config.Window), "monitor: the window that it measures (W)")
	flags.Float64Var(&f.config.Beta, "beta", f.config.Beta, "monitor: the ratio of time present to time executing below which a window is calm")
	flags.DurationVar(&f.calm, "calm", time.Duration(f.config.Calm), "monitor: for how long windows are calm, with at most one request, before latency counts again; 0 for one calm window")
	flags.DurationVar(&f.every, "every", time.Duration(f.config.Every), "monitor: how often a switch is allowed; 0 for no limit")
	flags.IntVar(&f.config.Burst, "burst", f.config.Burst, "monitor: how many switches are allowed at once after a time without")
	f.stall = time.Duration(f.config.Stall)
}

// get returns the parameters, or which one is out of its range.
func (f *monitorFlags) get() (monitor.Config, error) {
	c := f.config
	c.Window, c.Calm, c.Every, c.Stall = monitor.Time(f.window), monitor.Time(f.calm), monitor.Time(f.every), monitor.Time(f.stall)
	return c, c.Check()
}

func newDisaggSimulate() *cobra.Command {
	f := disaggSimulate{}
	c := &cobra.Command{
		Use:   "simulate --kernels FILE --link LINK [--arrivals ARRIVALS] [--policy LIST]",
		Short: "Simulate requests that run on a plan, kernel by kernel, under one policy or several",
		Long: `Simulate runs requests through GPUs and links, kernel by kernel, each request a stream.
ARRIVALS is one of
  closed            all requests are there from the beginning (default)
  poisson:RATE      RATE requests a second on average, at random times
  FILE              a trace with the columns TIMESTAMP, ContextTokens, GeneratedTokens, such as
                    Azure's LLM inference traces; .gz too
Policies:
  throughput  the plan for throughput, a pipeline of requests, the first to arrive first
  fifo        the same plan and pipeline without priorities
  serial      the same plan, one request at a time
  latency     the plan for latency, one request at a time
  monitor     latency or throughput, as load changes: the online monitor
  replicas    each GPU serves requests alone
  one-gpu     the best GPU serves alone
A simulated request is a batch where a phase runs a fraction of a time for one.`,
		Example: `  muster disagg simulate --kernels profile.json --link 200gbps --policy serial,fifo,throughput
  muster disagg simulate --kernels profile.json --link 25gbps --arrivals poisson:1.5 --requests 500 --json
  muster disagg simulate --kernels profile.json --link 200gbps --arrivals trace.csv.gz --to 6m \
    --policy latency,throughput,monitor --beta 1.5 --window 300ms --calm 0 --every 0 --apart=false --barrier
  muster disagg simulate --kernels profile.json --link 200gbps --svg timeline.svg --audit`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.add(c)
	flags := c.Flags()
	flags.StringVar(&f.arrivals, "arrivals", "closed", "the `ARRIVALS`: closed, poisson:RATE or a file")
	flags.StringSliceVar(&f.policies, "policy", []string{string(disagg.SimThroughput)}, "the `LIST` of policies to simulate, each with the same requests")
	flags.IntVar(&f.requests, "requests", 64, "how many requests; of a file at most, by default all")
	flags.IntVar(&f.batch, "batch", 0, "how many requests of the profile one simulated request is; by default the fewest that run each phase a whole number of times. With recorded sizes it is 1")
	flags.IntVar(&f.inFlight, "in-flight", 8, "how many requests are in a pipeline at most")
	flags.IntVar(&f.concurrent, "concurrent", 4, "how many kernels share a GPU at most, from 1 to 8")
	flags.DurationVar(&f.from, "from", 0, "of a file: only requests from this time after its first on")
	flags.DurationVar(&f.to, "to", 0, "of a file: only requests before this time after its first")
	flags.Float64Var(&f.stretch, "stretch", 1, "of a file: multiply the times between arrivals by this `FACTOR`")
	flags.Uint64Var(&f.seed, "seed", 1, "the seed of random arrivals")
	f.monitor.add(c)
	flags.DurationVar(&f.monitor.stall, "stall", f.monitor.stall, "monitor: how long the workers take to agree on a switch; requests go on meanwhile")
	flags.BoolVar(&f.apart, "apart", true, "monitor: under throughput the requests that came first run apart, by the plan for latency and on GPUs that it leaves idle")
	flags.BoolVar(&f.monitor.config.Barrier, "barrier", false, "monitor: at a switch all requests end their iterations and stop until the workers agree")
	flags.BoolVar(&f.audit, "audit", false, "check each run by other code: no GPU or link twice, dependencies kept, no work lost")
	flags.StringVar(&f.svg, "svg", "", "write a picture of the middle of the first policy's run to this `FILE`")
	flags.BoolVar(&f.asJSON, "json", false, "print the outcomes as JSON")
	return c
}

// check refuses values that are out of range.
func (f *disaggSimulate) check(c *cobra.Command) error {
	for _, p := range f.policies {
		if !slices.Contains(disagg.SimPolicies, disagg.SimPolicy(p)) {
			return badUsage(c, "--policy: expected some of %s; found %q", simPolicyNames(), p)
		}
	}
	switch {
	case f.requests < 1 || f.requests > 1e7:
		return badUsage(c, "--requests: expected a number from 1 to 10000000; found %d", f.requests)
	case f.batch < 0 || f.batch > 1e6:
		return badUsage(c, "--batch: expected a number from 1 to 1000000; found %d", f.batch)
	case f.inFlight < 1 || f.inFlight > 1e5:
		return badUsage(c, "--in-flight: expected a number from 1 to 100000; found %d", f.inFlight)
	case f.concurrent < 1 || f.concurrent > 8:
		return badUsage(c, "--concurrent: expected a number from 1 to 8; found %d", f.concurrent)
	case f.from < 0 || f.to < 0 || f.to > 0 && f.to <= f.from:
		return badUsage(c, "--to: expected a time after --from; found %s", f.to)
	case !(f.stretch > 0 && f.stretch <= 1e6):
		return badUsage(c, "--stretch: expected a factor above 0; found %v", f.stretch)
	}
	if _, err := f.monitor.get(); err != nil {
		return badUsage(c, "%s", err)
	}
	return nil
}

func simPolicyNames() string {
	var names []string
	for _, p := range disagg.SimPolicies {
		names = append(names, string(p))
	}
	return strings.Join(names, ", ")
}

// load returns the requests, and how many of the profile's each is.
func (f *disaggSimulate) load(c *cobra.Command, profile *disagg.Profile, phases []string) ([]pipeline.Request, int, error) {
	kind, rate, random := strings.Cut(f.arrivals, ":")
	random = random && kind == "poisson"
	batch := f.batch
	if batch == 0 {
		if batch = profile.Batch(); batch == 0 {
			return nil, 0, badUsage(c, "--batch: expected a number, as no batch up to 4096 runs each phase a whole number of times; found none")
		}
	}
	var all []disagg.Arrival
	switch {
	case f.arrivals == "closed":
		all = disagg.Closed(f.requests)
	case random:
		x, err := strconv.ParseFloat(rate, 64)
		if err != nil || !(x > 0 && x <= 1e9) {
			return nil, 0, badUsage(c, "--arrivals: expected a rate above 0 such as poisson:1.5; found %q", f.arrivals)
		}
		all = disagg.Poisson(f.requests, x/float64(batch), f.seed)
	default:
		read, err := disagg.ReadArrivals(f.arrivals)
		if err != nil {
			return nil, 0, err
		}
		all = disagg.Part(read, pipeline.Time(f.from), pipeline.Time(f.to), f.stretch)
		if c.Flags().Changed("requests") {
			all = all[:min(len(all), f.requests)]
		}
		if len(all) == 0 {
			return nil, 0, badUsage(c, "--from, --to: expected a time with requests; the last of %s is at %s", f.arrivals, time.Duration(read[len(read)-1].At))
		}
		if all[0].Context+all[0].Generated > 0 {
			if f.batch > 1 {
				return nil, 0, badUsage(c, "--batch: expected 1 with recorded sizes; found %d", f.batch)
			}
			batch = 1
		}
	}
	for _, name := range []string{"from", "to", "stretch"} {
		if c.Flags().Changed(name) && (f.arrivals == "closed" || random) {
			return nil, 0, badUsage(c, "--%s: expected a file of arrivals with it; found %s", name, f.arrivals)
		}
	}
	return profile.Requests(all, phases, batch), batch, nil
}

func (f *disaggSimulate) run(c *cobra.Command) error {
	if err := f.check(c); err != nil {
		return err
	}
	profile, problem, err := f.problem(c)
	if err != nil {
		return err
	}
	requests, batch, err := f.load(c, profile, pipeline.Phases(problem))
	if err != nil {
		return err
	}
	watch, err := f.monitor.get()
	if err != nil {
		return err
	}
	sim := &disagg.Simulator{Problem: problem, Requests: requests, InFlight: f.inFlight, Concurrent: f.concurrent, Options: f.options(), Monitor: watch, Apart: f.apart}
	var all []*disagg.Outcome
	for i, name := range f.policies {
		policy := disagg.SimPolicy(name)
		spec, err := sim.Spec(policy)
		if err != nil {
			return err
		}
		spec.Record = f.audit || f.svg != "" && i == 0
		next := time.Now().Add(lineEvery)
		spec.Progress = func(ended int) {
			if t := time.Now(); t.After(next) {
				next = t.Add(lineEvery)
				fmt.Fprintf(os.Stderr, "muster: %s: %d of %d requests ended\n", policy, ended, len(requests))
			}
		}
		r, err := pipeline.Run(spec)
		if err != nil {
			return badUsage(c, "--kernels: %s", err)
		}
		o := disagg.NewOutcome(policy, spec, r, batch)
		if f.audit {
			if err := pipeline.Audit(spec, r); err != nil {
				return fmt.Errorf("audit of %s: %w", policy, err)
			}
			o.Audited = len(r.Record.Kernels)
		}
		if f.svg != "" && i == 0 {
			if err := writeFile(f.svg, func(w io.Writer) error { return disagg.Timeline(w, policy, spec, r) }); err != nil {
				return err
			}
		}
		all = append(all, o)
	}
	if f.asJSON {
		return writeJSON(c.OutOrStdout(), all)
	}
	return disagg.WriteOutcomes(c.OutOrStdout(), all)
}
