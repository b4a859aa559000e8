package reproduce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/muster-sched/muster/report"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/workload"
)

// What the folder of an experiment holds: a page, the figures as --json prints
// them, and a folder of runs, with a page of its own, if it keeps some.
const (
	Page    = runlog.Page
	Figures = "figures.json"
	Runs    = "runs"
)

// Run runs the experiment. When o.Out is set, it is checked first, and receives
// what the experiment comes to.
func (e *Experiment) Run(ctx context.Context, o Options) (Result, error) {
	if o.Out == "" {
		return e.run(ctx, o)
	}
	if err := openFolder(o.Out); err != nil {
		return nil, err
	}
	r, err := e.run(ctx, o)
	if err != nil {
		os.Remove(o.Out) // if nothing was written
		return nil, err
	}
	return r, e.keep(r, o.Out)
}

// openFolder makes dir ready. It refuses, as bad input, a dir that holds anything
// but what experiments leave.
func openFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return &workload.Error{File: dir, Want: "a folder that can be written; found: " + cause(err)}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return &workload.Error{File: dir, Want: "a folder that can be read; found: " + cause(err)}
	}
	for _, e := range entries {
		switch e.Name() {
		case Page, Figures, Runs:
		default:
			return &workload.Error{File: dir, Want: fmt.Sprintf("an empty folder or one of an earlier experiment (%s, %s, %s); found %s", Page, Figures, Runs, e.Name())}
		}
	}
	return nil
}

// cause is err without the path, which the message names already.
func cause(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// keep writes the page and the figures into dir.
func (e *Experiment) keep(r Result, dir string) error {
	page := r.Report()
	page.Name, page.Title = e.Name, e.Title
	if e.makesRuns {
		page.Runs = Runs + "/" + runlog.Page
	}
	for _, f := range []struct {
		name string
		fill func(io.Writer) error
	}{
		{Figures, r.JSON},
		{Page, func(w io.Writer) error { return report.ExperimentHTML(w, &page) }},
	} {
		file, err := os.Create(filepath.Join(dir, f.name))
		if err != nil {
			return err
		}
		if err := errors.Join(f.fill(file), file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Report returns what a page shows of the table.
func (t *Table) Report() report.Experiment {
	e := report.Experiment{Caption: t.Caption, Notes: t.Notes, Workload: t.workload}
	for i := range t.Rows {
		r := &t.Rows[i]
		f := report.Figure{
			Name: r.Figure, Ours: r.Ours, Unit: r.Unit, Bound: r.Bound, Low: r.Low, High: r.High, How: r.How, Within: r.Within, Note: r.Note,
			TheirsText: r.theirs(), OursText: r.ours(), DifferenceText: r.difference(),
		}
		if r.Bound == "none" {
			f.Bound = ""
		} else {
			f.Theirs = &r.Paper
		}
		e.Figures = append(e.Figures, f)
	}
	return e
}

// Report returns what a page shows of the fillings.
func (r *Inflation) Report() report.Experiment {
	e := report.Experiment{Caption: inflationCaption}
	for _, l := range r.Lists {
		list := report.PodList{Name: l.List}
		for i := range l.Rows {
			x := &l.Rows[i]
			list.Fillings = append(list.Fillings, report.Filling{
				Policy: x.Policy, Curve: x.curve, Std: x.Std, Published: x.Published, Goal: x.Goal, How: x.how(), Verdict: x.Verdict,
			})
		}
		e.Lists = append(e.Lists, list)
	}
	return e
}
