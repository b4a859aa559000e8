// Package bench measures the engine by the size of the cluster: how fast it
// places, refuses and reclaims, and how long its slowest decisions take.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
)

// Sizes are the cluster sizes, in nodes, that are measured by default. The last
// is ASI's (document Table 1: 37,707 nodes, 155,410 GPUs).
var Sizes = []int{100, 1000, 4000, 16000, 37707}

// A benchmark measures one thing on a cluster of this many nodes.
type benchmark struct {
	name string
	// sizes are the sizes it runs at, when it has its own; fixed says that it
	// runs at no others.
	sizes []int
	fixed bool
	run   func(nodes int) (measure, error)
}

// measure is the result of a benchmark.
type measure struct {
	times []time.Duration // of every operation
	bytes uint64          // allocated in all
	// placed counts placements, 0 where they are not what is measured.
	placed int
	// cpu is for how long a core worked on each, where the median and the slowest one are of interest, too: other
	// work on the machine does not count. notes are further figures.
	cpu   []time.Duration
	notes string
}

var benchmarks = []benchmark{
	{name: "Place", sizes: []int{1000, 4000, 16000, 37707}, run: place},
	{name: "Fill", run: fill},
	{name: "Gang/gpus=8", run: gang(8)},
	{name: "Gang/gpus=64", run: gang(64)},
	{name: "Gang/gpus=512", run: gang(512)},
	{name: "Gang/gpus=2048", run: gang(2048)},
	{name: "ImpossibleGang/gpus=2048", run: impossibleGang},
	{name: "Churn/load=95", run: churn},
	{name: "Waiting", sizes: []int{400, 4000}, run: waiting(asItIs)},
	{name: "WaitingByQuota", sizes: []int{400, 4000}, run: waiting(withoutShares)},
	{name: "WaitingLongTerm", sizes: []int{400, 4000}, run: waiting(withLeases)},
	{name: "Reclaim", sizes: []int{500}, fixed: true, run: reclaim},
	{name: "ReclaimGang/gpus=2000", sizes: []int{500}, fixed: true, run: reclaimGang},
}

// Run measures the benchmarks whose full names match, at the given sizes (nil
// for their own), and prints a line for each as it is done, in the form of Go's
// benchmarks, which benchstat reads. It measures on one core.
func Run(ctx context.Context, w io.Writer, match *regexp.Regexp, sizes []int) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	fmt.Fprintf(w, "goos: %s\ngoarch: %s\npkg: github.com/muster-sched/muster/bench\n", runtime.GOOS, runtime.GOARCH)
	matched := false
	for _, b := range benchmarks {
		at := Sizes
		if b.sizes != nil {
			at = b.sizes
		}
		if sizes != nil && !b.fixed {
			at = sizes
		}
		for _, nodes := range at {
			name := b.fullName(nodes)
			if match != nil && !match.MatchString(name) || !b.fits(nodes) {
				continue
			}
			matched = true
			if err := ctx.Err(); err != nil {
				return err
			}
			m, err := b.run(nodes)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := m.print(w, name); err != nil {
				return err
			}
		}
	}
	if !matched {
		return ErrNoMatch
	}
	return nil
}

// ErrNoMatch reports that no benchmark matches.
var ErrNoMatch = errors.New("no benchmark matches")

// fullName is the benchmark's name at a size: BenchmarkGang/nodes=100/gpus=8.
func (b *benchmark) fullName(nodes int) string {
	kind, rest := b.name, ""
	for i, r := range b.name {
		if r == '/' {
			kind, rest = b.name[:i], b.name[i:]
			break
		}
	}
	return fmt.Sprintf("Benchmark%s/nodes=%d%s", kind, nodes, rest)
}

// fits reports whether a cluster of this many nodes is large enough.
func (b *benchmark) fits(nodes int) bool {
	if b.name == "Place" {
		return nodes >= 1000
	}
	var gpus int
	if _, err := fmt.Sscanf(b.name, "Gang/gpus=%d", &gpus); err == nil {
		return gpus/8 <= large(nodes)
	}
	return true
}

