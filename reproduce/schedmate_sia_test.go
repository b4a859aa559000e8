package reproduce

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
)

// siaFixture is a folder of traces with one application, whose steps take longer the more GPUs there are, and 16 jobs a workload.
func siaFixture(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	places := []string{"app,gpu_type,placement,local_bsz,step_time,sync_time"}
	more := []string{"app,gpu_type,num_nodes,num_replicas,local_bsz,step_time,sync_time"}
	step := func(speed float64, batch, gpus int) string {
		sync := 0.01 * float64(gpus)
		return fmt.Sprintf("%d,%v,%v", batch, (0.05+0.002*float64(batch))/speed+sync, sync)
	}
	for _, p := range []struct {
		model  string
		speed  float64
		places []string
		nodes  int // of the largest place, which is in the other file
		gpus   int
	}{{"aws", 1, []string{"1", "2", "4", "44", "444", "4444"}, 6, 24}, {"dgx-ext", 4, []string{"1", "2", "4", "8"}, 2, 16}, {"rtx", 2, []string{"1", "2", "4", "8", "88"}, 3, 24}} {
		for _, batch := range []int{32, 128, 512} {
			for _, place := range p.places {
				places = append(places, fmt.Sprintf("cifar10,%s,%s,%s", p.model, place, step(p.speed, batch, len(place)*int(place[0]-'0'))))
			}
			more = append(more, fmt.Sprintf("cifar10,%s,%d,%d,%s", p.model, p.nodes, p.gpus, step(p.speed, batch, p.gpus)))
		}
	}
	runs := []string{"app,batch_size,progress,iteration,metric,grad_sqr,grad_var"}
	for _, batch := range []int{128, 1024, 4096} {
		for e := range 20 {
			runs = append(runs, fmt.Sprintf("cifar10,%d,%d,0,0,1,%d", batch, 700*(e+1), 5*(e+1)))
		}
	}
	for name, rows := range map[string][]string{"profile_placements": places, "profile_scalability": more, "profile_validation": runs} {
		writeGzipAt(t, filepath.Join(dir, "sia", name+".csv.gz"), rows)
	}
	jobs := []string{"workload,name,time,application,num_replicas,batch_size"}
	for i := range 16 {
		jobs = append(jobs, fmt.Sprintf("1,cifar10-%d,%d,cifar10,4,2048", i, 300*i))
	}
	for _, s := range siaTraces {
		writeGzipAt(t, filepath.Join(dir, filepath.FromSlash(s.file)), jobs)
	}
	return dir
}

func writeGzipAt(t *testing.T, path string, lines []string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := gzip.NewWriter(f)
	fmt.Fprintln(z, strings.Join(lines, "\n"))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}

// Each arm ends all jobs: profiling makes them longer, jobs like one that has ended shorter again, and knowing all of it shorter still.
func TestSchedmateSia(t *testing.T) {
	res, err := schedmateSia.Run(context.Background(), Options{Traces: siaFixture(t), Seeds: []int64{1}})
	if err != nil {
		t.Fatal(err)
	}
	table := res.(*Table)
	got := map[string]float64{}
	for _, r := range table.Rows {
		got[r.Figure] = r.Ours
	}
	if len(got) != len(table.Rows) || len(table.Rows) != 2*19+7 {
		t.Errorf("%d rows, %d of them with another name, want %d", len(table.Rows), len(got), 2*19+7)
	}
	for _, s := range siaTraces {
		sia, profiled, plus := got[s.name+": Sia, mean JCT (Sia's paper)"], got[s.name+": Sia that profiles, mean JCT"], got[s.name+": Sia+, mean JCT"]
		if sia <= 0 || profiled <= sia || plus >= profiled {
			t.Errorf("%s: mean JCT %v h under Sia, %v h if it profiles, %v h under Sia+", s.name, sia, profiled, plus)
		}
		if n := got[s.name+": Sia+, jobs with a similar one"]; n <= 0 || n >= 100 {
			t.Errorf("%s: %v %% of the jobs have a similar one", s.name, n)
		}
	}
	if ten, sixty := got["Philly: mean JCT, Sia that profiles for 10 s"], got["Philly: mean JCT, Sia that profiles for 60 s"]; ten > sixty {
		t.Errorf("profiling for 10 s comes to %v h, for 60 s to %v h", ten, sixty)
	}
	if fast, sia := got["Philly: mean JCT, Sia, steps as short as measured"], got["Philly: Sia, mean JCT (Sia's paper)"]; fast >= sia {
		t.Errorf("steps as short as measured come to %v h, longer ones to %v h", fast, sia)
	}
}
