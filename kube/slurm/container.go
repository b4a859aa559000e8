package slurm

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// container is what runs in each pod.
func (s *Submission) container(n one, each shape) (v1.Container, error) {
	c := v1.Container{Name: "main", Image: s.Image, WorkingDir: s.WorkDir}
	switch {
	case s.Image == "":
		return c, &UsageError{"image", "expected a container image; found nothing"}
	case len(s.Script) > longestScript:
		return c, &UsageError{"", fmt.Sprintf("expected a script of at most %d KiB, or a script in the image; found %d KiB", longestScript>>10, len(s.Script)>>10)}
	case s.Script != "":
		c.Command = slices.Concat([]string{"/bin/sh", mountPath + "/start"}, interpreter(s.Script), []string{path.Join(mountPath, "job", s.file())}, s.Args)
	case s.started(each.pods):
		c.Command = slices.Concat([]string{"/bin/sh", mountPath + "/start"}, s.Command)
	default:
		c.Command = slices.Clone(s.Command)
	}
	if s.started(each.pods) {
		c.VolumeMounts = []v1.VolumeMount{{Name: "muster", MountPath: mountPath, ReadOnly: true}}
	}
	for i, word := range c.Command {
		if strings.Contains(word, "$$") || strings.Contains(word, "$(") {
			c.Command[i] = strings.ReplaceAll(word, "$", "$$") // Kubernetes would expand it
		}
	}
	if each.gpus > 0 {
		c.Resources.Limits = v1.ResourceList{v1alpha1.GPUResource: *resource.NewQuantity(int64(each.gpus), resource.DecimalSI)}
	}
	if each.cpus > 0 || each.memory != nil {
		c.Resources.Requests = v1.ResourceList{}
	}
	if each.cpus > 0 {
		c.Resources.Requests[v1.ResourceCPU] = *resource.NewQuantity(int64(each.cpus), resource.DecimalSI)
	}
	if each.memory != nil {
		c.Resources.Requests[v1.ResourceMemory] = *each.memory
	}
	c.Env = s.environment(n, each)
	for _, e := range s.Env {
		k, v, ok := strings.Cut(e, "=")
		if !ok || k == "" {
			return c, &UsageError{"env", fmt.Sprintf("expected NAME=VALUE; found %q", e)}
		}
		c.Env = append(c.Env, v1.EnvVar{Name: k, Value: strings.ReplaceAll(v, "$(", "$$(")})
	}
	return c, nil
}

