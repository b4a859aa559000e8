package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/core/cluster"
)

// Topology lists the node labels that describe a node's position in the network. Its
// spec is the same as in Kueue and KAI.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=mtopo,categories=muster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Widest",type=string,JSONPath=`.spec.levels[0].nodeLabel`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Topology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              TopologySpec   `json:"spec"`
	Status            TopologyStatus `json:"status,omitempty"`
}

// TopologySpec lists the levels.
type TopologySpec struct {
	// Levels lists the levels of the network, widest first. Their labels are immutable:
	// to change them, create another Topology.
	//
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.map(l, l.nodeLabel) == oldSelf.map(l, l.nodeLabel)",message="the labels of the levels cannot be changed"
	// +kubebuilder:validation:XValidation:rule="self.all(l, self.exists_one(other, other.nodeLabel == l.nodeLabel))",message="each label is one level"
	// +kubebuilder:validation:XValidation:rule="self.filter(l, has(l.alias)).all(l, self.exists_one(other, has(other.alias) && other.alias == l.alias))",message="each alias is one level's"
	// +kubebuilder:validation:XValidation:rule="!self.exists(l, l.nodeLabel == 'kubernetes.io/hostname') || self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",message="kubernetes.io/hostname is the last level"
	Levels []TopologyLevel `json:"levels"`
}

// TopologyLevel is a level of the network, such as spine, leaf or rack.
type TopologyLevel struct {
	// NodeLabel is the node label whose value names the node's domain of this
	// level.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)$`
	NodeLabel string `json:"nodeLabel"`
	// Alias is another name by which jobs can request the level, such as "rack".
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['node', 'hbd'])",message="node and hbd are levels of their own"
	Alias string `json:"alias,omitempty"`
}

// TopologyStatus is what the scheduler reports about a topology.
type TopologyStatus struct {
	// Conditions contains Ready.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Nodes counts the nodes that have the labels of all levels.
	Nodes int32 `json:"nodes,omitempty"`
}

// TopologyList is a list of topologies.
//
// +kubebuilder:object:root=true
type TopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Topology `json:"items"`
}

// HostnameLabel is the node label that the last level can have: its domains are the
// nodes themselves.
const HostnameLabel = "kubernetes.io/hostname"

// Labels returns the node labels that the engine takes as its levels, widest
// first: all but [HostnameLabel].
func (s *TopologySpec) Labels() []string {
	var labels []string
	for _, l := range s.Levels {
		if l.NodeLabel != HostnameLabel {
			labels = append(labels, l.NodeLabel)
		}
	}
	return labels
}

// Level returns what the engine calls the level that a job asks for by its
// alias or node label, or as "node" or "hbd"; false when there is none.
func (s *TopologySpec) Level(name string) (string, bool) {
	i := slices.IndexFunc(s.Levels, func(l TopologyLevel) bool { return l.NodeLabel == name || l.Alias == name })
	switch {
	case name == cluster.NodeLevel || name == cluster.HBDLevel:
		return name, true
	case name == "" || i < 0 && name != HostnameLabel:
		return "", false
	case i < 0 || s.Levels[i].NodeLabel == HostnameLabel:
		return cluster.NodeLevel, true
	}
	return s.Levels[i].NodeLabel, true
}
