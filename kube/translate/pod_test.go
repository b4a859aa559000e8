package translate

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// read reads an object from YAML, in which tabs are not looked at.
func read[T any](t *testing.T, text string) *T {
	t.Helper()
	var o T
	if err := yaml.UnmarshalStrict([]byte(text), &o); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return &o
}

func TestRequests(t *testing.T) {
	for _, c := range []struct {
		name, pod string
		want      Amounts
	}{
		{"containers", `spec: {containers: [{name: a, resources: {requests: {cpu: 500m, memory: 1Gi, nvidia.com/gpu: 2}}}, {name: b, resources: {requests: {cpu: 1, memory: 1}}}]}`,
			Amounts{GPUs: 2, CPUMilli: 1500, MemMiB: 1025}},
		{"an init container asks for more", `spec: {containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}}}], initContainers: [{name: i, resources: {requests: {cpu: 3, memory: 1Mi}}}]}`,
			Amounts{CPUMilli: 3000, MemMiB: 1024}},
		{"a sidecar adds, to later init containers too", `spec: {containers: [{name: a, resources: {requests: {cpu: 1}}}], initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 2}}}, {name: i, resources: {requests: {cpu: 4}}}]}`,
			Amounts{CPUMilli: 6000}},
		{"overhead", `spec: {runtimeClassName: kata, overhead: {cpu: 250m, memory: 120Mi}, containers: [{name: a, resources: {requests: {cpu: 1}}}]}`,
			Amounts{CPUMilli: 1250, MemMiB: 120}},
		{"for the whole pod", `spec: {resources: {requests: {cpu: 8, memory: 2Gi}}, containers: [{name: a, resources: {requests: {cpu: 1}}}]}`,
			Amounts{CPUMilli: 8000, MemMiB: 2048}},
		{"being made smaller in place", `{spec: {containers: [{name: a, resources: {requests: {cpu: 1}}}]},
  status: {containerStatuses: [{name: a, image: i, imageID: i, ready: true, restartCount: 0, allocatedResources: {cpu: 4}, resources: {requests: {cpu: 4}}}]}}`,
			Amounts{CPUMilli: 4000}},
		{"to be made larger, which cannot be now", `{spec: {containers: [{name: a, resources: {requests: {cpu: 9}}}]},
  status: {conditions: [{type: PodResizePending, status: "True", reason: Infeasible}], containerStatuses: [{name: a, image: i, imageID: i, ready: true, restartCount: 0, allocatedResources: {cpu: 4}, resources: {requests: {cpu: 4}}}]}}`,
			Amounts{CPUMilli: 4000}},
		{"other makers", `spec: {containers: [{name: a, resources: {requests: {amd.com/gpu: 1, huawei.com/Ascend910: 4, example.com/gpu: 8}}}]}`,
			Amounts{GPUs: 5, Others: []core.Amount{{Name: "example.com/gpu", Value: 8}}}},
		{"other resources", `spec: {overhead: {ephemeral-storage: 1}, initContainers: [{name: i, resources: {requests: {ephemeral-storage: 1Gi, rdma/hca: 1}}}, {name: s, restartPolicy: Always, resources: {requests: {rdma/hca: 1}}}],
  containers: [{name: a, resources: {requests: {rdma/hca: 2, hugepages-2Mi: 4Mi, ephemeral-storage: 10, vendor.com/fpga: 0}}}]}`,
			Amounts{Others: []core.Amount{{Name: "ephemeral-storage", Value: 1<<30 + 1}, {Name: "hugepages-2Mi", Value: 4 << 20}, {Name: "rdma/hca", Value: 3}}}},
		{"beyond all numbers", `spec: {containers: [{name: a, resources: {requests: {ephemeral-storage: 16Ei}}}]}`,
			Amounts{Others: []core.Amount{{Name: "ephemeral-storage", Value: core.MaxAmount}}}},
	} {
		if got := Requests(read[v1.Pod](t, c.pod)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, expected %+v", c.name, got, c.want)
		}
	}
}

