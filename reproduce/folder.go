package reproduce

import (
	"context"
	"errors"
	"io"

	"github.com/muster-sched/muster/report"
	"github.com/muster-sched/muster/runlog"
)

// The folder of an experiment contains a page, the figures as --json prints them and, if
// the experiment keeps runs, a folder of runs with a page of its own.
const (
	Page    = runlog.Page
	Figures = "figures.json"
	Runs    = "runs"
)

// Run runs the experiment. If o.Out is set, it is checked first, and receives the
// results.
func (e *Experiment) Run(ctx context.Context, o Options) (Result, error) {
	if o.Out == "" {
		return e.run(ctx, o)
	}
	folder, err := runlog.OpenFolder(o.Out)
	if err != nil {
		return nil, err
	}
	r, err := e.runIn(ctx, folder, o)
	if err != nil {
		return nil, errors.Join(err, folder.Discard())
	}
	return r, folder.Commit()
}

func (e *Experiment) runIn(ctx context.Context, folder *runlog.Folder, o Options) (Result, error) {
	if err := folder.Claim(Page, Figures); err != nil {
		return nil, err
	}
	o.folder = folder
	r, err := e.run(ctx, o)
	if err != nil {
		return nil, err
	}
	return r, e.keep(r, folder)
}

// keep writes the page and the figures into folder.
func (e *Experiment) keep(r Result, folder *runlog.Folder) error {
	page := r.Report()
	page.Name, page.Title = e.Name, e.Title
	if e.makesRuns {
		page.Runs = Runs + "/" + runlog.Page
	}
	if err := folder.Write(Figures, r.JSON); err != nil {
		return err
	}
	return folder.Write(Page, func(w io.Writer) error { return report.ExperimentHTML(w, &page) })
}

// Report returns what a page shows of the table.
func (t *Table) Report() report.Experiment {
	e := report.Experiment{
		Caption: t.Caption, Theirs: t.theirs(), Tally: t.tally(), Notes: t.Notes, Workload: t.workload, Stacks: t.stacks, TradeOffs: t.tradeOffs,
	}
	for i := range t.Rows {
		r := &t.Rows[i]
		f := report.Figure{
			Name: r.Figure, Ours: r.Ours, Unit: r.Unit, Bound: r.Bound, Low: r.Low, High: r.High, How: r.How, Within: r.Within, Note: r.Note,
			TheirsText: r.theirs(), OursText: r.ours(), DifferenceText: r.difference(),
		}
		f.Judged = r.judged() && !r.Input
		if r.Input {
			f.How = "input, does not count: " + f.How
		}
		if r.told() {
			f.Theirs = &r.Paper
		} else {
			f.Bound = ""
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
