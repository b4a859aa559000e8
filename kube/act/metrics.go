package act

import (
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Metrics are the Prometheus metrics of requests to the API, in base units.
type Metrics struct {
	bind     prometheus.Histogram
	requests *prometheus.CounterVec
	moves    *prometheus.CounterVec
}

// NewMetrics returns metrics that are not registered.
func NewMetrics() *Metrics {
	return &Metrics{
		bind: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "muster_bind_duration_seconds", Help: "Time from the start of a pod's binding to the API server's answer, including retries.",
			Buckets: prometheus.ExponentialBuckets(1e-3, 2, 14),
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_api_requests_total", Help: "Requests to the API server, except watches.",
		}, []string{"verb", "result"}),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_moves_total", Help: "Pods of drained nodes that waited for a replacement, by result.",
		}, []string{"result"}),
	}
}

// Collectors lists the metrics, to be registered.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.bind, m.requests, m.moves}
}

// Request counts a request by its outcome.
func (m *Metrics) Request(verb string, err error) {
	result := "ok"
	if err != nil {
		if result = string(apierrors.ReasonForError(err)); result == "" {
			result = "error"
		}
	}
	m.requests.WithLabelValues(verb, result).Inc()
}
