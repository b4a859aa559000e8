package translate

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// Group names the job that a pod belongs to.
type Group struct {
	Namespace string
	Kind      GroupKind
	Name      string // any text: annotations name gangs
}

// GroupKind is what makes pods one job: one of the constants below or, from
// [OwnerKind] alone, the kind of the object that made them.
type GroupKind string

const (
	// ByPodGroup: they name the same PodGroup of Kubernetes.
	ByPodGroup GroupKind = "podgroup"
	// ByGang: a label or annotation names the same gang.
	ByGang GroupKind = "gang"
	// ByApplication: they are of one application of YuniKorn's.
	ByApplication GroupKind = "application"
	// ByItself: it is one pod.
	ByItself GroupKind = "pod"
	// Foreign: it is one pod of another scheduler.
	Foreign GroupKind = "foreign"
)

// reserved are the words that stand for one kind of owner only, whoever else calls
// a kind so: each with the API group of that kind, "-" where no kind may be called
// so. The kind of an owner is whatever the author of the pod writes.
var reserved = map[string]string{
	string(ByPodGroup): "-", string(ByGang): "-", string(ByApplication): "-", string(ByItself): "-", string(Foreign): "-",
	"job": "batch", "replicaset": "apps", "statefulset": "apps", "daemonset": "apps", "replicationcontroller": "",
}

// OwnerKind returns the kind of the groups of an owner's pods: in lower case and,
// where it could be taken for another, with its API group. It has no slash.
func OwnerKind(apiVersion, kind string) GroupKind {
	group, _, versioned := strings.Cut(apiVersion, "/")
	if !versioned {
		group = "" // of the core group there is only a version
	}
	word := strings.ToLower(kind)
	if own, ok := reserved[word]; ok && own != group {
		word += "." + cmp.Or(group, "core")
	}
	return GroupKind(url.PathEscape(word))
}

// Job returns the name by which the engine knows the group. No two groups have the
// same: neither a namespace nor a kind has a slash.
func (g Group) Job() string { return g.Namespace + "/" + g.String() }

// String is kind/name.
func (g Group) String() string { return string(g.Kind) + "/" + g.Name }

// OfDaemonSet reports whether the owner of a pod is a DaemonSet of Kubernetes, whose
// pods belong to their nodes. Other API groups may have kinds of the same name. The
// author of a pod writes its owner: this may spare the pod, and never cost another.
func OfDaemonSet(owner *metav1.OwnerReference) bool {
	return owner != nil && OwnerKind(owner.APIVersion, owner.Kind) == "daemonset"
}

// Membership describes how a pod belongs to its group.
type Membership struct {
	Group Group
	// Native is set if the group is a PodGroup of Kubernetes.
	Native bool
	// Objects are those that say what the pod does not, such as how many pods its gang has;
	// each is asked, and then its owners. What the first says counts before the others.
	Objects []ObjectRef
	// Min is the minimum number of pods of the gang as the pod gives it; 0 if it does not.
	Min int
	// Roles is the minimum of each role that the pod names: 0 if the role must have a
	// minimum, and other pods give it.
	Roles map[string]int
	// Role is the pod's own; Stage the part of its job with which it starts, if its owner starts its pods in stages.
	Role, Stage string
	// Patience is [Attributes.Patience].
	Patience core.Time
	// Kind is what jobs of the group do unless an annotation says otherwise.
	Kind core.Kind
}

// MainRole is the role of pods that say none; LWSLeader and LWSWorker are those of a LeaderWorkerSet's.
const (
	MainRole  = "main"
	LWSLeader = "leader"
	LWSWorker = "worker"
)

// ObjectRef names an object in the pod's namespace.
type ObjectRef struct {
	schema.GroupVersionKind
	Name string
}

