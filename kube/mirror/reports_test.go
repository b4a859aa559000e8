package mirror

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// says lets a second pass and returns what is then to be written of the pod's group.
func (w *world) says(name string, after time.Duration) []act.Report {
	w.now = w.now.Add(after)
	w.m.decide(core.Time(w.now.UnixNano()))
	list := w.m.reports.Report(w.m.engine, w.m.Pods[w.pods["default/"+name].UID].Group)
	w.m.acts.Drop()
	return list
}

// A job for which idle GPUs are in the wrong places is told the nearest ones; an event does not
// repeat them.
func TestNearestPlaces(t *testing.T) {
	w := newWorld(t)
	w.node("a", "r1")
	w.pod("x", asking(v1alpha1.GPUResource, "3"))
	w.on("x>a")
	w.node("b", "r1")
	w.pod("y", asking(v1alpha1.GPUResource, "6"))
	w.on("y>b")
	w.pod("p", asking(v1alpha1.GPUResource, "7"))
	w.says("p", 0)
	list := w.says("p", 2*time.Second)
	want := translate.NearestMark + "move 2 GPUs off a" + translate.NearestSeparator + "move 5 GPUs off b"
	if len(list) != 1 || list[0].Reason != "Stranded" || !strings.HasSuffix(list[0].Message, want) || strings.Contains(list[0].Event, translate.NearestMark) {
		t.Errorf("got %s: %q, %q; want %q", list[0].Reason, list[0].Message, list[0].Event, want)
	}
}

// People are told why a job waits in an event: once a reason, and of other numbers
// not more often than now and then.
func TestEventsOfWaiting(t *testing.T) {
	w := newWorld(t)
	w.node("a", "r1")
	events := func(after time.Duration, want ...string) {
		t.Helper()
		var got []string
		for _, x := range w.says("p0", after) {
			if x.Event != "" {
				got = append(got, x.Name+": "+x.Event)
			}
		}
		if len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
			t.Errorf("events %q, expected %q", got, want)
		}
	}
	w.pod("p0", gang("g", 4))
	w.pod("p1", gang("g", 4))
	events(0)
	events(2 * time.Second) // its owner may be creating the others
	w.pod("p2", gang("g", 4))
	events(time.Second)
	w.gone("p2")
	events(time.Minute, "p0: 2 of the 4 pods of the gang exist and are ready")
	w.pod("p2", gang("g", 4))
	events(time.Minute, "p0: 3 of the 4 pods of the gang exist and are ready")
	w.pod("p3", gang("g", 4), asking(v1alpha1.GPUResource, "9"))
	events(0)
	events(2*time.Second, "p0: no node is large enough for a pod of 9 GPUs")
}

// People are told once a job, before it runs, of keys that begin as ours do and are
// none, and of pauses that cannot be; the job is scheduled all the same.
func TestUnknownKeysAreTold(t *testing.T) {
	w := newWorld(t)
	w.node("a", "r1")
	told := func(want ...string) {
		t.Helper()
		var got []string
		acts := w.m.decide(core.Time(w.now.UnixNano()))
		for _, x := range acts.Warn {
			got = append(got, x.Name+": "+x.Message)
		}
		binds := slices.Clone(acts.Bind)
		w.m.acts.Drop()
		for i := range binds {
			w.bind(&binds[i])
		}
		if !slices.Equal(got, want) {
			t.Errorf("told %q, expected %q", got, want)
		}
	}
	misspelt := noted("muster.sh/wall-time", "8h")
	w.pod("p0", gang("g", 2), misspelt)
	told("p0: muster.sh/wall-time is unknown; did you mean muster.sh/walltime?")
	w.pod("p1", gang("g", 2), misspelt)
	told()
	w.on("p0,p1>a,a")
	w.pod("right", noted("muster.sh/walltime", "8h"))
	told()

	group := "h"
	w.m.podGroupSeen(objects.TrimPodGroup(&schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "h", UID: "h", Labels: map[string]string{"muster.sh/quue": "q"}},
	}))
	w.pod("in", func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group} })
	told("in: muster.sh/quue is unknown; did you mean muster.sh/queue?")
	w.on("right,in>a,a")

	pausable := noted(v1alpha1.PausableAnnotation, "pause=5s,resume=5s,memory=16Gi")
	w.pod("counted", pausable, asking(v1alpha1.GPUResource, "1"))
	told("counted: muster.sh/pausable has no effect: the kubelet counts its GPUs, also while it is paused: expected muster.sh/gpu-count in place of nvidia.com/gpu or resource claims")
	w.pod("one", pausable, noted(v1alpha1.GPUCountAnnotation, "1"), asking("memory", "1Gi"))
	told()
	w.pod("q0", gang("q", 3), pausable, noted(v1alpha1.GPUCountAnnotation, "1"), asking("memory", "1Gi"))
	told()
	w.pod("q1", gang("q", 3))
	told("q0: muster.sh/pausable has no effect: the pods of a gang are paused together, and pod q1 has no muster.sh/pausable")
	w.gone("q0")
	w.gone("q1")

	if err := w.m.rebuild(); err != nil { // to a scheduler that starts again, they run
		t.Fatal(err)
	}
	for _, g := range w.m.Groups {
		g.Warned = false
	}
	told()
}

// A pod of a PodGroup that is not there, or not any more, is told so itself.
func TestPodGroupNotThere(t *testing.T) {
	w := newWorld(t)
	w.node("a", "r1")
	group := "g"
	in := func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group} }
	w.pod("p", in, asking(v1alpha1.GPUResource, "9"))
	w.waits("p", tables.ReasonPodGroupNotFound, "PodGroup g does not exist")
	w.m.Pods[w.pods["default/p"].UID].Group.Reported = tables.Report{}
	if list := w.says("p", time.Second); len(list) != 1 || list[0].Name != "p" || list[0].Event != "PodGroup g does not exist" {
		t.Errorf("p is told %+v", list)
	}
	w.pod("q", in)

	w.m.podGroupSeen(objects.TrimPodGroup(&schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "g", UID: "g"},
		Spec: schedulingv1beta1.PodGroupSpec{
			SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}},
		},
	}))
	w.waits("p", core.NoNode.String(), "9 GPUs")
	w.m.podGroupGone(objects.Key("default", "g"))
	w.waits("p", tables.ReasonPodGroupNotFound, "PodGroup g does not exist")
}

// An owner whose quota is borrowed by others that are too young to be evicted is told
// the time at which they are not.
func TestOwnerIsToldOfMinRuntime(t *testing.T) {
	w := newWorld(t)
	w.node("a", "r1")
	for name, gpus := range map[string]v1alpha1.GPUs{"owner": 8000, "guest": 0} {
		q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}}
		q.Spec.Quota = []v1alpha1.Quota{{Model: "*", Nominal: gpus}}
		w.m.queueSeen(q)
	}
	w.pod("guest", inQueue("guest"), asking(v1alpha1.GPUResource, "8"))
	old := w.now.Add(time.Second + 5*time.Minute).UTC().Format(time.RFC3339) // it starts a second from now
	w.settle()
	w.pod("owner", inQueue("owner"), asking(v1alpha1.GPUResource, "8"))
	for range 3 {
		w.says("owner", 2*time.Second)
	}
	k := w.m.Pods[w.pods["default/owner"].UID].Group.Waiting
	if want := "; the first can be evicted at " + old; k.Reason != "MinRuntime" || !strings.Contains(k.Detail, want) {
		t.Errorf("it waits: %s: %s; expected MinRuntime and %q", k.Reason, k.Detail, want)
	}
}
