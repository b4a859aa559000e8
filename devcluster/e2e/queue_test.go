package e2e

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/console"
	"github.com/muster-sched/muster/kube/tables"
)

// A pod waits for quota, though there are GPUs, and starts when there is some.
func TestQueueQuota(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("team", 4, isolated)
	c.schedule()
	c.create(pod("first", asks(4), in("team")))
	c.bound("first")
	c.create(pod("second", asks(2), in("team")))
	c.waits("second", "QuotaExceeded", "team")
	if k := condition(c.get("second"), v1.PodScheduled); k == nil || k.Reason == v1.PodReasonUnschedulable {
		t.Errorf("PodScheduled is %+v; more nodes, which Unschedulable asks for, would be no help", k)
	}
	c.unbound("second")
	c.editQueue("team", func(q *v1alpha1.Queue) { q.Spec.Quota[0].Nominal = 6000 })
	c.bound("second")
}

// A queue borrows what others do not use, as far as it may.
func TestQueueBorrows(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("poor", 2, borrows(4))
	c.queue("rich", 6)
	c.schedule()
	c.bound(c.several("p", 0, 6, in("poor"))...)
	c.create(pod("p-6", in("poor")))
	c.waits("p-6", "QuotaExceeded")
	c.unbound("p-6")
}

// A queue takes back what it lent: borrowers are told why and leave through the
// Eviction API.
func TestQueueReclaims(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("poor", 4)
	c.queue("rich", 4)
	c.schedule()
	borrowers := c.several("p", 0, 8, in("poor"), stays)
	c.bound(borrowers...)
	seen := c.watch()
	c.create(pod("owner", asks(4), in("rich")))
	for _, p := range seen.preempted(4) {
		if k := condition(p, v1.DisruptionTarget); !strings.Contains(k.Message, "owner") {
			t.Errorf("%s was evicted because %q; expected for whom", p.Name, k.Message)
		}
		c.kill(p.Name)
	}
	c.bound("owner")
	if got := seen.evicted(v1alpha1.PreemptionReason); len(got) != 4 {
		t.Errorf("these were evicted: %v; expected 4", names(got))
	}
}

// CPU has quotas as GPUs have: jobs without GPUs borrow it, leave for its owner, and the status of the
// queues says who has what. A queue that does not list it has no limit.
func TestQueueResources(t *testing.T) {
	c := begin(t)
	c.node("n")
	owns := func(cpu v1alpha1.Quantity) func(*v1alpha1.Queue) {
		return func(q *v1alpha1.Queue) {
			q.Spec.Quota, q.Spec.Resources = nil, []v1alpha1.ResourceQuota{{Name: "cpu", Nominal: cpu}}
		}
	}
	c.queue("owner", 0, owns("40"))
	c.queue("guest", 0, owns("0"))
	c.queue("free", 8)
	c.schedule(func(k *kube.Config) { k.Policy.Queueing.LendUnowned = false })
	guests := c.several("guest", 0, 4, in("guest"), asks(0), asksCPU("10"), stays)
	c.bound(guests...)
	c.create(pod("more", in("guest"), asks(0), asksCPU("500m")))
	c.waits("more", "QuotaExceeded", "needs 0.5 of cpu: quota 0, in use 40")
	c.create(pod("unlimited", in("free"), asks(1), asksCPU("60")))
	c.bound("unlimited")
	seen := c.watch()
	c.create(pod("owned", in("owner"), asks(0), asksCPU("15500m")))
	for _, p := range seen.preempted(2) {
		c.kill(p.Name)
	}
	c.bound("owned")
	if got := seen.evicted(v1alpha1.PreemptionReason); len(got) != 2 {
		t.Errorf("these were evicted: %v; expected 2", names(got))
	}
	c.bound("more") // 4.5 cores are left
	people, err := console.New(address)
	c.must(err)
	c.until("the status of the queues says who has what", func() error {
		shares, err := people.Shares(ctx(), []string{"owner", "guest"})
		said := ""
		for _, s := range shares {
			if s.Resource != "" {
				said += fmt.Sprintf("%s: %s of %s %s; ", s.Queue, s.Used, s.Nominal, s.Resource)
			}
		}
		if want := "guest: 20500m of 0 cpu; owner: 15500m of 40 cpu; "; err == nil && said != want {
			err = fmt.Errorf("found %q, expected %q", said, want)
		}
		return err
	})
}

// A queue takes back what it lent though a PodDisruptionBudget lets the borrower not
// go, and though that is under two of them. A borrower without a budget goes first.
func TestQueueReclaimsDespiteBudget(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("poor", 0)
	c.queue("rich", 8)
	c.budget(policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1))})
	c.schedule()
	c.create(pod("free", asks(4), in("poor")))
	c.bound("free")
	c.create(pod("held", asks(4), in("poor"), label("app", "serve"))) // it came last: it would go first
	c.bound("held")
	c.phase(v1.PodRunning, "free", "held")
	free, held := c.get("free"), c.get("held")
	c.create(pod("owner", asks(4), in("rich")))
	c.bound("owner")
	c.gone(free)
	if p := c.get("held"); p.UID != held.UID || p.DeletionTimestamp != nil {
		t.Error("a pod was evicted whose budget lets none go, where another would do")
	}
	c.create(pod("second", asks(4), in("rich")))
	c.gone(held)
	c.bound("second")
}