// gangNames are the labels and annotations that name the gang of a pod. Where
// an object of that name says how large the gang is, GVK is its kind.
var gangNames = []struct {
	key string
	gvk schema.GroupVersionKind
}{
	{v1alpha1.GangLabel, schema.GroupVersionKind{}},
	{koordinatorGang, schema.GroupVersionKind{}},
	{"kueue.x-k8s.io/pod-group-name", schema.GroupVersionKind{}},
	{"pod-group.scheduling.sigs.k8s.io/name", schema.GroupVersionKind{}},
	{"scheduling.x-k8s.io/pod-group", schema.GroupVersionKind{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Kind: "PodGroup"}},
	{"pod-group.scheduling.sigs.k8s.io", schema.GroupVersionKind{Group: "scheduling.sigs.k8s.io", Version: "v1alpha1", Kind: "PodGroup"}},
	{"scheduling.volcano.sh/group-name", volcanoGroup},
	{"scheduling.k8s.io/group-name", volcanoGroup},
	{"pod-group-name", schema.GroupVersionKind{Group: "scheduling.run.ai", Version: "v2alpha2", Kind: "PodGroup"}},
}

var volcanoGroup = schema.GroupVersionKind{Group: "scheduling.volcano.sh", Version: "v1beta1", Kind: "PodGroup"}

// koordinatorGang names Koordinator's gang; koordinatorGangs lists, in JSON, gangs
// as namespace/name that start together.
const (
	koordinatorGang  = "gang.scheduling.koordinator.sh/name"
	koordinatorGangs = "gang.scheduling.koordinator.sh/groups"
)

// owners are the labels that controllers put on the pods they make, directly
// or through other controllers, and the object whose gang the pods are.
var owners = []struct {
	label string
	gvk   schema.GroupVersionKind
	kind  core.Kind
}{
	{"jobset.sigs.k8s.io/jobset-name", schema.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"}, core.Training},
	{"ray.io/cluster", schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: "RayCluster"}, core.Training},
}

// servers are the kinds of owner whose pods answer requests.
var servers = map[string]bool{"ReplicaSet": true, "StatefulSet": true, "Deployment": true, "LeaderWorkerSet": true, "CloneSet": true}

// String is the kind and the name.
func (o ObjectRef) String() string { return o.Kind + " " + o.Name }

// MembershipOf returns the job of a pod: its native PodGroup, else the gang that a label
// names, else its owner, else the pod itself. A pod that moves is a job of its own: its
// labels differ from those of its owner's other pods. A stage of an owner is a job.
func MembershipOf(p *v1.Pod, a *Attributes) Membership {
	m := memberOf(p, a)
	if m.Group.Kind != ByPodGroup && m.Group.Kind != ByGang && m.Group.Kind != ByApplication && m.Group.Kind != ByItself {
		m.In(a.Stage)
	}
	return m
}

// In makes the pod a member of a stage of its job; of the job as it is if stage is empty.
func (m *Membership) In(stage string) {
	if stage != "" {
		m.Group.Name, m.Stage = m.Group.Name+"/"+stage, stage
	}
}

