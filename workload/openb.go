package workload

import (
	"fmt"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// The Alibaba GPU trace of 2023, "openb" (Weng et al., USENIX ATC '23). Every
// pod is a job of its own, no gang, in DefaultQueue:
//
//   - LS pods are inference jobs, all others batch jobs; the trace has no more details.
//   - LS and Guaranteed pods are HP of high priority, Burstable ones HP of
//     normal priority, BE ones LP of low priority.
//   - A pod is submitted at its creation and runs as long as it did between
//     scheduling (creation, if it never was) and deletion. Failed pods fail, all
//     others complete.
//   - The multigpu lists have neither times nor classes: all their pods are submitted at
//     0, in the file's order, as LS pods, and are Endless.
var (
	openbJobs = jobFormat{
		columns: columns{
			required: []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"},
			optional: []string{"gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time"},
		},
		start:    rows(readOpenbPod),
		unsorted: true,
		misfits:  true, // in the gpuspec lists
	}
	openbCluster = clusterFormat{
		columns: columns{required: []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}},
		read:    readOpenbCluster,
	}
)

const (
	openbName = iota
	openbCPU
	openbMem
	openbNumGPU
	openbGPUMilli
	openbSpec
	openbQoS
	openbPhase
	openbCreated
	openbDeleted
	openbScheduled
)

func readOpenbPod(t *table, _ *Options) Job {
	var j Job
	j.Name, j.Queue = string(t.name(openbName)), DefaultQueue
	j.Kind, j.Class, j.Priority = openbService(t)
	j.Tasks = []core.Task{{Pods: 1, Request: core.Request{
		GPU:      openbGPU(t),
		CPUMilli: t.count(openbCPU, 0, maxCPUMilli),
		MemMiB:   t.count(openbMem, 0, maxMemMiB),
	}}}
	if spec := t.text(openbSpec); len(spec) > 0 {
		j.Tasks[0].Models = strings.Split(string(spec), "|")
	}
	if string(t.field(openbPhase)) == "Failed" {
		j.Outcome = Failed
	}
	j.Submitted, j.Duration = openbTimes(t)
	return j
}

// openbGPU reads the GPUs of a pod: whole ones, or a part of one.
func openbGPU(t *table) core.Milli {
	n := t.count(openbNumGPU, 0, cluster.MaxGPUs)
	milli := t.count(openbGPUMilli, 0, int64(core.WholeGPU))
	switch {
	case n > 1 && milli != int64(core.WholeGPU):
		t.wrong(openbGPUMilli, "1000 for a pod of several GPUs")
	case n == 1 && milli == 0:
		t.wrong(openbGPUMilli, "1..1000 for a pod of one GPU")
	case n == 0 && milli != 0:
		t.wrong(openbGPUMilli, "0 for a pod without GPUs")
	}
	return core.Milli(n * milli)
}

func openbService(t *table) (core.Kind, core.Class, int32) {
	if !t.has(openbQoS) {
		return core.Inference, core.HP, highPriority
	}
	switch string(t.field(openbQoS)) {
	case "LS":
		return core.Inference, core.HP, highPriority
	case "Guaranteed":
		return core.Batch, core.HP, highPriority
	case "Burstable":
		return core.Batch, core.HP, normalPriority
	case "BE":
		return core.Batch, core.LP, lowPriority
	}
	t.wrong(openbQoS, "LS, Guaranteed, Burstable or BE")
	return 0, 0, 0
}

func openbTimes(t *table) (submitted, duration core.Time) {
	if !t.has(openbCreated) || !t.has(openbDeleted) {
		return 0, Endless
	}
	created := t.seconds(openbCreated)
	started := created
	if len(t.field(openbScheduled)) > 0 {
		started = t.seconds(openbScheduled)
	}
	deleted := t.seconds(openbDeleted)
	if deleted < started {
		t.wrong(openbDeleted, fmt.Sprintf("seconds not before %v", started.Seconds()))
	}
	return created, deleted - started
}

func readOpenbCluster(t *table, opt *Options) (Cluster, error) {
	const sn, cpu, mem, gpu, model = 0, 1, 2, 3, 4
	nodes, err := readNodes(t, func() core.Node {
		n := core.Node{
			Name:     string(t.name(sn)),
			GPUs:     int(t.count(gpu, 0, cluster.MaxGPUs)),
			CPUMilli: t.count(cpu, 0, maxCPUMilli),
			MemMiB:   t.count(mem, 0, maxMemMiB),
		}
		n.Model = t.model(model, n.GPUs)
		return n
	})
	if err != nil {
		return Cluster{}, err
	}
	return addTopology(nodes, opt), nil
}

// model reads the GPU model of a node, empty if and only if it has no GPUs.
func (t *table) model(c int, gpus int) string {
	model := string(t.text(c))
	if !validModel(model) || (model == "") != (gpus == 0) {
		t.wrong(c, fmt.Sprintf("the model of %d GPUs", gpus))
	}
	return model
}
