// Package reproduce runs published experiments again and sets our figures
// beside the published ones.
package reproduce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/muster-sched/muster/report"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/workload"
)

// Options say how to run an experiment.
type Options struct {
	// Traces is the folder of the public traces.
	Traces string
	// Progress, if set, receives progress messages.
	Progress func(what string)

	// Nodes, Pods, Policies and Seeds replace an experiment's own cluster,
	// workloads, policies and seeds where it takes others; empty keeps its own.
	Nodes          string
	Pods, Policies []string
	Seeds          []int64

	// Full makes an experiment that works with samples take more of them.
	Full bool
	// Out, when set, is the folder that receives the page and the figures, and
	// the runs of the first seed with a page that compares them, if there are runs.
	// It must be new, empty, or written by Muster before.
	Out string

	folder *runlog.Folder // of Out
}

// Result is the result of an experiment.
type Result interface {
	// Text writes it for people, JSON for programs.
	Text(io.Writer) error
	JSON(io.Writer) error
	// Passed reports whether every figure is within its band.
	Passed() bool
	// Report returns what a page shows of it, but for the experiment's name.
	Report() report.Experiment
}

// Experiment is a published experiment that can be run again.
type Experiment struct {
	Name, Title string
	run         func(context.Context, Options) (Result, error)
	// Takes names the flags of muster reproduce, beside --out and --json, that it
	// uses.
	Takes []string
	// makesRuns tells that it makes runs, which Options.Out keeps.
	makesRuns bool
}

// All lists the experiments in the order in which help shows them.
var All = []Experiment{phillyQueueing, phillyPreemption, openbFGD, kantTraining, kantInference, asiShape, asiFragmentation, asiTopology, asiIPC, asiCPU, asiAdoption, asiPairs, asiSpot, asiStandby, astraea, schedmateLucid, schedmateSia, schedmateFailures, schedmateModules, schedmateStandalone, tesseraPlanner, tesseraPipeline, tesseraMonitor, tesseraNetwork}

// Table is a result that compares figures.
type Table struct {
	// Caption says what was run and against what.
	Caption string `json:"caption"`
	Rows    []Row  `json:"rows"`
	// Notes explain the differences, a paragraph each.
	Notes []string `json:"notes,omitempty"`
	// workload describes the jobs, nil when they are not what is compared.
	workload *workload.Summary
	// stacks are plots of the page.
	stacks []report.Stack
	// tradeOffs are plots of the page.
	tradeOffs []report.TradeOff
}

// Row is one figure, theirs and ours.
type Row struct {
	Figure string `json:"figure"`
	// Paper is the reference figure. Rerun is set if it is not from the paper: it is what
	// the authors' code gave when the authors of Muster ran it.
	Paper float64 `json:"paper"`
	Rerun bool    `json:"-"`
	// Claim is what the paper says where it gives no figure: Paper is then no figure, and
	// the band is our reading of the claim.
	Claim string  `json:"claim,omitempty"`
	Ours  float64 `json:"ours"`
	Unit  string  `json:"unit"`
	// Bound says what Paper is if it is not a figure to match: "above" or "below" if our
	// figure should be on that side of it, or "none" if the paper gives no figure.
	Bound string `json:"bound,omitempty"`
	// How says what is within the band, Low and High bound it; nil where it is
	// open.
	How  string   `json:"how_compared,omitempty"`
	Low  *float64 `json:"band_low,omitempty"`
	High *float64 `json:"band_high,omitempty"`
	// Input is set if the figure is an input of the workload: it follows from what we generate,
	// and not from what the scheduler does. Such a row does not count as reproduced.
	Input bool `json:"input,omitempty"`
	// Within says whether ours is within the band that the experiment allows.
	Within bool   `json:"within_band"`
	Note   string `json:"note,omitempty"`
}

// MarshalJSON writes their figure as paper or, of a rerun, as authors_code, if
// there is one, and within_band of figures and claims alone.
func (r Row) MarshalJSON() ([]byte, error) {
	type row Row
	x := struct {
		row
		Paper  *float64 `json:"paper,omitempty"`
		Code   *float64 `json:"authors_code,omitempty"`
		Bound  string   `json:"bound,omitempty"`
		Within *bool    `json:"within_band,omitempty"`
	}{row: row(r)}
	switch {
	case !r.told():
	case r.Rerun:
		x.Code, x.Bound = &r.Paper, r.Bound
	default:
		x.Paper, x.Bound = &r.Paper, r.Bound
	}
	if r.judged() || !r.Within {
		x.Within = &r.Within
	}
	return json.Marshal(x)
}

// told reports whether there is a reference figure.
func (r *Row) told() bool { return r.Bound != "none" && r.Claim == "" }

// judged reports whether there is something of theirs to compare with.
func (r *Row) judged() bool { return r.Bound != "none" }

