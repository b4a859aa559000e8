package core_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
)

// sizes are the clusters of the benchmarks, in nodes of 8 GPUs; the largest is
// ASI's.
var sizes = []int{1000, 4000, 16000, 37707}

// newBench returns an engine with the default policy and empty nodes in leaf
// groups of 32, spines of 16 leaf groups and superspines of 8 spines.
func newBench(b *testing.B, nodes int) *core.Engine {
	b.Helper()
	doc, ok := policy.ByName("default")
	if !ok {
		b.Fatal("no default policy")
	}
	e, err := core.New(core.Config{Policy: doc.Policy, Levels: []string{"superspine", "spine", "leaf"}})
	if err != nil {
		b.Fatal(err)
	}
	apply(b, e, core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
	for i := range nodes {
		leaf := i / 32
		apply(b, e, core.NodeAdded{Node: core.Node{
			Name: fmt.Sprintf("n%d", i), Model: "H800", GPUs: 8, CPUMilli: 128000, MemMiB: 1 << 20,
			Domains: []string{fmt.Sprint(leaf / 128), fmt.Sprint(leaf / 16), fmt.Sprint(leaf)},
		}})
	}
	e.Decide(0)
	return e
}

func apply(b *testing.B, e *core.Engine, ev core.Event) {
	if err := e.Apply(0, ev); err != nil {
		b.Fatal(err)
	}
}

// gang is a training job of pods with 8 GPUs; one pod, and fewer GPUs, below 8.
func gang(name string, gpus int) core.Job {
	t := core.Task{Pods: max(1, gpus/8)}
	t.GPU = core.Milli(min(gpus, 8)) * core.WholeGPU
	t.CPUMilli, t.MemMiB = 1000, 1024
	return core.Job{Name: name, Queue: "q", Gang: true, Tasks: []core.Task{t}}
}

// BenchmarkFill submits jobs of one GPU, one at a time, each with a pass of its
// own, and replaces them all when the cluster is full.
func BenchmarkFill(b *testing.B) {
	for _, nodes := range sizes {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			e := newBench(b, nodes)
			job := gang("", 1)
			job.Gang = false
			names := make([]string, min(b.N, nodes*8))
			for i := range names {
				names[i] = fmt.Sprintf("j%d", i)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				job.Name = names[i%len(names)]
				if i >= len(names) {
					apply(b, e, core.JobEnded{Job: job.Name})
				}
				apply(b, e, core.JobSubmitted{Job: job})
				if ds := e.Decide(0); len(ds) != 1 {
					b.Fatalf("%d decisions for %s", len(ds), job.Name)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "placements/s")
		})
	}
}

// BenchmarkGang places a gang on a cluster half full with jobs of 1 to 8 GPUs,
// and ends it.
func BenchmarkGang(b *testing.B) {
	for _, nodes := range sizes {
		e := newBench(b, nodes)
		for i := range nodes * 8 / 9 {
			apply(b, e, core.JobSubmitted{Job: gang(fmt.Sprintf("s%d", i), 1<<(i%4))})
		}
		e.Decide(0)
		for _, gpus := range []int{8, 64, 512, 2048} {
			b.Run(fmt.Sprintf("nodes=%d/gpus=%d", nodes, gpus), func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					apply(b, e, core.JobSubmitted{Job: gang("g", gpus)})
					if ds := e.Decide(0); len(ds) != 1 || ds[0].Op != core.Bind {
						b.Fatalf("decided %v", ds)
					}
					apply(b, e, core.JobEnded{Job: "g"})
					e.Decide(0)
				}
			})
		}
	}
}

// BenchmarkOneNode starts jobs without GPUs that are all on one node, and ends them in
// the order in which they came. What a pod takes should not depend on how many there are.
func BenchmarkOneNode(b *testing.B) {
	for _, pods := range []int{10, 100, 1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			e := newBench(b, 0)
			apply(b, e, core.NodeAdded{Node: core.Node{Name: "n", CPUMilli: 1e9, MemMiB: 1e9}})
			job := core.Job{Queue: "q", Tasks: []core.Task{{Pods: 1}}}
			job.Tasks[0].CPUMilli = 1
			names := make([]string, pods)
			for i := range names {
				names[i] = fmt.Sprintf("j%d", i)
			}
			b.ReportAllocs()
			for b.Loop() {
				for _, job.Name = range names {
					apply(b, e, core.JobSubmitted{Job: job})
				}
				if ds := e.Decide(0); len(ds) != pods {
					b.Fatalf("%d decisions about %d jobs", len(ds), pods)
				}
				for _, name := range names {
					apply(b, e, core.JobEnded{Job: name})
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*pods), "ns/pod")
		})
	}
}

