package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/quota"
)

// Queue holds the waiting jobs of a tenant and defines its quota.
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
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'Isolated' || !has(self.resources) || self.resources.all(q, !has(q.borrowingLimit) && !has(q.lendingLimit))",message="an Isolated queue neither borrows nor lends: it has no limits of these"
type QueueSpec struct {
	// Parent is the parent queue; empty for a queue at the top.
	//
	// +kubebuilder:validation:MaxLength=63
	Parent string `json:"parent,omitempty"`
	// Weight is the queue's share relative to its siblings, above quota. Default: 1.
	// A queue of weight 0 is owed what its siblings leave. It counts under policies with fairShare.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Weight *int64 `json:"weight,omitempty" min:"0" max:"1000000"`
	// Priority decides between siblings before Weight does: those of higher priority get
	// what they request above quota before the others get any. Default: 0. It counts
	// under policies with fairShare.
	//
	// +kubebuilder:default=0
	Priority int32 `json:"priority,omitempty"`
	// Mode says whether the queue lends and borrows quota. Default: Shared.
	//
	// +kubebuilder:default=Shared
	Mode QueueMode `json:"mode,omitempty"`
	// Quota has at most one entry per GPU model. A model that no queue lists has no limit,
	// if none lists "*" either; a queue without quota owns nothing, and borrows from other queues.
	//
	// +listType=map
	// +listMapKey=model
	// +kubebuilder:validation:MaxItems=64
	Quota []Quota `json:"quota,omitempty"`
	// QuotaScope says whose the amounts of Quota and Resources are. Queue: those of the queue
	// itself, beside what the queues below it own, as in Kueue. Subtree: those of the queue
	// with all below it, as in KAI, Volcano, YuniKorn and Koordinator: the queue itself owns
	// what the queues below it leave. Default: Queue.
	//
	// +kubebuilder:default=Queue
	QuotaScope QuotaScope `json:"quotaScope,omitempty"`
	// Resources has at most one entry per resource: CPU, memory or an extended resource. The
	// jobs of the queue, and of the queues below it, count with what their pods request,
	// whichever GPUs they use. A queue does not limit the resources that it does not list.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Resources []ResourceQuota `json:"resources,omitempty"`
	// MaxRunningJobs and MaxRunningGPUs bound how many jobs, and GPUs of any model, run at
	// one time in the queue and all queues below it. Default: 0, no bound. A job beyond a
	// bound waits with the reason MaxRunning, and does not hold up others.
	//
	// +kubebuilder:validation:Minimum=0
	MaxRunningJobs int32 `json:"maxRunningJobs,omitempty" min:"0"`
	MaxRunningGPUs GPUs  `json:"maxRunningGPUs,omitempty"`
	// MaxRunningJobsPerUser and MaxRunningGPUsPerUser bound the same for each user: the
	// value of the job's annotation muster.sh/user, or else its namespace. Default: 0, no
	// bound.
	//
	// +kubebuilder:validation:Minimum=0
	MaxRunningJobsPerUser int32 `json:"maxRunningJobsPerUser,omitempty" min:"0"`
	MaxRunningGPUsPerUser GPUs  `json:"maxRunningGPUsPerUser,omitempty"`
	// FairBetween says which jobs come next: with Users, the next job of the queue is
	// one of the user whose running jobs hold the fewest GPUs there, whichever was submitted
	// first. Jobs without GPUs take turns among themselves, by CPU. The user is the value of
	// the job's annotation muster.sh/user, or else its namespace. Default: None.
	//
	// +kubebuilder:default=None
	FairBetween FairBetween `json:"fairBetween,omitempty"`
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
	// Classes lists the classes that jobs of the queue can have: HP, LP. Default: both.
	//
	// +listType=set
	Classes []JobClass `json:"classes,omitempty"`
	// Kinds lists what jobs of the queue can be: training, inference, batch, dev. Default: all.
	//
	// +listType=set
	Kinds []JobKind `json:"kinds,omitempty"`
	// MaxWalltime bounds the expected run time that jobs of the queue can give
	// (muster.sh/walltime). A job that gives none can use the queue. Default: 0, no bound.
	MaxWalltime Duration `json:"maxWalltime,omitempty"`
	// Protection says whether jobs of the queue can be locked or unpreemptible. Default:
	// Allowed.
	//
	// +kubebuilder:default=Allowed
	Protection Protection `json:"protection,omitempty"`
}

