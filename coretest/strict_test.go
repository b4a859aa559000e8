package coretest

import (
	"testing"

	"github.com/muster-sched/muster/core"
)

// TestGangsLackQuotaTogether: quotas have room for each role of a gang, and for each of its pods, on whichever models, and not for all
// together. It lacks quota, not GPUs, and so holds up no other job under StrictFIFO.
func TestGangsLackQuotaTogether(t *testing.T) {
	task := func(name string, pods int, gpu core.Milli, models ...string) core.Task {
		t := core.Task{Name: name, Pods: pods}
		t.GPU, t.Models = gpu, models
		return t
	}
	for name, tasks := range map[string][]core.Task{
		"roles":        {task("mixed", 2, 500, "B", "A"), task("any", 1, 1000)},
		"a role":       {task("mixed", 2, 1000, "A", "B")},
		"named":        {task("a", 1, 1000, "A"), task("b", 1, 1000, "B")},
		"named, mixed": {task("a", 1, 1000, "A"), task("mixed", 1, 1000, "A", "B")},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWorld(t, core.Config{Policy: core.Policy{Queueing: core.Queueing{Mode: core.StrictFIFO}}, Levels: testLevels})
			own := func(gpu, borrow core.Milli) []core.Quota {
				return []core.Quota{{Model: "*", Nominal: gpu, BorrowingLimit: borrow, LendingLimit: core.Unlimited}}
			}
			w.Must(core.QueueSet{Queue: core.Queue{Name: "lends", Weight: 1, Quota: own(4000, core.Unlimited)}})
			w.Must(core.QueueSet{Queue: core.Queue{Name: "borrows", Weight: 1, Quota: own(0, 1000)}})
			for _, model := range []string{"A", "B"} {
				w.Must(core.NodeAdded{Node: core.Node{Name: "n" + model, GPUs: 3, Model: model, Domains: []string{"z", "s", "l"}}})
			}
			w.Must(core.JobSubmitted{Job: core.Job{Name: "gang", Queue: "borrows", Gang: true, Tasks: tasks}})
			w.Must(core.JobSubmitted{Job: core.Job{Name: "next", Queue: "borrows", Tasks: []core.Task{task("t", 1, 1000)}}})
			w.Decide()
			w.CheckIdle()
			if x, _ := w.Engine.Explain("gang"); x.Reason != core.QuotaExceeded && x.Reason != core.ExceedsQuota {
				t.Errorf("it waits for %v: %s", x.Reason, x.Detail)
			}
			if x, _ := w.Engine.Explain("next"); x.Running != 1 {
				t.Errorf("the next job waits for %v: %s", x.Reason, x.Detail)
			}
		})
	}
}
