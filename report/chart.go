package report

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/muster-sched/muster/metrics"
)

// Chart draws GAR and GFR over time for a terminal, in width columns (at least
// 20).
func Chart(w io.Writer, r Run, width int) error {
	if len(r.Series) == 0 {
		return nil
	}
	columns := max(width, 20) - len(margin(""))
	for _, c := range []struct {
		name  string
		value func(metrics.Sample) float64
	}{{"GAR", metrics.Sample.GAR}, {"GFR", metrics.Sample.GFR}} {
		if err := area(w, c.name, resample(r.Series, columns, c.value)); err != nil {
			return err
		}
	}
	from, to := duration(r.Series[0].T.Seconds()), duration(r.Series[len(r.Series)-1].T.Seconds())
	gap := max(1, columns-len(from)-len(to))
	_, err := fmt.Fprintf(w, "%s%s%s%s\n", margin(""), from, strings.Repeat(" ", gap), to)
	return err
}

// chartRows is the height of a chart; a row shows eight levels.
const chartRows = 4

// area draws values from 0 up as a filled area, under a top that suits them.
func area(w io.Writer, name string, values []float64) error {
	blocks := []rune(" ▁▂▃▄▅▆▇█")
	top := ceiling(values)
	for row := chartRows - 1; row >= 0; row-- {
		label := ""
		switch row {
		case chartRows - 1:
			label = percent(top)
		case chartRows - 2:
			label = name
		case 0:
			label = percent(0)
		}
		line := make([]rune, len(values))
		for i, v := range values {
			level := int(math.Round(v/top*8*chartRows)) - 8*row
			line[i] = blocks[min(max(level, 0), 8)]
		}
		if _, err := fmt.Fprintln(w, margin(label)+strings.TrimRight(string(line), " ")); err != nil {
			return err
		}
	}
	return nil
}

func margin(label string) string { return fmt.Sprintf("%6s ", label) }

// ceiling returns the top of a scale for ratios: 100 %, or less when that
// would leave most of the scale empty.
func ceiling(values []float64) float64 {
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	for _, top := range []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5} {
		if most <= top {
			return top
		}
	}
	return 1
}

// resample returns the mean of a value in each of n equal parts of the time
// that rows cover. A part without a row repeats the one before it.
func resample(rows []metrics.Sample, n int, value func(metrics.Sample) float64) []float64 {
	sums, counts := make([]float64, n), make([]int, n)
	from := rows[0].T
	span := rows[len(rows)-1].T - from + 1
	for _, r := range rows {
		i := int(float64(r.T-from) / float64(span) * float64(n))
		sums[min(i, n-1)] += value(r)
		counts[min(i, n-1)]++
	}
	for i := range sums {
		switch {
		case counts[i] > 0:
			sums[i] /= float64(counts[i])
		case i > 0:
			sums[i] = sums[i-1]
		}
	}
	return sums
}
