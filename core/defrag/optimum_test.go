package defrag

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core/cluster"
)

// TestNearOptimum compares plans for clusters of 25 nodes with the optimum, which CBC finds
// for the integer program: the fewest nodes with GPUs in use, wherever the pods that are
// not locked go.
func TestNearOptimum(t *testing.T) {
	solver, err := exec.LookPath("cbc")
	if err != nil {
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
		optimum := used - fewest(t, solver, w)
		t.Logf("seed %d: %d nodes in use, %d vacated by %d moves, %d at best", seed, used, len(plan.Vacated), len(plan.Moves), optimum)
		ours, best = ours+len(plan.Vacated), best+optimum
	}
	if t.Logf("%d of %d", ours, best); float64(ours) < 0.95*float64(best) {
		t.Errorf("vacated %d nodes, at best %d: more than 5 %% less", ours, best)
	}
}

// fewest returns the fewest nodes on which the pods of a cluster can be.
func fewest(t *testing.T, solver string, w *world) int {
	var b strings.Builder
	nodes := w.state.Nodes()
	at := w.where()
	fmt.Fprint(&b, "Minimize\n obj:")
	for n := range nodes {
		fmt.Fprintf(&b, " + y%d", n)
	}
	fmt.Fprintln(&b, "\nSubject To")
	for p := range w.pods {
		if !w.pods[p].locked {
			fmt.Fprintf(&b, " p%d:", p)
			for n := range nodes {
				fmt.Fprintf(&b, " + x%d_%d", p, n)
			}
			fmt.Fprintln(&b, " = 1")
		}
	}
	for n := range nodes {
		gpus, cores := int64(8), int64(128)
		var g, c strings.Builder
		fixed := false
		for p := range w.pods {
			r := &w.pods[p].request
			if w.pods[p].locked {
				if at[cluster.Owner{Job: int32(p)}] == cluster.NodeID(n) {
					gpus, cores, fixed = gpus-int64(r.GPU/1000), cores-r.CPUMilli/1000, true
				}
				continue
			}
			fmt.Fprintf(&g, " + %d x%d_%d", r.GPU/1000, p, n)
			fmt.Fprintf(&c, " + %d x%d_%d", r.CPUMilli/1000, p, n)
		}
		fmt.Fprintf(&b, " g%d:%s - %d y%d <= 0\n c%d:%s <= %d\n", n, g.String(), gpus, n, n, c.String(), cores)
		if fixed {
			fmt.Fprintf(&b, " f%d: y%d = 1\n", n, n)
		}
	}
	fmt.Fprintln(&b, "Binary")
	for n := range nodes {
		fmt.Fprintf(&b, " y%d\n", n)
		for p := range w.pods {
			if !w.pods[p].locked {
				fmt.Fprintf(&b, " x%d_%d\n", p, n)
			}
		}
	}
	fmt.Fprintln(&b, "End")
	file := filepath.Join(t.TempDir(), "m.lp")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	sol := file + ".sol"
	out, err := exec.Command(solver, file, "sec", "60", "solve", "solu", sol).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(sol)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var status string
	var objective float64
	first, _, _ := strings.Cut(string(text), "\n")
	if _, err := fmt.Sscanf(first, "%s - objective value %f", &status, &objective); err != nil || status != "Optimal" {
		t.Fatalf("no optimum: %s", first)
	}
	return int(objective + 0.5)
}
