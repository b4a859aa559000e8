package workload

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
)

// Summary describes a workload. GPU-hours are a job's GPUs times its duration;
// they, durations and demand leave out the Endless jobs.
type Summary struct {
	Jobs    int `json:"jobs"`
	Pods    int `json:"pods"`
	Gangs   int `json:"gangs"`
	Endless int `json:"endless"`
	// FirstSeconds and LastSeconds are the first and last submission.
	FirstSeconds float64 `json:"first_s"`
	LastSeconds  float64 `json:"last_s"`
	GPUHours     float64 `json:"gpu_hours"`
	// CoresPerGPU is the CPU-time in cores over the GPU-time in GPUs that jobs with GPUs
	// request; 0 without such jobs.
	CoresPerGPU float64 `json:"cores_per_gpu"`

	// All, Kinds, Classes, Models and Queues also contain demand.
	All      Share   `json:"all"`
	Kinds    []Share `json:"kinds"`
	Classes  []Share `json:"classes"`
	Outcomes []Share `json:"outcomes"`
	// Queues are the TopQueues queues with the most GPU-hours (then the most jobs, then
	// by name); AllQueues counts all.
	Queues    []Share `json:"queues"`
	AllQueues int     `json:"all_queues"`
	// Models are the requested GPU models as written ("A|B" for a choice), "any" for jobs
	// that accept all and "none" for jobs without GPUs, the most GPU-hours first. A job
	// counts by its first task with GPUs.
	Models []Share `json:"gpu_models"`
	// Sizes are by the GPUs that all pods of a job request; only classes that have jobs,
	// smallest first.
	Sizes []Share `json:"sizes"`

	// Duration is the run time of jobs, in seconds; GPUs and Cores are what all pods of a
	// job with GPUs request; TaskCoresPerGPU covers the tasks with GPUs.
	Duration        Spread `json:"duration_s"`
	GPUs            Spread `json:"gpus"`
	Cores           Spread `json:"cores"`
	TaskCoresPerGPU Spread `json:"task_cores_per_gpu"`

	// ArrivalsByHour counts submissions by hour of day, the workload's zero
	// being midnight.
	ArrivalsByHour [24]int `json:"arrivals_by_hour"`
	// DemandHours is the number of hours over which demand is measured: from the first
	// submission to the last, at most three years.
	DemandHours int `json:"demand_hours"`
	// Week is demand over the hours of a week, a row a kind.
	Week []Week `json:"week"`

	// Allocation is the demand relative to a cluster: for all GPUs, then for each model,
	// the most GPUs first. It is empty until [Summary.Over] is called with a cluster.
	Allocation []Allocation `json:"allocation,omitempty"`
}

// TopQueues is the maximum number of queues that a [Summary] lists.
const TopQueues = 20

// Describe reads all jobs and describes them. It streams: its memory does not
// grow with the number of jobs. The error is that of the jobs.
func Describe(jobs Jobs) (Summary, error) {
	d := newDescriber()
	for j, err := range jobs {
		if err != nil {
			return Summary{}, err
		}
		d.add(&j)
	}
	return d.summary(), nil
}

// describer gathers a Summary.
type describer struct {
	sum                                           Summary
	all, kinds, classes, outcomes, queues, models tally
	size                                          tally
	durations, gpus, cores, ratios                spread
	submitted                                     [len(core.Kinds)][hoursOfWeek]float64
	rng                                           *rand.Rand
	coreSeconds, gpuSeconds                       float64
}

func newDescriber() *describer {
	return &describer{
		all: newTally(1), kinds: newTally(len(core.Kinds)), classes: newTally(2), outcomes: newTally(0),
		queues: newTally(meteredNames), models: newTally(meteredNames), size: newTally(0),
		rng: rand.New(rand.NewPCG(0, 0)),
	}
}

func (d *describer) add(j *Job) {
	s := &d.sum
	if s.Jobs == 0 {
		s.FirstSeconds = j.Submitted.Seconds()
	}
	s.LastSeconds = j.Submitted.Seconds()
	s.Jobs++
	s.Pods += j.Pods()
	if j.Gang {
		s.Gangs++
	}
	const day = 24 * 3600 * core.Second
	s.ArrivalsByHour[j.Submitted%day*24/day]++
	d.count(j)
	d.spread(j)
}

