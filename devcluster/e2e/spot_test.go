package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/devcluster/fleet"
	"github.com/muster-sched/muster/kube"
)

// spot makes a pod one of an LP job; hp one of an HP job, which it would be anyhow.
var (
	spot = note(v1alpha1.ClassAnnotation, "LP")
	hp   = note(v1alpha1.ClassAnnotation, "HP")
)

// spotGPU has the scheduler decide by the built-in policy SpotGPU.
func spotGPU(k *kube.Config) {
	doc, _ := policy.ByName("SpotGPU")
	k.Policy = doc.Policy
}

// later starts another scheduler, whose clock says that it is half a day later: pods have run for
// so long.
func (c *cluster) later() {
	c.Helper()
	c.scheduler.stop()
	c.schedule(spotGPU, func(k *kube.Config) {
		k.Now = func() time.Time { return time.Now().Add(12 * time.Hour) }
	})
}

// saved says that the job saved its progress last at this time before the clock of [cluster.later].
func saved(ago time.Duration) func(*v1.Pod) {
	return note(v1alpha1.LastCheckpointAnnotation, time.Now().Add(12*time.Hour-ago).UTC().Format(time.RFC3339))
}

// on keeps a pod on a node.
func on(node string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelHostname: node} }
}

// stay fails the test unless the pods are on their nodes and nothing asks them to leave.
func (c *cluster) stay(names ...string) {
	c.Helper()
	for _, name := range names {
		if p := c.get(name); p.Spec.NodeName == "" || p.DeletionTimestamp != nil {
			c.Errorf("%s is on %q, deleted %v", name, p.Spec.NodeName, p.DeletionTimestamp)
		}
	}
}

// Under SpotGPU, an LP job takes what is free: neither its priority nor its queue's quota evicts
// any pod for it, HP or LP. Its class may be written on its PodGroup, or in the words of
// Koordinator.
func TestSpotEvictsNone(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	c.queue("team", 8)
	c.queue("guest", 8)
	c.schedule(spotGPU)
	high := c.priority("spot-high", 1000)
	c.create(pod("serve", asks(8), hp, in("guest")), pod("batch", asks(6), spot, in("guest")))
	c.bound("serve", "batch")
	// It is within its quota, of higher priority, and others borrow.
	c.create(
		pod("wants", asks(4), spot, high, in("team")),
		pod("alias", asks(4), high, in("team"), label("koordinator.sh/qosClass", "BE")),
		pod("fits", asks(2), spot, in("team")),
	)
	c.bound("fits")
	c.waits("wants", core.QuotaExceeded.String())
	c.waits("alias", core.QuotaExceeded.String())
	c.unbound("wants", "alias")
	c.stay("serve", "batch")
	// What becomes free is theirs.
	c.kill("serve")
	c.bound("alias", "wants")
	c.stay("batch", "fits")
}

// An HP job evicts the LP pods that lose the least work: GPUs x the time since their last
// checkpoint, as their annotations say it, whatever their priority. HP pods stay.
func TestSpotLosesTheLeastWork(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 3)
	c.schedule(spotGPU)
	high := c.priority("spot-high", 1000)
	c.create(
		pod("serve", asks(8), on("n0")),
		pod("young-4", asks(4), spot, high, on("n1"), saved(10*time.Minute)), // 40 GPU-minutes
		pod("old-1", asks(1), spot, high, on("n1"), saved(3*time.Hour)),      // 180
		pod("rest", asks(3), hp, on("n1")),
		pod("wide-8", asks(8), spot, high, on("n2"), saved(6*time.Minute)), // 48
	)
	c.bound("serve", "young-4", "old-1", "rest", "wide-8")
	c.later()
	c.create(pod("urgent", asks(4), hp))
	if at := c.bound("urgent"); at[0] != "n1" {
		t.Errorf("the HP pod is on %s", at[0])
	}
	c.stay("serve", "old-1", "rest", "wide-8")
	// The job saves its progress as it runs: now wide-8 loses the least.
	p := pod("wide-8", saved(time.Second))
	_, err := admin.CoreV1().Pods(c.namespace).Patch(ctx(), "wide-8", types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.LastCheckpointAnnotation, p.Annotations[v1alpha1.LastCheckpointAnnotation]), metav1.PatchOptions{})
	c.must(err)
	c.create(pod("next", asks(1), hp))
	if at := c.bound("next"); at[0] != "n2" {
		t.Errorf("the second HP pod is on %s", at[0])
	}
	c.stay("serve", "old-1", "rest", "urgent")
	// All that is left are HP pods and one LP pod of one GPU.
	c.create(pod("too-large", asks(8), hp))
	c.waits("too-large", core.Resources.String())
	c.stay("serve", "old-1", "rest", "urgent", "next")
}

