package e2e

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/kube/after"
	"github.com/muster-sched/muster/kube/console"
	"github.com/muster-sched/muster/kube/slurm"
	"github.com/muster-sched/muster/kube/translate"
)

// sbatch submits a script of some nodes, as muster submit does; it runs that long.
func (c *cluster) sbatch(name string, nodes int, d time.Duration, options ...func(*slurm.Submission)) string {
	c.Helper()
	s := &slurm.Submission{
		Name: name, Namespace: c.namespace, Image: "registry.k8s.io/pause:3.10", Nodes: nodes, GPUsPerNode: 2, Script: "#!/bin/sh\nsrun hostname\n", File: "run.sh",
		Annotations: []string{translate.SimulatedDuration + "=" + d.String()},
	}
	for _, o := range options {
		o(s)
	}
	o, err := s.Objects()
	c.must(err)
	people, err := console.New(address)
	c.must(err)
	c.must(people.Submit(ctx(), o))
	return o.Name
}

func dependsOn(text string) func(*slurm.Submission) {
	return func(s *slurm.Submission) { s.Dependency, _ = after.Parse(text) }
}

// podOf returns the first pod of a Job, once it is there.
func (c *cluster) podOf(job string) (p *v1.Pod) {
	c.Helper()
	c.until("Job "+job+" has a pod", func() error {
		list := c.podsWith(batchv1.JobNameLabel, job)
		for i := range list {
			if list[i].Annotations[batchv1.JobCompletionIndexAnnotation] == "0" {
				p = &list[i]
				return nil
			}
		}
		return fmt.Errorf("there are %d", len(list))
	})
	return p
}

// fails has the container of a pod end with an exit code.
func (c *cluster) fails(p *v1.Pod, code int32) {
	c.Helper()
	c.until(p.Name+" fails", func() error {
		p, err := admin.CoreV1().Pods(c.namespace).Get(ctx(), p.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		p.Status.Phase = v1.PodFailed
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", Image: "i", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: "Error", FinishedAt: metav1.Now()}}}}
		_, err = admin.CoreV1().Pods(c.namespace).UpdateStatus(ctx(), p, metav1.UpdateOptions{})
		return err
	})
}

// A script of several nodes is a gang, and its job is complete when the first pod ends: the others, which wait for
// what srun starts in them, do not count.
func TestSbatch(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	c.schedule()
	job := c.sbatch("My_Train", 2, time.Hour)
	first := c.podOf(job)
	c.bound(first.Name)
	if list := c.podsWith(batchv1.JobNameLabel, job); len(list) != 2 || first.Spec.Subdomain != job {
		t.Errorf("there are %d pods, in the domain %s", len(list), first.Spec.Subdomain)
	}
	c.until("the first pod ends", func() error {
		p, err := admin.CoreV1().Pods(c.namespace).Get(ctx(), first.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		p.Status.Phase = v1.PodSucceeded
		_, err = admin.CoreV1().Pods(c.namespace).UpdateStatus(ctx(), p, metav1.UpdateOptions{})
		return err
	})
	c.completes(job)
}

// Each index of an array of gangs starts as a whole, as many at a time as its limit says; another job starts after all of them.
func TestArrayOfGangs(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 4)
	c.schedule()
	array := c.sbatch("sweep", 2, 50*time.Millisecond, func(s *slurm.Submission) { s.Array, _ = slurm.ParseArray("1-4%1") })
	next := c.sbatch("next", 1, time.Hour, dependsOn("afterok:"+array))
	c.waits(c.podOf(array+"-3").Name, "Dependency", "array sweep: 1 of its jobs run at a time, and ")
	c.waits(c.podOf(next).Name, "Dependency", "afterok:sweep: job sweep has not ended")
	var last time.Time
	for i := 1; i <= 4; i++ {
		job := fmt.Sprint(array, "-", i)
		c.completes(job)
		list := c.podsWith(batchv1.JobNameLabel, job)
		if len(list) != 2 {
			t.Errorf("%s has %d pods", job, len(list))
		}
		for j := range list {
			p := &list[j]
			if at := p.Status.StartTime; p.Spec.Subdomain != array || at == nil || at.Time.Before(last) {
				t.Errorf("pod %s started at %v in the domain %s; the job before ended at %v", p.Name, at, p.Spec.Subdomain, last)
			}
		}
		o, err := admin.BatchV1().Jobs(c.namespace).Get(ctx(), job, metav1.GetOptions{})
		c.must(err)
		last = o.Status.CompletionTime.Time
	}
	c.bound(c.podOf(next).Name)
}

// Jobs start after those that they name, as their dependency says, and are told when they never can.
func TestDependency(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	c.schedule()
	fine, wrong := c.sbatch("fine", 1, time.Hour), c.sbatch("wrong", 1, time.Hour)
	next := c.sbatch("next", 2, time.Hour, dependsOn("afterok:fine,afterany:wrong"))
	other := c.sbatch("other", 1, time.Hour, dependsOn("afterok:wrong"))
	instead := c.sbatch("instead", 1, 50*time.Millisecond, dependsOn("afternotok:wrong"))
	first := c.sbatch("chain", 1, time.Hour, dependsOn("singleton"))
	second := c.sbatch("chain", 1, time.Hour, dependsOn("singleton"))
	c.bound(c.podOf(fine).Name, c.podOf(wrong).Name)
	c.waits(c.podOf(next).Name, "Dependency", "job fine has not ended")
	c.waits(c.podOf(other).Name, "Dependency", "afterok:wrong: job wrong has not ended")
	// Of two that were created in one second, one is first by name.
	if a, err := admin.BatchV1().Jobs(c.namespace).Get(ctx(), first, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	} else if b, err := admin.BatchV1().Jobs(c.namespace).Get(ctx(), second, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	} else if a.CreationTimestamp.Equal(&b.CreationTimestamp) && second < first {
		first, second = second, first
	}
	c.bound(c.podOf(first).Name)
	c.waits(c.podOf(second).Name, "Dependency", "singleton: job "+first+", which is called chain too, has not ended")
	c.fails(c.podOf(wrong), 3)
	c.completes(instead)
	c.waits(c.podOf(other).Name, "DependencyNeverSatisfied", "job wrong failed")
	c.must(admin.BatchV1().Jobs(c.namespace).Delete(ctx(), first, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}))
	c.bound(c.podOf(second).Name)
	c.waits(c.podOf(next).Name, "Dependency", "job fine has not ended")
	p := c.podOf(fine)
	c.until("fine ends", func() error {
		p, err := admin.CoreV1().Pods(c.namespace).Get(ctx(), p.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		p.Status.Phase = v1.PodSucceeded
		_, err = admin.CoreV1().Pods(c.namespace).UpdateStatus(ctx(), p, metav1.UpdateOptions{})
		return err
	})
	c.bound(c.podOf(next).Name)
	c.must(admin.BatchV1().Jobs(c.namespace).DeleteCollection(ctx(), metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}, metav1.ListOptions{}))
}

