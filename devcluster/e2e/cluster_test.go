package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/devcluster/fleet"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/translate"
)

// patience is how long a condition may take to become true. Those that hold do
// within a second or two; a machine may have much else to do. No test that passes
// waits for it.
const patience = 2 * time.Minute

// cluster is what a test has of the cluster.
type cluster struct {
	*testing.T
	namespace string
	nodes     []string
	queues    []string
	others    []string // namespaces
	// schedulers are all that were started; scheduler is the last.
	schedulers []*scheduler
	scheduler  *scheduler
}

// begin gives a test a namespace. When the test ends, what it made is audited
// and removed.
func begin(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{T: t}
	c.namespace = c.newNamespace(nil)
	t.Cleanup(c.end)
	return c
}

// newNamespace makes one more namespace, with labels.
func (c *cluster) newNamespace(labels map[string]string) string {
	c.Helper()
	ns, err := admin.CoreV1().Namespaces().Create(ctx(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-", Labels: labels}}, metav1.CreateOptions{})
	c.must(err)
	c.others = append(c.others, ns.Name)
	return ns.Name
}

// end audits the cluster and removes what the test made.
func (c *cluster) end() {
	for _, s := range c.schedulers {
		s.stop()
		c.blame(s)
	}
	if !c.Failed() {
		c.audit()
	} else {
		c.describe()
	}
	for _, ns := range c.others {
		c.must(admin.CoreV1().Namespaces().Delete(ctx(), ns, metav1.DeleteOptions{}))
		// The API server takes a moment to know it. A controller might make a pod until then,
		// which the scheduler of the next test would find.
		c.until("the namespace takes no more pods", func() error {
			_, err := admin.CoreV1().Pods(ns).Create(ctx(), pod("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
				return nil
			}
			return fmt.Errorf("it answers %v", err)
		})
	}
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	for _, ns := range c.others {
		// A Job that is there keeps its failed pods by a finalizer until it has replaced them, which it cannot here.
		c.must(admin.BatchV1().Jobs(ns).DeleteCollection(ctx(), metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}, metav1.ListOptions{}))
		// The namespace controller goes about it with the pods' grace.
		c.until("the pods are gone", func() error {
			list, err := admin.CoreV1().Pods(ns).List(ctx(), metav1.ListOptions{})
			if err != nil || len(list.Items) == 0 {
				return err
			}
			if err := admin.CoreV1().Pods(ns).DeleteCollection(ctx(), now, metav1.ListOptions{}); err != nil {
				return err
			}
			return fmt.Errorf("%d are there", len(list.Items))
		})
	}
	for _, n := range c.nodes {
		if err := admin.CoreV1().Nodes().Delete(ctx(), n, now); !apierrors.IsNotFound(err) {
			c.must(err)
		}
	}
	for _, q := range slices.Backward(c.queues) {
		if err := muster.Delete().Resource("queues").Name(q).Do(ctx()).Error(); !apierrors.IsNotFound(err) {
			c.must(err)
		}
	}
}

// blame fails the test when a scheduler said that its tables are wrong, or that it
// may not do what it has to.
func (c *cluster) blame(s *scheduler) {
	c.Helper()
	for line := range strings.Lines(s.log.String()) {
		if strings.Contains(line, "these counts are lost when the scheduler ends") {
			continue // what it says where the chart does not let it write on nodes
		}
		for _, fault := range []string{"the engine refused an event", "cannot rebuild the engine", "is forbidden"} {
			if strings.Contains(line, fault) {
				c.Errorf("the scheduler said that %s: %s", fault, line)
			}
		}
	}
	if c.Failed() {
		c.Logf("the scheduler said:\n%s", s.log)
	}
}

// describe says how the pods are, for those who look for a fault.
func (c *cluster) describe() {
	for _, ns := range c.others {
		list, err := admin.CoreV1().Pods(ns).List(ctx(), metav1.ListOptions{})
		if err != nil {
			c.Log(err)
			continue
		}
		for i := range list.Items {
			if i == 20 {
				c.Logf("and %d more", len(list.Items)-i)
				break
			}
			p := &list.Items[i]
			c.Logf("pod %s on %q %s %v", p.Name, p.Spec.NodeName, p.Status.Phase, p.Annotations)
			for _, k := range p.Status.Conditions {
				if k.Message != "" {
					c.Logf("  %s=%s %s: %s", k.Type, k.Status, k.Reason, k.Message)
				}
			}
		}
	}
}

func ctx() context.Context { return context.Background() }

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// until waits until check returns nil; the test fails with what it returned
// last.
func (c *cluster) until(what string, check func() error) {
	c.Helper()
	c.within(patience, what, check)
}

// within is until with a patience of its own.
func (c *cluster) within(patience time.Duration, what string, check func() error) {
	c.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.Fatalf("it never came to be that %s: %v", what, err)
		}
	}
}

