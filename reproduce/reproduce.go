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
	"text/tabwriter"

	"github.com/muster-sched/muster/workload"
)

// Options say how to run an experiment.
type Options struct {
	// Traces is the folder of the public traces.
	Traces string
	// Progress, when set, is told what is being done.
	Progress func(what string)

	// Nodes, Pods, Policies and Seeds replace an experiment's own cluster,
	// workloads, policies and seeds where it takes others; empty keeps its own.
	Nodes          string
	Pods, Policies []string
	Seeds          []int64
}

// Result is what an experiment comes to.
type Result interface {
	// Text writes it for people, JSON for programs.
	Text(io.Writer) error
	JSON(io.Writer) error
	// Passed reports whether every figure is within its band.
	Passed() bool
}

// Experiment is a published experiment that can be run again.
type Experiment struct {
	Name, Title string
	Run         func(context.Context, Options) (Result, error)
}

// All lists the experiments in the order in which help shows them.
var All = []Experiment{phillyQueueing, openbFGD, asiShape}

// Table is a result that compares figures.
type Table struct {
	// Caption says what was run and against what.
	Caption string `json:"caption"`
	Rows    []Row  `json:"rows"`
	// Notes explain the differences, a paragraph each.
	Notes []string `json:"notes,omitempty"`
}

// Row is one figure, theirs and ours.
type Row struct {
	Figure string  `json:"figure"`
	Paper  float64 `json:"paper"`
	Ours   float64 `json:"ours"`
	Unit   string  `json:"unit"`
	// Within says whether ours is within the band that the experiment allows.
	Within bool   `json:"within_band"`
	Note   string `json:"note,omitempty"`
}

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
	fmt.Fprintln(tw, "figure\ttheirs\tours\tdifference\tin band\t")
	for _, r := range t.Rows {
		in := "yes"
		switch {
		case !r.Within:
			in = "NO"
		case r.Note != "":
			in = "see note"
		}
		fmt.Fprintf(tw, "%s\t%s %s\t%s %s\t%+.2f %%\t%s\t\n", r.Figure, number(r.Paper), r.Unit, number(r.Ours), r.Unit, 100*(r.Ours/r.Paper-1), in)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
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

// number writes x, with two decimals when it is below a hundred and has some.
func number(x float64) string {
	if math.Abs(x) >= 100 || x == math.Trunc(x) {
		return fmt.Sprintf("%.0f", x)
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
		return "", &workload.Error{File: path, Want: fmt.Sprintf("the trace that the experiment needs (%s), and it is not there; --traces or $MUSTER_TRACES names the folder", origin)}
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

// say tells what is being done.
func (o *Options) say(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}
