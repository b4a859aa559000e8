// Package optimum finds optima, for comparisons: by CBC, a solver of the COIN-OR project (Debian:
// coinor-cbc), and of ASI's scheduling of spot jobs by a search of its own.
package optimum

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Node is what a node has.
type Node struct{ GPUs, Cores int64 }

// Pod is what a pod needs, and the index of the node on which it runs. A locked one stays
// there.
type Pod struct {
	GPUs, Cores int64
	Node        int
	Locked      bool
}

// Solver returns the path of the solver; false if it is not installed.
func Solver() (string, bool) {
	path, err := exec.LookPath("cbc")
	return path, err == nil
}

// FewestNodes returns the fewest nodes on which the pods can be. An error says that the solver
// failed, or did not end within 60 s.
func FewestNodes(solver string, nodes []Node, pods []Pod) (int, error) {
	dir, err := os.MkdirTemp("", "muster-optimum-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	file, solution := filepath.Join(dir, "m.lp"), filepath.Join(dir, "m.sol")
	if err := os.WriteFile(file, []byte(program(nodes, pods)), 0o600); err != nil {
		return 0, err
	}
	out, err := exec.Command(solver, file, "sec", "60", "solve", "solu", solution).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, out)
	}
	text, err := os.ReadFile(solution)
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, out)
	}
	var status string
	var objective float64
	first, _, _ := strings.Cut(string(text), "\n")
	if _, err := fmt.Sscanf(first, "%s - objective value %f", &status, &objective); err != nil || status != "Optimal" {
		return 0, fmt.Errorf("no optimum: %s", first)
	}
	return int(objective + 0.5), nil
}

// program writes the integer program in the format LP: y says which nodes are used, x on which
// node each pod is that is not locked.
func program(nodes []Node, pods []Pod) string {
	var b strings.Builder
	fmt.Fprint(&b, "Minimize\n obj:")
	for n := range nodes {
		fmt.Fprintf(&b, " + y%d", n)
	}
	fmt.Fprintln(&b, "\nSubject To")
	for p := range pods {
		if pods[p].Locked {
			continue
		}
		fmt.Fprintf(&b, " p%d:", p)
		for n := range nodes {
			fmt.Fprintf(&b, " + x%d_%d", p, n)
		}
		fmt.Fprintln(&b, " = 1")
	}
	for n, free := range nodes {
		all := free
		var g, c strings.Builder
		for p := range pods {
			switch x := &pods[p]; {
			case !x.Locked:
				fmt.Fprintf(&g, " + %d x%d_%d", x.GPUs, p, n)
				fmt.Fprintf(&c, " + %d x%d_%d", x.Cores, p, n)
			case x.Node == n:
				free.GPUs, free.Cores = free.GPUs-x.GPUs, free.Cores-x.Cores
			}
		}
		fmt.Fprintf(&b, " g%d:%s - %d y%d <= 0\n c%d:%s <= %d\n", n, g.String(), free.GPUs, n, n, c.String(), free.Cores)
		if free != all {
			fmt.Fprintf(&b, " f%d: y%d = 1\n", n, n)
		}
	}
	fmt.Fprintln(&b, "Binary")
	for n := range nodes {
		fmt.Fprintf(&b, " y%d\n", n)
		for p := range pods {
			if !pods[p].Locked {
				fmt.Fprintf(&b, " x%d_%d\n", p, n)
			}
		}
	}
	fmt.Fprintln(&b, "End")
	return b.String()
}
