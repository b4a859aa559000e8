// Package slurm makes Jobs of Kubernetes from what users of sbatch write, with the meaning it has there: a pod is what
// Slurm calls a node, a script runs in the first one, and srun starts the tasks, which are processes of the pods.
package slurm

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/after"
	"github.com/muster-sched/muster/kube/translate"
)

// Submission is a job to create: pods that start together, or an array of them. Numbers
// are 0, and texts empty, if they were not given.
type Submission struct {
	// Name is what the user calls the job; one is made up from the command when it is empty.
	Name, Namespace, Queue string
	Image                  string
	// Command runs in each task, which is a pod by itself.
	Command []string
	// Script runs in place of Command, in the first of the job's nodes, which are its pods. File is what it is called and
	// Args are its arguments.
	Script, File string
	Args         []string
	// Nodes and Tasks are those of the job.
	Nodes, Tasks, TasksPerNode int
	// GPUs are those of the whole job.
	GPUs, GPUsPerNode, GPUsPerTask, TasksPerGPU int
	// Models are the GPU models accepted, separated by |.
	Models string
	// Fraction is the part of a GPU that each pod gets, such as 0.25.
	Fraction string
	// CPUs are those of a task, Memory is that of a node.
	CPUs, CPUsPerGPU             int
	Memory, MemPerCPU, MemPerGPU resource.Quantity
	Walltime                     core.Time
	// Array makes the job an array of independent jobs.
	Array         Array
	Signal        Signal
	Dependency    after.Dependency
	PriorityClass string
	Kind, Class   string
	Required      string // topology level
	Preferred     string
	// NodeList are the nodes to run on, all of them, and Exclude those not to run on.
	NodeList, Exclude []string
	WorkDir           string
	Env               []string // NAME=VALUE
	Annotations       []string // of the pods, KEY=VALUE
	Comment           string
	Hold              bool // made suspended
	NotRequeued       bool // an eviction fails it
	NotPreemptible    bool
}

// Objects are what a submission makes: a Job, or of an array of gangs one for each index, a Service where their pods must
// find each other, and a Secret with what scripts need; nil where they do not need them.
type Objects struct {
	Name    string // of the Job, or of the array
	Jobs    []*batchv1.Job
	Service *v1.Service
	Secret  *v1.Secret
}

// UsageError is an error in a submission: the problem and what was expected. Option is
// empty if the problem names the option.
type UsageError struct{ Option, Problem string }

func (e *UsageError) Error() string {
	if e.Option == "" {
		return e.Problem
	}
	return "--" + e.Option + ": " + e.Problem
}

// longestScript is how long a script may be, as part of a Secret.
const longestScript = 900 << 10

// longestName is how long the name of a Job may be: those of its pods and their host names are longer.
const longestName = 52

// Ids of jobs have eight digits, and are at most the highest that Slurm has.
const (
	leastJobID = 10_000_000
	mostJobID  = 0x03ff0000
)

// Objects returns the objects of a submission. An error is a [UsageError].
func (s *Submission) Objects() (*Objects, error) {
	shape, err := s.shape()
	if err != nil {
		return nil, err
	}
	id := leastJobID + rand.IntN(mostJobID-leastJobID-mostIndices)
	name, called, err := s.names(strconv.Itoa(id))
	if err != nil {
		return nil, err
	}
	out := &Objects{Name: name}
	if shape.pods == 1 || len(s.Array.Indices) == 0 {
		job, err := s.job(one{job: name, domain: name, called: called, id: id}, shape)
		if err != nil {
			return nil, err
		}
		out.Jobs = []*batchv1.Job{job}
	} else if out.Jobs, err = s.gangs(name, called, id, shape); err != nil {
		return nil, err
	}
	template := &out.Jobs[0].Spec.Template
	if s.started(shape.pods) {
		var files v1.Volume
		out.Secret, files = secret(name, s.Namespace, maps.Clone(template.Labels), s.Script, s.file())
		for _, j := range out.Jobs {
			j.Spec.Template.Spec.Volumes = []v1.Volume{files}
		}
	}
	if shape.pods > 1 {
		out.Service = s.service(out)
	}
	return out, nil
}

// one is a Job of a submission.
type one struct {
	job, domain string // its name, and the domain of its pods
	called      string // what the user calls it
	id          int
	// array is the id of the array of gangs of which it has the index element; 0 for other Jobs.
	array, element int
}