func TestLeft(t *testing.T) {
	list := func(pairs ...any) (out []core.Amount) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, core.Amount{Name: pairs[i].(string), Value: int64(pairs[i+1].(int))})
		}
		return out
	}
	for _, c := range []struct{ has, taken, left []core.Amount }{
		{nil, nil, nil},
		{list("a", 1, "b", 2), nil, list("a", 1, "b", 2)},
		{list("a", 1, "b", 2), list("b", 1), list("a", 1, "b", 1)},
		{list("a", 1, "b", 2), list("a", 1), list("b", 2)},
		{list("a", 1, "b", 2), list("a", 3, "c", 1), list("b", 2)},
		{list("a", 1), list("a", 1), nil},
		{nil, list("a", 1), nil},
	} {
		before := slices.Clone(c.has)
		if got := Left(c.has, c.taken); !reflect.DeepEqual(got, c.left) || !slices.Equal(c.has, before) {
			t.Errorf("%v less %v: %v, expected %v; it was %v", c.has, c.taken, got, c.left, before)
		}
	}
}

func TestRequest(t *testing.T) {
	in := func(k string, v ...string) core.Requirement {
		return core.Requirement{Key: k, Op: cluster.In, Values: v}
	}
	for _, c := range []struct {
		name, pod string
		want      core.Request
		wrong     string
	}{
		{"node selector", `spec: {nodeSelector: {b: "2", a: "1"}}`, core.Request{Selector: []core.Requirement{in("a", "1"), in("b", "2")}}, ""},
		{"one term", `spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Gt, values: ["3"]}], matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]}}}}`,
			core.Request{Selector: []core.Requirement{{Key: "a", Op: cluster.Gt, Values: []string{"3"}}, in(NodeName, "n1")}}, ""},
		{"several terms, one of them empty", `spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}, {}, {matchExpressions: [{key: b, operator: DoesNotExist}]}]}}}}`,
			core.Request{AnyOf: [][]core.Requirement{{{Key: "a", Op: cluster.Exists}}, {{Key: "b", Op: cluster.DoesNotExist}}}}, ""},
		{"no term", `spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{}]}}}}`,
			core.Request{Selector: []core.Requirement{{Key: NodeName, Op: cluster.In}}}, ""},
		{"preferred", `spec: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}}`, core.Request{}, ""},
		{"unknown operator", `spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Like}]}]}}}}`,
			core.Request{}, `node affinity: unknown operator "Like" of a`},
		{"tolerations", `spec: {tolerations: [{key: k, value: v, effect: NoSchedule}, {key: k, operator: Exists}, {operator: Exists}, {key: node.kubernetes.io/not-ready, operator: Exists}, {key: k, operator: Exists, effect: PreferNoSchedule}, {operator: Exists, effect: NoSchedule}, {key: k, operator: Lt, value: "3"}]}`,
			core.Request{Tolerations: []core.Toleration{{Key: "k", Value: "=v", Effect: "NoSchedule"}, {Key: "k"}, {}, {Key: "k", Effect: "PreferNoSchedule"}, {Effect: "NoSchedule"}}}, ""},
		{"a part", `metadata: {annotations: {muster.sh/gpu-fraction: "0.25", muster.sh/gpu-models: "H800|A100"}}`, core.Request{GPU: 250, Picker: core.EnginePicks, Models: []string{"H800", "A100"}}, ""},
		{"a part and a whole", `{metadata: {annotations: {gpu-fraction: "0.5"}}, spec: {containers: [{name: a, resources: {requests: {nvidia.com/gpu: 1}}}]}}`,
			core.Request{GPU: 1000, Picker: core.NodePicks}, "a fraction of a GPU and 1 whole GPUs are requested: expected one of them"},
		{"memory and a part", `{metadata: {annotations: {gpu-memory: "10", gpu-fraction: "0.5"}}, spec: {containers: [{name: a}]}}`,
			core.Request{}, "GPU memory and GPUs, or a fraction of one, are requested: expected one of them"},
		{"too many", `spec: {containers: [{name: a, resources: {requests: {nvidia.com/gpu: 65}}}]}`, core.Request{GPU: 65000, Picker: core.NodePicks}, "65 GPUs are requested, expected at most 64 per pod"},
	} {
		p := read[v1.Pod](t, c.pod)
		var a Attributes
		if err := a.Read(p); err != nil {
			t.Fatal(err)
		}
		got, err := Request(p, &a)
		if c.wrong != "" {
			if err == nil || err.Error() != c.wrong {
				t.Errorf("%s: error %v, expected %s", c.name, err, c.wrong)
			}
			continue
		}
		if err != nil || !got.Equal(&c.want) {
			t.Errorf("%s: %+v, %v; expected %+v", c.name, got, err, c.want)
		}
	}
}

