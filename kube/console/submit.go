package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// Submission is a job to create: pods that start together, or an array of them. Numbers
// are 0, and texts empty, if they were not given.
type Submission struct {
	// Name is the Job's; one is made up from the command when it is empty.
	Name, Namespace, Queue string
	Image                  string
	Command                []string
	// Script is run in place of Command, which then has its name and arguments.
	Script string
	// Nodes and Tasks: a task is a pod, and a node's tasks share what is asked
	// for a node. When only one of them is given, each task has a node's share.
	Nodes, Tasks int
	// GPUs are those of the whole job; at most one of the three is given.
	GPUs, GPUsPerNode, GPUsPerTask int
	// Models are the GPU models accepted, separated by |.
	Models string
	// Fraction is the part of a GPU that each task gets, such as 0.25.
	Fraction string
	// CPUs are those of a task, Memory is that of a node.
	CPUs     int
	Memory   resource.Quantity
	Walltime core.Time
	// Array makes the job an array of this number of independent jobs, numbered from 0,
	// of which at most AtOnce run at a time.
	Array, AtOnce  int
	PriorityClass  string
	Kind, Class    string
	Required       string // topology level
	Preferred      string
	WorkDir        string
	Env            []string // NAME=VALUE
	Annotations    []string // of the pods, KEY=VALUE
	Hold           bool     // made suspended
	NotRequeued    bool     // an eviction fails it
	NotPreemptible bool
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

// longestScript is how long a script may be: it is an argument of the shell.
const longestScript = 100 << 10

// Objects returns the Job of a submission and, when its pods must find each
// other, the Service that gives them names. An error is a [UsageError].
func (s *Submission) Objects() (*batchv1.Job, *v1.Service, error) {
	tasks, each, err := s.shape()
	if err != nil {
		return nil, nil, err
	}
	name := s.Name
	if name == "" {
		name = s.madeUpName()
	}
	if bad := validation.IsDNS1035Label(name); len(bad) > 0 || len(name) > 52 {
		return nil, nil, &UsageError{"job-name", fmt.Sprintf("expected at most 52 lower-case letters, digits and dashes, a letter first; found %q", name)}
	}
	labels := map[string]string{"app.kubernetes.io/managed-by": "muster-submit"}
	if s.Queue != "" {
		labels[v1alpha1.QueueLabel] = s.Queue
	}
	annotations, err := s.annotations(tasks)
	if err != nil {
		return nil, nil, err
	}
	container, err := s.container(name, tasks, each)
	if err != nil {
		return nil, nil, err
	}
	pods := v1.PodSpec{
		SchedulerName: v1alpha1.SchedulerName, RestartPolicy: v1.RestartPolicyNever, PriorityClassName: s.PriorityClass,
		Containers: []v1.Container{container},
	}
	if s.Walltime > 0 {
		pods.ActiveDeadlineSeconds = ptr(max(1, int64(s.Walltime/core.Second)))
	}
	job := &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace, Labels: labels},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr(int32(0)), CompletionMode: ptr(batchv1.IndexedCompletion), Parallelism: ptr(int32(tasks)), Completions: ptr(int32(tasks)),
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(labels), Annotations: annotations}, Spec: pods},
		},
	}
	if err := new(translate.Attributes).Read(&job.Spec.Template); err != nil {
		return nil, nil, &UsageError{"", err.Error()}
	}
	if s.Hold {
		job.Spec.Suspend = ptr(true)
	}
	if s.Array > 0 {
		job.Spec.Completions, job.Spec.Parallelism = ptr(int32(s.Array)), ptr(int32(cmp.Or(s.AtOnce, s.Array)))
		job.Spec.BackoffLimit, job.Spec.BackoffLimitPerIndex = nil, ptr(int32(0)) // one that fails does not end the others
	}
	if !s.NotRequeued {
		// What was evicted is made again, and does not count as failed.
		job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:          batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
		}}}
	}
	if tasks == 1 {
		return job, nil, nil
	}
	job.Spec.Template.Spec.Subdomain = name
	job.Spec.Scheduling = &batchv1.JobSchedulingConfiguration{
		SchedulingPolicy: &schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy{
			Gang: &schedulingv1alpha3.WorkloadPodGroupGangSchedulingPolicy{MinCount: ptr(int32(tasks))},
		},
	}
	return job, &v1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace, Labels: maps.Clone(labels)},
		Spec: v1.ServiceSpec{
			ClusterIP: v1.ClusterIPNone, PublishNotReadyAddresses: true, Selector: map[string]string{batchv1.JobNameLabel: name},
		},
	}, nil
}

func ptr[T any](v T) *T { return &v }