// Nodes.

// node makes a node that is ready, of eight H800 unless an option says
// otherwise.
func (c *cluster) node(name string, options ...func(*v1.Node)) {
	c.Helper()
	room := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("128"), v1.ResourceMemory: resource.MustParse("1Ti"),
		v1.ResourcePods: resource.MustParse("250"), v1alpha1.GPUResource: resource.MustParse("8"),
	}
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			v1.LabelHostname: name, v1alpha1.ProductLabel: "NVIDIA-H800", "nvidia.com/gpu.count": "8",
		}},
		Status: v1.NodeStatus{
			Capacity: room, Allocatable: room.DeepCopy(),
			Addresses:  []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "172.16.0.1"}},
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}
	for _, o := range options {
		o(n)
	}
	_, err := admin.CoreV1().Nodes().Create(ctx(), n, metav1.CreateOptions{})
	c.must(err)
	c.nodes = append(c.nodes, name)
}

// nodesNamed makes several nodes alike: prefix0, prefix1…
func (c *cluster) nodesNamed(prefix string, n int, options ...func(*v1.Node)) {
	c.Helper()
	for i := range n {
		c.node(fmt.Sprintf("%s%d", prefix, i), options...)
	}
}

// gpus of a node: how many, of what model.
func gpus(n int, model string) func(*v1.Node) {
	return func(o *v1.Node) {
		o.Labels[v1alpha1.ProductLabel], o.Labels["nvidia.com/gpu.count"] = "NVIDIA-"+model, fmt.Sprint(n)
		q := *resource.NewQuantity(int64(n), resource.DecimalSI)
		o.Status.Capacity[v1alpha1.GPUResource], o.Status.Allocatable[v1alpha1.GPUResource] = q, q
	}
}

// mixed lets a node have pods that its device plugin counts beside others that have GPUs.
func mixed(o *v1.Node) { o.Labels[v1alpha1.GPUSharingLabel] = v1alpha1.GPUSharingMixed }

// inLeaf says in which leaf of the network a node is.
func inLeaf(name string) func(*v1.Node) {
	return func(o *v1.Node) { o.Labels[leafLabel] = name }
}

// leafLabel is the node label of the one level that tests have.
const leafLabel = "network.topology.nvidia.com/leaf"

// editNode changes a node.
func (c *cluster) editNode(name string, edit func(*v1.Node)) {
	c.Helper()
	c.until("node "+name+" is edited", func() error {
		n, err := admin.CoreV1().Nodes().Get(ctx(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(n)
		_, err = admin.CoreV1().Nodes().Update(ctx(), n, metav1.UpdateOptions{})
		return err
	})
}

// Queues.

// queue makes a queue with so many GPUs of its own, of any model; options
// change it first.
func (c *cluster) queue(name string, nominal int, options ...func(*v1alpha1.Queue)) {
	c.Helper()
	q := &v1alpha1.Queue{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.Version, Kind: "Queue"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.QueueSpec{Quota: []v1alpha1.Quota{{Model: "*", Nominal: v1alpha1.GPUs(1000 * nominal)}}},
	}
	for _, o := range options {
		o(q)
	}
	c.must(muster.Post().Resource("queues").Body(q).Do(ctx()).Error())
	c.queues = append(c.queues, name)
}

// borrows limits what a queue borrows.
func borrows(most int) func(*v1alpha1.Queue) {
	return func(q *v1alpha1.Queue) { q.Spec.Quota[0].BorrowingLimit = ptr.To(v1alpha1.GPUs(1000 * most)) }
}

func isolated(q *v1alpha1.Queue) { q.Spec.Mode = "Isolated" }

func (c *cluster) editQueue(name string, edit func(*v1alpha1.Queue)) {
	c.Helper()
	c.until("queue "+name+" is edited", func() error {
		q := &v1alpha1.Queue{}
		if err := muster.Get().Resource("queues").Name(name).Do(ctx()).Into(q); err != nil {
			return err
		}
		edit(q)
		return muster.Put().Resource("queues").Name(name).Body(q).Do(ctx()).Error()
	})
}

// Pods.

// pod describes a pod for Muster with one GPU, which runs until it is deleted,
// unless options say otherwise.
func pod(name string, options ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: v1.PodSpec{
			SchedulerName: v1alpha1.SchedulerName, RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers: []v1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10"}},
		},
	}
	asks(1)(p)
	for _, o := range options {
		o(p)
	}
	return p
}

// asks has a pod ask for whole GPUs.
func asks(n int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		list := v1.ResourceList{v1alpha1.GPUResource: *resource.NewQuantity(int64(n), resource.DecimalSI)}
		if n == 0 {
			list = nil
		}
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
	}
}