func TestNode(t *testing.T) {
	n := read[v1.Node](t, `
metadata: {name: n1, labels: {nvidia.com/gpu.product: NVIDIA-H800, nvidia.com/gpu.clique: c1, zone: z}}
spec:
  taints: [{key: gpu, value: "yes", effect: NoSchedule}, {key: soft, effect: PreferNoSchedule}, {key: node.kubernetes.io/not-ready, effect: NoExecute}]
status:
  capacity: {cpu: 64, memory: 512Gi, nvidia.com/gpu: 8, pods: 110}
  allocatable: {cpu: 63500m, memory: 500Gi, nvidia.com/gpu: 7, pods: 110, rdma/hca: 4, hugepages-1Gi: 0, ephemeral-storage: 1Ki}
  conditions: [{type: Ready, status: "True"}]
`)
	got, missing, err := Node(n)
	want := core.Node{
		Name: "n1", Model: "H800", GPUs: 8, CPUMilli: 63500, MemMiB: 500 << 10, MaxPods: 110, HBD: "c1", Cordoned: true, Blind: true,
		Labels: map[string]string{"nvidia.com/gpu.product": "NVIDIA-H800", "nvidia.com/gpu.clique": "c1", "zone": "z", NodeName: "n1", ResourceLabel("nvidia.com/gpu"): "true"},
		Taints: []core.Taint{{Key: "gpu", Value: "=yes", Effect: "NoSchedule"}, {Key: "soft", Value: "=", Effect: "PreferNoSchedule"}},
		Others: []core.Amount{{Name: "ephemeral-storage", Value: 1024}, {Name: "rdma/hca", Value: 4}},
	}
	for i := range want.GPUs {
		want.Devices = append(want.Devices, core.Device{PCIe: -1, NUMA: int8(i / 4), NIC: -1})
	}
	if err != nil || missing != 1 || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %d, %v; expected %+v", got, missing, err, want)
	}
	n.Spec.Taints = n.Spec.Taints[:2]
	if !Schedulable(n) {
		t.Error("a ready node is closed")
	}
	n.Status.Conditions[0].Status = v1.ConditionUnknown
	if Schedulable(n) {
		t.Error("a node that is not ready is open")
	}
	n.Status.Capacity["nvidia.com/gpu"] = resource.MustParse("65")
	if _, _, err := Node(n); err == nil || !strings.Contains(err.Error(), "node n1 has 65 GPUs, expected at most 64") {
		t.Errorf("error %v", err)
	}
}

func TestModel(t *testing.T) {
	for _, c := range []struct{ labels, want string }{
		{"nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB", "A100-SXM4-80GB"}, {"nvidia.com/gpu.product=Tesla-V100-SHARED", "V100-SHARED"}, {"nvidia.com/gpu.product=NVIDIA-H800,nvidia.com/gpu.replicas=4", "H800-SHARED"},
		{"muster.sh/gpu-model=X,nvidia.com/gpu.replicas=4", "X"}, {"nvidia.com/gpu.replicas=1", UnknownModel},
		{"muster.sh/gpu-model=X,nvidia.com/gpu.product=NVIDIA-Y", "X"}, {"cloud.google.com/gke-accelerator=nvidia-l4", "l4"}, {"a=b", UnknownModel},
	} {
		if got := Model(Labels(c.labels).Set()); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %s, expected %s", c.labels, got, c.want)
		}
	}
}

