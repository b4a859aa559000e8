package mirror

import (
	"testing"

	"github.com/muster-sched/muster/core"
)

// Nothing on Kubernetes can pause a job: it is evicted, even if it and the policy say that it can be suspended.
func TestNoJobIsSuspended(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(core.Config) (core.Op, error)
		want core.Op
	}{
		{"on Kubernetes", func(c core.Config) (core.Op, error) {
			e, err := newEngine(false)(c)
			if err != nil {
				return 0, err
			}
			return stops(e)
		}, core.Evict},
		{"elsewhere", func(c core.Config) (core.Op, error) {
			e, err := core.New(c)
			if err != nil {
				return 0, err
			}
			return stops(e)
		}, core.Suspend},
	} {
		got, err := c.make(core.Config{Policy: core.Policy{Preempt: core.Preempt{Priority: core.InCluster, MaxSuspended: 3600 * core.Second}}})
		if err != nil || got != c.want {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
	}
}

// stops says what is decided about a job of low priority that has run for a minute, when one comes that needs its GPU.
func stops(e interface {
	Apply(now core.Time, ev core.Event) error
	Decide(now core.Time) []core.Decision
}) (core.Op, error) {
	job := func(name string, priority int32) core.Event {
		return core.JobSubmitted{Job: core.Job{
			Name: name, Queue: "q", Priority: priority, Suspend: core.Suspension{Pause: core.Second, HostMemMiB: 10},
			Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: core.WholeGPU}}},
		}}
	}
	for _, ev := range []core.Event{
		core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}}, core.NodeAdded{Node: core.Node{Name: "a", Model: "H800", GPUs: 1, MemMiB: 100}}, job("low", 0),
	} {
		if err := e.Apply(0, ev); err != nil {
			return 0, err
		}
	}
	e.Decide(0)
	if err := e.Apply(60*core.Second, job("high", 1)); err != nil {
		return 0, err
	}
	return e.Decide(60 * core.Second)[0].Op, nil
}