// A queue that takes back what it lent waits for a disruption budget for the time of the policy. Then the pod
// goes despite the budget, and an event says so.
func TestQueueReclaimWaitsForABudget(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("rich", 8)
	c.queue("poor", 0)
	c.budget(policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1))})
	c.schedule(func(k *kube.Config) { k.Policy.Preempt.BudgetTimeout = 8 * core.Second })
	c.create(pod("held", asks(8), in("poor"), label("app", "serve")))
	c.bound("held")
	c.phase(v1.PodRunning, "held")
	held := c.get("held")
	seen := c.watch()
	c.create(pod("owner", asks(4), in("rich")))
	seen.when("waiting for its victim", "owner", func(v version) bool {
		k := condition(v.Pod, v1alpha1.WaitingCondition)
		return k != nil && k.Status == v1.ConditionTrue && k.Reason == "Victims"
	})
	c.gone(held)
	c.bound("owner")
	c.until("an event says that the budget was overridden", func() error {
		list, err := admin.CoreV1().Events(c.namespace).List(ctx(), metav1.ListOptions{FieldSelector: "involvedObject.name=held"})
		for i := range list.Items {
			if e := &list.Items[i]; e.Reason == "Preempted" && strings.Contains(e.Message, "its disruption budget was overridden after 8s") {
				return err
			}
		}
		return fmt.Errorf("the events of the pod do not say it: %v", err)
	})
}

// A queue runs as many jobs as its bounds allow, altogether and of each user: the next one starts when one
// has ended, and jobs of other queues and users do not wait for it.
func TestQueueMaxRunning(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("lab", 8, func(q *v1alpha1.Queue) { q.Spec.MaxRunningJobs, q.Spec.MaxRunningJobsPerUser = 3, 2 })
	c.queue("other", 0)
	c.schedule()
	ann, bob := note(v1alpha1.UserAnnotation, "ann"), note("yunikorn.apache.org/user.info", `{"user": "bob"}`)
	c.create(pod("a1", in("lab"), ann), pod("a2", in("lab"), ann))
	c.bound("a1", "a2")
	c.create(pod("a3", in("lab"), ann))
	c.waits("a3", "MaxRunning", "user ann in queue lab: 2 of at most 2 jobs run")
	c.create(pod("b1", in("lab"), bob), pod("elsewhere", in("other"), ann))
	c.bound("b1", "elsewhere")
	c.create(pod("b2", in("lab"), bob))
	c.waits("b2", "MaxRunning", "queue lab: 3 of at most 3 jobs run")
	c.delete("b1")
	c.bound("b2")
	c.editQueue("lab", func(q *v1alpha1.Queue) { q.Spec.MaxRunningJobs, q.Spec.MaxRunningJobsPerUser = 0, 3 })
	c.bound("a3")
}

// Under fair shares, a queue of higher priority gets what it requests above quota before its siblings.
func TestQueuePriority(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("idle", 8)
	c.queue("low", 0)
	c.queue("high", 0, func(q *v1alpha1.Queue) { q.Spec.Priority = 10 })
	low, high := c.several("low", 0, 8, in("low")), c.several("high", 0, 6, in("high"))
	c.schedule(func(k *kube.Config) { k.Policy.Queueing.FairShare = true })
	c.bound(high...)
	c.bound(low[:2]...)
	c.unbound(low[2])
}

// Under fair shares, queues get what no queue owns or requests by weight, whichever jobs came first, and
// their status says what they are owed.
func TestQueueFairShares(t *testing.T) {
	c := begin(t)
	c.node("n")
	weighs := func(weight int64) func(*v1alpha1.Queue) {
		return func(q *v1alpha1.Queue) { q.Spec.Weight = &weight }
	}
	c.queue("idle", 6)
	c.queue("light", 2, weighs(1))
	c.queue("heavy", 0, weighs(2))
	light, heavy := c.several("light", 0, 8, in("light")), c.several("heavy", 0, 8, in("heavy"))
	c.schedule(func(k *kube.Config) { k.Policy.Queueing.FairShare = true })
	c.bound(light[:4]...) // 2 of its own, and a third of 6
	c.bound(heavy[:4]...)
	c.unbound(light[4])
	c.unbound(heavy[4])
	people, err := console.New(address)
	c.must(err)
	c.until("the status of the queues says what they are owed", func() error {
		shares, err := people.Shares(ctx(), []string{"light", "heavy", "idle"})
		said := ""
		for _, s := range shares {
			if s.Model != "*" {
				said += fmt.Sprintf("%s: %s of %s, %s used; ", s.Queue, s.Owed, s.Requested, s.Used)
			}
		}
		if want := "heavy: 4 of 8, 4 used; light: 4 of 8, 4 used; "; err == nil && said != want {
			err = fmt.Errorf("found %q, expected %q", said, want)
		}
		return err
	})
}