// portion is what each pod gets.
type portion struct {
	gpus   int
	memory *resource.Quantity
}

// shape says how many pods there are, and what each gets.
func (s *Submission) shape() (tasks int, each portion, err error) {
	nodes := cmp.Or(s.Nodes, s.Tasks, 1)
	tasks = cmp.Or(s.Tasks, s.Nodes, 1)
	given := 0
	for _, n := range []int{s.GPUs, s.GPUsPerNode, s.GPUsPerTask} {
		given += min(n, 1)
	}
	perNode := tasks / nodes
	switch {
	case tasks%nodes != 0:
		return 0, each, &UsageError{"ntasks", fmt.Sprintf("expected a multiple of --nodes, %d; found %d", nodes, tasks)}
	case given > 1:
		return 0, each, &UsageError{"gpus", "expected one of --gpus (of the job), --gpus-per-node, --gres and --gpus-per-task; found several"}
	case s.Fraction != "" && given > 0:
		return 0, each, &UsageError{"gpu-fraction", "expected a fraction of a GPU or whole GPUs; found both"}
	case s.GPUs%tasks != 0:
		return 0, each, &UsageError{"gpus", fmt.Sprintf("expected a multiple of the number of tasks, %d, for the whole job (--gpus-per-node is per node); found %d", tasks, s.GPUs)}
	case s.GPUsPerNode%perNode != 0:
		return 0, each, &UsageError{"gpus-per-node", fmt.Sprintf("expected a multiple of the number of tasks per node, %d; found %d", perNode, s.GPUsPerNode)}
	case s.Array > 0 && tasks > 1:
		return 0, each, &UsageError{"array", "expected a job with one task: arrays of gangs are not supported; submit each gang as a job of its own"}
	}
	if !s.Memory.IsZero() {
		each.memory = resource.NewQuantity(s.Memory.Value()/int64(perNode), resource.BinarySI)
	}
	each.gpus = cmp.Or(s.GPUsPerTask, s.GPUs/tasks, s.GPUsPerNode/perNode)
	return tasks, each, nil
}

// madeUpName makes a name from that of the command.
func (s *Submission) madeUpName() string {
	base := "job"
	if len(s.Command) > 0 {
		base = strings.TrimSuffix(path.Base(s.Command[0]), path.Ext(s.Command[0]))
	}
	base = strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(base)), "-")
	if base == "" || base[0] < 'a' {
		base = strings.TrimSuffix("job-"+base, "-")
	}
	return strings.TrimRight(base[:min(len(base), 40)], "-") + "-" + rand.String(5)
}

// annotations are what the scheduler is told of the pods.
func (s *Submission) annotations(tasks int) (map[string]string, error) {
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
	if tasks > 1 {
		a[v1alpha1.MinMemberAnnotation] = strconv.Itoa(tasks)
	}
	if s.NotPreemptible {
		a[v1alpha1.PreemptibleAnnotation] = "false"
	}
	if len(a) == 0 {
		return nil, nil
	}
	return a, nil
}

// container is what runs in each pod.
func (s *Submission) container(name string, tasks int, each portion) (v1.Container, error) {
	c := v1.Container{Name: "main", Image: s.Image, WorkingDir: s.WorkDir}
	switch {
	case s.Image == "":
		return c, &UsageError{"image", "expected a container image; found nothing"}
	case s.Script != "" && len(s.Script) > longestScript:
		return c, &UsageError{"", fmt.Sprintf("expected a script of at most %d KiB, or a script in the image; found %d KiB", longestScript>>10, len(s.Script)>>10)}
	case s.Script != "":
		// Through the shell that the script names, as its text: it is not in the
		// image.
		shell, err := shellOf(s.Script)
		if err != nil {
			return c, err
		}
		c.Command = slices.Concat(shell, []string{"-c", s.Script}, s.Command)
	default:
		c.Command = slices.Clone(s.Command)
	}
	for i, word := range c.Command {
		if strings.Contains(word, "$$") || strings.Contains(word, "$(") {
			c.Command[i] = strings.ReplaceAll(word, "$", "$$") // Kubernetes would expand it
		}
	}
	if each.gpus > 0 {
		c.Resources.Limits = v1.ResourceList{v1alpha1.GPUResource: *resource.NewQuantity(int64(each.gpus), resource.DecimalSI)}
	}
	if s.CPUs > 0 || each.memory != nil {
		c.Resources.Requests = v1.ResourceList{}
	}
	if s.CPUs > 0 {
		c.Resources.Requests[v1.ResourceCPU] = *resource.NewQuantity(int64(s.CPUs), resource.DecimalSI)
	}
	if each.memory != nil {
		c.Resources.Requests[v1.ResourceMemory] = *each.memory
	}
	index := &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + batchv1.JobCompletionIndexAnnotation + "']"}}
	c.Env = []v1.EnvVar{{Name: "SLURM_JOB_NAME", Value: name}, {Name: "SLURM_NTASKS", Value: strconv.Itoa(tasks)}}
	switch {
	case s.Array > 0:
		c.Env = append(c.Env, v1.EnvVar{Name: "SLURM_ARRAY_TASK_COUNT", Value: strconv.Itoa(s.Array)}, v1.EnvVar{Name: "SLURM_ARRAY_TASK_ID", ValueFrom: index})
	default:
		c.Env = append(c.Env, v1.EnvVar{Name: "SLURM_PROCID", ValueFrom: index})
	}
	if tasks > 1 {
		c.Env = append(c.Env, v1.EnvVar{Name: "MASTER_ADDR", Value: name + "-0." + name})
	}
	for _, e := range s.Env {
		k, v, ok := strings.Cut(e, "=")
		if !ok || k == "" {
			return c, &UsageError{"env", fmt.Sprintf("expected NAME=VALUE; found %q", e)}
		}
		c.Env = append(c.Env, v1.EnvVar{Name: k, Value: v})
	}
	return c, nil
}

