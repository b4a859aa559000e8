package reproduce

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// recurringJobs is a workload of jobs that are submitted again and again, in the shape of Alibaba's PAI: no public excerpt of it
// that says which jobs are the same has run times with submissions. From the public excerpt of its run times (Hydra's 5,000 jobs
// on a V100) come the median and the spread between jobs; the rest is assumed, and said in the experiment's notes.
type recurringJobs struct {
	jobs int
	days float64
	// spread is the standard deviation of the logarithm of the run times of a job's runs.
	spread float64
	seed   uint64
}

// What is assumed, and the run times of the excerpt.
const (
	recurringShare  = 0.65 // of the jobs are runs of a job with at least 5 runs
	renamedShare    = 0.3  // of the runs have another word in their name
	medianSeconds   = 5600
	spreadOfMedians = 1.33
	recurringUsers  = 60
)

// recurringJob is what runs have in common.
type recurringJob struct {
	user, name string
	gpus       int64
	median     float64
}

var (
	recurringModels = []string{"bert-large", "bert-base", "resnet50", "resnet101", "deepfm", "din", "gpt2", "llama-7b", "vit-b", "graphsage", "xdeepfm", "wide-deep", "conformer", "yolov5", "t5-small", "bst"}
	recurringData   = []string{"ctr", "search", "ads", "taobao", "imagenet", "wiki", "speech", "video", "reviews", "alipay"}
	recurringMarks  = []string{"lr3e4", "fix", "nodrop", "big", "fp16", "ablation", "retry", "long"}
)

// make generates the jobs, in the order of their submission.
func (r *recurringJobs) make() []workload.Job {
	rng := rand.New(rand.NewPCG(r.seed, 0x726563)) // "rec"
	var jobs []workload.Job
	for len(jobs) < r.jobs {
		of := recurringJob{
			user: fmt.Sprintf("user%d", int(recurringUsers*math.Pow(rng.Float64(), 2))), // a few submit most
			name: recurringModels[rng.IntN(len(recurringModels))] + "-" + recurringData[rng.IntN(len(recurringData))],
			gpus: []int64{1, 1, 1, 1, 1, 1, 2, 4, 8, 8}[rng.IntN(10)], median: math.Exp(math.Log(medianSeconds) + spreadOfMedians*rng.NormFloat64()),
		}
		runs := runsOfJob(rng)
		first, every := rng.Float64()*r.days*86400, rng.ExpFloat64()*12*3600
		for k := range runs {
			at := math.Mod(first+float64(k)*every*(0.5+rng.Float64()), r.days*86400)
			jobs = append(jobs, of.run(k, at, r.spread, rng))
		}
	}
	slices.SortStableFunc(jobs, func(a, b workload.Job) int { return cmp.Compare(a.Submitted, b.Submitted) })
	for i := range jobs {
		jobs[i].Name += fmt.Sprintf("-%05d", i)
	}
	return jobs
}

// runsOfJob draws how often a job runs: one with at least 5 runs has 17 on average, one with fewer 2.5. Of the jobs, 1 in 4.7 are such.
func runsOfJob(rng *rand.Rand) int {
	runs := 1 + rng.IntN(4)
	if rng.Float64() < recurringShare/17/(recurringShare/17+(1-recurringShare)/2.5) {
		runs = 5 + int(rng.ExpFloat64()*12)
	}
	return runs
}

// run returns a run of the job.
func (of *recurringJob) run(k int, at, spread float64, rng *rand.Rand) workload.Job {
	var j workload.Job
	j.Name, j.User, j.Queue = of.name, of.user, workload.DefaultQueue
	if k > 0 && rng.Float64() < renamedShare {
		j.Name += "-" + recurringMarks[rng.IntN(len(recurringMarks))]
	}
	j.Tasks = []core.Task{{Name: "worker", Pods: 1, Request: core.Request{GPU: core.Milli(of.gpus) * core.WholeGPU}}}
	j.Submitted = core.Time(at) * core.Second
	j.Duration = core.Time(max(10, of.median*math.Exp(spread*rng.NormFloat64()))) * core.Second
	return j
}

// sameRecurring says of which job a run is: by its user, the first two parts of its name and its GPUs. The predictors are not told.
func sameRecurring(j *workload.Job) string {
	name := j.Name
	for _, d := range recurringData {
		if i := strings.Index(name, "-"+d+"-"); i >= 0 {
			name = name[:i+len(d)+1]
			break
		}
	}
	return fmt.Sprint(j.User, " ", name, " ", j.GPUs())
}