// Who says the same in other words.
func TestAttributes(t *testing.T) {
	for _, c := range []struct {
		says string // as a label and as an annotation
		want Attributes
	}{
		{"muster.sh/queue=q", Attributes{Queue: "q"}}, {"kai.scheduler/queue=q", Attributes{Queue: "q"}}, {"kueue.x-k8s.io/queue-name=q", Attributes{Queue: "q"}},
		{"volcano.sh/queue-name=q", Attributes{Queue: "q"}}, {"yunikorn.apache.org/queue=q", Attributes{Queue: "q"}},
		{"quota.scheduling.koordinator.sh/name=q", Attributes{Queue: "q"}},
		{"muster.sh/kind=batch", Attributes{Kind: core.Batch, KindGiven: true}}, {"muster.sh/class=LP", Attributes{Class: core.LP, ClassGiven: true}},
		{"koordinator.sh/qosClass=BE", Attributes{Class: core.LP, ClassGiven: true}}, {"koordinator.sh/qosClass=LSR", Attributes{ClassGiven: true}},
		{"muster.sh/preemptible=false", Attributes{NotPreemptible: true, PreemptibleGiven: true}}, {"kai.scheduler/preemptibility=non-preemptible", Attributes{NotPreemptible: true, PreemptibleGiven: true}},
		{"volcano.sh/preemptable=false", Attributes{NotPreemptible: true, PreemptibleGiven: true}}, {"muster.sh/locked=true", Attributes{Locked: true, LockedGiven: true}},
		{"muster.sh/min-runtime=30m", Attributes{MinRuntime: 1800 * core.Second}}, {"muster.sh/walltime=90", Attributes{Estimate: 90 * core.Second}},
		{"kueue.x-k8s.io/max-exec-time-seconds=60", Attributes{Estimate: 60 * core.Second}},
		{"kai.scheduler/topology-required-placement=rack", Attributes{Required: "rack"}}, {"kueue.x-k8s.io/podset-preferred-topology=rack", Attributes{Preferred: "rack"}},
		{"muster.sh/closeness=0.15", Attributes{Closeness: 150}},
		{"gpu-fraction=0.5", Attributes{Fraction: 500}}, {"gang.scheduling.koordinator.sh/min-available=4", Attributes{MinMember: 4}},
		{"kueue.x-k8s.io/pod-group-total-count=4", Attributes{MinMember: 4}}, {"training.kubeflow.org/replica-type=worker", Attributes{Task: "worker"}},
		{"ray.io/group=g", Attributes{Task: "g"}}, {"volcano.sh/task-spec=t", Attributes{Task: "t"}},
		{"priorityClassName=c", Attributes{PriorityClass: "c"}}, {"kueue.x-k8s.io/priority-class=c", Attributes{PriorityClass: "c"}},
		{"ray.io/priority-class-name=c", Attributes{PriorityClass: "c"}},
		{"gpu-memory=8192", Attributes{GPUMemory: 8192}}, {"muster.sh/gpu-memory=1", Attributes{GPUMemory: 1}}, {"gpu-fraction-num-devices=1", Attributes{}},
		{"muster.sh/stale-grace=5m", Attributes{StaleGrace: 300 * core.Second}}, {"muster.sh/stale-grace=never", Attributes{StaleGrace: -1}},
		{"kai.scheduler/staleness-grace-period=30s", Attributes{StaleGrace: 30 * core.Second}}, {"kai.scheduler/staleness-grace-period=-1s", Attributes{StaleGrace: -1}},
		{"kai.scheduler/staleness-grace-period=0s", Attributes{StaleGrace: 1}},
		{"kueue.x-k8s.io/podset=t", Attributes{Task: "t"}}, {"scheduling.volcano.sh/group-min-member=4", Attributes{MinMember: 4}},
	} {
		key, value, _ := strings.Cut(c.says, "=")
		said := map[string]string{key: value}
		for _, o := range []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Labels: said}}, {ObjectMeta: metav1.ObjectMeta{Annotations: said}}} {
			var got Attributes
			if err := got.Read(o); err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s: %+v, %v; expected %+v", c.says, got, err, c.want)
			}
		}
	}
	for says, wrong := range map[string]string{
		"muster.sh/kind=cooking": "expected one of training, inference, batch, dev", "muster.sh/class=MP": "expected HP or LP",
		"muster.sh/locked=yes": "expected true or false", "muster.sh/gpu-fraction=2": "expected a fraction of a GPU", "muster.sh/min-member=0": "1 to 1000000",
		"gpu-memory=8Gi": "expected an amount of one GPU's memory in MiB", "gpu-fraction-num-devices=2": "expected 1",
		"muster.sh/last-checkpoint=today": "expected a time", "muster.sh/closeness=near": "expected a closeness from 0 to 10", "muster.sh/walltime=long": "muster.sh/walltime:", "muster.sh/gpu-models=H800,,A10": "expected GPU models",
	} {
		key, value, _ := strings.Cut(says, "=")
		var a Attributes
		if err := a.Read(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: value}}}); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: error %v, expected %q", says, err, wrong)
		}
	}
	// Key by key, what is said nearer to the pod counts, though it be the default.
	ours := Attributes{Queue: "a", MinMember: 2, PreemptibleGiven: true, ClassGiven: true}
	got := ours.Over(&Attributes{Queue: "b", Task: "t", Locked: true, LockedGiven: true, NotPreemptible: true, PreemptibleGiven: true, Class: core.LP, ClassGiven: true})
	if want := (Attributes{Queue: "a", MinMember: 2, Task: "t", Locked: true, LockedGiven: true, PreemptibleGiven: true, ClassGiven: true}); !reflect.DeepEqual(got, want) {
		t.Errorf("one over the other: %+v", got)
	}
}