// count adds a job to the tallies.
func (d *describer) count(j *Job) {
	c := counted{class: j.Class, gpus: float64(j.GPUs()) / float64(core.WholeGPU)}
	c.from = (j.Submitted.Seconds() - d.sum.FirstSeconds) / 3600
	if j.Duration < Endless {
		c.hours = j.Duration.Seconds() / 3600
	}
	d.sum.GPUHours += c.gpus * c.hours
	if c.gpus > 0 {
		d.gpuSeconds += c.gpus * c.hours * 3600
		d.coreSeconds += cores(j) * c.hours * 3600
	}
	d.submitted[j.Kind][hourOfWeek(j.Submitted.Seconds())] += c.gpus
	d.all.add("all", &c)
	d.kinds.add(j.Kind.String(), &c)
	d.classes.add(j.Class.String(), &c)
	d.outcomes.add(j.Outcome.String(), &c)
	d.queues.add(j.Queue, &c)
	d.models.add(modelsAsked(j), &c)
	d.size.add(sizeName(j.GPUs()), &c)
}

// spread adds a job to the distributions.
func (d *describer) spread(j *Job) {
	all := j.GPUs()
	of := group{int(j.Kind), int(j.Class), sizeIndex(all)}
	if j.Duration >= Endless {
		d.sum.Endless++
	} else {
		d.durations.add(d.rng, j.Duration.Seconds(), of)
	}
	if all == 0 {
		return
	}
	d.gpus.add(d.rng, float64(all)/float64(core.WholeGPU), of)
	d.cores.add(d.rng, cores(j), of)
	for i := range j.Tasks {
		if t := &j.Tasks[i]; t.GPU > 0 {
			d.ratios.add(d.rng, float64(t.CPUMilli)/float64(t.GPU), of)
		}
	}
}

// cores returns the CPU cores that all pods of a job request together.
func cores(j *Job) float64 {
	var milli int64
	for i := range j.Tasks {
		milli += int64(j.Tasks[i].Pods) * j.Tasks[i].CPUMilli
	}
	return float64(milli) / 1000
}

// modelsAsked returns the GPU models that a job's first task with GPUs accepts.
func modelsAsked(j *Job) string {
	for i := range j.Tasks {
		switch t := &j.Tasks[i]; {
		case t.GPU == 0:
		case len(t.Models) == 0:
			return "any"
		case len(t.Models) == 1:
			return t.Models[0]
		default:
			return strings.Join(t.Models, "|")
		}
	}
	return "none"
}

// sizeName names the class of a request of this many GPUs: "0", "<1", "1", "2",
// "3-4", "5-8", "9-16" and so on to "1025-2048", ">2048".
func sizeName(gpus core.Milli) string { return sizeClasses[sizeIndex(gpus)] }

// sizeClasses are the classes, smallest first.
var sizeClasses = [...]string{"0", "<1", "1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65-128", "129-256",
	"257-512", "513-1024", "1025-2048", ">2048"}

// sizeIndex returns the index of a size in sizeClasses. A fractional number of GPUs above
// 1 is rounded up.
func sizeIndex(gpus core.Milli) int {
	if gpus == 0 {
		return 0
	}
	if gpus < core.WholeGPU {
		return 1
	}
	class := 2
	for most := core.WholeGPU; gpus > most && class < len(sizeClasses)-1; most *= 2 {
		class++
	}
	return class
}

func (d *describer) summary() Summary {
	s := d.sum
	if d.gpuSeconds > 0 {
		s.CoresPerGPU = d.coreSeconds / d.gpuSeconds
	}
	s.DemandHours = min(mostHours, max(1, int((s.LastSeconds-s.FirstSeconds)/3600)))
	if all := d.all.shares(&s, mostFirst); len(all) > 0 {
		s.All = all[0]
	}
	s.Kinds = d.kinds.shares(&s, mostFirst)
	s.Classes = d.classes.shares(&s, mostFirst)
	s.Outcomes = d.outcomes.shares(&s, mostFirst)
	s.Queues = d.queues.shares(&s, mostFirst)
	s.AllQueues = len(s.Queues)
	s.Queues = s.Queues[:min(len(s.Queues), TopQueues)]
	s.Models = d.models.shares(&s, mostFirst)
	s.Sizes = d.size.shares(&s, bySize)
	s.Duration = d.durations.result()
	s.GPUs = d.gpus.result()
	s.Cores = d.cores.result()
	s.TaskCoresPerGPU = d.ratios.result()
	s.Week = d.week(&s)
	return s
}

// bySize orders shares by their size class.
func bySize(a, b Share) int {
	return slices.Index(sizeClasses[:], a.Name) - slices.Index(sizeClasses[:], b.Name)
}
