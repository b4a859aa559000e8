package mirror

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/owners"
	"github.com/muster-sched/muster/kube/reports"
	"github.com/muster-sched/muster/kube/settings"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// noted gives a pod an annotation.
func noted(key, value string) change[*v1.Pod] {
	return func(p *v1.Pod) { p.Annotations[key] = value }
}

// collects fails the test unless the pod's gang waits for pods to be made.
func (w *world) collects(name, text string) {
	w.t.Helper()
	w.settle()
	if g := w.m.Pods[w.pods["default/"+name].UID].Group; g.Waiting.Reason != tables.ReasonCollecting || !strings.Contains(g.Waiting.Detail, text) {
		w.t.Errorf("%s waits: %s: %s; expected %q", name, g.Waiting.Reason, g.Waiting.Detail, text)
	}
}

const roles = `[{"name": "ps", "minMember": 1}, {"name": "worker", "minMember": 2}]`

// member makes a pod one of YuniKorn's application app, of 4 GPUs, in a task group.
func member(group string) change[*v1.Pod] {
	return func(p *v1.Pod) {
		p.Labels["applicationId"] = "app"
		p.Annotations["yunikorn.apache.org/task-group-name"] = group
		asking("nvidia.com/gpu", "4")(p)
	}
}

// A gang starts when each of its roles has its least; the rest comes one by one.
func TestRolesOfAGang(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "r1")
	w.pod("worker-0", member("worker"))
	w.collects("worker-0", "the minimum number of pods of worker in the gang is not known; at 1970-01-12T14:01:41Z the existing pods start without the others")
	w.pod("worker-1", member("worker"), noted("yunikorn.apache.org/task-groups", roles))
	w.pod("worker-2", member("worker"))
	w.pod("worker-3", member("worker"))
	w.collects("worker-0", "0 of the 1 pods of ps that the gang needs exist and are ready; at ")
	w.pod("the-ps-comes-last", member("ps"))
	w.on("the-ps-comes-last,worker-0,worker-1,worker-2,worker-3>,,,,") // two GPUs too few for three, and for the least
	w.waits("the-ps-comes-last", "NoNode", "its tasks need 12 GPUs together; all nodes that they may use have 8")
	w.node("n2", "r1", func(n *v1.Node) {
		n.Status.Allocatable = amounts("cpu", "64", "memory", "512Gi", "pods", "110", "nvidia.com/gpu", "4")
	})
	w.settle()
	bound := map[string]int{}
	for name, p := range w.pods {
		if p.Spec.NodeName != "" {
			bound[name]++
		}
	}
	if len(bound) != 3 || bound["default/the-ps-comes-last"] != 1 {
		t.Errorf("bound: %v; expected ps and two workers", bound)
	}
	w.node("n3", "r1")
	w.on("worker-3>n3")
}

// A gang with enough pods, but too few of a role, is broken.
func TestRoleIsBroken(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "r1")
	for i := range 4 {
		role := map[bool]string{true: "ps", false: "worker"}[i == 0]
		w.pod(fmt.Sprint("p", i), gang("g", 1), noted("muster.sh/min-member", "ps=1,worker=2"), noted("muster.sh/task", role), noted("muster.sh/on-failure", "requeue"))
	}
	w.on("p0,p1,p2,p3>n1,n1,n1,n1")
	w.gone("p3") // one of three workers: two are left
	w.on("p0,p1,p2>n1,n1,n1")
	w.pod("p4", gang("g", 1), noted("muster.sh/min-member", "ps=1,worker=2"), noted("muster.sh/task", "worker"))
	w.on("p4>n1")
	w.gone("p0") // the only ps
	w.settle()
	if len(w.pods) != 0 {
		t.Errorf("pods are left: %d", len(w.pods))
	}
}