// What begins as our keys do and is none is told apart; what Muster writes is known.
func TestUnknownKeys(t *testing.T) {
	for _, c := range []struct {
		labels, notes []string
		want          string
	}{
		{v1alpha1.Keys, v1alpha1.Keys, ""},
		{[]string{"app", "devcluster.muster.sh/x"}, []string{"volcano.sh/preemptable"}, ""},
		{nil, []string{"muster.sh/wall-time"}, "muster.sh/wall-time is unknown; did you mean muster.sh/walltime?"},
		{[]string{"muster.sh/Queue"}, nil, "muster.sh/Queue is unknown; did you mean muster.sh/queue?"},
		{[]string{"muster.sh/xyz"}, []string{"muster.sh/xyz", "muster.sh/preemptable", "muster.sh/"},
			"muster.sh/ is unknown; muster.sh/preemptable is unknown; did you mean muster.sh/preemptible? muster.sh/xyz is unknown"},
		{many("muster.sh/x", 1000), many("muster.sh/x", 1001),
			"muster.sh/x is unknown; muster.sh/x0 is unknown; muster.sh/x1 is unknown; muster.sh/x10 is unknown; muster.sh/x100 is unknown; and so are 996 more"},
	} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}, Annotations: map[string]string{}}}
		for _, k := range c.labels {
			p.Labels[k] = "1"
		}
		for _, k := range c.notes {
			p.Annotations[k] = "1"
		}
		var a Attributes
		if _ = a.Read(p); a.Unknown != c.want { // the values are wrong, too
			t.Errorf("%q, expected %q", a.Unknown, c.want)
		}
	}
}

// many are so many keys that begin alike, the first without a number.
func many(stem string, n int) []string {
	list := []string{stem}
	for i := range n - 1 {
		list = append(list, fmt.Sprint(stem, i))
	}
	return list
}

