package snapshot

import (
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// A panic of the engine is an error that names the job.
func TestFault(t *testing.T) {
	s := Snapshot{
		Queues: []core.Queue{{Name: "q", Weight: 1}}, Nodes: []core.Node{{Name: "n", Model: "H800", GPUs: 8}},
		Jobs: []Job{{Job: core.Job{Name: "good", Queue: "q", Tasks: []core.Task{{Pods: 1}}}}, {Job: core.Job{Name: "bad", Queue: "q", Tasks: []core.Task{{
			Pods: 1, Request: core.Request{Selector: []core.Requirement{{Key: "k", Op: cluster.Gt, Values: []string{"1"}}}},
		}}}}},
	}
	err := play(s, func(r *runner) error {
		s.Jobs[1].Tasks[0].Selector[0].Values = nil // behind the engine's back
		_, err := r.round()
		return err
	})
	if err == nil || !strings.HasPrefix(err.Error(), "the engine failed while it worked on job bad, which is a bug: runtime error: index out of range") {
		t.Errorf("error %v", err)
	}
}
