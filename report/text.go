package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/metrics"
)

// screen is the width that tables keep to, in characters.
const screen = 100

// Text writes runs for a terminal 100 columns wide: one in full, several side
// by side.
func Text(w io.Writer, runs []Run) error {
	if len(runs) == 1 {
		return one(w, &runs[0])
	}
	return several(w, runs)
}

func one(w io.Writer, r *Run) error {
	s := &r.Summary
	if _, err := fmt.Fprintf(w, "%s\n\n", title(r)); err != nil {
		return err
	}
	if err := figures(s).Write(w, screen); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := facts(s).Write(w, screen); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nWaiting time (JWTD) and distance from the fewest nodes and groups (JTTED), by GPUs of the job\n\n")
	if err := classes(s).Write(w, screen); err != nil {
		return err
	}
	if t := s.Topology; t != nil && t.Gangs > 0 {
		fmt.Fprintf(w, "\nGangs over several leaf groups: %s of %s, mean entropy of all %.2f; %.1f %% of their GPUs outside the largest part of the gang\n",
			count(t.Spanning), count(t.Gangs), t.Entropy, 100*t.CrossGPUs/t.GPUs)
	}
	if s.HPForecast != nil {
		fmt.Fprintf(w, "\nGPUs of HP jobs, and by how many their forecast differs on average; beside it, a guess that they stay as they are\n\n")
		if err := forecast(s).Write(w, screen); err != nil {
			return err
		}
	}
	if s.Fragmentation != nil {
		fmt.Fprintf(w, "\nIdle GPUs, by what becomes of them for pods of a shape, and jobs that would fit (fragmentation)\n\n")
		if err := idle(s.Fragmentation).Write(w, screen); err != nil {
			return err
		}
		for _, j := range s.Fragmentation.Jobs {
			fmt.Fprintf(w, "Jobs of %s that would fit: %s in one leaf group, %s across\n", j.Job, short(j.Within), short(j.Across))
		}
	}
	_, err := fmt.Fprintf(w, "\nGAR, SOR and GFR are averages from %s to %s: %s.\nDecisions have SHA-256 %s.\n",
		duration(s.Window.From), duration(s.Window.To), s.Window.Is, s.DecisionSHA256)
	return err
}

func title(r *Run) string {
	s := &r.Summary
	t := fmt.Sprintf("%s, seed %d: %s jobs in %s", r.Name, s.Seed, count(s.Jobs.Submitted), duration(s.VirtualSeconds))
	if s.Interrupted {
		t += " (interrupted)"
	}
	return t
}

func figures(s *metrics.Summary) *table.Table {
	t := new(table.Table)
	t.Add("", "mean", "p5", "p50", "p90", "p95", "p99")
	t.Add("GPUs allocated (GAR)", percent(s.GAR.Mean), percent(s.GAR.P5), percent(s.GAR.P50), "", percent(s.GAR.P95))
	t.Add("GPU-hours allocated (SOR)", percent(s.SOR))
	t.Add("Nodes fragmented (GFR)", percent(s.GFR.Mean), percent(s.GFR.P5), percent(s.GFR.P50), "", percent(s.GFR.P95))
	for _, x := range []struct {
		name string
		metrics.Times
	}{{"Waiting, all of it", s.Queueing}, {"Submission to end (JCT)", s.JCT}} {
		t.Add(x.name, duration(x.Mean), "", duration(x.P50), duration(x.P90), "", duration(x.P99))
	}
	return t
}

