package translate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// Gang is what an object says of the gang of pods that it makes, or that names
// it.
type Gang struct {
	// Min is the minimum number of pods of the gang, 0 if the object does not give it;
	// Roles has the minimum of each role.
	Min   int
	Roles map[string]int
	// Since is when the owner of the object was made, where it has one that makes
	// another when it was stopped; zero where it has none.
	Since time.Time
	// Attributes is what its labels, annotations and spec say of the job.
	Attributes Attributes
}

// gangs says, for each kind of object that makes gangs of pods, what its spec
// says.
var gangs = map[schema.GroupKind]func(spec map[string]any, g *Gang){
	{Group: "scheduling.x-k8s.io", Kind: "PodGroup"}:    field("minMember"),
	{Group: "scheduling.sigs.k8s.io", Kind: "PodGroup"}: field("minMember"),
	{Group: "scheduling.volcano.sh", Kind: "PodGroup"}:  volcanoPodGroup,
	{Group: "scheduling.run.ai", Kind: "PodGroup"}:      kaiPodGroup,
	{Group: "batch.volcano.sh", Kind: "Job"}:            field("minAvailable"),
	{Group: "kubeflow.org", Kind: "PyTorchJob"}:         replicas("pytorchReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "TFJob"}:              replicas("tfReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "MPIJob"}:             replicas("mpiReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "XGBoostJob"}:         replicas("xgbReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "PaddleJob"}:          replicas("paddleReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "JAXJob"}:             replicas("jaxReplicaSpecs"),
	{Group: "jobset.x-k8s.io", Kind: "JobSet"}:          jobSet,
	{Group: "ray.io", Kind: "RayCluster"}:               rayCluster,
}

func sized(gvk schema.GroupVersionKind) bool { return gangs[gvk.GroupKind()] != nil }

// GangOf reads what an object says of its gang. An error names a label or
// annotation and what was expected.
func GangOf(o *unstructured.Unstructured) (*Gang, error) {
	g := &Gang{}
	err := g.Attributes.Read(o)
	g.Min, g.Roles = g.Attributes.MinMember, g.Attributes.Roles
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	if f := gangs[o.GroupVersionKind().GroupKind()]; f != nil && spec != nil {
		f(spec, g)
	}
	return g, err
}

// Notes are the annotations that say of the gang what its object says and pods with
// the attributes do not: with them on its pods, a scheduler that starts again
// knows of a gang that runs without asking.
func (g *Gang) Notes(a *Attributes) map[string]string {
	out := map[string]string{}
	note := func(key, value string, given bool) {
		if given {
			out[key] = value
		}
	}
	of := &g.Attributes
	note(v1alpha1.QueueLabel, of.Queue, a.Queue == "" && of.Queue != "")
	note(v1alpha1.PriorityClassAnnotation, of.PriorityClass, of.PriorityClass != "" && a.PriorityClass == "")
	note(v1alpha1.PreemptibleAnnotation, "false", of.NotPreemptible && !a.NotPreemptible)
	note(v1alpha1.LockedAnnotation, "true", of.Locked && !a.Locked)
	if of.KindGiven && !a.KindGiven {
		out[v1alpha1.KindAnnotation] = core.Kinds[of.Kind]
	}
	note(v1alpha1.ClassAnnotation, of.Class.String(), of.Class > a.Class)
	for key, t := range map[string][2]core.Time{
		v1alpha1.MinRuntimeAnnotation:         {of.MinRuntime, a.MinRuntime},
		v1alpha1.CheckpointIntervalAnnotation: {of.Checkpoint, a.Checkpoint},
		v1alpha1.WalltimeAnnotation:           {of.Estimate, a.Estimate},
	} {
		note(key, v1alpha1.Duration(t[0]).String(), t[0] != 0 && t[1] == 0)
	}
	note(v1alpha1.RequiredTopologyAnnotation, of.Required, of.Required != "" && a.Required == "")
	note(v1alpha1.PreferredTopologyAnnotation, of.Preferred, of.Preferred != "" && a.Preferred == "")
	note(v1alpha1.ClosenessAnnotation, core.FormatCloseness(of.Closeness), of.Closeness != 0 && a.Closeness == 0)
	note(v1alpha1.GPUModelsAnnotation, strings.Join(of.Models, "|"), of.Models != nil && a.Models == nil)
	note(v1alpha1.StaleGraceAnnotation, v1alpha1.FormatStaleGrace(of.StaleGrace), of.StaleGrace != 0 && a.StaleGrace == 0)
	note(v1alpha1.OnFailureAnnotation, of.OnFailure, of.OnFailure != "" && a.OnFailure == "")
	if a.MinMember == 0 && a.Roles == nil {
		note(v1alpha1.MinMemberAnnotation, strconv.Itoa(g.Min), g.Min > 0)
		var roles []string
		for _, r := range slices.Sorted(maps.Keys(g.Roles)) {
			roles = append(roles, fmt.Sprintf("%s=%d", r, g.Roles[r]))
		}
		note(v1alpha1.MinMemberAnnotation, strings.Join(roles, ","), roles != nil)
	}
	return out
}

func field(name string) func(map[string]any, *Gang) {
	return func(spec map[string]any, g *Gang) { g.Min = count(spec, g.Min, name) }
}

// volcanoPodGroup is Volcano's. The minimum of each task counts if the minimum of
// the whole is at least their sum, as in Volcano.
func volcanoPodGroup(spec map[string]any, g *Gang) {
	a := &g.Attributes
	g.Min = count(spec, g.Min, "minMember")
	a.Queue, a.PriorityClass = cmp.Or(a.Queue, text(spec, "queue")), cmp.Or(a.PriorityClass, text(spec, "priorityClassName"))
	tasks, _, _ := unstructured.NestedMap(spec, "minTaskMember")
	roles, sum := map[string]int{}, 0
	for name := range tasks {
		if n := count(tasks, 0, name); n > 0 {
			roles[name] = n
			sum += n
		}
	}
	if sum > 0 && sum <= g.Min {
		g.Roles = roles
	}
}

// kaiPodGroup is KAI's. Its subgroups without parts of their own are roles.
func kaiPodGroup(spec map[string]any, g *Gang) {
	a := &g.Attributes
	g.Min = count(spec, g.Min, "minMember")
	a.Queue, a.PriorityClass = cmp.Or(a.Queue, text(spec, "queue")), cmp.Or(a.PriorityClass, text(spec, "priorityClassName"))
	a.Required = cmp.Or(a.Required, text(spec, "topologyConstraint", "requiredTopologyLevel"))
	a.Preferred = cmp.Or(a.Preferred, text(spec, "topologyConstraint", "preferredTopologyLevel"))
	a.NotPreemptible = a.NotPreemptible || text(spec, "preemptibility") == "non-preemptible"
	if v := text(spec, "stalenessGracePeriod"); v != "" && a.StaleGrace == 0 {
		a.StaleGrace, _ = v1alpha1.ParseStaleGrace(v) // what KAI does not understand, it ignores
	}
	list, _, _ := unstructured.NestedSlice(spec, "subGroups")
	roles, parents := map[string]int{}, map[string]bool{}
	for _, s := range list {
		if s, ok := s.(map[string]any); ok {
			parents[text(s, "parent")] = true
			if n := count(s, 0, "minMember"); n > 0 {
				roles[text(s, "name")] = n
			}
		}
	}
	for name := range roles {
		if parents[name] {
			delete(roles, name)
		}
	}
	if len(roles) > 0 {
		g.Roles = roles
	}
}

// replicas sums the replicas of all roles, unless the job says how many are
// enough.
func replicas(specs string) func(map[string]any, *Gang) {
	return func(spec map[string]any, g *Gang) {
		g.Attributes.Queue = cmp.Or(g.Attributes.Queue, text(spec, "runPolicy", "schedulingPolicy", "queue"))
		if n := count(spec, g.Min, "runPolicy", "schedulingPolicy", "minAvailable"); n > 0 {
			g.Min = n
			return
		}
		roles, _, _ := unstructured.NestedMap(spec, specs)
		sum := 0
		for _, r := range roles {
			if role, ok := r.(map[string]any); ok {
				sum += count(role, 1, "replicas")
			}
		}
		g.Min = sum
	}
}

// jobSet sums the pods of all replicated jobs.
func jobSet(spec map[string]any, g *Gang) {
	if g.Min > 0 {
		return
	}
	jobs, _, _ := unstructured.NestedSlice(spec, "replicatedJobs")
	for _, j := range jobs {
		if job, ok := j.(map[string]any); ok {
			pods := count(job, 1, "template", "spec", "parallelism")
			if most := count(job, 0, "template", "spec", "completions"); most > 0 {
				pods = min(pods, most)
			}
			g.Min += min(count(job, 1, "replicas")*pods, maxCount)
		}
	}
}

// rayHead is the role of the head of a cluster of Ray.
const rayHead = "headgroup"

// rayCluster is the head and the minimum number of workers of every group.
func rayCluster(spec map[string]any, g *Gang) {
	if g.Min > 0 || g.Roles != nil {
		return
	}
	groups, _, _ := unstructured.NestedSlice(spec, "workerGroupSpecs")
	g.Roles = map[string]int{rayHead: 1}
	g.Min = 1
	for _, o := range groups {
		if group, ok := o.(map[string]any); ok {
			n := min(count(group, count(group, 1, "replicas"), "minReplicas")*count(group, 1, "numOfHosts"), maxCount)
			g.Min += n
			if name := text(group, "groupName"); name != "" && n > 0 {
				g.Roles[name] = n
			}
		}
	}
}

// text reads a string in an object; empty when it is not there.
func text(o map[string]any, path ...string) string {
	s, _, _ := unstructured.NestedString(o, path...)
	return s
}

// maxCount is the largest number of pods that is distinguished from larger numbers: no gang that
// asks for this many ever starts, and sums of such numbers do not overflow.
const maxCount = 1 << 30

// count reads a whole number in an object, 0..maxCount; missing is what it is when it
// is not there.
func count(o map[string]any, missing int, path ...string) int {
	v, ok, err := unstructured.NestedFieldNoCopy(o, path...)
	if err != nil || !ok {
		return missing
	}
	switch n := v.(type) {
	case int64:
		return int(min(max(n, 0), maxCount))
	case float64:
		if n >= 0 { // and not NaN
			return int(min(n, maxCount))
		}
		return 0
	}
	return missing
}

// number reads a whole number, at most maxCount; 0 when s is none.
func number(s string) int {
	n, _ := strconv.Atoi(s)
	return min(max(n, 0), maxCount)
}