// BenchmarkImpossible refuses a gang of 2,048 GPUs on a full cluster, at first
// sight and again whenever a GPU is freed.
func BenchmarkImpossible(b *testing.B) {
	for _, nodes := range sizes {
		e := newBench(b, nodes)
		for i := range nodes * 8 {
			apply(b, e, core.JobSubmitted{Job: gang(fmt.Sprintf("s%d", i), 1)})
		}
		e.Decide(0)
		b.Run(fmt.Sprintf("nodes=%d/first", nodes), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				apply(b, e, core.JobSubmitted{Job: gang("g", 2048)})
				e.Decide(0)
				apply(b, e, core.JobEnded{Job: "g"})
			}
		})
		b.Run(fmt.Sprintf("nodes=%d/again", nodes), func(b *testing.B) {
			apply(b, e, core.JobSubmitted{Job: gang("g", 2048)})
			e.Decide(0)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				apply(b, e, core.PodEnded{Job: "s7", Pod: 0, Failed: true})
				e.Decide(0)
				b.StopTimer()
				apply(b, e, core.JobEnded{Job: "s7"})
				apply(b, e, core.JobSubmitted{Job: gang("s7", 1)})
				e.Decide(0)
				b.StartTimer()
			}
			b.StopTimer()
			apply(b, e, core.JobEnded{Job: "g"})
		})
	}
}

// BenchmarkExplain says why a gang of 2,048 GPUs waits for a full cluster.
func BenchmarkExplain(b *testing.B) {
	for _, nodes := range sizes {
		e := newBench(b, nodes)
		for i := range nodes * 8 {
			apply(b, e, core.JobSubmitted{Job: gang(fmt.Sprintf("s%d", i), 1)})
		}
		apply(b, e, core.JobSubmitted{Job: gang("g", 2048)})
		e.Decide(0)
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			for range b.N {
				if x, _ := e.Explain("g"); x.Waiting == 0 {
					b.Fatalf("it waits for %+v", x)
				}
			}
		})
	}
}

// BenchmarkInquire says why 1,000 gangs of four sizes wait for a full cluster.
func BenchmarkInquire(b *testing.B) {
	for _, nodes := range sizes {
		e := newBench(b, nodes)
		for i := range nodes {
			apply(b, e, core.JobSubmitted{Job: gang(fmt.Sprintf("s%d", i), 8)})
		}
		for i := range 1000 {
			apply(b, e, core.JobSubmitted{Job: gang(fmt.Sprintf("g%d", i), 8<<(i%4))})
		}
		e.Decide(0)
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			for range b.N {
				q := e.Inquire()
				for i := range 1000 {
					if _, _, waits := q.Why(fmt.Sprintf("g%d", i)); !waits {
						b.Fatalf("g%d runs", i)
					}
				}
				if q.Counted() != 4 {
					b.Fatalf("%d counts", q.Counted())
				}
			}
		})
	}
}

// BenchmarkForecast says when 3,000 jobs start that wait for a full cluster of jobs of
// 8 GPUs, each of which ends at another time.
func BenchmarkForecast(b *testing.B) {
	for _, nodes := range sizes {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			e := newBench(b, nodes)
			for i := range nodes + 3000 {
				j := gang(fmt.Sprintf("s%d", i), 8<<(i%4))
				if i < nodes {
					j = gang(fmt.Sprintf("s%d", i), 8)
				}
				j.Estimate = core.Time(3600+i*7919%86400) * core.Second
				apply(b, e, core.JobSubmitted{Job: j})
			}
			e.Decide(0)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if f := e.Forecast(); len(f.Starts) == 0 {
					b.Fatalf("%+v", f)
				}
			}
		})
	}
}

// BenchmarkOrders lets one of the jobs of 4,000 full nodes end in each pass, a second after the last one, while 30,000 jobs of
// five sizes wait in 200 queues. It reports the 50th and 99th percentile of what a pass takes, with the events before it.
func BenchmarkOrders(b *testing.B) {
	for _, order := range []core.Order{core.BySubmission, core.LongTermFairness} {
		b.Run(order.String(), func(b *testing.B) {
			doc, _ := policy.ByName("BestEffortFIFO")
			doc.Policy.Queueing.Order = order
			e, _ := core.New(core.Config{Policy: doc.Policy, Levels: []string{"superspine", "spine", "leaf"}})
			now, came := core.Time(0), 0
			do := func(ev core.Event) {
				if err := e.Apply(now, ev); err != nil {
					b.Fatal(err)
				}
			}
			for i := range 200 {
				do(core.QueueSet{Queue: core.Queue{Name: fmt.Sprintf("q%d", i), Weight: int64(1 + i%3)}})
			}
			for i := range 4000 {
				do(core.NodeAdded{Node: core.Node{Name: fmt.Sprintf("n%d", i), Model: "H800", GPUs: 8, CPUMilli: 128000, MemMiB: 1 << 20,
					Domains: []string{"s", fmt.Sprint(i / 512), fmt.Sprint(i / 32)}}})
			}
			submit := func() {
				j := gang(fmt.Sprintf("j%d", came), 1<<(came%5))
				j.Queue, j.Submitted = fmt.Sprintf("q%d", came*7919%200), now
				came++
				do(core.JobSubmitted{Job: j})
			}
			var running []string
			decide := func() {
				for _, d := range e.Decide(now) {
					if d.Op == core.Bind {
						running = append(running, d.Job)
					}
				}
			}
			for range 41_600 {
				submit()
			}
			decide()
			waiting := came - len(running)
			var took []time.Duration
			b.ResetTimer()
			for i := range b.N {
				now += core.Second
				k := i * 7919 % len(running)
				ended := running[k]
				running[k] = running[len(running)-1]
				running = running[:len(running)-1]
				start := time.Now()
				do(core.JobEnded{Job: ended})
				submit()
				decide()
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(waiting), "waiting")
		})
	}
}
