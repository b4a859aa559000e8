package workload

import (
	"math"
	"math/rand/v2"

	"github.com/muster-sched/muster/core"
)

// The pattern of asi-standby. Published are only that Standby GPU-hours "surge at midnight to as
// much as 10,000" (Fig. 16) and that owners of online services lend. Assumed are who lends, from
// when until when: a share of the HP online services with whole GPUs, from about 23:00 until about
// 6:30, each at its own times. The share is such that some 10,000 GPUs are lent at midnight.
const (
	asiStandbyShare = 0.22
	asiStandbyBegin = 23 * hour
	asiStandbyEnd   = 30.5 * hour
	asiStandbySigma = 0.75 * hour
)

// asiStandbyJobs generates the jobs of asi, some of which lend their GPUs at night.
func asiStandbyJobs(o *Options) nextJob {
	jobs := asiJobs(o)
	rng := rand.New(rand.NewPCG(o.Seed, 0x7374616e646279)) // "standby"
	near := func(at float64) core.Time {
		return core.Time(math.Round(at+asiStandbySigma*max(-2, min(2, rng.NormFloat64())))) * core.Second
	}
	return func() (Job, int, error) {
		j, line, err := jobs()
		if err == nil && j.Kind == core.Inference && j.Class == core.HP && j.Tasks[0].GPU >= core.WholeGPU && rng.Float64() < asiStandbyShare {
			j.Standby = []Window{{From: near(asiStandbyBegin), Until: near(asiStandbyEnd), Daily: true}}
		}
		return j, line, err
	}
}
