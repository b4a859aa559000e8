package reproduce

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"

	"github.com/klauspost/compress/gzip"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// The workloads of schedmate-lucid. Philly's jobs are public. Of Venus the arrivals are, of Saturn and Acme only aggregates: the rest is drawn.

// published is what a trace's authors say of its GPU jobs (the summaries of the clusters of Helios, SC 2020, and of Acme, NSDI 2024): seconds.
type published struct{ meanRun, medianRun float64 }

var (
	venusRuns  = published{13040.598, 204}
	saturnRuns = published{5252.927, 124}
	serenRuns  = published{1414.335, 122}
)

// draw returns a run time of a log-normal distribution with the published mean and median.
func (p published) draw(rng *rand.Rand) core.Time {
	return core.Time(max(1, p.medianRun*math.Exp(sigmaOf(p.medianRun, p.meanRun)*rng.NormFloat64())) * float64(core.Second))
}

// longestRun bounds what is drawn: two weeks.
const longestRun = 14 * 24 * 3600 * core.Second

// venusShaped is the arrivals of Venus from 1 July 2020 on, as the counts of each ten minutes have them. Each job's GPUs are drawn from
// the windows with one job, whose sizes are known so; its run time from the published mean and median.
func venusShaped(file string, days int, seed uint64) ([]workload.Job, error) {
	rows, err := readGzip(file)
	if err != nil {
		return nil, err
	}
	at := func(row []string, column string) string { return row[slices.Index(rows[0], column)] }
	for _, c := range []string{"time", "submit_gpu_job", "submit_gpu_num"} {
		if !slices.Contains(rows[0], c) {
			return nil, &workload.Error{File: file, Line: 1, Field: c, Want: "a column of this name, found none"}
		}
	}
	var sizes []int
	var counts []int
	for i, row := range rows[1:] {
		jobs, err := strconv.Atoi(at(row, "submit_gpu_job"))
		gpus, err2 := strconv.Atoi(at(row, "submit_gpu_num"))
		if err != nil || err2 != nil {
			return nil, &workload.Error{File: file, Line: i + 2, Want: "whole numbers of jobs and GPUs"}
		}
		if jobs == 1 && gpus > 0 && gpus <= 64 {
			sizes = append(sizes, gpus)
		}
		if at(row, "time") >= "2020-07-01" && len(counts) < days*144 {
			counts = append(counts, jobs)
		}
	}
	if len(sizes) == 0 || len(counts) == 0 {
		return nil, &workload.Error{File: file, Want: "windows of July 2020, and some with one job"}
	}
	rng := rand.New(rand.NewPCG(seed, 0x76656e7573)) // "venus"
	var out []workload.Job
	for w, n := range counts {
		var times []core.Time
		for range n {
			times = append(times, core.Time(w)*600*core.Second+core.Time(rng.Int64N(600))*core.Second)
		}
		slices.Sort(times)
		for _, t := range times {
			out = append(out, drawnJob(len(out), t, sizes[rng.IntN(len(sizes))], venusRuns.draw(rng)))
		}
	}
	return out, nil
}

// venusVCFile has the virtual clusters of Venus, and how many nodes each has.
const venusVCFile = "vc_config.csv"

// virtualCluster is nodes that only its jobs use.
type virtualCluster struct {
	name  string
	nodes int
}

// venusVCs are the virtual clusters of Venus, of as many nodes in all as there are: each has its share, and at least one.
func venusVCs(file string, nodes int) ([]virtualCluster, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 2 || !slices.Equal(rows[0], []string{"vc", "nodes"}) {
		return nil, &workload.Error{File: file, Want: "the columns vc and nodes, and rows below them"}
	}
	var out []virtualCluster
	for i, row := range rows[1:] {
		n, err := strconv.Atoi(row[1])
		if err != nil || n < 1 {
			return nil, &workload.Error{File: file, Line: i + 2, Field: "nodes", Want: "a number of at least 1, found " + row[1]}
		}
		out = append(out, virtualCluster{row[0], n})
	}
	return shared(out, nodes), nil
}

// shared gives virtual clusters their share of so many nodes, at least one.
func shared(vcs []virtualCluster, nodes int) []virtualCluster {
	all := 0
	for i := range vcs {
		all += vcs[i].nodes
	}
	for i := range vcs {
		vcs[i].nodes = max(1, int(math.Round(float64(vcs[i].nodes*nodes)/float64(all))))
	}
	return vcs
}

// assign draws the virtual cluster of each job among those that are large enough, by their nodes.
func assign(jobs []workload.Job, vcs []virtualCluster, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0x7663)) // "vc"
	for i := range jobs {
		need := int((jobs[i].GPUs() + 8*core.WholeGPU - 1) / (8 * core.WholeGPU))
		all := 0
		for _, vc := range vcs {
			if vc.nodes >= need {
				all += vc.nodes
			}
		}
		at := rng.IntN(max(1, all))
		for _, vc := range vcs {
			if vc.nodes < need {
				continue
			}
			if at -= vc.nodes; at < 0 {
				jobs[i].Queue = vc.name
				break
			}
		}
	}
}

