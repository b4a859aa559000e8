package local

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/stats"
)

// Fed counts what has been submitted of a workload.
type Fed struct {
	Jobs, Pods atomic.Int64
	// Done says that all of the workload has been submitted.
	Done atomic.Bool
}

// Summary describes the state of a cluster in one line, with the progress of its
// workload.
func Summary(st *stats.Stats, fed *Fed) string {
	var gpus, used, waiting, running float64
	for _, m := range st.Models {
		gpus += float64(m.GPUs - m.Unhealthy)
		used += float64(m.Used) / float64(core.WholeGPU)
	}
	for _, q := range st.Queues {
		waiting += float64(q.Waiting)
		running += float64(q.Running)
	}
	var parts []string
	jobs := fmt.Sprintf("jobs: %.0f wait, %.0f run", waiting, running)
	if n := fed.Jobs.Load(); n > 0 {
		jobs += fmt.Sprintf(", %d of %d are done", max(0, min(n, int64(st.Seen))-int64(st.Jobs)), n)
	}
	parts = append(parts, jobs,
		fmt.Sprintf("pods: %d wait, %d run", st.Waiting, st.Running))
	if gpus > 0 {
		parts = append(parts, fmt.Sprintf("GPUs: %.4g of %.0f in use (%.0f%%)", used, gpus, 100*used/gpus))
	}
	return strings.Join(parts, "; ")
}
