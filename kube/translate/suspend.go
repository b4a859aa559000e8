package translate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Suspension says how an owner of pods is stopped for a while.
type Suspension struct {
	// Field is the path of the flag that stops it; none where only an owner of
	// the owner can be stopped.
	Field []string
	// PodLabel is the label with its name on all its pods, its owners' too;
	// empty where pods have none.
	PodLabel string
}

// suspensions are the kinds whose pods leave, and come again later, without
// counting as failed.
var suspensions = map[schema.GroupKind]Suspension{
	{Group: "batch", Kind: "Job"}:                     {[]string{"spec", "suspend"}, "batch.kubernetes.io/job-name"},
	{Group: "jobset.x-k8s.io", Kind: "JobSet"}:        {[]string{"spec", "suspend"}, "jobset.sigs.k8s.io/jobset-name"},
	{Group: "trainer.kubeflow.org", Kind: "TrainJob"}: {[]string{"spec", "suspend"}, "jobset.sigs.k8s.io/jobset-name"},
	{Group: "kubeflow.org", Kind: "PyTorchJob"}:       kubeflow,
	{Group: "kubeflow.org", Kind: "TFJob"}:            kubeflow,
	{Group: "kubeflow.org", Kind: "MPIJob"}:           kubeflow,
	{Group: "kubeflow.org", Kind: "XGBoostJob"}:       kubeflow,
	{Group: "kubeflow.org", Kind: "PaddleJob"}:        kubeflow,
	{Group: "kubeflow.org", Kind: "JAXJob"}:           kubeflow,
	{Group: "ray.io", Kind: "RayJob"}:                 {Field: []string{"spec", "suspend"}},
	{Group: "ray.io", Kind: "RayCluster"}:             {PodLabel: "ray.io/cluster"},
}

var kubeflow = Suspension{[]string{"spec", "runPolicy", "suspend"}, "training.kubeflow.org/job-name"}

// SuspensionOf returns how objects of a kind, or their owners, are suspended; false if
// they cannot be.
func SuspensionOf(kind schema.GroupKind) (Suspension, bool) {
	s, ok := suspensions[kind]
	return s, ok
}

// Recreates reports whether an owner, nil for none, makes another pod of the same job in the place
// of one that is evicted. A RayJob that was suspended makes a RayCluster of another name, which is
// another job.
func Recreates(owner *metav1.OwnerReference) bool {
	if owner == nil {
		return false
	}
	kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
	switch kind {
	case schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, schema.GroupKind{Kind: "ReplicationController"}:
		return true
	}
	s, ok := SuspensionOf(kind)
	return ok && s.Field != nil
}

// Suspendable lists the kinds that can be stopped themselves, in no order.
func Suspendable() []schema.GroupKind {
	var kinds []schema.GroupKind
	for kind, s := range suspensions {
		if s.Field != nil {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Ended reports whether an object says in its conditions that it is over.
func Ended(o *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["status"] == "True" {
			switch c["type"] {
			case "Complete", "Completed", "Succeeded", "Failed", "FailureTarget", "SuccessCriteriaMet":
				return true
			}
		}
	}
	return false
}