// label and note set a label and an annotation.
func label(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Labels[key] = value }
}

func note(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations[key] = value }
}

// in says in which queue a pod waits.
func in(queue string) func(*v1.Pod) { return label(v1alpha1.QueueLabel, queue) }

// ofGroup makes a pod one of a native PodGroup.
func ofGroup(name string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name} }
}

// runsFor has the simulated node end a pod by itself.
func runsFor(d time.Duration) func(*v1.Pod) { return note(translate.SimulatedDuration, d.String()) }

// lingers has a pod take a part of its grace to end when it is deleted.
func lingers(p *v1.Pod) {
	p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	p.Annotations[fleet.Termination] = "2s" // times in the API are whole seconds
}

// stays has a pod not end by itself when it is deleted, so that what it is told can be
// seen: the test kills it.
func stays(p *v1.Pod) {
	p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](600)
	p.Annotations[fleet.Termination] = "1h"
}

// create creates pods.
func (c *cluster) create(pods ...*v1.Pod) {
	c.Helper()
	for _, p := range pods {
		_, err := admin.CoreV1().Pods(c.namespace).Create(ctx(), p, metav1.CreateOptions{})
		c.must(err)
	}
}

// several creates pods alike, name-0, name-1…, from first on, and returns their
// names.
func (c *cluster) several(name string, first, n int, options ...func(*v1.Pod)) []string {
	c.Helper()
	var names []string
	for i := first; i < first+n; i++ {
		p := pod(fmt.Sprintf("%s-%d", name, i), options...)
		c.create(p)
		names = append(names, p.Name)
	}
	return names
}

// group creates a native PodGroup that needs so many pods.
func (c *cluster) group(name string, least int, options ...func(*schedulingv1beta1.PodGroup)) {
	c.Helper()
	g := &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: schedulingv1beta1.PodGroupSpec{SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{
			Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(least)},
		}},
	}
	for _, o := range options {
		o(g)
	}
	_, err := admin.SchedulingV1beta1().PodGroups(c.namespace).Create(ctx(), g, metav1.CreateOptions{})
	c.must(err)
}

func (c *cluster) delete(pods ...string) {
	c.Helper()
	for _, p := range pods {
		c.must(admin.CoreV1().Pods(c.namespace).Delete(ctx(), p, metav1.DeleteOptions{}))
	}
}

func (c *cluster) get(name string) *v1.Pod {
	c.Helper()
	p, err := admin.CoreV1().Pods(c.namespace).Get(ctx(), name, metav1.GetOptions{})
	c.must(err)
	return p
}

// podsWith lists the pods that have a label of that value.
func (c *cluster) podsWith(key, value string) []v1.Pod {
	c.Helper()
	list, err := admin.CoreV1().Pods(c.namespace).List(ctx(), metav1.ListOptions{LabelSelector: key + "=" + value})
	c.must(err)
	return list.Items
}

