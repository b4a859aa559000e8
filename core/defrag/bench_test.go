package defrag

import (
	"fmt"
	"testing"
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
