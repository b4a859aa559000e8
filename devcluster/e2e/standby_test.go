package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/console"
)

// uncounted has a pod ask Muster alone for whole GPUs: its resources have none.
func uncounted(n int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		asks(0)(p)
		p.Annotations[v1alpha1.GPUCountAnnotation] = fmt.Sprint(n)
	}
}

// needs adds CPU and memory to what a pod requests.
func needs(cpu, memory string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		r := &p.Spec.Containers[0].Resources
		if r.Requests = r.Requests.DeepCopy(); r.Requests == nil {
			r.Requests = v1.ResourceList{}
		}
		r.Requests[v1.ResourceCPU], r.Requests[v1.ResourceMemory] = resource.MustParse(cpu), resource.MustParse(memory)
	}
}

// annotate writes annotations on a pod; nil takes one away.
func (c *cluster) annotate(name, notes string) {
	c.Helper()
	_, err := admin.CoreV1().Pods(c.namespace).Patch(ctx(), name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%s}}}`, notes), metav1.PatchOptions{})
	c.must(err)
}

// rests asks a pod to lend its GPUs for a while.
func (c *cluster) rests(name string, d time.Duration, keeps string) {
	c.Helper()
	notes := fmt.Sprintf("%q:%q", v1alpha1.StandbyUntilAnnotation, time.Now().Add(d).UTC().Format(time.RFC3339))
	if keeps != "" {
		notes += fmt.Sprintf(",%q:%q", v1alpha1.StandbyKeepsAnnotation, keeps)
	}
	c.annotate(name, notes)
}

// resize resizes a pod in place, as its owner or an agent on its node does. The status of its
// container says what it has, as the kubelet would say it.
func (c *cluster) resize(name, cpu, memory string) {
	c.Helper()
	c.phase(v1.PodRunning, name)
	has := func() {
		c.until("the status says what the container has", func() error {
			p := c.get(name)
			p.Status.ContainerStatuses[0].Resources = &v1.ResourceRequirements{Requests: p.Spec.Containers[0].Resources.Requests}
			_, err := admin.CoreV1().Pods(c.namespace).UpdateStatus(ctx(), p, metav1.UpdateOptions{})
			return err
		})
	}
	has()
	defer has()
	patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":%q,"memory":%q}}}]}}`, cpu, memory)
	_, err := admin.CoreV1().Pods(c.namespace).Patch(ctx(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "resize")
	c.must(err)
}

