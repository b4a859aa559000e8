package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// kept are the kinds of which testdata/upgrade/cluster.yaml has objects, in the order in which they are made.
var kept = []schema.GroupVersionResource{
	{Group: "muster.sh", Version: "v1alpha1", Resource: "queues"},
	{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	{Group: "scheduling.k8s.io", Version: "v1beta1", Resource: "podgroups"},
	{Version: "v1", Resource: "pods"},
}

// liveThrough runs a binary of the last release until its jobs run and others wait, and ends it. What it leaves
// behind is written to testdata/upgrade/cluster.yaml.
func (c *cluster) liveThrough(binary string, args []string) {
	c.Helper()
	p := c.program(binary, args)
	c.queue("team", 8, isolated)
	c.queue("other", 16, isolated)
	c.create(pod("big", in("other"), asks(8)), pod("serve", in("other"), note(v1alpha1.PreemptibleAnnotation, "false"), note(v1alpha1.KindAnnotation, "inference")))
	c.create(pod("single", in("team")))
	gang := []func(*v1.Pod){in("team"), label(v1alpha1.GangLabel, "gang"), note(v1alpha1.MinMemberAnnotation, "2"), asks(2)}
	c.create(pod("gang-0", gang...), pod("gang-1", gang...))
	c.group("native", 2, func(g *schedulingv1beta1.PodGroup) { g.Labels[v1alpha1.QueueLabel] = "team" })
	c.create(pod("native-0", ofGroup("native")), pod("native-1", ofGroup("native")))
	half := []func(*v1.Pod){in("team"), note(v1alpha1.GPUFractionAnnotation, "0.5"), asks(0)}
	c.create(pod("half-0", half...), pod("half-1", half...))
	c.bound("big", "serve", "single", "gang-0", "gang-1", "native-0", "native-1", "half-0", "half-1")
	for _, p := range []*v1.Pod{pod("wait-a", in("team")), pod("wait-b", in("team")), pod("large", in("other"), asks(16))} {
		c.create(p)
		c.until(p.Name+" is told why it waits", func() error {
			if condition(c.get(p.Name), v1alpha1.WaitingCondition) == nil {
				return errors.New("it is not")
			}
			return nil
		})
		c.nextSecond()
	}
	c.phase(v1.PodRunning, "big", "serve", "single", "gang-0", "gang-1", "native-0", "native-1", "half-0", "half-1")
	c.until("the queues are told what they use", func() error {
		use := c.queueUse()
		if !strings.Contains(use["team"], "8 8 5 2") || !strings.Contains(use["other"], "16 9 2 1") {
			return fmt.Errorf("%v", use)
		}
		return nil
	})
	p.end()
	c.write("testdata/upgrade/cluster.yaml")
}

// nextSecond returns in another second than it is now: of jobs created in one no order is known.
func (c *cluster) nextSecond() {
	c.Helper()
	now := time.Now().Unix()
	c.until("a second is over", func() error {
		if time.Now().Unix() == now {
			return errors.New("it is not")
		}
		return nil
	})
}

// write writes what a scheduler left behind, without what the API server gave it.
func (c *cluster) write(file string) {
	c.Helper()
	text := "# What the scheduler of ce79eece left behind (TestUpgrade with " + lastRelease + ").\n"
	for _, r := range kept {
		api := anyKind.Resource(r)
		list, err := api.List(ctx(), metav1.ListOptions{})
		c.must(err)
		for i := range list.Items {
			o := &list.Items[i]
			switch ns := o.GetNamespace(); {
			case ns == "", ns == systemNamespace && o.GetKind() == "Lease":
			case ns == c.namespace:
				o.SetNamespace("")
			default:
				continue // the pods of the Deployment, which its controller makes
			}
			for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"} {
				unstructured.RemoveNestedField(o.Object, "metadata", field)
			}
			data, err := yaml.Marshal(o.Object)
			c.must(err)
			text += "---\n" + string(data)
		}
	}
	c.must(os.WriteFile(file, []byte(text), 0o644))
}

// restore makes an object that write wrote, with its status. Pods that wait are made in a second each.
func (c *cluster) restore(o *unstructured.Unstructured) {
	c.Helper()
	var api = anyKind.Resource(kept[0]).Namespace("")
	for _, r := range kept {
		if strings.EqualFold(o.GetKind()+"s", r.Resource) {
			if api = anyKind.Resource(r).Namespace(o.GetNamespace()); o.GetNamespace() == "" && r.Group != "muster.sh" {
				api = anyKind.Resource(r).Namespace(c.namespace)
			}
		}
	}
	is, err := api.Create(ctx(), o, metav1.CreateOptions{})
	c.must(err)
	node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
	if node != "" {
		c.phase(v1.PodRunning, o.GetName()) // the kubelet says it
		return
	}
	if status, ok := o.Object["status"]; ok {
		is.Object["status"] = status
		_, err = api.UpdateStatus(ctx(), is, metav1.UpdateOptions{})
		c.must(err)
	}
	switch o.GetKind() {
	case "Queue":
		c.queues = append(c.queues, o.GetName())
	case "Pod":
		c.nextSecond()
	}
}
