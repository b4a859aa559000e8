package workload

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/muster-sched/muster/core"
)

// trainingMix describes kant-training. Its totals are fitted to the figures in Kant §2
// and §5.1.1: over 90 % of the jobs have at most 8 GPUs and use under 10 % of the
// GPU-time, while jobs of 256 GPUs and more use over half.
type trainingMix struct {
	gpus      int
	model     string
	leafSize  int // nodes a leaf group
	spineSize int // leaf groups a spine
	tenants   int

	load   float64 // GPU-time asked by new arrivals over GPU-time there is
	length core.Time
	// day is the share above the mean that arrives at the busiest hour, 15:00, and the
	// share below the mean twelve hours later.
	day float64

	// cpuMilli and memMiB are requested with each GPU: less than a node has per GPU, so
	// that GPUs are the scarce resource.
	cpuMilli, memMiB  int64
	checkpoint        core.Time // of training jobs
	dev               float64   // share of dev jobs among those of one or two GPUs
	failed, cancelled float64   // shares of the jobs
	// longest cuts the tail of durations; arrivals also begin this time before the
	// workload's start.
	longest core.Time

	sizes []sizeClass
}

// sizeClass is the jobs of one size.
type sizeClass struct {
	gpus  int64
	share float64 // of the jobs, in per cent
	logNormal
}

const hour = 3600.0

// kantTraining generates some 14,500 jobs in a week. The resulting shares of GPU-time
// are: below 8 GPUs 3 %, 8 GPUs 4 %, 256 and more 62 %. The load is just below what the
// cluster can sustain. At this load, large jobs find the cluster fragmented or busy, and
// policies differ.
var kantTraining = trainingMix{
	gpus:      8000,
	model:     "H800",
	leafSize:  32,
	spineSize: 8,
	tenants:   8,

	load:   0.96,
	length: 7 * 24 * 3600 * core.Second,
	day:    0.3,

	cpuMilli:   20_000,
	memMiB:     200 << 10,
	checkpoint: 1800 * core.Second,
	dev:        0.25,
	failed:     0.08,
	cancelled:  0.05,
	longest:    36 * 3600 * core.Second,

	sizes: []sizeClass{
		{1, 37.00, logNormal{0.95 * hour, 1.4}},
		{2, 14.00, logNormal{1.0 * hour, 1.4}},
		{3, 0.80, logNormal{0.8 * hour, 1.4}},
		{4, 13.00, logNormal{1.2 * hour, 1.4}},
		{6, 0.70, logNormal{1.0 * hour, 1.4}},
		{8, 24.90, logNormal{0.85 * hour, 1.3}},
		{16, 3.20, logNormal{3.2 * hour, 1.2}},
		{24, 0.25, logNormal{3.2 * hour, 1.2}},
		{32, 2.00, logNormal{4.1 * hour, 1.1}},
		{48, 0.20, logNormal{4.1 * hour, 1.1}},
		{64, 1.40, logNormal{5.0 * hour, 1.0}},
		{96, 0.10, logNormal{5.0 * hour, 1.0}},
		{128, 0.90, logNormal{6.0 * hour, 0.9}},
		{256, 0.70, logNormal{5.5 * hour, 0.7}},
		{384, 0.05, logNormal{5.5 * hour, 0.7}},
		{512, 0.40, logNormal{5.0 * hour, 0.6}},
		{1024, 0.25, logNormal{4.5 * hour, 0.5}},
		{2048, 0.15, logNormal{4.0 * hour, 0.4}},
	},
}

func kantTrainingCluster(o *Options) Cluster {
	m := &kantTraining
	shaped := Options{LeafSize: or(o.LeafSize, m.leafSize), SpineSize: or(o.SpineSize, m.spineSize)}
	nodes := (or(o.GPUs, m.gpus) + gpusPerNode - 1) / gpusPerNode
	c := addTopology(appendNodes(nil, nodes, core.Node{GPUs: gpusPerNode, Model: m.model}), &shaped)
	for t := range m.tenants {
		c.Queues = append(c.Queues, core.Queue{Name: tenant(t), Weight: 1})
	}
	return c
}

// tenant returns the name of a generated tenant's queue.
func tenant(i int) string { return fmt.Sprintf("tenant-%d", i) }

// kantTrainingJobs generates the jobs. The numbers of jobs of each size and their
// durations are not random: each size has its share of the jobs, with durations at evenly
// spaced quantiles, so that every seed requests the same GPU-time. A seed changes only
// the order and the times of arrival.
func kantTrainingJobs(o *Options) nextJob {
	m := &kantTraining
	rng := rand.New(rand.NewPCG(o.Seed, 0x6b616e74)) // "kant"
	load, gpus := or(o.Load, m.load), clusterGPUs(o, m.gpus)
	length := or(o.Length, m.length)
	jobs := m.running(m.arrive(rng, load, m.longest, gpus))
	jobs = append(jobs, m.arrive(rng, load, length, gpus)...)
	for i := range jobs {
		jobs[i].Name = fmt.Sprintf("job-%06d", i)
	}
	return slice(jobs)
}

