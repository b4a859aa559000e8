// Package v1alpha1 is how people write down what Muster should do: scheduling
// policies, queues and the topology, in files and, as the same types, as
// Kubernetes objects; and the names of the labels, annotations, conditions and
// gates that Muster reads and writes on objects of others.
//
// The definitions in deploy/crds are generated from it: make generate.
//
// +kubebuilder:object:generate=true
// +groupName=muster.sh
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of Muster's objects, and the prefix of its labels and
// annotations.
const Group = "muster.sh"

// Version is the apiVersion of the objects of this package.
const Version = Group + "/v1alpha1"

// GroupVersion is Version in parts.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

// AddToScheme makes the types of this package known to s.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Queue{}, &QueueList{},
		&SchedulingPolicy{}, &SchedulingPolicyList{},
		&Topology{}, &TopologyList{},
		&Ledger{}, &LedgerList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Resource returns the name of a resource of this group, such as "queues", for
// clients and errors.
func Resource(name string) schema.GroupResource {
	return schema.GroupResource{Group: Group, Resource: name}
}
