package reproduce

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// lucidFixture is profiles of three scores.
func lucidFixture(t *testing.T) *workload.Profiles {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "single_data.csv", "model,dataset,batchsize,amp,gpu_util,gmem,label",
		"Tiny,D,1,0,20,1000,0", "Medium,D,1,0,55,1000,1", "Jumbo,D,1,0,95,1000,2")
	write(t, dir, "colocate_info.csv", "model1,dataset1,batchsize1,amp1,speed1,model2,dataset2,batchsize2,amp2,speed2",
		"Tiny,D,1,0,1,Tiny,D,1,0,1", "Tiny,D,1,0,0.9,Medium,D,1,0,0.95", "Medium,D,1,0,0.8,Medium,D,1,0,0.8", "Medium,D,1,0,0.6,Jumbo,D,1,0,0.6",
		"Tiny,D,1,0,0.8,Jumbo,D,1,0,0.9", "Jumbo,D,1,0,0.5,Jumbo,D,1,0,0.5")
	p, err := workload.OpenProfiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A small load of Acme's shape: each arm ends all jobs; what is known changes what is done as it should.
func TestSchedmateLucid(t *testing.T) {
	p := lucidFixture(t)
	load := func(seed uint64) (lucidLoad, error) {
		return lucidLoad{nodes: 6, jobs: acmeShaped(300, 48, 0.9, seed), profilers: 1, profile: 100 * core.Second, mostGPUs: 8 * core.WholeGPU}, nil
	}
	table := &Table{}
	if err := compareLucid(context.Background(), &Options{}, table, p, "small", load, []uint64{1}); err != nil {
		t.Fatal(err)
	}
	if want := len(lucidArms) + 2; len(table.Rows) != want || len(table.Notes) != 1 {
		t.Fatalf("%d rows and %d notes, want %d and 1", len(table.Rows), len(table.Notes), want)
	}
	l, _ := load(1)
	plus, err := l.play(context.Background(), p, lucidArms[1].lucidArm, 1)
	if err != nil {
		t.Fatal(err)
	}
	qssf, _ := l.play(context.Background(), p, lucidArm{policy: "QSSF"}, 1)
	oracle, _ := l.play(context.Background(), p, lucidArm{policy: "Lucid", oracle: true}, 1)
	if plus.packed.Jobs == 0 || qssf.packed.Jobs != 0 || oracle.right != 1 || plus.right <= qssf.right {
		t.Errorf("with SchedMate %+v, QSSF %+v, Lucid that knows all %+v", plus, qssf, oracle)
	}
}

// What is measured of a profile is its score; an error in the utilization moves it to the score of such utilizations.
func TestSeen(t *testing.T) {
	p := lucidFixture(t)
	for _, c := range []struct {
		profile int
		err     float64
		want    core.SharingScore
	}{{1, 0, core.Medium}, {1, 0.1, core.Medium}, {1, 0.2, core.Jumbo}, {1, -0.3, core.Tiny}, {2, -0.35, core.Medium}, {2, 0.5, core.Jumbo}, {0, -0.9, core.Tiny}} {
		if got := seen(p, c.profile, c.err).Score; got != c.want {
			t.Errorf("profile %d with an error of %v counts as %d, want %d", c.profile, c.err, got, c.want)
		}
	}
}

// Lucid's estimate is the mean of the jobs of the queue and size that had ended; of the size; of all; an hour.
func TestRunningMeans(t *testing.T) {
	job := func(queue string, gpus, at, run int) workload.Job {
		j := drawnJob(0, core.Time(at)*core.Second, gpus, core.Time(run)*core.Second)
		j.Queue = queue
		return j
	}
	jobs := []workload.Job{job("a", 1, 0, 100), job("a", 1, 50, 300), job("b", 1, 150, 5), job("c", 8, 160, 5), job("a", 1, 400, 5), job("b", 1, 401, 5)}
	m := newRunningMeans(jobs)
	var got []string
	for i := range jobs {
		got = append(got, fmt.Sprint(m.before(&jobs[i]).Seconds()))
	}
	if want := "3600 3600 100 52.5 200 5"; strings.Join(got, " ") != want {
		t.Errorf("estimates %s, want %s", strings.Join(got, " "), want)
	}
}

