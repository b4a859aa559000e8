package mirror

import (
	"maps"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/stats"
)

// Pods of one job that a pass evicts for two jobs are one preemption, and two pods
// evicted. A gang that is told to stop because it lost a member is not preempted.
func TestPreemptionsCountJobs(t *testing.T) {
	m := stats.NewMetrics()
	pod := []core.Placement{{Node: "n"}}
	m.Decided([]core.Decision{
		{Op: core.Evict, Job: "low", Pods: pod, Reason: core.PriorityPreemption, For: "a"},
		{Op: core.Evict, Job: "low", Pods: pod, Reason: core.QuotaReclaim, For: "b"},
		{Op: core.Requeue, Job: "broken", Pods: pod, Reason: core.MemberLost},
	})
	got := scraped(m.Registry)
	maps.DeleteFunc(got, func(name, value string) bool { return value == "0" })
	want := map[string]string{
		"muster_preemptions_total":                                       "1",
		`muster_evictions_total{reason="PriorityPreemption"}`:            "1",
		`muster_evictions_total{reason="QuotaReclaim"}`:                  "1",
		`muster_evictions_total{reason="MemberLost"}`:                    "1",
		`muster_decisions_total{op="evict",reason="PriorityPreemption"}`: "1",
		`muster_decisions_total{op="evict",reason="QuotaReclaim"}`:       "1",
		`muster_decisions_total{op="requeue",reason="MemberLost"}`:       "1",
	}
	if !maps.Equal(got, want) {
		t.Errorf("metrics %v, want %v", got, want)
	}
}
