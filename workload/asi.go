package workload

import (
	"io"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/muster-sched/muster/core"
)

// The load and the length of asi: the published allocation, of six months.
const (
	asiLoad   = 0.93
	asiLength = 181 * 24 * 3600 * core.Second
)

// asiEntry describes jobs that are identical except for their durations and queues. They
// arrive as a Poisson process whose rate follows the day and the trend.
type asiEntry struct {
	job    Job
	life   logNormal
	rate   float64 // jobs a second, the mean
	day    float64
	trend  trend
	locked float64 // share
	near   float64 // share that requires one leaf group
	alike  string  // model accepted too by those of two models
}

// asiStream generates the jobs of asi, one at a time.
type asiStream struct {
	rng     *rand.Rand
	entries []asiEntry
	queues  []string
	tenant  lottery
	// arrival draws the entry of a candidate for arrival; rate candidates arrive per
	// second, and some are dropped (thinning). running draws the entry of a job that has
	// run since before the start.
	arrival, running lottery
	rate             float64
	standing         int // running jobs that are still to come
	now, length      float64
	count            int
}

// asiJobs generates the workload. Its memory does not grow with the workload's length.
func asiJobs(o *Options) nextJob {
	return asiJobsOf(o, asiEntries(asiPools(clusterGPUs(o, asiGPUs(asiFleet))), o))
}

// asiCPUJobs is asiJobs with jobs without GPUs.
func asiCPUJobs(o *Options) nextJob {
	pools := asiPools(clusterGPUs(o, asiGPUs(asiFleet)))
	return asiJobsOf(o, append(asiEntries(pools, o), asiCPUEntries(pools, o)...))
}

func asiJobsOf(o *Options, entries []asiEntry) nextJob {
	s := &asiStream{
		rng:     rand.New(rand.NewPCG(o.Seed, 0x617369)), // "asi"
		entries: entries,
		length:  or(o.Length, asiLength).Seconds(),
	}
	weights := make([]float64, asiDepartments)
	for d := range weights {
		weights[d] = 1 / float64(d+1)
		s.queues = append(s.queues, asiQueue(d))
	}
	s.tenant, _ = newLottery(weights)
	arriving, running := make([]float64, len(s.entries)), make([]float64, len(s.entries))
	for i := range s.entries {
		e := &s.entries[i]
		arriving[i] = e.rate * e.peak()
		running[i] = e.rate * e.trend.from * e.life.cutMean(asiLongest.Seconds())
	}
	s.arrival, s.rate = newLottery(arriving)
	var sum float64
	s.running, sum = newLottery(running)
	s.standing = int(math.Round(sum))
	return s.next
}

// next first returns the jobs that run at the start, the average number of running jobs,
// and then those that arrive.
func (s *asiStream) next() (Job, int, error) {
	if s.standing > 0 {
		s.standing--
		e := &s.entries[s.running.draw(s.rng)]
		return s.job(e, s.rng.Float64()*min(e.life.running().draw(s.rng), asiLongest.Seconds())), 0, nil
	}
	for {
		s.now += s.rng.ExpFloat64() / s.rate
		if s.now >= s.length {
			return Job{}, 0, io.EOF
		}
		e := &s.entries[s.arrival.draw(s.rng)]
		if s.rng.Float64()*e.peak() < e.level(s.now, s.length) {
			return s.job(e, min(e.life.draw(s.rng), asiLongest.Seconds())), 0, nil
		}
	}
}

