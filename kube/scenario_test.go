package kube_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/coretest"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/local"
	"github.com/muster-sched/muster/kube/translate"
)

// scenarios is the folder of the engine's scenarios.
const scenarios = "../coretest/testdata"

// beyond are the scenarios that cannot be played on a cluster, by why. Beside
// these a cluster decides what the engine alone decides.
var beyond = map[string][]string{
	"a gang that lost a pod is stopped as that is seen, not by a decision, and pauses from when all of it has left": {
		"gang/broken_while_others_leave.txt", "gang/elastic_task_fails.txt", "gang/least_pods_fail.txt", "preemption/after_a_broken_gang.txt",
		"requeue/failed_pod.txt", "stale/start_fails.txt",
	},
	"a job does not pause for a pod that failed: when there is another is up to its owner": {
		"members/gang_grows_and_one_fails.txt", "requeue/keeps_its_place.txt", "standby/owner.txt", "stale/failed_pod.txt",
	},
	"an evicted job whose pods are all gone is a new one, which does not know of its eviction": {
		"requeue/evicted_last.txt", "requeue/evicted_pod_last.txt",
	},
	"on Kubernetes, several affinities of a pod mean the pods that all of them select": {"topology/levels.txt"},
	"a gang that has too few pods to start is not the engine's: it collects": {
		"members/withdrawn.txt", "members/withdrawn_from_too_few.txt", "stale/evicted_whole.txt", "stale/no_room_for_the_new_pod.txt",
	},
	"what is not known after a restart is since when a gang has had too few pods": {"stale/found.txt"},
	"what an engine before this one counted is written by that one":               {"queueing/longterm_nothing.txt", "queueing/longterm_restart.txt", "queueing/longterm_restart_halflife.txt"},
	"how many pods a gang needs does not change while it runs":                    {"members/gang_starts_anew_with_a_role.txt"},
	"which GPUs a pod accepts is said by selectors of its claims, which a scenario has none of: see kube/devices": {
		"sets/evict.txt", "sets/found.txt", "sets/gang.txt", "sets/links.txt", "sets/one.txt", "sets/several.txt", "sets/standby.txt", "sets/unhealthy.txt",
	},
	"affinities of a pod do not change":                  {"placement/affinities_change.txt"},
	"it is about events that the engine refuses":         {"refused/absurd.txt", "refused/events.txt", "standby/refused.txt", "migration/restart_refused.txt"},
	"it has more pods than are made on an API in a test": {"amounts/huge.txt"},
	"pods of which one is enough are no gang": {
		"gang/rest_of_alike.txt", "members/gang_grows_and_one_is_evicted.txt", "nodes/moved.txt", "nodes/moved_while_others_leave.txt",
		"placement/even_models.txt", "preemption/elastic_one_by_one.txt",
	},
	"a DRA driver that publishes its first device has the engine built again, and plans made again": {"preemption/quota_uncordoned.txt"},
	"only pods that a controller replaces move on a cluster, and those of a scenario have none": {
		"migration/affinity.txt", "migration/defrag.txt", "migration/defrag_benefit.txt", "migration/defrag_broken.txt", "migration/defrag_budget.txt", "migration/defrag_in_vain.txt", "migration/defrag_moved.txt", "migration/defrag_together.txt", "migration/defrag_shielded.txt", "migration/defrag_waves.txt", "migration/gang_breaks.txt", "migration/found.txt", "migration/gang.txt", "migration/held_places.txt", "migration/lent.txt", "migration/zone.txt", "migration/moves.txt", "consolidation/move.txt", "consolidation/waves.txt", "consolidation/waves_bound.txt", "consolidation/waves_cost.txt", "consolidation/waves_ends.txt", "consolidation/waves_fail.txt", "consolidation/waves_gang.txt", "consolidation/waves_upset.txt", "consolidation/near.txt", "consolidation/pauses.txt", "consolidation/stays.txt", "consolidation/tasks.txt", "consolidation/standby.txt", "migration/spread.txt", "migration/nodes.txt",
		"migration/pod_ends.txt", "migration/quota.txt", "migration/refused.txt", "migration/strict.txt", "migration/victims.txt",
	},
	"only pods that an owner makes again restart elsewhere on a cluster, and those of a scenario have none": {
		"consolidation/bound.txt", "consolidation/bound_gang.txt", "consolidation/budget.txt", "consolidation/failed_restart.txt", "consolidation/partly.txt", "consolidation/pieces_budget.txt", "consolidation/cost.txt", "consolidation/cost_sum.txt", "consolidation/devices.txt", "consolidation/domain.txt", "consolidation/exposed.txt", "consolidation/gang.txt",
		"consolidation/labels.txt", "consolidation/larger.txt", "consolidation/lent.txt", "consolidation/pieces.txt", "consolidation/pieces_cheapest.txt", "consolidation/pieces_model.txt", "consolidation/pieces_quota.txt", "consolidation/pieces_young.txt", "consolidation/pieces_spare.txt", "consolidation/pieces_turn.txt", "consolidation/pods.txt", "consolidation/restart.txt",
		"consolidation/searches.txt", "consolidation/in_turn.txt", "consolidation/tenants.txt", "consolidation/who.txt", "migration/restart.txt",
		"migration/defrag_restarts.txt", "migration/defrag_restarts_all.txt", "migration/defrag_restarts_cost.txt", "migration/defrag_restarts_gang.txt", "migration/defrag_restarts_pods.txt", "migration/defrag_restarts_waves.txt", "migration/defrag_restarts_who.txt", "requeue/restarted.txt",
	},
	"a GPU fails as a DRA driver says it, and pods that ask Muster alone for GPUs are not on such nodes": {"standby/nodes.txt"},
	"pods of a scenario have no logs, and whether there is another one for a pod that failed is up to its owner": {
		"recovery/alternating.txt", "recovery/caps.txt", "recovery/comes_back.txt", "recovery/dry_run.txt", "recovery/elsewhere.txt", "recovery/flaps.txt", "recovery/goes_on.txt", "recovery/hold.txt", "recovery/late.txt", "recovery/late_again.txt", "recovery/off.txt", "recovery/only_there.txt", "recovery/only_there_gang.txt", "recovery/released.txt", "recovery/strikes.txt", "recovery/test.txt", "recovery/unknown.txt",
	},
	"without agents no job saves its progress when it is asked to":      {"migration/defrag_restarts_asked.txt", "preemption/saves_when_asked.txt", "requeue/saves_when_asked.txt", "standby/order_asked.txt"},
	"no job is suspended on a cluster":                                  {"suspend/found.txt", "suspend/no_memory.txt", "suspend/over.txt", "suspend/resume.txt"},
	"no job has alternatives on a cluster":                              {"goodput/bounds.txt", "goodput/fixed.txt", "goodput/found.txt", "goodput/held.txt", "goodput/idle.txt", "goodput/lost.txt", "goodput/other_policies.txt", "goodput/pieces.txt", "goodput/quota.txt", "goodput/rounds.txt"},
	"jobs of others are not submitted":                                  {"quota/found_foreign.txt"},
	"preferred groups are of KAI's PodGroups and segments on a cluster": {"topology/preferred_groups.txt"},
	"a job that was deleted does not come again at once":                {"preemption/held_left_again.txt"},
	"a kubelet or Muster picks the GPUs of each pod on a cluster":       {"devices/pickers_any.txt"},
}

