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
	"github.com/muster-sched/muster/kube/after"
	"github.com/muster-sched/muster/kube/slurm"
	"github.com/muster-sched/muster/kube/translate"
)

// Submit makes the objects of a submission. Those beside the Jobs belong to these and go with the last; where one of
// them cannot be made, the Jobs are deleted again.
func (c *Client) Submit(ctx context.Context, o *slurm.Objects) error {
	var owners []metav1.OwnerReference
	namespace := o.Jobs[0].Namespace
	err := func() error {
		for _, job := range o.Jobs {
			made, err := c.submitJob(ctx, job)
			if err != nil {
				return err
			}
			owner := metav1.NewControllerRef(made, batchv1.SchemeGroupVersion.WithKind("Job"))
			if len(o.Jobs) > 1 {
				owner.Controller, owner.BlockOwnerDeletion = nil, nil // only one could be
			}
			owners = append(owners, *owner)
		}
		if o.Secret != nil {
			o.Secret.OwnerReferences = owners
			if _, err := c.kube.CoreV1().Secrets(namespace).Create(ctx, o.Secret, metav1.CreateOptions{}); err != nil {
				return c.say("create Secrets in namespace "+namespace, err)
			}
		}
		if o.Service != nil {
			o.Service.OwnerReferences = owners
			if _, err := c.kube.CoreV1().Services(namespace).Create(ctx, o.Service, metav1.CreateOptions{}); err != nil {
				return c.say("create Services in namespace "+namespace, err)
			}
		}
		return nil
	}()
	if err == nil {
		return nil
	}
	for _, made := range owners {
		gone := c.kube.BatchV1().Jobs(namespace).Delete(context.WithoutCancel(ctx), made.Name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
		if gone != nil {
			return fmt.Errorf("Job %s was created and cannot run: %w; deleting it: %v", made.Name, err, gone)
		}
	}
	return err
}

// submitJob makes a Job.
func (c *Client) submitJob(ctx context.Context, job *batchv1.Job) (*batchv1.Job, error) {
	jobs := c.kube.BatchV1().Jobs(job.Namespace)
	made, err := jobs.Create(ctx, job, metav1.CreateOptions{})
	if apierrors.IsInvalid(err) && strings.Contains(err.Error(), "spec.scheduling:") {
		// A cluster without PodGroups of its own: the annotation makes the gang.
		job.Spec.Scheduling = nil
		made, err = jobs.Create(ctx, job, metav1.CreateOptions{})
	}
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, fmt.Errorf("namespace %s already has a Job %s: choose another --job-name, or delete the Job: kubectl -n %s delete job %s", job.Namespace, job.Name, job.Namespace, job.Name)
	case err != nil:
		return nil, c.say("create Jobs in namespace "+job.Namespace, err)
	}
	return made, nil
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

// SlurmJob returns the name of the Job, or of the array of gangs, that a name or a Slurm id means; ID_INDEX is one of an array. It
// must exist.
func (c *Client) SlurmJob(ctx context.Context, namespace, text string) (string, error) {
	jobs := c.kube.BatchV1().Jobs(namespace)
	id, index, element := strings.Cut(text, "_")
	if strings.Trim(id, "0123456789") == "" {
		l, err := jobs.List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.SlurmJobIDLabel + "=" + id})
		if err != nil {
			return "", c.say("list Jobs in namespace "+namespace, err)
		}
		for i := range l.Items {
			j := &l.Items[i]
			if j.Labels[v1alpha1.SlurmJobIDLabel] != id {
				continue
			}
			array := j.Labels[v1alpha1.SlurmArrayLabel]
			if array == "" && element {
				return "", fmt.Errorf("--dependency: the jobs of the array %s are pods of the Job %s: expected %s, for all of them", id, j.Name, id)
			}
			if array == "" {
				return j.Name, nil
			}
			all, err := after.Array(ctx, jobs, array)
			if err != nil {
				return "", c.say("list Jobs in namespace "+namespace, err)
			}
			// The id of the first is that of the array.
			switch first := !slices.ContainsFunc(all, func(j batchv1.Job) bool { return j.Labels[v1alpha1.SlurmJobIDLabel] < id }); {
			case first && element:
				text = array + "-" + index
			case first:
				return array, nil
			case !element:
				return j.Name, nil
			}
		}
	}
	_, err := jobs.Get(ctx, text, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		all, failed := after.Array(ctx, jobs, text)
		if err = failed; err == nil && len(all) == 0 {
			return "", fmt.Errorf("--dependency: namespace %s has no job %s", namespace, text)
		}
	}
	if err != nil {
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
