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

// FairUsersText writes how fair runs were between the users of each queue, and for a single run its users and what they lacked over time.
func FairUsersText(w io.Writer, runs []Run, over []metrics.FairRow) error {
	fmt.Fprintf(w, "GPU time received to deserved, by the users of each queue: what they deserved and lack, and its mean over time, what they received of it at\n"+
		"the time (met), lowest and highest index and their quotient, Gini coefficient.\n\n")
	t := new(table.Table)
	t.Add("run", "users", "lack", "mean", "met", "lowest", "highest", "max/min", "Gini")
	for i := range runs {
		f := runs[i].Summary.Fairness
		if f == nil || f.Users == nil {
			t.Add(runs[i].Name, "no job names its user")
			continue
		}
		u := f.Users
		t.Add(runs[i].Name, count(int64(u.Users)), percent(u.Unfairness), percent(u.Mean), percent(u.Met), ratio(u.Min), ratio(u.Max), short(u.MaxMin), ratio(u.Gini))
	}
	if err := t.Write(w, 0); err != nil {
		return err
	}
	f := runs[0].Summary.Fairness
	if len(runs) > 1 || f == nil || f.Users == nil {
		return nil
	}
	fmt.Fprintln(w)
	if err := fairUsers(f).Write(w, 0); err != nil || len(over) < 2 {
		return err
	}
	t = new(table.Table)
	rows := someOf(over)
	addTimes(t, "after", rows)
	addLack(t, "users lack", rows, func(r *metrics.FairRow) float64 { return r.Users })
	fmt.Fprintln(w)
	return t.Write(w, 0)
}

// fairUsers has a row a user, by queue and name.
func fairUsers(f *metrics.Fairness) *table.Table {
	t := &table.Table{Align: "ll"}
	t.Add("queue", "user", "jobs", "received GPU-h", "deserved GPU-h", "index", "met", "rho mean")
	for _, u := range f.ByUser {
		name := u.User
		if name == "" {
			name = "(none)"
		}
		t.Add(u.Queue, name, count(u.Jobs), fmt.Sprintf("%.1f", u.Received), fmt.Sprintf("%.1f", u.Deserved), ratio(u.Index), percent(u.Met), ratio(u.Rho))
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
	rows := someOf(over)
	addTimes(t, "index after", rows)
	addLack(t, "queues lack", rows, func(r *metrics.FairRow) float64 { return r.Tenants })
	addLack(t, "jobs lack", rows, func(r *metrics.FairRow) float64 { return r.Jobs })
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

// someOf returns fairTimes rows of all, at most.
func someOf(over []metrics.FairRow) []metrics.FairRow {
	var rows []metrics.FairRow
	for k := range fairTimes {
		row := over[(k+1)*(len(over)-1)/fairTimes]
		if len(rows) == 0 || rows[len(rows)-1].T != row.T {
			rows = append(rows, row)
		}
	}
	return rows
}

// addTimes adds the header of a table over time.
func addTimes(t *table.Table, of string, rows []metrics.FairRow) {
	header := []string{of}
	for i := range rows {
		header = append(header, duration(rows[i].T.Seconds()))
	}
	t.Add(header...)
}

// addLack adds what some lacked over time.
func addLack(t *table.Table, who string, rows []metrics.FairRow, lack func(*metrics.FairRow) float64) {
	cells := []string{who}
	for i := range rows {
		cells = append(cells, percent(lack(&rows[i])))
	}
	t.Add(cells...)
}