// TestScenariosOnAPI plays the scenarios of the engine on a real Kubernetes API:
// what happens is written to the API as users and controllers would, and the
// scheduler must decide what the engine alone decides.
func TestScenariosOnAPI(t *testing.T) {
	if os.Getenv("MUSTER_E2E") == "" {
		t.Skip("it needs muster-devcluster: make test-e2e runs it")
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // that an API is beta
	server, err := local.Start(t.Context(), func(string) {}, "--ephemeral", "--nodes", "0", "--controllers", "namespace-controller")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	api, err := server.Config()
	if err != nil {
		t.Fatal(err)
	}
	api.QPS = -1
	if err := local.Install(t.Context(), api); err != nil {
		t.Fatal(err)
	}
	why := map[string]string{}
	for reason, files := range beyond {
		for _, f := range files {
			why[f] = reason
		}
	}
	datadriven.Walk(t, scenarios, func(t *testing.T, path string) {
		name, err := filepath.Rel(scenarios, path)
		if err != nil || filepath.Ext(path) != ".txt" {
			return
		}
		if reason := why[name]; reason != "" {
			t.Skip(reason)
		}
		failing := failingIn(t, path)
		coretest.ScenarioOn(t, path, func(t *testing.T, c core.Config) coretest.Cluster {
			s := newStage(t, api, c, failing)
			s.lending = strings.HasPrefix(name, "standby/")
			return s
		})
	})
}

// TestBeyond finds names in beyond that are no scenarios.
func TestBeyond(t *testing.T) {
	for _, files := range beyond {
		for _, name := range files {
			if _, err := os.Stat(filepath.Join(scenarios, name)); err != nil {
				t.Error(err)
			}
		}
	}
}

// failingIn returns the jobs of a scenario whose pods it has fail to start. Their
// bindings wait at the gate until it says how they end; others take effect at once.
func failingIn(t *testing.T, path string) map[string]bool {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	jobs := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "bindfailed" {
			jobs[words[1]] = true
		}
	}
	return jobs
}

// stage is a Kubernetes cluster on which a scenario is played. The scheduler's
// clock is the scenario's.
type stage struct {
	t         *testing.T
	client    kubernetes.Interface
	queues    *rest.RESTClient
	puppet    *kube.Puppet
	now       core.Time
	namespace string
	levels    []string
	decided   []core.Decision
	gate      *gate
	failing   map[string]bool // as failingIn returns them

	// jobs are the jobs of the scenario by name; names is the scenario's name of
	// an engine's job.
	jobs  map[string]*job
	names map[string]string
	nodes map[string]bool
	there map[string]bool // queues
	// lending says that pods ask Muster alone for GPUs, so that they can lend and borrow them.
	lending bool
	// published are the nodes whose GPUs are published by DRA.
	published map[string]*published
	// positioned are the nodes that say where their GPUs are.
	positioned map[string]bool
}

// job is a job of the scenario, as objects.
type job struct {
	spec     core.Job
	engine   string // its name in the engine
	pods     []*v1.Pod
	tasks    []int // by pod: its role's place in spec
	podGroup string
}

