package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/slurm"
	"github.com/muster-sched/muster/kube/translate"
)

// Submit makes the objects of a submission. Those beside the Job belong to it and go with it; where one of
// them cannot be made, the Job is deleted again.
func (c *Client) Submit(ctx context.Context, o *slurm.Objects) error {
	job := o.Job
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
	if err != nil {
		return c.say("create Jobs in namespace "+job.Namespace, err)
	}
	owner := []metav1.OwnerReference{*metav1.NewControllerRef(made, batchv1.SchemeGroupVersion.WithKind("Job"))}
	what := ""
	if o.Secret != nil {
		o.Secret.OwnerReferences, what = owner, "Secrets"
		_, err = c.kube.CoreV1().Secrets(job.Namespace).Create(ctx, o.Secret, metav1.CreateOptions{})
	}
	if o.Service != nil && err == nil {
		o.Service.OwnerReferences, what = owner, "Services"
		_, err = c.kube.CoreV1().Services(job.Namespace).Create(ctx, o.Service, metav1.CreateOptions{})
	}
	if err == nil {
		return nil
	}
	err = c.say("create "+what+" in namespace "+job.Namespace, err)
	if gone := jobs.Delete(ctx, made.Name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); gone != nil {
		return fmt.Errorf("Job %s was created and cannot run: %w; deleting it: %v", job.Name, err, gone)
	}
	return err
}

// HasPriorityClass returns an error if there is no PriorityClass of a name: a Job that names it would never have pods.
// Where the user may not read PriorityClasses, it is taken to be there.
func (c *Client) HasPriorityClass(ctx context.Context, name string) error {
	l, err := c.kube.SchedulingV1().PriorityClasses().List(ctx, metav1.ListOptions{})
	if optional(err) {
		return nil
	}
	if err != nil {
		return c.say("list PriorityClasses", err)
	}
	have := map[string]bool{}
	for i := range l.Items {
		have[l.Items[i].Name] = true
	}
	if !have[name] {
		return fmt.Errorf("--qos: no PriorityClass %s exists: the cluster has %s", name, cmp.Or(strings.Join(sorted(have), ", "), "none"))
	}
	return nil
}

// SlurmJob returns the name of the Job that a name or a Slurm id means. It must exist.
func (c *Client) SlurmJob(ctx context.Context, namespace, text string) (string, error) {
	jobs := c.kube.BatchV1().Jobs(namespace)
	if strings.Trim(text, "0123456789") == "" {
		l, err := jobs.List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.SlurmJobIDLabel + "=" + text})
		if err != nil {
			return "", c.say("list Jobs in namespace "+namespace, err)
		}
		for i := range l.Items {
			if l.Items[i].Labels[v1alpha1.SlurmJobIDLabel] == text {
				return l.Items[i].Name, nil
			}
		}
	}
	if _, err := jobs.Get(ctx, text, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return "", fmt.Errorf("--dependency: namespace %s has no job %s", namespace, text)
	} else if err != nil {
		return "", c.say("get Jobs in namespace "+namespace, err)
	}
	return text, nil
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
