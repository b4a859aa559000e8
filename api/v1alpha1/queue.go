package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/quota"
)

// Queue is where the jobs of a tenant wait.
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

// QueueSpec is a queue but for its name.
//
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'Isolated' || !has(self.quota) || self.quota.all(q, !has(q.borrowingLimit) && !has(q.lendingLimit))",message="an Isolated queue neither borrows nor lends: it has no limits of these"
type QueueSpec struct {
	// Parent names the queue this one belongs to; empty at the top.
	//
	// +kubebuilder:validation:MaxLength=63
	Parent string `json:"parent,omitempty"`
	// Weight is the share against the siblings above quota; 1 when not given.
	// Planned: it is shown in the status, and decides nothing yet.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Weight *int64 `json:"weight,omitempty" min:"1" max:"1000000"`
	// Mode says whether the quota is lent and borrowed; Shared when not given.
	//
	// +kubebuilder:default=Shared
	Mode QueueMode `json:"mode,omitempty"`
	// Quota has at most one entry a GPU model. Where no queue has any, there is no
	// limit; a queue without any owns nothing and only borrows where others have.
	//
	// +listType=map
	// +listMapKey=model
	// +kubebuilder:validation:MaxItems=64
	Quota []Quota `json:"quota,omitempty"`
	// NamespaceSelector says which namespaces may use the queue: all when not
	// given, and none of those it does not match.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",message="an operator is In or NotIn with values, or Exists or DoesNotExist without"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// PriorityClasses are the PriorityClasses that jobs of the queue may have,
	// wherever they name them; all when none is listed. A job without a class may
	// use the queue in any case.
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
	// Model is a GPU model, or "*" for all of them together.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Model string `json:"model"`
	// Nominal is what the queue owns, in GPUs.
	Nominal GPUs `json:"nominal"`
	// BorrowingLimit is how much more than Nominal the queue may use when
	// others lend; without bound when not given.
	BorrowingLimit *GPUs `json:"borrowingLimit,omitempty"`
	// LendingLimit is how much of Nominal others may use; all when not given.
	LendingLimit *GPUs `json:"lendingLimit,omitempty"`
}

// QueueStatus is what the scheduler says of a queue. Amounts and jobs are those
// of the queue and all below it.
type QueueStatus struct {
	// Conditions has Ready.
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
	// PendingJobs wait, RunningJobs have pods that run.
	PendingJobs int32 `json:"pendingJobs,omitempty"`
	RunningJobs int32 `json:"runningJobs,omitempty"`
	// WeightPermille is the queue's weight against the sum of the weights of it
	// and its siblings, in thousandths.
	WeightPermille int32 `json:"weightPermille,omitempty"`
}

// QueueUsage is what a queue has to do with one GPU model.
type QueueUsage struct {
	// Model is a GPU model; "*" where the quota is over all together.
	Model string `json:"model"`
	// Nominal is what the queue owns, Used what its jobs hold, Borrowed what
	// they hold of others' quota, all in GPUs.
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
