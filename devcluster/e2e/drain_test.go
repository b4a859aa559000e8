package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/console"
	"github.com/muster-sched/muster/kube/translate"
)

// A node is drained without the Deployment ever having fewer pods ready than it
// wants, where a budget that lets none go would have held up any eviction.
func TestDrainMakesBeforeBreak(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 3)
	c.schedule()
	s := c.service(3)
	c.budget(policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(0))})
	c.node("free")
	old := s.on("n0")
	c.must(c.drain("n0", patience))
	if p := s.replaced(old, "free"); translate.MoveOf(p) != nil {
		t.Errorf("the new pod is %+v", p.ObjectMeta)
	}
	if n, err := admin.CoreV1().Nodes().Get(ctx(), "n0", metav1.GetOptions{}); err != nil || !n.Spec.Unschedulable || n.Annotations[v1alpha1.DrainAnnotation] != "" {
		t.Errorf("the node is left as %+v, %v", n, err)
	}
}

// Without room for another the pod stays, its owner's as before and running; when
// there is room it leaves. It is drained again, with a short time, when the
// pod says what the other lacks: to say so takes the controllers and the scheduler as
// long as the machine is busy.
func TestDrainWithoutRoom(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 3)
	c.schedule()
	s := c.service(3)
	old := s.on("n1")
	drained := c.draining("n1", time.Hour)
	c.until("the pod says what the other lacks", func() error {
		if k := condition(c.get(old.Name), v1alpha1.MovingCondition); k == nil || k.Reason != v1alpha1.MovingReplacing || !strings.Contains(k.Message, "Resources") {
			return fmt.Errorf("it says %+v", k)
		}
		return nil
	})
	err := c.drain("n1", time.Second)
	if err == nil || !strings.Contains(err.Error(), "some pods were not replaced in time: node n1 is not drained; pods left: "+c.namespace+"/"+old.Name) {
		t.Fatalf("the drain ended with %v", err)
	}
	if err := <-drained; err == nil || !strings.Contains(err.Error(), "the drain was changed by someone else") {
		t.Errorf("the drain before it ended with %v", err)
	}
	c.until("all is as before", func() error {
		pods := c.podsWith("app", "serve")
		p := c.get(old.Name)
		o := metav1.GetControllerOf(p)
		if len(pods) != 3 || p.UID != old.UID || o == nil || o.UID != metav1.GetControllerOf(old).UID ||
			p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != old.Labels[appsv1.DefaultDeploymentUniqueLabelKey] || p.DeletionTimestamp != nil {
			return fmt.Errorf("there are %d pods; the old one is %+v", len(pods), p.ObjectMeta)
		}
		return nil
	})
	if k := condition(c.get(old.Name), v1alpha1.MovingCondition); k == nil || k.Status != v1.ConditionFalse || k.Reason != v1alpha1.MovingNotReplaced || !strings.Contains(k.Message, "Resources") {
		t.Errorf("the pod says %+v", k)
	}
	s.neverFewer()

	c.node("free")
	c.must(c.drain("n1", patience))
	s.replaced(old, "free")
}

// A pod of a locked job stays on a node that is drained, and says so; the others leave.
func TestDrainLocked(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.schedule()
	c.create(pod("stays", note(v1alpha1.LockedAnnotation, "true")), pod("leaves"))
	c.bound("stays", "leaves")
	leaves := c.get("leaves")
	err := c.drain("n", patience)
	if err == nil || !strings.Contains(err.Error(), "locked pods stay: node n is not drained; pods left: "+c.namespace+"/stays") {
		t.Fatalf("the drain ended with %v", err)
	}
	c.gone(leaves)
	p := c.get("stays")
	if k := condition(p, v1alpha1.MovingCondition); k == nil || k.Status != v1.ConditionFalse || k.Reason != v1alpha1.MovingLocked || p.DeletionTimestamp != nil {
		t.Errorf("the pod is deleted at %v, and says %+v", p.DeletionTimestamp, k)
	}
}