// facts are the figures that are one number or two.
func facts(s *metrics.Summary) *table.Table {
	t := new(table.Table)
	j := &s.Jobs
	t.Add("Jobs completed, failed, cancelled", count(j.Completed), count(j.Failed), count(j.Cancelled))
	t.Add("Jobs running, pending, rejected", count(j.Running), count(j.Pending), count(j.Rejected))
	t.Add("Preemptions, migrations, GPU-hours lost", count(s.Preemptions), count(s.Migrations), short(s.LostGPUHours))
	if s.Suspensions > 0 {
		t.Add("Suspensions", count(s.Suspensions))
	}
	if f := s.Fairness; f != nil && f.Tenants.Tenants > 1 {
		t.Add("GPU time that queues lack, lowest index, Gini", percent(f.Tenants.Unfairness), ratio(f.Tenants.Min), ratio(f.Tenants.Gini))
	}
	if f := s.Fairness; f != nil && f.Users != nil && f.Users.Users > 1 {
		t.Add("GPU time that users lack, lowest index, Gini", percent(f.Users.Unfairness), ratio(f.Users.Min), ratio(f.Users.Gini))
	}
	if f := s.Fairness; f != nil {
		t.Add("Finish-time fairness of jobs, mean, P99", ratio(f.Jobs.Rho.Mean), short(f.Jobs.Rho.P99))
	}
	if e := s.Evictions; e != nil && e.P95 > 0 {
		t.Add("Evicted pods left after, mean, P95; killed", duration(e.Mean), duration(e.P95), percent(e.Killed))
	}
	if b := s.Standby; b != nil {
		t.Add("Standby GPU-hours lent, harvested, share", short(b.GPUHours), short(b.Harvested), percent(b.Ratio))
		t.Add("Pods resumed; after, mean, P95, at most", count(b.Resumptions), duration(b.Mean), duration(b.P95), duration(b.Max))
	}
	if c := s.CPU; c != nil {
		t.Add("Core-hours of jobs without GPUs", short(c.CPUOnlyCoreHours))
		t.Add("Training, in GPU-hours; lost to those", short(c.TrainingGPUHours), percent(c.SlowedGPUHours/max(c.TrainingGPUHours, 1e-9)))
		t.Add("Nodes CPU-job-dominant; cores in use, P50", percent(c.Dominant), percent(c.Utilization))
	}
	if f := s.Failures; f != nil {
		t.Add("Runs that failed, their GPU-hours", count(int64(f.Failures)), short(f.GPUHours))
		t.Add("Diagnosed; restarted, held", count(int64(f.Detected)), count(int64(f.Restarted)), count(int64(f.Held)))
		t.Add("Nodes faulty; cordoned for that, repaired", count(int64(f.Faults)), count(int64(f.Cordoned)), count(int64(f.Uncordoned)))
		if f.Tested > 0 {
			t.Add("Nodes tested; passed", count(int64(f.Tested)), count(int64(f.Passed)))
		}
	}
	if p := s.Packed; p != nil {
		t.Add("Starts on the GPUs of another job; cancelled", count(int64(p.Jobs)), count(int64(p.Cancelled)))
	}
	if s.MigrationGPUHours > 0 {
		t.Add("GPU-hours of second places", short(s.MigrationGPUHours))
	}
	if d := s.Defragmentation; d != nil {
		t.Add("Plans of moves, vacated nodes", count(int64(d.Plans)), count(int64(d.Vacated)))
		t.Add("Their GPU-hours gained, held twice, net", short(d.Gained), short(d.Double), short(d.Net))
		if d.Restarts > 0 {
			t.Add("Pods restarted by them, GPU-hours repeated", count(int64(d.Restarts)), short(d.Lost))
		}
	}
	t.Add("Decisions, in all and per second", count(s.Decisions), short(s.DecisionsPerSecond))
	t.Add("Makespan", duration(s.MakespanSeconds))
	t.Add("Wall time and memory", duration(s.WallSeconds), short(s.PeakRSSMiB)+"MiB")
	return t
}

func classes(s *metrics.Summary) *table.Table {
	t := new(table.Table)
	t.Add("GPUs", "jobs", "mean", "p50", "p90", "p99", "nodes", "groups")
	for _, w := range s.JWTD {
		row := []string{w.Class, count(w.Jobs), duration(w.Mean), duration(w.P50), duration(w.P90), duration(w.P99)}
		if d := distance(s, w.Class); d != nil {
			row = append(row, ratio(d.NodeRatio), ratio(d.GroupRatio))
		} else {
			row = append(row, "", "")
		}
		t.Add(row...)
	}
	return t
}

