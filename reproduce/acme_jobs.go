package reproduce

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/semantic/metadata"
	"github.com/muster-sched/muster/workload"
)

// acmeJobs is jobs in the shape of Seren, a cluster of Acme (Hu et al., NSDI 2024). Its table of jobs is not at hand; what was published of it is: the shares
// of the kinds of work, their GPUs and run times, and how jobs end. A campaign is a user's runs of the same work, such as the evaluations of one model on
// several data sets, again for each of its checkpoints. Its jobs have no names, as in the table.
type acmeJobs struct {
	jobs int
	// gpus and load say how fast they come: they take that share of the time of so many GPUs, from the first submission to the last. No job has more.
	gpus int
	load float64
	// spread is the standard deviation of the logarithm of the run times of the same work. What a kind's run times are spread by beyond that, lies between
	// its works.
	spread float64
	// training leaves out evaluations.
	training bool
	seed     uint64
}

// acmeKind is a kind of work.
type acmeKind struct {
	name  string
	share float64 // of the jobs
	gpus  []int   // one of these, each as likely
	// median and mean are of the run times of jobs that complete, in seconds.
	median, mean float64
	// failed and cancelled are the shares of the jobs that end so.
	failed, cancelled float64
	batch             int // up to so many jobs are submitted together, each of another work
}

// acmeKinds are the kinds of Seren. Published are: pretraining is 0.9 % of the jobs and 69.5 % of the GPU time; evaluation is most of the jobs, comes in
// batches, and is of up to 63 data sets (Hu et al., §3.2 and §6.2). Of the 207,700 GPU jobs in the table that completed, 134,269, 39,326, 4,656 and 948 are evaluation, SFT,
// MLLM and pretraining, with the GPUs, medians and means below (the README of sunedin/ai-datacenter-power-profiling; acmetrace-gpu-waste of CoolingCube has their
// number); the others are counted as other, with debugging. Sizes are values about those means, medians and quantiles.
//
// Assumed are: the run times of pretraining, whose median is within an order of magnitude of the others' (§3.2), and which make its GPU time; those of
// other work, which make the mean of all; and that nearly all pretraining is cancelled that did not complete.
var acmeKinds = []acmeKind{
	{"evaluation", 0.645, repeated(1, 14, 2, 2, 4, 1, 8, 3), 324, 1260, 0.44, 0.07, 63},
	{"sft", 0.19, repeated(1, 4, 2, 1, 4, 1, 8, 14), 324, 972, 0.44, 0.07, 1},
	{"mllm", 0.022, repeated(1, 7, 2, 4, 8, 8, 32, 1), 648, 6156, 0.44, 0.07, 1},
	{"pretraining", 0.009, repeated(48, 2, 64, 3, 128, 7, 256, 5, 512, 2, 768, 1), 1000, 15000, 0.05, 0.75, 1},
	{"other", 0.134, repeated(1, 8, 2, 2, 4, 2, 8, 6, 16, 1, 32, 1), 324, 11000, 0.44, 0.07, 1},
}

// repeated returns values, each so often: 1, 14 is fourteen times 1.
func repeated(pairs ...int) []int {
	var out []int
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, slices.Repeat(pairs[i:i+1], pairs[i+1])...)
	}
	return out
}

// Most jobs that fail do so in their first minutes (§5.2). We assume the logarithm of the time; with this median half of all jobs take less than two minutes, as
// published.
const (
	acmeFailsAfter = 65 // seconds, the median
	acmeFailSpread = 1
)

const acmeUsers = 60

// acmeJob is a job with what is written in its code.
type acmeJob struct {
	workload.Job
	kind string
	code metadata.Job
}

// Seren has 286 nodes of 8 GPUs, and 663,813 GPU jobs in six months. They leave 41 % of the GPU time idle; on our jobs, which come as
// far apart as there before they are fitted to a load, few would wait.
const (
	serenGPUs       = 286 * 8
	serenJobsPerDay = 663_813 / 184.0
)

// make generates the jobs, in the order of their submission.
func (a *acmeJobs) make() []acmeJob {
	rng := rand.New(rand.NewPCG(a.seed, 0x736572656e)) // "seren"
	kinds := acmeKinds
	if a.training {
		kinds = kinds[1:] // the first are evaluations
	}
	all := 0.0
	for i := range kinds {
		all += kinds[i].share
	}
	var jobs []acmeJob
	made := make([]int, len(kinds))
	for len(jobs) < a.jobs {
		// The kind that lacks most jobs is next.
		next, lack := 0, math.Inf(-1)
		for i := range kinds {
			if l := kinds[i].share/all*float64(len(jobs)+1) - float64(made[i]); l > lack {
				next, lack = i, l
			}
		}
		of := a.campaign(&kinds[next], rng)
		made[next] += len(of)
		jobs = append(jobs, of...)
	}
	slices.SortStableFunc(jobs, func(a, b acmeJob) int { return cmp.Compare(a.Submitted, b.Submitted) })
	work := 0.0
	for i := range jobs {
		work += jobs[i].Duration.Seconds() * float64(jobs[i].GPUs()/core.WholeGPU)
	}
	faster := jobs[len(jobs)-1].Submitted.Seconds() * float64(a.gpus) * a.load / work
	for i := range jobs {
		jobs[i].Name = strconv.Itoa(5_000_000 + i)
		jobs[i].Submitted = core.Time(jobs[i].Submitted.Seconds()/faster) * core.Second
	}
	return jobs
}

