package core

import (
	"fmt"
	"math"
	"strconv"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/quota"
)

// The vocabulary of the subpackages, so that drivers import core alone.
type (
	// Time is nanoseconds since an origin the driver chose.
	Time = cluster.Time
	// Milli counts thousandths of a GPU.
	Milli = cluster.Milli
	// Node describes a node.
	Node = cluster.NodeSpec
	// Device is the position of a GPU in its node.
	Device = cluster.DeviceSpec
	// Taint repels pods that do not tolerate it.
	Taint = cluster.Taint
	// Toleration lets a pod onto nodes with a taint.
	Toleration = cluster.Toleration
	// Requirement is one condition on a node's labels.
	Requirement = cluster.Requirement
	// Term is an affinity or anti-affinity between pods.
	Term = cluster.Term
	// Preference is a condition that a pod need not meet.
	Preference = cluster.Preference
	// Combination is a way to put a gang together out of unlike GPUs.
	Combination = place.Combination
	// Amount is an amount of a named resource.
	Amount = cluster.Amount
	// Request is what one pod needs.
	Request = cluster.Request
	// Picker says who picks the devices of a pod.
	Picker = cluster.Picker
	// DeviceSet names some devices of a node.
	DeviceSet = cluster.DeviceSet
	// Queue describes where the jobs of a tenant wait.
	Queue = quota.QueueSpec
	// Quota is the GPU quota of a queue for one model.
	Quota = quota.Quota
	// ResourceQuota is the quota of a queue for CPU, memory or another resource.
	ResourceQuota = quota.ResourceQuota
	Share         = quota.Share
	Overbooked    = quota.Overbooked
	// Running bounds what jobs of a queue run at one time.
	Running = quota.Running
)

// Units and limits of the vocabulary.
const (
	Second    = cluster.Second
	Never     = cluster.Never
	WholeGPU  = cluster.WholeGPU
	Unlimited = quota.Unlimited
	MaxAmount = cluster.MaxAmount

	AnyPicker   = cluster.AnyPicker
	EnginePicks = cluster.EnginePicks
	NodePicks   = cluster.NodePicks
	// MaxPreferences is how many preferences a task may have.
	MaxPreferences = cluster.MaxPreferences
	// MaxPods is the most pods that a job may have.
	MaxPods = 1_000_000
	// MaxTime bounds the times and durations of a job on both sides of 0: 146 years.
	// Two of them add up to a [Time].
	MaxTime Time = 1<<62 - 1
)

// Kind is what a job does; a policy may place each kind by its own strategy.
type Kind uint8

// The kinds of job.
const (
	Training Kind = iota
	Inference
	Batch
	Dev
	numKinds
)

// Kinds names the kinds in their order.
var Kinds = [numKinds]string{"training", "inference", "batch", "dev"}

func (k Kind) String() string { return Kinds[k] }

// Class is the service class of a job. An HP job is never evicted for an LP job.
type Class uint8

// The classes of job: high priority, and low priority (spot).
const (
	HP Class = iota
	LP
)

func (c Class) String() string { return [...]string{"HP", "LP"}[c] }

// Mobility says how a running pod of a job can be brought to another node.
type Mobility uint8

// The ways to move a pod.
const (
	// Stays: it cannot be.
	Stays Mobility = iota
	// Replaceable: another instance of it may start elsewhere, and run beside it until the
	// first one ends (make before break). This holds for most services, but not for training
	// gangs.
	Replaceable
	numMobilities
)

// Mobilities names the ways to move a pod, in their order.
var Mobilities = [numMobilities]string{"stays", "replaceable"}

func (m Mobility) String() string { return Mobilities[m] }

