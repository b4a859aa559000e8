package e2e

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/queues"
	"github.com/muster-sched/muster/kube/tables"
)

// What users of other schedulers type is understood: their queues, and their
// gangs of three.
func TestAliases(t *testing.T) {
	for _, a := range []struct {
		scheduler string
		queue     string // the label that names the queue
		gang      func(*v1.Pod)
		group     schema.GroupVersion // of the PodGroup that says how large the gang is
	}{
		{"KAI", "kai.scheduler/queue", note("pod-group-name", "train"), schema.GroupVersion{Group: "scheduling.run.ai", Version: "v2alpha2"}},
		{"Kueue", "kueue.x-k8s.io/queue-name", func(p *v1.Pod) {
			p.Labels["kueue.x-k8s.io/pod-group-name"] = "train"
			p.Annotations["kueue.x-k8s.io/pod-group-total-count"] = "3"
		}, schema.GroupVersion{}},
		{"Volcano", "volcano.sh/queue-name", note("scheduling.k8s.io/group-name", "train"), schema.GroupVersion{Group: "scheduling.volcano.sh", Version: "v1beta1"}},
		{"Koordinator", "quota.scheduling.koordinator.sh/name", func(p *v1.Pod) {
			p.Annotations["gang.scheduling.koordinator.sh/name"] = "train"
			p.Annotations["gang.scheduling.koordinator.sh/min-available"] = "3"
		}, schema.GroupVersion{}},
		{"Koordinator's PodGroup", "", label("pod-group.scheduling.sigs.k8s.io", "train"), schema.GroupVersion{Group: "scheduling.sigs.k8s.io", Version: "v1alpha1"}},
		{"Volcano's newer name", "", note("scheduling.volcano.sh/group-name", "train"), schema.GroupVersion{Group: "scheduling.volcano.sh", Version: "v1beta1"}},
		{"coscheduling", "", label("scheduling.x-k8s.io/pod-group", "train"), schema.GroupVersion{Group: "scheduling.x-k8s.io", Version: "v1alpha1"}},
		{"YuniKorn", "yunikorn.apache.org/queue", nil, schema.GroupVersion{}},
		{"Muster", "muster.sh/queue", func(p *v1.Pod) {
			p.Labels["muster.sh/gang"] = "train"
			p.Annotations["muster.sh/min-member"] = "3"
		}, schema.GroupVersion{}},
	} {
		t.Run(a.scheduler, func(t *testing.T) {
			c := begin(t)
			c.node("n")
			c.schedule()
			if a.queue != "" {
				c.create(pod("queued", label(a.queue, "elsewhere")))
			}
			if a.gang != nil {
				if a.group.Group != "" {
					c.makeObject(a.group.WithKind("PodGroup"), "train", "{minMember: 3}")
				}
				early := c.several("train", 0, 2, a.gang)
				c.waits(early[0], tables.ReasonCollecting)
				c.unbound(early...)
				c.bound(append(early, c.several("train", 2, 1, a.gang)...)...)
			}
			if a.queue != "" {
				c.waits("queued", tables.ReasonQueueNotFound, "elsewhere")
			}
		})
	}
}

// Gangs of several roles, each with a least of its own, start when all roles have it:
// two workers and a ps.
func TestRoles(t *testing.T) {
	volcano, kai := kind("scheduling.volcano.sh", "v1beta1", "PodGroup"), kind("scheduling.run.ai", "v2alpha2", "PodGroup")
	for _, r := range []struct {
		scheduler string
		role      func(p *v1.Pod, role string)
		group     schema.GroupVersionKind
		spec      string
	}{
		{"YuniKorn", func(p *v1.Pod, role string) {
			p.Labels["applicationId"], p.Labels["queue"] = "train", queues.Default
			p.Annotations["yunikorn.apache.org/task-group-name"] = role
			if role == "ps" { // one that says it is enough
				p.Annotations["yunikorn.apache.org/task-groups"] = `[{"name": "ps", "minMember": 1, "minResource": {"cpu": "1"}}, {"name": "worker", "minMember": 2, "minResource": {}}]`
			}
		}, schema.GroupVersionKind{}, ""},
		{"Koordinator", func(p *v1.Pod, role string) {
			p.Annotations["gang.scheduling.koordinator.sh/name"] = role
			p.Annotations["gang.scheduling.koordinator.sh/min-available"] = map[string]string{"ps": "1", "worker": "2"}[role]
			p.Annotations["gang.scheduling.koordinator.sh/groups"] = fmt.Sprintf(`["%[1]s/ps", "%[1]s/worker"]`, p.Namespace)
		}, schema.GroupVersionKind{}, ""},
		{"Volcano", func(p *v1.Pod, role string) {
			p.Annotations["scheduling.k8s.io/group-name"], p.Annotations["volcano.sh/task-spec"] = "train", role
		}, volcano, "{minMember: 3, minTaskMember: {ps: 1, worker: 2}}"},
		{"KAI", func(p *v1.Pod, role string) {
			p.Annotations["pod-group-name"], p.Labels["kai.scheduler/subgroup-name"] = "train", role
		}, kai, "{minMember: 3, subGroups: [{name: ps, minMember: 1}, {name: worker, minMember: 2}]}"},
		{"Muster", func(p *v1.Pod, role string) {
			p.Labels["muster.sh/gang"] = "train"
			p.Annotations["muster.sh/task"], p.Annotations["muster.sh/min-member"] = role, "ps=1,worker=2"
		}, schema.GroupVersionKind{}, ""},
	} {
		t.Run(r.scheduler, func(t *testing.T) {
			c := begin(t)
			c.node("n")
			c.schedule()
			as := func(role string) func(*v1.Pod) {
				return func(p *v1.Pod) { p.Namespace = c.namespace; r.role(p, role) }
			}
			if r.spec != "" {
				c.makeObject(r.group, "train", r.spec)
			}
			workers := c.several("worker", 0, 3, as("worker"))
			c.waits(workers[0], tables.ReasonCollecting)
			c.unbound(workers...)
			c.bound(append(workers, c.several("ps", 0, 1, as("ps"))...)...)
		})
	}
}

