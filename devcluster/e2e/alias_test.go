package e2e

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/kube"
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
				c.waits(early[0], kube.ReasonCollecting)
				c.unbound(early...)
				c.bound(append(early, c.several("train", 2, 1, a.gang)...)...)
			}
			if a.queue != "" {
				if said := c.waits("queued", kube.ReasonQueueNotFound); !strings.Contains(said, "elsewhere") {
					t.Errorf("it waits because %q; expected the queue's name", said)
				}
			}
		})
	}
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
