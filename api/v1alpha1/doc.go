// Package v1alpha1 is how people write down what Muster should do: scheduling
// policies and queues, in files and, with the same fields, as Kubernetes
// objects.
package v1alpha1

// Version is the apiVersion of the objects of this package.
const Version = "muster.sh/v1alpha1"

// Metadata names an object.
type Metadata struct {
	Name        string            `json:"name,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}
