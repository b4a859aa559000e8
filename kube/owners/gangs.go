package owners

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/translate"
)

// object is an object with its spec.
type object struct {
	*unstructured.Unstructured
	spec map[string]any
}

// gangs says, for each kind of object that says how many of its pods start together, what it says.
var gangs = map[schema.GroupKind]func(o object, g *Gang) error{
	{Group: "scheduling.x-k8s.io", Kind: "PodGroup"}:             field("minMember"),
	{Group: "scheduling.sigs.k8s.io", Kind: "PodGroup"}:          field("minMember"),
	{Group: "scheduling.volcano.sh", Kind: "PodGroup"}:           volcanoPodGroup,
	{Group: "scheduling.run.ai", Kind: "PodGroup"}:               kaiPodGroup,
	{Group: "batch.volcano.sh", Kind: "Job"}:                     volcanoJob,
	{Group: "batch", Kind: "Job"}:                                job,
	{Group: "kubeflow.org", Kind: "PyTorchJob"}:                  replicas("pytorchReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "TFJob"}:                       replicas("tfReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "MPIJob"}:                      replicas("mpiReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "XGBoostJob"}:                  replicas("xgbReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "PaddleJob"}:                   replicas("paddleReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "JAXJob"}:                      replicas("jaxReplicaSpecs"),
	{Group: "jobset.x-k8s.io", Kind: "JobSet"}:                   jobSet,
	{Group: "ray.io", Kind: "RayCluster"}:                        rayCluster,
	{Group: "leaderworkerset.x-k8s.io", Kind: "LeaderWorkerSet"}: leaderWorkerSet,
}

func field(name string) func(object, *Gang) error {
	return func(o object, g *Gang) error {
		g.Min = count(o.spec, g.Min, name)
		return nil
	}
}

// kueueQueue and kueueMinimum are what users of Kueue write on a Job.
const (
	kueueQueue   = "kueue.x-k8s.io/queue-name"
	kueueMinimum = "kueue.x-k8s.io/job-min-parallelism"
)

// job is Kubernetes' own. Its pods start one by one, unless it names a queue as users of Kueue do, which admits
// jobs as a whole: then as many start together as it runs at a time, or as may be enough.
func job(o object, g *Gang) error {
	_, labelled := o.GetLabels()[kueueQueue]
	if _, noted := o.GetAnnotations()[kueueQueue]; !labelled && !noted || g.Min > 0 || len(g.Roles) > 0 {
		return nil
	}
	g.Min = count(o.spec, 1, "parallelism")
	if completions := count(o.spec, 0, "completions"); completions > 0 {
		g.Min = min(g.Min, max(completions-count(o.Object, 0, "status", "succeeded"), 1))
	}
	if v, ok := o.GetAnnotations()[kueueMinimum]; ok {
		enough := translate.Number(v)
		if enough < 1 {
			return fmt.Errorf("%s: %q: expected a number of pods, at least 1", kueueMinimum, v)
		}
		g.Min = min(g.Min, enough)
	}
	return nil
}

// volcanoPodGroup is Volcano's. The minimum of each task counts if the minimum of
// the whole is at least their sum, as in Volcano.
func volcanoPodGroup(o object, g *Gang) error {
	a := &g.Attributes
	g.Min = count(o.spec, g.Min, "minMember")
	a.Queue, a.PriorityClass = cmp.Or(a.Queue, text(o.spec, "queue")), cmp.Or(a.PriorityClass, text(o.spec, "priorityClassName"))
	tasks, _, _ := unstructured.NestedMap(o.spec, "minTaskMember")
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
	if list, _, _ := unstructured.NestedSlice(o.spec, "subGroupPolicy"); len(list) > 0 {
		return fmt.Errorf("subGroupPolicy is not supported: expected a PodGroup for each subgroup")
	}
	return volcanoTopology(o.spec, a)
}

// volcanoJob is Volcano's job, which says what its PodGroup does.
func volcanoJob(o object, g *Gang) error {
	a := &g.Attributes
	g.Min = count(o.spec, g.Min, "minAvailable")
	a.Queue, a.PriorityClass = cmp.Or(a.Queue, text(o.spec, "queue")), cmp.Or(a.PriorityClass, text(o.spec, "priorityClassName"))
	tasks, _, _ := unstructured.NestedSlice(o.spec, "tasks")
	for i, t := range tasks {
		if t, ok := t.(map[string]any); ok && t["partitionPolicy"] != nil {
			return fmt.Errorf("tasks[%d].partitionPolicy is not supported: expected a job for each partition", i)
		}
	}
	return volcanoTopology(o.spec, a)
}

// volcanoTopology reads the field networkTopology.
func volcanoTopology(spec map[string]any, a *translate.Attributes) error {
	topology, ok, _ := unstructured.NestedMap(spec, "networkTopology")
	if !ok {
		return nil
	}
	tier := text(topology, "highestTierName")
	if _, given := topology["highestTierAllowed"]; given && tier == "" {
		tier = translate.Tier(count(topology, 0, "highestTierAllowed"))
	}
	required, preferred, err := translate.VolcanoTopology(text(topology, "mode"), tier)
	if err != nil {
		return fmt.Errorf("networkTopology: %w", err)
	}
	a.Required, a.Preferred = cmp.Or(a.Required, required), cmp.Or(a.Preferred, preferred)
	return nil
}

// kaiPodGroup is KAI's. Its subgroups without parts of their own are roles.
func kaiPodGroup(o object, g *Gang) error {
	a := &g.Attributes
	g.Min = count(o.spec, g.Min, "minMember")
	a.Queue, a.PriorityClass = cmp.Or(a.Queue, text(o.spec, "queue")), cmp.Or(a.PriorityClass, text(o.spec, "priorityClassName"))
	a.Required = cmp.Or(a.Required, text(o.spec, "topologyConstraint", "requiredTopologyLevel"))
	a.Preferred = cmp.Or(a.Preferred, text(o.spec, "topologyConstraint", "preferredTopologyLevel"))
	switch v := text(o.spec, "preemptibility"); {
	case v == "semi-preemptible":
		return fmt.Errorf("preemptibility %s is not supported: expected preemptible or non-preemptible; pods beyond minMember are evicted first", v)
	case v != "" && !a.PreemptibleGiven:
		a.NotPreemptible, a.PreemptibleGiven = v == "non-preemptible", true
	}
	if v := text(o.spec, "stalenessGracePeriod"); v != "" && a.StaleGrace == 0 {
		a.StaleGrace, _ = v1alpha1.ParseStaleGrace(v) // what KAI does not understand, it ignores
	}
	list, _, _ := unstructured.NestedSlice(o.spec, "subGroups")
	roles, parents, in, levels := map[string]int{}, map[string]bool{}, map[string]string{}, map[string][]Level{}
	for i, s := range list {
		if s, ok := s.(map[string]any); ok {
			name := text(s, "name")
			in[name] = text(s, "parent")
			for preferred, field := range [2]string{"requiredTopologyLevel", "preferredTopologyLevel"} {
				if l := text(s, "topologyConstraint", field); l != "" {
					levels[name] = append(levels[name], Level{name, l, preferred == 1})
				}
			}
			if _, ok := s["minSubGroup"]; ok {
				return fmt.Errorf("subGroups[%d].minSubGroup is not supported: expected minMember of the subgroups below it", i)
			}
			parents[text(s, "parent")] = true
			if n := count(s, 0, "minMember"); n > 0 {
				roles[text(s, "name")] = n
			}
		}
	}
	if _, ok := o.spec["minSubGroup"]; ok {
		return fmt.Errorf("minSubGroup is not supported: expected minMember of the subgroups")
	}
	for name := range roles {
		if parents[name] {
			delete(roles, name)
		}
	}
	if len(roles) > 0 {
		g.Roles = roles
	}
	return g.nest(in, levels)
}

// nest notes in which subgroups the pods of each are: in its own and in those around it, as far as these require or prefer a
// level. in has the parent of each, empty for none.
func (g *Gang) nest(in map[string]string, levels map[string][]Level) error {
	for _, name := range slices.Sorted(maps.Keys(in)) {
		for at, depth := name, 0; at != ""; at, depth = in[at], depth+1 {
			if depth > len(in) {
				return fmt.Errorf("subGroups: %s is in itself", name)
			}
			if len(levels[at]) > 0 {
				if g.Levels == nil {
					g.Levels = map[string][]Level{}
				}
				g.Levels[name] = append(g.Levels[name], levels[at]...)
			}
		}
	}
	return nil
}

// replicas sums the replicas of all roles, unless the job says how many are
// enough.
func replicas(specs string) func(object, *Gang) error {
	return func(o object, g *Gang) error {
		a := &g.Attributes
		a.Queue = cmp.Or(a.Queue, text(o.spec, "runPolicy", "schedulingPolicy", "queue"))
		a.PriorityClass = cmp.Or(a.PriorityClass, text(o.spec, "runPolicy", "schedulingPolicy", "priorityClass"))
		if n := count(o.spec, g.Min, "runPolicy", "schedulingPolicy", "minAvailable"); n > 0 {
			g.Min = n
			return nil
		}
		roles, _, _ := unstructured.NestedMap(o.spec, specs)
		sum := 0
		for _, name := range slices.Sorted(maps.Keys(roles)) {
			r := roles[name]
			if role, ok := r.(map[string]any); ok {
				n := count(role, 1, "replicas")
				if name == "Worker" {
					n = count(o.spec, n, "elasticPolicy", "minReplicas")
				}
				sum += n
				g.Stages = append([]Stage{{Name: strings.ToLower(name), Roles: []string{strings.ToLower(name)}, Min: n}}, g.Stages...)
			}
		}
		// The launcher of MPI is made with the workers, or when they are ready.
		if g.Min = sum; text(o.spec, "launcherCreationPolicy") != "WaitForWorkersReady" {
			g.Stages = nil
		}
		return nil
	}
}

// jobSet sums the pods of all replicated jobs that start together: all of them, unless the JobSet makes some when
// others are ready or complete. Those that wait for the same others are made together.
func jobSet(o object, g *Gang) error {
	if g.Min > 0 {
		return nil
	}
	inOrder := text(o.spec, "startupPolicy", "startupPolicyOrder") == "InOrder"
	jobs, _, _ := unstructured.NestedSlice(o.spec, "replicatedJobs")
	after := map[string]int{} // what jobs wait for: their stage
	for i, j := range jobs {
		job, ok := j.(map[string]any)
		if !ok {
			continue
		}
		name, waits := text(job, "name"), strings.Join(dependencies(job), ",")
		if inOrder {
			waits = strconv.Itoa(i)
		}
		n := podsOf(job)
		g.Min += n
		if at, ok := after[waits]; ok {
			s := &g.Stages[at]
			s.Name, s.Roles, s.Min = s.Name+"+"+name, append(s.Roles, name), s.Min+n
			continue
		}
		after[waits] = len(g.Stages)
		g.Stages = append(g.Stages, Stage{Name: name, Roles: []string{name}, Min: n})
	}
	if len(g.Stages) < 2 {
		g.Stages = nil
	}
	return nil
}

// dependencies are the replicated jobs for which one waits, and until when, sorted.
func dependencies(job map[string]any) []string {
	var out []string
	list, _, _ := unstructured.NestedSlice(job, "dependsOn")
	for _, d := range list {
		if d, ok := d.(map[string]any); ok {
			out = append(out, text(d, "name")+" "+text(d, "status"))
		}
	}
	slices.Sort(out)
	return out
}

// leaderWorkerSet is one group of a LeaderWorkerSet. Its workers are made with the leader, or when that is ready.
func leaderWorkerSet(o object, g *Gang) error {
	if g.Min > 0 {
		return nil
	}
	g.Min = max(count(o.spec, 1, "leaderWorkerTemplate", "size"), 1)
	if text(o.spec, "startupPolicy") == "LeaderReady" && g.Min > 1 {
		g.Stages = []Stage{{translate.LWSLeader, []string{translate.LWSLeader}, 1}, {translate.LWSWorker, []string{translate.LWSWorker}, g.Min - 1}}
	}
	return nil
}

// podsOf is how many pods a replicated job of a JobSet runs at a time.
func podsOf(job map[string]any) int {
	pods := count(job, 1, "template", "spec", "parallelism")
	if most := count(job, 0, "template", "spec", "completions"); most > 0 {
		pods = min(pods, most)
	}
	return min(count(job, 1, "replicas")*pods, maxCount)
}

// rayHead is the role of the head of a cluster of Ray.
const rayHead = "headgroup"

// rayCluster is the head and the minimum number of workers of every group.
func rayCluster(o object, g *Gang) error {
	if g.Min > 0 || g.Roles != nil {
		return nil
	}
	groups, _, _ := unstructured.NestedSlice(o.spec, "workerGroupSpecs")
	g.Roles = map[string]int{rayHead: 1}
	g.Min = 1
	for _, w := range groups {
		if group, ok := w.(map[string]any); ok {
			n := min(count(group, count(group, 1, "replicas"), "minReplicas")*count(group, 1, "numOfHosts"), maxCount)
			g.Min += n
			if name := text(group, "groupName"); name != "" && n > 0 {
				g.Roles[name] = n
			}
		}
	}
	return nil
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