// A scheduler that is killed while a pod is out of its owner's hands, once while
// there is no other and once while a budget holds it, leaves it to the next.
func TestDrainKilled(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	p := c.process()
	s := c.service(2)
	old := s.on("n0")
	drained := c.draining("n0", patience)
	c.moving(old, v1alpha1.MovingReplacing)
	p.kill()
	c.node("free")
	c.budget(policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(3))})
	p = c.process()
	c.moving(old, v1alpha1.MovingBudget)
	p.kill()
	s.neverFewer()
	c.must(admin.PolicyV1().PodDisruptionBudgets(c.namespace).Delete(ctx(), "serve", metav1.DeleteOptions{}))
	p = c.process()
	defer p.interrupt()
	c.must(<-drained)
	s.replaced(old, "free")
}

// A pod that was taken out of its owner's hands is given back when the node is
// opened again, and it is nobody's pod but the owner's.
func TestDrainTakenBack(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	c.schedule()
	s := c.service(2)
	old := s.on("n0")
	drained := c.draining("n0", patience)
	c.moving(old, v1alpha1.MovingReplacing)
	c.uncordon("n0")
	if err := <-drained; err == nil || !strings.Contains(err.Error(), "the drain was changed by someone else") {
		t.Errorf("the drain ended with %v", err)
	}
	c.moving(old, v1alpha1.MovingCancelled)
	c.until("its owner has it back, and no other", func() error {
		if pods := c.podsWith("app", "serve"); len(pods) != 2 {
			return fmt.Errorf("there are %d pods", len(pods))
		}
		if o := metav1.GetControllerOf(c.get(old.Name)); o == nil {
			return errors.New("it has no owner")
		}
		return nil
	})
	s.neverFewer()
}

// With a bad cable and restarts, nodes that are drained one after the other, with room
// for others and without, leave no pod that is nobody's and never too few.
func TestDrainChaos(t *testing.T) {
	c := begin(t)
	bad := &cable{rng: rand.New(rand.NewPCG(9, 1)), counts: map[string]int{}}
	chaotic := func(k *kube.Config) { k.API = throughCable(k.API, bad) }
	c.nodesNamed("n", 4)
	c.schedule(chaotic)
	// A scheduler that ends, for it could not reach the API at the start, is followed by another.
	living := func(check func() error) func() error {
		return func() error {
			select {
			case <-c.scheduler.ended:
				c.start(chaotic)
			default:
			}
			return check()
		}
	}
	s := c.service(3)
	whole := func() error {
		pods := c.podsWith("app", "serve")
		for i := range pods {
			if p := &pods[i]; metav1.GetControllerOf(p) == nil || translate.MoveOf(p).Active() || p.Spec.NodeName == "" || p.DeletionTimestamp != nil {
				return fmt.Errorf("%s is %v on %q", p.Name, p.ObjectMeta, p.Spec.NodeName)
			}
		}
		if len(pods) != 3 {
			return fmt.Errorf("there are %d", len(pods))
		}
		return nil
	}
	bad.bad.Store(200)
	for round := range 5 {
		spare := round%3 != 0 // else there is no room
		if !spare {
			c.until("the pods of the round before are gone", living(whole))
		}
		node := ""
		for _, p := range c.podsWith("app", "serve") {
			if p.Spec.NodeName != "" {
				node = p.Spec.NodeName
			}
		}
		if !spare {
			c.create(pod("taken", asks(8), func(p *v1.Pod) { p.Spec.NodeName = c.freeNode() }))
		}
		drained := c.draining(node, 2*time.Second)
		if round%2 == 1 {
			c.until("a pod is out of its owner's hands", living(func() error {
				if pods := c.podsWith(v1alpha1.MovingLabel, "true"); len(pods) == 0 && len(drained) == 0 {
					return errors.New("none is")
				}
				return nil
			}))
			c.scheduler.stop()
			c.start(chaotic)
		}
		c.until("the drain ends", living(func() error {
			if len(drained) == 0 {
				return errors.New("it goes on")
			}
			return nil
		}))
		if err := <-drained; err == nil && !spare {
			t.Error("a node was drained though there was no room")
		}
		c.uncordon(node)
		if !spare {
			c.kill("taken")
		}
	}
	bad.bad.Store(0)
	c.until("all are the owner's, and none too many", living(whole))
	s.neverFewer()
}