// A Job that names its queue itself, and not on its pods, is counted there; also by a
// scheduler that finds it running.
func TestQueueOfTheJob(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("one", 1, isolated)
	s := c.schedule()
	_, err := admin.BatchV1().Jobs(c.namespace).Create(ctx(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "train", Labels: map[string]string{"kueue.x-k8s.io/queue-name": "one"}},
		Spec:       batchv1.JobSpec{Parallelism: ptr.To[int32](1), Completions: ptr.To[int32](1), Template: podTemplate()},
	}, metav1.CreateOptions{})
	c.must(err)
	c.until("its pod runs", func() error {
		for _, p := range c.podsWith(batchv1.JobNameLabel, "train") {
			if p.Status.Phase == v1.PodRunning && p.Annotations[v1alpha1.QueueLabel] == "one" {
				return nil
			}
		}
		return errors.New("it does not, or has no queue")
	})
	c.create(pod("next", in("one")))
	c.waits("next", "QuotaExceeded")
	s.stop()
	c.schedule()
	c.create(pod("another", in("one")))
	c.waits("another", "QuotaExceeded")
	c.unbound("next")
}

// A gang of YuniKorn's soft style starts without the pods that do not come in time.
func TestYuniKornTimeout(t *testing.T) {
	c := begin(t)
	c.node("n")
	var passed atomic.Int64 // on the scheduler's clock, beside what passes
	c.schedule(func(k *kube.Config) { k.Now = func() time.Time { return time.Now().Add(time.Duration(passed.Load())) } })
	c.create(pod("a", label("applicationId", "train"), note("yunikorn.apache.org/task-group-name", "w"),
		note("yunikorn.apache.org/task-groups", `[{"name": "w", "minMember": 2}]`),
		note("yunikorn.apache.org/schedulingPolicyParameters", "placeholderTimeoutInSeconds=3600 gangSchedulingStyle=Soft")))
	c.waits("a", tables.ReasonCollecting, "start without the others")
	c.unbound("a")
	passed.Store(int64(time.Hour))
	c.create(pod("other")) // the scheduler looks at its clock
	c.bound("a")
}

// A label names the PriorityClass, as with KAI.
func TestPriorityByLabel(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.priority("urgent", 1000)
	c.schedule()
	c.create(pod("blocker", asks(8), note(v1alpha1.PreemptibleAnnotation, "false")))
	c.bound("blocker")
	c.create(pod("first", asks(8)))
	c.waits("first", "Resources")
	c.create(pod("second", asks(8), label("priorityClassName", "urgent")))
	c.waits("second", "Resources")
	c.delete("blocker")
	c.bound("second")
	c.unbound("first")
}

// Memory of a GPU is asked for as KAI has it; the pod gets the part that has it.
func TestGPUMemory(t *testing.T) {
	c := begin(t)
	c.node("n", func(n *v1.Node) { n.Labels[v1alpha1.MemoryLabel] = "80000" })
	c.schedule()
	c.create(pod("a", asks(0), note("gpu-memory", "20000")), pod("large", asks(0), note("gpu-memory", "90000")))
	c.bound("a")
	if got := c.get("a").Annotations[v1alpha1.ShareAnnotation]; got != "250" {
		t.Errorf("it has %s thousandths of a GPU, expected 250", got)
	}
	c.waits("large", "NoNode")
}

// parse reads an object in YAML.
func parse(t *testing.T, doc string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return o
}
