package e2e

import (
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/muster-sched/muster/kube/bench"
)

// The measurement over time binds what comes, beside a tenant too, and leaves nothing.
func TestChurnBench(t *testing.T) {
	command := exec.Command("muster", "bench", "--churn", "500ms", "--every", "500ms", "--rate", "20", "--mean", "500ms", "--nodes", "4", "--tenant",
		"pods=40,labels=200,terms=150,churned=40", "--json")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var rows []bench.Row
	if err := json.Unmarshal(out, &rows); err != nil {
		t.Fatal(err)
	}
	bound, phases := 0, map[string]bool{}
	for _, r := range rows {
		bound += r.Bound
		phases[r.Phase] = true
		if r.Goroutines < 1 || r.Resident < 1 || r.Live < 0 {
			t.Errorf("the scheduler's use is %+v", r)
		}
	}
	if bound < 10 {
		t.Errorf("%d pods were bound in %d rows", bound, len(rows))
	}
	for _, want := range []string{"churn", "pods=40", "labels=200", "terms=150", "churned=40", "after", "rest"} {
		if !phases[want] {
			t.Errorf("no row is of %q: %v", want, phases)
		}
	}
	if last := rows[len(rows)-1]; last.Pods != 0 {
		t.Errorf("%d pods are left", last.Pods)
	}
}
