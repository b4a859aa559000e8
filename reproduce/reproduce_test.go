package reproduce

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// write makes a file in a new folder of the test and returns its path.
func write(t *testing.T, dir, name string, lines ...string) string {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Without its trace an experiment says what is missing and where it looks.
func TestMissingTrace(t *testing.T) {
	for _, e := range []Experiment{phillyQueueing, phillyPreemption, openbFGD, schedmateLucid, schedmateSia} {
		_, err := e.Run(context.Background(), Options{Traces: "nowhere"})
		if !workload.IsBadInput(err) || !strings.Contains(err.Error(), "nowhere") || !strings.Contains(err.Error(), "MUSTER_TRACES") {
			t.Errorf("%s: error %v, want one that names the folder and $MUSTER_TRACES", e.Name, err)
		}
	}
}

// The peer's order is by submission; jobs of the same second change places, as
// they do in any sort that is not stable, but only in lists of more than 17.
func TestNumpySorted(t *testing.T) {
	jobs := make([]workload.Job, 400)
	for i := range jobs {
		jobs[i].Name = fmt.Sprintf("j%03d", i)
		jobs[i].Submitted = core.Time(i/7) * core.Second
	}
	sorted := numpySorted(jobs)
	if !slices.IsSortedFunc(sorted, func(a, b workload.Job) int { return int(a.Submitted - b.Submitted) }) {
		t.Error("the jobs are not in order of submission")
	}
	names := map[string]bool{}
	moved := 0
	for i := range sorted {
		names[sorted[i].Name] = true
		if sorted[i].Name != jobs[i].Name {
			moved++
		}
	}
	if len(names) != len(jobs) {
		t.Errorf("%d jobs come out, %d went in", len(names), len(jobs))
	}
	if moved == 0 {
		t.Error("no job of the same second changed its place: the sort is stable, unlike the peer's")
	}
	few := numpySorted(jobs[:17])
	for i := range few {
		if few[i].Name != jobs[i].Name {
			t.Fatalf("in a list of 17, %s comes at %d", few[i].Name, i)
		}
	}
}

// The experiment runs on any jobs of Philly's form; figures that differ from the
// published ones are said to be out of the band.
func TestPhillyQueueing(t *testing.T) {
	lines := []string{"job_id,submit_s,submit_time,gpus,duration_s,run_s,vc"}
	for i := range 50 {
		lines = append(lines, fmt.Sprintf("%d,%d,2017-10-02 00:%02d:00,%d,%d,,", i, 4149180+60*i, i, 1<<(i%6), 600+i))
	}
	dir := t.TempDir()
	write(t, dir, "philly/jobs.csv.gz", lines...)
	out := t.TempDir()
	r, err := phillyQueueing.Run(context.Background(), Options{Traces: dir, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	if f := pageIn(t, out, r).Figures[0]; *f.Theirs != 135_115 || math.Abs(*f.Low-133_763.85) > 1e-6 || f.Within || f.OursText == "" {
		t.Errorf("the page shows first %+v", f)
	}
	rows := r.(*Table).Rows
	if len(rows) != 12 || r.Passed() {
		t.Errorf("%d rows, passed %v; want 12 rows that do not pass", len(rows), r.Passed())
	}
	for _, row := range rows {
		if strings.HasSuffix(row.Figure, "JCT") && row.Ours < 600 {
			t.Errorf("%s is %.0f s; no job runs less than 600 s", row.Figure, row.Ours)
		}
	}
}

// A row names the source of its figure. A row without a published value has no figure of
// theirs, and does not count as in its band; nor has one that holds a claim.
func TestSourceOfFigures(t *testing.T) {
	code := within("code", 100, 101, 0.02, "s")
	code.Rerun = true
	none := Row{Figure: "none", Bound: "none", Ours: 5, Unit: "%", Within: true}
	broken := none
	broken.Within = false
	for _, c := range []struct {
		row  Row
		json string
		text string
	}{
		{within("paper", 100, 101, 0.02, "s"), `"paper":100,"within_band":true}`, "within their bands: 1 of 1."},
		{code, `"authors_code":100,"within_band":true}`, "Figures of the authors' code (none of them is published) within their bands: 1 of 1."},
		{over("claim", 1, 2, "x").said("more"), `"claim":"more","ours":2,"unit":"x","how_compared":"above theirs","band_low":1,"within_band":true}`,
			"within their bands: 0 of 0. Claims of the paper without a figure that hold: 1 of 1."},
		{none, `{"figure":"none","ours":5,"unit":"%"}`, "within their bands: 0 of 0. Rows without a published value, which do not count: 1."},
		{broken, `"unit":"%","within_band":false}`, "do not count: 1."},
	} {
		table := Table{Rows: []Row{c.row}}
		b, err := json.Marshal(c.row)
		if err != nil || !strings.HasSuffix(string(b), c.json) {
			t.Errorf("%s: JSON is %s (%v), want %s", c.row.Figure, b, err, c.json)
		}
		if got := table.tally(); !strings.HasSuffix(got, c.text) {
			t.Errorf("%s: the tally is %q, want %q", c.row.Figure, got, c.text)
		}
		if table.Passed() != c.row.Within {
			t.Errorf("%s: passed is %v", c.row.Figure, table.Passed())
		}
	}
}

// The inflation experiment takes lists of one's own. The default keeps whole devices
// for what needs them; random placement does not.
func TestInflation(t *testing.T) {
	dir := t.TempDir()
	nodes := []string{"sn,cpu_milli,memory_mib,gpu,model"}
	for i := range 20 {
		nodes = append(nodes, fmt.Sprintf("node-%02d,96000,393216,8,G2", i))
	}
	pods := []string{"name,cpu_milli,memory_mib,num_gpu,gpu_milli"}
	for i := range 240 {
		switch i % 3 {
		case 0:
			pods = append(pods, fmt.Sprintf("pod-%03d,4000,8192,1,250", i))
		case 1:
			pods = append(pods, fmt.Sprintf("pod-%03d,8000,16384,1,1000", i))
		case 2:
			pods = append(pods, fmt.Sprintf("pod-%03d,6000,16384,1,750", i))
		}
	}
	o := Options{
		Nodes: write(t, dir, "nodes.csv", nodes...), Pods: []string{write(t, dir, "openb_pod_list_mine.csv", pods...)},
		Policies: []string{"default", "FGD", "Random"}, Seeds: []int64{1, 2, 3}, Out: t.TempDir(),
	}
	r, err := openbFGD.Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	list := r.(*Inflation).Lists[0]
	if list.List != "mine" || len(list.Rows) != 3 {
		t.Fatalf("list %q with %d rows, want mine with 3", list.List, len(list.Rows))
	}
	shown := pageIn(t, o.Out, r).Lists[0]
	if f := shown.Fillings[2]; shown.Name != "mine" || f.Policy != "Random" || len(f.Curve) != 131 || f.Curve[130] != list.Rows[2].Allocation || f.Curve[95] != list.Rows[2].At95 {
		t.Errorf("the page shows of %s %+v", shown.Name, f)
	}
	value, random := list.Rows[0], list.Rows[2]
	if value.Allocation < random.Allocation+1 || value.Allocation > 100 {
		t.Errorf("default fills %.2f %%, Random %.2f %%; want at least a point more, and at most 100", value.Allocation, random.Allocation)
	}
	var out strings.Builder
	if err := r.JSON(&out); err != nil || !json.Valid([]byte(out.String())) {
		t.Errorf("JSON is not valid: %v\n%s", err, &out)
	}
	again, err := openbFGD.Run(context.Background(), o)
	if err != nil || !reflect.DeepEqual(r, again) {
		t.Errorf("a second run differs (%v)", err)
	}
}
