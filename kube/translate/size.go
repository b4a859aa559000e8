package translate

import (
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// sizes says, for each kind of object that makes gangs of pods, how many pods
// its gang needs.
var sizes = map[schema.GroupKind]func(spec map[string]any) int{
	{Group: "scheduling.x-k8s.io", Kind: "PodGroup"}:   field("minMember"),
	{Group: "scheduling.volcano.sh", Kind: "PodGroup"}: field("minMember"),
	{Group: "scheduling.run.ai", Kind: "PodGroup"}:     field("minMember"),
	{Group: "batch.volcano.sh", Kind: "Job"}:           field("minAvailable"),
	{Group: "kubeflow.org", Kind: "PyTorchJob"}:        replicas("pytorchReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "TFJob"}:             replicas("tfReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "MPIJob"}:            replicas("mpiReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "XGBoostJob"}:        replicas("xgbReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "PaddleJob"}:         replicas("paddleReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "JAXJob"}:            replicas("jaxReplicaSpecs"),
	{Group: "jobset.x-k8s.io", Kind: "JobSet"}:         jobSet,
	{Group: "ray.io", Kind: "RayCluster"}:              rayCluster,
}

func sized(gvk schema.GroupVersionKind) bool { return sizes[gvk.GroupKind()] != nil }

// Size returns how many pods the gang of an object needs at least; 0 when the
// object does not say.
func Size(o *unstructured.Unstructured) int {
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	if f := sizes[o.GroupVersionKind().GroupKind()]; f != nil && spec != nil {
		return f(spec)
	}
	return 0
}

func field(name string) func(map[string]any) int {
	return func(spec map[string]any) int { return count(spec, 0, name) }
}

// replicas sums the replicas of all roles, unless the job says how many are
// enough.
func replicas(specs string) func(map[string]any) int {
	return func(spec map[string]any) int {
		if n := count(spec, 0, "runPolicy", "schedulingPolicy", "minAvailable"); n > 0 {
			return n
		}
		roles, _, _ := unstructured.NestedMap(spec, specs)
		sum := 0
		for _, r := range roles {
			if role, ok := r.(map[string]any); ok {
				sum += count(role, 1, "replicas")
			}
		}
		return sum
	}
}

// jobSet sums the pods of all replicated jobs.
func jobSet(spec map[string]any) int {
	jobs, _, _ := unstructured.NestedSlice(spec, "replicatedJobs")
	sum := 0
	for _, j := range jobs {
		if job, ok := j.(map[string]any); ok {
			pods := count(job, 1, "template", "spec", "parallelism")
			if most := count(job, 0, "template", "spec", "completions"); most > 0 {
				pods = min(pods, most)
			}
			sum += count(job, 1, "replicas") * pods
		}
	}
	return sum
}

// rayCluster is the head and the least workers of every group.
func rayCluster(spec map[string]any) int {
	groups, _, _ := unstructured.NestedSlice(spec, "workerGroupSpecs")
	sum := 1
	for _, g := range groups {
		if group, ok := g.(map[string]any); ok {
			sum += count(group, count(group, 1, "replicas"), "minReplicas") * count(group, 1, "numOfHosts")
		}
	}
	return sum
}

// count reads a whole number in an object; missing is what it is when it is not
// there.
func count(o map[string]any, missing int, path ...string) int {
	v, ok, err := unstructured.NestedFieldNoCopy(o, path...)
	if err != nil || !ok {
		return missing
	}
	switch n := v.(type) {
	case int64:
		return int(n)
	case float64:
		return int(n)
	}
	return missing
}

// number reads a whole number; 0 when s is none.
func number(s string) int {
	n, _ := strconv.Atoi(s)
	return max(n, 0)
}