// JobClass is HP or LP.
//
// +kubebuilder:validation:Enum=HP;LP
type JobClass string

// JobKind is what a job does.
//
// +kubebuilder:validation:Enum=training;inference;batch;dev
type JobKind string

// Protection is Allowed or Forbidden.
//
// +kubebuilder:validation:Enum=Allowed;Forbidden
type Protection string

// Values lists whether jobs can be protected.
func (Protection) Values() []string { return []string{"Allowed", "Forbidden"} }

// QueueMode is Shared or Isolated.
//
// +kubebuilder:validation:Enum=Shared;Isolated
type QueueMode string

// Values lists the modes.
func (QueueMode) Values() []string { return []string{"Shared", "Isolated"} }

// QuotaScope is Queue or Subtree.
//
// +kubebuilder:validation:Enum=Queue;Subtree
type QuotaScope string

// Values lists the scopes.
func (QuotaScope) Values() []string { return []string{"Queue", "Subtree"} }

// FairBetween is None or Users.
//
// +kubebuilder:validation:Enum=None;Users
type FairBetween string

// Values lists what a queue can be fair between.
func (FairBetween) Values() []string { return []string{"None", "Users"} }

// Quota is what a queue owns of one GPU model.
type Quota struct {
	// Model is a GPU model, or "*" for all models together.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[^/]`
	Model string `json:"model"`
	// Nominal is what the queue owns, in GPUs; -1 is without limit.
	Nominal GPUs `json:"nominal"`
	// BorrowingLimit is how many GPUs the queue can use beyond Nominal when other
	// queues lend. Default: no limit.
	BorrowingLimit *GPUs `json:"borrowingLimit,omitempty"`
	// LendingLimit is how many GPUs of Nominal other queues can use. Default: all.
	LendingLimit *GPUs `json:"lendingLimit,omitempty"`
}

// ResourceQuota is what a queue owns of a resource other than GPUs.
type ResourceQuota struct {
	// Name is cpu, memory, or another resource as pods request it, such as rdma/hca.
	Name ResourceName `json:"name"`
	// Nominal is what the queue owns: cores, bytes, or units of the resource; -1 is without limit.
	Nominal Quantity `json:"nominal"`
	// BorrowingLimit is how much the queue can use beyond Nominal when other queues
	// lend. Default: no limit.
	BorrowingLimit *Quantity `json:"borrowingLimit,omitempty"`
	// LendingLimit is how much of Nominal other queues can use. Default: all.
	LendingLimit *Quantity `json:"lendingLimit,omitempty"`
}

// QueueStatus is what the scheduler reports about a queue. Amounts and jobs include
// those of all queues below it.
type QueueStatus struct {
	// Conditions contains Ready and, if queues own more than there is of something of which
	// the queue has quota, or those below it own more than its Subtree has, ExceedsCapacity.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Nominal and Used are the sums over all GPU models, in GPUs; Nominal is -1 if a queue owns
	// without limit.
	Nominal GPUs `json:"nominal,omitempty"`
	Used    GPUs `json:"used,omitempty"`
	// Usage has an entry for each model of which the queue has quota or uses
	// GPUs, in the order of their names.
	//
	// +listType=map
	// +listMapKey=model
	// +kubebuilder:validation:MaxItems=1024
	Usage []QueueUsage `json:"usage,omitempty"`
	// Resources has an entry for each resource of which the queue has quota, or which it uses
	// and a queue above it has quota of, in the order of their names.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1024
	Resources []ResourceUsage `json:"resources,omitempty"`
	// PendingJobs counts waiting jobs, RunningJobs jobs with running pods.
	PendingJobs int32 `json:"pendingJobs,omitempty"`
	RunningJobs int32 `json:"runningJobs,omitempty"`
	// WeightPermille is the queue's share of the sum of its own and its siblings'
	// weights, in thousandths.
	WeightPermille int32 `json:"weightPermille,omitempty"`
	// GPUTime is where the queue stands under policies with the order LongTermFairness.
	GPUTime *QueueStanding `json:"gpuTime,omitempty"`
	// Users is what users hold in a queue with fairBetween Users, those who hold most first; at most 100 of them.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Users []QueueUser `json:"users,omitempty"`
}

