package local

import (
	"testing"

	"github.com/muster-sched/muster/kube/stats"
)

func TestSummary(t *testing.T) {
	for _, c := range []struct {
		st   stats.Stats
		jobs int64 // that were submitted
		want string
	}{
		{stats.Stats{}, 0, "jobs: 0 wait, 0 run; pods: 0 wait, 0 run"},
		// Unhealthy GPUs cannot be used: of 16, 15 count.
		{stats.Stats{
			Models: []stats.Model{{Model: "H800", GPUs: 8, Used: 7500}, {Model: "A10", GPUs: 8, Unhealthy: 1}},
			Queues: []stats.Queue{{Name: "a", Waiting: 2, Running: 1}, {Name: "b", Running: 3}}, Waiting: 5, Running: 6,
		}, 0, "jobs: 2 wait, 4 run; pods: 5 wait, 6 run; GPUs: 7.5 of 15 in use (50%)"},
		// Of 10 jobs that were submitted, 7 were observed and 4 of them have not ended.
		{stats.Stats{Seen: 7, Jobs: 4}, 10, "jobs: 0 wait, 0 run, 3 of 10 are done; pods: 0 wait, 0 run"},
		// Jobs of other users do not count as done.
		{stats.Stats{Seen: 30}, 10, "jobs: 0 wait, 0 run, 10 of 10 are done; pods: 0 wait, 0 run"},
	} {
		var fed Fed
		fed.Jobs.Store(c.jobs)
		if got := Summary(&c.st, &fed); got != c.want {
			t.Errorf("%+v, %d jobs submitted:\n%s, want\n%s", c.st, c.jobs, got, c.want)
		}
	}
}