func newStage(t *testing.T, api *rest.Config, c core.Config, failing map[string]bool) *stage {
	s := &stage{
		t: t, levels: c.Levels, gate: newGate(), failing: failing,
		jobs: map[string]*job{}, names: map[string]string{}, nodes: map[string]bool{}, there: map[string]bool{},
		published: map[string]*published{}, positioned: map[string]bool{},
	}
	var err error
	if s.client, err = kubernetes.NewForConfig(api); err != nil {
		t.Fatal(err)
	}
	if s.queues, err = kube.NewClient(api); err != nil {
		t.Fatal(err)
	}
	ns, err := s.client.CoreV1().Namespaces().Create(context.Background(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "scenario-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.namespace = ns.Name
	guarded := rest.CopyConfig(api)
	guarded.Wrap(s.gate.through)
	config := kube.Config{API: guarded, Policy: c.Policy, Now: func() time.Time { return time.Unix(0, int64(s.now)) }, Record: s}
	config.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	for _, l := range c.Levels {
		config.Levels = append(config.Levels, translate.Level{Name: l, Label: levelLabel(l)})
	}
	if s.puppet, err = kube.NewPuppet(config); err != nil {
		t.Fatal(err)
	}
	s.puppet.Held = func(namespace, name string) bool { return s.gate.holds(namespace + "/" + name) }
	t.Cleanup(s.remove)
	return s
}

func levelLabel(level string) string {
	if key, ok := strings.CutPrefix(level, cluster.LabelLevel); ok {
		return key
	}
	return "scenario/" + level
}

// Began, Told and Decided record what the scheduler does.
func (s *stage) Began(core.Time, core.Config) {}

func (s *stage) Told(core.Time, core.Event) {}

func (s *stage) Decided(_ core.Time, ds []core.Decision, _ core.Counter) {
	for _, d := range ds {
		d.Pods = slices.Clone(d.Pods)
		for i := range d.Pods {
			// Without an annotation of its node nothing says which NICs are near its GPUs; a
			// scenario means those of the same number.
			if node := d.Pods[i].Node; s.published[node] == nil && !s.positioned[node] {
				d.Pods[i].NICs = d.Pods[i].GPUs
			}
		}
		s.decided = append(s.decided, d)
	}
}

func (s *stage) Set(now core.Time) { s.now = now }

// Decide makes a pass and returns its decisions in the scenario's names.
func (s *stage) Decide() []core.Decision {
	s.decided = nil
	if err := s.puppet.Decide(); err != nil {
		s.t.Error(err)
	}
	for i := range s.decided {
		d := &s.decided[i]
		d.Job, d.For, d.Detail = s.plain(d.Job), s.plain(d.For), s.plain(d.Detail)
	}
	return s.decided
}

// plain has the scenario's names in place of the engine's.
func (s *stage) plain(text string) string {
	long := slices.Sorted(maps.Keys(s.names))
	for _, name := range slices.Backward(long) { // train10 before train1
		text = strings.ReplaceAll(text, name, s.names[name])
	}
	return text
}

func (s *stage) Waiting() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range s.puppet.Engine().Waiting() {
			if !yield(s.plain(name)) {
				return
			}
		}
	}
}

func (s *stage) Explain(name string) (core.Explanation, bool) {
	j := s.jobs[name]
	if j == nil {
		return core.Explanation{}, false
	}
	x, ok := s.puppet.Engine().Explain(j.engine)
	x.Detail, x.Turn = s.plain(x.Detail), s.plain(x.Turn)
	for i := range x.Evicts {
		x.Evicts[i].Job = s.plain(x.Evicts[i].Job)
	}
	return x, ok
}

// Check and Finish have nothing to do: there is no twin of a cluster.
func (s *stage) Check() {}

func (s *stage) Finish() {}

