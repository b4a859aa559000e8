package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/muster-sched/muster/metrics"
)

// A plot is what the template "plot" draws: marks in a frame, in the units of
// the SVG. We draw them ourselves because a plotting library fixes colours and
// fonts, and the page follows the reader's light or dark theme.
type plot struct {
	Title string
	Frame frame
	X, Y  []tick
	Lines []line
	Bars  []bar
}

// tick is a labelled position on an axis.
type tick struct {
	At    float64
	Label string
}

// line is a run's values over time; Color numbers the palette.
type line struct {
	Color  int
	Points string
}

// bar is a value of a class, with its figure as tooltip.
type bar struct {
	Color      int
	X, Y, W, H float64
	Tip        string
}

// palette is how many colours there are; further runs share them.
const palette = 8

// A frame is where in an SVG the marks are drawn. Axis labels are to the left
// of it and below.
type frame struct{ Left, Right, Top, Bottom float64 }

// Two of the narrow frames go side by side on the page.
var (
	narrow = frame{52, 506, 10, 180}
	wide   = frame{52, 1030, 10, 220}
)

// Width and Height are of the SVG around the frame.
func (f frame) Width() float64  { return f.Right + 10 }
func (f frame) Height() float64 { return f.Bottom + 24 }

// x and y place a value between from and to, or 0 and top, in the frame.
func (f frame) x(v, from, to float64) float64 {
	return f.Left + (v-from)/(to-from)*(f.Right-f.Left)
}
func (f frame) y(v, top float64) float64 { return f.Bottom - v/top*(f.Bottom-f.Top) }

// overTime plots a value of every run over time: shares of 1, or counts.
func overTime(title string, runs []Run, shares bool, value func(metrics.Sample) float64) plot {
	p := plot{Title: title, Frame: narrow}
	points := int(narrow.Right - narrow.Left)
	values := make([][]float64, len(runs))
	for i, r := range runs {
		if len(r.Series) > 0 {
			values[i] = resample(r.Series, min(points, len(r.Series)), value)
		}
	}
	all := slices.Concat(values...)
	top, label := ceiling(all), func(v float64) string { return fmt.Sprintf("%.3g%%", v*100) }
	if !shares {
		top, label = roundUp(all), short
	}
	for quarter := range 5 {
		v := top * float64(quarter) / 4
		p.Y = append(p.Y, tick{p.Frame.y(v, top), label(v)})
	}
	from, to := span(runs)
	p.X = timeTicks(p.Frame, from, to)
	for i, v := range values {
		if v != nil {
			p.Lines = append(p.Lines, line{i % palette, path(p.Frame, v, runs[i].Series, from, to, top)})
		}
	}
	return p
}

// span returns the first and last time of any run, in seconds.
func span(runs []Run) (from, to float64) {
	from = math.Inf(1)
	for _, r := range runs {
		if n := len(r.Series); n > 0 {
			from = min(from, r.Series[0].T.Seconds())
			to = max(to, r.Series[n-1].T.Seconds())
		}
	}
	if from >= to {
		return 0, max(to, 1)
	}
	return from, to
}

// path returns the points of a polyline: the values in the middle of equal
// parts of the time that rows cover.
func path(f frame, values []float64, rows []metrics.Sample, from, to, top float64) string {
	var b strings.Builder
	start, end := rows[0].T.Seconds(), rows[len(rows)-1].T.Seconds()
	for i, v := range values {
		t := start + (end-start)*(float64(i)+0.5)/float64(len(values))
		fmt.Fprintf(&b, "%.1f,%.1f ", f.x(t, from, to), f.y(v, top))
	}
	return strings.TrimSpace(b.String())
}

// roundUp returns a top for a scale of counts: 4, 8, 12 or 20 times a power
// of ten, so that quarters are whole.
func roundUp(values []float64) float64 {
	most := 4.0
	for _, v := range values {
		most = max(most, v)
	}
	for unit := 1.0; ; unit *= 10 {
		for _, top := range []float64{4, 8, 12, 20} {
			if most <= top*unit {
				return top * unit
			}
		}
	}
}

