package sim_test

import (
	"context"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// spoiler makes what a job selects by wrong, behind the engine's back.
type spoiler struct{}

func (spoiler) Began(core.Time, core.Config)                     {}
func (spoiler) Decided(core.Time, []core.Decision, core.Counter) {}
func (spoiler) Told(_ core.Time, ev core.Event) {
	if s, ok := ev.(core.JobSubmitted); ok && s.Job.Name == "bad" {
		s.Job.Tasks[0].Selector[0].Values = nil
	}
}

// A panic of the engine ends the run with an error that names the job.
func TestFault(t *testing.T) {
	_, err := sim.Run(context.Background(), sim.Config{
		Record:  spoiler{},
		Cluster: workload.Cluster{Nodes: []core.Node{{Name: "n", Model: "A10", GPUs: 1}}, Queues: []core.Queue{{Name: "q", Weight: 1}}},
		Jobs: func(yield func(workload.Job, error) bool) {
			yield(workload.Job{Duration: core.Second, Job: core.Job{Name: "bad", Queue: "q", Tasks: []core.Task{{
				Pods: 1, Request: core.Request{Selector: []core.Requirement{{Key: "k", Op: cluster.Gt, Values: []string{"1"}}}},
			}}}}, nil)
		},
	})
	if err == nil || workload.IsBadInput(err) || !strings.HasPrefix(err.Error(), "the engine failed while it worked on job bad, which is a bug: ") {
		t.Errorf("error %v", err)
	}
}
