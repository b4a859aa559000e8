package snapshot_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/quota"
	"github.com/muster-sched/muster/snapshot"
	"github.com/muster-sched/muster/workload"
)

// builtins stands for the policies that come with Muster.
func builtins(name string) (core.Policy, bool) {
	return core.Policy{Name: name, Queueing: core.Queueing{Mode: core.Backfill}}, name == "default"
}

func parse(t *testing.T, file string) snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.Parse("s.yaml", []byte(file), builtins)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The form that the design documents.
func TestParseWholeSnapshot(t *testing.T) {
	s := parse(t, `
policy: default                      # a name, or the policy itself
topology: {levels: [zone, spine, rack]}          # node labels, widest first
nodes:  [{name: n0, model: H800, gpus: 8, cpuMilli: 192000, memMiB: 1048576, others: {rdma/hca: 8, disk: 100}, labels: {rack: r1, spine: s1, zone: z1}, unhealthy: [3]}]
queues:
- {name: a, parent: org, weight: 2, mode: Isolated, quota: [{model: "*", nominal: 8, borrowingLimit: 8, lendingLimit: 4}]}
- {name: org, quota: [{model: H800, nominal: 2.5}], resources: [{name: cpu, nominal: 96, borrowingLimit: 500m}, {name: memory, nominal: 1Ti, lendingLimit: 512Gi}, {name: rdma/hca, nominal: 4}]}
jobs:
- {name: j1, queue: a, kind: training, class: HP, priority: 50, preemptible: true, gang: true, submittedAgo: 3600, runningFor: 1800,
   topology: {required: rack, preferred: spine, closeness: 0.15}, locked: false,
   tasks: [{name: worker, pods: 4, minPods: 4, gpuMilli: 2000, cpuMilli: 8000, memMiB: 32768, others: {rdma/hca: 1}, models: [H800],
            running: [{pod: j1-0, node: n0, gpus: [0, 1]}]}]}
`)
	if want := []string{"zone", "spine", "rack"}; !reflect.DeepEqual(s.Levels, want) {
		t.Errorf("levels %v, want %v", s.Levels, want)
	}
	node := core.Node{
		Name: "n0", Model: "H800", GPUs: 8, CPUMilli: 192000, MemMiB: 1048576,
		Others:  []core.Amount{{Name: "disk", Value: 100}, {Name: "rdma/hca", Value: 8}},
		Labels:  map[string]string{"rack": "r1", "spine": "s1", "zone": "z1"},
		Domains: []string{"z1", "s1", "r1"}, Unhealthy: []int{3},
	}
	if !reflect.DeepEqual(s.Nodes, []core.Node{node}) {
		t.Errorf("nodes %+v, want %+v", s.Nodes, node)
	}
	queues := []core.Queue{
		{Name: "org", Weight: 1, Quota: []core.Quota{{Model: "H800", Nominal: 2500, BorrowingLimit: core.Unlimited, LendingLimit: core.Unlimited}},
			Resources: []core.ResourceQuota{
				{Resource: "cpu", Nominal: 96_000, BorrowingLimit: 500, LendingLimit: core.Unlimited},
				{Resource: "memory", Nominal: 1 << 20, BorrowingLimit: core.Unlimited, LendingLimit: 512 << 10},
				{Resource: "rdma/hca", Nominal: 4, BorrowingLimit: core.Unlimited, LendingLimit: core.Unlimited},
			}},
		{Name: "a", Parent: "org", Weight: 2, Mode: quota.Isolated, Quota: []core.Quota{{Model: "*", Nominal: 8000, BorrowingLimit: 8000, LendingLimit: 4000}}},
	}
	if !reflect.DeepEqual(s.Queues, queues) {
		t.Errorf("queues %+v, want %+v", s.Queues, queues)
	}
	job := core.Job{
		Name: "j1", Queue: "a", Priority: 50, Gang: true, Submitted: s.Now - 3600*core.Second,
		Topology: core.TopologyRequest{Required: "rack", Preferred: "spine", Closeness: 150},
		Tasks: []core.Task{{Name: "worker", Pods: 4, MinPods: 4,
			Request: core.Request{GPU: 2000, CPUMilli: 8000, MemMiB: 32768, Others: []core.Amount{{Name: "rdma/hca", Value: 1}}, Models: []string{"H800"}}}},
	}
	if !reflect.DeepEqual(s.Jobs[0].Job, job) {
		t.Errorf("job %+v, want %+v", s.Jobs[0].Job, job)
	}
	running := []core.PodRunning{{Job: "j1", Pod: 0, Node: "n0", GPUs: []int{0, 1}, Started: s.Now - 1800*core.Second}}
	if !reflect.DeepEqual(s.Jobs[0].Running, running) {
		t.Errorf("running %+v, want %+v", s.Jobs[0].Running, running)
	}
}

