package workload

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/quota"
)

// Microsoft Philly 2017 (Jeon et al., ATC '19), as a table of jobs and the
// nodes of each virtual cluster. A job is a training job, HP; its queue is its
// virtual cluster. A gang of whole nodes of 8 GPUs and one pod for the
// remainder, where it is larger than a node.
var (
	phillyJobs = jobFormat{
		columns: columns{
			required: []string{"job_id", "submit_s", "gpus", "duration_s"},
			optional: []string{"vc", "submit_time", "user"},
		},
		start: phillyStart,
		wall:  true,
	}
	phillyCluster = clusterFormat{
		columns: columns{required: []string{"vc", "node num"}},
		read:    readPhillyCluster,
	}
)

const (
	phillyJob = iota
	phillySubmit
	phillyGPUs
	phillyDuration
	phillyVC
	phillyWall
	phillyUser
)

// gpusPerNode is the size of nodes in traces that do not contain it.
const gpusPerNode = 8

// maxJobGPUs bounds the GPUs of a job in traces that give a total.
const maxJobGPUs = maxPods * gpusPerNode

func phillyStart(t *table, opt *Options) nextJob {
	next := rows(readPhillyJob)(t, opt)
	if opt.FromWall.IsZero() && opt.ToWall.IsZero() {
		return next
	}
	return func() (Job, int, error) {
		for {
			j, line, err := next()
			if err != nil {
				return j, line, err
			}
			wall, err := t.wall(phillyWall)
			if err != nil {
				return Job{}, line, err
			}
			if !wall.Before(opt.FromWall) && (opt.ToWall.IsZero() || wall.Before(opt.ToWall)) {
				return j, line, nil
			}
		}
	}
}

func readPhillyJob(t *table, opt *Options) Job {
	j := trainingJob(string(t.name(phillyJob)), t.count(phillyGPUs, 1, maxJobGPUs))
	j.Queue, j.User = opt.queue(t.text(phillyVC)), string(t.text(phillyUser))
	j.Submitted = t.seconds(phillySubmit)
	j.Duration = t.seconds(phillyDuration)
	return j
}

// wall reads a wall-clock time, without zone.
func (t *table) wall(c int) (time.Time, error) {
	if !t.has(c) {
		return time.Time{}, &Error{File: t.file, Line: 1, Want: `a column "submit_time" to select by wall-clock time`}
	}
	at, err := time.Parse(time.DateTime, string(t.field(c)))
	if err != nil {
		t.wrong(c, "a time like 2006-01-02 15:04:05")
		return at, t.err
	}
	return at, nil
}

// trainingJob returns an HP training job of n GPUs: one pod of up to a node's
// GPUs, or a gang of whole nodes and one pod for the remainder.
func trainingJob(name string, n int64) Job {
	var j Job
	j.Name, j.Queue, j.Priority = name, DefaultQueue, normalPriority
	j.Tasks = splitGPUs(n)
	j.Gang = j.Pods() > 1
	return j
}

// splitGPUs returns the tasks of a training job of n GPUs on nodes of 8: a worker task of
// pods that fill a node, and a rest task of one pod. If n is 0, there is no task.
func splitGPUs(n int64) []core.Task {
	whole, rest := n/gpusPerNode, n%gpusPerNode
	pod := func(gpus int64) core.Request { return core.Request{GPU: core.Milli(gpus) * core.WholeGPU} }
	switch {
	case n == 0:
		return nil
	case whole == 0:
		return []core.Task{{Name: "worker", Pods: 1, Request: pod(rest)}}
	case rest == 0:
		return []core.Task{{Name: "worker", Pods: int(whole), Request: pod(gpusPerNode)}}
	}
	return []core.Task{
		{Name: "worker", Pods: int(whole), Request: pod(gpusPerNode)},
		{Name: "rest", Pods: 1, Request: pod(rest)},
	}
}

// readPhillyCluster makes 8-GPU nodes and, after DefaultQueue, a queue for each
// virtual cluster. With Options.Quotas a queue owns the GPUs of its nodes,
// which it lends, and DefaultQueue owns none and may borrow.
func readPhillyCluster(t *table, opt *Options) (Cluster, error) {
	const vc, nodeNum = 0, 1
	var nodes []core.Node
	names, gpus := []string{DefaultQueue}, []int64{0}
	err := t.each(func() error {
		name, n := string(t.name(vc)), t.count(nodeNum, 1, int64(maxNodes-len(nodes)))
		if slices.Contains(names, name) {
			return t.fault("vc", fmt.Sprintf("a virtual cluster named once, found %q again", name))
		}
		nodes = appendNodes(nodes, int(n), core.Node{GPUs: gpusPerNode, Model: unknownModel})
		names, gpus = append(names, name), append(gpus, n*gpusPerNode)
		return nil
	})
	if err != nil {
		return Cluster{}, err
	}
	if len(nodes) == 0 {
		return Cluster{}, &Error{File: t.file, Want: "at least one virtual cluster"}
	}
	c := addTopology(nodes, opt)
	c.Queues = phillyQueues(names, gpus, opt.Quotas)
	return c, nil
}

// phillyQueues returns the queues below one root, with the GPUs that they own if the
// options ask for quotas.
func phillyQueues(names []string, gpus []int64, quotas bool) []core.Queue {
	const root = "philly"
	var queues []core.Queue
	if quotas {
		queues = append(queues, core.Queue{Name: root, Weight: 1})
	}
	for i, name := range names {
		q := core.Queue{Name: name, Weight: 1}
		if quotas {
			q.Parent = root
			q.Quota = []core.Quota{{
				Model:          quota.AnyModel,
				Nominal:        core.Milli(gpus[i]) * core.WholeGPU,
				BorrowingLimit: core.Unlimited,
				LendingLimit:   core.Unlimited,
			}}
		}
		queues = append(queues, q)
	}
	return queues
}
