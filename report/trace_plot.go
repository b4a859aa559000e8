package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/muster-sched/muster/workload"
)

// printSpread writes the quantiles of a quantity, over all, by kind, by class
// and in further rows, each with a box plot on the logarithmic scale of all.
func printSpread(w io.Writer, title string, write func(float64) string, s *workload.Spread, further []workload.Distribution) {
	if s.Max == 0 {
		return
	}
	rows := slices.Concat([]workload.Distribution{{Name: "all", Quantiles: s.Quantiles}}, s.ByKind, s.ByClass, further)
	least, most := math.Inf(1), 0.0
	for i := range rows {
		if rows[i].P10 > 0 {
			least = min(least, rows[i].P10)
		}
		most = max(most, rows[i].P90)
	}
	fmt.Fprintf(w, "\n%s\t%6s\t%6s\t%6s\t%6s\t%6s\t%6s\t%6s\t\n", title, "mean", "p10", "p25", "p50", "p75", "p90", "p99")
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(w, "%s\t", r.Name)
		for _, v := range []float64{r.Mean, r.P10, r.P25, r.P50, r.P75, r.P90, r.P99} {
			fmt.Fprintf(w, "%6s\t", write(v))
		}
		fmt.Fprintf(w, "%s\n", box(&r.Quantiles, least, most))
	}
}

// box draws quantiles between least and most on a logarithmic scale: a line
// from p10 to p90, thick from p25 to p75, with a mark at the median.
func box(q *workload.Quantiles, least, most float64) string {
	const width = 24
	at := func(v float64) int {
		if v <= least || most <= least {
			return 0
		}
		return int(math.Round(math.Log(v/least) / math.Log(most/least) * (width - 1)))
	}
	line := []rune(strings.Repeat(" ", at(q.P90)+1))
	for i := at(q.P10); i <= at(q.P90); i++ {
		line[i] = '─'
	}
	for i := at(q.P25); i <= at(q.P75); i++ {
		line[i] = '▒'
	}
	line[at(q.P50)] = '█'
	return string(line)
}

// printWeek writes the demand of every kind over the hours of a week: the GPUs that jobs
// hold at a time, and those that are requested in an hour.
func printWeek(w io.Writer, s *workload.Summary) {
	if s.All.PeakGPUs == 0 {
		return
	}
	days := ""
	for day := range (len(s.Week[0].Running) + 23) / 24 {
		days += fmt.Sprintf("%-8s", fmt.Sprint("day ", day+1))
	}
	fmt.Fprintf(w, "\nGPUs wanted\t%7s\t%7s\t%7s\t%s\n", "mean", "HP", "peak", strings.TrimRight(days, " "))
	weeks := append([]workload.Week{together(s.Week)}, s.Week...)
	for _, k := range weeks {
		share := shareOf(s, k.Kind)
		fmt.Fprintf(w, "%s\t%7s\t%7s\t%7s\t%s\n", k.Kind, number(share.MeanGPUs), number(share.HPMeanGPUs), number(share.PeakGPUs), sparkline(k.Running))
	}
	fmt.Fprintf(w, "\nGPUs asked/h\t%7s\t%7s\t%7s\t%s\n", "mean", "", "", strings.TrimRight(days, " "))
	for _, k := range weeks {
		sum := 0.0
		for _, v := range k.Submitted {
			sum += v
		}
		fmt.Fprintf(w, "%s\t%7s\t%7s\t%7s\t%s\n", k.Kind, number(sum/float64(len(k.Submitted))), "", "", sparkline(k.Submitted))
	}
}

// together sums the weeks of the kinds, which are of one length.
func together(kinds []workload.Week) workload.Week {
	hours := len(kinds[0].Running)
	all := workload.Week{Kind: "all", Submitted: make([]float64, hours), Running: make([]float64, hours)}
	for _, k := range kinds {
		for i := range hours {
			all.Running[i] += k.Running[i]
			all.Submitted[i] += k.Submitted[i]
		}
	}
	return all
}

// shareOf returns the share of a kind, or that of all.
func shareOf(s *workload.Summary, kind string) workload.Share {
	for _, k := range s.Kinds {
		if k.Name == kind {
			return k
		}
	}
	return s.All
}

// sparkline draws hourly values, one character for three hours, from 0 up to the 98th
// percentile.
func sparkline(values []float64) string {
	const hours = 3
	var means []float64
	for part := range slices.Chunk(values, hours) {
		sum := 0.0
		for _, v := range part {
			sum += v
		}
		means = append(means, sum/float64(len(part)))
	}
	if len(means) == 0 {
		return ""
	}
	sorted := slices.Sorted(slices.Values(means))
	top := sorted[(len(sorted)*49+49)/50-1]
	line := ""
	for _, v := range means {
		step := 0
		if top > 0 {
			step = int(min(1, v/top)*8 + 0.5)
		}
		line += string([]rune(" ▁▂▃▄▅▆▇█")[step])
	}
	return line
}

// printAllocation writes demand as parts of a cluster: of the bars, the full part
// is HP.
func printAllocation(w io.Writer, list []workload.Allocation) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "\ncluster\t%9s\t%9s\t%9s\t%9s\t\n", "nodes", "GPUs", "HP", "HP+LP")
	for _, a := range list {
		full := strings.Repeat("█", int(a.HP*30+0.5))
		rest := strings.Repeat("░", max(0, int(a.All*30+0.5)-int(a.HP*30+0.5)))
		fmt.Fprintf(w, "%s\t%9s\t%9s\t%9s\t%9s\t%s\n", a.Name, Thousands(a.Nodes), Thousands(a.GPUs), percent(a.HP), percent(a.All), full+rest)
	}
}