func TestParseWhatTheDesignLeavesOut(t *testing.T) {
	s := parse(t, `
policy: {queueing: {mode: StrictFIFO}}
nodes:
- {name: n, count: 2, model: A10, gpus: 2, hbd: h, cordoned: true, taints: [{key: spot}], devices: [{numa: 0, nic: 1}, {island: 1, pcie: 2}]}
jobs:
- name: j
  kind: dev
  class: LP
  preemptible: false
  labels: [web]
  affinity: [{level: node, label: web, anti: true}]
  selector: {b: x, a: y}
  tolerations: [{key: spot}]
  checkpoint: 30m
  estimate: 2h
  tasks:
  - {gpuMilli: 500, matchExpressions: [{key: c, operator: NotIn, values: [z]}], labels: [db], affinity: [{level: hbd, label: x}]}
  - {}
`)
	if s.Policy.Queueing.Mode != core.StrictFIFO {
		t.Errorf("policy %+v", s.Policy)
	}
	if n := s.Nodes[1]; n.Name != "n-1" || n.HBD != "h" || !n.Cordoned || n.Taints[0].Key != "spot" ||
		n.Devices[0] != (core.Device{Island: -1, PCIe: -1, NUMA: 0, NIC: 1}) || n.Devices[1] != (core.Device{Island: 1, PCIe: 2, NUMA: -1, NIC: -1}) {
		t.Errorf("node %+v", n)
	}
	if !reflect.DeepEqual(s.Queues, []core.Queue{{Name: "default", Weight: 1}}) {
		t.Errorf("queues %+v", s.Queues)
	}
	want := core.Job{
		Name: "j", Queue: "default", Kind: core.Dev, Class: core.LP, NotPreemptible: true,
		Checkpoint: 1800 * core.Second, Estimate: 7200 * core.Second,
		Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: 500, Tolerations: []core.Toleration{{Key: "spot"}},
			Selector: []core.Requirement{
				{Key: "a", Op: cluster.In, Values: []string{"y"}},
				{Key: "b", Op: cluster.In, Values: []string{"x"}},
				{Key: "c", Op: cluster.NotIn, Values: []string{"z"}},
			}},
			Labels: []string{"web", "db"}, Affinity: []core.Term{{Level: "node", Label: "web", Anti: true}, {Level: "hbd", Label: "x"}},
		}, {
			Pods: 1, Request: core.Request{Tolerations: []core.Toleration{{Key: "spot"}}, Selector: []core.Requirement{
				{Key: "a", Op: cluster.In, Values: []string{"y"}}, {Key: "b", Op: cluster.In, Values: []string{"x"}},
			}},
			Labels: []string{"web"}, Affinity: []core.Term{{Level: "node", Label: "web", Anti: true}},
		}},
	}
	if got := s.Jobs[0].Job; !reflect.DeepEqual(got, want) {
		t.Errorf("\ngot  %+v\nwant %+v", got, want)
	}
}