// Alternatives of many lists multiply: of too many, none is left, and no node fits.
func TestAlternativesMultiply(t *testing.T) {
	var r core.Request
	for range 30 {
		var list [][]core.Requirement
		for i := range 3 {
			list = append(list, []core.Requirement{{Key: "k", Op: cluster.In, Values: []string{fmt.Sprint(i)}}})
		}
		AddAlternatives(&r, list)
		if len(r.AnyOf) > 500 {
			t.Fatalf("there are %d alternatives", len(r.AnyOf))
		}
	}
	for _, must := range r.AnyOf {
		if !slices.ContainsFunc(must, func(q core.Requirement) bool { return q.Key == NodeName && q.Op == cluster.In && len(q.Values) == 0 }) {
			t.Errorf("an alternative is left that a node may fulfil: %v", must)
		}
	}
}

func TestMembershipOf(t *testing.T) {
	owned := func(api, kind, name string) string {
		return "ownerReferences: [{apiVersion: " + api + ", kind: " + kind + ", name: " + name + ", uid: u, controller: true}]"
	}
	for _, c := range []struct {
		name, meta, spec, job string
		native                bool
		min                   int
		objects               string
		kind                  core.Kind
	}{
		{"bare", "name: p", "", "ns/pod/p", false, 0, "", core.Training},
		{"native", "name: p", "schedulingGroup: {podGroupName: g}", "ns/podgroup/g", true, 0, "", core.Training},
		{"our label", "labels: {muster.sh/gang: g}, annotations: {muster.sh/min-member: \"3\"}", "", "ns/gang/g", false, 3, "", core.Training},
		{"Volcano", "annotations: {scheduling.k8s.io/group-name: g}", "", "ns/gang/g", false, 0, "PodGroup g", core.Training},
		{"Volcano, newer", "annotations: {scheduling.volcano.sh/group-name: g}", "", "ns/gang/g", false, 0, "PodGroup g", core.Training},
		{"Koordinator's PodGroup", "labels: {pod-group.scheduling.sigs.k8s.io: g}", "", "ns/gang/g", false, 0, "PodGroup g", core.Training},
		{"Koordinator", "labels: {gang.scheduling.koordinator.sh/name: g}, annotations: {gang.scheduling.koordinator.sh/min-available: \"2\"}", "", "ns/gang/g", false, 2, "", core.Training},
		{"Kueue", "labels: {kueue.x-k8s.io/pod-group-name: g}, annotations: {kueue.x-k8s.io/pod-group-total-count: \"2\"}", "", "ns/gang/g", false, 2, "", core.Training},
		{"Job", owned("batch/v1", "Job", "j"), "", "ns/job/j", false, 0, "Job j", core.Training},
		{"Job with a queue on its pods", "labels: {volcano.sh/queue-name: q}, " + owned("batch/v1", "Job", "j"), "", "ns/job/j", false, 0, "Job j", core.Training},
		{"Job with a PodGroup", owned("batch/v1", "Job", "j"), "schedulingGroup: {podGroupName: g}", "ns/podgroup/g", true, 0, "Job j", core.Training},
		{"ReplicaSet", owned("apps/v1", "ReplicaSet", "r"), "", "ns/replicaset/r", false, 0, "ReplicaSet r", core.Inference},
		{"PyTorchJob", owned("kubeflow.org/v1", "PyTorchJob", "t"), "", "ns/pytorchjob/t", false, 0, "PyTorchJob t", core.Training},
		{"JobSet", "labels: {jobset.sigs.k8s.io/jobset-name: s}, " + owned("batch/v1", "Job", "j"), "", "ns/jobset/s", false, 0, "JobSet s", core.Training},
		{"RayCluster", "labels: {ray.io/cluster: r}", "", "ns/raycluster/r", false, 0, "RayCluster r", core.Training},
		{"LeaderWorkerSet", "labels: {leaderworkerset.sigs.k8s.io/name: l, leaderworkerset.sigs.k8s.io/group-index: \"1\"}, annotations: {leaderworkerset.sigs.k8s.io/size: \"4\"}", "",
			"ns/leaderworkerset/l-1", false, 4, "LeaderWorkerSet l", core.Inference},
		{"a gang of Volcano's that a Job makes", "annotations: {scheduling.k8s.io/group-name: g}, " + owned("batch/v1", "Job", "j"), "", "ns/gang/g", false, 0, "PodGroup g, Job j", core.Training},
		{"Notebook", owned("kubeflow.org/v1", "Notebook", "nb"), "", "ns/notebook/nb", false, 0, "Notebook nb", core.Dev},
	} {
		p := read[v1.Pod](t, "{metadata: {namespace: ns, "+c.meta+"}, spec: {"+c.spec+"}}")
		var a Attributes
		if err := a.Read(p); err != nil {
			t.Fatal(err)
		}
		m := MembershipOf(p, &a)
		var list []string
		for _, o := range m.Objects {
			list = append(list, o.String())
		}
		if objects := strings.Join(list, ", "); m.Group.Job() != c.job || m.Native != c.native || m.Min != c.min || objects != c.objects || m.Kind != c.kind {
			t.Errorf("%s: %s, native %v, at least %d, %q, %v", c.name, m.Group.Job(), m.Native, m.Min, objects, m.Kind)
		}
	}
}

