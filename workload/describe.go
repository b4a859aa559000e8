package workload

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
)

// Summary describes a workload. GPU-hours are a job's GPUs times its duration;
// they, and durations, leave out the Endless jobs.
type Summary struct {
	Jobs    int `json:"jobs"`
	Pods    int `json:"pods"`
	Gangs   int `json:"gangs"`
	Endless int `json:"endless"`
	// FirstSeconds and LastSeconds are the first and last submission.
	FirstSeconds float64 `json:"first_s"`
	LastSeconds  float64 `json:"last_s"`
	GPUHours     float64 `json:"gpu_hours"`
	// CoresPerGPU is the CPU-time in cores over the GPU-time in GPUs that jobs
	// with GPUs ask for; 0 without such jobs.
	CoresPerGPU float64 `json:"cores_per_gpu"`

	Kinds    []Share `json:"kinds"`
	Classes  []Share `json:"classes"`
	Outcomes []Share `json:"outcomes"`
	// Queues are the TopQueues queues of most GPU-hours (then jobs, then by
	// name); AllQueues counts all.
	Queues    []Share `json:"queues"`
	AllQueues int     `json:"all_queues"`
	// Models are the GPU models asked for, as asked ("A|B" for a choice), "any"
	// for jobs that take all and "none" for jobs without GPUs, most GPU-hours
	// first. A job counts by its first task with GPUs.
	Models []Share `json:"gpu_models"`
	// Sizes are by the GPUs a job asks for in all its pods; only classes that
	// have jobs, smallest first.
	Sizes []Share `json:"sizes"`

	Duration Quantiles `json:"duration_s"`
	// ArrivalsByHour counts submissions by hour of day, the workload's zero
	// being midnight.
	ArrivalsByHour [24]int `json:"arrivals_by_hour"`
}

// TopQueues is how many queues a [Summary] lists at most.
const TopQueues = 20

// Share is what part of a workload has a property.
type Share struct {
	Name     string  `json:"name"`
	Jobs     int     `json:"jobs"`
	GPUHours float64 `json:"gpu_hours"`
	// JobShare and GPUShare are Jobs and GPUHours over those of the workload.
	JobShare float64 `json:"job_share"`
	GPUShare float64 `json:"gpu_share"`
}

// Quantiles are of the jobs' durations in seconds: exact up to 100,000 jobs,
// else of a sample of so many, but for Mean and Max, which are always exact.
type Quantiles struct {
	Mean float64 `json:"mean"`
	P10  float64 `json:"p10"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

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
	sum                                            Summary
	kinds, classes, outcomes, queues, models, size tally
	durations                                      sample
	coreSeconds, gpuSeconds                        float64
}

func newDescriber() *describer {
	return &describer{
		kinds: tally{}, classes: tally{}, outcomes: tally{}, queues: tally{}, models: tally{}, size: tally{},
		durations: sample{rng: rand.New(rand.NewPCG(0, 0))},
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
	duration := j.Duration.Seconds()
	if j.Duration >= Endless {
		s.Endless++
		duration = 0
	} else {
		d.durations.add(duration)
	}
	gpus := float64(j.GPUs()) / float64(core.WholeGPU)
	if gpus > 0 {
		d.gpuSeconds += gpus * duration
		d.coreSeconds += cores(j) * duration
	}
	hours := gpus * duration / 3600
	s.GPUHours += hours
	d.kinds.add(j.Kind.String(), hours)
	d.classes.add(j.Class.String(), hours)
	d.outcomes.add(j.Outcome.String(), hours)
	d.queues.add(j.Queue, hours)
	d.models.add(modelsAsked(j), hours)
	d.size.add(sizeName(j.GPUs()), hours)
}

// cores returns the CPU cores that all pods of a job ask for together.
func cores(j *Job) float64 {
	var milli int64
	for i := range j.Tasks {
		milli += int64(j.Tasks[i].Pods) * j.Tasks[i].CPUMilli
	}
	return float64(milli) / 1000
}

// modelsAsked names the GPU models that a job's first task with GPUs accepts.
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

// sizeName names the class of a request of so many GPUs: "0", "<1", "1", "2",
// "3-4", "5-8", "9-16" and so on to "1025-2048", ">2048".
func sizeName(gpus core.Milli) string { return sizeClasses[sizeIndex(gpus)] }

// sizeClasses are the classes, smallest first.
var sizeClasses = []string{"0", "<1", "1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65-128", "129-256",
	"257-512", "513-1024", "1025-2048", ">2048"}

// sizeIndex returns the index of a size in sizeClasses. Parts of a GPU beyond
// whole ones count as one more.
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
	all := &Share{Jobs: s.Jobs, GPUHours: s.GPUHours}
	s.Kinds = d.kinds.shares(all, mostFirst)
	s.Classes = d.classes.shares(all, mostFirst)
	s.Outcomes = d.outcomes.shares(all, mostFirst)
	s.Queues = d.queues.shares(all, mostFirst)
	s.AllQueues = len(s.Queues)
	s.Queues = s.Queues[:min(len(s.Queues), TopQueues)]
	s.Models = d.models.shares(all, mostFirst)
	s.Sizes = d.size.shares(all, func(a, b Share) int {
		return cmp.Compare(slices.Index(sizeClasses, a.Name), slices.Index(sizeClasses, b.Name))
	})
	s.Duration = d.durations.quantiles()
	return s
}

// tally counts jobs and GPU-hours by a property.
type tally map[string]*Share

func (t tally) add(name string, hours float64) {
	s := t[name]
	if s == nil {
		s = &Share{Name: name}
		t[name] = s
	}
	s.Jobs++
	s.GPUHours += hours
}

// shares returns the counts as shares of all, in order.
func (t tally) shares(all *Share, order func(a, b Share) int) []Share {
	list := make([]Share, 0, len(t))
	for _, s := range t {
		s.JobShare = float64(s.Jobs) / float64(all.Jobs)
		if all.GPUHours > 0 {
			s.GPUShare = s.GPUHours / all.GPUHours
		}
		list = append(list, *s)
	}
	slices.SortFunc(list, order)
	return list
}

func mostFirst(a, b Share) int {
	return cmp.Or(cmp.Compare(b.GPUHours, a.GPUHours), cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Name, b.Name))
}

// sample keeps sampleSize of the values added, each with the same chance
// (Vitter's algorithm R), drawn with a fixed seed.
type sample struct {
	rng      *rand.Rand
	kept     []float64
	n        int
	sum, max float64
}

const sampleSize = 100_000

func (s *sample) add(v float64) {
	s.n++
	s.sum += v
	s.max = max(s.max, v)
	if len(s.kept) < sampleSize {
		s.kept = append(s.kept, v)
	} else if i := s.rng.IntN(s.n); i < sampleSize {
		s.kept[i] = v
	}
}

func (s *sample) quantiles() Quantiles {
	if s.n == 0 {
		return Quantiles{}
	}
	slices.Sort(s.kept)
	at := func(p float64) float64 { return s.kept[int(p*float64(len(s.kept)-1)+0.5)] }
	return Quantiles{Mean: s.sum / float64(s.n), P10: at(0.1), P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: s.max}
}
