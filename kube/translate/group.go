package translate

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// Group names the job that a pod belongs to.
type Group struct {
	// Kind is in lower case: podgroup, job, replicaset, pod…
	Namespace, Kind, Name string
}

// Job returns the name by which the engine knows the group.
func (g Group) Job() string { return g.Namespace + "/" + g.Kind + "/" + g.Name }

// Membership says how a pod belongs to its group.
type Membership struct {
	Group Group
	// Native says that the group is a PodGroup of Kubernetes' own.
	Native bool
	// Object is what says how many pods the gang has, when the pods do not;
	// Size reads it.
	Object *ObjectRef
	// Min is the gang's least pods as far as the pod says it; 0 when it does not.
	Min int
	// Kind is what jobs of the group do unless an annotation says otherwise.
	Kind core.Kind
}

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
	{"gang.scheduling.koordinator.sh/name", schema.GroupVersionKind{}},
	{"kueue.x-k8s.io/pod-group-name", schema.GroupVersionKind{}},
	{"pod-group.scheduling.sigs.k8s.io/name", schema.GroupVersionKind{}},
	{"scheduling.x-k8s.io/pod-group", schema.GroupVersionKind{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Kind: "PodGroup"}},
	{"scheduling.k8s.io/group-name", schema.GroupVersionKind{Group: "scheduling.volcano.sh", Version: "v1beta1", Kind: "PodGroup"}},
	{"pod-group-name", schema.GroupVersionKind{Group: "scheduling.run.ai", Version: "v2alpha2", Kind: "PodGroup"}},
}

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

// MembershipOf says which job a pod belongs to: its native PodGroup, else the
// gang that a label names, else the owner that made it, else itself. A pod that
// moves is on its own: its labels are not those of its owner's others.
func MembershipOf(p *v1.Pod, a *Attributes) Membership {
	m := Membership{Group: Group{Namespace: p.Namespace}, Min: a.MinMember}
	if g := p.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		m.Group.Kind, m.Group.Name, m.Native = "podgroup", *g.PodGroupName, true
		m.Kind = ownerKind(p)
		return m
	}
	for _, g := range gangNames {
		if _, name, ok := lookup(p, []string{g.key}); ok && name != "" {
			m.Group.Kind, m.Group.Name = "gang", name
			if g.gvk.Kind != "" && m.Min == 0 {
				m.Object = &ObjectRef{g.gvk, name}
			}
			return m
		}
	}
	if name := p.Labels["leaderworkerset.sigs.k8s.io/name"]; name != "" {
		m.Group.Kind, m.Group.Name, m.Kind = "leaderworkerset", name+"-"+p.Labels["leaderworkerset.sigs.k8s.io/group-index"], core.Inference
		if m.Min == 0 {
			m.Min = number(p.Annotations["leaderworkerset.sigs.k8s.io/size"])
		}
		return m
	}
	for _, o := range owners {
		if name := p.Labels[o.label]; name != "" {
			m.Group.Kind, m.Group.Name, m.Kind = strings.ToLower(o.gvk.Kind), name, o.kind
			if m.Min == 0 {
				m.Object = &ObjectRef{o.gvk, name}
			}
			return m
		}
	}
	o := metav1.GetControllerOf(p)
	if o == nil || MoveOf(p).Active() {
		m.Group.Kind, m.Group.Name, m.Kind = "pod", p.Name, ownerKind(p)
		return m
	}
	m.Group.Kind, m.Group.Name, m.Kind = strings.ToLower(o.Kind), o.Name, ownerKind(p)
	if gvk := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind); m.Min == 0 && sized(gvk) {
		m.Object = &ObjectRef{gvk, o.Name}
	}
	return m
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