// job generates a job of an entry that arrives now.
func (s *asiStream) job(e *asiEntry, duration float64) Job {
	j := e.job
	j.Name = "j" + strconv.Itoa(s.count)
	s.count++
	j.Queue = s.queues[s.tenant.draw(s.rng)]
	j.Submitted = core.Time(s.now*1000) * (core.Second / 1000)
	j.Duration = seconds(duration)
	j.Locked = s.rng.Float64() < e.locked
	if !j.Locked && !(j.Kind == core.Training && j.Pods() > 1) {
		j.Mobility = core.Replaceable // see asiGroups
	}
	if e.near > 0 && s.rng.Float64() < e.near {
		j.Topology = core.TopologyRequest{Required: "leaf"}
	}
	if len(j.Tasks[0].Models) == 0 {
		return j // it needs no GPU
	}
	switch u := 100 * s.rng.Float64(); {
	case u < asiTwoModels:
		j.Tasks = accepting(j.Tasks, []string{j.Tasks[0].Models[0], e.alike})
	case u < asiTwoModels+asiAnyModel:
		j.Tasks = accepting(j.Tasks, nil)
	}
	return j
}

// accepting returns a copy of tasks that accepts other GPU models.
func accepting(tasks []core.Task, models []string) []core.Task {
	changed := make([]core.Task, len(tasks))
	for i, t := range tasks {
		t.Models = models
		changed[i] = t
	}
	return changed
}

// level is the rate of arrival at a time, relative to its mean; peak is its maximum.
func (e *asiEntry) level(now, length float64) float64 {
	const busiest = 15 * hour
	return e.trend.at(now/length) * (1 + e.day*math.Cos(2*math.Pi*(now-busiest)/(24*hour)))
}

func (e *asiEntry) peak() float64 { return max(e.trend.from, e.trend.to) * (1 + math.Abs(e.day)) }

// trend describes how a rate changes over a workload, relative to its mean: it stays at
// from until a part of the workload has passed, and then changes evenly until another
// part has passed.
type trend struct{ from, to, begin, end float64 }

var steady = trend{1, 1, 0, 1}

// at returns the rate when a part x of the workload has passed.
func (t trend) at(x float64) float64 {
	x = max(0, min(1, (x-t.begin)/(t.end-t.begin)))
	return t.from + x*(t.to-t.from)
}

// draw returns a duration of the distribution.
func (d logNormal) draw(rng *rand.Rand) float64 {
	return d.median * math.Exp(d.sigma*rng.NormFloat64())
}

// running is the distribution among the jobs that run at a moment: longer jobs are more
// likely.
func (d logNormal) running() logNormal {
	return logNormal{d.median * math.Exp(d.sigma*d.sigma), d.sigma}
}

// cutMean is the mean if all durations are cut to at most most.
func (d logNormal) cutMean(most float64) float64 {
	z := math.Log(most/d.median) / d.sigma
	below := func(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }
	return d.mean()*below(z-d.sigma) + most*(1-below(z))
}

// lottery draws indices with probabilities proportional to their weights, in constant
// time (Walker's alias method).
type lottery struct {
	keep  []float64 // the chance that a ticket's index is the one it was made for
	alias []int     // the index it is otherwise
}

// newLottery returns a lottery with these weights, and their sum.
func newLottery(weights []float64) (lottery, float64) {
	n, sum := len(weights), 0.0
	for _, w := range weights {
		sum += w
	}
	l := lottery{make([]float64, n), make([]int, n)}
	var less, more []int
	for i, w := range weights {
		l.keep[i], l.alias[i] = w*float64(n)/sum, i
		if l.keep[i] < 1 {
			less = append(less, i)
		} else {
			more = append(more, i)
		}
	}
	for len(less) > 0 && len(more) > 0 {
		i, k := less[len(less)-1], more[len(more)-1]
		less = less[:len(less)-1]
		l.alias[i] = k
		if l.keep[k] -= 1 - l.keep[i]; l.keep[k] < 1 {
			more = more[:len(more)-1]
			less = append(less, k)
		}
	}
	return l, sum
}

func (l *lottery) draw(rng *rand.Rand) int {
	at := rng.Float64() * float64(len(l.keep))
	i := int(at)
	if at-float64(i) < l.keep[i] {
		return i
	}
	return l.alias[i]
}
