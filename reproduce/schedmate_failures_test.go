package reproduce

import (
	"context"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// What a handler detects shortens completion times (SchedMate §5.3), and all jobs end, also those that fail again on faulty nodes. The runs of a seed are repeated exactly.
func TestFailureHandlerHelps(t *testing.T) {
	// 400 jobs of a GPU to two nodes, 20 hours each.
	set := &phillySet{cluster: "50x8"}
	var jobs []workload.Job
	for i := range 400 {
		j := workload.Job{Duration: 20 * 3600 * core.Second}
		j.Name, j.Queue, j.Submitted = string(rune('a'+i%26))+string(rune('a'+i/26)), workload.DefaultQueue, core.Time(i)*360*core.Second
		j.Tasks = []core.Task{{Name: "worker", Pods: 1, Request: core.Request{GPU: core.WholeGPU << (i % 4)}}}
		if i%8 == 7 {
			j.Gang, j.Tasks[0].Pods = true, 2
		}
		jobs = append(jobs, j)
	}
	run := func(detected float64) failureRun {
		r, err := set.withFailures(context.Background(), jobs, &failureArm{rate: failureRate, owner: failureOwner, detected: detected}, 1)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	off, half, all := run(0), run(0.5), run(1)
	if again := run(0.5); again != half {
		t.Errorf("again: %+v, before %+v", again, half)
	}
	if off.failed.Failures == 0 || off.failed.Restarted > 0 || all.failed.Restarted == 0 || all.failed.Cordoned == 0 {
		t.Errorf("no handler: %+v; all detected: %+v", off.failed, all.failed)
	}
	if !(all.jct < half.jct && half.jct < off.jct) {
		t.Errorf("mean JCT %.0f s if all are detected, %.0f s if half are, %.0f s without a handler", all.jct, half.jct, off.jct)
	}
}
