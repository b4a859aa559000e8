package stats

import (
	"regexp"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
)

// Metrics are the Prometheus metrics of a scheduler, in base units. The methods of nil do
// nothing.
type Metrics struct {
	*act.Metrics
	Registry  *prometheus.Registry
	Decide    prometheus.Histogram
	decisions *prometheus.CounterVec
	waited    *prometheus.HistogramVec
	evictions *prometheus.CounterVec
	preempted prometheus.Counter
	confined  prometheus.Gauge
	leftOut   prometheus.Counter
	resumed   prometheus.Histogram
}

// NewMetrics returns metrics with a registry that has them.
func NewMetrics() *Metrics {
	m := &Metrics{
		Metrics: act.NewMetrics(), Registry: prometheus.NewRegistry(),
		Decide: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "muster_decide_duration_seconds", Help: "Duration of a scheduling pass.",
			Buckets: prometheus.ExponentialBuckets(10e-6, 4, 10),
		}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_decisions_total", Help: "Decisions of the engine.",
		}, []string{"op", "reason"}),
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_evictions_total", Help: "Evicted pods.",
		}, []string{"reason"}),
		preempted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "muster_preemptions_total", Help: "How often a job lost pods by preemption or reclaim; pods that leave in one pass count once.",
		}),
		confined: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "muster_quarantined_jobs", Help: "Jobs that are left out because the scheduler failed while it processed them.",
		}),
		leftOut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "muster_unread_objects_total", Help: "How often an object was left out because the scheduler failed while it read it.",
		}),
		waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_wait_seconds", Help: "Time from a job's creation to its first binding.",
			Buckets: prometheus.ExponentialBuckets(0.1, 4, 12),
		}, []string{"queue"}),
	}
	m.resumed = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "muster_standby_resume_seconds", Help: "Time from the end of a pod's standby until its GPUs are its own again.",
		Buckets: prometheus.ExponentialBuckets(0.25, 2, 10),
	})
	m.Registry.MustRegister(m.Decide, m.decisions, m.evictions, m.preempted, m.confined, m.leftOut, m.waited, m.resumed)
	m.Registry.MustRegister(m.Collectors()...)
	m.Registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{Matcher: liveHeap})))
	return m
}

// liveHeap matches what the last garbage collection found in use, which the Go collector
// does not have by itself.
var liveHeap = regexp.MustCompile("^/gc/heap/live:bytes$")

// Bound observes the first binding of a job.
func (m *Metrics) Bound(queue string, waited core.Time) {
	if m != nil {
		m.waited.WithLabelValues(queue).Observe(waited.Seconds())
	}
}

// QueueGone drops what was observed of a queue that is no longer there.
func (m *Metrics) QueueGone(queue string) {
	if m != nil {
		m.waited.DeleteLabelValues(queue)
	}
}

// Resumed observes that the GPUs of a pod on standby are its own again.
func (m *Metrics) Resumed(took core.Time) {
	if m != nil {
		m.resumed.Observe(took.Seconds())
	}
}

// Quarantined sets the number of jobs in quarantine.
func (m *Metrics) Quarantined(jobs int) {
	if m != nil {
		m.confined.Set(float64(jobs))
	}
}

// Unread counts an object that was left out.
func (m *Metrics) Unread() {
	if m != nil {
		m.leftOut.Inc()
	}
}

// Decided counts the decisions of a pass.
func (m *Metrics) Decided(ds []core.Decision) {
	if m == nil {
		return
	}
	preempted := map[string]bool{} // jobs: two decisions may be about pods of one
	for i := range ds {
		d := &ds[i]
		if d.Op == core.Wake {
			continue
		}
		m.decisions.WithLabelValues(d.Op.String(), d.Reason.String()).Inc()
		if d.Op == core.Evict || d.Op == core.Requeue {
			m.evictions.WithLabelValues(d.Reason.String()).Add(float64(len(d.Pods)))
		}
		if d.Op == core.Evict {
			preempted[d.Job] = true
		}
	}
	m.preempted.Add(float64(len(preempted)))
}

// Evicted counts a pod that is evicted without a decision of the engine.
func (m *Metrics) Evicted(reason string) {
	if m != nil {
		m.evictions.WithLabelValues(reason).Inc()
	}
}
