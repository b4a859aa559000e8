package workload

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/muster-sched/muster/core"
)

// Two clusters of many tenants whose demand is not what their weights are: for studies of
// fairness where the public traces are missing, or have no jobs.

// tenantMix is a trainingMix whose jobs belong to such tenants.
type tenantMix struct {
	trainingMix
	of []tenantOf
}

// tenantOf is a tenant: its weight, and its share of the jobs, relative to the others'. Its jobs come in
// bursts: of a day, as many as an exponential random number says.
type tenantOf struct {
	name   string
	weight int64
	demand float64
}

// phillyTenants is shaped after a week of Philly (2017-10-01 to 10-07) with the jobs of at most two days: sizes, run times and demand of
// the virtual clusters as in the trace, with their weights of ASTRAEA's simulator. The jobs that name no
// virtual cluster are 0e4a51's, as in our run of that simulator.
var phillyTenants = tenantMix{
	trainingMix: trainingMix{
		gpus: 400, model: "P100", leafSize: 16, spineSize: 8,
		load: 0.91, length: 7 * 24 * 3600 * core.Second, day: 0.3,
		cpuMilli: 5_000, memMiB: 50 << 10, checkpoint: 300 * core.Second, longest: 172_800 * core.Second,
		sizes: []sizeClass{
			{1, 92.0, logNormal{1491, 1.41}},
			{2, 1.9, logNormal{300, 2.56}},
			{4, 2.0, logNormal{2535, 2.23}},
			{8, 3.6, logNormal{4216, 1.98}},
			{16, 0.19, logNormal{643, 2.70}},
			{32, 0.26, logNormal{20_000, 0.99}},
			{64, 0.05, logNormal{1392, 0.45}},
		},
	},
	of: []tenantOf{
		{"6214e9", 2690, 10.0}, {"7f04ca", 2568, 4.0}, {"11cb48", 2666, 0.4}, {"ee9e8c", 2690, 11.6},
		{"e13805", 2558, 0.2}, {"6c71a0", 2670, 10.3}, {"2869ce", 2558, 19.1}, {"ed69ec", 1926, 2.3}, {"103959", 1804, 0.3},
		{"0e4a51", 2578, 41.7}, {"b436b2", 2600, 0.1}, {"23dbec", 88, 0}, {"795a4c", 36, 0}, {"51b7ef", 544, 0}, {"925e2b", 80, 0},
	},
}

// venusTenants is shaped after Helios' cluster Venus in 2020: the nodes of its 15 virtual clusters, which are also their weights; the mean
// GPUs of a job (6.7) and the mean and median run time (13,041 s and 204 s). The demand of virtual clusters
// for their nodes is that of 15 of the cluster Earth.
var venusTenants = tenantMix{
	trainingMix: trainingMix{
		gpus: 1080, model: "V100", leafSize: 16, spineSize: 9,
		load: 0.95, length: 7 * 24 * 3600 * core.Second, day: 0.3,
		cpuMilli: 5_000, memMiB: 50 << 10, checkpoint: 300 * core.Second, longest: 5 * 24 * 3600 * core.Second,
		sizes: []sizeClass{
			{1, 52.3, logNormal{204, 2.88}},
			{2, 8.0, logNormal{204, 2.88}},
			{4, 10.0, logNormal{204, 2.88}},
			{8, 17.5, logNormal{204, 2.88}},
			{16, 6.0, logNormal{204, 2.88}},
			{32, 3.5, logNormal{204, 2.88}},
			{64, 2.0, logNormal{204, 2.88}},
			{128, 0.7, logNormal{204, 2.88}},
		},
	},
	of: []tenantOf{
		{"vcJsw", 32, 32 * 0.95}, {"vcvGl", 20, 20 * 0.62}, {"vcKeu", 12, 12 * 1.17}, {"vcYVn", 11, 11 * 0.39}, {"vcefl", 10, 10 * 1.06},
		{"vcEwI", 9, 9 * 0.42}, {"vcHvQ", 8, 8 * 0.94}, {"vcLTP", 8, 8 * 0.58}, {"vc8Gr", 6, 6 * 0.51}, {"vcWoR", 5, 5 * 0.42},
		{"vcKrE", 4, 4 * 0.38}, {"vchbv", 4, 4 * 0.63}, {"vchA3", 3, 3 * 0.03}, {"vcvlY", 2, 2 * 0.40}, {"vcgkz", 1, 1 * 0.85},
	},
}

func (m *tenantMix) cluster(o *Options) Cluster {
	shaped := Options{LeafSize: or(o.LeafSize, m.leafSize), SpineSize: or(o.SpineSize, m.spineSize)}
	nodes := (or(o.GPUs, m.gpus) + gpusPerNode - 1) / gpusPerNode
	c := addTopology(appendNodes(nil, nodes, core.Node{GPUs: gpusPerNode, Model: m.model}), &shaped)
	for _, t := range m.of {
		c.Queues = append(c.Queues, core.Queue{Name: t.name, Weight: t.weight})
	}
	return c
}

// uncut is how much more GPU time the jobs would request if the longest were not cut.
func (m *tenantMix) uncut() float64 {
	all, cut := 0.0, 0.0
	for _, s := range m.sizes {
		all += s.share * float64(s.gpus) * s.mean()
		cut += s.share * float64(s.gpus) * s.cutMean(m.longest.Seconds())
	}
	return all / cut
}

// jobs generates the jobs: sizes and run times as [trainingMix] does, tenants and their bursts at random.
func (m *tenantMix) jobs(o *Options) nextJob {
	rng := rand.New(rand.NewPCG(o.Seed, 0x76637321))
	length := or(o.Length, m.length)
	jobs := m.deal(rng, or(o.Load, m.load)*m.uncut(), length, clusterGPUs(o, m.gpus))
	rng.Shuffle(len(jobs), func(i, k int) { jobs[i], jobs[k] = jobs[k], jobs[i] })

	// 1. A share of the jobs for each tenant and day.
	const day = 24 * 3600 * core.Second
	type burst struct {
		tenant int
		from   core.Time
		until  float64 // shares up to this one
	}
	var bursts []burst
	sum, demand := 0.0, 0.0
	for _, t := range m.of {
		demand += t.demand
	}
	for i, t := range m.of {
		var days []float64
		of := 0.0
		for from := core.Time(0); from < length; from += day {
			days = append(days, rng.ExpFloat64())
			of += days[len(days)-1]
		}
		for d, x := range days {
			sum += t.demand / demand * x / of
			bursts = append(bursts, burst{i, core.Time(d) * day, sum})
		}
	}

	// 2. Each job is of one of these.
	for i := range jobs {
		at := rng.Float64() * sum
		k, _ := slices.BinarySearchFunc(bursts, at, func(b burst, at float64) int { return cmp.Compare(b.until, at) })
		b := bursts[min(k, len(bursts)-1)]
		jobs[i].Queue = m.of[b.tenant].name
		jobs[i].Submitted = b.from + m.arrivals(rng, 1, min(day, length-b.from))[0]
	}
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(a.Submitted, b.Submitted) })
	for i := range jobs {
		jobs[i].Name = fmt.Sprintf("job-%06d", i)
	}
	return slice(jobs)
}
