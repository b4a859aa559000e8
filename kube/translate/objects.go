package translate

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// From the engine's jobs and nodes to objects: what a workload or a scenario
// looks like to Kubernetes. Reading the objects gives the job again.

// Objects returns a job as its owner would write it: pods, in the order of
// their numbers, and for a gang a PodGroup that holds them together (nil
// otherwise). Namespace and priority class are the caller's.
func Objects(j *core.Job) (*schedulingv1beta1.PodGroup, []*v1.Pod) {
	name := ObjectName(j.Name)
	labels := map[string]string{v1alpha1.QueueLabel: j.Queue}
	notes := map[string]string{v1alpha1.KindAnnotation: j.Kind.String()}
	note := func(key, value string, given bool) {
		if given {
			notes[key] = value
		}
	}
	note(v1alpha1.UserAnnotation, j.User, j.User != "")
	note(v1alpha1.ClassAnnotation, j.Class.String(), j.Class != core.HP)
	note(v1alpha1.PreemptibleAnnotation, "false", j.NotPreemptible)
	note(v1alpha1.LockedAnnotation, "true", j.Locked)
	note(v1alpha1.WalltimeAnnotation, v1alpha1.Duration(j.Estimate).String(), j.Estimate > 0)
	note(v1alpha1.MinRuntimeAnnotation, v1alpha1.Duration(j.MinRuntime).String(), j.MinRuntime > 0)
	note(v1alpha1.StaleGraceAnnotation, v1alpha1.FormatStaleGrace(j.StaleGrace), j.StaleGrace != 0)
	note(v1alpha1.CheckpointIntervalAnnotation, v1alpha1.Duration(j.Checkpoint).String(), j.Checkpoint > 0)
	note(v1alpha1.RequiredTopologyAnnotation, j.Topology.Required, j.Topology.Required != "")
	note(v1alpha1.PreferredTopologyAnnotation, j.Topology.Preferred, j.Topology.Preferred != "")
	note(v1alpha1.ClosenessAnnotation, core.FormatCloseness(j.Topology.Closeness), j.Topology.Closeness != 0)
	note(v1alpha1.GPUCombinationsAnnotation, core.FormatCombinations(j.Combinations, j.Tasks), len(j.Combinations) > 0)

	var group *schedulingv1beta1.PodGroup
	if j.Gang && (j.Pods() > 1 || j.Topology.Required != "") { // others may join one
		minimum, roles := 0, []string{}
		for i := range j.Tasks {
			t := &j.Tasks[i]
			n := t.MinPods
			if n == 0 {
				n = t.Pods
			}
			if n != core.Elastic {
				minimum += n
				roles = append(roles, fmt.Sprintf("%s=%d", t.Name, n))
			}
		}
		note(v1alpha1.MinMemberAnnotation, strings.Join(roles, ","), len(j.Tasks) > 1)
		group = &schedulingv1beta1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: notes},
			Spec: schedulingv1beta1.PodGroupSpec{SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{
				Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(minimum)},
			}},
		}
	}
	var pods []*v1.Pod
	for i := range j.Tasks {
		t := &j.Tasks[i]
		template := podOf(&t.Request)
		for k, v := range notes {
			template.Annotations[k] = v
		}
		template.Labels = labels
		if t.Name != "" {
			template.Annotations[v1alpha1.TaskAnnotation] = t.Name
		}
		for range t.Pods {
			p := template.DeepCopy()
			if j.NeverPreempts {
				never := v1.PreemptNever
				p.Spec.PreemptionPolicy = &never
			}
			p.Name = name
			if j.Pods() > 1 {
				p.Name = fmt.Sprintf("%s-%d", name, len(pods))
			}
			if group != nil {
				p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group.Name}
			} else if j.Pods() > 1 {
				p.Labels = map[string]string{v1alpha1.QueueLabel: j.Queue, v1alpha1.GangLabel: name}
				p.Annotations[v1alpha1.MinMemberAnnotation] = "1"
			}
			pods = append(pods, p)
		}
	}
	return group, pods
}

// podOf is a pod with a request, without a name.
func podOf(r *core.Request) *v1.Pod {
	list := v1.ResourceList{}
	if r.CPUMilli > 0 {
		list[v1.ResourceCPU] = *resource.NewMilliQuantity(r.CPUMilli, resource.DecimalSI)
	}
	if r.MemMiB > 0 {
		list[v1.ResourceMemory] = *resource.NewQuantity(r.MemMiB<<20, resource.BinarySI)
	}
	for _, a := range r.Others {
		list[v1.ResourceName(a.Name)] = *resource.NewQuantity(a.Value, resource.DecimalSI)
	}
	notes := map[string]string{}
	switch {
	case r.GPU >= core.WholeGPU && r.Picker == core.EnginePicks:
		notes[v1alpha1.GPUCountAnnotation] = fmt.Sprint(int64(r.GPU / core.WholeGPU))
	case r.GPU >= core.WholeGPU:
		list[v1alpha1.GPUResource] = *resource.NewQuantity(int64(r.GPU/core.WholeGPU), resource.DecimalSI)
	case r.GPU > 0:
		notes[v1alpha1.GPUFractionAnnotation] = r.GPU.GPUs()
	}
	if len(r.Models) > 0 {
		notes[v1alpha1.GPUModelsAnnotation] = strings.Join(r.Accepted(), "|")
	}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: notes},
		Spec: v1.PodSpec{
			SchedulerName: v1alpha1.SchedulerName, RestartPolicy: v1.RestartPolicyNever,
			Containers: []v1.Container{{
				Name: "main", Image: "registry.k8s.io/pause:3.10", Resources: v1.ResourceRequirements{Requests: list, Limits: limits(list)},
			}},
		},
	}
	for _, t := range r.Tolerations {
		p.Spec.Tolerations = append(p.Spec.Tolerations, toleration(t))
	}
	var terms []v1.NodeSelectorTerm
	if must := expressions(r.Selector); r.AnyOf == nil && must != nil {
		terms = []v1.NodeSelectorTerm{{MatchExpressions: must}}
	} else {
		for _, either := range r.AnyOf {
			terms = append(terms, v1.NodeSelectorTerm{MatchExpressions: append(expressions(either), must...)})
		}
	}
	if terms != nil {
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
	return p
}

