package pause

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the Prometheus metrics of pauses.
type Metrics struct {
	pause, resume, save prometheus.Histogram
	failures            *prometheus.CounterVec
}

// NewMetrics returns metrics that are in no registry.
func NewMetrics() *Metrics {
	buckets := prometheus.ExponentialBuckets(0.1, 2, 14)
	return &Metrics{
		pause: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "muster_pause_seconds", Help: "Time until the GPUs of a job were free by a pause of its processes, resizes included.", Buckets: buckets,
		}),
		resume: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "muster_resume_seconds", Help: "Time until the paused processes of a job went on, resizes included.", Buckets: buckets,
		}),
		save: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "muster_save_seconds", Help: "Time until the processes of pods that leave had saved their progress, before they restarted elsewhere or were evicted for others.", Buckets: buckets,
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_pause_failures_total", Help: "Jobs that could not be paused, could not go on or could not save their progress, and were evicted.",
		}, []string{"op"}),
	}
}

// Collectors are the metrics, to be registered.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.pause, m.resume, m.save, m.failures}
}

func (m *Metrics) paused(took time.Duration, err error) {
	if err != nil {
		m.failures.WithLabelValues("pause").Inc()
		return
	}
	m.pause.Observe(took.Seconds())
}

func (m *Metrics) resumed(took time.Duration, err error) {
	if err != nil {
		m.failures.WithLabelValues("resume").Inc()
		return
	}
	m.resume.Observe(took.Seconds())
}

func (m *Metrics) saved(took time.Duration, err error) {
	if err != nil {
		m.failures.WithLabelValues("save").Inc()
		return
	}
	m.save.Observe(took.Seconds())
}
