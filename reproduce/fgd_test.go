package reproduce

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/workload"
)

// traces returns the folder of the public traces, and skips the test where it
// is not there.
func traces(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("MUSTER_TRACES")
	if dir == "" {
		dir = "../../shared/traces"
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("public traces not found: set MUSTER_TRACES to their folder (%v)", err)
	}
	return dir
}

// With the pods in the order of a seed, and the nodes of equal score in theirs,
// the study's rules come out as its simulator publishes them, seed by seed; and
// default reaches its goal.
func TestOpenbPublished(t *testing.T) {
	dir := traces(t)
	list := filepath.Join(dir, "openb-v2023", "openb_pod_list_default.csv.gz")
	for seed, published := range map[int64]map[string]float64{
		42: {"FGD": 95.29, "GPUPacking": 91.57, "DotProduct": 90.54, "BestFit": 93.13},
		43: {"FGD": 95.32},
	} {
		o := Options{Traces: dir, Pods: []string{list}, Policies: []string{"default"}, Seeds: []int64{seed}}
		for rule := range published {
			o.Policies = append(o.Policies, rule)
		}
		r, err := openbFGD.Run(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range r.(*Inflation).Lists[0].Rows {
			if row.Policy == "default" {
				if row.Verdict != "pass" {
					t.Errorf("seed %d: default fills %.2f %%, and %.2f and %.2f %% at fewer arrivals, its goal being %.2f %%", seed, row.Allocation, row.At95, row.At100, row.Goal)
				}
				continue
			}
			if want := published[row.Policy]; math.Abs(row.Allocation-want) > 0.005 {
				t.Errorf("seed %d: %s fills %.3f %%, published %.2f %%", seed, row.Policy, row.Allocation, want)
			}
		}
	}
}

// The experiment has no network. With the leaf groups that Muster's reader gives to traces without
// any, default held 93.95 % here.
func TestOpenbWithoutNetwork(t *testing.T) {
	dir := traces(t)
	r, err := openbFGD.Run(context.Background(), Options{
		Traces: dir, Pods: []string{filepath.Join(dir, "openb-v2023", "openb_pod_list_multigpu20.csv.gz")}, Policies: []string{"default"}, Seeds: []int64{50},
	})
	if err != nil {
		t.Fatal(err)
	}
	if at := r.(*Inflation).Lists[0].Rows[0].At95; at < 94.9 {
		t.Errorf("default fills %.2f %% when 95 %% have arrived", at)
	}
}

// A rule passes within its band of the published figure, a policy of Muster's
// own at its goal and, with fewer arrivals, no worse than FGD.
func TestInflationVerdicts(t *testing.T) {
	fgd := InflationRow{Policy: "FGD", Published: 95.39, At95: 95, At100: 95.2, Allocation: 95.39}
	for _, c := range []struct {
		name string
		list string
		row  InflationRow
		want string
	}{
		{"in its band", "default", InflationRow{Policy: "BestFit", Published: 93.08, Allocation: 93.4}, "pass"},
		{"out of its band", "default", InflationRow{Policy: "GPUPacking", Published: 92, Allocation: 91.7}, "fail"},
		{"at the goal", "default", InflationRow{Policy: "default", At95: 95, At100: 95.2, Allocation: 96.2}, "pass"},
		{"below the goal", "default", InflationRow{Policy: "default", At95: 95, At100: 95.2, Allocation: 96.1}, "fail"},
		{"worse than FGD at 95 %", "default", InflationRow{Policy: "default", At95: 94.9, At100: 95.2, Allocation: 96.3}, "fail"},
		{"worse than FGD at 100 %", "default", InflationRow{Policy: "default", At95: 95, At100: 95.1, Allocation: 96.3}, "fail"},
		{"nothing to compare with", "mine", InflationRow{Policy: "default", Allocation: 50}, ""},
	} {
		l := InflationList{List: c.list, Rows: []InflationRow{c.row, fgd}}
		l.judge()
		if got := l.Rows[0].Verdict; got != c.want {
			t.Errorf("%s: the verdict is %q, want %q", c.name, got, c.want)
		}
		r := Inflation{Lists: []InflationList{l}}
		if r.Passed() != (c.want != "fail") {
			t.Errorf("%s: passed is %v", c.name, r.Passed())
		}
	}
}

// No running pod makes room for one that arrives: the policy default would stop pods that the
// experiment lets run on, and keep places for them.
func TestInflationMovesNothing(t *testing.T) {
	one := core.Request{GPU: core.WholeGPU}
	nodes := []core.Node{{Name: "a", GPUs: 4, Model: "A"}, {Name: "b", GPUs: 4, Model: "A"}, {Name: "c", GPUs: 4, Model: "A"}}
	var pods []workload.Job
	for i, gpus := range []int{1, 1, 1, 4, 3, 3, 3} {
		j := workload.Job{Job: core.Job{Name: fmt.Sprint("pod-", i)}}
		j.Kind, j.Tasks = core.Batch, []core.Task{{Pods: 1, Request: one}}
		j.Tasks[0].GPU *= core.Milli(gpus)
		pods = append(pods, j)
	}
	p, err := inflationPolicy("default", nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Placement = core.AllKinds(place.Spread)
	y, err := fill(nil, nodes, pods, p, 12*int64(core.WholeGPU))
	if err != nil {
		t.Fatal(err)
	}
	// The pod of four GPUs has no room, and the others have.
	if got := y.at(133); got != 100 {
		t.Errorf("%.1f %% of the GPUs are allocated, want all: %v", got, y)
	}
}

// The ratio at a per cent is the mean over the arrivals that round to it, else
// over the nearest ones.
func TestInflationAt(t *testing.T) {
	y := inflation{}
	for _, a := range [][2]float64{{94.6, 90}, {95.4, 92}, {95.6, 94}, {99.4, 97}, {130.2, 98}} {
		y.add(a[0], a[1])
	}
	for at, want := range map[int]float64{95: 91, 96: 94, 98: 97, 100: 97, 130: 98, 150: 98} {
		if got := y.at(at); got != want {
			t.Errorf("at %d %% it is %g, want %g", at, got, want)
		}
	}
}

// A list that asks for more than 130 % of the cluster loses pods, a shorter one
// gets copies; either then asks for all but a pod's worth of 130 %.
func TestInflate(t *testing.T) {
	var pool []workload.Job
	for i := range 20 {
		j := workload.Job{Job: core.Job{Name: fmt.Sprintf("pod-%02d", i)}}
		j.Tasks = []core.Task{{Pods: 1, Request: core.Request{GPU: core.WholeGPU}}}
		pool = append(pool, j)
	}
	nodes := []core.Node{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	for gpus, want := range map[int64]int{10: 13, 100: 130} {
		pods, shuffled := inflate(pool, nodes, gpus*int64(core.WholeGPU), 1)
		names := map[string]bool{}
		for i := range pods {
			names[pods[i].Name] = true
		}
		if len(pods) != want || len(names) != want || len(shuffled) != len(nodes) {
			t.Errorf("%d GPUs: %d pods with %d names, %d nodes; want %d pods of different names and %d nodes", gpus, len(pods), len(names), len(shuffled), want, len(nodes))
		}
	}
}