// idle is the fragmentation by cause.
func idle(f *metrics.Fragmentation) *table.Table {
	t := new(table.Table)
	t.Add("shape", "idle", "allocatable", "fractional", "stranded", "CPU", "topology", "other", "unusable")
	for _, s := range f.Shapes {
		t.Add(s.Shape, short(s.IdleGPUs), short(s.Allocatable), short(s.Fractional), short(s.Stranded), short(s.CPU), short(s.Topology), short(s.Other), short(s.Unusable))
	}
	return t
}

// distance returns the JTTED entry of a class, nil when there is none.
func distance(s *metrics.Summary, class string) *metrics.Distance {
	for i := range s.JTTED {
		if s.JTTED[i].Class == class {
			return &s.JTTED[i]
		}
	}
	return nil
}

// wait returns the JWTD entry of a class, nil when there is none.
func wait(s *metrics.Summary, class string) *metrics.Waiting {
	for i := range s.JWTD {
		if s.JWTD[i].Class == class {
			return &s.JWTD[i]
		}
	}
	return nil
}

func ratio(x float64) string { return fmt.Sprintf("%.3f", x) }

// nameWidth keeps the comparison within 100 columns.
const nameWidth = 16

func several(w io.Writer, runs []Run) error {
	if err := comparison(runs).Write(w, screen); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nWaiting time (JWTD), mean and p99, by GPUs of the job\n\n")
	for part := range chunks(runs, 5) {
		if err := waits(part).Write(w, screen); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "Nodes and leaf groups used to the fewest possible (JTTED)\n\n")
	for part := range chunks(runs, 5) {
		if err := distances(part).Write(w, screen); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	return nil
}

// chunks yields at most n runs at a time.
func chunks(runs []Run, n int) func(yield func([]Run) bool) {
	return func(yield func([]Run) bool) {
		for len(runs) > 0 {
			k := min(n, len(runs))
			if !yield(runs[:k]) {
				return
			}
			runs = runs[k:]
		}
	}
}

// comparison has a row a run; waiting is all waiting of a job.
func comparison(runs []Run) *table.Table {
	t := new(table.Table)
	t.Add("", "", "", "", "wait", "wait", "wait", "JCT", "pre-", "lost", "com-", "dec.")
	t.Add("policy", "GAR", "SOR", "GFR", "mean", "p50", "p99", "mean", "empted", "GPU-h", "pleted", "per s")
	for i := range runs {
		s := &runs[i].Summary
		t.Add(table.Shorten(runs[i].Name, nameWidth), percent(s.GAR.Mean), percent(s.SOR), percent(s.GFR.Mean),
			duration(s.Queueing.Mean), duration(s.Queueing.P50), duration(s.Queueing.P99), duration(s.JCT.Mean),
			short(float64(s.Preemptions)), short(s.LostGPUHours), short(float64(s.Jobs.Completed)), short(s.DecisionsPerSecond))
	}
	return t
}

// waits has a row a class and a column a run.
func waits(runs []Run) *table.Table {
	return byClass(runs, func(s *metrics.Summary, class string) string {
		if w := wait(s, class); w != nil {
			return duration(w.Mean) + " " + pad(duration(w.P99), 6)
		}
		return ""
	})
}

func distances(runs []Run) *table.Table {
	return byClass(runs, func(s *metrics.Summary, class string) string {
		if d := distance(s, class); d != nil {
			return ratio(d.NodeRatio) + " " + pad(ratio(d.GroupRatio), 6)
		}
		return ""
	})
}

func pad(s string, width int) string { return fmt.Sprintf("%*s", width, s) }

// byClass has a row for every class that any run has a cell for.
func byClass(runs []Run, cell func(s *metrics.Summary, class string) string) *table.Table {
	t := new(table.Table)
	header := []string{"GPUs"}
	for i := range runs {
		header = append(header, table.Shorten(runs[i].Name, nameWidth))
	}
	t.Add(header...)
	for _, class := range metrics.Classes {
		row := []string{class}
		for i := range runs {
			row = append(row, cell(&runs[i].Summary, class))
		}
		if strings.Join(row[1:], "") != "" {
			t.Add(row...)
		}
	}
	return t
}
