package workload

import (
	"github.com/muster-sched/muster/core"
)

// asiGroup is the jobs of the workload asi of one kind with one type of model.
type asiGroup struct {
	kind core.Kind
	// models is the type of model; tasks are named for it.
	models string
	// share is the group's share of all jobs, and hp the share of HP jobs in the group,
	// in per cent.
	share, hp float64
	// locked is the share of the HP jobs that are locked, in per cent.
	locked float64
	// day is how much more than the mean arrives at the busiest hour.
	day float64
	// life is how long jobs of up to 8 GPUs run, burst larger ones.
	life, burst logNormal
	sizes       []asiSize
	// cores are the cores requested with each GPU; each listed value is equally likely,
	// and at most the node's cores per GPU are requested.
	cores      []int64
	checkpoint core.Time
	gang       bool
	// on is the preference for each GPU model; models that are not listed are not used.
	on map[string]float64
	// trend is how arrivals change over the workload.
	trend trend
}

// asiSize is the jobs of a group with this number of GPUs in total and in each pod.
type asiSize struct {
	share float64 // of the group's jobs, in per cent
	gpus  float64
	pod   float64
}

// Parts of the mix that are not of one group, in per cent of the jobs: those
// that accept two GPU models and those that accept any.
const (
	asiTwoModels = 0.5
	asiAnyModel  = 0.2
)

// asiNear is the share of the gangs of a group that require one leaf group; the others
// prefer it. The paper says that users often require it, but not how often.
const asiNear = 0.2

// asiLongest cuts the tail of durations. The largest published job had over 2,000 GPUs
// and used over 800,000 GPU-hours: 2,048 GPUs for this time.
const asiLongest = 400 * 3600 * core.Second

const minute = 60.0

// Sizes of online services of classical models: pods of one GPU, as A10 nodes
// have, up to 8; larger ones in pods of 4 and 8.
var asiServices = []asiSize{
	{0.3, 0.5, 0.5}, {45.4, 1, 1}, {17, 2, 1}, {8, 4, 1}, {6, 8, 1},
	{8, 16, 4}, {7, 32, 4}, {5, 64, 8}, {2.6, 128, 8}, {0.7, 256, 8},
}