// shells run the text that follows -c.
var shells = regexp.MustCompile(`^(ba|da|z|k|)sh$|^python[0-9.]*$`)

// shellOf is what the first line of a script names: a shell, or Python, and its
// options.
func shellOf(script string) ([]string, error) {
	line, _, _ := strings.Cut(script, "\n")
	named, ok := strings.CutPrefix(line, "#!")
	if !ok {
		return []string{"/bin/sh"}, nil
	}
	words := strings.Fields(named)
	if len(words) > 1 && path.Base(words[0]) == "env" {
		words = words[1:]
	}
	if len(words) == 0 || !shells.MatchString(path.Base(words[0])) {
		return nil, &UsageError{"", fmt.Sprintf("expected a shell or Python script; found %q: write -- before a command of the image", line)}
	}
	return words, nil
}

// Submit makes the objects of a submission. The Service belongs to the Job and
// goes with it.
func (c *Client) Submit(ctx context.Context, job *batchv1.Job, service *v1.Service) error {
	jobs := c.kube.BatchV1().Jobs(job.Namespace)
	made, err := jobs.Create(ctx, job, metav1.CreateOptions{})
	if apierrors.IsInvalid(err) && strings.Contains(err.Error(), "spec.scheduling:") {
		// A cluster without PodGroups of its own: the annotation makes the gang.
		job.Spec.Scheduling = nil
		made, err = jobs.Create(ctx, job, metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("namespace %s already has a Job %s: choose another --job-name, or delete the Job: kubectl -n %s delete job %s", job.Namespace, job.Name, job.Namespace, job.Name)
	}
	if err != nil || service == nil {
		return c.say("create Jobs in namespace "+job.Namespace, err)
	}
	service.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(made, batchv1.SchemeGroupVersion.WithKind("Job"))}
	_, err = c.kube.CoreV1().Services(job.Namespace).Create(ctx, service, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("Job %s was created, but its pods cannot find each other: %w", job.Name, c.say("create Services in namespace "+job.Namespace, err))
	}
	return nil
}

// Models finds the GPU models of the cluster that a text such as "h100|A100"
// means: those so called, in any case, or called so with more after a dash, as
// H100-80GB-HBM3 is. Where the user may not list nodes, it is taken at its word.
func (c *Client) Models(ctx context.Context, text string) (string, error) {
	have := map[string]bool{}
	err := pages(ctx, metav1.ListOptions{}, c.kube.CoreV1().Nodes().List, func() { clear(have) }, func(l *v1.NodeList) {
		for i := range l.Items {
			if n, _, err := translate.Node(&l.Items[i]); err == nil && n.Model != "" {
				have[n.Model] = true
			}
		}
	})
	if optional(err) {
		return text, nil
	}
	if err != nil {
		return "", c.say("list nodes", err)
	}
	var out []string
	for word := range strings.SplitSeq(text, "|") {
		found := slices.DeleteFunc(sorted(have), func(m string) bool {
			m, word := strings.ToLower(m), strings.ToLower(word)
			return m != word && !strings.HasPrefix(m, word+"-")
		})
		if len(found) == 0 {
			return "", fmt.Errorf("no node has GPUs of model %q: the cluster has %s", word, cmp.Or(strings.Join(sorted(have), ", "), "no GPUs"))
		}
		out = append(out, found...)
	}
	return strings.Join(out, "|"), nil
}