// Evicting one pod of an LP gang costs and frees the whole gang: the gang of two that saved its
// progress just now goes, before a pod that lost more; all its pods leave, and those of the other
// gang stay. An HP gang gets both its places.
func TestSpotGang(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 4)
	c.schedule(spotGPU)
	for name, ago := range map[string]time.Duration{"fresh": time.Minute, "stale": 5 * time.Hour} {
		c.group(name, 2)
		c.several(name, 0, 2, asks(8), spot, ofGroup(name), saved(ago))
	}
	c.bound("fresh-0", "fresh-1", "stale-0", "stale-1")
	old := []*v1.Pod{c.get("fresh-0"), c.get("fresh-1")}
	c.later()
	freed := []string{old[0].Spec.NodeName, old[1].Spec.NodeName}
	c.group("serve", 2)
	got := c.bound(c.several("serve", 0, 2, asks(8), hp, ofGroup("serve"))...)
	c.gone(old...)
	slices.Sort(freed)
	slices.Sort(got)
	if !slices.Equal(freed, got) {
		t.Errorf("the HP gang is on %v, and %v were freed", got, freed)
	}
	c.stay("stale-0", "stale-1")
}

// An evicted pod gets what it asks for to shut down, but at most what the policy says: under
// SpotGPU a minute, as at ASI. The HP pod starts when it has left. On a drained node it gets what
// it asks for.
func TestSpotGrace(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	seen := c.watch()
	shuts := func(grace int64) func(*v1.Pod) {
		return func(p *v1.Pod) {
			stays(p)
			p.Spec.TerminationGracePeriodSeconds = ptr.To(grace)
		}
	}
	c.schedule(spotGPU)
	c.create(pod("patient", asks(8), spot, on("n0"), shuts(3600)), pod("brief", asks(8), spot, on("n1"), shuts(50)))
	c.bound("patient", "brief")
	c.phase(v1.PodRunning, "patient", "brief")
	c.group("serve", 2)
	serve := c.several("serve", 0, 2, asks(8), hp, ofGroup("serve"))
	for name, want := range map[string]int64{"patient": 60, "brief": 50} {
		seen.when(fmt.Sprintf("told to leave within %d s", want), name, func(v version) bool {
			return v.DeletionTimestamp != nil && *v.DeletionGracePeriodSeconds == want
		})
	}
	c.kill("patient")
	c.kill("brief")
	c.bound(serve...)
	for _, name := range serve {
		if at := seen.bound(name); at < seen.went("patient") || at < seen.went("brief") {
			t.Errorf("%s was bound before both victims had left", name)
		}
	}
}

// A pod that does not shut down in the time that the policy gives it is killed then.
func TestSpotKilled(t *testing.T) {
	c := begin(t)
	c.node("n0")
	c.schedule(spotGPU, func(k *kube.Config) { k.Policy.Preempt.EvictGrace = 2 * core.Second })
	c.create(pod("stubborn", asks(8), spot, func(p *v1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3600)
		p.Annotations[fleet.Termination] = "3000s"
	}))
	c.bound("stubborn")
	c.phase(v1.PodRunning, "stubborn")
	c.create(pod("serve", asks(8)))
	c.bound("serve") // within the patience of a test, not after an hour
	if _, err := admin.CoreV1().Pods(c.namespace).Get(ctx(), "stubborn", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the evicted pod: %v", err)
	}
}

