package defrag

import (
	"fmt"
	"testing"

	"github.com/muster-sched/muster/core/cluster"
)

// BenchmarkConsolidate plans for clusters of which 80 % of the GPUs are used and 40 % of
// the pods are locked.
func BenchmarkConsolidate(b *testing.B) {
	for _, nodes := range []int{500, 4000, 37707} {
		w := random(1, nodes, 0.8, 0.4)
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			var plan Plan
			for range b.N {
				plan = Consolidate(w.state, w.placer, w, Options{})
			}
			b.ReportMetric(float64(len(plan.Vacated)), "vacated")
			b.ReportMetric(float64(len(plan.Moves)), "moves")
			b.ReportMetric(float64(plan.SlackBefore-plan.SlackAfter)/float64(plan.SlackBefore)*100, "%less-slack")
		})
	}
}

// BenchmarkMakeRoom looks for room for gangs of as many GPUs as are free, or some fewer.
func BenchmarkMakeRoom(b *testing.B) {
	for _, nodes := range []int{20, 100, 500} {
		w := random(1, nodes, 0.8, 0.4)
		for _, share := range []int{50, 90, 100} {
			free := 0
			for id := range cluster.NodeID(nodes) {
				free += int(w.state.Node(id).FreeMilli() / cluster.WholeGPU)
			}
			u := w.gang(free*share/100/8, 8*cluster.WholeGPU)
			b.Run(fmt.Sprintf("nodes=%d/share=%d", nodes, share), func(b *testing.B) {
				found := 0.0
				for range b.N {
					if _, ok := MakeRoom(w.state, w.placer, w, u, Options{}); ok {
						found = 1
					}
				}
				b.ReportMetric(found, "found")
			})
		}
	}
}