// remove removes what the scenario made.
func (s *stage) remove() {
	ctx := context.Background()
	var errs []error
	for _, j := range s.jobs {
		errs = append(errs, s.removePods(j, nil))
	}
	errs = append(errs, s.client.CoreV1().Namespaces().Delete(ctx, s.namespace, metav1.DeleteOptions{}))
	errs = append(errs, s.unpublish())
	for name := range s.nodes {
		errs = append(errs, s.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
	}
	for name := range s.there {
		errs = append(errs, s.queues.Delete().Resource("queues").Name(name).Do(ctx).Error())
	}
	errs = append(errs, s.puppet.Stop())
	if err := errors.Join(errs...); err != nil {
		s.t.Error(err)
	}
}

// Apply does to the cluster what has happened, and waits until the scheduler has
// seen it.
func (s *stage) Apply(ev core.Event) error {
	defer s.puppet.Settle()
	switch ev := ev.(type) {
	case core.NodeAdded:
		return s.addNode(&ev.Node, ev.Evictions)
	case core.NodeChanged:
		is := ev.Node
		n, err := s.client.CoreV1().Nodes().Get(context.Background(), is.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		is.Cordoned = n.Spec.Unschedulable
		return s.changeNode(is.Name, s.node(&is))
	case core.NodeLost:
		return s.loseNode(ev.Node)
	case core.NodeCordoned:
		n, err := s.client.CoreV1().Nodes().Get(context.Background(), ev.Node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Spec.Unschedulable = ev.Cordoned
		return s.changeNode(ev.Node, n)
	case core.DeviceHealth:
		return s.health(&ev)
	case core.QueueSet:
		return s.setQueue(&ev.Queue)
	case core.QueueRemoved:
		delete(s.there, ev.Queue)
		if err := s.queues.Delete().Resource("queues").Name(ev.Queue).Do(context.Background()).Error(); err != nil {
			return err
		}
		return s.saw("Queue", ev.Queue, "", "")
	case core.JobSubmitted:
		return s.submit(&ev.Job)
	case core.PodsAdded:
		return s.addPods(s.jobs[ev.Job], &ev)
	case core.BindFailed:
		return s.answer(s.jobs[ev.Job], []int{ev.Pod}, false)
	case core.JobEnded:
		j := s.jobs[ev.Job]
		delete(s.jobs, ev.Job)
		if err := s.answer(j, nil, true); err != nil {
			return err
		}
		return s.removePods(j, nil)
	case core.PodEnded:
		if ev.Lost {
			return s.losePod(s.jobs[ev.Job], ev.Pod)
		}
		return s.endPod(s.jobs[ev.Job], ev.Pod, ev.Failed)
	case core.PodsGone:
		return s.replacePods(s.jobs[ev.Job], ev.Pods)
	case core.PodRunning:
		return s.foundPod(s.jobs[ev.Job], &ev)
	case core.JobRelabelled:
		return s.relabel(s.jobs[ev.Job], &ev)
	case core.JobShielded:
		return s.shield(s.jobs[ev.Job], ev.Shielded)
	case core.JobEstimated:
		return s.annotate(s.jobs[ev.Job], v1alpha1.WalltimeAnnotation, v1alpha1.Duration(ev.Estimate).String())
	case core.Checkpointed:
		at := ev.At
		if at == 0 {
			at = s.now
		}
		return s.annotate(s.jobs[ev.Job], v1alpha1.LastCheckpointAnnotation, time.Unix(0, int64(at)).UTC().Format(time.RFC3339Nano))
	case core.StandbyBegan:
		return s.rest(s.jobs[ev.Job], &ev)
	case core.StandbyEnded:
		return s.wake(s.jobs[ev.Job], ev.Pods)
	case core.Tick:
		return nil
	}
	return fmt.Errorf("a cluster knows no %T", ev)
}

func (s *stage) saw(kind, name string, uid types.UID, version string) error {
	err := s.puppet.Until(func() error { return s.puppet.Saw(kind, s.namespace, name, uid, version) })
	if err != nil && kind == "Pod" {
		p, notThere := s.client.CoreV1().Pods(s.namespace).Get(context.Background(), name, metav1.GetOptions{})
		err = fmt.Errorf("%w; the API has UID %s at version %q on %q, deleted %v, %v", err, p.UID, p.ResourceVersion, p.Spec.NodeName, p.DeletionTimestamp, notThere)
	}
	return err
}

// node is a node of the engine's as an object: translate.Node the other way
// round.
func (s *stage) node(n *core.Node) *v1.Node {
	labels := map[string]string{v1.LabelHostname: n.Name}
	maps.Copy(labels, n.Labels)
	if n.GPUs > 0 {
		labels[v1alpha1.GPUModelLabel] = n.Model
	}
	if !n.Blind {
		labels[v1alpha1.GPUSharingLabel] = v1alpha1.GPUSharingMixed
	}
	if n.HBD != "" {
		labels[v1alpha1.HBDLabel] = n.HBD
	}
	for i, d := range n.Domains {
		if d != "" {
			labels[levelLabel(s.levels[i])] = d
		}
	}
	room := v1.ResourceList{
		v1.ResourceCPU: *resource.NewMilliQuantity(n.CPUMilli, resource.DecimalSI), v1.ResourceMemory: *resource.NewQuantity(n.MemMiB<<20, resource.BinarySI),
	}
	if s.published[n.Name] == nil {
		room[v1alpha1.GPUResource] = *resource.NewQuantity(int64(n.GPUs), resource.DecimalSI)
	}
	if n.MaxPods > 0 {
		room[v1.ResourcePods] = *resource.NewQuantity(int64(n.MaxPods), resource.DecimalSI)
	}
	for _, a := range n.Others {
		room[v1.ResourceName(a.Name)] = *resource.NewQuantity(a.Value, resource.DecimalSI)
	}
	annotations := map[string]string{}
	if n.Devices != nil {
		annotations[v1alpha1.GPUPositionsAnnotation] = string(cluster.AppendDevices(nil, n.Devices))
	}
	o := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: labels, Annotations: annotations}, Spec: v1.NodeSpec{Unschedulable: n.Cordoned},
		Status: v1.NodeStatus{Capacity: room, Allocatable: room.DeepCopy(), Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}},
	}
	for _, t := range n.Taints {
		o.Spec.Taints = append(o.Spec.Taints, v1.Taint{Key: t.Key, Value: t.Value, Effect: cmp.Or(v1.TaintEffect(t.Effect), v1.TaintEffectNoSchedule)})
	}
	return o
}

