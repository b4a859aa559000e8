package stats

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/frag"
	"github.com/muster-sched/muster/core/quota"
)

// Gauges are the figures for Prometheus. All scrapes together ask for them at most once a
// second, because Stats waits for the goroutine that decides.
type Gauges struct {
	Stats func(context.Context) (Stats, error)
	Now   func() time.Time

	mu    sync.Mutex
	asked time.Time
	last  Stats
}

const (
	// gaugesFor is how long an answer is reused for other scrapes.
	gaugesFor = time.Second
	// gaugesPatience is how long a scrape waits for an answer. If the scheduler is busy
	// for longer, the next scrape asks again.
	gaugesPatience = 5 * time.Second
)

var (
	jobsGauge = prometheus.NewDesc("muster_jobs", "Jobs that wait (pending) and jobs with running pods (running); a job can be both.",
		[]string{"queue", "state"}, nil)
	waitingGauge   = prometheus.NewDesc("muster_waiting_jobs", "Waiting jobs by reason.", []string{"reason"}, nil)
	queueGPUsGauge = prometheus.NewDesc("muster_queue_gpus", "GPUs that a queue and all queues below it own (nominal), use and borrow.",
		[]string{"queue", "model", "kind"}, nil)
	queueResourcesGauge = prometheus.NewDesc("muster_queue_resources", "CPU (cores), memory (bytes) and other resources that a queue and all queues below it own (nominal), use and borrow.",
		[]string{"queue", "resource", "kind"}, nil)
	gpusGauge = prometheus.NewDesc("muster_gpus", "GPUs of the cluster. A GPU is unavailable if it is not allocated and has failed, or if its node takes no pods.",
		[]string{"model", "state"}, nil)
	idleGauge = prometheus.NewDesc("muster_idle_gpus", "Idle GPUs by what keeps pods of a shape from using them; allocatable if nothing does.",
		[]string{"model", "shape", "cause"}, nil)
	expectedGauge = prometheus.NewDesc("muster_expected_hp_gpus", "GPUs that HP jobs are expected to have at the beginning of that many hours from now; 0: those that they have.",
		[]string{"model", "hours"}, nil)
	unhealthyGauge  = prometheus.NewDesc("muster_unhealthy_gpus", "GPUs that pods must not have, whether or not a pod has them.", []string{"model"}, nil)
	nodesGauge      = prometheus.NewDesc("muster_nodes", "Nodes that take new pods (open), and those that do not (closed).", []string{"state"}, nil)
	fragmentedGauge = prometheus.NewDesc("muster_fragmented_nodes", "Nodes with some GPUs allocated and some free.", []string{"model"}, nil)
)

// shape is the name of the request of which an entry of [Model].Idle is.
func shape(k int) string {
	if k < len(Shapes) {
		return Shapes[k].String()
	}
	return Jobs[k-len(Shapes)].String()
}

// Describe lists the gauges.
func (g *Gauges) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{jobsGauge, waitingGauge, queueGPUsGauge, queueResourcesGauge, gpusGauge, unhealthyGauge, nodesGauge, fragmentedGauge, idleGauge, expectedGauge} {
		c <- d
	}
}

// Collect asks for the figures. Without an answer there are none.
func (g *Gauges) Collect(c chan<- prometheus.Metric) {
	st, ok := g.ask()
	if !ok {
		return
	}
	put := func(d *prometheus.Desc, value float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	if st.Nodes > 0 {
		put(nodesGauge, float64(st.Open), "open")
		put(nodesGauge, float64(st.Nodes-st.Open), "closed")
	}
	for i := range st.Models {
		m := &st.Models[i]
		put(unhealthyGauge, float64(m.Unhealthy), m.Model)
		put(gpusGauge, inGPUs(m.Used), m.Model, "allocated")
		put(gpusGauge, inGPUs(m.Free), m.Model, "free")
		put(gpusGauge, inGPUs(m.Unavailable), m.Model, "unavailable")
		put(fragmentedGauge, float64(m.Fragmented), m.Model)
		for k := range m.Idle {
			for cause, gpu := range m.Idle[k] {
				if gpu > 0 {
					put(idleGauge, inGPUs(gpu), m.Model, shape(k), frag.Cause(cause).String())
				}
			}
		}
	}
	for i := range st.Queues {
		q := &st.Queues[i]
		put(jobsGauge, float64(q.Waiting), q.Name, "pending")
		put(jobsGauge, float64(q.Running), q.Name, "running")
		for _, u := range q.Subtree.Usage {
			put(queueGPUsGauge, owned(u.Nominal, inGPUs), q.Name, u.Model, "nominal")
			put(queueGPUsGauge, inGPUs(u.Borrowed), q.Name, u.Model, "borrowed")
			if u.Model != quota.AnyModel { // it counts the others again
				put(queueGPUsGauge, inGPUs(u.Used), q.Name, u.Model, "used")
			}
		}
		for _, u := range q.Subtree.Resources {
			resource, _ := cluster.ResourceOf(u.Model)
			put(queueResourcesGauge, owned(u.Nominal, func(m core.Milli) float64 { return cluster.InUnits(resource, m) }), q.Name, resource, "nominal")
			put(queueResourcesGauge, cluster.InUnits(resource, u.Used), q.Name, resource, "used")
			put(queueResourcesGauge, cluster.InUnits(resource, u.Borrowed), q.Name, resource, "borrowed")
		}
	}
	for i := range st.Expected {
		for hours, gpu := range st.Expected[i].GPU {
			put(expectedGauge, inGPUs(gpu), st.Expected[i].Model, strconv.Itoa(hours))
		}
	}
	for reason, n := range st.Reasons {
		put(waitingGauge, float64(n), reason)
	}
}

// ask returns the figures, at most a second old.
func (g *Gauges) ask() (Stats, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := g.Now(); g.asked.IsZero() || now.Sub(g.asked) >= gaugesFor || now.Before(g.asked) {
		ctx, cancel := context.WithTimeout(context.Background(), gaugesPatience)
		defer cancel()
		st, err := g.Stats(ctx)
		if err != nil {
			return Stats{}, false
		}
		g.asked, g.last = now, st
	}
	return g.last, true
}

// owned is what a queue owns, +Inf without limit.
func owned(m core.Milli, in func(core.Milli) float64) float64 {
	if m >= quota.MaxQuota {
		return math.Inf(1)
	}
	return in(m)
}

func inGPUs(m core.Milli) float64 { return float64(m) / float64(core.WholeGPU) }
