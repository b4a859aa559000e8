package kube

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-sched/muster/kube/lease"
	"github.com/muster-sched/muster/kube/mirror"
	"github.com/muster-sched/muster/kube/stats"
)

// Stats returns the figures of the cluster. It waits for the scheduler's pass under way.
func (s *Scheduler) Stats(ctx context.Context) (stats.Stats, error) {
	answer := make(chan stats.Stats, 1)
	s.box.Put(func(m *mirror.Mirror) {
		st := m.Stats()
		if e := m.Engine(); e != nil {
			st.Expected = e.Expected()
			resources := e.ResourceUsage()
			for i := range st.Queues {
				st.Queues[i].Subtree.Resources = resources[st.Queues[i].Name]
			}
		}
		answer <- st
	})
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		return stats.Stats{}, ctx.Err()
	}
}

// ownStats returns the figures that this instance reports: the holder of the rest reports
// on the whole cluster, the others only on the reasons of their own jobs. So sums over all
// instances are right.
func (s *Scheduler) ownStats(ctx context.Context) (stats.Stats, error) {
	st, err := s.Stats(ctx)
	if !s.held[lease.RestOf(s.config.Shards)].Load() {
		st = stats.Stats{Reasons: st.Reasons}
	}
	return st, err
}

// heldGauge is 1 while this instance holds a shard.
func heldGauge(shard string, held *atomic.Bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "muster_shard_held", Help: "1 while this instance schedules the shard, else 0.", ConstLabels: prometheus.Labels{"shard": shard},
	}, func() float64 {
		if held.Load() {
			return 1
		}
		return 0
	})
}

// recordingGauge is 1 while events are recorded.
func recordingGauge(recording func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "muster_event_log_recording", Help: "1 while this instance records its events, 0 when they cannot be written.",
	}, func() float64 {
		if recording() {
			return 1
		}
		return 0
	})
}
