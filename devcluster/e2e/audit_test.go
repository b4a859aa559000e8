package e2e

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/devcluster/audit"
)

// audit is auditNodes, and fails the test when a native gang runs with fewer
// pods than it needs, unless some of them have ended or are about to go.
func (c *cluster) audit() {
	c.Helper()
	pods := c.auditNodes()
	groups, err := admin.SchedulingV1beta1().PodGroups("").List(ctx(), metav1.ListOptions{})
	c.must(err)
	for _, problem := range audit.Gangs(groups.Items, pods) {
		c.Error("audit: " + problem)
	}
}

// auditNodes looks at the whole cluster, fails the test when a node gives out what it
// does not have ([audit.Nodes]), and returns all pods.
func (c *cluster) auditNodes() []*v1.Pod {
	c.Helper()
	nodes, err := admin.CoreV1().Nodes().List(ctx(), metav1.ListOptions{})
	c.must(err)
	list, err := admin.CoreV1().Pods("").List(ctx(), metav1.ListOptions{})
	c.must(err)
	pods := make([]*v1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	for _, problem := range audit.Nodes(nodes.Items, pods) {
		c.Error("audit: " + problem)
	}
	return pods
}