func (s *stage) addNode(n *core.Node, evictions int) error {
	if len(n.Unhealthy) > 0 {
		s.published[n.Name] = &published{Node: *n}
		if err := s.publish(s.published[n.Name]); err != nil {
			return err
		}
	}
	s.positioned[n.Name] = n.Devices != nil
	o := s.node(n)
	if evictions > 0 {
		o.Annotations[v1alpha1.EvictionsAnnotation] = fmt.Sprint(evictions)
	}
	o, err := s.client.CoreV1().Nodes().Create(context.Background(), o, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	s.nodes[n.Name] = true
	return s.saw("Node", o.Name, "", o.ResourceVersion)
}

func (s *stage) changeNode(name string, want *v1.Node) error {
	nodes := s.client.CoreV1().Nodes()
	var o *v1.Node
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		if o, err = nodes.Get(context.Background(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		o.Labels, o.Spec, o.Status.Capacity, o.Status.Allocatable = want.Labels, want.Spec, want.Status.Capacity, want.Status.Allocatable
		status := o.Status
		if o, err = nodes.Update(context.Background(), o, metav1.UpdateOptions{}); err != nil {
			return err
		}
		o.Status = status
		o, err = nodes.UpdateStatus(context.Background(), o, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return s.saw("Node", name, "", o.ResourceVersion)
}

// loseNode deletes a node, then its pods as the garbage collector does, and makes
// them again as their owners would.
func (s *stage) loseNode(name string) error {
	delete(s.nodes, name)
	if err := s.client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := s.saw("Node", name, "", ""); err != nil {
		return err
	}
	for _, j := range s.jobs {
		err := s.makeAnew(j, j.numbers(nil), func(p *v1.Pod) bool { return p.Spec.NodeName == name })
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) setQueue(q *core.Queue) error {
	o := translate.QueueObject(q)
	made := &v1alpha1.Queue{}
	var err error
	if s.there[o.Name] {
		err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the scheduler writes its status
			old := &v1alpha1.Queue{}
			if err := s.queues.Get().Resource("queues").Name(o.Name).Do(context.Background()).Into(old); err != nil {
				return err
			}
			o.ResourceVersion = old.ResourceVersion
			return s.queues.Put().Resource("queues").Name(o.Name).Body(o).Do(context.Background()).Into(made)
		})
	} else {
		err = s.queues.Post().Resource("queues").Body(o).Do(context.Background()).Into(made)
	}
	if err != nil {
		return err
	}
	s.there[o.Name] = true
	return s.saw("Queue", o.Name, "", made.ResourceVersion)
}

func (s *stage) submit(spec *core.Job) error {
	g, pods := translate.Objects(spec)
	j := &job{spec: *spec, pods: pods}
	j.spec.Tasks = slices.Clone(spec.Tasks)
	kind, name := "pod", translate.ObjectName(spec.Name)
	switch {
	case g != nil:
		kind, j.podGroup = "podgroup", name
		o, err := s.client.SchedulingV1beta1().PodGroups(s.namespace).Create(context.Background(), g, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if err := s.saw("PodGroup", o.Name, "", o.ResourceVersion); err != nil {
			return err
		}
	case len(pods) > 1:
		kind = "gang"
	}
	j.engine = s.namespace + "/" + kind + "/" + name
	s.jobs[spec.Name], s.names[j.engine] = j, spec.Name
	class, err := s.priorityClass(spec.Priority, spec.NeverPreempts)
	if err != nil {
		return err
	}
	i := 0
	for t := range spec.Tasks {
		for range spec.Tasks[t].Pods {
			p := pods[i]
			p.Spec.PriorityClassName = class
			j.tasks = append(j.tasks, t)
			label(p, &spec.Tasks[t])
			if err := s.createPod(j, i, p, spec.Submitted); err != nil {
				return err
			}
			i++
		}
	}
	return nil
}

// inclusion says whether a spread counts all nodes, or those only that its pod may use.
func inclusion(any bool) *v1.NodeInclusionPolicy {
	if any {
		return ptr.To(v1.NodeInclusionPolicyIgnore)
	}
	return ptr.To(v1.NodeInclusionPolicyHonor)
}

// label writes the engine's labels and terms on a pod: each label is a label, and
// terms are affinities and spread constraints.
func label(p *v1.Pod, spec *core.Task) {
	p.Labels = labelled(p.Labels, spec)
	for _, o := range spec.Prefers {
		prefer(p, &o)
	}
	for _, t := range spec.Affinity {
		selects, domain := selectorOf(t.Label), domainLabel(t.Level)
		if t.MaxSkew > 0 {
			p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{
				MaxSkew: int32(t.MaxSkew), TopologyKey: domain, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: selects,
				NodeTaintsPolicy: inclusion(t.AnyTaint), NodeAffinityPolicy: inclusion(t.AnyLabel),
			})
			if t.MinDomains > 0 {
				least := int32(t.MinDomains)
				p.Spec.TopologySpreadConstraints[len(p.Spec.TopologySpreadConstraints)-1].MinDomains = &least
			}
			continue
		}
		if p.Spec.Affinity == nil {
			p.Spec.Affinity = &v1.Affinity{}
		}
		term := v1.PodAffinityTerm{LabelSelector: selects, TopologyKey: domain}
		if t.Anti {
			if p.Spec.Affinity.PodAntiAffinity == nil {
				p.Spec.Affinity.PodAntiAffinity = &v1.PodAntiAffinity{}
			}
			a := p.Spec.Affinity.PodAntiAffinity
			a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution, term)
			continue
		}
		if p.Spec.Affinity.PodAffinity == nil {
			p.Spec.Affinity.PodAffinity = &v1.PodAffinity{}
		}
		a := p.Spec.Affinity.PodAffinity
		a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution, term)
	}
}

func selectorOf(label string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"scenario/" + label: "yes"}}
}

func domainLabel(level string) string {
	if level == "node" {
		return v1.LabelHostname
	}
	return levelLabel(level)
}