// JSON writes the rows alone.
func (t *Table) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(t.Rows)
}

// Text writes the table for people.
func (t *Table) Text(w io.Writer) error {
	fmt.Fprintln(w, t.Caption)
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "figure\t%s\tours\tdifference\tin band\thow compared\t\n", t.theirs())
	for _, r := range t.Rows {
		in := "yes"
		switch {
		case !r.Within:
			in = "NO"
		case !r.judged():
			in = "-"
		case r.Input:
			in = "input"
		case r.Note != "":
			in = "see note"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Figure, r.theirs(), r.ours(), r.difference(), in, r.How)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s\n", t.tally())
	for _, r := range t.Rows {
		if r.Note != "" {
			fmt.Fprintf(w, "\n%s: %s.\n", r.Figure, r.Note)
		}
	}
	for _, n := range t.Notes {
		if _, err := fmt.Fprintf(w, "\n%s\n", n); err != nil {
			return err
		}
	}
	return nil
}

// theirs says whose the figures are that ours are compared with.
func (t *Table) theirs() string {
	whose := "paper"
	for i := range t.Rows {
		switch r := &t.Rows[i]; {
		case !r.judged():
		case !r.Rerun:
			return "paper"
		default:
			whose = "authors' code, our run"
		}
	}
	return whose
}

// tally says how many figures are within their bands, and how many claims hold.
func (t *Table) tally() string {
	var figures, claims, reruns [2]int // all, and those within
	none, inputs := 0, 0
	for i := range t.Rows {
		r := &t.Rows[i]
		of := &figures
		switch {
		case !r.judged():
			none++
			continue
		case r.Input:
			inputs++
			continue
		case r.Claim != "":
			of = &claims
		case r.Rerun:
			of = &reruns
		}
		of[0]++
		if r.Within {
			of[1]++
		}
	}
	var parts []string
	if figures[0] > 0 || reruns[0] == 0 {
		parts = append(parts, fmt.Sprintf("Published figures within their bands: %d of %d.", figures[1], figures[0]))
	}
	if reruns[0] > 0 {
		parts = append(parts, fmt.Sprintf("Figures of the authors' code (none of them is published) within their bands: %d of %d.", reruns[1], reruns[0]))
	}
	text := strings.Join(parts, " ")
	if claims[0] > 0 {
		text += fmt.Sprintf(" Claims of the paper without a figure that hold: %d of %d.", claims[1], claims[0])
	}
	if inputs > 0 {
		text += fmt.Sprintf(" Inputs of the workload, which do not count: %d.", inputs)
	}
	if none > 0 {
		text += fmt.Sprintf(" Rows without a published value, which do not count: %d.", none)
	}
	return text
}

// theirs formats the reference figure.
func (r *Row) theirs() string {
	switch {
	case r.Claim != "":
		return `"` + r.Claim + `"`
	case r.Bound == "none":
		return ""
	}
	return strings.TrimSpace(r.Bound+" "+number(r.Paper)) + " " + r.Unit
}

// ours spells ours.
func (r *Row) ours() string { return number(r.Ours) + " " + r.Unit }

// difference spells how far ours is from a figure of theirs.
func (r *Row) difference() string {
	if r.Bound != "" || r.Paper == 0 || !r.told() {
		return ""
	}
	d := 100 * (r.Ours/r.Paper - 1)
	if math.Abs(d) < 0.005 {
		return "0.00 %"
	}
	return fmt.Sprintf("%+.2f %%", d)
}

// number spells a figure with three digits or, from 100 on, as a whole number.
func number(x float64) string {
	switch size := math.Abs(x); {
	case size >= 99.95 || x == math.Trunc(x):
		return fmt.Sprintf("%.0f", x)
	case size >= 9.995:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// Passed reports whether every row is within its band.
func (t *Table) Passed() bool {
	for _, r := range t.Rows {
		if !r.Within {
			return false
		}
	}
	return true
}

// near reports whether ours differs from theirs by at most a share of theirs.
func near(ours, theirs, share float64) bool {
	return math.Abs(ours-theirs) <= share*math.Abs(theirs)
}

// trace returns the path of a file of the public traces, or says what is
// missing and where it would be looked for.
func (o *Options) trace(name, origin string) (string, error) {
	path := filepath.Join(o.Traces, filepath.FromSlash(name))
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", &workload.Error{File: path, Want: fmt.Sprintf("the trace of the experiment (%s), found none; set its folder with --traces or $MUSTER_TRACES", origin)}
	}
	return path, nil
}

// readJobs reads a whole workload.
func readJobs(file string, o workload.Options) ([]workload.Job, error) {
	seq, _, err := workload.OpenJobs(file, o)
	if err != nil {
		return nil, err
	}
	var jobs []workload.Job
	for j, err := range seq {
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// say reports progress.
func (o *Options) say(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}
