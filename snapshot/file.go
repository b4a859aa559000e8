package snapshot

import (
	"errors"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// The format of the file. A field without omitempty is required; comments describe the
// defaults of optional fields.

type file struct {
	Policy   policy   `json:"policy,omitempty"`
	Topology topology `json:"topology,omitempty"`
	Nodes    []node   `json:"nodes"`
	// Queues may be left out as a whole: then every queue that a job names
	// exists and has no limit.
	Queues []queue `json:"queues,omitempty"`
	Jobs   []job   `json:"jobs,omitempty"`
}

// policy is a built-in policy's name, or the policy itself; "default" when not
// given.
type policy struct {
	name string
	v1alpha1.SchedulingPolicySpec
}

func (p *policy) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return errors.New("the name of a built-in policy, or the policy itself")
	}
	p.name = string(text)
	return nil
}

// topology lists the node labels that name the domains of a node, widest first.
type topology struct {
	Levels []string `json:"levels,omitempty"`
}

type node struct {
	Name string `json:"name"`
	// Count makes this many nodes of the entry, called name-0, name-1 and so on.
	Count     *int              `json:"count,omitempty" min:"1" max:"200000"`
	Model     string            `json:"model,omitempty"`
	GPUs      int               `json:"gpus,omitempty" min:"0" max:"64"`
	CPUMilli  int64             `json:"cpuMilli,omitempty" min:"0" max:"1000000000"`
	MemMiB    int64             `json:"memMiB,omitempty" min:"0" max:"1000000000"`
	Others    others            `json:"others,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Taints    []taint           `json:"taints,omitempty"`
	Unhealthy []int             `json:"unhealthy,omitempty"`
	Cordoned  bool              `json:"cordoned,omitempty"`
	// Blind says that the node picks GPUs for pods that say so, and does not know those that the engine picked for others.
	Blind bool   `json:"blind,omitempty"`
	HBD   string `json:"hbd,omitempty"`
	// Devices, when given, has an entry for each GPU.
	Devices []device `json:"devices,omitempty"`
	// Sets names sets of GPUs, by the numbers of these.
	Sets map[string][]int `json:"sets,omitempty"`
}

// others is how much of other resources a node has, or a pod takes, by name.
type others map[string]int64

type taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect,omitempty"`
}

// device is the position of a GPU; what is not given does not exist.
type device struct {
	Island *int8 `json:"island,omitempty" min:"-1"`
	PCIe   *int8 `json:"pcie,omitempty" min:"-1"`
	NUMA   *int8 `json:"numa,omitempty" min:"-1"`
	NIC    *int8 `json:"nic,omitempty" min:"-1" max:"63"`
}

type queue struct {
	Name string `json:"name"`
	v1alpha1.QueueSpec
	GPUTime v1alpha1.QueueGPUTime `json:"gpuTime,omitzero"`
}

type job struct {
	Name     string   `json:"name"`
	Queue    string   `json:"queue,omitempty"`
	User     string   `json:"user,omitempty"`
	Kind     kind     `json:"kind,omitempty"`     // training
	Class    class    `json:"class,omitempty"`    // HP
	Priority int32    `json:"priority,omitempty"` // 0
	Gang     bool     `json:"gang,omitempty"`
	Locked   bool     `json:"locked,omitempty"`
	Mobility mobility `json:"mobility,omitempty"`    // stays
	Preempt  *bool    `json:"preemptible,omitempty"` // true
	Topology request  `json:"topology,omitempty"`
	placing
	// Checkpoint is the interval at which progress is saved, SaveWithin how long that takes where the job is asked to before it is
	// evicted, Estimate the expected run time.
	Checkpoint v1alpha1.Duration `json:"checkpoint,omitempty"`
	SaveWithin v1alpha1.Duration `json:"saveWithin,omitempty"`
	Estimate   v1alpha1.Duration `json:"estimate,omitempty"`
	// Combinations are the GPU models on which the tasks of a gang may be together, such as A100+L40S=2.3/1.9@3.5.
	Combinations []string `json:"combinations,omitempty"`
	// Suspend says what it takes to suspend the job, if it can be.
	Suspend suspension `json:"suspend,omitzero"`
	// RunningFor is how long the pods of Running have been running, by default a day or
	// longer. SubmittedAgo is by default the same, or 0 if no pod runs.
	SubmittedAgo *v1alpha1.Duration `json:"submittedAgo,omitempty"`
	RunningFor   *v1alpha1.Duration `json:"runningFor,omitempty"`
	// StaleFor is how long a gang has had fewer running pods than its minimum, StaleGrace how long it
	// may, if not as long as the policy says.
	StaleFor   v1alpha1.Duration `json:"staleFor,omitempty"`
	StaleGrace v1alpha1.Duration `json:"staleGrace,omitempty"`
	GPUTime    v1alpha1.GPUTime  `json:"gpuTime,omitzero"`
	Tasks      []task            `json:"tasks"`
}