// freeNode returns a node that is open and has no pod.
func (c *cluster) freeNode() string {
	c.Helper()
	used := map[string]bool{}
	list, err := admin.CoreV1().Pods(c.namespace).List(ctx(), metav1.ListOptions{})
	c.must(err)
	for _, p := range list.Items {
		used[p.Spec.NodeName] = true
	}
	for _, n := range c.nodes {
		if !used[n] {
			return n
		}
	}
	c.Fatal("no node is free")
	return ""
}

// A Job whose pods are all on the node is suspended and comes again elsewhere,
// without a pod that failed.
func TestDrainJob(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.schedule()
	c.job("work", &batchv1.JobSpec{Parallelism: ptr.To[int32](2), Completions: ptr.To[int32](2), Template: podTemplate(lingers)})
	c.runs("work", 2, "n")
	c.node("free")
	c.must(c.drain("n", patience))
	c.runs("work", 2, "free")
	j, err := admin.BatchV1().Jobs(c.namespace).Get(ctx(), "work", metav1.GetOptions{})
	c.must(err)
	if j.Status.Failed > 0 || *j.Spec.Suspend {
		t.Errorf("%d pods failed, suspended: %v", j.Status.Failed, *j.Spec.Suspend)
	}
}

// A gang that would keep too few leaves whole, and its pods are not told that they
// were preempted.
func TestDrainGang(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	c.schedule()
	seen := c.watch()
	c.group("train", 2)
	pods := c.several("train", 0, 2, asks(8), ofGroup("train"))
	c.bound(pods...)
	first, second := c.get(pods[0]), c.get(pods[1])
	c.must(c.drain(first.Spec.NodeName, patience))
	c.gone(first, second)
	if list := seen.evicted(v1alpha1.PreemptionReason); len(list) > 0 {
		t.Errorf("%v were preempted", names(list))
	}
}

// runs waits until so many pods of a Job run, all on a node.
func (c *cluster) runs(job string, n int, node string) {
	c.Helper()
	c.until(fmt.Sprintf("%d pods of %s run on %s", n, job, node), func() error {
		got := 0
		for _, p := range c.podsWith(batchv1.JobNameLabel, job) {
			if p.Status.Phase == v1.PodRunning && p.Spec.NodeName == node && p.DeletionTimestamp == nil {
				got++
			}
		}
		if got != n {
			return fmt.Errorf("%d do", got)
		}
		return nil
	})
}

// drain drains a node as people do; a pod may take so long to be replaced.
func (c *cluster) drain(node string, replace time.Duration) error {
	people, err := console.New(address)
	if err != nil {
		return err
	}
	whole, stop := context.WithTimeout(ctx(), 3*patience)
	defer stop()
	return people.Drain(whole, console.Drain{
		Node: node, Replace: replace, Pause: 50 * time.Millisecond, Idle: patience, Tell: func(line string) { c.Log(line) },
	})
}

// draining drains a node beside the test, which is told how that ended.
func (c *cluster) draining(node string, replace time.Duration) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- c.drain(node, replace) }()
	return ended
}

func (c *cluster) uncordon(node string) {
	c.Helper()
	people, err := console.New(address)
	c.must(err)
	c.must(people.Uncordon(ctx(), node))
}

