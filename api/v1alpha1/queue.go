package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/quota"
)

// Queue holds the waiting jobs of a tenant and defines its GPU quota.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=mq,categories=muster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Parent",type=string,JSONPath=`.spec.parent`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Weight",type=integer,JSONPath=`.spec.weight`
// +kubebuilder:printcolumn:name="Nominal",type=string,JSONPath=`.status.nominal`
// +kubebuilder:printcolumn:name="Used",type=string,JSONPath=`.status.used`
// +kubebuilder:printcolumn:name="Pending",type=integer,JSONPath=`.status.pendingJobs`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.runningJobs`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="a queue's name is the value of a label: at most 63 characters"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.parent) || self.spec.parent != self.metadata.name",message="a queue is not its own parent"
type Queue struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              QueueSpec   `json:"spec"`
	Status            QueueStatus `json:"status,omitempty"`
}

// QueueSpec is a queue without its name.
//
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'Isolated' || !has(self.quota) || self.quota.all(q, !has(q.borrowingLimit) && !has(q.lendingLimit))",message="an Isolated queue neither borrows nor lends: it has no limits of these"
type QueueSpec struct {
	// Parent is the parent queue; empty for a queue at the top.
	//
	// +kubebuilder:validation:MaxLength=63
	Parent string `json:"parent,omitempty"`
	// Weight is the queue's share relative to its siblings, above quota. Default: 1.
	// Planned: the status shows it, but it has no effect yet.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Weight *int64 `json:"weight,omitempty" min:"1" max:"1000000"`
	// Mode says whether the queue lends and borrows quota. Default: Shared.
	//
	// +kubebuilder:default=Shared
	Mode QueueMode `json:"mode,omitempty"`
	// Quota has at most one entry per GPU model. If no queue has a quota, there is no
	// limit; a queue without quota owns nothing, and borrows from other queues.
	//
	// +listType=map
	// +listMapKey=model
	// +kubebuilder:validation:MaxItems=64
	Quota []Quota `json:"quota,omitempty"`
	// NamespaceSelector selects the namespaces whose jobs can use the queue. Default:
	// all namespaces.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",message="an operator is In or NotIn with values, or Exists or DoesNotExist without"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// PriorityClasses lists the PriorityClasses that jobs of the queue can have,
	// wherever a job names its class. Default: all. A job without a class can always
	// use the queue.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	PriorityClasses []string `json:"priorityClasses,omitempty"`
}

// QueueMode is Shared or Isolated.
//
// +kubebuilder:validation:Enum=Shared;Isolated
type QueueMode string

// Values lists the modes.
func (QueueMode) Values() []string { return []string{"Shared", "Isolated"} }

// Quota is what a queue owns of one GPU model.
type Quota struct {
	// Model is a GPU model, or "*" for all models together.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Model string `json:"model"`
	// Nominal is what the queue owns, in GPUs.
	Nominal GPUs `json:"nominal"`
	// BorrowingLimit is how many GPUs the queue can use beyond Nominal when other
	// queues lend. Default: no limit.
	BorrowingLimit *GPUs `json:"borrowingLimit,omitempty"`
	// LendingLimit is how many GPUs of Nominal other queues can use. Default: all.
	LendingLimit *GPUs `json:"lendingLimit,omitempty"`
}

// QueueStatus is what the scheduler reports about a queue. Amounts and jobs include
// those of all queues below it.
type QueueStatus struct {
	// Conditions contains Ready.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Nominal and Used are the sums over all GPU models, in GPUs.
	Nominal GPUs `json:"nominal,omitempty"`
	Used    GPUs `json:"used,omitempty"`
	// Usage has an entry for each model of which the queue has quota or uses
	// GPUs, in the order of their names.
	//
	// +listType=map
	// +listMapKey=model
	// +kubebuilder:validation:MaxItems=1024
	Usage []QueueUsage `json:"usage,omitempty"`
	// PendingJobs counts waiting jobs, RunningJobs jobs with running pods.
	PendingJobs int32 `json:"pendingJobs,omitempty"`
	RunningJobs int32 `json:"runningJobs,omitempty"`
	// WeightPermille is the queue's share of the sum of its own and its siblings'
	// weights, in thousandths.
	WeightPermille int32 `json:"weightPermille,omitempty"`
}

// QueueUsage is the quota and use of one GPU model.
type QueueUsage struct {
	// Model is a GPU model, or "*" for a quota of all models together.
	Model string `json:"model"`
	// Nominal is what the queue owns, Used what its jobs hold, and Borrowed what they
	// hold of other queues' quota, all in GPUs.
	Nominal  GPUs `json:"nominal"`
	Used     GPUs `json:"used"`
	Borrowed GPUs `json:"borrowed"`
}

// QueueList is a list of queues.
//
// +kubebuilder:object:root=true
type QueueList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Queue `json:"items"`
}

// Queue returns the queue as the engine takes it.
func (q *QueueSpec) Queue(name string) core.Queue {
	c := core.Queue{Name: name, Parent: q.Parent, Weight: 1}
	if q.Weight != nil {
		c.Weight = *q.Weight
	}
	if i := index(q.Mode.Values(), string(q.Mode)); i >= 0 {
		c.Mode = quota.Mode(i)
	}
	for _, e := range q.Quota {
		c.Quota = append(c.Quota, core.Quota{
			Model:          e.Model,
			Nominal:        core.Milli(e.Nominal),
			BorrowingLimit: limit(e.BorrowingLimit),
			LendingLimit:   limit(e.LendingLimit),
		})
	}
	return c
}

func limit(g *GPUs) core.Milli {
	if g == nil {
		return core.Unlimited
	}
	return core.Milli(*g)
}
