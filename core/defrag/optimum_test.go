package defrag

import (
	"os"
	"testing"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/internal/optimum"
)

// TestNearOptimum compares plans for clusters of 25 nodes with the optimum, which CBC finds
// for the integer program: the fewest nodes with GPUs in use, wherever the pods that are
// not locked go.
func TestNearOptimum(t *testing.T) {
	solver, ok := optimum.Solver()
	if !ok {
		t.Skip("cbc, the solver of the COIN-OR project, is not installed (Debian: coinor-cbc)")
	}
	ours, best, clusters := 0, 0, uint64(24)
	if os.Getenv("MUSTER_FULL") != "" {
		clusters = 60
	}
	for seed := range clusters {
		w := random(seed, 25, 0.5+float64(seed%5)/10, []float64{0.4, 0.1, 0.25}[seed%3])
		plan := Consolidate(w.state, w.placer, w, Options{})
		w.check(t, &plan)
		used := 0
		for id := range cluster.NodeID(25) {
			if inUse(w.state.Node(id)) > 0 {
				used++
			}
		}
		most := used - fewest(t, solver, w)
		t.Logf("seed %d: %d nodes in use, %d vacated by %d moves, %d at best", seed, used, len(plan.Vacated), len(plan.Moves), most)
		ours, best = ours+len(plan.Vacated), best+most
	}
	if t.Logf("%d of %d", ours, best); float64(ours) < 0.95*float64(best) {
		t.Errorf("vacated %d nodes, at best %d: more than 5 %% less", ours, best)
	}
}

// fewest returns the fewest nodes on which the pods of a cluster can be.
func fewest(t *testing.T, solver string, w *world) int {
	at := w.where()
	nodes, pods := make([]optimum.Node, w.state.Nodes()), make([]optimum.Pod, len(w.pods))
	for n := range nodes {
		nodes[n] = optimum.Node{GPUs: 8, Cores: 128}
	}
	for p := range pods {
		r := &w.pods[p].request
		pods[p] = optimum.Pod{GPUs: int64(r.GPU / cluster.WholeGPU), Cores: r.CPUMilli / 1000, Node: int(at[cluster.Owner{Job: int32(p)}]), Locked: w.pods[p].locked}
	}
	count, err := optimum.FewestNodes(solver, nodes, pods)
	if err != nil {
		t.Fatal(err)
	}
	return count
}