// campaign returns the jobs of a campaign.
func (a *acmeJobs) campaign(k *acmeKind, rng *rand.Rand) []acmeJob {
	// 1. What its jobs have in common.
	user := "u" + strconv.Itoa(int(acmeUsers*math.Pow(rng.Float64(), 2))) // a few submit most
	gpus := min(k.gpus[rng.IntN(len(k.gpus))], a.gpus)
	model := "model-" + strconv.Itoa(rng.IntN(40))
	within := min(a.spread, sigmaOf(k.median, k.mean))
	between := math.Sqrt(math.Pow(sigmaOf(k.median, k.mean), 2) - within*within)

	// 2. Its works, each with its own code and usual run time.
	type work struct {
		code  metadata.Job
		takes float64
	}
	var works []work
	for range 1 + rng.IntN(k.batch) {
		w := work{takes: k.median * math.Exp(between*rng.NormFloat64())}
		w.code.Model.Name, w.code.Model.Task = model, metadata.NLP
		w.code.Model.Parameters = map[string]string{"stage": k.name}
		w.code.Dataset.Train = "data-" + strconv.Itoa(rng.IntN(400))
		works = append(works, w)
	}

	// 3. Each run of the campaign is a job of each work. How often it runs is as in schedmate-modules.
	runs, span := runsOfJob(rng), float64(a.jobs)/serenJobsPerDay*86400
	first, every := rng.Float64()*span, rng.ExpFloat64()*12*3600
	var jobs []acmeJob
	for r := range runs {
		at := math.Mod(first+float64(r)*every*(0.5+rng.Float64()), span)
		for i := range works {
			w := &works[i]
			takes := w.takes * math.Exp(within*rng.NormFloat64())
			j := acmeJob{kind: k.name, code: w.code}
			switch ends := rng.Float64(); {
			case ends < k.failed:
				j.Outcome = workload.Failed
				takes = min(takes, acmeFailsAfter*math.Exp(acmeFailSpread*rng.NormFloat64()))
			case ends < k.failed+k.cancelled:
				j.Outcome = workload.Cancelled
			}
			drawn := drawnJob(0, core.Time(at)*core.Second, gpus, core.Time(max(1, takes))*core.Second)
			drawn.User, drawn.Outcome = user, j.Outcome
			j.Job = drawn
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// sigmaOf returns the standard deviation of the logarithm of a log-normal value.
func sigmaOf(median, mean float64) float64 { return math.Sqrt(2 * math.Log(mean/median)) }

// acmeShape is what is published of the jobs of a cluster.
type acmeShape struct {
	meanRun, medianRun        float64 // seconds
	meanGPUs                  float64
	short, large              float64 // the shares of the jobs of less than five minutes, and with more than 8 GPUs
	pretraining, pretrainTime float64 // its shares of the jobs, and of the GPU time
	single                    float64 // the share of the GPU time that jobs of one GPU take
	gpuHours                  float64
}

func shapeOf(jobs []acmeJob) acmeShape {
	var s acmeShape
	var runs []float64
	work, n := 0.0, float64(len(jobs))
	for i := range jobs {
		j := &jobs[i]
		run, gpus := j.Duration.Seconds(), float64(j.GPUs()/core.WholeGPU)
		runs = append(runs, run)
		s.meanRun += run / n
		s.meanGPUs += gpus / n
		work += run * gpus
		if run < 300 {
			s.short += 1 / n
		}
		if gpus > 8 {
			s.large += 1 / n
		}
		if j.kind == "pretraining" {
			s.pretraining += 1 / n
			s.pretrainTime += run * gpus
		}
		if gpus == 1 {
			s.single += run
		}
	}
	slices.Sort(runs)
	s.medianRun, s.pretrainTime, s.single, s.gpuHours = runs[len(runs)/2], s.pretrainTime/work, s.single/work, work/3600
	return s
}

// shapeRows compares the mean of shapes with what is published: of the summary of Acme's traces, Hu et al. §3, and acmetrace-gpu-waste of CoolingCube (jobs of
// less than five minutes).
func shapeRows(set string, shapes []acmeShape) []Row {
	mean := func(of func(*acmeShape) float64) (sum float64) {
		for i := range shapes {
			sum += of(&shapes[i]) / float64(len(shapes))
		}
		return sum
	}
	rows := []Row{
		within(set+": mean run time", serenRuns.meanRun, mean(func(s *acmeShape) float64 { return s.meanRun }), 0.2, "s"),
		within(set+": median run time", serenRuns.medianRun, mean(func(s *acmeShape) float64 { return s.medianRun }), 0.15, "s"),
		withinPoints(set+": jobs of less than 5 minutes", 69, 5, 100*mean(func(s *acmeShape) float64 { return s.short }), "%"),
		within(set+": mean GPUs", 5.68, mean(func(s *acmeShape) float64 { return s.meanGPUs }), 0.15, "GPUs"),
		atMost(set+": jobs with more than 8 GPUs", 7, 7, 100*mean(func(s *acmeShape) float64 { return s.large }), "%"),
		withinPoints(set+": pretraining, of the jobs", 0.9, 0.2, 100*mean(func(s *acmeShape) float64 { return s.pretraining }), "%"),
		withinPoints(set+": pretraining, of the GPU time", 69.5, 10, 100*mean(func(s *acmeShape) float64 { return s.pretrainTime }), "%"),
		atMost(set+": jobs of one GPU, of the GPU time", 2, 5, 100*mean(func(s *acmeShape) float64 { return s.single }), "%"),
	}
	for i := range rows {
		rows[i].Input = true
	}
	return rows
}