// What users of YuniKorn and Koordinator write of gangs of several roles.
func TestRoles(t *testing.T) {
	const groups = `yunikorn.apache.org/task-groups: '[{"name": "ps", "minMember": 1, "minResource": {"cpu": 1}, "nodeSelector": {"a": "b"}, "tolerations": [], "affinity": {}, "topologySpreadConstraints": []}, {"name": "w", "minMember": 2}]'`
	minutes := func(n int) core.Time { return core.Time(n) * 60 * core.Second }
	for _, c := range []struct {
		name, meta, job, queue, role string
		min                          int
		roles                        map[string]int
		patience                     core.Time
	}{
		{"YuniKorn", "labels: {applicationId: a1, queue: root.x}, annotations: {yunikorn.apache.org/task-group-name: w, " + groups + "}", "ns/application/a1", "root.x", "w",
			0, map[string]int{"ps": 1, "w": 2}, minutes(15)},
		{"its parameters", `labels: {yunikorn.apache.org/app-id: a1}, annotations: {yunikorn.apache.org/task-group-name: w, yunikorn.apache.org/schedulingPolicyParameters: "placeholderTimeoutInSeconds=60 gangSchedulingStyle=Soft", ` + groups + "}",
			"ns/application/a1", "", "w", 0, map[string]int{"ps": 1, "w": 2}, minutes(1)},
		{"in no group", "labels: {yunikorn.apache.org/app-id: a1}, annotations: {" + groups + "}", "ns/application/a1", "", "main", 0, map[string]int{"ps": 1, "w": 2}, minutes(15)},
		{"of a group that others describe", `labels: {applicationId: a1}, annotations: {yunikorn.apache.org/task-group-name: w, yunikorn.apache.org/schedulingPolicyParameters: "gangSchedulingStyle=Hard"}`,
			"ns/application/a1", "", "w", 0, map[string]int{"w": 0}, core.Never},
		{"without groups", "labels: {applicationId: a1, queue: x}", "ns/pod/p", "x", "main", 0, nil, 0},
		{"a label queue of something else", "labels: {queue: x}", "ns/pod/p", "", "main", 0, nil, 0},
		{"Spark", "labels: {applicationId: a1, spark-role: driver}, annotations: {yunikorn.apache.org/task-group-name: w, " + groups + "}", "ns/pod/p", "", "w", 0, nil, 0},
		{"Koordinator", `labels: {muster.sh/task: t}, annotations: {gang.scheduling.koordinator.sh/name: b, gang.scheduling.koordinator.sh/min-available: "3", gang.scheduling.koordinator.sh/groups: '["ns/b", "other/x", "ns/a"]'}`,
			"ns/gang/a+b", "", "b", 0, map[string]int{"a": 0, "b": 3}, 0},
		{"one gang of Koordinator", `annotations: {gang.scheduling.koordinator.sh/name: b, gang.scheduling.koordinator.sh/min-available: "3", gang.scheduling.koordinator.sh/groups: '["ns/b"]'}`,
			"ns/gang/b", "", "main", 3, nil, 0},
		{"ours", `labels: {muster.sh/gang: g}, annotations: {muster.sh/task: ps, muster.sh/min-member: "ps=1, w=2"}`, "ns/gang/g", "", "ps", 0, map[string]int{"ps": 1, "w": 2}, 0},
	} {
		p := read[v1.Pod](t, "{metadata: {namespace: ns, name: p, "+c.meta+"}}")
		var a Attributes
		if err := a.Read(p); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		m := MembershipOf(p, &a)
		if m.Group.Job() != c.job || a.Queue != c.queue || m.Role != c.role || m.Min != c.min || !reflect.DeepEqual(m.Roles, c.roles) || m.Patience != c.patience {
			t.Errorf("%s: %s, queue %q, role %s, at least %d, %v, patience %d", c.name, m.Group.Job(), a.Queue, m.Role, m.Min, m.Roles, m.Patience)
		}
	}
	for key, values := range map[string][]string{
		"yunikorn.apache.org/task-groups":                      {"{}", `[{"name": "a"}]`, `[{"minMember": 1}]`, `[{"name": "a", "minMember": 1}, {"name": "a", "minMember": 1}]`},
		"yunikorn.apache.org/schedulingPolicyParameters":       {"placeholderTimeoutInSeconds=soon", "gangSchedulingStyle=Firm"},
		"gang.scheduling.koordinator.sh/groups":                {"ns/a"},
		"gang.scheduling.koordinator.sh/network-topology-spec": {"BlockLayer", `{"gatherStrategy": [{"layer": "BlockLayer", "strategy": "Gather"}]}`},
		"muster.sh/min-member":                                 {"ps=1,ps=2", "ps=0", "=1", "ps=1,"},
	} {
		for _, v := range values {
			var a Attributes
			if err := a.Read(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: v}}}); err == nil || !strings.Contains(err.Error(), key+": ") {
				t.Errorf("%s: %s: error %v", key, v, err)
			}
		}
	}
}

