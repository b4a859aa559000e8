package workload

import (
	"cmp"
	"container/heap"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core"
)

// spotFleet is the nodes of the Alibaba spot-GPU fleet (GFS, ASPLOS '26): how many of each GPU
// model and number of GPUs. Cores are the median of the model.
var spotFleet = []struct {
	model string
	nodes int
	gpus  int
	cores int64
}{
	{"A10", 2494, 1, 128},
	{"A100", 432, 8, 128},
	{"GPU-series-1", 902, 1, 192}, {"GPU-series-1", 10, 4, 192}, {"GPU-series-1", 77, 8, 192},
	{"H800", 219, 8, 192},
	{"GPU-series-2", 122, 8, 192},
	{"A800", 22, 8, 128},
}

// The marginals of the jobs of that fleet that are published: the share of the jobs by GPUs, the
// median and the 90th percentile of the run time by class, and jobs by hour of the day; 8 cores
// a GPU are the median. For each model, see [spotModel]. Assumed is that all of them are independent
// of each other; that both classes have the same sizes, spot jobs of at most spotMost GPUs; that
// within a range of sizes the powers of two have jobs; and that the load of each model is, over
// the day, that of the fleet.
var (
	spotSizes = []sizeShare{
		{1, 0.637}, {2, 0.060}, {4, 0.045}, {8, 0.098}, {16, 0.0258}, {32, 0.0145}, {64, 0.0070}, {128, 0.0034}, {256, 0.0049},
	}
	spotLives = [2]logNormal{core.HP: {1101, 3.104}, core.LP: {2095.5, 1.825}}
	spotHours = [24]float64{
		22451, 15929, 14089, 13387, 12921, 14128, 14232, 15038, 15945, 16972, 25057, 25735,
		19770, 19276, 25304, 25039, 27015, 25376, 20016, 21189, 21885, 19162, 18813, 18138,
	}
)

// spotModel is what is published of the jobs that want a GPU model. Nearly all of it is HP: 98 % of
// the GPU-seconds.
type spotModel struct {
	// gpus is the mean number of GPUs of a job, and seconds the mean run time, each job counted as
	// often as it wants GPUs.
	gpus, seconds float64
	// day is the GPUs that jobs want in each hour of the day, of 123 days, as the difference from the
	// mean of the 24 hours around, in thousandths of the mean of all.
	day [24]float64
}

var spotModels = map[string]spotModel{
	"A10": {0.92, 251135, [24]float64{
		-6, -4, -5, -3, -3, -2, -3, -4, -3, -1, -2, -2, 0, 0, 1, 1, 2, 2, 4, 4, 5, 6, 6, 6,
	}},
	"A100": {4.90, 49208, [24]float64{
		-61, -78, -115, -120, -125, -128, -129, -130, -121, -101, -20, 30, 13, 18, 66, 89, 112, 128, 106, 107, 113, 113, 115, 121,
	}},
	"H800": {65.02, 24502, [24]float64{
		-150, -185, -233, -232, -240, -249, -245, -240, -223, -156, -34, 119, 61, 71, 138, 147, 184, 240, 156, 233, 191, 174, 256, 234,
	}},
	"GPU-series-1": {2.16, 459836, [24]float64{
		-7, -9, -15, -13, -13, -13, -14, -15, -13, -10, -4, 0, 0, -2, 5, 9, 13, 16, 16, 13, 14, 15, 16, 14,
	}},
	"GPU-series-2": {14.56, 23406, [24]float64{
		-113, -116, -201, -203, -208, -225, -230, -238, -221, -151, -23, 83, 14, 59, 126, 173, 177, 205, 143, 169, 194, 193, 187, 207,
	}},
	"A800": {6.13, 35101, [24]float64{
		-79, -78, -152, -171, -186, -185, -193, -199, -171, -159, 2, 80, 10, 7, 82, 142, 157, 191, 105, 151, 199, 160, 136, 142,
	}},
}

// The load and its HP part are those that ASI publishes (§4.2). Run times are cut to spotLongest
// (the 99th percentile of the trace). Checkpoint intervals are assumed: a third of the spot jobs
// each has none, an hour and ten minutes.
const (
	spotHPLoad  = 0.68
	spotLoad    = 0.93
	spotLength  = 7 * 24 * 3600 * core.Second
	spotMost    = 64
	spotLongest = 65 * 24 * hour
	// spotGain is by how much more jobs come for each part of the load that is lacking: none come
	// while a tenth too much is wanted. At most spotRush times as many come.
	spotGain = 10
	spotRush = 4
	// Jobs come by what is to be wanted, but end when they end. So that what is wanted follows the
	// published day, jobs come by spotSwing times its differences, spotAhead before, and by
	// spotRight times what was lacking on average over the last spotDay seconds.
	spotSwing = 2
	spotAhead = hour
	spotRight = 4
	spotDay   = 24 * hour
)

