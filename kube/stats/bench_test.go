package stats

import (
	"fmt"
	"testing"

	"github.com/muster-sched/muster/core"
)

// BenchmarkStats sums up queues in a tree of ten to a parent, each with a quota for one of
// four models and use of it.
func BenchmarkStats(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("queues=%d", n), func(b *testing.B) {
			c, queues := New("others"), map[string]core.Queue{}
			for i := range n {
				q := core.Queue{Name: fmt.Sprint("q", i), Weight: 1, Quota: []core.Quota{{Model: fmt.Sprint("m", i%4), Nominal: 1000}}}
				if i > 0 {
					q.Parent = fmt.Sprint("q", (i+9)/10-1)
				}
				queues[q.Name] = q
				g := Group{Queue: q.Name, Jobs: 1, JobRuns: 1}
				g.Use(q.Quota[0].Model, 2000)
				c.AddGroup(&g, 1)
			}
			for b.Loop() {
				c.Stats(queues)
			}
		})
	}
}
