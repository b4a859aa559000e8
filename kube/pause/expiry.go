package pause

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-sched/muster/agent"
)

// ExpiryGauge is when the certificate for agents, or the last one of their authority, expires. Files that cannot be read count as expired.
func ExpiryGauge(files agent.TLS) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "muster_agent_certificate_expiry_timestamp_seconds", Help: "When the scheduler's certificate for the agents of nodes, or their authority, expires; 0 if the files cannot be read.",
	}, func() float64 {
		at, err := files.Expires()
		if err != nil {
			return 0
		}
		return float64(at.Unix())
	})
}