// arrive returns the jobs that arrive in length, in order of submission.
func (m *trainingMix) arrive(rng *rand.Rand, load float64, length core.Time, gpus int) []Job {
	jobs := m.deal(rng, load, length, gpus)
	rng.Shuffle(len(jobs), func(i, k int) { jobs[i], jobs[k] = jobs[k], jobs[i] })
	for i, t := range m.arrivals(rng, len(jobs), length) {
		jobs[i].Submitted = t
	}
	return jobs
}

// running takes the jobs that arrived before the start, within the time of the longest
// job, and keeps those that would still run at the start. It submits their remaining work
// at 0, so that a run does not begin with an empty cluster.
func (m *trainingMix) running(before []Job) []Job {
	var jobs []Job
	for _, j := range before {
		if left := j.Submitted + j.Duration - m.longest; left > 0 {
			j.Submitted, j.Duration = 0, seconds(left.Seconds())
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// clusterGPUs returns the number of GPUs for which a workload is generated: that of the
// options, or of their cluster, or the default.
func clusterGPUs(o *Options, usual int) int {
	if o.GPUs > 0 || o.Cluster == nil {
		return or(o.GPUs, usual)
	}
	n := 0
	for i := range o.Cluster.Nodes {
		n += o.Cluster.Nodes[i].GPUs
	}
	return n
}

// deal returns jobs, by size, that request load times the GPU-time of this number of GPUs
// in length. It leaves out sizes above about a quarter of the cluster, the ratio of 2,048
// to 8,000.
func (m *trainingMix) deal(rng *rand.Rand, load float64, length core.Time, gpus int) []Job {
	sizes := slices.DeleteFunc(slices.Clone(m.sizes), func(s sizeClass) bool { return s.gpus > max(1, int64(gpus)*26/100) })
	perJob, shares := 0.0, 0.0
	for _, s := range sizes {
		perJob += s.share * float64(s.gpus) * s.mean()
		shares += s.share
	}
	total := load * float64(gpus) * length.Seconds() * shares / perJob
	var jobs []Job
	owed := 0.0 // jobs that rounding has not dealt yet
	for _, s := range sizes {
		owed += total * s.share / shares
		n := int(math.Round(owed))
		owed -= float64(n)
		for _, d := range s.deal(rng, n) {
			jobs = append(jobs, m.job(rng, s.gpus, min(seconds(d), m.longest)))
		}
	}
	return jobs
}

// deal returns n durations, one from each n-th part of the distribution, scaled to its
// mean.
func (d logNormal) deal(rng *rand.Rand, n int) []float64 {
	dealt := make([]float64, n)
	sum := 0.0
	for i := range dealt {
		dealt[i] = d.quantile((float64(i) + rng.Float64()) / float64(n))
		sum += dealt[i]
	}
	for i := range dealt {
		dealt[i] *= d.mean() * float64(n) / sum
	}
	return dealt
}

// job generates a job of a size and duration.
func (m *trainingMix) job(rng *rand.Rand, gpus int64, d core.Time) Job {
	j := trainingJob("", gpus)
	j.Queue = tenant(rng.IntN(max(m.tenants, 1)))
	j.Duration = d
	j.Checkpoint = m.checkpoint
	if gpus <= 2 && rng.Float64() < m.dev {
		j.Kind, j.Checkpoint = core.Dev, 0
	}
	switch u := rng.Float64(); {
	case u < m.failed:
		j.Outcome = Failed
	case u < m.failed+m.cancelled:
		j.Outcome = Cancelled
	}
	for i := range j.Tasks {
		t := &j.Tasks[i]
		whole := int64(t.GPU / core.WholeGPU)
		t.CPUMilli, t.MemMiB = whole*m.cpuMilli, whole*m.memMiB
	}
	return j
}

// arrivals returns n times in order, of a Poisson process whose rate follows
// the day: given their number, its times are independent draws.
func (m *trainingMix) arrivals(rng *rand.Rand, n int, length core.Time) []core.Time {
	times := make([]core.Time, 0, n)
	for len(times) < n {
		t := rng.Float64() * length.Seconds()
		const busiest = 15 * hour
		rate := 1 + m.day*math.Cos(2*math.Pi*(t-busiest)/(24*hour))
		if rng.Float64()*(1+m.day) < rate {
			times = append(times, core.Time(t*1000)*(core.Second/1000))
		}
	}
	slices.SortFunc(times, cmp.Compare[core.Time])
	return times
}