// job makes a Job.
func (s *Submission) job(n one, shape shape) (*batchv1.Job, error) {
	labels := map[string]string{"app.kubernetes.io/managed-by": "muster-submit"}
	if s.Queue != "" {
		labels[v1alpha1.QueueLabel] = s.Queue
	}
	if n.array > 0 {
		labels[v1alpha1.SlurmArrayLabel] = n.domain
	}
	annotations, err := s.annotations(shape.pods)
	if err != nil {
		return nil, err
	}
	container, err := s.container(n, shape)
	if err != nil {
		return nil, err
	}
	pods := v1.PodSpec{
		SchedulerName: v1alpha1.SchedulerName, RestartPolicy: v1.RestartPolicyNever, PriorityClassName: s.PriorityClass,
		Containers: []v1.Container{container}, Affinity: s.affinity(n.job, shape.pods),
	}
	if s.Walltime > 0 {
		pods.ActiveDeadlineSeconds = ptr(max(1, int64(s.Walltime/core.Second)))
	}
	job := &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Name: n.job, Namespace: s.Namespace, Labels: maps.Clone(labels), Annotations: s.own(n)},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr(int32(0)), CompletionMode: ptr(batchv1.IndexedCompletion), Parallelism: ptr(int32(shape.pods)), Completions: ptr(int32(shape.pods)),
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(labels), Annotations: annotations}, Spec: pods},
		},
	}
	job.Labels[v1alpha1.SlurmJobIDLabel] = strconv.Itoa(n.id)
	if err := new(translate.Attributes).Read(&job.Spec.Template); err != nil {
		return nil, &UsageError{"", err.Error()}
	}
	if s.Hold {
		job.Spec.Suspend = ptr(true)
	}
	if indices := len(s.Array.Indices); indices > 0 && n.array == 0 {
		job.Spec.Completions, job.Spec.Parallelism = ptr(int32(indices)), ptr(int32(cmp.Or(s.Array.AtOnce, indices)))
		job.Spec.BackoffLimit, job.Spec.BackoffLimitPerIndex = nil, ptr(int32(0)) // one that fails does not end the others
	}
	if !s.NotRequeued {
		// What was evicted is made again, and does not count as failed.
		job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:          batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
		}}}
	}
	if shape.pods > 1 {
		s.gang(job, n.domain)
	}
	return job, nil
}

// gang has the pods of a Job start together, and find each other.
func (s *Submission) gang(job *batchv1.Job, domain string) {
	job.Spec.Template.Spec.Subdomain = domain
	job.Spec.Scheduling = &batchv1.JobSchedulingConfiguration{
		SchedulingPolicy: &schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy{
			Gang: &schedulingv1alpha3.WorkloadPodGroupGangSchedulingPolicy{MinCount: job.Spec.Parallelism},
		},
	}
	if s.Script != "" {
		// The script runs in the first pod: the job ends with it.
		job.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: ptr("0")}}}
	}
}

// service is how the pods of gangs find each other by name.
func (s *Submission) service(o *Objects) *v1.Service {
	selector := map[string]string{batchv1.JobNameLabel: o.Name}
	if len(s.Array.Indices) > 0 {
		selector = map[string]string{v1alpha1.SlurmArrayLabel: o.Name}
	}
	out := &v1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, Namespace: s.Namespace, Labels: maps.Clone(o.Jobs[0].Spec.Template.Labels)},
		Spec:       v1.ServiceSpec{ClusterIP: v1.ClusterIPNone, PublishNotReadyAddresses: true, Selector: selector},
	}
	if s.Script != "" {
		out.Spec.Ports = []v1.ServicePort{{Name: "muster", Port: port, TargetPort: intstr.FromInt32(port)}}
	}
	return out
}

func ptr[T any](v T) *T { return &v }

// started reports whether pods, that many of a Job, run their command through the file start.
func (s *Submission) started(pods int) bool {
	return s.Script != "" || pods == 1 && len(s.Array.Indices) > 0 && !s.Array.fromZero()
}

func (s *Submission) file() string {
	if s.Script == "" {
		return ""
	}
	return fileName(s.File)
}

