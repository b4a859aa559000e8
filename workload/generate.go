package workload

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"github.com/muster-sched/muster/core"
)

// Builtin is a cluster and a workload that are generated from a seed.
type Builtin struct {
	// Name is its name for OpenCluster and OpenJobs.
	Name string
	// Title describes it in one line.
	Title string
}

// generator generates a cluster and a workload for it. The same options give the same
// result on the same processor architecture; on others, logarithms may round differently.
type generator struct {
	Builtin
	cluster func(*Options) Cluster
	jobs    func(*Options) nextJob
}

// generators lists every built-in.
var generators = []generator{
	{
		Builtin{"kant-training", "8,000 homogeneous GPUs for LLM training, jobs of 1 to 2,048 GPUs (Kant §5.1)"},
		kantTrainingCluster, kantTrainingJobs,
	},
	{
		Builtin{"kant-inference", "192 GPUs of two models for the inference services of 8 tenants (Kant §5.2, cluster i2)"},
		kantI2.cluster, kantI2.jobs,
	},
	{
		Builtin{"kant-inference-i7", "1,024 GPUs of three models, 20 tenants, some services over eight nodes (Kant §5.2, i7)"},
		kantI7.cluster, kantI7.jobs,
	},
	{
		Builtin{"kant-inference-a10", "88 GPUs of two models, 5 tenants (Kant §5.2, cluster a10)"},
		kantA10.cluster, kantA10.jobs,
	},
	{
		Builtin{"asi", "155,410 GPUs of twelve models, 14 million jobs of all kinds in six months (ASI §2, §3)"},
		asiCluster, asiJobs,
	},
	{
		Builtin{"asi-cpu", "asi with jobs without GPUs on its nodes: 80 % of nodes are CPU-job-dominant (ASI §5.2)"},
		asiCluster, asiCPUJobs,
	},
	{
		Builtin{"spot", "10,412 GPUs of six models, HP and spot jobs (the Alibaba spot-GPU fleet; ASI §4.2)"},
		spotFleetCluster, spotJobs,
	},
	{
		Builtin{"asi-standby", "asi, where online services lend some 10,000 GPUs at midnight (ASI §4.2, Fig. 16)"},
		asiCluster, asiStandbyJobs,
	},
	{
		Builtin{"philly-tenants", "400 GPUs, 11 tenants whose demand is not their weight, jobs as in a week of Philly"},
		phillyTenants.cluster, phillyTenants.jobs,
	},
	{
		Builtin{"venus-tenants", "1,080 GPUs, 15 tenants of different size, jobs as in Helios' cluster Venus"},
		venusTenants.cluster, venusTenants.jobs,
	},
}

// Builtins returns the built-in clusters and workloads, for help texts.
func Builtins() []Builtin {
	all := make([]Builtin, len(generators))
	for i := range generators {
		all[i] = generators[i].Builtin
	}
	return all
}

// builtin returns the generator of that name, or nil.
func builtin(name string) *generator {
	for i := range generators {
		if generators[i].Name == name {
			return &generators[i]
		}
	}
	return nil
}

// check returns an error for parameters out of range.
func (g *generator) check(o *Options) error {
	wrong := func(field, want string, found any) error {
		return &Error{File: g.Name, Field: field, Want: fmt.Sprintf("%s, found %v", want, found)}
	}
	switch {
	case o.Format != "":
		return wrong("format", "none for a built-in", o.Format)
	case !o.FromWall.IsZero() || !o.ToWall.IsZero():
		return wrong("wall clock", "no selection by it of a built-in", o.FromWall.Format(time.DateTime))
	case !(o.Load >= 0 && o.Load <= 10):
		return wrong("load", "a load above 0 and up to 10", o.Load)
	case !(o.CPULoad >= 0 && o.CPULoad <= 1):
		return wrong("CPU load", "a share above 0 and up to 1", o.CPULoad)
	case o.CPULoad > 0 && g.Name != "asi-cpu":
		return wrong("CPU load", "none but for asi-cpu", o.CPULoad)
	case o.Length < 0 || o.Length > Endless/100:
		return wrong("length", fmt.Sprintf("0..%v s", (Endless/100).Seconds()), o.Length.Seconds())
	case o.GPUs < 0 || o.GPUs > maxNodes*gpusPerNode:
		return wrong("gpus", fmt.Sprintf("0..%d", maxNodes*gpusPerNode), o.GPUs)
	}
	return nil
}

// or returns v, or the default if v is zero.
func or[T comparable](v, usual T) T {
	var zero T
	if v == zero {
		return usual
	}
	return v
}

// slice is a nextJob over generated jobs.
func slice(jobs []Job) nextJob {
	return func() (Job, int, error) {
		if len(jobs) == 0 {
			return Job{}, 0, io.EOF
		}
		j := jobs[0]
		jobs = jobs[1:]
		return j, 0, nil
	}
}

// logNormal is a distribution of durations, in seconds, by its median and its
// sigma.
type logNormal struct{ median, sigma float64 }

// mean is the mean of the distribution.
func (d logNormal) mean() float64 { return d.median * math.Exp(d.sigma*d.sigma/2) }

// quantile returns the duration below which a share p, 0 < p < 1, of all durations are.
func (d logNormal) quantile(p float64) float64 {
	return d.median * math.Exp(d.sigma*math.Sqrt2*math.Erfinv(2*p-1))
}

// seconds returns s seconds, at least one, rounded to whole seconds so that files show no
// false precision.
func seconds(s float64) core.Time { return core.Time(max(1, math.Round(s))) * core.Second }

// pick returns an index of weights, with a probability proportional to its weight.
func pick(rng *rand.Rand, weights []float64) int {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	at := rng.Float64() * sum
	for i, w := range weights {
		if at -= w; at < 0 {
			return i
		}
	}
	return len(weights) - 1
}
