package metrics

import "math"

// A Histogram counts durations in buckets whose bounds grow by 1 %, so that its memory is
// bounded for any number of durations. Quantiles err by at most 0.5 % of their value; the
// mean is exact. Durations below a nanosecond count as 0. The zero value is empty.
type Histogram struct {
	zero    int64
	buckets []int64 // bucket i holds [least·growth^i, least·growth^(i+1))
	n       int64
	sum     float64
}

const (
	least  = 1e-9 // seconds
	growth = 1.01
)

var logGrowth = math.Log(growth)

// Add counts a duration of s seconds. Negative ones count as 0.
func (h *Histogram) Add(s float64) {
	h.n++
	if s < least {
		h.zero++
		return
	}
	h.sum += s
	i := int(math.Log(s/least) / logGrowth)
	if i >= len(h.buckets) {
		h.buckets = append(h.buckets, make([]int64, i+1-len(h.buckets))...)
	}
	h.buckets[i]++
}

// Count returns the number of durations that were added.
func (h *Histogram) Count() int64 { return h.n }

// Mean returns the mean in seconds, 0 when the histogram is empty.
func (h *Histogram) Mean() float64 {
	if h.n == 0 {
		return 0
	}
	return h.sum / float64(h.n)
}

// Quantile returns the smallest duration in seconds that at least the share q
// (0..1) of all does not exceed; 0 when the histogram is empty.
func (h *Histogram) Quantile(q float64) float64 {
	rank := int64(math.Ceil(q * float64(h.n)))
	seen := h.zero
	if rank <= seen {
		return 0
	}
	for i, n := range h.buckets {
		seen += n
		if seen >= rank {
			return least * math.Exp((float64(i)+0.5)*logGrowth)
		}
	}
	return 0
}

// clone returns a copy that can be added to without changing h.
func (h *Histogram) clone() *Histogram {
	c := *h
	c.buckets = append([]int64(nil), h.buckets...)
	return &c
}

// times returns what summary.json contains of h.
func (h *Histogram) times() Times {
	return Times{Mean: h.Mean(), P50: h.Quantile(0.50), P90: h.Quantile(0.90), P99: h.Quantile(0.99)}
}