// moving waits until a pod says why it has not left yet, or stays.
func (c *cluster) moving(p *v1.Pod, reason string) {
	c.Helper()
	c.until(p.Name+" says "+reason, func() error {
		if k := condition(c.get(p.Name), v1alpha1.MovingCondition); k == nil || k.Reason != reason {
			return fmt.Errorf("it says %+v", k)
		}
		return nil
	})
}

// budget makes a disruption budget for the service, and waits until it holds.
func (c *cluster) budget(spec policyv1.PodDisruptionBudgetSpec) {
	c.Helper()
	spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "serve"}}
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "serve"}, Spec: spec}
	budgets := admin.PolicyV1().PodDisruptionBudgets(c.namespace)
	_, err := budgets.Create(ctx(), b, metav1.CreateOptions{})
	c.must(err)
	c.until("the budget holds", func() error {
		b, err := budgets.Get(ctx(), "serve", metav1.GetOptions{})
		if err == nil && b.Status.ObservedGeneration < b.Generation {
			err = errors.New("it has not been looked at")
		}
		return err
	})
}

// service is a Deployment of pods that take a node each, and what a Service would
// have of them.
type service struct {
	*cluster
	name   string
	mu     sync.Mutex
	wanted int
	ready  map[types.UID]bool
	fewest int // that were ready at any time since all were
}

// service makes the Deployment serve and waits until all of it is ready.
func (c *cluster) service(replicas int32, with ...func(*v1.Pod)) *service {
	c.Helper()
	return c.deployment("serve", replicas, with...)
}

// deployment is service for another name.
func (c *cluster) deployment(name string, replicas int32, with ...func(*v1.Pod)) *service {
	c.Helper()
	template := podTemplate(append([]func(*v1.Pod){label("app", name), asks(8)}, with...)...)
	template.Spec.RestartPolicy = v1.RestartPolicyAlways
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	_, err := admin.AppsV1().Deployments(c.namespace).Create(ctx(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	c.must(err)
	s := &service{cluster: c, name: name, wanted: int(replicas), ready: map[types.UID]bool{}, fewest: int(replicas)}
	version := ""
	c.until("the Deployment is ready", func() error {
		list, err := admin.CoreV1().Pods(c.namespace).List(ctx(), metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		clear(s.ready)
		for i := range list.Items {
			s.note(&list.Items[i], false)
		}
		if version = list.ResourceVersion; len(s.ready) != int(replicas) {
			return fmt.Errorf("%d pods are", len(s.ready))
		}
		return nil
	})
	c.follow("app="+name, version, func(p *v1.Pod, gone bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.note(p, gone)
		s.fewest = min(s.fewest, len(s.ready))
	})
	return s
}

// note takes in a pod as it is: requests are sent to those that are ready and not
// told to end.
func (s *service) note(p *v1.Pod, gone bool) {
	k := condition(p, v1.PodReady)
	if gone || p.DeletionTimestamp != nil || k == nil || k.Status != v1.ConditionTrue {
		delete(s.ready, p.UID)
		return
	}
	s.ready[p.UID] = true
}

// on returns the pod of the service that is on a node.
func (s *service) on(node string) *v1.Pod {
	s.Helper()
	pods := s.podsWith("app", s.name)
	for i := range pods {
		if pods[i].Spec.NodeName == node && pods[i].DeletionTimestamp == nil {
			return &pods[i]
		}
	}
	s.Fatalf("no pod of the service is on %s", node)
	return nil
}

// replaced waits until a pod is gone, and returns the one in its place on another node.
// There were never too few.
func (s *service) replaced(old *v1.Pod, node string) *v1.Pod {
	s.Helper()
	s.gone(old)
	p := s.on(node)
	s.neverFewer()
	return p
}

// neverFewer fails the test when at any time fewer pods were ready than wanted.
func (s *service) neverFewer() {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fewest < s.wanted {
		s.Errorf("at a time %d pods of the service were ready; expected %d", s.fewest, s.wanted)
	}
}
