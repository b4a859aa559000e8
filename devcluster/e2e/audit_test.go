package e2e

import (
	"cmp"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// audit is auditNodes, and fails the test when a native gang runs with fewer
// pods than it needs, unless some of them have ended or are about to go.
func (c *cluster) audit() {
	c.Helper()
	pods := c.auditNodes()
	groups, err := admin.SchedulingV1beta1().PodGroups("").List(ctx(), metav1.ListOptions{})
	c.must(err)
	for _, g := range groups.Items {
		if gang := g.Spec.SchedulingPolicy.Gang; gang != nil {
			if p := torn(g.Namespace, g.Name, int(gang.MinCount), pods); p != "" {
				c.Error("audit: " + p)
			}
		}
	}
}

// auditNodes looks at the whole cluster and fails the test unless
//
//   - no GPU is given to more than it has: its parts sum to one at most
//   - no node has more than it has room for: CPU, memory, GPUs, pods
//   - every pod of Muster's that asks for GPUs and has a node knows which they
//     are, as many as it asks for
//
// It returns all pods.
func (c *cluster) auditNodes() []v1.Pod {
	c.Helper()
	nodes, err := admin.CoreV1().Nodes().List(ctx(), metav1.ListOptions{})
	c.must(err)
	pods, err := admin.CoreV1().Pods("").List(ctx(), metav1.ListOptions{})
	c.must(err)
	for _, problem := range problems(nodes.Items, pods.Items) {
		c.Error("audit: " + problem)
	}
	return pods.Items
}

// use is what pods take of a node.
type use struct {
	gpus, cpu, memory, pods int64
	others                  []core.Amount
	devices                 [64]int64 // in thousandths
}

func problems(nodes []v1.Node, pods []v1.Pod) []string {
	var out []string
	used := map[string]*use{}
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName == "" || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
			continue
		}
		u := used[p.Spec.NodeName]
		if u == nil {
			u = &use{}
			used[p.Spec.NodeName] = u
		}
		need := translate.Requests(p)
		u.gpus += need.GPUs
		u.cpu += need.CPUMilli
		u.memory += need.MemMiB
		u.others = translate.AddOthers(u.others, need.Others, 1)
		u.pods++
		set, err := translate.ParseDevices(p.Annotations[v1alpha1.GPUsAnnotation])
		if err != nil {
			out = append(out, fmt.Sprintf("pod %s: %v", p.Name, err))
		}
		if k := condition(p, v1alpha1.PausedCondition); k != nil && k.Status == v1.ConditionTrue {
			set, need.GPUs = nil, 0 // others have its GPUs
		}
		for _, d := range set {
			u.devices[d] += int64(translate.Share(p))
		}
		if p.Spec.SchedulerName == v1alpha1.SchedulerName && need.GPUs > 0 && int64(len(set)) != need.GPUs {
			out = append(out, fmt.Sprintf("pod %s asks for %d GPUs and was given %v", p.Name, need.GPUs, set))
		}
	}
	for i := range nodes {
		n := &nodes[i]
		u := used[n.Name]
		if u == nil {
			continue
		}
		delete(used, n.Name)
		room := n.Status.Capacity
		gpus := room[v1alpha1.GPUResource]
		if gpus.IsZero() { // it publishes them
			gpus = resource.MustParse(cmp.Or(n.Labels["nvidia.com/gpu.count"], "0"))
		}
		for _, x := range []struct {
			what       string
			used, room int64
		}{
			{"GPUs", u.gpus, gpus.Value()},
			{"milli-CPUs", u.cpu, room.Cpu().MilliValue()},
			{"MiB", u.memory, room.Memory().Value() >> 20},
			{"pods", u.pods, room.Pods().Value()},
		} {
			if x.used > x.room {
				out = append(out, fmt.Sprintf("node %s has %d %s and gives %d", n.Name, x.room, x.what, x.used))
			}
		}
		for _, o := range u.others {
			if has := room[v1.ResourceName(o.Name)]; o.Value > has.Value() {
				out = append(out, fmt.Sprintf("node %s has %d %s and gives %d", n.Name, has.Value(), o.Name, o.Value))
			}
		}
		for d, milli := range u.devices {
			if milli > 1000 || milli > 0 && int64(d) >= gpus.Value() {
				out = append(out, fmt.Sprintf("GPU %d of node %s is given %d thousandths", d, n.Name, milli))
			}
		}
	}
	return out
}

// torn says that a gang runs and is not whole.
func torn(namespace, name string, least int, pods []v1.Pod) string {
	var bound, waiting []string
	for i := range pods {
		p := &pods[i]
		if p.Namespace != namespace || p.Spec.SchedulingGroup == nil || *p.Spec.SchedulingGroup.PodGroupName != name {
			continue
		}
		switch {
		case p.DeletionTimestamp != nil, p.Status.Phase == v1.PodSucceeded, p.Status.Phase == v1.PodFailed:
			return ""
		case p.Spec.NodeName != "":
			bound = append(bound, p.Name)
		default:
			waiting = append(waiting, p.Name)
		}
	}
	if len(bound) > 0 && len(bound) < least && len(bound)+len(waiting) >= least {
		return fmt.Sprintf("of gang %s, which needs %d, only these are bound: %s", name, least, strings.Join(bound, " "))
	}
	return ""
}