type sizeShare struct {
	gpus  int
	share float64
}

// spotStream generates the jobs of one class on one kind of nodes, in order. Each has a random
// source of its own: the HP jobs are the same whatever the load of spot jobs.
type spotStream struct {
	rng         *rand.Rand
	class       core.Class
	model       string
	perNode     int
	sizes       []sizeShare
	weights     []float64
	rate        float64 // jobs a second, the mean
	standing    int     // GPUs of jobs that run at the start and are still to come
	now, length float64
	life        logNormal
	// load is the GPUs that jobs are to want on average, day how much more in each hour of the day, in
	// thousandths, and wanted those that they want now, if each starts when it comes. ends has when
	// they no longer do, the next first. mean is the mean of wanted over the last day until since.
	load, wanted int
	day          [24]float64
	mean, since  float64
	ends         spotEnds
	name         string
	count        int
	next         Job
	over         bool
}

func spotFleetCluster(o *Options) Cluster {
	total := 0
	for _, p := range spotFleet {
		total += p.nodes * p.gpus
	}
	share := float64(or(o.GPUs, total)) / float64(total)
	var nodes []core.Node
	for _, p := range spotFleet {
		n := max(1, int(math.Round(float64(p.nodes)*share)))
		nodes = appendNodes(nodes, n, core.Node{GPUs: p.gpus, Model: p.model, CPUMilli: p.cores * 1000})
	}
	return addTopology(nodes, o)
}

// spotJobs generates jobs for the cluster of the options, or for the built-in one.
func spotJobs(o *Options) nextJob {
	c := o.Cluster
	if c == nil {
		own := spotFleetCluster(o)
		c = &own
	}
	type pool struct {
		model string
		gpus  int
	}
	sizes, order := map[pool]int{}, []pool{}
	for i := range c.Nodes {
		p := pool{c.Nodes[i].Model, c.Nodes[i].GPUs}
		if p.gpus == 0 {
			continue
		}
		if sizes[p] == 0 {
			order = append(order, p)
		}
		sizes[p]++
	}
	slices.SortFunc(order, func(a, b pool) int { return cmp.Or(cmp.Compare(a.model, b.model), cmp.Compare(a.gpus, b.gpus)) })
	var streams []*spotStream
	load := or(o.Load, spotLoad)
	for i, p := range order {
		for class, part := range []float64{min(load, spotHPLoad), max(0, load-spotHPLoad)} {
			if part == 0 {
				continue
			}
			s := &spotStream{
				rng: rand.New(rand.NewPCG(o.Seed, uint64(2*i+class)<<32|0x73706f74)), class: core.Class(class), // "spot"
				model: p.model, perNode: p.gpus, length: or(o.Length, spotLength).Seconds(),
				name: core.Class(class).String() + "-" + strconv.Itoa(i) + "-",
			}
			s.begin(part, sizes[p]*p.gpus)
			streams = append(streams, s)
		}
	}
	return func() (Job, int, error) {
		var first *spotStream
		for _, s := range streams {
			if !s.over && (first == nil || s.next.Submitted < first.next.Submitted) {
				first = s
			}
		}
		if first == nil {
			return Job{}, 0, io.EOF
		}
		j := first.next
		first.advance()
		return j, 0, nil
	}
}

// begin sets the rate for a load on a number of GPUs, and generates the first job.
func (s *spotStream) begin(load float64, gpus int) {
	// 1. The published marginals, those of the model where they are.
	most := max(s.perNode, gpus/8)
	s.life = spotLives[s.class]
	sizes := spotSizes
	if m, ok := spotModels[strings.TrimSuffix(s.model, "-SXM4-80GB")]; ok {
		sizes = m.sizes(most)
		if s.class == core.HP {
			s.life, s.day = m.life(), m.day
		}
	}
	if s.class == core.LP {
		most = min(most, spotMost)
	}
	for _, z := range sizes {
		if z.gpus <= most {
			s.sizes, s.weights = append(s.sizes, z), append(s.weights, z.share)
		}
	}

	// 2. The load.
	s.rate = load * float64(gpus) / (meanGPUs(s.sizes) * s.life.cutMean(spotLongest))
	s.load = int(math.Round(load * float64(gpus)))
	s.mean = float64(s.load)
	s.standing = int(math.Round(s.mean * (1 + s.day[0]/1000)))
	s.advance()
}

func meanGPUs(sizes []sizeShare) float64 {
	sum, mean := 0.0, 0.0
	for _, z := range sizes {
		sum, mean = sum+z.share, mean+z.share*float64(z.gpus)
	}
	return mean / sum
}

