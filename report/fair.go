package report

import (
	"fmt"
	"io"

	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/metrics"
)

// FairText writes how fair runs were: for each one its figures, and for a single run its queues and
// their indexes over time, too.
func FairText(w io.Writer, runs []Run, over []metrics.FairRow) error {
	fmt.Fprintf(w, "GPU time received to deserved. Queues: what they deserved and lack, and its mean over time, what they received of it at the time (met),\n"+
		"lowest and highest index and their quotient, Gini coefficient; jobs: what they lack, finish-time fairness (rho), and the share of those above 1.\n\n")
	if err := fairness(runs).Write(w, 0); err != nil {
		return err
	}
	if len(runs) > 1 || runs[0].Summary.Fairness == nil {
		return nil
	}
	fmt.Fprintln(w)
	f := runs[0].Summary.Fairness
	if err := fairQueues(f).Write(w, 0); err != nil {
		return err
	}
	return fairOver(w, f, over)
}

// fairness has a row a run.
func fairness(runs []Run) *table.Table {
	t := new(table.Table)
	t.Add("", "queues", "", "", "", "", "", "", "jobs", "", "", "", "", "JCT")
	t.Add("run", "lack", "mean", "met", "lowest", "highest", "max/min", "Gini", "lack", "rho mean", "p99", "max", "late", "mean")
	for i := range runs {
		s := &runs[i].Summary
		f := s.Fairness
		if f == nil {
			t.Add(runs[i].Name, "no job with GPUs")
			continue
		}
		q, j := &f.Tenants, &f.Jobs
		t.Add(runs[i].Name, percent(q.Unfairness), percent(q.Mean), percent(q.Met), ratio(q.Min), ratio(q.Max), short(q.MaxMin), ratio(q.Gini),
			percent(j.Unfairness), ratio(j.Rho.Mean), short(j.Rho.P99), short(j.Rho.Max), percent(j.Late), duration(s.JCT.Mean))
	}
	return t
}

// fairQueues has a row a queue, in the order of the cluster.
func fairQueues(f *metrics.Fairness) *table.Table {
	t := &table.Table{Align: "ll"}
	t.Add("queue", "in", "weight", "jobs", "received GPU-h", "deserved GPU-h", "index", "met", "rho mean")
	for _, q := range f.Queues {
		name, jobs, rho := q.Queue, "", ""
		if q.Own {
			name += " (its own jobs)"
		}
		if q.Jobs > 0 {
			jobs, rho = count(q.Jobs), ratio(q.Rho)
		}
		t.Add(name, q.Parent, count(q.Weight), jobs, fmt.Sprintf("%.1f", q.Received), fmt.Sprintf("%.1f", q.Deserved), ratio(q.Index), percent(q.Met), rho)
	}
	return t
}

// fairTimes is how many times fairOver shows.
const fairTimes = 8

// fairOver writes the indexes of queues over time, and what queues and jobs lacked.
func fairOver(w io.Writer, f *metrics.Fairness, over []metrics.FairRow) error {
	if len(over) < 2 {
		return nil
	}
	t := new(table.Table)
	header := []string{"index after"}
	var rows []metrics.FairRow
	for k := range fairTimes {
		row := over[(k+1)*(len(over)-1)/fairTimes]
		if len(rows) > 0 && rows[len(rows)-1].T == row.T {
			continue
		}
		rows = append(rows, row)
		header = append(header, duration(row.T.Seconds()))
	}
	t.Add(header...)
	for _, of := range []struct {
		what string
		lack func(*metrics.FairRow) float64
	}{{"queues lack", func(r *metrics.FairRow) float64 { return r.Tenants }}, {"jobs lack", func(r *metrics.FairRow) float64 { return r.Jobs }}} {
		cells := []string{of.what}
		for i := range rows {
			cells = append(cells, percent(of.lack(&rows[i])))
		}
		t.Add(cells...)
	}
	for _, q := range f.Queues {
		if q.Jobs == 0 {
			continue
		}
		cells := []string{q.Queue}
		for _, row := range rows {
			cell := ""
			for _, x := range row.Queues {
				if x.Queue == q.Queue && x.Own == q.Own && x.Deserved > 0 {
					cell = ratio(x.Index)
				}
			}
			cells = append(cells, cell)
		}
		t.Add(cells...)
	}
	fmt.Fprintln(w)
	return t.Write(w, 0)
}
