// Package report shows runs as tables on a terminal, and runs, workloads and experiments
// as self-contained pages with plots.
package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/workload"
)

// Run is a run to report on.
type Run struct {
	// Name distinguishes it from other runs; by default it is the policy.
	Name    string
	Summary metrics.Summary
	// Series is the state over time, as timeseries.csv has it.
	Series []metrics.Sample
	// Cluster is what it ran on. Without it, there is no map and no quota.
	Cluster *workload.Cluster
	// History is what nodes, in the order of Cluster, and queues held over time.
	History metrics.History
	// Forecast is what HP jobs held and were expected to hold, if that was forecast.
	Forecast []metrics.HPSample
	// Longest is the longest waits.
	Longest []metrics.LongWait
}

// The script and the style of the page, and the licences of what the script
// includes. They are made from web/src by web/build.js.
var (
	//go:embed web/dist/page.js
	script string
	//go:embed web/dist/page.css
	style string
	//go:embed web/dist/LICENCES.txt
	licences string
)

// pageBytes is the maximum size of a page: somewhat less than 5 MB.
const pageBytes = 4_900_000

// HTML writes a self-contained page about one run, or one that compares several. The page
// is less than 5 MB: frames get the bytes that the rest leaves.
func HTML(w io.Writer, runs []Run) error {
	var names []string
	for i := range runs {
		names = append(names, runs[i].Name)
	}
	p, err := newPage(runs)
	if err != nil {
		return err
	}
	rest, err := json.Marshal(p)
	if err != nil {
		return err
	}
	budget := pageBytes - len(rest) - len(script) - len(style) - len(licences)
	if err := p.addFrames(runs, budget); err != nil {
		return err
	}
	return write(w, strings.Join(names, ", "), p)
}

// write writes a page with the data that its script shows. Neither the JSON nor
// the script has a "<" that could end its element: encoding/json and the
// bundler escape it.
func write(w io.Writer, title string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Muster: %s</title>
<style>
%s</style>
</head>
<body>
<noscript>This page draws its plots with a script, which is part of it. Please allow scripts.</noscript>
<main id="page"></main>
<footer>
<p>Made by Muster. The plots are drawn by Apache ECharts, which is part of this page.</p>
<details><summary>Licences</summary><pre>%s</pre></details>
</footer>
<script type="application/json" id="data">%s</script>
<script>
%s</script>
</body>
</html>
`, html.EscapeString(title), style, html.EscapeString(licences), text, script)
	return err
}
