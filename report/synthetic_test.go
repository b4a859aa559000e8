package report

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/workload"
)

// synthetic returns runs on a cluster of so many nodes, of three GPU models,
// with a figure everywhere: half a year on 20 queues.
func synthetic(nodes int, policies ...string) []Run {
	c := &workload.Cluster{Levels: []string{"spine", "leaf"}}
	for i := range nodes {
		n := core.Node{Name: fmt.Sprintf("gpu-%05d", i), Model: "H800", GPUs: 8}
		switch {
		case i >= nodes*9/10:
			n.Model, n.GPUs = "A10", 4
		case i >= nodes*6/10:
			n.Model = "A100"
		}
		n.Domains = []string{fmt.Sprintf("spine-%d", i/512), fmt.Sprintf("leaf-%d", i/32)}
		c.Nodes = append(c.Nodes, n)
	}
	quota := core.Milli(nodes) * 8 * core.WholeGPU / 20
	for q := range 20 {
		c.Queues = append(c.Queues, core.Queue{Name: fmt.Sprintf("tenant-%02d", q), Weight: 1, Quota: []core.Quota{{Model: "*", Nominal: quota}}})
	}
	var runs []Run
	for i, name := range policies {
		runs = append(runs, syntheticRun(c, name, rand.New(rand.NewPCG(uint64(i), 0))))
	}
	return runs
}

func syntheticRun(c *workload.Cluster, name string, rng *rand.Rand) Run {
	const frames = 240
	r := Run{Name: name, Cluster: c}
	r.Summary = metrics.Summary{
		Policy: name, Seed: 7, Workload: "half-a-year.csv.gz", Cluster: "fleet.csv", VirtualSeconds: 15552000, WallSeconds: 930.5,
		Decisions: 28123456, DecisionsPerSecond: 132677 * rng.Float64(), DecisionSHA256: fmt.Sprintf("%064x", rng.Uint64()), PeakRSSMiB: 6480,
		Jobs: metrics.Jobs{Submitted: 14000000, Completed: 13200000, Failed: 700000, Cancelled: 99000, Running: 900, Pending: 100},
		GAR:  metrics.Ratios{Mean: 0.8 + rng.Float64()/10, P5: 0.5, P50: 0.87, P95: 0.99}, SOR: 0.85, GFR: metrics.Ratios{Mean: rng.Float64() / 10, P95: 0.2},
		JCT: metrics.Times{Mean: 12345, P50: 1e4, P90: 1e5, P99: 1e6}, Queueing: metrics.Times{Mean: 987 * rng.Float64(), P50: 10, P90: 1e4, P99: 1e5},
		Preemptions: 123456, LostGPUHours: 123456.7, MakespanSeconds: 15552000,
		Window: metrics.Window{To: 15552000, Is: "first submission to last event"},
	}
	for k, class := range metrics.Classes {
		wait := math.Pow(3, float64(k)) * rng.Float64()
		r.Summary.JWTD = append(r.Summary.JWTD, metrics.Waiting{
			Class: class, Jobs: int64(5e6 / (k + 1)), Times: metrics.Times{Mean: wait, P50: wait / 3, P90: wait * 3, P99: wait * 9},
		})
		if k > 2 {
			r.Summary.JTTED = append(r.Summary.JTTED, metrics.Distance{Class: class, Jobs: 9, NodeRatio: 1 + rng.Float64()/20, GroupRatio: 1 + rng.Float64()})
		}
	}
	phase := 6 * rng.Float64()
	for i := range 4096 {
		day := math.Sin(phase + float64(i)/4096*180*2*math.Pi/7)
		r.Series = append(r.Series, metrics.Sample{
			T: core.Time(i) * 3797 * core.Second, Allocated: core.Milli((800 + 100*day + 20*rng.Float64()) * 1000), Available: 1000,
			FragmentedNodes: int64(20 + 10*day), GPUNodes: 512, Pending: int64(500 + 400*day), Running: 4000 + rng.Int64N(500),
		})
	}
	for i := range 180 * 24 {
		for k, model := range []string{"H800", "A100"} {
			held := core.Milli((300 + 100*math.Sin(phase+float64(i)/24*2*math.Pi) + 20*rng.Float64()) * 1000)
			x := metrics.HPSample{T: core.Time(i) * 3600 * core.Second, Model: model, GPU: held, Expected: [3]core.Milli{-1, -1, -1}}
			if i >= 24 && (k == 0 || i > 30) {
				x.Expected[0], x.Expected[1] = held+20000, held+core.Milli(60000*rng.Float64())
			}
			r.Forecast = append(r.Forecast, x)
		}
	}
	r.Summary.HPForecast = metrics.NewHPForecast(r.Forecast, 86400*core.Second)
	r.History = metrics.History{Interval: 15552000 / frames * core.Second, End: 15552000 * core.Second}
	for _, q := range c.Queues {
		r.History.Queues = append(r.History.Queues, q.Name)
	}
	now := make([]byte, len(c.Nodes))
	for f := range frames {
		frame := metrics.Frame{Nodes: make([]byte, len(c.Nodes))}
		for i := range now {
			if rng.IntN(3) == 0 { // a third of the nodes changes from frame to frame
				steps := c.Nodes[i].GPUs
				now[i] = byte(metrics.Full * max(0, min(steps, rng.IntN(3*steps)-steps/2)) / steps)
			}
			frame.Nodes[i] = now[i]
			if (i+f)%997 == 0 {
				frame.Nodes[i] = metrics.Lost
			}
		}
		for q := range c.Queues {
			share := 0.5 + 0.5*math.Sin(phase+float64(f+7*q)/17)
			frame.Queues = append(frame.Queues, core.Milli(share*float64(c.Queues[q].Quota[0].Nominal)*30/float64(20+q)))
		}
		r.History.Frames = append(r.History.Frames, frame)
	}
	for i := range metrics.LongestWaits {
		w := metrics.LongWait{
			Job: fmt.Sprintf("train-%07d", i*7919), Queue: fmt.Sprintf("tenant-%02d", i), Pods: 1 << (i % 9), GPUs: 8000 << (i % 9),
			Submitted: core.Time(i) * 86400 * core.Second, Waited: core.Time(20-i) * core.Time(36000+rng.IntN(1000)) * core.Second, Waits: i == 0,
			Why: metrics.Why{Asked: i % 5, Times: (i%5 + 1) / 2},
		}
		if w.Why.Asked > 0 {
			w.Why.Reason, w.Why.At = "Stranded", w.Submitted+3600*core.Second
			w.Why.Detail = "needs 1 x 8 GPUs, 160 cores, 1638400 MiB: 137 GPUs are free, in pieces that hold 0 of the pods; the largest is 7 on one node"
		}
		r.Longest = append(r.Longest, w)
	}
	return r
}
