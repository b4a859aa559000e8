package reproduce

import (
	"context"
	"fmt"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// The experiment runs on any jobs of Philly's form, and says where they differ from the figures.
func TestPhillyPreemption(t *testing.T) {
	lines := []string{"job_id,submit_s,submit_time,gpus,duration_s,run_s,vc"}
	for i := range 50 {
		lines = append(lines, fmt.Sprintf("%d,%d,2017-10-02 00:%02d:00,%d,%d,,", i, 4149180+60*i, i, 1<<(i%6), 600+i))
	}
	dir := t.TempDir()
	write(t, dir, "philly/jobs.csv.gz", lines...)
	r, err := phillyPreemption.Run(context.Background(), Options{Traces: dir, Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	rows := r.(*Table).Rows
	if len(rows) != 16 || r.Passed() {
		t.Errorf("%d rows, passed %v; want 16 rows that do not pass", len(rows), r.Passed())
	}
	for _, row := range rows {
		if row.Ours < 600 || row.Ours > 700 || !row.Rerun {
			t.Errorf("%s is %.0f s, of a rerun: %v; all jobs fit at once, and run for 600 to 649 s", row.Figure, row.Ours, row.Rerun)
		}
	}
}

// The model counts GPUs before it looks for places, and looks once a minute.
func TestCountFirst(t *testing.T) {
	job := func(name string, at, gpus, run int) workload.Job {
		return workload.Job{Job: core.Job{Name: name, Submitted: core.Time(at) * core.Second, Gang: true, Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: core.Milli(gpus) * core.WholeGPU}}}},
			Duration: core.Time(run) * core.Second}
	}
	s := phillySet{cluster: "1x8"}
	jobs := []workload.Job{job("a", 0, 8, 1000), job("b", 60, 8, 100)}
	// a is preempted at 60 s, b ends at 160 s, and a goes on at 180 s with 940 s and 40 s for the preemption.
	if got := s.countFirst(jobs, remaining, false); got != (1160+100)/2 {
		t.Errorf("mean JCT %v, want 630", got)
	}
	// By level, a has attained 8 x 60 GPU-seconds and stays. b waits for it until 1000 s, and starts at 1020 s.
	if got := s.countFirst(jobs, tiresiasLevel, false); got != (1000+1060)/2 {
		t.Errorf("mean JCT %v, want 1030", got)
	}
	// Two nodes of 8: three jobs of 5 GPUs are counted, two find places. Filled, one of 3 takes what is left.
	s.cluster = "2x8"
	jobs = []workload.Job{job("a", 0, 5, 100), job("b", 0, 5, 100), job("c", 0, 5, 100), job("d", 0, 3, 100)}
	if got, filled := s.countFirst(jobs, tiresiasLevel, false), s.countFirst(jobs, tiresiasLevel, true); got != (100+100+220+220)/4 || filled != (100+100+220+100)/4 {
		t.Errorf("mean JCT %v, and %v filled, want 160 and 130", got, filled)
	}
}

// Jobs that come while none waits are tried by their GPUs, others by GPU time.
func TestSortNewByGPUs(t *testing.T) {
	job := func(at, gpus, run int) workload.Job {
		return workload.Job{Job: core.Job{Submitted: core.Time(at) * core.Second, Gang: true, Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: core.Milli(gpus) * core.WholeGPU}}}},
			Duration: core.Time(run) * core.Second}
	}
	s := phillySet{cluster: "1x8"}
	// The two of 0 s: the one of 4 GPUs first, then the one of 8, which waits until 1000 s; by GPU time it would be the other way round.
	two := []workload.Job{job(0, 8, 100), job(0, 4, 1000)}
	if got := s.sortNewByGPUs(two); got != (1100+1000)/2 {
		t.Errorf("mean JCT %v, want 1050", got)
	}
	// At 10 s the one of 8 waits. Those that come are tried by GPU time: the one of 100 s before it, the one of 4000 s behind.
	more := append(two, job(10, 2, 100), job(10, 1, 4000))
	if got := s.sortNewByGPUs(more); got != (1100+1000+100+1090+4000)/4.0 {
		t.Errorf("mean JCT %v, want 1822.5", got)
	}
}