// Job is what a user submits.
type Job struct {
	// Name is unique among live jobs.
	Name  string
	Queue string
	// User is whose job it is, where queues bound what each user runs; may be empty.
	User  string
	Kind  Kind
	Class Class
	// Priority orders jobs, highest first.
	Priority int32
	// Gang jobs start whole (every task's MinPods) or not at all; the pods of
	// other jobs start one by one.
	Gang bool
	// Alternatives says that each task of the gang is another way to run all of it: its pods are of one task at a time. See [Goodput].
	Alternatives bool
	// NotPreemptible jobs are never evicted to make room for others, unless they were
	// found running beyond their queue's nominal quota: see [PodRunning].
	NotPreemptible bool
	// NeverPreempts jobs evict no others, for any reason: they start on what is free.
	NeverPreempts bool
	// NeverOnLent jobs are not put on the GPUs that pods on standby lend: a kubelet counts their
	// GPUs, and has none left there.
	NeverOnLent bool
	// Lends says that pods of the HP job will be on standby at times. Policies that score nodes place
	// them together, so that what they lend is in large pieces: see place/together.go.
	Lends bool
	// NeverRestarts jobs do not stop and start again elsewhere so that another job has room.
	// They may be evicted for others like any job.
	NeverRestarts bool
	// Locked jobs are never moved, and evicted with the same exception only.
	Locked bool
	// Mobility says how its pods can be moved. Locked and foreign jobs are not moved,
	// whatever it says.
	Mobility Mobility
	// Another scheduler decides on foreign jobs. The engine counts what they use,
	// and never evicts them, whatever the policy and their queue's quota say.
	Foreign bool
	// Tasks has at least one entry. Pods are numbered from 0 across tasks, in
	// their order.
	Tasks    []Task
	Topology TopologyRequest
	// Combinations are the GPU models on which the tasks of a gang may be together, and what each is worth: at most
	// [MaxCombinations], in an order that decides between those of equal worth. nil: all that the tasks accept.
	Combinations []Combination
	// Submitted is when the user submitted the job; it orders the queue.
	Submitted Time
	// Estimate is the expected run time; 0 when unknown.
	Estimate Time
	// Checkpoint is the interval at which the job saves its progress; 0 when
	// it never does and an eviction loses all its work.
	Checkpoint Time
	// SaveWithin is how long the job takes at most to save its progress when it is asked to, which a driver does before the job is
	// evicted for others or restarts elsewhere; 0 when it is not asked. An eviction loses no more than the work of that time.
	SaveWithin Time
	// MinRuntime is how long the gang, or each pod of another job, runs at least
	// before it can be evicted, where that is longer than the policy's.
	MinRuntime Time
	// Sharing says with what other jobs it may share its GPUs; the zero value: with none. Under a policy that packs, such a job
	// takes no [PodsAdded] and no [JobRelabelled]. See [Packing].
	Sharing Sharing
	// Suspend says what it takes to suspend the job; the zero value: it cannot be. See [Suspension].
	Suspend Suspension
	// StaleGrace is the [RequeuePolicy.StaleGrace] of the gang, where it is not 0; negative: it is never
	// stopped for that.
	StaleGrace Time
}

// Task is a role of a job: its pods are alike.
type Task struct {
	Name string
	// Pods is how many pods the task has. MinPods of them start with the gang,
	// the rest one by one; 0 means all, Elastic none. It has no meaning outside a
	// gang.
	Pods, MinPods int
	Request
	// Labels mark the pods for the Affinity terms of others, in the job too.
	// Affinity is what each of the pods requires of the pods around it.
	Labels   []string
	Affinity []Term
	// Prefers is what each of the pods prefers of nodes that are equally good, at most [MaxPreferences]: see
	// place/prefer.go. Of pods that join a task ([PodsAdded]), it stays as it is.
	Prefers []Preference
}

// Elastic is the MinPods of a task that its gang can do without.
const Elastic = -1

// Minimum returns how many pods of the task start with the gang.
func (t *Task) Minimum() int {
	switch t.MinPods {
	case 0:
		return t.Pods
	case Elastic:
		return 0
	}
	return t.MinPods
}

// TopologyRequest says how near each other the pods of a job must be. Levels
// are names of the configured topology, "node" or "hbd".
type TopologyRequest struct {
	// Required is the level of which one domain must hold all pods of the job: the
	// domain of the first pod, for as long as any pod is there. Preferred is the level
	// at which a gang is tried first. Both are empty if not requested.
	Required, Preferred string
	// Closeness weighs the nearness of a gang's pods against the speed of the models that they
	// accept, in thousandths: each level of the topology between them counts as if it lengthened
	// the run time by this share. 0 to [MaxCloseness]; 0: the fastest models, however far apart.
	Closeness int64
}

// none reports whether nothing is asked for.
func (t *TopologyRequest) none() bool {
	return t.Required == "" && t.Preferred == "" && t.Closeness == 0
}

// MaxCloseness is the largest closeness: 10 times the run time for each level.
const MaxCloseness = 10_000

// ParseCloseness reads a closeness, such as 0.1. The error says what is expected.
func ParseCloseness(text string) (int64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v <= MaxCloseness/1000) {
		return 0, fmt.Errorf("a closeness from 0 to %d, such as 0.1", MaxCloseness/1000)
	}
	return int64(math.Round(v * 1000)), nil
}

// FormatCloseness is the inverse of [ParseCloseness].
func FormatCloseness(c int64) string { return strconv.FormatFloat(float64(c)/1000, 'f', -1, 64) }

// Pods returns how many pods the job has.
func (j *Job) Pods() int {
	n := 0
	for i := range j.Tasks {
		n += j.Tasks[i].Pods
	}
	return n
}

// GPUs returns how much GPU all pods of the job need together; of a job with alternatives, those of the first one.
func (j *Job) GPUs() Milli {
	if j.Alternatives {
		return Milli(j.Tasks[0].Pods) * j.Tasks[0].GPU
	}
	var m Milli
	for i := range j.Tasks {
		m += Milli(j.Tasks[i].Pods) * j.Tasks[i].GPU
	}
	return m
}