// environment are the variables that Slurm sets. What start finds out in the pod is not among them.
func (s *Submission) environment(n one, each shape) []v1.EnvVar {
	var env []v1.EnvVar
	set := func(name, value string) {
		if value != "" && value != "0" {
			env = append(env, v1.EnvVar{Name: name, Value: value})
		}
	}
	fixed := func(name string, value int) { set(name, strconv.Itoa(value)) }
	tasks := each.pods * each.tasks
	set("SLURM_JOB_NAME", n.called)
	fixed("SLURM_JOB_ID", n.id)
	set("SLURM_JOB_PARTITION", s.Queue)
	fixed("SLURM_NTASKS", tasks)
	fixed("SLURM_NPROCS", tasks)
	fixed("SLURM_NNODES", each.pods)
	fixed("SLURM_JOB_NUM_NODES", each.pods)
	perNode := strconv.Itoa(each.tasks)
	if each.pods > 1 {
		perNode += fmt.Sprintf("(x%d)", each.pods)
	}
	set("SLURM_TASKS_PER_NODE", perNode)
	fixed("SLURM_NTASKS_PER_NODE", each.tasks)
	if each.gpus > 0 {
		fixed("SLURM_GPUS_ON_NODE", each.gpus)
		fixed("SLURM_GPUS_PER_NODE", each.gpus)
		fixed("SLURM_GPUS", each.gpus*each.pods)
		devices := make([]string, each.gpus)
		for i := range devices {
			devices[i] = strconv.Itoa(i)
		}
		set("SLURM_JOB_GPUS", strings.Join(devices, ","))
	}
	fixed("SLURM_GPUS_PER_TASK", s.GPUsPerTask)
	fixed("SLURM_CPUS_PER_TASK", s.CPUs)
	fixed("SLURM_CPUS_ON_NODE", each.cpus)
	if each.memory != nil {
		set("SLURM_MEM_PER_NODE", strconv.FormatInt(each.memory.Value()>>20, 10))
	}
	env = append(env, s.arrayEnvironment(n, each)...)
	switch {
	case len(s.Array.Indices) > 0 && n.array == 0:
		env = append(env, v1.EnvVar{Name: "SLURM_NODEID", Value: "0"}, v1.EnvVar{Name: "SLURM_PROCID", Value: "0"}, v1.EnvVar{Name: "SLURM_LOCALID", Value: "0"})
	case s.Script != "":
		env = append(env, v1.EnvVar{Name: "SLURM_NODEID", ValueFrom: completionIndex})
	default:
		env = append(env, v1.EnvVar{Name: "SLURM_NODEID", ValueFrom: completionIndex}, v1.EnvVar{Name: "SLURM_PROCID", ValueFrom: completionIndex}, v1.EnvVar{Name: "SLURM_LOCALID", Value: "0"})
	}
	if each.pods > 1 {
		nodes := make([]string, each.pods)
		for i := range nodes {
			nodes[i] = fmt.Sprintf("%s-%d.%s", n.job, i, n.domain)
		}
		set("SLURM_JOB_NODELIST", strings.Join(nodes, ","))
		set("MASTER_ADDR", nodes[0])
		if s.Script != "" {
			set("MUSTER_BATCH_ADDRESS", fmt.Sprintf("%s:%d", nodes[0], port))
		}
	}
	if s.Script != "" {
		set("MUSTER_BATCH", "1")
		fixed("MUSTER_TASKS_PER_NODE", each.tasks)
		fixed("MUSTER_GPUS_PER_TASK", s.GPUsPerTask)
		fixed("MUSTER_TASKS_PER_GPU", s.TasksPerGPU)
	}
	if s.Signal.Name != "" {
		set("MUSTER_SIGNAL", fmt.Sprintf("%s%s@%d", map[bool]string{true: "B:"}[s.Signal.Batch], s.Signal.Name, s.Signal.Before/core.Second))
		set("MUSTER_TIME_LIMIT", strconv.FormatInt(int64(s.Walltime/core.Second), 10))
	}
	return env
}

// arrayEnvironment are the variables of arrays.
func (s *Submission) arrayEnvironment(n one, each shape) []v1.EnvVar {
	indices := s.Array.Indices
	if len(indices) == 0 {
		return nil
	}
	first, last := strconv.Itoa(indices[0]), strconv.Itoa(indices[len(indices)-1])
	env := []v1.EnvVar{
		{Name: "SLURM_ARRAY_JOB_ID", Value: strconv.Itoa(cmp.Or(n.array, n.id))}, {Name: "SLURM_ARRAY_TASK_COUNT", Value: strconv.Itoa(len(indices))},
		{Name: "SLURM_ARRAY_TASK_MIN", Value: first}, {Name: "SLURM_ARRAY_TASK_MAX", Value: last},
	}
	switch {
	case n.array > 0:
		return append(env, v1.EnvVar{Name: "SLURM_ARRAY_TASK_ID", Value: strconv.Itoa(n.element)})
	case s.started(each.pods):
		return append(env, v1.EnvVar{Name: "MUSTER_ARRAY", Value: s.Array.String()})
	}
	return append(env, v1.EnvVar{Name: "SLURM_ARRAY_TASK_ID", ValueFrom: completionIndex})
}

// completionIndex is the index of a pod in its Job.
var completionIndex = &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + batchv1.JobCompletionIndexAnnotation + "']"}}

// interpreter is what the first line of a script names, and its options: a shell where it names nothing.
func interpreter(script string) []string {
	line, _, _ := strings.Cut(script, "\n")
	named, ok := strings.CutPrefix(line, "#!")
	words := strings.Fields(named)
	if !ok || len(words) == 0 {
		return []string{"/bin/sh"}
	}
	if len(words) > 1 && path.Base(words[0]) == "env" {
		words = words[1:]
		if words[0] == "-S" {
			words = words[1:]
		}
	}
	if len(words) == 0 {
		return []string{"/bin/sh"}
	}
	return words
}

// isShell reports whether a script is one of a shell, of which commands can be read.
func isShell(script string) bool {
	return slices.Contains([]string{"sh", "bash", "dash", "zsh", "ksh"}, path.Base(cmp.Or(interpreter(script)[0], "sh")))
}