// timeTicks labels at most eight round times.
func timeTicks(f frame, from, to float64) []tick {
	const minute, hour, day = 60, 3600, 86400
	unit, name := 1.0, "s"
	steps := []float64{1, 2, 5, 10, 15, 30}
	switch length := to - from; {
	case length > 4*day:
		unit, name, steps = day, "d", []float64{1, 2, 5, 7, 14, 30, 60, 90, 180, 365}
	case length > 4*hour:
		unit, name, steps = hour, "h", []float64{1, 2, 3, 6, 12, 24}
	case length > 4*minute:
		unit, name, steps = minute, "m", []float64{1, 2, 5, 10, 15, 30, 60}
	}
	step := steps[len(steps)-1]
	for _, s := range steps {
		if (to-from)/(s*unit) <= 8 {
			step = s
			break
		}
	}
	var ticks []tick
	for t := math.Ceil(from / unit / step); t*step*unit <= to; t++ {
		ticks = append(ticks, tick{f.x(t*step*unit, from, to), fmt.Sprintf("%g%s", t*step, name)})
	}
	return ticks
}

// group is the bars of one colour: a value for every class that has one.
type group struct {
	name  string
	value func(class string) (seconds float64, ok bool)
}

// waitGroups returns what the waiting time plot compares: runs by their mean,
// or of one run its median, mean and 99th percentile.
func waitGroups(runs []Run) []group {
	of := func(r *Run, name string, pick func(metrics.Waiting) float64) group {
		return group{name, func(class string) (float64, bool) {
			if w := wait(&r.Summary, class); w != nil {
				return pick(*w), true
			}
			return 0, false
		}}
	}
	mean := func(w metrics.Waiting) float64 { return w.Mean }
	if len(runs) == 1 {
		return []group{
			of(&runs[0], "median", func(w metrics.Waiting) float64 { return w.P50 }),
			of(&runs[0], "mean", mean),
			of(&runs[0], "99th percentile", func(w metrics.Waiting) float64 { return w.P99 }),
		}
	}
	var all []group
	for i := range runs {
		all = append(all, of(&runs[i], runs[i].Name, mean))
	}
	return all
}

// waitMarks are the labelled waits of the logarithmic scale.
var waitMarks = []tick{
	{1, "1s"}, {10, "10s"}, {60, "1m"}, {600, "10m"}, {3600, "1h"}, {36000, "10h"},
	{10 * 86400, "10d"}, {100 * 86400, "100d"}, {1000 * 86400, "1000d"},
}

// waitsBySize plots the groups' bars class by class, on a logarithmic scale from a
// second up. Shorter waits have no bar.
func waitsBySize(groups []group) plot {
	p := plot{Title: "Waiting time by GPUs of the job", Frame: wide}
	present, most := classesOf(groups)
	level := func(v float64) float64 { return math.Log(max(v, 1)) }
	top := level(most) * 1.05
	for _, m := range waitMarks {
		if m.At <= most {
			p.Y = append(p.Y, tick{p.Frame.y(level(m.At), top), m.Label})
		}
	}
	slot := (p.Frame.Right - p.Frame.Left) / float64(max(len(present), 1))
	width := slot * 0.8 / float64(max(len(groups), 1))
	for c, class := range present {
		left := p.Frame.Left + slot*(float64(c)+0.1)
		p.X = append(p.X, tick{left + slot*0.4, class})
		for i, g := range groups {
			v, ok := g.value(class)
			if !ok {
				continue
			}
			y := p.Frame.y(level(v), top)
			p.Bars = append(p.Bars, bar{
				Color: i % palette, X: left + width*float64(i), Y: y, W: max(width-1, 0.5), H: p.Frame.Bottom - y,
				Tip: fmt.Sprintf("%s GPUs, %s: %s", class, g.name, duration(v)),
			})
		}
	}
	return p
}

// classesOf returns the classes for which a group has a value, and the greatest
// value, a minute at least.
func classesOf(groups []group) (present []string, most float64) {
	most = 60
	for _, class := range metrics.Classes {
		used := false
		for _, g := range groups {
			v, ok := g.value(class)
			used = used || ok
			most = max(most, v)
		}
		if used {
			present = append(present, class)
		}
	}
	return present, most
}