// expressions writes requirements as Kubernetes has them.
func expressions(list []core.Requirement) []v1.NodeSelectorRequirement {
	var out []v1.NodeSelectorRequirement
	for _, r := range list {
		out = append(out, v1.NodeSelectorRequirement{Key: r.Key, Operator: nodeOperators[r.Op], Values: r.Values})
	}
	return out
}

// limits has the extended resources and huge pages, of which requests and limits
// must agree.
func limits(list v1.ResourceList) v1.ResourceList {
	out := maps.Clone(list)
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
		delete(out, name)
	}
	return out
}

// nodeOperators is operators the other way round.
var nodeOperators = func() map[cluster.Op]v1.NodeSelectorOperator {
	out := map[cluster.Op]v1.NodeSelectorOperator{}
	for theirs, ours := range operators {
		out[ours] = theirs
	}
	return out
}()

// toleration writes one as Kubernetes has it.
func toleration(t core.Toleration) v1.Toleration {
	out := v1.Toleration{Key: t.Key, Effect: v1.TaintEffect(t.Effect), Operator: v1.TolerationOpExists}
	if value, ok := strings.CutPrefix(t.Value, "="); ok || t.Value != "" {
		out.Operator, out.Value = v1.TolerationOpEqual, value
	}
	return out
}

// SimulatedDuration and SimulatedOutcome tell the simulated nodes how long a
// pod runs, and that it fails then.
const (
	SimulatedDuration = "devcluster.muster.sh/duration"
	SimulatedOutcome  = "devcluster.muster.sh/outcome"
)

// RunFor has simulated nodes end a pod so long after it was started.
func RunFor(p *v1.Pod, d time.Duration) { p.Annotations[SimulatedDuration] = d.String() }

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// ObjectName makes the name of an object of a job's: lower case, of letters,
// digits and hyphens, at most 52 characters.
func ObjectName(job string) string {
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(job), "-"), "-")
	return strings.Trim(name[:min(len(name), 52)], "-")
}

// QueueObject writes a queue as an object.
func QueueObject(q *core.Queue) *v1alpha1.Queue {
	weight := q.Weight
	o := &v1alpha1.Queue{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.Version, Kind: "Queue"},
		ObjectMeta: metav1.ObjectMeta{Name: ObjectName(q.Name)},
		Spec:       v1alpha1.QueueSpec{Weight: &weight, Priority: q.Priority, Mode: v1alpha1.QueueMode(v1alpha1.QueueMode("").Values()[q.Mode])},
	}
	o.Spec.MaxRunningJobs, o.Spec.MaxRunningGPUs = int32(q.MaxRunning.Jobs), v1alpha1.GPUs(q.MaxRunning.GPU)
	o.Spec.MaxRunningJobsPerUser, o.Spec.MaxRunningGPUsPerUser = int32(q.MaxRunningPerUser.Jobs), v1alpha1.GPUs(q.MaxRunningPerUser.GPU)
	if q.FairUsers {
		o.Spec.FairBetween = "Users"
	}
	if q.Parent != "" {
		o.Spec.Parent = ObjectName(q.Parent)
	}
	bound := func(m core.Milli) *v1alpha1.GPUs {
		if m == core.Unlimited || o.Spec.Mode == "Isolated" {
			return nil
		}
		g := v1alpha1.GPUs(m)
		return &g
	}
	for _, e := range q.Quota {
		o.Spec.Quota = append(o.Spec.Quota, v1alpha1.Quota{
			Model: e.Model, Nominal: v1alpha1.GPUsOwned(e.Nominal), BorrowingLimit: bound(e.BorrowingLimit), LendingLimit: bound(e.LendingLimit),
		})
	}
	for _, e := range q.Resources {
		name := v1alpha1.ResourceName(e.Resource)
		bound := func(m core.Milli) *v1alpha1.Quantity {
			if m == core.Unlimited || o.Spec.Mode == "Isolated" {
				return nil
			}
			q := v1alpha1.QuantityOf(name, m)
			return &q
		}
		o.Spec.Resources = append(o.Spec.Resources, v1alpha1.ResourceQuota{
			Name: name, Nominal: v1alpha1.QuantityOf(name, e.Nominal), BorrowingLimit: bound(e.BorrowingLimit), LendingLimit: bound(e.LendingLimit),
		})
	}
	return o
}

// Identity keeps what names an object: its name, namespace, UID and resource version.
func Identity(o *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion}
}
