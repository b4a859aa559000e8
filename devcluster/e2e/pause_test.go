package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/devcluster/fleet"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/console"
	"github.com/muster-sched/muster/kube/pause"
	"github.com/muster-sched/muster/kube/tables"
)

// pausing lets the scheduler suspend jobs, by the simulated agents of the nodes.
func pausing(c *kube.Config) {
	in := func(name string) string { return filepath.Join(agents, name) }
	c.Agents = &pause.Network{Port: 9440, Name: "muster-agent", TLS: agent.TLS{Cert: in("client.crt"), Key: in("client.key"), CA: in("ca.crt")}}
	c.Policy.Preempt.MaxSuspended = core.Time(time.Hour)
}

// agentNode makes a node with an agent.
func (c *cluster) agentNode(name string) {
	c.Helper()
	at, err := os.ReadFile(filepath.Join(agents, "address"))
	c.must(err)
	c.node(name, func(n *v1.Node) { n.Annotations = map[string]string{v1alpha1.AgentAnnotation: string(at)} })
}

// pausable has a pod say that it can be paused, almost at once: it has not run for long when a test makes it a victim.
func pausable(p *v1.Pod) {
	p.Annotations[v1alpha1.PausableAnnotation] = "pause=1ms,resume=1ms,memory=160Gi"
}

// guaranteed has the first container limited to what it requests.
func guaranteed(p *v1.Pod) {
	r := &p.Spec.Containers[0].Resources
	r.Limits = r.Requests.DeepCopy()
}

// pauseIs waits until the condition of a pod has a reason, with all these texts in what is said with it.
func (c *cluster) pauseIs(name, reason string, says ...string) {
	c.Helper()
	c.until(name+" is "+reason, func() error {
		p, err := admin.CoreV1().Pods(c.namespace).Get(ctx(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		k := condition(p, v1alpha1.PausedCondition)
		if k == nil || k.Reason != reason || !saysAll(k.Message, says) {
			return fmt.Errorf("its condition is %+v; expected in it: %q", k, says)
		}
		if paused := reason == v1alpha1.PausedPaused; paused != (k.Status == v1.ConditionTrue) {
			return fmt.Errorf("its condition is %+v", k)
		}
		return nil
	})
}

// requests says what the first container of a pod requests.
func (c *cluster) requests(name string) string {
	c.Helper()
	r := c.get(name).Spec.Containers[0].Resources.Requests
	return r.Cpu().String() + " " + r.Memory().String()
}

// A job is paused for one of higher priority, which runs on its GPUs and with its CPU, and goes on in its place when that has ended. It is
// the same pod, and runs for as long as it would have without the pause.
func TestPause(t *testing.T) {
	c := begin(t)
	c.agentNode("n")
	high := c.priority("urgent", 1000)
	c.schedule(pausing)
	c.create(pod("low", uncounted(8), needs("120", "200Gi"), pausable, note(fleet.PauseTakes, "300ms"), note(fleet.ResumeTakes, "300ms")))
	c.bound("low")
	c.phase(v1.PodRunning, "low")
	low := c.get("low")

	c.create(pod("high", uncounted(8), needs("100", "200Gi"), high))
	c.bound("high")
	c.pauseIs("low", v1alpha1.PausedPaused, "others may use its GPUs 0,1,2,3,4,5,6,7", "for "+c.namespace+"/pod/high")
	if got := c.requests("low"); got != "0 360Gi" {
		t.Errorf("while it is paused, low requests %s", got)
	}
	c.phase(v1.PodRunning, "high")
	people, err := console.New(address)
	c.must(err)
	x, err := people.Explain(ctx(), c.namespace, "low")
	c.must(err)
	if p := x.Pods[0]; p.State != "paused" || !strings.HasPrefix(p.Why, "its processes are paused for ") || strings.Contains(p.Why, "place") {
		t.Errorf("explain says %+v", p)
	}

	c.delete("high")
	c.pauseIs("low", v1alpha1.PausedResumed)
	if got := c.requests("low"); got != "120 200Gi" {
		t.Errorf("when it goes on, low requests %s", got)
	}
	if now := c.get("low"); now.UID != low.UID || now.Spec.NodeName != "n" || now.DeletionTimestamp != nil || now.Annotations[v1alpha1.GPUsAnnotation] != low.Annotations[v1alpha1.GPUsAnnotation] {
		t.Errorf("low is %+v", now.ObjectMeta)
	}
	// Its GPUs are its own.
	c.create(pod("late", uncounted(1)))
	c.waits("late", core.Resources.String())
	c.stay("low")
	// A pod that the kubelet would not resize is told that it will not be paused.
	c.create(pod("fixed", uncounted(1), needs("1", "1Gi"), guaranteed, pausable))
	c.toldOf("fixed", tables.NotPausable)
}

// A job that its agent cannot pause, or whose agent does not answer, is evicted as ever.
func TestPauseFails(t *testing.T) {
	for _, x := range []struct {
		name string
		node func(c *cluster)
		pod  func(*v1.Pod)
	}{
		{"refused", func(c *cluster) { c.agentNode("n") }, note(fleet.PauseFails, "process 7 holds memory that cannot be copied")},
		{"unreachable", func(c *cluster) {
			c.node("n", func(n *v1.Node) { n.Annotations = map[string]string{v1alpha1.AgentAnnotation: "127.0.0.1:1"} })
		}, func(*v1.Pod) {}},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := begin(t)
			x.node(c)
			high := c.priority("urgent", 1000)
			c.schedule(pausing)
			c.create(pod("low", uncounted(8), needs("120", "200Gi"), pausable, x.pod))
			c.bound("low")
			c.phase(v1.PodRunning, "low")
			low := c.get("low")
			c.create(pod("high", uncounted(8), needs("100", "200Gi"), high))
			c.gone(low)
			c.bound("high")
			c.until("the scheduler says why", func() error { return c.scheduler.log.has("the agent of node n: ") })
		})
	}
}