// bound waits until pods have nodes, and returns the nodes in the same order.
func (c *cluster) bound(names ...string) []string {
	c.Helper()
	nodes := make([]string, len(names))
	c.until("these are bound: "+strings.Join(names, " "), func() error {
		for i, name := range names {
			p, err := admin.CoreV1().Pods(c.namespace).Get(ctx(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if nodes[i] = p.Spec.NodeName; nodes[i] == "" {
				return fmt.Errorf("%s is not", name)
			}
		}
		return nil
	})
	return nodes
}

// unbound fails the test when one of the pods has a node.
func (c *cluster) unbound(names ...string) {
	c.Helper()
	for _, name := range names {
		if n := c.get(name).Spec.NodeName; n != "" {
			c.Errorf("%s is on %s; it should have none", name, n)
		}
	}
}

// waits waits until a pod is said to wait for a reason, with all these texts in what
// is said with it.
func (c *cluster) waits(name, reason string, says ...string) {
	c.Helper()
	c.until(name+" waits for "+reason, func() error {
		p, err := admin.CoreV1().Pods(c.namespace).Get(ctx(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		k := condition(p, v1alpha1.WaitingCondition)
		if k == nil || k.Status != v1.ConditionTrue || k.Reason != reason || !saysAll(k.Message, says) {
			return fmt.Errorf("its condition is %+v; expected in it: %q", k, says)
		}
		return nil
	})
}

func saysAll(message string, texts []string) bool {
	return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(message, text) })
}

func condition(p *v1.Pod, kind v1.PodConditionType) *v1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == kind {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// groupIs waits until a condition of a PodGroup has a status and a reason, with all
// these texts in what is said with it.
func (c *cluster) groupIs(name, kind string, status metav1.ConditionStatus, reason string, says ...string) {
	c.Helper()
	c.until(fmt.Sprintf("PodGroup %s is %s=%s", name, kind, status), func() error {
		g, err := admin.SchedulingV1beta1().PodGroups(c.namespace).Get(ctx(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		k := meta.FindStatusCondition(g.Status.Conditions, kind)
		if k == nil || k.Status != status || k.Reason != reason || !saysAll(k.Message, says) {
			return fmt.Errorf("it is %+v; expected in it: %q", k, says)
		}
		return nil
	})
}

// phase waits until pods are in a phase.
func (c *cluster) phase(phase v1.PodPhase, names ...string) {
	c.Helper()
	for _, name := range names {
		c.until(name+" is "+string(phase), func() error {
			p, err := admin.CoreV1().Pods(c.namespace).Get(ctx(), name, metav1.GetOptions{})
			if err == nil && p.Status.Phase != phase {
				err = fmt.Errorf("it is %s", p.Status.Phase)
			}
			return err
		})
	}
}

// gone waits until pods are there no more, or others of their name.
func (c *cluster) gone(pods ...*v1.Pod) {
	c.Helper()
	for _, old := range pods {
		c.until(old.Name+" is gone", func() error {
			p, err := admin.CoreV1().Pods(c.namespace).Get(ctx(), old.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) || err == nil && p.UID != old.UID {
				return nil
			}
			return errors.Join(err, errors.New("it is there"))
		})
	}
}

// The scheduler.

// scheduler is a running scheduler of a test.
type scheduler struct {
	*kube.Scheduler
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
	log    *record
}

// schedule starts the scheduler, with options, and waits until it decides.
func (c *cluster) schedule(options ...func(*kube.Config)) *scheduler {
	c.Helper()
	s := c.start(options...)
	select {
	case <-s.Ready():
	case <-s.ended:
		c.Fatalf("the scheduler ended: %v", s.err)
	case <-time.After(patience):
		c.Fatal("the scheduler is not ready")
	}
	return s
}

// start starts a scheduler; the last one started is stopped when the test ends.
func (c *cluster) start(options ...func(*kube.Config)) *scheduler {
	c.Helper()
	doc, _ := policy.ByName("default")
	s := &scheduler{ended: make(chan struct{}), log: &record{}}
	config := kube.Config{
		API: rest.CopyConfig(identity), Policy: doc.Policy, Levels: []translate.Level{{Name: "leaf", Label: leafLabel}},
		Log: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	// Tests make victims that have just begun.
	config.Policy.Preempt.MinRuntime, config.Policy.Preempt.Interval = 0, 0
	for _, o := range options {
		o(&config)
	}
	var err error
	s.Scheduler, err = kube.New(config)
	c.must(err)
	var running context.Context
	running, s.cancel = context.WithCancel(ctx())
	go func() {
		defer close(s.ended)
		s.err = s.Run(running)
	}()
	c.schedulers, c.scheduler = append(c.schedulers, s), s
	return s
}

// stop ends the scheduler and waits until it has.
func (s *scheduler) stop() {
	s.cancel()
	<-s.ended
}

// record keeps the log of a scheduler.
type record struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}

// has returns an error unless the log has a text.
func (r *record) has(text string) error {
	if !strings.Contains(r.String(), text) {
		return fmt.Errorf("the scheduler has not said %q", text)
	}
	return nil
}

// labelNamespace labels the test's namespace.
func (c *cluster) labelNamespace(key, value string) {
	c.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	_, err := admin.CoreV1().Namespaces().Patch(ctx(), c.namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	c.must(err)
}

// priority makes a priority class for the time of the test, and returns what
// gives it to a pod.
func (c *cluster) priority(name string, value int32) func(*v1.Pod) {
	c.Helper()
	classes := admin.SchedulingV1().PriorityClasses()
	_, err := classes.Create(ctx(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}, metav1.CreateOptions{})
	c.must(err)
	// The API server takes a moment to know it, and to forget it before another test makes one
	// of this name.
	known := func() error {
		p := pod("probe", withPriority(name))
		_, err := admin.CoreV1().Pods(c.namespace).Create(ctx(), p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	c.Cleanup(func() {
		c.must(classes.Delete(ctx(), name, metav1.DeleteOptions{}))
		c.until("the priority class is forgotten", func() error {
			if known() == nil {
				return errors.New("it is known")
			}
			return nil
		})
	})
	c.until("the priority class is known", known)
	return withPriority(name)
}

func withPriority(class string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.PriorityClassName = class }
}