// A PodGroup of another scheduler whose minimum or queue is corrected while its gang waits is read again.
func TestPodGroupCorrected(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("team", 8)
	c.schedule()
	groups := anyKind.Resource(schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}).Namespace(c.namespace)
	_, err := groups.Create(ctx(), parse(t, `{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: g, labels: {kai.scheduler/queue: teem}}, spec: {minMember: 3}}`), metav1.CreateOptions{})
	c.must(err)
	c.create(pod("a", label("scheduling.x-k8s.io/pod-group", "g")), pod("b", label("scheduling.x-k8s.io/pod-group", "g")))
	c.waits("a", "Collecting", "2 of the 3 pods")
	change := func(patch string) {
		t.Helper()
		_, err := groups.Patch(ctx(), "g", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		c.must(err)
	}
	change(`{"spec": {"minMember": 2}}`)
	c.waits("a", "QueueNotFound", "teem")
	change(`{"metadata": {"labels": {"kai.scheduler/queue": "team"}}}`)
	c.bound("a", "b")
}

// A Job of a Kueue user runs to its end, though its last pods are fewer than start together.
func TestKueueJobCompletes(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("team", 8)
	c.schedule()
	_, err := admin.BatchV1().Jobs(c.namespace).Create(ctx(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "work", Labels: map[string]string{"kueue.x-k8s.io/queue-name": "team"}},
		Spec:       batchv1.JobSpec{Parallelism: new(int32(3)), Completions: new(int32(7)), Template: podTemplate(runsFor(50 * time.Millisecond))},
	}, metav1.CreateOptions{})
	c.must(err)
	c.completes("work")
}
