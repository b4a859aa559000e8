package e2e

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/kube"
)

// object makes an object of Muster's for the time of the test.
func (c *cluster) object(plural, doc string) {
	c.Helper()
	api := anyKind.Resource(schema.GroupVersionResource{Group: "muster.sh", Version: "v1alpha1", Resource: plural})
	o, err := api.Create(ctx(), parse(c.T, doc), metav1.CreateOptions{})
	c.must(err)
	c.Cleanup(func() { c.must(api.Delete(ctx(), o.GetName(), metav1.DeleteOptions{})) })
}

// The scheduler places by the Topology object: its levels, by alias and label.
func TestTopologyObject(t *testing.T) {
	c := begin(t)
	c.object("topologies", fmt.Sprintf(`{apiVersion: muster.sh/v1alpha1, kind: Topology, metadata: {name: net},
		spec: {levels: [{nodeLabel: %s, alias: pod}]}}`, leafLabel))
	c.schedule(func(k *kube.Config) { k.Levels = nil })
	twoLeaves(c)
	c.bound("on-a0", "on-b0")
	c.group("train", 2, func(g *schedulingv1beta1.PodGroup) { g.Annotations[v1alpha1.RequiredTopologyAnnotation] = "pod" })
	pods := c.several("train", 0, 2, asks(8), ofGroup("train"))
	c.waits(pods[0], "TopologyTooTight")
	c.delete("on-b0")
	c.bound(pods...)
}

// The scheduler decides by the SchedulingPolicy object that it is named, and by
// a change of it at once.
func TestPolicyObject(t *testing.T) {
	c := begin(t)
	c.node("n")
	high := c.priority("e2e-high", 1000)
	doc := `{apiVersion: muster.sh/v1alpha1, kind: SchedulingPolicy, metadata: {name: calm},
		spec: {base: default, preemption: {priority: %s, minRuntime: 0s, interval: 0s}}}`
	c.object("schedulingpolicies", fmt.Sprintf(doc, "Never"))
	c.schedule(func(k *kube.Config) {
		k.PolicyName, k.Policy = "calm", core.Policy{}
		k.Builtins = builtins
	})
	c.create(pod("weak", asks(8)))
	c.bound("weak")
	c.create(pod("strong", asks(8), high))
	c.waits("strong", "Resources")
	if c.get("weak").DeletionTimestamp != nil {
		t.Error("a pod was evicted under a policy without preemption by priority")
	}
	api := anyKind.Resource(schema.GroupVersionResource{Group: "muster.sh", Version: "v1alpha1", Resource: "schedulingpolicies"})
	c.until("the policy is changed", func() error {
		old, err := api.Get(ctx(), "calm", metav1.GetOptions{})
		if err != nil {
			return err
		}
		changed := parse(t, fmt.Sprintf(doc, "Cluster"))
		changed.SetResourceVersion(old.GetResourceVersion())
		_, err = api.Update(ctx(), changed, metav1.UpdateOptions{})
		return err
	})
	c.bound("strong")
}

func builtins(name string) (core.Policy, bool) {
	doc, ok := policy.ByName(name)
	return doc.Policy, ok
}