// sizes returns the sizes up to most with the mean of the model: the shares of the fleet times a
// power of the size.
func (m *spotModel) sizes(most int) []sizeShare {
	var sizes []sizeShare
	for _, z := range spotSizes {
		if z.gpus <= most {
			sizes = append(sizes, z)
		}
	}
	tilted := func(power float64) []sizeShare {
		out := slices.Clone(sizes)
		for i := range out {
			out[i].share *= math.Pow(float64(out[i].gpus), power)
		}
		return out
	}
	return tilted(bisect(-4, 4, func(power float64) bool { return meanGPUs(tilted(power)) < m.gpus }))
}

// life returns the run times of the model: of the median of the fleet's HP jobs, with the mean of the
// model.
func (m *spotModel) life() logNormal {
	median := spotLives[core.HP].median
	return logNormal{median, bisect(0, 6, func(sigma float64) bool {
		return logNormal{median, sigma}.cutMean(spotLongest) < m.seconds
	})}
}

// bisect returns where between two numbers below, which is true at first, becomes false.
func bisect(low, high float64, below func(float64) bool) float64 {
	for range 60 {
		if mid := (low + high) / 2; below(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// target is the GPUs by which jobs come now.
func (s *spotStream) target() float64 {
	load := float64(s.load)
	return load*(1+spotSwing*s.day[int((s.now+spotAhead)/hour)%24]/1000) + spotRight*(load-s.mean)
}

// advance generates the next job: first those that run at the start, then those that arrive.
func (s *spotStream) advance() {
	// The GPUs that run at the start are exactly those of the load: the longest jobs hold most of
	// them to the end, and a number of jobs drawn at random would make the load one at random.
	for s.standing > 0 {
		// Among running jobs, one of length x is likely in proportion to x: with run times that are
		// cut, in proportion to what is left of x.
		x := s.life.running().draw(s.rng)
		if s.rng.Float64()*x >= spotLongest {
			continue
		}
		s.next = s.job(s.rng.Float64() * min(x, spotLongest))
		if gpus := int(s.next.GPUs() / core.WholeGPU); gpus <= s.standing {
			s.standing -= gpus
			s.comes()
			return
		}
	}
	mean := 0.0
	for _, n := range spotHours {
		mean += n / 24
	}
	peak := slices.Max(spotHours[:]) / mean * spotRush
	for {
		s.now += s.rng.ExpFloat64() / (s.rate * peak)
		if s.now >= s.length {
			s.over = true
			return
		}
		s.mean += (float64(s.wanted) - s.mean) * (1 - math.Exp((s.since-s.now)/spotDay))
		s.since = s.now
		for len(s.ends) > 0 && s.ends[0].at <= s.now {
			s.wanted -= heap.Pop(&s.ends).(spotEnd).gpus
		}
		if s.rng.Float64()*peak < spotHours[int(s.now/hour)%24]/mean*s.lack() {
			s.next = s.job(min(s.life.draw(s.rng), spotLongest))
			s.comes()
			return
		}
	}
}

// comes counts what the next job wants.
func (s *spotStream) comes() {
	gpus := int(s.next.GPUs() / core.WholeGPU)
	s.wanted += gpus
	heap.Push(&s.ends, spotEnd{s.now + s.next.Duration.Seconds(), gpus})
}

// lack is how many times as many jobs come as on average, at most spotRush: more while those that
// came want less than the target, fewer while they want more. Else a few long jobs take a model far
// from its load for the rest of the week: HP jobs once wanted 98 % of the A10 for a day instead of 68 %.
func (s *spotStream) lack() float64 {
	return max(0, min(spotRush, 1+spotGain*(s.target()-float64(s.wanted))/float64(s.load)))
}

// spotEnds is a heap of when jobs end that start when they come.
type spotEnds []spotEnd

type spotEnd struct {
	at   float64 // seconds
	gpus int
}

func (h spotEnds) Len() int           { return len(h) }
func (h spotEnds) Less(i, j int) bool { return h[i].at < h[j].at }
func (h spotEnds) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *spotEnds) Push(x any)        { *h = append(*h, x.(spotEnd)) }

// Pop implements [heap.Interface].
func (h *spotEnds) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

func (s *spotStream) job(duration float64) Job {
	gpus := s.sizes[pick(s.rng, s.weights)].gpus
	each := min(gpus, s.perNode)
	j := Job{Duration: seconds(duration)}
	j.Name = s.name + strconv.Itoa(s.count)
	s.count++
	j.Queue, j.Kind, j.Class, j.Priority = DefaultQueue, core.Training, s.class, normalPriority
	j.Submitted = core.Time(s.now*1000) * (core.Second / 1000)
	task := core.Task{Pods: gpus / each}
	task.GPU, task.Models = core.Milli(each)*core.WholeGPU, []string{s.model}
	task.CPUMilli, task.MemMiB = int64(each)*8000, int64(each)*(32<<10)
	j.Tasks, j.Gang = []core.Task{task}, true
	if s.class == core.LP {
		j.Priority = lowPriority
		j.Checkpoint = [...]core.Time{0, 600 * core.Second, 3600 * core.Second}[s.rng.IntN(3)]
	}
	return j
}