// Spot pods go to the node from which the fewest were evicted. The counts are the engine's: a
// scheduler that starts counts from 0.
func TestSpotEvictionHistory(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	c.schedule(spotGPU)
	volatile := func() string {
		c.create(pod("first", asks(8), spot, on("n0")), pod("other", asks(8), hp, on("n1")))
		c.bound("first", "other")
		c.create(pod("serve", asks(8), hp))
		at := c.bound("serve")[0]
		c.kill("serve")
		c.kill("other")
		return at
	}()
	if volatile != "n0" {
		t.Fatalf("the HP pod is on %s", volatile)
	}
	c.create(pod("spot", asks(1), spot))
	if at := c.bound("spot"); at[0] != "n1" {
		t.Errorf("the spot pod is on %s, from which one was evicted", at[0])
	}
	c.kill("spot")
	c.scheduler.stop()
	c.schedule(spotGPU)
	c.create(pod("later", asks(1), spot))
	if at := c.bound("later"); at[0] != "n0" {
		t.Errorf("after a restart the spot pod is on %s, expected the first node", at[0])
	}
}

// mayNoteEvictions gives the scheduler the permission that the chart's rbac.evictionCounts gives, for
// this test.
func (c *cluster) mayNoteEvictions() {
	const name = "e2e-eviction-counts"
	_, err := admin.RbacV1().ClusterRoles().Create(ctx(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"patch"}}},
	}, metav1.CreateOptions{})
	c.must(err)
	_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "muster-system", Name: "muster"}},
	}, metav1.CreateOptions{})
	c.must(err)
	c.until("the API server knows it", func() error { return may(ctx(), "patch", "", "nodes") })
	c.Cleanup(func() {
		c.must(admin.RbacV1().ClusterRoleBindings().Delete(ctx(), name, metav1.DeleteOptions{}))
		c.must(admin.RbacV1().ClusterRoles().Delete(ctx(), name, metav1.DeleteOptions{}))
	})
}

// How often LP pods were evicted from a node is written on it, and the next scheduler goes on with
// that: an HP pod goes where the most were, an LP pod where the fewest were. What someone else wrote
// there counts if it is a number that can be.
func TestSpotHistorySurvives(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 3, gpus(2, "H800"))
	c.mayNoteEvictions()
	c.schedule(spotGPU)
	c.create(pod("low", asks(2), spot, on("n1")))
	c.bound("low")
	c.later()
	low := c.get("low")
	c.create(pod("urgent", asks(2), hp, on("n1")))
	c.bound("urgent")
	c.gone(low)
	c.until("the eviction is on the node", func() error {
		n, err := admin.CoreV1().Nodes().Get(ctx(), "n1", metav1.GetOptions{})
		if err == nil && n.Annotations[v1alpha1.EvictionsAnnotation] != "1" {
			err = fmt.Errorf("%q", n.Annotations[v1alpha1.EvictionsAnnotation])
		}
		return err
	})
	c.scheduler.stop()
	c.kill("urgent")
	for name, text := range map[string]string{"n0": "-7", "n2": "99999999999999999999"} {
		_, err := admin.CoreV1().Nodes().Patch(ctx(), name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.EvictionsAnnotation, text), metav1.PatchOptions{})
		c.must(err)
	}
	c.schedule(spotGPU)
	c.create(pod("next", asks(1), hp))
	if at := c.bound("next"); at[0] != "n1" {
		t.Errorf("the HP pod is on %s, expected the node from which a pod was evicted", at[0])
	}
	c.kill("next")
	c.create(pod("spot-0", asks(2), spot), pod("spot-1", asks(2), spot))
	if at := c.bound("spot-0", "spot-1"); slices.Contains(at, "n1") {
		t.Errorf("the LP pods are on %v, expected the other two nodes", at)
	}
}
