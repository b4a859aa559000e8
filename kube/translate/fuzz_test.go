package translate

import (
	"regexp"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// hugeExponent is an exponent for which resource.ParseQuantity computes for minutes. An API
// server reads objects by the same function, so none with such a quantity comes from there. Annotations
// that have quantities are read by v1alpha1.ParseQuantity, which refuses them.
var hugeExponent = regexp.MustCompile(`[eE][+-]?[0-9]{4}`)

// FuzzObjects reads objects as they may be: whatever they say, nothing panics, and what
// the engine is told of them it takes.
func FuzzObjects(f *testing.F) {
	for _, seed := range []string{
		`spec: {containers: [{name: a, resources: {requests: {cpu: 5P, nvidia.com/gpu: 1}}}]}`,
		`spec: {containers: [{name: a, resources: {requests: {cpu: 5P}}}, {name: b, resources: {requests: {cpu: 5P}}}]}`,
		`spec: {overhead: {cpu: 9E, memory: 9E}, containers: [{name: a, resources: {requests: {cpu: 9E, memory: 9E, rdma/hca: 9E}}}]}`,
		`spec: {containers: [{name: a, resources: {requests: {nvidia.com/gpu: 2305843009213693960}}}]}`,
		`spec: {containers: [{name: a, resources: {requests: {nvidia.com/gpu: 18446744073709552}}}]}`,
		`{metadata: {annotations: {gpu-fraction: NaN, muster.sh/min-member: "9223372036854775807"}}, spec: {containers: [{name: a}]}}`,
		`{metadata: {annotations: {gpu-memory: "9223372036854775807", muster.sh/min-runtime: 100y, muster.sh/walltime: "1e300"}}}`,
		`{metadata: {labels: {leaderworkerset.sigs.k8s.io/name: x}, annotations: {leaderworkerset.sigs.k8s.io/size: "9223372036854775808"}}}`,
		`{metadata: {annotations: {yunikorn.apache.org/task-groups: '[{"name": "a", "minMember": 9223372036854775807}]'}}}`,
		`{status: {capacity: {nvidia.com/gpu: 9E}, allocatable: {cpu: 9E, memory: 9E, pods: 9E, nvidia.com/gpu: 8, ephemeral-storage: 9E}}}`,
		`{spec: {nodeName: n, driver: gpu.nvidia.com, pool: {name: p, generation: -1, resourceSliceCount: 9223372036854775807}, devices: [{name: a, attributes: {index: {int: 9223372036854775807}}}]}}`,
		`{spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c, allocationMode: ExactCount, count: 9223372036854775807}}]}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4096 || hugeExponent.Match(text) {
			return
		}
		tryPod(t, text)
		tryNode(t, text)
		var slice resourceapi.ResourceSlice
		if yaml.Unmarshal(text, &slice) == nil {
			v := InventoryOf([]*Slice{SliceOf(&slice)})
			v.Unusable(func(DeviceID) bool { return false }, func(DeviceID) bool { return true })
		}
		var claim resourceapi.ResourceClaim
		if yaml.Unmarshal(text, &claim) == nil {
			_, _ = DeviceClaimOf(&claim.Spec)
		}
	})
}

func tryPod(t *testing.T, text []byte) {
	var p v1.Pod
	if yaml.Unmarshal(text, &p) != nil {
		return
	}
	var a Attributes
	_ = a.Read(&p)
	m := MembershipOf(&p, &a)
	if m.Minimum() < 0 {
		t.Errorf("a gang of %d pods", m.Minimum())
	}
	r, err := Request(&p, &a)
	amounts := Requests(&p)
	if amounts.GPUs < 0 || amounts.CPUMilli < 0 || amounts.MemMiB < 0 {
		t.Errorf("amounts below 0: %+v", amounts)
	}
	terms, _ := Terms(&p)
	_ = terms
	Ports(&p)
	Claims(&p)
	PodPool(&p, &r)
	MoveOf(&p)
	if err != nil {
		return
	}
	job := core.Job{Name: "j", Tasks: []core.Task{{Pods: 1, Request: r}}, MinRuntime: a.MinRuntime, Checkpoint: a.Checkpoint, Estimate: a.Estimate}
	if err := core.CheckJob(&job); err != nil && !selects(&p) {
		t.Errorf("the engine refuses what nobody was told is wrong: %v", err)
	}
}

// selects reports whether a pod selects nodes by an affinity, whose values the API
// server has checked and the engine checks.
func selects(p *v1.Pod) bool { return p.Spec.Affinity != nil && p.Spec.Affinity.NodeAffinity != nil }

func tryNode(t *testing.T, text []byte) {
	var n v1.Node
	if yaml.Unmarshal(text, &n) != nil {
		return
	}
	n.Name = "n"
	node, missing, err := Node(&n)
	_, _ = DrainOf(&n)
	if err != nil {
		return
	}
	if missing < 0 || missing > node.GPUs {
		t.Errorf("%d of %d GPUs are missing", missing, node.GPUs)
	}
	if err := cluster.Check(&node); err != nil {
		t.Errorf("the engine refuses the node: %v", err)
	}
}
