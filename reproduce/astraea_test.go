package reproduce

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// Half a day of both built-in loads: Astraea is fairer than a strict queue, as the rows and the page say.
func TestAstraea(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	var loads []*fairLoad
	for _, name := range []string{"philly-tenants", "venus-tenants"} {
		loads = append(loads, &fairLoad{name: name, cluster: name, seeds: []int64{1}, jobs: func(seed uint64) (workload.Jobs, error) {
			jobs, _, err := workload.OpenJobs(name, workload.Options{Seed: seed, Load: 4, Length: 8 * 3600 * core.Second})
			return jobs, err
		}})
	}
	arms, err := fairArms(loads, []string{"StrictFIFO", "BestEffortFIFO"})
	if err != nil {
		t.Fatal(err)
	}
	if err := runFairArms(context.Background(), &Options{}, arms); err != nil {
		t.Fatal(err)
	}
	table := fairTable(arms, "here")
	if len(table.Rows) != 12 || len(table.Notes) != 2*(3+len(fairJobs)+len(fairLeases))+3 {
		t.Errorf("%d rows, %d notes", len(table.Rows), len(table.Notes))
	}
	for _, r := range table.Rows {
		if strings.Contains(r.Figure, "lack") && r.Ours < 1 {
			t.Errorf("%s: %.2f, want at least 1", r.Figure, r.Ours)
		}
	}
	if page := table.Report(); len(page.Stacks) != 4 || len(page.TradeOffs) != 6 || len(page.TradeOffs[1].Lines[0].Points) == 0 {
		t.Errorf("the page has %d stacks, %d plots; %+v over time", len(page.Stacks), len(page.TradeOffs), page.TradeOffs[1].Lines[0])
	}
}

// Philly's jobs are those of the trace, if there is one; jobs without a virtual cluster belong to one, and all save their progress.
func TestPhillyLoad(t *testing.T) {
	dir := t.TempDir()
	lines := []string{"job_id,submit_s,submit_time,gpus,duration_s,run_s,vc"}
	for i, vc := range []string{"", "6214e9", "795a4c"} {
		lines = append(lines, fmt.Sprintf("%d,%d,2017-10-02 00:%02d:00,1,600,,%s", i, 4149180+60*i, i, vc))
	}
	write(t, dir, "philly/jobs.csv.gz", lines...)
	load, where, err := (&Options{Traces: dir}).phillyLoad()
	if err != nil || !strings.Contains(where, "(3)") {
		t.Fatalf("%q, %v", where, err)
	}
	jobs, _ := load.jobs(0)
	var got []string
	for j, err := range jobs {
		if err != nil || j.Checkpoint != fairSaves {
			t.Errorf("job %s saves every %v, %v", j.Name, j.Checkpoint, err)
		}
		got = append(got, fmt.Sprint(j.Queue, j.Submitted.Seconds()))
	}
	if s := strings.Join(got, " "); s != "0e4a510 6214e960 795a4c120" {
		t.Errorf("jobs of queues at %s", s)
	}

	// Without the trace the experiment runs on jobs of that shape, but not if its folder is misspelt.
	load, where, err = (&Options{Traces: t.TempDir()}).phillyLoad()
	if err != nil || !strings.Contains(where, "the trace is not there") || len(load.seeds) != 3 {
		t.Errorf("without the trace: %q, %v", where, err)
	}
	if _, _, err = (&Options{Traces: "nowhere"}).phillyLoad(); !workload.IsBadInput(err) {
		t.Errorf("without its folder: %v", err)
	}
	if _, err := fairArms([]*fairLoad{load}, []string{"none"}); !workload.IsBadInput(err) {
		t.Errorf("an unknown policy: %v", err)
	}
}
