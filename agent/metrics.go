package agent

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/checkpoint/pause"
)

// Metrics count what an agent has done since it started.
type Metrics struct {
	operations, advances *prometheus.HistogramVec
	images               *prometheus.CounterVec
}

// NewMetrics returns metrics that are in no registry.
func NewMetrics() *Metrics {
	buckets := []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000}
	return &Metrics{
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_agent_operation_seconds", Help: "Time that operations took that have ended, by action and by how they ended: succeeded or failed. Of one that an agent before began, since then.", Buckets: buckets,
		}, []string{"action", "state"}),
		advances: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_agent_advance_seconds", Help: "Time that steps took of jobs that are paused or saved over several pods, by goal and outcome.", Buckets: buckets,
		}, []string{"goal", "outcome"}),
		images: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_agent_image_bytes_total", Help: "Bytes of processes that were saved as images or restored from them, and those that were new in the store (written).",
		}, []string{"what"}),
	}
}

// advanced counts a step of a job.
func (m *Metrics) advanced(goal pause.Goal, outcome pause.Outcome, took time.Duration) {
	m.advances.WithLabelValues(goal.String(), string(outcome)).Observe(took.Seconds())
}

func (m *Metrics) image(what string, bytes int64) {
	m.images.WithLabelValues(what).Add(float64(bytes))
}

// Collectors are the metrics of the agent, to be registered.
func (a *Agent) Collectors() []prometheus.Collector {
	m := a.o.Metrics
	return []prometheus.Collector{m.operations, m.advances, m.images, current{a}}
}

// current is what the agent knows when it is asked for metrics.
type current struct{ *Agent }

var (
	gpusDesc      = prometheus.NewDesc("muster_agent_gpus", "GPUs of the node by health: ok, unknown where the driver says nothing of them, or the first reason why one is to take no new pods.", []string{"health"}, nil)
	workDesc      = prometheus.NewDesc("muster_agent_under_way", "Operations at work, and (advance) pods of which a step of a pause over several pods is at work.", []string{"action"}, nil)
	processesDesc = prometheus.NewDesc("muster_agent_processes", "Processes that can be paused, by phase.", []string{"phase"}, nil)
)

// Describe is that of [prometheus.Collector].
func (c current) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{gpusDesc, workDesc, processesDesc} {
		to <- d
	}
}

// Collect is that of [prometheus.Collector].
func (c current) Collect(to chan<- prometheus.Metric) {
	gauges := func(d *prometheus.Desc, counts map[string]int) {
		for label, n := range counts {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), label)
		}
	}
	s, err := c.Status(context.Background(), &agentpb.StatusRequest{})
	if err != nil {
		to <- prometheus.NewInvalidMetric(processesDesc, err)
		return
	}
	if s.Hardware != nil {
		gauges(gpusDesc, gpusBy(s.Hardware))
	}
	counts := map[string]int{"unknown": 0}
	for p := range phases {
		counts[strings.ToLower(string(p))] = 0
	}
	for _, p := range s.Processes {
		counts[cmp.Or(strings.ToLower(string(Phase(p.Phase))), "unknown")]++
	}
	gauges(processesDesc, counts)
	work := map[string]int{"advance": c.partsAtWork()}
	for a := agentpb.Action_ACTION_PAUSE; a <= agentpb.Action_ACTION_RESTORE; a++ {
		work[name(a)] = 0
	}
	for _, o := range s.Operations {
		work[name(o.Action)]++
	}
	gauges(workDesc, work)
}

func (a *Agent) partsAtWork() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, p := range a.parts {
		if p.callers > 0 {
			n++
		}
	}
	return n
}

// gpusBy counts the GPUs of a node by health.
func gpusBy(h *agentpb.Hardware) map[string]int {
	counts := map[string]int{"ok": 0, "unknown": 0}
	for _, g := range h.Gpus {
		switch {
		case len(g.Faults) > 0:
			counts[g.Faults[0].Reason]++
		case len(h.Faults) > 0:
			counts[h.Faults[0].Reason]++
		case h.Unread != "":
			counts["unknown"]++
		default:
			counts["ok"]++
		}
	}
	return counts
}

// Handler answers for metrics (/metrics), with those that are added, and says that the agent is there (/healthz, /readyz).
func (a *Agent) Handler(more ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(append(a.Collectors(), more...)...)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	for _, path := range []string{"GET /healthz", "GET /readyz"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	}
	return mux
}
