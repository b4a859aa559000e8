// Package report shows runs: as tables on a terminal, and as a page with charts.
package report

import (
	_ "embed"
	"html/template"
	"io"

	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/workload"
)

// Run is a run to report on.
type Run struct {
	// Name tells it from the others; by default its policy.
	Name    string
	Summary metrics.Summary
	// Series is the state over time, as timeseries.csv has it.
	Series []metrics.Sample
	// Cluster is what it ran on; runs on a page may share it.
	Cluster *workload.Cluster
	// History is what nodes, in the order of Cluster, and queues held over time.
	History metrics.History
	// Longest is the longest waits.
	Longest []metrics.LongWait
}

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"percent":  percent,
	"duration": duration,
	"count":    count,
	"short":    short,
	"color":    func(i int) int { return i % palette },
}).Parse(pageText))

// page is what the template shows.
type page struct {
	Runs   []Run
	One    *Run // the only run
	Plots  []plot
	Waits  plot
	Groups []string // the colours of Waits
	JWTD   table
	JTTED  table
}

// HTML writes one page about one run, or comparing several. It needs nothing
// but itself: no network, no script.
func HTML(w io.Writer, runs []Run) error {
	p := page{
		Runs: runs,
		Plots: []plot{
			overTime("GPUs allocated (GAR)", runs, true, metrics.Sample.GAR),
			overTime("Nodes fragmented (GFR)", runs, true, metrics.Sample.GFR),
			overTime("Jobs pending", runs, false, func(s metrics.Sample) float64 { return float64(s.Pending) }),
			overTime("Jobs running", runs, false, func(s metrics.Sample) float64 { return float64(s.Running) }),
		},
	}
	groups := waitGroups(runs)
	p.Waits = waitsBySize(groups)
	for _, g := range groups {
		p.Groups = append(p.Groups, g.name)
	}
	if len(runs) == 1 {
		p.One = &runs[0]
		p.JWTD = classes(&runs[0].Summary)
	} else {
		p.JWTD, p.JTTED = waits(runs), distances(runs)
	}
	return pageTemplate.Execute(w, p)
}
