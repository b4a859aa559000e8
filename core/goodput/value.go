package goodput

import "math"

// Objective is how much a configuration is worth, by its goodput. Sia's own: Power -0.5 and Runs 1.1 (§3.4 and §5; the authors' simulator).
type Objective struct {
	// Power is p, not 0: of a goodput g, relative to the job's smallest one, g^p counts. The lower p is, the more even are the jobs.
	Power float64
	// Runs is how much it counts that a job runs at all. If Power is below 0, Runs is above 1: else no job would run.
	Runs float64
}

// SiaObjective is that of Sia's authors.
var SiaObjective = Objective{Power: -0.5, Runs: 1.1}

// scale is how many units of a value are 1.
const scale = 1_000_000

// Value returns what a configuration is worth, in millionths: its goodput is at least about 1, relative to the job's smallest one, and
// multiplied by [RestartFactor] if the job would have to restart. A goodput of 0 is worth least.
func (o Objective) Value(goodput float64) int64 {
	v := math.Pow(max(goodput, 1e-4), o.Power)
	if o.Power < 0 {
		v = -v
	}
	return int64(math.Round(scale * (o.Runs + v)))
}

// RestartFactor is how much of its goodput a job keeps, if it restarts once more each time as often as it did (Pollux, OSDI 2021, §4.2.1;
// Sia §3.4): age is the time since it was submitted and cost what a restart takes, in the same unit. A job that is younger than
// a restart takes has lost nothing yet.
func RestartFactor(age float64, restarts int, cost float64) float64 {
	if age < cost {
		return 1
	}
	return max(0, age-float64(restarts)*cost) / (age + cost)
}
