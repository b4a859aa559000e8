package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/devcluster/fleet"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/lost"
)

// When the network parts all nodes from the API server, no pod is evicted, for however
// long. Of those that stay away when others are back, none is emptied while most of
// their zone is away, and then one after the other. What was not evicted runs on.
func TestPartition(t *testing.T) {
	c := begin(t)
	zone := func(name string) func(*v1.Node) {
		return func(n *v1.Node) { n.Labels[v1.LabelTopologyZone] = name }
	}
	c.nodesNamed("a", 8, zone("a"))
	c.node("b0", zone("b"))
	var passed atomic.Int64 // on the scheduler's clock, beside what passes
	s := c.schedule(func(k *kube.Config) {
		k.Lost = lost.Default()
		k.Lost.Rate = 1.0 / 3600
		k.Now = func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
	})
	place := map[string]string{}
	for _, n := range c.nodes {
		options := []func(*v1.Pod){asks(8), onNode(n)}
		if n == "a1" {
			options = append(options, note(v1alpha1.LockedAnnotation, "true"))
		}
		c.create(pod("on-"+n, options...))
		place["on-"+n] = n
	}
	c.phase(v1.PodRunning, slices.Collect(maps.Keys(place))...)
	// evicted has the scheduler decide, and fails the test unless those pods alone were
	// told to leave.
	probes := 0
	probed := func() string {
		probe := fmt.Sprint("probe", probes)
		probes++
		c.create(pod(probe))
		return probe
	}
	evicted := func(want ...string) {
		t.Helper()
		probed() // the scheduler waits for the time that this test skips: what happens lets it look at once
		c.until("the pods leave", func() error {
			if got := c.leaving(); !slices.Equal(got, want) {
				return fmt.Errorf("%v leave; expected %v", got, want)
			}
			return nil
		})
		probe := probed()
		c.until("the scheduler has made a pass", func() error {
			if condition(c.get(probe), v1alpha1.WaitingCondition) == nil {
				return fmt.Errorf("%s has not been told why it waits", probe)
			}
			return nil
		})
		if got := c.leaving(); !slices.Equal(got, want) {
			t.Fatalf("%v leave; expected %v", got, want)
		}
	}
	hour := func() { passed.Add(int64(time.Hour)) }
	repair := func(nodes string, open int) {
		t.Helper()
		for n := range strings.FieldsSeq(nodes) {
			c.must(fleet.RepairNode(ctx(), admin, n))
		}
		c.until("the scheduler knows", func() error { return c.openNodes(open) })
	}

	for _, n := range c.nodes {
		c.must(fleet.FailNode(ctx(), admin, n))
	}
	c.until("the scheduler knows", func() error { return s.log.has("no node is ready") })
	hour()
	evicted()

	repair("a7 b0", 2)
	c.until("the scheduler knows", func() error { return s.log.has("nodes are ready again") })
	evicted()
	hour()
	evicted() // seven nodes of eight are away

	repair("a4 a5 a6", 5)
	evicted("on-a0")
	hour()
	evicted("on-a0", "on-a2") // that on a1 is locked
	repair("a0 a1 a2 a3", 9)
	hour()
	for i := range probes { // there is room again where the evicted pods were
		c.bound(fmt.Sprint("probe", i))
	}
	for name, n := range place {
		if name == "on-a0" || name == "on-a2" {
			continue
		}
		if p := c.get(name); p.DeletionTimestamp != nil || p.Spec.NodeName != n || p.Status.Phase != v1.PodRunning {
			t.Errorf("%s is on %s, %s; expected that it runs on %s", name, p.Spec.NodeName, p.Status.Phase, n)
		}
	}
}

// leaving returns the pods that were told to leave, in order of their names.
func (c *cluster) leaving() []string {
	c.Helper()
	list, err := admin.CoreV1().Pods(c.namespace).List(ctx(), metav1.ListOptions{})
	c.must(err)
	var out []string
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp != nil {
			out = append(out, list.Items[i].Name)
		}
	}
	slices.Sort(out)
	return out
}