// standby waits until a pod says that its standby is so: in its condition and, for its containers,
// in its annotation, with all these texts in the message.
func (c *cluster) standby(name, reason string, says ...string) {
	c.Helper()
	c.until(name+" says "+reason, func() error {
		p, err := admin.CoreV1().Pods(c.namespace).Get(ctx(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		k := condition(p, v1alpha1.StandbyCondition)
		if k == nil || k.Reason != reason || p.Annotations[v1alpha1.StandbyAnnotation] != reason || !saysAll(k.Message, says) {
			return fmt.Errorf("its condition is %+v, its annotation %q; expected in it: %q", k, p.Annotations[v1alpha1.StandbyAnnotation], says)
		}
		if lends := reason == v1alpha1.StandbyLending || reason == v1alpha1.StandbyReturning; lends != (k.Status == v1.ConditionTrue) {
			return fmt.Errorf("its condition is %+v", k)
		}
		return nil
	})
}

// A service lends the GPUs of its node until it asks for them. LP pods that the kubelet does not
// count use them, with the CPU that the service gave back by being resized; others do not, and no HP
// pod does. The service is told when they are gone: within their grace, as the policy bounds it.
func TestStandby(t *testing.T) {
	c := begin(t)
	c.node("n")
	seen := c.watch()
	c.schedule(spotGPU)
	c.create(pod("serve", asks(8), needs("120", "900Gi")))
	c.bound("serve")
	c.create(
		pod("guest", uncounted(2), spot, needs("60", "100Gi"), func(p *v1.Pod) {
			stays(p)
			p.Spec.TerminationGracePeriodSeconds = new(int64(3600))
		}),
		pod("counted", asks(2), spot),
		pod("urgent", uncounted(2)),
	)
	c.waits("guest", core.Resources.String())

	// 1. It lends nothing before it has given back what it does not keep.
	c.rests("serve", time.Hour, "cpu=1,memory=2Gi")
	c.standby("serve", v1alpha1.StandbyPreparing, "requests 120000 milli-cores")
	c.unbound("guest")
	c.resize("serve", "1", "2Gi")
	c.standby("serve", v1alpha1.StandbyLending)
	c.bound("guest")
	c.phase(v1.PodRunning, "guest")
	guest := c.get("guest")
	if got := guest.Annotations[v1alpha1.GPUsAnnotation]; got != "0,1" {
		t.Errorf("the guest has GPUs %q", got)
	}
	c.waits("counted", core.Resources.String())
	c.waits("urgent", core.Resources.String())
	// What it gave back is kept for it: only LP pods get it.
	c.create(pod("thief", asks(0), needs("64", "100Gi")))
	c.waits("thief", core.InsufficientCPU.String())
	people, err := console.New(address)
	c.must(err)
	x, err := people.Explain(ctx(), c.namespace, "serve")
	c.must(err)
	if p := x.Pods[0]; p.State != "standby" || !strings.HasPrefix(p.Why, "Lending: LP jobs may use its GPUs 0,1,2,3,4,5,6,7 until ") || strings.Contains(p.Why, "place") {
		t.Errorf("explain says %+v", p)
	}

	// 2. Traffic comes.
	c.annotate("serve", fmt.Sprintf("%q:null", v1alpha1.StandbyUntilAnnotation))
	c.standby("serve", v1alpha1.StandbyReturning)
	c.until("the guest is told to leave", func() error {
		p, err := admin.CoreV1().Pods(c.namespace).Get(ctx(), "guest", metav1.GetOptions{})
		if err == nil && p.DeletionTimestamp == nil {
			err = fmt.Errorf("it is not")
		}
		if err == nil && *p.DeletionGracePeriodSeconds != 60 {
			t.Errorf("it gets %d s", *p.DeletionGracePeriodSeconds)
		}
		return err
	})
	c.kill("guest")
	c.standby("serve", v1alpha1.StandbyResumed, "its GPUs are its own again")
	resumed := seen.when("told to go on", "serve", func(v version) bool { return v.Annotations[v1alpha1.StandbyAnnotation] == v1alpha1.StandbyResumed })
	if resumed < seen.went("guest") {
		t.Error("the service was told to go on before the guest had left")
	}
	c.resize("serve", "120", "900Gi")
	c.waits("thief", core.InsufficientCPU.String())
	c.unbound("counted", "urgent", "thief")
	c.stay("serve")
}

// The window ends at its time, after the scheduler was restarted: it knows who lends what to whom.
func TestStandbyRestarted(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	c.schedule(spotGPU)
	c.create(pod("serve", asks(8), needs("120", "900Gi"), on("n0")), pod("full", asks(8), needs("120", "900Gi"), on("n1")))
	c.bound("serve", "full")
	// It is older than the standby, and a new engine receives it later.
	c.create(pod("guest", uncounted(8), spot, needs("60", "100Gi")))
	c.rests("serve", time.Hour, "cpu=1,memory=2Gi")
	c.standby("serve", v1alpha1.StandbyPreparing)
	c.resize("serve", "1", "2Gi")
	c.bound("guest")
	c.standby("serve", v1alpha1.StandbyLending)
	c.scheduler.stop()
	c.schedule(spotGPU)
	c.create(pod("thief", asks(0), needs("64", "100Gi")), pod("other", uncounted(8), spot))
	c.waits("thief", core.InsufficientCPU.String())
	c.waits("other", core.Resources.String())
	c.stay("serve", "full", "guest")
	guest := c.get("guest")
	c.scheduler.stop()
	c.rests("serve", -time.Minute, "cpu=1,memory=2Gi") // its window ends while no scheduler runs
	c.schedule(spotGPU)
	c.gone(guest)
	c.standby("serve", v1alpha1.StandbyResumed)
	c.unbound("thief", "other")
	c.stay("serve", "full")
}

// Who must not lend, or cannot, is told why.
func TestStandbyRefused(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	c.schedule(spotGPU)
	c.create(pod("part", asks(4), on("n0")), pod("lp", asks(1), spot, on("n0")), pod("chosen", uncounted(4), on("n1")))
	c.bound("part", "lp", "chosen")
	for name, want := range map[string]string{
		"part": "the kubelet chose its GPUs",
		"lp":   "only pods of HP jobs lend their GPUs",
	} {
		c.rests(name, time.Hour, "")
		c.standby(name, v1alpha1.StandbyRefused, want)
	}
	c.rests("chosen", time.Hour, "much")
	c.standby("chosen", v1alpha1.StandbyRefused, "expected CPU and memory such as cpu=1,memory=2Gi")
	// Muster knows which GPUs a pod has that the kubelet does not count.
	c.rests("chosen", time.Hour, "cpu=1,memory=2Gi")
	c.standby("chosen", v1alpha1.StandbyLending)
}
