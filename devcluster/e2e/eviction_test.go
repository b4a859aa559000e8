package e2e

import (
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// A Job does not count the evictions of its pods, one by one, as failures, however
// it counts the others: it outlives many more than its backoffLimit, and completes.
func TestEvictionsAreNoFailures(t *testing.T) {
	for name, c := range map[string]struct {
		evictions int
		pod       func(*v1.Pod)
		spec      func(*batchv1.JobSpec)
		budget    bool
	}{
		"a plain Job": {20, nothing[v1.Pod], nothing[batchv1.JobSpec], false},
		"an indexed Job": {20, nothing[v1.Pod], func(s *batchv1.JobSpec) {
			s.CompletionMode = ptr.To(batchv1.IndexedCompletion)
		}, false},
		"an elastic gang": {20, note(v1alpha1.MinMemberAnnotation, "1"), nothing[batchv1.JobSpec], false},
		"with pods that take their time to end": {4, lingers, func(s *batchv1.JobSpec) {
			s.PodReplacementPolicy = ptr.To(batchv1.Failed)
		}, false},
		"with each index counted by itself": {10, nothing[v1.Pod], func(s *batchv1.JobSpec) {
			s.CompletionMode, s.BackoffLimitPerIndex, s.BackoffLimit = ptr.To(batchv1.IndexedCompletion), ptr.To[int32](1), nil
		}, false},
		"under a budget": {4, nothing[v1.Pod], nothing[batchv1.JobSpec], true},
	} {
		t.Run(name, func(t *testing.T) {
			x := begin(t)
			x.node("n")
			x.schedule()
			urgent := x.priority("urgent", 1000)
			if c.budget {
				least := intstr.FromInt32(2)
				_, err := admin.PolicyV1().PodDisruptionBudgets(x.namespace).Create(ctx(), &policyv1.PodDisruptionBudget{
					ObjectMeta: metav1.ObjectMeta{Name: "two"},
					Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.JobNameLabel: "work"}}},
				}, metav1.CreateOptions{})
				x.must(err)
			}
			spec := batchv1.JobSpec{
				Parallelism: ptr.To[int32](4), Completions: ptr.To[int32](4), BackoffLimit: ptr.To[int32](2),
				Template: podTemplate(asks(2), c.pod),
			}
			c.spec(&spec)
			x.job("work", &spec)
			running := func() {
				x.until("all pods of the Job run", func() error {
					n := 0
					for _, p := range x.podsWith(batchv1.JobNameLabel, "work") {
						if p.Status.Phase == v1.PodRunning && p.DeletionTimestamp == nil {
							n++
						}
					}
					if n != 4 {
						return fmt.Errorf("%d run", n)
					}
					return nil
				})
			}
			for i := range c.evictions {
				running()
				name := fmt.Sprint("urgent-", i)
				x.create(pod(name, asks(2), urgent))
				x.bound(name)
				x.kill(name)
			}
			running()
			j, err := admin.BatchV1().Jobs(x.namespace).Get(ctx(), "work", metav1.GetOptions{})
			x.must(err)
			if j.Status.Failed != 0 || len(j.Status.Conditions) > 0 {
				t.Errorf("after %d evictions: %d failed, %v", c.evictions, j.Status.Failed, j.Status.Conditions)
			}
			for _, p := range x.podsWith(batchv1.JobNameLabel, "work") {
				if p.DeletionTimestamp == nil {
					_, err := admin.CoreV1().Pods(x.namespace).Patch(ctx(), p.Name, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
					x.must(err)
				}
			}
			x.completes("work")
		})
	}
}

func nothing[T any](*T) {}