// Saturn had 698,896 GPU jobs from April to September 2020, of 4.01 GPUs on average, 1 in the median. Of those of September, 70.8 % were of one GPU; then the largest
// of its 23 virtual clusters had these nodes of its 265 (docs/validation.md of felivalencia3/mini-compute-simulator, from the public log). The other 17 are taken to be equal.
const saturnJobsPerDay = 698_896 / 183.0

var (
	saturnSizes   = repeated(1, 17, 2, 1, 4, 1, 8, 3, 16, 1, 32, 1)
	saturnLargest = []int{34, 28, 28, 20, 19, 6}
)

// saturnVCs are the virtual clusters of Saturn, with as many nodes in all as there are: each has its share, and at least one.
func saturnVCs(nodes int) []virtualCluster {
	sizes, rest := slices.Clone(saturnLargest), 265
	for _, n := range saturnLargest {
		rest -= n
	}
	for others := 23 - len(saturnLargest); others > 0; others-- {
		sizes = append(sizes, rest/others)
		rest -= rest / others
	}
	var out []virtualCluster
	for i, n := range sizes {
		out = append(out, virtualCluster{fmt.Sprintf("vc%d", i+1), n})
	}
	return shared(out, nodes)
}

// saturnShaped is the jobs of some days of Saturn, which come at random.
func saturnShaped(days int, seed uint64) []workload.Job {
	rng := rand.New(rand.NewPCG(seed, 0x73617475726e)) // "saturn"
	at := make([]core.Time, int(float64(days)*saturnJobsPerDay))
	for i := range at {
		at[i] = core.Time(rng.Float64()*float64(days)*86400) * core.Second
	}
	slices.Sort(at)
	var out []workload.Job
	for i := range at {
		out = append(out, drawnJob(i, at[i], saturnSizes[rng.IntN(len(saturnSizes))], saturnRuns.draw(rng)))
	}
	return out
}

// exitEarly lets a half of the jobs end after a part of their run time, as SchedMate does with a portion of them (§5.1), which it does not tell: that portion, and that
// each part is as likely, is our assumption.
func exitEarly(jobs []workload.Job, seed uint64) []workload.Job {
	rng := rand.New(rand.NewPCG(seed, 0x65786974)) // "exit"
	out := slices.Clone(jobs)
	for i := range out {
		if exits, after := rng.Float64() < 0.5, rng.Float64(); exits {
			out[i].Duration = max(core.Second, core.Time(float64(out[i].Duration)*after))
		}
	}
	return out
}

// acmeShaped is jobs that come at random, at that share of the GPUs of a cluster, with the published mean and median of Seren's run times,
// and sizes about its mean of 5.7 GPUs and median of 1.
func acmeShaped(jobs, gpus int, load float64, seed uint64) []workload.Job {
	sizes := []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 8, 8, 16, 32, 32}
	rng := rand.New(rand.NewPCG(seed, 0x61636d65)) // "acme"
	var out []workload.Job
	var work float64
	for i := range jobs {
		j := drawnJob(i, 0, sizes[rng.IntN(len(sizes))], serenRuns.draw(rng))
		work += j.Duration.Seconds() * float64(j.GPUs()/core.WholeGPU)
		out = append(out, j)
	}
	span := work / float64(gpus) / load
	at := make([]core.Time, jobs)
	for i := range at {
		at[i] = core.Time(rng.Float64()*span) * core.Second
	}
	slices.Sort(at)
	for i := range out {
		out[i].Submitted = at[i]
	}
	return out
}

// drawnJob is a training job on nodes of 8 GPUs.
func drawnJob(i int, at core.Time, gpus int, run core.Time) workload.Job {
	j := workload.Job{Duration: min(run, longestRun)}
	j.Name, j.Queue, j.Submitted = fmt.Sprintf("job-%d", i), workload.DefaultQueue, at
	task := func(pods, gpus int) core.Task {
		return core.Task{Pods: pods, Request: core.Request{GPU: core.Milli(gpus) * core.WholeGPU}}
	}
	if whole := gpus / 8; whole > 0 {
		j.Tasks = append(j.Tasks, task(whole, 8))
	}
	if rest := gpus % 8; rest > 0 {
		j.Tasks = append(j.Tasks, task(1, rest))
	}
	j.Gang = j.Pods() > 1
	return j
}

// loadOf is the GPU time of jobs, relative to what nodes of 8 GPUs have from the first submission to the last.
func loadOf(jobs []workload.Job, nodes int) float64 {
	var work float64
	for i := range jobs {
		work += jobs[i].Duration.Seconds() * float64(jobs[i].GPUs()/core.WholeGPU)
	}
	return work / (jobs[len(jobs)-1].Submitted - jobs[0].Submitted).Seconds() / float64(8*nodes)
}

// readGzip reads a CSV file that is compressed; its first row is the header.
func readGzip(file string) ([][]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, &workload.Error{File: file, Want: "a gzip file: " + err.Error()}
	}
	rows, err := csv.NewReader(z).ReadAll()
	if err == nil && len(rows) < 2 {
		err = errors.New("nothing below a header")
	}
	if err != nil {
		return nil, &workload.Error{File: file, Want: "a header and rows of CSV; found: " + err.Error()}
	}
	return rows, nil
}
