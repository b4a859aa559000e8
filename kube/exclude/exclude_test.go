package exclude

import (
	"slices"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

func TestNodes(t *testing.T) {
	node := func(model string, gpus int, labels map[string]string, taints ...core.Taint) *core.Node {
		return &core.Node{Model: model, GPUs: gpus, CPUMilli: 8000, MemMiB: 1024, Labels: labels, Taints: taints, Others: []core.Amount{{Name: "rdma/hca", Value: 1}}}
	}
	nodes := []*core.Node{
		node("H100", 8, map[string]string{"disk": "ssd", "rack": "3"}), node("H100", 8, map[string]string{"disk": "hdd", "rack": "7"}), node("A10", 4, map[string]string{"disk": "hdd"}, core.Taint{Key: "team", Value: "=a", Effect: "NoSchedule"}),
	}
	in := func(key string, values ...string) []core.Requirement {
		return []core.Requirement{{Key: key, Op: cluster.In, Values: values}}
	}
	a := []core.Toleration{{Key: "team", Value: "=a", Effect: "NoSchedule"}}
	for want, r := range map[string]core.Request{
		"": {GPU: 4 * core.WholeGPU, Tolerations: a},
		"of 3 nodes, 3 have no label disk=sssd; sssd: did you mean ssd?":                       {Selector: in("disk", "sssd"), Tolerations: a},
		"of 3 nodes, 3 have no label disc=ssd; disc: did you mean disk?":                       {Selector: in("disc", "ssd"), Tolerations: a},
		"of 3 nodes, 2 have no label disk=ssd|nvme":                                            {Selector: in("disk", "ssd", "nvme"), Tolerations: a},
		"of 3 nodes, 3 have no GPUs of model H10; H10: did you mean A10?":                      {GPU: 1, Models: []string{"H10"}, Tolerations: a},
		"of 3 nodes, 3 have fewer than 16 GPUs":                                                {GPU: 16 * core.WholeGPU, Tolerations: a},
		"of 3 nodes, 1 have the taint team, which the pod does not tolerate":                   {},
		"of 3 nodes, 3 have less CPU than the pod requests; 3 have no vendor/fpga":             {CPUMilli: 9000, Others: []core.Amount{{Name: "vendor/fpga", Value: 1}}, Tolerations: a},
		"of 3 nodes, 3 have no nvidia.com/gpus; nvidia.com/gpus: did you mean nvidia.com/gpu?": {Others: []core.Amount{{Name: "nvidia.com/gpus", Value: 1}}, Tolerations: a},
		"of 3 nodes, 3 have no koordinator.sh/gpu-core; koordinator.sh/gpu-core: request nvidia.com/gpu for whole GPUs, or set muster.sh/gpu-fraction for a part of one": {Others: []core.Amount{{Name: "koordinator.sh/gpu-core", Value: 50}}, Tolerations: a},
		"of 3 nodes, 3 have no rdma/hcaa; rdma/hcaa: did you mean rdma/hca?":                                                                                             {Others: []core.Amount{{Name: "rdma/hcaa", Value: 1}}, Tolerations: a},
		"of 3 nodes, 3 match none of the terms of its node affinity; sssd: did you mean ssd?":                                                                            {AnyOf: [][]core.Requirement{in("disk", "sssd"), in("rack", "9")}, Tolerations: a},
		"of 3 nodes, 2 have no label rack>5":                         {Selector: []core.Requirement{{Key: "rack", Op: cluster.Gt, Values: []string{"5"}}}, Tolerations: a},
		"of 3 nodes, 2 match none of the terms of its node affinity": {AnyOf: [][]core.Requirement{in("disk", "ssd"), in("rack", "9")}, Tolerations: []core.Toleration{{}}},
	} {
		if got := Nodes(&r, slices.Values(nodes)); got != want {
			t.Errorf("%+v: %q, expected %q", r, got, want)
		}
	}
	if got := Nodes(&core.Request{GPU: 1}, slices.Values([]*core.Node(nil))); got != "" {
		t.Errorf("of no nodes: %q", got)
	}
}

// Who misspelt a name, or asks for what no node has, is not told to ask for less.
func TestAdvice(t *testing.T) {
	for message, want := range map[string]string{
		"no node is large enough for a pod of 9 GPUs; of 4 nodes, 4 have fewer than 9 GPUs":                                 "",
		"no node is large enough; of 4 nodes, 3 have fewer than 9 GPUs; 1 have no label a=b":                                "",
		"4 nodes are large enough for a pod of 1 GPU; of 4 nodes, 4 have no label a=H8000; H8000: did you mean H800?":       "What is misspelt must be corrected, as the reason says. Waiting does not help.",
		"no node of X is large enough for a pod of 1 GPU; of 4 nodes, 4 have no GPUs of model X":                            "What excludes all nodes must be corrected, as the reason says, or nodes that have it must be added. Waiting does not help.",
		"no node is large enough for a pod of 1 fpga; of 4 nodes, 4 have less memory than the pod requests; 4 have no fpga": "What excludes all nodes must be corrected, as the reason says, or nodes that have it must be added. Waiting does not help.",
		"none where selectors and taints allow; of 4 nodes, 4 take no pods now":                                             "Nodes must take pods again: all are cordoned.",
		"all nodes together cannot hold the gang":                                                                           "",
		"": "",
	} {
		if got := Advice(message); got != want {
			t.Errorf("%q: %q, expected %q", message, got, want)
		}
	}
}