type suspension struct {
	Pause      v1alpha1.Duration `json:"pause,omitempty"`
	Resume     v1alpha1.Duration `json:"resume,omitempty"`
	HostMemMiB int64             `json:"hostMemMiB" min:"1"`
}

type kind string

func (kind) Values() []string { return []string{"training", "inference", "batch", "dev"} }

// picks says who picks the GPUs of a pod, which matters on nodes that are blind.
type picks string

func (picks) Values() []string { return cluster.Pickers[:] }

type class string

func (class) Values() []string { return []string{"HP", "LP"} }

type mobility string

func (mobility) Values() []string { return core.Mobilities[:] }

type request struct {
	Required  string `json:"required,omitempty"`
	Preferred string `json:"preferred,omitempty"`
	// Closeness is the share of run time that each level between the pods counts as.
	Closeness float64 `json:"closeness,omitempty"`
}

type affinity struct {
	Level string `json:"level"`
	Label string `json:"label"`
	Anti  bool   `json:"anti,omitempty"`
}

// placing describes where a pod may be placed: the settings of a job also apply to each
// of its tasks.
type placing struct {
	// Labels are the pods' labels, for the affinity of other pods.
	Labels           []string          `json:"labels,omitempty"`
	Affinity         []affinity        `json:"affinity,omitempty"`
	Selector         map[string]string `json:"selector,omitempty"`
	MatchExpressions []expression      `json:"matchExpressions,omitempty"`
	Tolerations      []toleration      `json:"tolerations,omitempty"`
	// Prefers is what a pod prefers of nodes that are equally good: 50:disk=ssd or -10:near:leaf:web.
	Prefers []string `json:"prefers,omitempty"`
}

type expression struct {
	Key      string   `json:"key"`
	Operator operator `json:"operator"`
	Values   []string `json:"values,omitempty"`
}

type operator string

func (operator) Values() []string { return []string{"In", "NotIn", "Exists", "DoesNotExist"} }

// toleration lets a pod onto nodes with a taint. An empty key is every key,
// an empty value every value, an empty effect every effect.
type toleration struct {
	Key    string `json:"key,omitempty"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect,omitempty"`
}

type task struct {
	Name     string   `json:"name,omitempty"`
	Pods     *int     `json:"pods,omitempty" min:"0" max:"1000000"`    // 1
	MinPods  *int     `json:"minPods,omitempty" min:"1" max:"1000000"` // all
	GPUMilli int64    `json:"gpuMilli,omitempty" min:"0" max:"64000"`
	CPUMilli int64    `json:"cpuMilli,omitempty" min:"0" max:"1000000000"`
	MemMiB   int64    `json:"memMiB,omitempty" min:"0" max:"1000000000"`
	Others   others   `json:"others,omitempty"`
	Models   []string `json:"models,omitempty"` // any
	Picks    picks    `json:"picks,omitempty"`  // any
	// From says how many of the GPUs are of which sets of the node.
	From others `json:"from,omitempty"`
	placing
	// Running lists the pods that run; the others wait. Leaving lists pods beside those that are being deleted.
	Running []running `json:"running,omitempty"`
	Leaving []running `json:"leaving,omitempty"`
}

type running struct {
	Pod  string `json:"pod"`
	Node string `json:"node"`
	GPUs []int  `json:"gpus,omitempty"`
}