// names returns the name of the Job, and what the user calls it. Slurm lets names have other letters, and jobs of one
// user one name.
func (s *Submission) names(id string) (name, called string, err error) {
	called = s.Name
	if called == "" {
		name = s.madeUpName()
		called = name
	} else {
		name = lowerName(called)
	}
	if s.Dependency.Singleton() {
		name = name[:min(len(name), longestName-1-len(id))] + "-" + id
	}
	if bad := validation.IsDNS1035Label(name); len(bad) > 0 || len(name) > longestName || strings.ContainsFunc(called, func(r rune) bool { return r < ' ' || r == '/' }) {
		return "", "", &UsageError{"job-name", fmt.Sprintf("expected at most %d letters, digits, dashes and underscores, a letter first; found %q", longestName, called)}
	}
	return name, called, nil
}

// lowerName makes a name of Kubernetes of one of Slurm.
func lowerName(name string) string {
	name = strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name)), "-")
	if name != "" && name[0] < 'a' {
		name = "job-" + name
	}
	return name
}

// madeUpName makes a name from that of the command.
func (s *Submission) madeUpName() string {
	base := "job"
	if first := cmp.Or(s.File, strings.Join(s.Command[:min(1, len(s.Command))], "")); first != "" {
		base = lowerName(strings.TrimSuffix(path.Base(first), path.Ext(first)))
	}
	base = cmp.Or(base, "job")
	return strings.TrimRight(base[:min(len(base), 40)], "-") + "-" + utilrand.String(5)
}

// own are the annotations of a Job itself.
func (s *Submission) own(n one) map[string]string {
	a := map[string]string{}
	if s.Script != "" || s.Dependency.Singleton() {
		a[v1alpha1.SlurmJobNameAnnotation] = n.called
	}
	if n.array > 0 && s.Array.AtOnce > 0 {
		a[v1alpha1.SlurmArrayLimitAnnotation] = strconv.Itoa(s.Array.AtOnce)
	}
	if s.Comment != "" {
		a[v1alpha1.CommentAnnotation] = s.Comment
	}
	if len(s.Dependency.Terms) > 0 {
		a[v1alpha1.DependencyAnnotation] = s.Dependency.String()
	}
	if len(a) == 0 {
		return nil
	}
	return a
}

// annotations are what the scheduler is told of the pods.
func (s *Submission) annotations(pods int) (map[string]string, error) {
	a := map[string]string{}
	for _, text := range s.Annotations {
		k, v, ok := strings.Cut(text, "=")
		if !ok || len(validation.IsQualifiedName(k)) > 0 {
			return nil, &UsageError{"annotation", fmt.Sprintf("expected KEY=VALUE; found %q", text)}
		}
		a[k] = v
	}
	set := func(key, value string) {
		if value != "" {
			a[key] = value
		}
	}
	set(v1alpha1.GPUModelsAnnotation, s.Models)
	set(v1alpha1.GPUFractionAnnotation, s.Fraction)
	set(v1alpha1.KindAnnotation, s.Kind)
	set(v1alpha1.ClassAnnotation, s.Class)
	set(v1alpha1.RequiredTopologyAnnotation, s.Required)
	set(v1alpha1.PreferredTopologyAnnotation, s.Preferred)
	if s.Walltime > 0 {
		a[v1alpha1.WalltimeAnnotation] = v1alpha1.Duration(s.Walltime).String()
	}
	if pods > 1 {
		a[v1alpha1.MinMemberAnnotation] = strconv.Itoa(pods)
	}
	if s.NotPreemptible {
		a[v1alpha1.PreemptibleAnnotation] = "false"
	}
	if len(a) == 0 {
		return nil, nil
	}
	return a, nil
}

// affinity says on which nodes the pods may be. All of the nodes listed have a pod each.
func (s *Submission) affinity(name string, pods int) *v1.Affinity {
	if len(s.NodeList)+len(s.Exclude) == 0 {
		return nil
	}
	var without []v1.NodeSelectorRequirement
	for _, n := range s.Exclude {
		without = append(without, v1.NodeSelectorRequirement{Key: "metadata.name", Operator: v1.NodeSelectorOpNotIn, Values: []string{n}})
	}
	terms := []v1.NodeSelectorTerm{{MatchFields: without}}
	if len(s.NodeList) > 0 {
		terms = nil
	}
	for _, n := range s.NodeList {
		on := v1.NodeSelectorRequirement{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{n}}
		terms = append(terms, v1.NodeSelectorTerm{MatchFields: append([]v1.NodeSelectorRequirement{on}, without...)})
	}
	a := &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms}}}
	if len(s.NodeList) > 1 && pods > 1 {
		a.PodAntiAffinity = &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
			TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.JobNameLabel: name}},
		}}}
	}
	return a
}
