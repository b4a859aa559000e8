package e2e

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// What is corrected counts in every state of a job that waits, though no time passes after which the scheduler would look
// again: of a gang that is larger than its queue's quota, of one that waits its turn, and of the owner of pods.
func TestCorrectedWhileItWaits(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("small", 1, borrows(0))
	c.queue("full", 2, borrows(0))
	c.queue("team", 5, borrows(0))
	c.schedule()
	c.create(pod("other", label(v1alpha1.QueueLabel, "full")))
	c.bound("other")
	patch := func(of schema.GroupVersionResource, name, patch string) {
		t.Helper()
		_, err := anyKind.Resource(of).Namespace(c.namespace).Patch(ctx(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		c.must(err)
	}
	volcano := schema.GroupVersionResource{Group: "scheduling.volcano.sh", Version: "v1beta1", Resource: "podgroups"}
	kai := schema.GroupVersionResource{Group: "scheduling.run.ai", Version: "v2alpha2", Resource: "podgroups"}
	c.makeObject(kind(volcano.Group, volcano.Version, "PodGroup"), "v", `{minMember: 2, queue: small}`)
	c.makeObject(kind(kai.Group, kai.Version, "PodGroup"), "k", `{minMember: 2, queue: full}`)
	for _, p := range []string{"v-0", "v-1"} {
		c.create(pod(p, note("scheduling.volcano.sh/group-name", "v")))
	}
	for _, p := range []string{"k-0", "k-1"} {
		c.create(pod(p, note("pod-group-name", "k")))
	}
	c.group("native", 2, func(g *schedulingv1beta1.PodGroup) { g.Labels[v1alpha1.QueueLabel] = "small" })
	native := c.several("native", 0, 2, ofGroup("native"))
	_, err := admin.BatchV1().Jobs(c.namespace).Create(ctx(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Labels: map[string]string{"kueue.x-k8s.io/queue-name": "full"}},
		Spec:       batchv1.JobSpec{Parallelism: new(int32(2)), Completions: new(int32(2)), CompletionMode: new(batchv1.IndexedCompletion), Template: podTemplate()},
	}, metav1.CreateOptions{})
	c.must(err)
	c.waits("v-0", "ExceedsQuota", "small")
	c.waits("k-1", "QuotaExceeded", "full")
	c.waits(native[0], "ExceedsQuota", "small")
	job := c.podOf("job")
	c.waits(job.Name, "QuotaExceeded", "full")
	c.unbound("v-0", "v-1", "k-0", "k-1", job.Name)
	patch(volcano, "v", `{"spec": {"queue": "team"}}`)
	c.bound("v-0", "v-1")
	patch(kai, "k", `{"spec": {"queue": "team"}}`)
	c.bound("k-0", "k-1")
	c.delete("v-0", "v-1", "k-0", "k-1")
	patch(schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1beta1", Resource: "podgroups"}, "native", `{"metadata": {"labels": {"`+v1alpha1.QueueLabel+`": "team"}}}`)
	c.bound(native...)
	patch(schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}, "job", `{"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team"}}}`)
	c.bound(c.podOf("job").Name)
}