// With YuniKorn's soft style, a gang whose pods do not come starts without them;
// with the hard one it waits.
func TestPatience(t *testing.T) {
	for _, c := range []struct {
		parameters, on string
	}{
		{"placeholderTimeoutInSeconds=30", "n1"}, {"placeholderTimeoutInSeconds=30 gangSchedulingStyle=Hard", ""},
	} {
		w := newWorld(t)
		w.node("n1", "r1")
		with := []change[*v1.Pod]{member("worker"), noted("yunikorn.apache.org/task-groups", roles), noted("yunikorn.apache.org/schedulingPolicyParameters", c.parameters)}
		w.pod("worker-0", with...)
		w.pod("other", member("worker"), asking("cpu", "1")) // says nothing of it: 15 minutes
		w.on("worker-0,other>,")
		w.collects("worker-0", "0 of the 1 pods of ps")
		if list := w.m.Explain(10); len(list) != 2 {
			t.Errorf("%d pods are told why they wait; expected 2", len(list))
		}
		w.now = w.now.Add(time.Duration(2 * reports.Every))
		w.collects("worker-0", "0 of the 1 pods of ps")
		if list := w.m.Explain(10); len(list) != 1 || list[0].Event == "" {
			t.Errorf("an event says so once they have waited for long: %+v", list)
		}
		if list := w.m.Explain(10); len(list) != 0 {
			t.Errorf("they are told the same again: %+v", list)
		}
		w.now = w.now.Add(time.Hour)
		w.on("worker-0>"+c.on, "other>"+c.on)
		if c.on != "" {
			w.pod("worker-1", with...)
			w.on("worker-1>n1")
			w.gone("other")
			w.gone("worker-0")
			w.gone("worker-1")
			w.settle()
			w.pod("worker-0", with...) // the next waits again
			w.on("worker-0>")
		}
	}
}

// Pods that start one by one stay within one domain of the level that their job
// requires: of a gang of which one is enough, and of one that waited long enough.
func TestWithinADomainOneByOne(t *testing.T) {
	within := noted(v1alpha1.RequiredTopologyAnnotation, rack.Name)
	for name, with := range map[string][]change[*v1.Pod]{
		"one is enough":        {gang("g", 1), asking("nvidia.com/gpu", "8"), within},
		"it has waited enough": {member("worker"), asking("nvidia.com/gpu", "8"), noted("yunikorn.apache.org/task-groups", roles), within},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node("n1", "r1")
			w.node("n2", "r2")
			w.pod("p0", with...)
			w.settle()
			w.now = w.now.Add(time.Hour)
			w.on("p0>n1")
			w.pod("p1", with...)
			w.waits("p1", core.TopologyTooTight.String(), "within one rack, next to its running pods: 0 of them fit there")
			w.node("n3", "r1")
			w.on("p1>n3")
		})
	}
}

// A gang that waits starts with as many pods as its PodGroup says now.
func TestMinCountChanges(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "r1")
	group := &objects.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "g", UID: "g"}, Min: 3}
	w.m.podGroupSeen(group)
	for i := range 3 {
		w.pod(fmt.Sprint("p", i), asking("nvidia.com/gpu", "4"), func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group.Name} })
	}
	w.on("p0,p1,p2>,,")
	w.waits("p0", core.NoNode.String(), "needs 3 x 4 GPUs")
	fewer := *group
	fewer.Min = 2
	w.m.podGroupSeen(&fewer)
	w.on("p0,p1,p2>,n1,n1")
	more := *group
	w.m.podGroupSeen(&more) // those that run stay
	w.on("p0,p1,p2>,n1,n1")
}

// A gang of which no pod is as it should be says so, rather than to wait for more.
func TestMisspeltGang(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "r1")
	w.pod("worker-0", member("worker"), noted("yunikorn.apache.org/task-groups", `[{"name": "worker"`))
	w.settle()
	if g := w.m.Pods[w.pods["default/worker-0"].UID].Group; g.Waiting.Reason != tables.ReasonMisconfigured || !strings.Contains(g.Waiting.Detail, "task-groups") {
		t.Errorf("it waits: %s: %s", g.Waiting.Reason, g.Waiting.Detail)
	}
	w.pod("worker-1", member("worker"))
	w.collects("worker-1", "the minimum number of pods of worker in the gang is not known")
	w.pod("worker-0", member("worker"), noted("yunikorn.apache.org/task-groups", `[{"name": "worker", "minMember": 2}]`))
	w.on("worker-0,worker-1>n1,n1")
}

// How large a gang is may be put right on its pods while they wait, whether the
// engine knows the gang or not; it takes the last pod that says otherwise.
func TestGangIsPutRight(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "r1")
	w.pod("blocker", asking(v1alpha1.GPUResource, "6"))
	w.on("blocker>n1")
	for _, name := range []string{"a", "b", "c"} {
		w.pod(name, gang("g", 1), noted(v1alpha1.MinMemberAnnotation, "ps=1,worker=3"), noted(v1alpha1.TaskAnnotation, "worker"))
	}
	w.collects("a", "0 of the 1 pods of ps")
	for _, name := range []string{"a", "b", "c"} {
		w.pod(name, gang("g", 4))
	}
	w.collects("a", "3 of the 4 pods")
	w.pod("a", gang("g", 3))
	w.pod("b", gang("g", 3))
	w.collects("a", "3 of the 4 pods")
	w.pod("c", gang("g", 3))
	w.waits("a", core.Resources.String(), "")
	for _, name := range []string{"a", "b", "c"} {
		w.pod(name, gang("g", 2))
	}
	w.on("a,b>n1,n1", "c>")

	// What has begun stays as it is.
	w.pod("c", gang("g", 4))
	if g := w.m.Pods[w.pods["default/c"].UID].Group; g.Min != 2 || !g.Submitted {
		t.Errorf("of the gang that runs, %d pods start together; expected 2", g.Min)
	}
	w.gone("blocker")
	w.on("a,b,c>n1,n1,n1")
}