// A job that may not be evicted does not borrow, and says so.
func TestUnpreemptibleBorrowsNothing(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("poor", 2)
	c.queue("rich", 6)
	c.schedule()
	c.create(pod("kept", asks(2), in("poor"), note(v1alpha1.PreemptibleAnnotation, "false")))
	c.bound("kept")
	c.create(pod("locked", asks(2), in("poor"), note(v1alpha1.LockedAnnotation, "true")),
		pod("century", asks(2), in("poor"), note(v1alpha1.MinRuntimeAnnotation, "36500d")))
	for _, name := range []string{"locked", "century"} {
		c.waits(name, "MustNotBorrow", "so must not borrow: 0 left")
	}
	c.create(pod("borrower", asks(6), in("poor")))
	c.bound("borrower")
	c.create(pod("owner", asks(6), in("rich")))
	c.bound("owner")
}

// Two are to leave, and their budget lets one go: the other's eviction is refused,
// and asked for again until it is allowed.
func TestEvictionsThatWait(t *testing.T) {
	c := begin(t)
	c.node("n")
	high := c.priority("e2e-higher", 1000)
	c.budget(policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1))})
	s := c.schedule()
	c.create(pod("a", asks(4), label("app", "serve")), pod("b", asks(4), label("app", "serve")))
	c.bound("a", "b")
	c.phase(v1.PodRunning, "a", "b")
	a, b := c.get("a"), c.get("b")
	c.until("the budget lets one go", func() error {
		k, err := admin.PolicyV1().PodDisruptionBudgets(c.namespace).Get(ctx(), "serve", metav1.GetOptions{})
		if err == nil && k.Status.DisruptionsAllowed != 1 {
			err = fmt.Errorf("it lets %d go", k.Status.DisruptionsAllowed)
		}
		return err
	})
	c.create(pod("strong", asks(8), high))
	c.until("an eviction is refused", func() error { return s.log.has("an eviction must wait") })
	c.unbound("strong")
	c.must(admin.PolicyV1().PodDisruptionBudgets(c.namespace).Delete(ctx(), "serve", metav1.DeleteOptions{}))
	c.gone(a)
	c.gone(b)
	c.bound("strong")
}

// A queue that is not there yet is waited for.
func TestQueueComesLate(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.schedule()
	c.create(pod("p", in("late")))
	c.waits("p", tables.ReasonQueueNotFound, "late")
	c.queue("late", 8)
	c.bound("p")
}

// Namespaces that a queue does not select may not use it, until they are
// labelled so.
func TestQueueForbidden(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("private", 8, func(q *v1alpha1.Queue) {
		q.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	})
	c.schedule()
	c.create(pod("p", in("private")))
	c.waits("p", tables.ReasonQueueForbidden)
	c.unbound("p")
	c.labelNamespace("team", "a")
	c.bound("p")
}

// Pods that name no queue wait in that of their namespace.
func TestQueueOfNamespace(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("small", 2, isolated)
	c.labelNamespace(v1alpha1.QueueLabel, "small")
	c.schedule()
	c.create(pod("p", asks(3)))
	c.waits("p", "ExceedsQuota", "small")
}

// A pod of a higher priority takes the place of others; not of those that may
// not be preempted.
func TestPriority(t *testing.T) {
	c := begin(t)
	c.node("n")
	high := c.priority("e2e-high", 1000)
	c.schedule()
	c.create(pod("weak", asks(4), stays), pod("safe", asks(4), note(v1alpha1.PreemptibleAnnotation, "false")))
	c.bound("weak", "safe")
	seen := c.watch()
	c.create(pod("strong", asks(4), high))
	seen.preempted(1)
	c.kill("weak")
	c.bound("strong")
	if got := seen.evicted(v1alpha1.PreemptionReason); len(got) != 1 || got[0].Name != "weak" {
		t.Errorf("these were evicted: %v; expected weak alone", names(got))
	}
	c.create(pod("stronger", asks(4), high))
	c.waits("stronger", "Resources")
	if c.get("safe").DeletionTimestamp != nil {
		t.Error("a pod that may not be preempted was")
	}
}

// A gang is preempted whole: what is left of it could not run.
func TestPriorityAgainstGang(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	high := c.priority("e2e-high", 1000)
	c.schedule()
	c.group("weak", 4)
	weak := c.several("weak", 0, 4, asks(4), ofGroup("weak"), lingers)
	c.bound(weak...)
	seen := c.watch()
	c.create(pod("strong", asks(8), high))
	c.bound("strong")
	c.until("the whole gang is evicted", func() error { return seen.wantEvicted(4) })
	c.create(pod("another", asks(4)))
	c.bound("another")
}

// The priority of a gang is that of its pods as long as its PodGroup names no
// class of its own.
func TestPriorityOfGang(t *testing.T) {
	c := begin(t)
	c.node("n")
	high := c.priority("e2e-high", 1000)
	c.schedule()
	c.create(pod("weak", asks(8)))
	c.bound("weak")
	c.group("strong", 2)
	c.bound(c.several("strong", 0, 2, asks(4), high, ofGroup("strong"))...)
}