func TestVolumes(t *testing.T) {
	p := read[v1.Pod](t, `{metadata: {name: p}, spec: {volumes: [{name: b, persistentVolumeClaim: {claimName: z}}, {name: a, ephemeral: {}}, {name: c, persistentVolumeClaim: {claimName: z}}, {name: d, emptyDir: {}}]}}`)
	if got, want := Claims(p), []Claim{{"p-a", true}, {"z", false}}; !reflect.DeepEqual(got, want) {
		t.Errorf("claims %v, expected %v", got, want)
	}
	in := func(k string, v ...string) core.Requirement {
		return core.Requirement{Key: k, Op: cluster.In, Values: v}
	}
	var r core.Request
	if err := VolumeNodes(read[v1.PersistentVolume](t, `{metadata: {labels: {topology.kubernetes.io/zone: a__b}}, spec: {nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: h, operator: In, values: [x]}]}]}}}}`), &r); err != nil {
		t.Fatal(err)
	}
	if want := (core.Request{Selector: []core.Requirement{in("topology.kubernetes.io/zone", "a", "b"), in("h", "x")}}); !r.Equal(&want) {
		t.Errorf("%+v, expected %+v", r, want)
	}
	ClassNodes(read[storagev1.StorageClass](t, `allowedTopologies: [{matchLabelExpressions: [{key: z, values: [a]}]}, {matchLabelExpressions: [{key: z, values: [b, c]}]}]`), &r)
	if want := [][]core.Requirement{{in("z", "a")}, {in("z", "b", "c")}}; !reflect.DeepEqual(r.AnyOf, want) {
		t.Errorf("%+v, expected %+v", r.AnyOf, want)
	}
	Require(&r, &core.Request{AnyOf: [][]core.Requirement{{in("k", "1")}, {in("k", "2")}}})
	if len(r.AnyOf) != 4 || !reflect.DeepEqual(r.AnyOf[3], []core.Requirement{in("z", "b", "c"), in("k", "2")}) {
		t.Errorf("%+v", r.AnyOf)
	}
}