// QueueUser is what a user holds in a queue, by which users take turns. The queues below it do not count.
type QueueUser struct {
	// Name is the user; empty for jobs that name none.
	Name string `json:"name"`
	// GPUs is what jobs with GPUs hold, times the rates of the policy.
	GPUs GPUs `json:"gpus"`
	// CPU is the cores that jobs without GPUs hold.
	CPU Quantity `json:"cpu"`
}

// QueueStanding is the GPU time of a queue, rounded to three digits.
type QueueStanding struct {
	// Received and Deserved are GPU-hours so far, where GPUs count by the rates of the
	// policy.
	Received string `json:"received"`
	Deserved string `json:"deserved"`
	// Index is what it will have received for what it will have deserved after a lease,
	// if nothing changes; "infinite" if it deserves nothing. The queue with the lowest
	// index is next.
	Index string `json:"index"`
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
	// Requested is what its jobs request, whether they run or wait, and Owed what they are
	// owed of that by quota and weight, in GPUs: under policies with fairShare.
	Requested GPUs `json:"requested,omitempty"`
	Owed      GPUs `json:"owed,omitempty"`
}

// ResourceUsage is the quota and use of one resource.
type ResourceUsage struct {
	// Name is cpu, memory, or another resource as pods request it.
	Name ResourceName `json:"name"`
	// Nominal is what the queue owns, Used what its jobs hold, and Borrowed what they
	// hold of other queues' quota.
	Nominal  Quantity `json:"nominal"`
	Used     Quantity `json:"used"`
	Borrowed Quantity `json:"borrowed"`
	// Requested is what its jobs request, whether they run or wait, and Owed what they are
	// owed of that by quota and weight: under policies with fairShare.
	Requested Quantity `json:"requested,omitempty"`
	Owed      Quantity `json:"owed,omitempty"`
}

// QueueList is a list of queues.
//
// +kubebuilder:object:root=true
type QueueList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Queue `json:"items"`
}

// Queue returns the queue as the engine takes it, with its amounts as they are: see [Contain].
func (q *QueueSpec) Queue(name string) core.Queue {
	c := core.Queue{Name: name, Parent: q.Parent, Weight: 1, Priority: q.Priority}
	c.MaxRunning = core.Running{Jobs: int(q.MaxRunningJobs), GPU: max(0, core.Milli(q.MaxRunningGPUs))}
	c.MaxRunningPerUser = core.Running{Jobs: int(q.MaxRunningJobsPerUser), GPU: max(0, core.Milli(q.MaxRunningGPUsPerUser))}
	c.FairUsers = q.FairBetween == "Users"
	if q.Weight != nil {
		c.Weight = *q.Weight
	}
	if i := index(q.Mode.Values(), string(q.Mode)); i >= 0 {
		c.Mode = quota.Mode(i)
	}
	for _, e := range q.Quota {
		c.Quota = append(c.Quota, core.Quota{
			Model:          e.Model,
			Nominal:        e.Nominal.owned(),
			BorrowingLimit: limit(e.BorrowingLimit),
			LendingLimit:   limit(e.LendingLimit),
		})
	}
	for _, e := range q.Resources {
		bound := func(v *Quantity) core.Milli {
			if v == nil || *v == endless {
				return core.Unlimited
			}
			return v.Amount(e.Name)
		}
		c.Resources = append(c.Resources, core.ResourceQuota{
			Resource:       string(e.Name),
			Nominal:        e.Nominal.Amount(e.Name),
			BorrowingLimit: bound(e.BorrowingLimit),
			LendingLimit:   bound(e.LendingLimit),
		})
	}
	return c
}

func limit(g *GPUs) core.Milli {
	if g == nil || *g < 0 {
		return core.Unlimited
	}
	return core.Milli(*g)
}