// What an object says of a gang: its roles, its queue, its topology.
func TestGangObject(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "r1")
	for i := range 3 {
		w.pod(fmt.Sprint("p", i), noted("scheduling.k8s.io/group-name", "g"), noted("volcano.sh/task-spec", "w"))
	}
	w.waits("p0", tables.ReasonGangUnknown, "PodGroup g has not been observed yet")
	id := translate.Group{Namespace: "default", Kind: "gang", Name: "g"}
	w.m.asked(id, nil, errors.New("no"))
	w.waits("p0", tables.ReasonGangUnknown, "PodGroup g cannot be read: no")
	w.m.asked(id, &owners.Gang{Min: 3, Roles: map[string]int{"w": 2, "ps": 1}, Attributes: translate.Attributes{Queue: "elsewhere"}}, nil)
	w.waits("p0", tables.ReasonCollecting, "0 of the 1 pods of ps")
	w.pod("ps", noted("scheduling.k8s.io/group-name", "g"), noted("volcano.sh/task-spec", "ps"))
	w.waits("p0", tables.ReasonQueueNotFound, "elsewhere")
}

// An object is read once at a time, and only while a group needs its answer.
func TestGangObjectIsAskedOnce(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "r1")
	asked := 0
	for _, name := range []string{"a", "b", "c"} {
		w.pod(name, noted("scheduling.k8s.io/group-name", "g"))
		asked += len(w.m.decide(w.m.Now + 1).Ask)
		w.m.acts.Drop()
	}
	if asked != 1 {
		t.Errorf("it is asked %d times; expected once", asked)
	}
	id, no := translate.Group{Namespace: "default", Kind: "gang", Name: "g"}, errors.New("no")
	if !w.m.asked(id, nil, no) {
		t.Error("it is not asked again, though it could not be read")
	}
	for _, name := range []string{"a", "b", "c"} {
		w.gone(name)
	}
	w.settle()
	if w.m.asked(id, nil, no) {
		t.Error("it is asked again, though no pod is left")
	}
	w.m.park(id, w.now) // its owner was found suspended
	if w.m.asked(id, nil, no) {
		t.Error("it is asked again, though no pod has come")
	}
	w.pod("d", noted("scheduling.k8s.io/group-name", "g"))
	if got := len(w.m.decide(w.m.Now + 1).Ask); got != 1 {
		t.Errorf("for the next pod it is asked %d times; expected once", got)
	}
}

// Gangs that Koordinator starts together are roles of one.
func TestGangsTogether(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "r1")
	of := func(name, least string) change[*v1.Pod] {
		return func(p *v1.Pod) {
			p.Annotations["gang.scheduling.koordinator.sh/name"] = name
			p.Annotations["gang.scheduling.koordinator.sh/min-available"] = least
			p.Annotations["gang.scheduling.koordinator.sh/groups"] = `["default/a", "default/b"]`
		}
	}
	w.pod("a-0", of("a", "2"))
	w.pod("a-1", of("a", "2"))
	w.waits("a-0", tables.ReasonCollecting, "the minimum number of pods of b in the gang is not known")
	w.pod("b-0", of("b", "1"))
	w.on("a-0,a-1,b-0>n1,n1,n1")
}

// A label may name the class of the priority.
func TestPriorityByLabel(t *testing.T) {
	w := newWorld(t)
	inClasses(settings.Classes.Replace)(w.m, []*settings.Class{settings.ClassOf(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 1000})})
	w.node("n1", "r1")
	w.pod("blocker", asking("nvidia.com/gpu", "8"), noted("muster.sh/preemptible", "false"))
	w.on("blocker>n1")
	w.pod("first", asking("nvidia.com/gpu", "8"))
	w.pod("second", asking("nvidia.com/gpu", "8"), labelled("priorityClassName=urgent"))
	w.on("first,second>,")
	w.gone("blocker")
	w.on("first>", "second>n1")
}

