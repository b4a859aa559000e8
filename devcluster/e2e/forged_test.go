package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// A tenant who writes on its Job that Muster suspended it fifty years ago has its pods wait no longer than
// the Job is there, whichever group they are: who came before it starts before it. What it writes on a pod
// counts for nothing. The next scheduler resumes the Job, also where the mark is its only label.
func TestForgedSuspension(t *testing.T) {
	for what, spec := range map[string]func(*batchv1.JobSpec){
		"a Job": func(*batchv1.JobSpec) {},
		"a gang": func(s *batchv1.JobSpec) {
			s.CompletionMode = ptr.To(batchv1.IndexedCompletion)
			gang(s)
		},
	} {
		t.Run(what, func(t *testing.T) { forgedSuspension(t, spec) })
	}
}

func forgedSuspension(t *testing.T, option func(*batchv1.JobSpec)) {
	c := begin(t)
	c.node("n")
	tenant := c.tenant()
	first := c.schedule()
	c.create(pod("runs", asks(8)))
	c.bound("runs")
	c.create(pod("honest", asks(8)))
	c.waits("honest", "Resources")
	c.laterThan(c.get("honest"))

	forged := "1970-01-01T00:00:00Z batch.kubernetes.io/job-name=forged"
	mark := map[string]string{v1alpha1.SuspendedLabel: "true"}
	spec := endless(2, podTemplate(asks(4)))
	option(spec)
	c.until("the tenant makes a Job", func() error {
		_, err := tenant.BatchV1().Jobs(c.namespace).Create(ctx(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "forged"}, Spec: *spec}, metav1.CreateOptions{})
		return err
	})
	var pods []v1.Pod
	wait := func() {
		c.Helper()
		c.until("the pods of the Job wait", func() error {
			pods = c.podsWith(batchv1.JobNameLabel, "forged")
			if len(pods) != 2 || condition(&pods[0], v1alpha1.WaitingCondition) == nil || condition(&pods[1], v1alpha1.WaitingCondition) == nil {
				return fmt.Errorf("there are %d", len(pods))
			}
			return nil
		})
	}
	wait()
	group := "job/forged"
	if g := pods[0].Spec.SchedulingGroup; g != nil {
		group = "podgroup/" + *g.PodGroupName
	}
	c.createAs(tenant, pod("forger", asks(8), label(v1alpha1.SuspendedLabel, "true"), note(v1alpha1.SuspendedAnnotation, "pod/forger "+forged)))
	c.waits("forger", "Resources")

	// The labels that the Job has from its template go: the mark is the only one.
	job, err := tenant.BatchV1().Jobs(c.namespace).Get(ctx(), "forged", metav1.GetOptions{})
	c.must(err)
	first.stop()
	job.Labels, job.Spec.Suspend = mark, new(true)
	metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.SuspendedAnnotation, group+" "+forged)
	c.until("the tenant forges the mark", func() error {
		_, err := tenant.BatchV1().Jobs(c.namespace).Update(ctx(), job, metav1.UpdateOptions{})
		if err != nil {
			job.ResourceVersion = "" // its status has changed
		}
		return err
	})
	c.until("its pods are gone", func() error {
		if n := len(c.podsWith(batchv1.JobNameLabel, "forged")); n > 0 {
			return fmt.Errorf("%d are there", n)
		}
		return nil
	})

	s := c.schedule()
	c.until("the Job is resumed", func() error {
		j, err := tenant.BatchV1().Jobs(c.namespace).Get(ctx(), "forged", metav1.GetOptions{})
		if err == nil && (ptr.Deref(j.Spec.Suspend, false) || j.Annotations[v1alpha1.SuspendedAnnotation] != "" || j.Labels[v1alpha1.SuspendedLabel] == "true") {
			err = fmt.Errorf("it is suspended: %v, %v", j.Annotations, j.Labels)
		}
		return err
	})
	wait()
	if strings.Contains(s.log.String(), "cannot resume an owner") {
		t.Error("the scheduler could not resume the Job at once")
	}
	c.delete("runs")
	c.bound("honest")
	c.waits("forger", "Resources")
	for i := range pods {
		c.unbound(pods[i].Name)
	}
}

// laterThan waits until what is made has a later time of creation than a pod: the API has whole seconds.
func (c *cluster) laterThan(p *v1.Pod) {
	c.Helper()
	c.until("a second has passed", func() error {
		now, err := admin.CoreV1().Pods(c.namespace).Create(ctx(), pod("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && !p.CreationTimestamp.Before(&now.CreationTimestamp) {
			err = errors.New("it has not")
		}
		return err
	})
}

// By the chart's policy no tenant says that Muster suspended its Job. Whoever may write the Job may take the
// mark away, so that it stays suspended, and write all else.
func TestTenantMarksNoOwner(t *testing.T) {
	c := begin(t)
	c.node("n")
	tenant := c.tenant()
	c.holdTenants(tenant)
	jobs := tenant.BatchV1().Jobs(c.namespace)
	job := func(name string, labels, annotations map[string]string) error {
		spec := endless(1, podTemplate())
		spec.Suspend = new(true)
		_, err := jobs.Create(ctx(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}, Spec: *spec}, metav1.CreateOptions{})
		return err
	}
	patch := func(metadata string) error {
		_, err := jobs.Patch(ctx(), "mine", types.MergePatchType, fmt.Appendf(nil, `{"metadata": %s}`, metadata), metav1.PatchOptions{})
		return err
	}
	c.must(job("mine", map[string]string{"app": "x"}, nil))
	label, annotation := map[string]string{v1alpha1.SuspendedLabel: "true"}, map[string]string{v1alpha1.SuspendedAnnotation: "job/x"}
	refused := func(what string, err error) {
		t.Helper()
		c.refused(what, err, "only Muster says that it suspended")
	}
	refused("a Job with the label", job("a", label, nil))
	refused("a Job with the annotation", job("b", nil, annotation))
	refused("the label", patch(`{"labels": {"muster.sh/suspended": "true"}}`))
	refused("the annotation", patch(`{"annotations": {"muster.sh/suspended": "job/mine 1970-01-01T00:00:00Z a=b"}}`))

	_, err := admin.BatchV1().Jobs(c.namespace).Patch(ctx(), "mine", types.MergePatchType,
		[]byte(`{"metadata": {"labels": {"muster.sh/suspended": "true"}, "annotations": {"muster.sh/suspended": "job/mine 2026-01-01T00:00:00Z a=b"}}}`), metav1.PatchOptions{})
	c.must(err)
	refused("another label", patch(`{"labels": {"muster.sh/suspended": "t"}}`))
	refused("another annotation", patch(`{"annotations": {"muster.sh/suspended": "job/mine 1970-01-01T00:00:00Z a=b"}}`))
	c.must(patch(`{"labels": {"app": "y"}, "annotations": {"example.com/note": "x"}}`))
	c.must(patch(`{"labels": {"muster.sh/suspended": null}, "annotations": {"muster.sh/suspended": null}}`))
}