func memberOf(p *v1.Pod, a *Attributes) Membership {
	m := Membership{Group: Group{Namespace: p.Namespace}, Min: a.MinMember, Roles: a.Roles, Role: cmp.Or(a.Task, MainRole)}
	if sparks(p) {
		m.Roles = nil
	}
	if g := p.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		m.Group.Kind, m.Group.Name, m.Native = ByPodGroup, *g.PodGroupName, true
		m.Kind = ownerKind(p)
		m.askOwner(p)
		return m
	}
	for _, g := range gangNames {
		if _, name, ok := lookup(p, []string{g.key}); ok && name != "" {
			m.Group.Kind, m.Group.Name = ByGang, name
			if g.gvk.Kind != "" {
				m.Objects = []ObjectRef{{g.gvk, name}}
			}
			if g.key == koordinatorGang {
				m.withGangs(p, a, name)
			}
			m.askOwner(p)
			return m
		}
	}
	if m.inApplication(p, a) {
		m.askOwner(p)
		return m
	}
	if name := p.Labels["leaderworkerset.sigs.k8s.io/name"]; name != "" {
		if m.Role = cmp.Or(a.Task, LWSWorker); a.Task == "" && p.Labels["leaderworkerset.sigs.k8s.io/worker-index"] == "0" {
			m.Role = LWSLeader
		}
		m.Objects = []ObjectRef{{schema.GroupVersionKind{Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: "LeaderWorkerSet"}, name}}
		m.Group.Kind, m.Group.Name, m.Kind = "leaderworkerset", name+"-"+p.Labels["leaderworkerset.sigs.k8s.io/group-index"], core.Inference
		if !m.sized() {
			m.Min = Number(p.Annotations["leaderworkerset.sigs.k8s.io/size"])
		}
		return m
	}
	if name := p.Labels["training.kubeflow.org/job-name"]; name != "" && p.Labels["training.kubeflow.org/operator-name"] == "mpi-operator" {
		gvk := schema.GroupVersionKind{Group: "kubeflow.org", Version: "v2beta1", Kind: "MPIJob"} // a Job makes its launcher
		m.Group.Kind, m.Group.Name, m.Kind, m.Objects = "mpijob", name, core.Training, []ObjectRef{{gvk, name}}
		return m
	}
	for _, o := range owners {
		if name := p.Labels[o.label]; name != "" {
			m.Group.Kind, m.Group.Name, m.Kind = OwnerKind(o.gvk.GroupVersion().String(), o.gvk.Kind), name, o.kind
			m.Objects = []ObjectRef{{o.gvk, name}}
			return m
		}
	}
	o := metav1.GetControllerOf(p)
	if o == nil || MoveOf(p).Active() {
		m.Group.Kind, m.Group.Name, m.Kind = ByItself, p.Name, ownerKind(p)
		return m
	}
	m.Group.Kind, m.Group.Name, m.Kind = OwnerKind(o.APIVersion, o.Kind), o.Name, ownerKind(p)
	m.askOwner(p)
	return m
}

// askOwner has the object be asked that made a pod: users of other schedulers write on it what its pods
// do not say.
func (m *Membership) askOwner(p *v1.Pod) {
	if o := ControllerOf(p); o != nil {
		m.Objects = append(m.Objects, ObjectRef{schema.FromAPIVersionAndKind(o.APIVersion, o.Kind), o.Name})
	}
}

// sized reports whether the pod says how large its gang is.
func (m *Membership) sized() bool { return m.Min > 0 || len(m.Roles) > 0 }

// Minimum is the minimum number of pods of the gang as the pod gives it; 0 if it does not.
func (m *Membership) Minimum() int { return max(m.Min, sum(m.Roles)) }

// withGangs makes one gang of those that Koordinator starts together: each is a
// role of it, with its own minimum. Gangs of other namespaces are other jobs.
func (m *Membership) withGangs(p *v1.Pod, a *Attributes, own string) {
	_, list, _ := lookup(p, only(koordinatorGangs))
	var gangs, names []string
	if json.Unmarshal([]byte(list), &gangs) != nil {
		return // Read has said so
	}
	for _, g := range gangs {
		namespace, name, ok := strings.Cut(g, "/")
		if !ok {
			namespace, name = p.Namespace, g
		}
		if namespace == p.Namespace {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) < 2 || !slices.Contains(names, own) {
		return
	}
	m.Group.Name, m.Role, m.Min = strings.Join(names, "+"), own, 0
	m.Roles = map[string]int{}
	for _, n := range names {
		m.Roles[n] = 0
	}
	m.Roles[own] = a.MinMember
}

// ownerKind is what pods of an owner do, as far as its kind tells.
func ownerKind(p *v1.Pod) core.Kind {
	o := ControllerOf(p)
	switch {
	case o == nil:
		return core.Training
	case servers[o.Kind]:
		return core.Inference
	case o.Kind == "Notebook":
		return core.Dev
	}
	return core.Training
}
