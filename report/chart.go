package report

import "github.com/muster-sched/muster/metrics"

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