// Pods keep the number in their name; others fill the gaps.
func TestPodNames(t *testing.T) {
	s := parse(t, `
nodes: [{name: n, model: A10, gpus: 8}]
jobs:
- name: j
  tasks:
  - {pods: 1}
  - {pods: 4, running: [{pod: blue, node: n}, {pod: j-1, node: n}, {pod: j-4, node: n}]}
`)
	j := &s.Jobs[0]
	var got []string
	for n := range j.Pods() {
		got = append(got, j.Pod(n))
	}
	if want := "j-0 j-1 blue j-3 j-4"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if j.Running[0].Pod != 2 || j.Running[1].Pod != 1 || j.Running[2].Pod != 4 {
		t.Errorf("running %+v", j.Running)
	}
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	const node = "nodes: [{name: n, model: A10, gpus: 2, cpuMilli: 4000}]\n"
	tests := []struct{ name, file, want string }{
		{"no nodes", "jobs: []\n", `s.yaml:1: nodes: this field; found nothing`},
		{"unknown policy", "policy: Kueue\nnodes: []\n",
			`s.yaml:1: policy: the name of a built-in policy, or the policy itself; found "Kueue"`},
		{"policy is a list", "policy: []\nnodes: []\n",
			`s.yaml:1: policy: the name of a built-in policy, or the policy itself; found a list`},
		{"bad inline policy", "policy:\n  queueing:\n    mode: FIFO\nnodes: []\n",
			`s.yaml:3: policy.queueing.mode: one of StrictFIFO, BestEffortFIFO, Backfill; found "FIFO"`},
		{"level twice", "topology: {levels: [rack, rack]}\nnodes: []\n", `s.yaml:1: topology.levels[1]: each level once; found "rack" again`},
		{"reserved level", "topology:\n  levels:\n  - hbd\nnodes: []\n", `s.yaml:3: topology.levels[0]: a node label; found "hbd"`},
		{"unknown field of a node", "nodes:\n- name: n\n  gpu: 8\n",
			`s.yaml:3: nodes[0].gpu: one of name, count, model, gpus, cpuMilli, memMiB, others, labels, taints, unhealthy, cordoned, blind, hbd, devices, sets; found an unknown field`},
		{"node without a name", "nodes:\n- gpus: 8\n", `s.yaml:2: nodes[0].name: this field; found nothing`},
		{"node twice", "nodes:\n- name: n\n- name: n\n", `s.yaml:3: nodes[1].name: a name of its own; found "n" again`},
		{"node count", "nodes:\n- {name: n, count: 0}\n", `s.yaml:2: nodes[0].count: a whole number from 1 to 200000; found 0`},
		{"too many GPUs", "nodes:\n- {name: n, gpus: 65}\n", `s.yaml:2: nodes[0].gpus: a whole number from 0 to 64; found 65`},
		{"GPUs without a model", "nodes:\n- {name: n, gpus: 8}\n", `s.yaml:2: nodes[0].model: the GPU model of a node with GPUs; found nothing`},
		{"the model of all models", "nodes:\n- {name: n, gpus: 8, model: \"*\"}\n",
			`s.yaml:2: nodes[0].model: a GPU model, whose name is not * and does not begin with /; found "*"`},
		{"a model like a resource", node + "queues: [{name: a, quota: [{model: /cpu, nominal: 1}]}]\n",
			`s.yaml:2: queues[0].quota[0].model: * or a GPU model, whose name does not begin with /; found "/cpu"`},
		{"unhealthy GPU", "nodes:\n- {name: n, model: A10, gpus: 2, unhealthy: [2]}\n",
			`s.yaml:2: nodes[0].unhealthy[0]: the number of a GPU, of which the node has 2; found 2`},
		{"devices", "nodes:\n- {name: n, model: A10, gpus: 2, devices: [{numa: 1}]}\n",
			`s.yaml:2: nodes[0].devices: one entry for each of the 2 GPUs; found 1`},
		{"label is a number", "nodes:\n- {name: n, labels: {topology.kubernetes.io/rack: 7}}\n",
			`s.yaml:2: nodes[0].labels.topology.kubernetes.io/rack: a string, in quotes ("7"); found 7`},
		{"queue twice", node + "queues:\n- name: a\n- name: a\n", `s.yaml:4: queues[1].name: a name of its own; found "a" again`},
		{"parents in a circle", node + "queues:\n- {name: a, parent: b}\n- {name: b, parent: c}\n- {name: c, parent: a}\n",
			`s.yaml:5: queues[2].parent: a queue that is not below this one; found "a"`},
		{"bound on what runs", node + "queues: [{name: a, maxRunningJobs: -1}]\n", `s.yaml:2: queues[0].maxRunningJobs: a whole number, at least 0; found -1`},
		{"weight", node + "queues: [{name: a, weight: -1}]\n", `s.yaml:2: queues[0].weight: a whole number from 0 to 1000000; found -1`},
		{"negative quota", node + "queues:\n- name: a\n  quota:\n  - model: A10\n    nominal: -8\n",
			`s.yaml:6: queues[0].quota[0].nominal: a number of GPUs such as 8 or 0.5, or -1 for no limit; found -8`},
		{"quota twice", node + "queues: [{name: a, quota: [{model: A10, nominal: 1}, {model: A10, nominal: 2}]}]\n",
			`s.yaml:2: queues[0].quota[1].model: a name of its own; found "A10" again`},
		{"job twice", node + "jobs:\n- {name: j, tasks: [{}]}\n- {name: j, tasks: [{}]}\n", `s.yaml:4: jobs[1].name: a name of its own; found "j" again`},
		{"no tasks", node + "jobs: [{name: j, tasks: []}]\n", `s.yaml:2: jobs[0].tasks: 1 to 1000 tasks; found 0`},
		{"unknown queue", node + "queues: [{name: a}]\njobs: [{name: j, queue: b, tasks: [{}]}]\n", `s.yaml:3: jobs[0].queue: one of the queues a; found "b"`},
		{"unknown kind", node + "jobs: [{name: j, kind: job, tasks: [{}]}]\n", `s.yaml:2: jobs[0].kind: one of training, inference, batch, dev; found "job"`},
		{"unknown model", node + "jobs: [{name: j, tasks: [{models: [A10, H800]}]}]\n", `s.yaml:2: jobs[0].tasks[0].models[1]: one of the GPU models A10; found "H800"`},
		{"unknown level", node + "jobs:\n- name: j\n  topology:\n    required: rack\n  tasks: [{}]\n",
			`s.yaml:5: jobs[0].topology.required: one of the levels node, hbd; found "rack"`},
		{"too much closeness", node + "jobs:\n- name: j\n  topology:\n    closeness: 11\n  tasks: [{}]\n",
			`s.yaml:5: jobs[0].topology.closeness: 0 to 10; found 11`},
		{"combination of one task", node + "jobs:\n- name: j\n  gang: true\n  combinations: [A10=1]\n  tasks: [{gpuMilli: 1000}]\n",
			`s.yaml:5: jobs[0].combinations: job j: combinations of GPU models are for gangs of several tasks, all of whose pods start together`},
		{"odd combination", node + "jobs:\n- name: j\n  combinations: [A10+A10]\n  tasks: [{gpuMilli: 1000}, {gpuMilli: 1000}]\n",
			`s.yaml:4: jobs[0].combinations: MODEL+MODEL=RATE, with a rate for each level of the topology between the pods and perhaps the price of the GPUs, such as A100+L40S=2.3/1.9@3.5, found "A10+A10"`},
		{"affinity level", node + "jobs: [{name: j, affinity: [{level: rack, label: x}], tasks: [{}]}]\n",
			`s.yaml:2: jobs[0].affinity[0].level: one of the levels node, hbd; found "rack"`},
		{"a preference of no level", node + "jobs: [{name: j, prefers: ['5:near:rack:x'], tasks: [{}]}]\n",
			`s.yaml:2: jobs[0].prefers: one of the levels node, hbd; found "rack"`},
		{"a preference without weight", node + "jobs: [{name: j, tasks: [{prefers: ['disk=ssd']}]}]\n",
			`s.yaml:2: jobs[0].tasks[0].prefers: WEIGHT:KEY=VALUE, with more conditions behind & (50:disk=ssd|nvme&zone), WEIGHT:near:LEVEL:LABEL (-10:near:leaf:web), or WEIGHT:group:LEVEL:LABEL (100:group:leaf:web); found "disk=ssd"`},
		{"negative time", node + "jobs: [{name: j, submittedAgo: -1, tasks: [{}]}]\n",
			`s.yaml:2: jobs[0].submittedAgo: a duration such as 90s, 30m, 2h or 7d, or a number of seconds; found -1`},
		{"ran before it was submitted", node + "jobs: [{name: j, submittedAgo: 60, runningFor: 90, tasks: [{}]}]\n",
			`s.yaml:2: jobs[0].runningFor: at most the time since the job was submitted, 1m; found 1m30s`},
		{"more than all pods", node + "jobs: [{name: j, tasks: [{pods: 2, minPods: 3}]}]\n", `s.yaml:2: jobs[0].tasks[0].minPods: at most the 2 pods; found 3`},
		{"one and a half GPUs", node + "jobs: [{name: j, tasks: [{gpuMilli: 1500}]}]\n",
			`s.yaml:2: jobs[0].tasks[0].gpuMilli: a part of one GPU (up to 1000) or whole ones (2000, 3000 …); found 1500`},
		{"runs on an unknown node", node + "jobs: [{name: j, tasks: [{running: [{pod: p, node: m}]}]}]\n",
			`s.yaml:2: jobs[0].tasks[0].running[0].node: one of the nodes n; found "m"`},
		{"runs on an unknown GPU", node + "jobs: [{name: j, tasks: [{gpuMilli: 1000, running: [{pod: p, node: n, gpus: [2]}]}]}]\n",
			`s.yaml:2: jobs[0].tasks[0].running[0].gpus[0]: the number of a GPU, of which the node has 2; found 2`},
		{"runs without its GPUs", node + "jobs: [{name: j, tasks: [{gpuMilli: 2000, running: [{pod: p, node: n, gpus: [1]}]}]}]\n",
			`s.yaml:2: jobs[0].tasks[0].running[0].gpus: as many GPUs as 2000 gpuMilli are, 2; found 1`},
		{"more run than there are", node + "jobs: [{name: j, tasks: [{running: [{pod: p, node: n}, {pod: q, node: n}]}]}]\n",
			`s.yaml:2: jobs[0].tasks[0].running: at most the 1 pods; found 2`},
		{"no pods", node + "jobs: [{name: j, tasks: [{pods: 0}]}]\n",
			`s.yaml:2: jobs[0].tasks[0].pods: 1 to 1000000, or 0 and pods that are leaving; found 0`},
		{"leaves an unknown node", node + "jobs: [{name: j, tasks: [{leaving: [{pod: p, node: m}]}]}]\n",
			`s.yaml:2: jobs[0].tasks[0].leaving[0].node: one of the nodes n; found "m"`},
		{"leaves GPUs that another pod has", node + "jobs: [{name: j, tasks: [{gpuMilli: 1000, running: [{pod: p, node: n, gpus: [1]}], leaving: [{pod: q, node: n, gpus: [1]}]}]}]\n",
			`s.yaml:2: jobs[0].tasks[0].leaving[0].gpus[0]: a GPU of n with 1000 gpuMilli free; found 1, which has 0`},
		{"leaves and runs", node + "jobs: [{name: j, tasks: [{running: [{pod: p, node: n}], leaving: [{pod: p, node: n}]}]}]\n",
			`s.yaml:2: jobs[0].tasks[0].leaving[0].pod: a name of its own; found "p" again`},
		{"pod twice", node + "jobs: [{name: j, tasks: [{pods: 2, running: [{pod: p, node: n}, {pod: p, node: n}]}]}]\n",
			`s.yaml:2: jobs[0].tasks[0].running[1].pod: a name of its own; found "p" again`},
		{"pod of another task", node + "jobs: [{name: j, tasks: [{running: [{pod: j-1, node: n}]}, {}]}]\n",
			`s.yaml:2: jobs[0].tasks[0].running[0].pod: a pod of this task, which has the numbers 0 to 0; found "j-1"`},
		{"GPU over-allocated", node + "jobs:\n- {name: a, tasks: [{gpuMilli: 600, running: [{pod: a, node: n, gpus: [1]}]}]}\n- {name: b, tasks: [{gpuMilli: 500, running: [{pod: b, node: n, gpus: [1]}]}]}\n",
			`s.yaml:4: jobs[1].tasks[0].running[0].gpus[0]: a GPU of n with 500 gpuMilli free; found 1, which has 400`},
		{"CPU over-allocated", node + "jobs: [{name: j, tasks: [{cpuMilli: 5000, running: [{pod: p, node: n}]}]}]\n",
			`s.yaml:2: jobs[0].tasks[0].running[0].node: a node with 5000 cpuMilli and 0 memMiB free; found "n", which has 4000 and 0`},
		{"other resources over-allocated", "nodes: [{name: n, others: {hca: 3}}]\njobs: [{name: j, tasks: [{pods: 2, others: {hca: 2}, running: [{pod: p, node: n}, {pod: q, node: n}]}]}]\n",
			`s.yaml:2: jobs[0].tasks[0].running[1].node: a node with 2 hca free; found "n", which has 1`},
		{"negative amount", "nodes:\n- {name: n, others: {hca: -1}}\n", `s.yaml:2: nodes[0].others.hca: a whole number from 0 to 281474976710656; found -1`},
		{"GPUs as a resource", "queues:\n- {name: q, resources: [{name: nvidia.com/gpu, nominal: 8}]}\n",
			`s.yaml:2: queues[0].resources[0].name: a resource other than pods and GPUs, which quota has, such as cpu, memory or rdma/hca; found "nvidia.com/gpu"`},
		{"a resource twice", node + "queues:\n- {name: q, resources: [{name: cpu, nominal: 8}, {name: cpu, nominal: 9}]}\n",
			`s.yaml:3: queues[0].resources[1].name: a name of its own; found "cpu" again`},
		{"a resource without a name", "queues:\n- {name: q, resources: [{nominal: 8}]}\n",
			`s.yaml:2: queues[0].resources[0].name: this field; found nothing`},
		{"an amount that is none", "queues:\n- {name: q, resources: [{name: memory, nominal: lots}]}\n",
			`s.yaml:2: queues[0].resources[0].nominal: an amount such as 96, 0.5, 500m or 512Gi, or -1 for no limit; found "lots"`},
		{"amount of a pod", node + "jobs: [{name: j, tasks: [{others: {hca: 1.5}}]}]\n", `s.yaml:2: jobs[0].tasks[0].others.hca: a whole number; found 1.5`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := snapshot.Parse("s.yaml", []byte(test.file), builtins)
			if err == nil {
				t.Fatal("no error")
			}
			if got := err.Error(); got != test.want {
				t.Errorf("\ngot  %s\nwant %s", got, test.want)
			}
		})
	}
}

// Whatever a file holds, there is a snapshot or an error that says where it is.
func FuzzParse(f *testing.F) {
	f.Add("nodes: [{name: n, count: 3, model: A10, gpus: 8}]\nqueues: [{name: a, parent: b}, {name: b}]\n")
	f.Add("nodes: [{name: n, model: A10, gpus: 8}]\njobs: [{name: j, tasks: [{gpuMilli: 500, running: [{pod: j-0, node: n, gpus: [1]}]}]}]\n")
	f.Fuzz(func(t *testing.T, file string) {
		_, err := snapshot.Parse("s.yaml", []byte(file), builtins)
		if bad := (*workload.Error)(nil); err != nil && !errors.As(err, &bad) {
			t.Errorf("%T: %v", err, err)
		}
	})
}