// prefer writes what a pod prefers: preferred affinities, and one to be away from pods with the largest weight as a constraint
// on their spread.
func prefer(p *v1.Pod, o *core.Preference) {
	a := p.Spec.Affinity
	if a == nil {
		a = &v1.Affinity{}
		p.Spec.Affinity = a
	}
	if o.Label == "" {
		term := v1.PreferredSchedulingTerm{Weight: max(o.Weight, -o.Weight)}
		ops := map[cluster.Op]v1.NodeSelectorOperator{cluster.In: v1.NodeSelectorOpIn, cluster.NotIn: v1.NodeSelectorOpNotIn, cluster.Exists: v1.NodeSelectorOpExists, cluster.DoesNotExist: v1.NodeSelectorOpDoesNotExist}
		not := map[cluster.Op]cluster.Op{cluster.In: cluster.NotIn, cluster.NotIn: cluster.In, cluster.Exists: cluster.DoesNotExist, cluster.DoesNotExist: cluster.Exists}
		for _, r := range o.Selector {
			op := ops[r.Op]
			if o.Weight < 0 { // weights of node affinity are above 0: of one requirement, the other nodes are preferred
				op = ops[not[r.Op]]
			}
			term.Preference.MatchExpressions = append(term.Preference.MatchExpressions, v1.NodeSelectorRequirement{Key: r.Key, Operator: op, Values: r.Values})
		}
		if a.NodeAffinity == nil {
			a.NodeAffinity = &v1.NodeAffinity{}
		}
		a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution, term)
		return
	}
	if o.Weight == -cluster.MaxWeight {
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: domainLabel(o.Level), WhenUnsatisfiable: v1.ScheduleAnyway, LabelSelector: selectorOf(o.Label),
		})
		return
	}
	term := v1.WeightedPodAffinityTerm{Weight: max(o.Weight, -o.Weight), PodAffinityTerm: v1.PodAffinityTerm{LabelSelector: selectorOf(o.Label), TopologyKey: domainLabel(o.Level)}}
	if o.Weight < 0 {
		if a.PodAntiAffinity == nil {
			a.PodAntiAffinity = &v1.PodAntiAffinity{}
		}
		a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, term)
		return
	}
	if a.PodAffinity == nil {
		a.PodAffinity = &v1.PodAffinity{}
	}
	a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, term)
}

// labelled returns labels of a pod with those of the engine.
func labelled(with map[string]string, spec *core.Task) map[string]string {
	out := maps.Clone(with)
	maps.DeleteFunc(out, func(key, _ string) bool { return strings.HasPrefix(key, "scenario/") })
	for _, l := range spec.Labels {
		out["scenario/"+l] = "yes"
	}
	return out
}

// relabel gives the pods of a job, or of a role, other labels.
func (s *stage) relabel(j *job, ev *core.JobRelabelled) error {
	for t := range j.spec.Tasks {
		task := &j.spec.Tasks[t]
		if ev.Task != "" && ev.Task != task.Name {
			continue
		}
		if !slices.Equal(ev.Affinity, task.Affinity) {
			return errors.New("affinities of a pod do not change")
		}
		task.Labels = ev.Labels
	}
	for _, i := range j.numbers(nil) {
		pods := s.client.CoreV1().Pods(s.namespace)
		var p *v1.Pod
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
			if p, err = pods.Get(context.Background(), j.pods[i].Name, metav1.GetOptions{}); err != nil {
				return err
			}
			p.Labels = labelled(p.Labels, &j.spec.Tasks[j.tasks[i]])
			p, err = pods.Update(context.Background(), p, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			return err
		}
		j.pods[i] = p
		if err := s.saw("Pod", p.Name, p.UID, p.ResourceVersion); err != nil {
			return err
		}
	}
	return nil
}

// shield puts the pods of a job, which run, under a disruption budget that lets none
// go, or takes them away from it.
func (s *stage) shield(j *job, on bool) error {
	ctx := context.Background()
	budgets, pods := s.client.PolicyV1().PodDisruptionBudgets(s.namespace), s.client.CoreV1().Pods(s.namespace)
	if on {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "shield"}}
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"shielded": "yes"}}
		b, err := budgets.Create(ctx, b, metav1.CreateOptions{})
		if err == nil { // the controller that looks at budgets does not run here
			b.Status.ObservedGeneration = b.Generation
			b, err = budgets.UpdateStatus(ctx, b, metav1.UpdateOptions{})
		}
		if err == nil {
			err = s.saw("PodDisruptionBudget", b.Name, b.UID, b.ResourceVersion)
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	for _, i := range j.numbers(nil) {
		name := j.pods[i].Name
		if _, err := pods.Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
		label := `{"metadata":{"labels":{"shielded":null}}}`
		if on {
			label = `{"metadata":{"labels":{"shielded":"yes"}}}`
		}
		p, err := pods.Patch(ctx, name, types.MergePatchType, []byte(label), metav1.PatchOptions{})
		if err != nil {
			return err
		}
		j.pods[i] = p
		if err := s.saw("Pod", p.Name, p.UID, p.ResourceVersion); err != nil {
			return err
		}
	}
	return nil
}

// answer lets the bindings of pods take effect that wait at the gate, those given
// or all, or refuses them.
func (s *stage) answer(j *job, given []int, ok bool) error {
	for _, i := range j.numbers(given) {
		p := j.pods[i]
		switch {
		case s.gate.answer(s.namespace+"/"+p.Name, ok):
			if err := s.puppet.Answered(p.UID); err != nil {
				return err
			}
		case !ok:
			return fmt.Errorf("no binding of pod %d waits that could fail", i)
		}
	}
	return nil
}