// Saturn's jobs and virtual clusters are as published.
func TestSaturnShaped(t *testing.T) {
	jobs := saturnShaped(30, 1)
	var gpus, run float64
	single := 0
	var times []float64
	for i := range jobs {
		n := float64(jobs[i].GPUs() / core.WholeGPU)
		gpus += n / float64(len(jobs))
		run += jobs[i].Duration.Seconds() / float64(len(jobs))
		times = append(times, jobs[i].Duration.Seconds())
		if n == 1 {
			single++
		}
	}
	slices.Sort(times)
	if share := float64(single) / float64(len(jobs)); len(jobs) != 114573 || gpus < 3.8 || gpus > 4.1 || share < 0.7 || share > 0.716 {
		t.Errorf("%d jobs of %.2f GPUs, %.3f of them of one; want 114573 of 4.01, and 0.708", len(jobs), gpus, share)
	}
	if median := times[len(times)/2]; median < 119 || median > 129 || run < 3700 || run > 5800 { // none runs for more than two weeks
		t.Errorf("they run for %.0f s, %.0f s in the median; published are 5253 and 124", run, median)
	}
	vcs, all := saturnVCs(265), 0
	for _, vc := range vcs {
		all += vc.nodes
	}
	if len(vcs) != 23 || all != 265 || vcs[0].nodes != 34 || vcs[22].nodes != 8 {
		t.Errorf("%d virtual clusters of %d nodes: %v", len(vcs), all, vcs)
	}
}

// Half of the jobs end early, the others as before.
func TestExitEarly(t *testing.T) {
	var jobs []workload.Job
	for i := range 2000 {
		jobs = append(jobs, drawnJob(i, 0, 1, 1000*core.Second))
	}
	early, sum := 0, 0.0
	for i, j := range exitEarly(jobs, 1) {
		if jobs[i].Duration != 1000*core.Second {
			t.Fatal("the jobs themselves were changed")
		}
		if j.Duration < jobs[i].Duration {
			early++
			sum += j.Duration.Seconds()
		}
	}
	if mean := sum / float64(early); early < 920 || early > 1080 || mean < 460 || mean > 540 {
		t.Errorf("%d of 2000 jobs exit early, after %.0f s on average; want about 1000, after 500 s", early, mean)
	}
}

// The sizes of Venus come from the windows with one job.
func TestVenusShaped(t *testing.T) {
	rows := []string{"time,submit_gpu_job,submit_gpu_num", "2020-06-30 23:40:00,1,4", "2020-06-30 23:50:00,2,100"}
	for h := range 144 {
		rows = append(rows, fmt.Sprintf("2020-07-01 %02d:%02d:00,%d,16", h/6, h%6*10, h%3))
	}
	file := writeGzip(t, rows)
	jobs, err := venusShaped(file, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(jobs) != 144 {
		t.Errorf("%d jobs, want 144", len(jobs))
	}
	for _, j := range jobs {
		if g := j.GPUs() / core.WholeGPU; g != 4 && g != 16 {
			t.Errorf("job %s has %d GPUs, want 4 or 16", j.Name, g)
		}
	}
	if _, err := venusShaped(writeGzip(t, []string{"time,jobs", "1,2"}), 1, 1); !workload.IsBadInput(err) {
		t.Errorf("a file without the columns: %v", err)
	}
}

func writeGzip(t *testing.T, lines []string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	fmt.Fprintln(z, strings.Join(lines, "\n"))
	z.Close()
	path := filepath.Join(t.TempDir(), "x.csv.gz")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Virtual clusters have their share of the nodes, at least one, and jobs that fit.
func TestVirtualClusters(t *testing.T) {
	file := filepath.Join(t.TempDir(), venusVCFile)
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("vc,nodes\nbig,30\nsmall,9\ntiny,1\n")
	vcs, err := venusVCs(file, 20)
	if err != nil || !slices.Equal(vcs, []virtualCluster{{"big", 15}, {"small", 5}, {"tiny", 1}}) {
		t.Fatalf("%v, %v", vcs, err)
	}
	var jobs []workload.Job
	for i := range 300 {
		jobs = append(jobs, drawnJob(i, 0, []int{1, 16, 64}[i%3], core.Second))
	}
	assign(jobs, vcs, 1)
	in := map[string][3]int{}
	for i := range jobs {
		n := in[jobs[i].Queue]
		n[i%3]++
		in[jobs[i].Queue] = n
	}
	if b, s, y := in["big"], in["small"], in["tiny"]; b[2] != 100 || y[1] != 0 || s[1] < 10 || s[1] > 40 || y[0] == 0 {
		t.Errorf("jobs of 1, 16 and 64 GPUs: %v", in)
	}
	for _, bad := range []string{"vc,nodes\n", "vc,machines\na,1\n", "vc,nodes\na,0\n", "vc,nodes\na,b\n"} {
		write(bad)
		if _, err := venusVCs(file, 20); !workload.IsBadInput(err) {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}
