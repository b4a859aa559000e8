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
		"of 3 nodes, 3 have no label disk=sssd; sssd: did you mean ssd?":           {Selector: in("disk", "sssd"), Tolerations: a},
		"of 3 nodes, 3 have no label disc=ssd; disc: did you mean disk?":           {Selector: in("disc", "ssd"), Tolerations: a},
		"of 3 nodes, 2 have no label disk=ssd|nvme":                                {Selector: in("disk", "ssd", "nvme"), Tolerations: a},
		"of 3 nodes, 3 have no GPUs of model H10; H10: did you mean A10?":          {GPU: 1, Models: []string{"H10"}, Tolerations: a},
		"of 3 nodes, 3 have fewer than 16 GPUs":                                    {GPU: 16 * core.WholeGPU, Tolerations: a},
		"of 3 nodes, 1 have the taint team, which the pod does not tolerate":       {},
		"of 3 nodes, 3 have less CPU than the pod requests; 3 have no vendor/fpga": {CPUMilli: 9000, Others: []core.Amount{{Name: "vendor/fpga", Value: 1}}, Tolerations: a},
		"of 3 nodes, 2 have no label rack>5":                                       {Selector: []core.Requirement{{Key: "rack", Op: cluster.Gt, Values: []string{"5"}}}, Tolerations: a},
		"of 3 nodes, 2 match none of the terms of its node affinity":               {AnyOf: [][]core.Requirement{in("disk", "ssd"), in("rack", "9")}, Tolerations: []core.Toleration{{}}},
	} {
		if got := Nodes(&r, slices.Values(nodes)); got != want {
			t.Errorf("%+v: %q, expected %q", r, got, want)
		}
	}
	if got := Nodes(&core.Request{GPU: 1}, slices.Values([]*core.Node(nil))); got != "" {
		t.Errorf("of no nodes: %q", got)
	}
}