// createPod makes pod i of a job.
func (s *stage) createPod(j *job, i int, p *v1.Pod, created core.Time) error {
	p.Annotations = maps.Clone(p.Annotations)
	p.Annotations[createdAnnotation] = time.Unix(0, int64(created)).UTC().Format(time.RFC3339Nano)
	if s.lending && !j.spec.NeverOnLent {
		alone(p)
	}
	if j.spec.Lends {
		p.Annotations[v1alpha1.StandbyKeepsAnnotation] = "cpu=1m"
	}
	if s.failing[j.spec.Name] {
		s.gate.guard(s.namespace + "/" + p.Name)
	}
	var made *v1.Pod
	err := s.puppet.Until(func() (err error) { // the API server learns of a new priority class in a moment
		made, err = s.client.CoreV1().Pods(s.namespace).Create(context.Background(), p, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	j.pods[i] = made
	return s.saw("Pod", made.Name, made.UID, made.ResourceVersion)
}

func (s *stage) priorityClass(value int32, never bool) (string, error) {
	if value == 0 && !never {
		return "", nil
	}
	c := &schedulingv1.PriorityClass{Value: value}
	c.Name = strings.ReplaceAll(fmt.Sprintf("priority%d", value), "-", "-minus-")
	if never {
		policy := v1.PreemptNever
		c.Name, c.PreemptionPolicy = c.Name+"-never", &policy
	}
	name := c.Name
	_, err := s.client.SchedulingV1().PriorityClasses().Create(context.Background(), c, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	return name, s.saw("PriorityClass", name, "", "1")
}

// addPods makes pods that join a job.
func (s *stage) addPods(j *job, ev *core.PodsAdded) error {
	role := slices.IndexFunc(j.spec.Tasks, func(t core.Task) bool { return t.Name == ev.Task.Name })
	if role < 0 {
		role = len(j.spec.Tasks)
		j.spec.Tasks = append(j.spec.Tasks, ev.Task)
	}
	spec := j.spec
	spec.Tasks = []core.Task{j.spec.Tasks[role]}
	spec.Tasks[0].Pods = len(ev.Pods)
	spec.Combinations = nil // of all roles: the other pods have them
	_, pods := translate.Objects(&spec)
	for k, number := range ev.Pods {
		p := pods[k]
		p.Name = fmt.Sprintf("%s-%d", translate.ObjectName(spec.Name), number)
		like := j.pods[slices.IndexFunc(j.pods, func(p *v1.Pod) bool { return p != nil })] // others may be gone
		p.Spec.SchedulingGroup, p.Labels = like.Spec.SchedulingGroup, like.Labels
		p.Spec.PriorityClassName = like.Spec.PriorityClassName
		label(p, &spec.Tasks[0])
		for number >= len(j.pods) {
			j.pods, j.tasks = append(j.pods, nil), append(j.tasks, role)
		}
		if number < len(j.pods) && j.pods[number] != nil { // it ended
			if err := s.removePods(j, []int{number}); err != nil {
				return err
			}
		}
		if err := s.createPod(j, number, p, s.now); err != nil {
			return err
		}
	}
	return nil
}

// numbers returns those given, or all of a job's pods.
func (j *job) numbers(given []int) []int {
	if given != nil {
		return given
	}
	var all []int
	for i, p := range j.pods {
		if p != nil {
			all = append(all, i)
		}
	}
	return all
}

// removePods takes pods out of the API at once: those given, or all.
func (s *stage) removePods(j *job, given []int) error {
	var none int64
	for _, i := range j.numbers(given) {
		p := j.pods[i]
		if err := s.marked(p.Name); err != nil {
			return err
		}
		err := s.client.CoreV1().Pods(s.namespace).Delete(context.Background(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &none})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	for _, i := range j.numbers(given) {
		if err := s.saw("Pod", j.pods[i].Name, j.pods[i].UID, ""); err != nil {
			return err
		}
	}
	return s.freeClaims()
}

// marked waits until the scheduler has written on a pod that it evicts why, which is the last
// that it writes there. Where the API server finds in the middle of a write that the pod has
// just been deleted without grace, it deletes whatever has that name, and that may be the pod
// made in its place (deleteWithoutFinalizers in k8s.io/apiserver checks no UID for a patch).
func (s *stage) marked(name string) error {
	return s.puppet.Until(func() error {
		p, err := s.client.CoreV1().Pods(s.namespace).Get(context.Background(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && p.DeletionTimestamp == nil {
			return nil
		}
		said := func(c v1.PodCondition) bool {
			return c.Type == v1.DisruptionTarget && c.Reason == v1alpha1.PreemptionReason
		}
		if err == nil && !slices.ContainsFunc(p.Status.Conditions, said) {
			err = fmt.Errorf("pod %s is evicted, and does not say why: %+v", name, p.Status.Conditions)
		}
		return err
	})
}

// endPod has a pod end, or takes it away when it has not begun. In place of one
// that failed its owner makes another, of the same name as a StatefulSet does.
func (s *stage) endPod(j *job, number int, failed bool) error {
	if err := s.answer(j, []int{number}, true); err != nil {
		return err
	}
	pods := s.client.CoreV1().Pods(s.namespace)
	p, err := pods.Get(context.Background(), j.pods[number].Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if p.Spec.NodeName == "" {
		err := s.removePods(j, []int{number})
		j.pods[number] = nil
		return err
	}
	phase := v1.PodSucceeded
	if failed {
		phase = v1.PodFailed
	}
	// The scheduler writes conditions of the pod at the same time: an update would conflict.
	patch := fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase)
	if _, err = pods.Patch(context.Background(), p.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	if err := s.saw("Pod", p.Name, p.UID, ""); err != nil || !failed {
		return err
	}
	return s.makeAnew(j, []int{number}, func(*v1.Pod) bool { return true })
}

// losePod deletes a pod that no controller makes again.
func (s *stage) losePod(j *job, number int) error {
	err := s.removePods(j, []int{number})
	j.pods[number] = nil
	return err
}

// replacePods takes away pods that were told to leave, and makes them again as
// their owner would.
func (s *stage) replacePods(j *job, given []int) error {
	if err := s.answer(j, given, true); err != nil {
		return err
	}
	return s.makeAnew(j, j.numbers(given), func(p *v1.Pod) bool { return p.DeletionTimestamp != nil })
}

// makeAnew takes away those pods of a job that are over, and makes them again.
func (s *stage) makeAnew(j *job, among []int, over func(*v1.Pod) bool) error {
	var leaving []int
	for _, i := range among {
		p, err := s.client.CoreV1().Pods(s.namespace).Get(context.Background(), j.pods[i].Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if over(p) {
			leaving = append(leaving, i)
		}
	}
	if leaving == nil {
		return nil
	}
	if err := s.removePods(j, leaving); err != nil {
		return err
	}
	for _, i := range leaving {
		old := j.pods[i]
		again := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: old.Name, Labels: old.Labels, Annotations: old.Annotations}, Spec: old.Spec}
		again.Spec.NodeName = ""
		if err := s.createPod(j, i, again, s.now); err != nil {
			return err
		}
	}
	return nil
}

// foundPod binds a pod behind the scheduler's back.
func (s *stage) foundPod(j *job, ev *core.PodRunning) error {
	var set uint64
	for _, g := range ev.GPUs {
		set |= 1 << g
	}
	p := j.pods[ev.Pod]
	notes := map[string]string{v1alpha1.GPUsAnnotation: translate.Devices(set)}
	if share := j.spec.Tasks[j.tasks[ev.Pod]].GPU; len(ev.GPUs) > 0 && share < core.WholeGPU {
		notes[v1alpha1.ShareAnnotation] = fmt.Sprint(int64(share))
	}
	pods := s.client.CoreV1().Pods(s.namespace)
	err := pods.Bind(context.Background(), &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Annotations: notes},
		Target:     v1.ObjectReference{Kind: "Node", Name: ev.Node},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if p, err = pods.Get(context.Background(), p.Name, metav1.GetOptions{}); err != nil {
		return err
	}
	return s.saw("Pod", p.Name, p.UID, p.ResourceVersion)
}

// alone has a pod ask Muster alone for its whole GPUs.
func alone(p *v1.Pod) {
	r := &p.Spec.Containers[0].Resources
	if q, ok := r.Requests[v1alpha1.GPUResource]; ok {
		p.Annotations[v1alpha1.GPUCountAnnotation] = q.String()
		delete(r.Requests, v1alpha1.GPUResource)
		delete(r.Limits, v1alpha1.GPUResource)
	}
}

// rest has pods lend their GPUs, and gives back in place what they do not keep. A pod that requests
// any CPU or memory keeps some.
func (s *stage) rest(j *job, ev *core.StandbyBegan) error {
	pods := s.client.CoreV1().Pods(s.namespace)
	for _, i := range j.numbers(ev.Pods) {
		p, err := pods.Get(context.Background(), j.pods[i].Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		cpu, mem := ev.CPUMilli, ev.MemMiB
		requests := p.Spec.Containers[0].Resources.Requests
		if !requests.Cpu().IsZero() {
			cpu = max(cpu, 1)
		}
		notes, err := json.Marshal(map[string]string{
			v1alpha1.StandbyUntilAnnotation: time.Unix(0, int64(ev.Until)).UTC().Format(time.RFC3339Nano),
			v1alpha1.StandbyKeepsAnnotation: fmt.Sprintf("cpu=%dm,memory=%dMi", cpu, mem),
		})
		if err != nil {
			return err
		}
		if err := s.patch(j, i, fmt.Sprintf(`{"metadata":{"annotations":%s}}`, notes)); err != nil {
			return err
		}
		var keeps []string
		if q := requests.Cpu(); q.MilliValue() > cpu {
			keeps = append(keeps, fmt.Sprintf(`"cpu":"%dm"`, cpu))
		}
		if q := requests.Memory(); q.Value() > mem<<20 {
			keeps = append(keeps, fmt.Sprintf(`"memory":"%dMi"`, mem))
		}
		if keeps != nil {
			err = s.patch(j, i, fmt.Sprintf(`{"spec":{"containers":[{"name":"main","resources":{"requests":{%s}}}]}}`, strings.Join(keeps, ",")), "resize")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wake asks pods to use their GPUs again, those given or all.
func (s *stage) wake(j *job, given []int) error {
	for _, i := range j.numbers(given) {
		if err := s.patch(j, i, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.StandbyUntilAnnotation)); err != nil {
			return err
		}
	}
	return nil
}

// patch changes a pod, and waits until the scheduler has seen it.
func (s *stage) patch(j *job, i int, patch string, subresources ...string) error {
	p, err := s.client.CoreV1().Pods(s.namespace).Patch(context.Background(), j.pods[i].Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		return err
	}
	return s.saw("Pod", p.Name, p.UID, p.ResourceVersion)
}

// annotate writes an annotation on all pods of a job.
func (s *stage) annotate(j *job, key, value string) error {
	for _, i := range j.numbers(nil) {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
		p, err := s.client.CoreV1().Pods(s.namespace).Patch(context.Background(), j.pods[i].Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			return err
		}
		if err := s.saw("Pod", p.Name, p.UID, p.ResourceVersion); err != nil {
			return err
		}
	}
	return nil
}
