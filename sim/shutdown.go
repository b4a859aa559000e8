package sim

import (
	"fmt"
	"math"

	"github.com/muster-sched/muster/core"
)

// Shutdown is how long evicted pods take from SIGTERM until they exit, if they are not killed
// before: log-normal, such that the mean, with those that are killed, and the 95th percentile
// are as given. ASI measured 13 s and 48 s, with pods killed after 60 s (§4.2).
type Shutdown struct{ Mean, P95 core.Time }

// p95 is the 95th percentile of the standard normal distribution.
const p95 = 1.6448536269514722

// Check reports why no pods can shut down so if they are killed after grace.
func (s Shutdown) Check(grace core.Time) error {
	if s == (Shutdown{}) {
		return nil
	}
	if s.Mean <= 0 || s.P95 <= s.Mean || s.P95 >= grace {
		return fmt.Errorf("expected a mean above 0, a 95th percentile above it, and a grace above both; found %gs, %gs and %gs",
			s.Mean.Seconds(), s.P95.Seconds(), grace.Seconds())
	}
	if least := s.bounded(grace, mostSigma); s.Mean.Seconds() < least {
		return fmt.Errorf("expected a mean of at least %.1fs with this 95th percentile and grace, found %gs", least, s.Mean.Seconds())
	}
	return nil
}

// mostSigma bounds how wide the distribution is.
const mostSigma = 4

// bounded returns the mean in seconds of the time until pods have exited or are killed, for a
// sigma of the distribution. It falls as sigma grows.
func (s Shutdown) bounded(grace core.Time, sigma float64) float64 {
	mu, bound := math.Log(s.P95.Seconds())-p95*sigma, grace.Seconds()
	below := func(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }
	z := (math.Log(bound) - mu) / sigma
	return math.Exp(mu+sigma*sigma/2)*below(z-sigma) + bound*(1-below(z))
}

// sigma returns the sigma with which the mean is as given.
func (s Shutdown) sigma(grace core.Time) float64 {
	low, high := 1e-3, float64(mostSigma)
	for range 60 {
		if mid := (low + high) / 2; s.bounded(grace, mid) > s.Mean.Seconds() {
			low = mid
		} else {
			high = mid
		}
	}
	return (low + high) / 2
}

// shutdown draws how long a pod takes to leave after its eviction, to the millisecond, and
// whether it was killed.
func (r *run) shutdown() (takes core.Time, killed bool) {
	s := r.Models.Shutdown
	if s == (Shutdown{}) {
		return r.Models.Grace, false
	}
	if r.sigma == 0 {
		r.sigma = s.sigma(r.Models.Grace)
	}
	x := s.P95.Seconds() * math.Exp(r.sigma*(r.exits.NormFloat64()-p95))
	if x >= r.Models.Grace.Seconds() {
		return r.Models.Grace, true
	}
	return core.Time(1+x*1000) * (core.Second / 1000), false
}