// A scheduler that starts knows which pods are paused, and lets the others go on.
func TestPauseRestarted(t *testing.T) {
	c := begin(t)
	c.agentNode("n")
	high := c.priority("urgent", 1000)
	c.schedule(pausing)
	c.create(pod("low", uncounted(8), needs("120", "200Gi"), pausable, note(fleet.PauseTakes, "1h")))
	c.bound("low")
	c.phase(v1.PodRunning, "low")
	c.create(pod("high", uncounted(8), needs("100", "200Gi"), high))
	c.pauseIs("low", v1alpha1.PausedPausing)

	// 1. While it is being paused: the pause is given up.
	c.scheduler.stop()
	c.delete("high")
	c.schedule(pausing)
	c.pauseIs("low", v1alpha1.PausedResumed)
	if got := c.requests("low"); got != "120 200Gi" {
		t.Errorf("when its pause was given up, low requests %s", got)
	}
	c.annotate("low", fmt.Sprintf("%q:null", fleet.PauseTakes))

	// 2. While it is paused: it keeps its image, and the other its GPUs.
	c.create(pod("high2", uncounted(8), needs("100", "200Gi"), high))
	c.pauseIs("low", v1alpha1.PausedPaused)
	c.bound("high2")
	c.scheduler.stop()
	c.schedule(pausing)
	c.create(pod("thief", uncounted(1), needs("1", "800Gi")))
	c.waits("thief", core.Resources.String())
	c.stay("low", "high2")
	c.pauseIs("low", v1alpha1.PausedPaused)
	c.delete("thief", "high2")
	c.pauseIs("low", v1alpha1.PausedResumed)
	c.stay("low")
}

// A paused pod that its user deletes is gone, and one whose node takes no pods any longer is evicted; who has its GPUs runs on.
func TestPausedPodsLeave(t *testing.T) {
	c := begin(t)
	c.agentNode("n")
	high := c.priority("urgent", 1000)
	c.schedule(pausing)
	pause := func(low, by string) *v1.Pod {
		c.create(pod(low, uncounted(8), needs("20", "200Gi"), pausable))
		c.bound(low)
		c.phase(v1.PodRunning, low)
		c.create(pod(by, uncounted(8), needs("20", "200Gi"), high))
		c.pauseIs(low, v1alpha1.PausedPaused)
		c.bound(by)
		return c.get(low)
	}
	first := pause("first", "a")
	c.delete("first")
	c.gone(first)
	c.stay("a")
	a := c.get("a")
	c.delete("a")
	c.gone(a)

	second := pause("second", "b")
	c.editNode("n", func(n *v1.Node) { n.Spec.Unschedulable = true })
	c.gone(second)
	c.stay("b")
}