// A job whose label names a class of priority that there is not waits for it, and has
// the class's value as it is then; what runs is left alone.
func TestNoSuchPriorityClass(t *testing.T) {
	for _, key := range []string{v1alpha1.PriorityClassAnnotation, "priorityClassName", "kueue.x-k8s.io/priority-class"} {
		w := newWorld(t)
		class := func(name string, value int32) *settings.Class {
			return settings.ClassOf(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})
		}
		inClasses(settings.Classes.Replace)(w.m, []*settings.Class{class("low", 1), class("high", 9)})
		w.node("n1", "r1")
		whole, urgent := asking("nvidia.com/gpu", "8"), labelled(key+"=urgent")
		w.pod("running", whole, labelled(key+"=high"))
		w.on("running>n1")
		w.pod("first", whole, labelled(key+"=low"))
		w.pod("second", whole, urgent)
		w.waits("second", tables.ReasonPriorityClassNotFound, "PriorityClass urgent does not exist: expected one of high, low")

		inClasses(settings.Classes.Forget)(w.m, class("high", 9))
		inClasses(settings.Classes.Observe)(w.m, class("urgent", 5))
		w.waits("second", core.Resources.String(), "")
		inClasses(settings.Classes.Replace)(w.m, []*settings.Class{class("low", 1)})
		w.waits("second", tables.ReasonPriorityClassNotFound, "expected one of low")
		inClasses(settings.Classes.Replace)(w.m, nil)
		w.waits("first", tables.ReasonPriorityClassNotFound, "PriorityClass low does not exist: no PriorityClass exists")
		inClasses(settings.Classes.Replace)(w.m, []*settings.Class{class("low", 1), class("urgent", 5)})
		w.on("running>n1")
		w.gone("running")
		w.on("first>", "second>n1")
	}
}

// Of several levels the narrowest is meant.
func TestNarrowestLevel(t *testing.T) {
	m := newWorld(t).m
	for names, want := range map[string]string{"": "", "rack": "rack", "node,rack": "node", "rack,topology.example.com/rack": "rack", "hbd,rack": "hbd", "hbd,kubernetes.io/hostname": "node"} {
		if l, ok := m.Topologies.Level(names); !ok || l != want {
			t.Errorf("%s: %s, %v", names, l, ok)
		}
	}
	if _, ok := m.Topologies.Level("rack,row"); ok {
		t.Error("row is no level")
	}
}

// A pod that waits and is edited to say what cannot be does not start by what it said
// before; put right, it starts.
func TestMisconfiguredWhileItWaits(t *testing.T) {
	w := newWorld(t)
	w.node("a", "")
	w.pod("full", asking(v1alpha1.GPUResource, "8"))
	w.on("full>a")
	w.pod("p")
	w.on("p>")
	w.pod("p", func(p *v1.Pod) { p.Annotations[v1alpha1.PreemptibleAnnotation] = "perhaps" })
	w.gone("full")
	w.on("p>")
	w.waits("p", tables.ReasonMisconfigured, v1alpha1.PreemptibleAnnotation)
	w.pod("p", func(p *v1.Pod) { delete(p.Annotations, v1alpha1.PreemptibleAnnotation) })
	w.on("p>a")
}

// A gang lists the pairs of GPU models on which its roles may be. It starts on the one that is worth most for its price, and waits
// with what is wrong where that cannot be read.
func TestCombinationsOfModels(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "r1", ofModel("A100"))
	w.node("n2", "r1", ofModel("L40S"))
	role := func(name, list string) []change[*v1.Pod] {
		return []change[*v1.Pod]{gang(name[:4], 2), noted(v1alpha1.TaskAnnotation, name[5:]), noted(v1alpha1.GPUCombinationsAnnotation, list), asking("nvidia.com/gpu", "1")}
	}
	for _, name := range []string{"best-prefill", "best-decode"} {
		w.pod(name, role(name, "prefill:A100+decode:L40S=2@3|decode:A100+prefill:A100=2@4")...)
	}
	w.on("best-prefill>n1", "best-decode>n2")
	for _, name := range []string{"none-prefill", "none-decode"} {
		w.pod(name, role(name, "prefill:A100+encode:L40S=2")...)
	}
	w.waits("none-prefill", tables.ReasonMisconfigured, `muster.sh/gpu-combinations: expected a task named "encode", found "prefill:A100+encode:L40S=2"`)
}