// asiGroups is the mix. Only totals are published, and each of them constrains something
// here:
//
//   - 14 million jobs in six months request 93 % of 155,410 GPUs, which is 45 GPU-hours
//     per job. With 11.0 GPUs per job on average, a GPU is held for 4.1 hours, but the
//     median job runs for 5 hours. So larger jobs must be shorter: life and burst, on
//     either side of 8 GPUs.
//   - The median job has 2 GPUs, that of generative models 4, and both have a mean of
//     11.0, so the other jobs have a mean of 11 too: asiServices has large sizes.
//   - HP jobs run 24 hours at most in nine cases of ten, dev jobs longest, offline
//     inference shortest: the medians of life.
//   - Online inference is over half of the jobs; 63 % of it are recommendation
//     models and some 70 % of its GPU-hours classical ones. 71 % of the training
//     and 98 % of the offline inference is generative: share.
//   - HP requests 68 % of the GPUs: hp. Dev jobs are almost all HP, training and online
//     inference mostly, offline inference rarely.
//   - 40 % of the tasks are locked: 80 % of online inference that is HP. Whatever is not
//     locked moves without downtime, whatever its framework (ASI §4.1). An exception of
//     ours: the pods of a training job over several pods stay, since one rank cannot be
//     replaced without a stop of the others.
//   - Separate prefill and decode held 1,041 GPUs a day at the beginning and 3,841 at the
//     end: trend and share of "pd".
//   - A median of 24, 8 and 4 cores for recommendation, BERT and Qwen: cores.
//
// The rest is assumed: the shares of jobs that the paper only plots, the sizes beyond
// median and mean, how much arrivals vary over the day (training, dev and online
// inference request more by day; offline inference requests more at night, when others
// leave GPUs idle, which keeps demand within the cluster), and checkpoints: an evicted
// service loses at most a minute.
var asiGroups = []asiGroup{
	{
		kind: core.Inference, models: "rec", share: 32.8, hp: 93.5, locked: 80, day: 0.35,
		life: logNormal{7.3 * hour, 1}, burst: logNormal{30 * minute, 1},
		sizes: asiServices, cores: []int64{8, 16, 16, 24, 24, 24, 24, 32, 64, 96}, checkpoint: 60 * core.Second,
		on: asiClassical, trend: steady,
	},
	{
		kind: core.Inference, models: "cv", share: 7.2, hp: 94, locked: 80, day: 0.35,
		life: logNormal{7.3 * hour, 1}, burst: logNormal{30 * minute, 1},
		sizes: asiServices, cores: []int64{4, 8, 8, 12, 16}, checkpoint: 60 * core.Second,
		on: asiClassical, trend: steady,
	},
	{
		kind: core.Inference, models: "embedding", share: 2.2, hp: 94, locked: 80, day: 0.35,
		life: logNormal{7.3 * hour, 1}, burst: logNormal{30 * minute, 1},
		sizes: asiServices[1:], cores: []int64{8, 8, 8, 16}, checkpoint: 60 * core.Second,
		on: asiClassical, trend: steady,
	},
	{
		kind: core.Inference, models: "genai", share: 9.8, hp: 93, locked: 80, day: 0.35,
		life: logNormal{6.5 * hour, 1}, burst: logNormal{2.5 * hour, 1},
		sizes: []asiSize{
			{30, 1, 1}, {15, 2, 2}, {22, 4, 4}, {20, 8, 8}, {7, 16, 8}, {4, 32, 8}, {2, 64, 8},
		},
		cores: []int64{4, 4, 4, 4, 4, 8, 8, 12, 16}, checkpoint: 60 * core.Second,
		on:    map[string]float64{"H20": 6, "A100": 3, "A800": 3, "H800": 1, "L20": 1, "XPU-A": 5, "XPU-B": 2, "XPU-C": 0.5, "XPU-D": 0.5, "XPU-E": 0.5, "A10": 0.2},
		trend: steady,
	},
	{
		kind: core.Inference, models: "pd", share: 0.063, hp: 100, locked: 80,
		burst: logNormal{22 * hour, 0.8},
		sizes: []asiSize{{50, 16, 8}, {30, 32, 8}, {15, 64, 8}, {5, 256, 8}},
		cores: []int64{12}, gang: true,
		on:    map[string]float64{"H20": 6, "H800": 1},
		trend: trend{0.427, 1.573, 0, 1},
	},
	{
		kind: core.Training, models: "genai", share: 11.4, hp: 90.5, day: 0.35,
		life: logNormal{6.5 * hour, 1}, burst: logNormal{3.1 * hour, 1},
		sizes: []asiSize{
			{18, 1, 1}, {12, 2, 2}, {15, 4, 4}, {36.4, 8, 8}, {8, 16, 8}, {5.5, 32, 8}, {3, 64, 8},
			{1.4, 128, 8}, {0.6, 256, 8}, {0.1, 512, 8},
		},
		cores: asiGenAICores, checkpoint: 1800 * core.Second, gang: true,
		on:    map[string]float64{"H800": 6, "A100": 4, "A800": 4, "H20": 4, "XPU-A": 3, "XPU-B": 1, "L20": 0.3, "A10": 0.1},
		trend: steady,
	},
	{
		kind: core.Training, models: "genai", share: 0.00015, hp: 100,
		burst: logNormal{100 * hour, 0.8},
		sizes: []asiSize{{100, 1024, 8}},
		cores: []int64{12}, checkpoint: 1800 * core.Second, gang: true,
		on:    map[string]float64{"H20": 2, "H800": 6, "A100": 2, "A800": 2},
		trend: steady,
	},
	{
		kind: core.Training, models: "genai", share: 0.00003, hp: 100,
		burst: logNormal{500 * hour, 0.4}, // most are cut at asiLongest
		sizes: []asiSize{{100, 2048, 8}},
		cores: []int64{12}, checkpoint: 1800 * core.Second, gang: true,
		on:    map[string]float64{"H20": 1},
		trend: steady,
	},
	{
		kind: core.Training, models: "classical", share: 4.6, hp: 90.5, day: 0.35,
		life: logNormal{6.5 * hour, 1}, burst: logNormal{4 * hour, 1},
		sizes: []asiSize{{40, 1, 1}, {20, 2, 2}, {15, 4, 4}, {18, 8, 8}, {4, 16, 8}, {2, 32, 8}, {1, 64, 8}},
		cores: []int64{8, 8, 12, 16, 24}, checkpoint: 1800 * core.Second, gang: true,
		on:    map[string]float64{"A100": 3, "A800": 1, "A10": 3, "A30": 2, "L20": 4, "XPU-B": 1, "XPU-C": 2, "XPU-D": 2, "XPU-E": 2},
		trend: steady,
	},
	{
		kind: core.Batch, models: "genai", share: 22.5, hp: 16, day: -0.45,
		life: logNormal{2.9 * hour, 1.1}, burst: logNormal{2.3 * hour, 1},
		sizes: []asiSize{
			{20, 1, 1}, {6, 2, 1}, {6, 2, 2}, {8, 4, 1}, {14, 4, 4}, {30, 8, 8}, {6.5, 16, 8}, {4.1, 32, 8}, {2.9, 64, 8}, {1.7, 128, 8}, {0.8, 256, 8},
		},
		cores: asiGenAICores, checkpoint: 600 * core.Second,
		on:    map[string]float64{"H20": 5, "H800": 6, "A100": 3, "A800": 3, "XPU-A": 5, "L20": 2, "XPU-B": 1, "XPU-C": 1, "XPU-D": 1, "XPU-E": 1, "A10": 1, "A30": 1},
		trend: steady,
	},
	{
		kind: core.Batch, models: "cv", share: 0.5, hp: 16, day: -0.45,
		life: logNormal{2.9 * hour, 1.1}, burst: logNormal{2.3 * hour, 1},
		sizes: asiServices[1:6], cores: []int64{8, 16, 24}, checkpoint: 600 * core.Second,
		on: asiClassical, trend: steady,
	},
	{
		kind: core.Dev, models: "dev", share: 9, hp: 99, day: 0.35,
		life:  logNormal{12 * hour, 0.9},
		sizes: []asiSize{{65, 1, 1}, {15, 2, 2}, {10, 4, 4}, {10, 8, 8}}, cores: []int64{8, 8, 12, 16, 24},
		on:    map[string]float64{"H20": 1, "H800": 1, "A10": 2, "A30": 2, "A100": 1, "A800": 1, "L20": 1, "XPU-A": 1, "XPU-B": 1, "XPU-C": 1, "XPU-D": 1, "XPU-E": 1},
		trend: steady,
	},
}

var asiGenAICores = []int64{4, 4, 4, 8, 8, 8, 12, 12, 16}

// asiClassical is where recommendation and vision models run: mostly on older
// and middling GPUs.
var asiClassical = map[string]float64{"A10": 10, "L20": 10, "A30": 10, "XPU-B": 4, "XPU-C": 4, "XPU-D": 4, "XPU-E": 4,
	"A100": 1, "A800": 0.5, "H20": 0.5, "XPU-A": 0.3}