func (m *measure) print(w io.Writer, name string) error {
	n := len(m.times)
	total := time.Duration(0)
	for _, t := range m.times {
		total += t
	}
	slices.Sort(m.times)
	line := fmt.Sprintf("%s\t%8d\t%12.1f ns/op\t%8d B/op\t%10d p99-ns", name, n,
		float64(total.Nanoseconds())/float64(n), m.bytes/uint64(n), m.times[(n-1)*99/100].Nanoseconds())
	if m.placed > 0 {
		line += fmt.Sprintf("\t%10.0f placements/s", float64(m.placed)/total.Seconds())
	}
	if m.cpu != nil {
		slices.Sort(m.cpu)
		line += fmt.Sprintf("\t%10d p50-ns\t%10d max-ns\t%10d p50-cpu-ns\t%10d p99-cpu-ns\t%10d max-cpu-ns", m.times[n/2].Nanoseconds(), m.times[n-1].Nanoseconds(),
			m.cpu[n/2].Nanoseconds(), m.cpu[(n-1)*99/100].Nanoseconds(), m.cpu[n-1].Nanoseconds())
	}
	_, err := fmt.Fprintln(w, line+m.notes)
	return err
}

// timed collects garbage, then measures operations: do is called n times with their number.
func timed(n int, do func(i int) error) (measure, error) {
	runtime.GC()
	return timedWarm(n, do)
}

// timedWarm is timed without the collection, for an operation that comes after others. A
// collection before each operation reads the whole heap, and the operation then finds
// nothing in the processor's caches: the figure is that of the caches.
func timedWarm(n int, do func(i int) error) (measure, error) {
	m := measure{times: make([]time.Duration, n)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range n {
		start := time.Now()
		if err := do(i); err != nil {
			return m, err
		}
		m.times[i] = time.Since(start)
	}
	runtime.ReadMemStats(&after)
	m.bytes = after.TotalAlloc - before.TotalAlloc
	return m, nil
}

// large returns how many of this many nodes have 8 GPUs; the rest have 4 or 1, as
// in ASI's fleet.
func large(nodes int) int  { return nodes * 13386 / 37707 }
func medium(nodes int) int { return nodes * 8000 / 37707 }

// gpusOf returns the GPUs of the i-th of this many nodes.
func gpusOf(i, nodes int) int {
	switch {
	case i < large(nodes):
		return 8
	case i < large(nodes)+medium(nodes):
		return 4
	}
	return 1
}

// world is an engine with a clock.
type world struct {
	*core.Engine
	now core.Time
}

// newWorld returns an engine with nodes, in leaf groups of 32, and queues.
func newWorld(nodes int, gpus func(i int) int, queues ...core.Queue) (*world, error) {
	p := defaultPolicy()
	p.Preempt.MinRuntime = 0
	return newWorldOf(p, nodes, gpus, queues...)
}

func defaultPolicy() core.Policy {
	d, _ := policy.ByName("default")
	return d.Policy
}

// newWorldOf is newWorld with a policy.
func newWorldOf(p core.Policy, nodes int, gpus func(i int) int, queues ...core.Queue) (*world, error) {
	e, err := core.New(core.Config{Policy: p, Levels: []string{"superspine", "spine", "leaf"}})
	if err != nil {
		return nil, err
	}
	w := &world{Engine: e}
	for i := range nodes {
		g, leaf := gpus(i), i/32
		if err := w.Apply(0, core.NodeAdded{Node: core.Node{
			Name: fmt.Sprintf("node-%05d", i), Model: "H800", GPUs: g, CPUMilli: int64(g) * 24_000, MemMiB: int64(g) << 17,
			Domains: []string{fmt.Sprint(leaf / 256), fmt.Sprint(leaf / 16), fmt.Sprint(leaf)},
		}}); err != nil {
			return nil, err
		}
	}
	for _, q := range queues {
		if err := w.Apply(0, core.QueueSet{Queue: q}); err != nil {
			return nil, err
		}
	}
	w.Decide(0)
	return w, nil
}

// job describes pods of this many GPUs each.
func job(name, queue string, pods, gpus int) core.Job {
	return core.Job{
		Name: name, Queue: queue, Gang: pods > 1,
		Tasks: []core.Task{{Pods: pods, Request: core.Request{
			GPU: core.Milli(gpus) * core.WholeGPU, CPUMilli: int64(gpus) * 20_000, MemMiB: int64(gpus) << 16,
		}}},
	}
}

// submit submits a job and returns how many pods were bound at once.
func (w *world) submit(j core.Job) (int, error) {
	w.now++
	j.Submitted = w.now
	if err := w.Apply(w.now, core.JobSubmitted{Job: j}); err != nil {
		return 0, err
	}
	bound := 0
	for _, d := range w.Decide(w.now) {
		if d.Op == core.Bind {
			bound += len(d.Pods)
		}
	}
	return bound, nil
}

func (w *world) end(name string) error {
	w.now++
	if err := w.Apply(w.now, core.JobEnded{Job: name}); err != nil {
		return err
	}
	w.Decide(w.now)
	return nil
}
