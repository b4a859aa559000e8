// Package report shows runs: as tables and plots on a terminal, and as a page.
package report

import (
	"io"

	"github.com/muster-sched/muster/metrics"
)

// Run is a run to report on.
type Run struct {
	// Name tells it from the others; by default its policy.
	Name    string
	Summary metrics.Summary
	// Series is the state over time, as timeseries.csv has it.
	Series []metrics.Sample
}

// HTML writes a page.
func HTML(w io.Writer, runs []Run) error { return nil }
