package objects

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/translate"
)

// onNode is a pod of Muster's with GPUs 0 and 1 of a node.
func onNode() *v1.Pod {
	two := v1.ResourceList{v1alpha1.GPUResource: resource.MustParse("2")}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "7", CreationTimestamp: metav1.Unix(100, 0),
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{v1alpha1.GPUsAnnotation: "0,1", "long": "text"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		},
		Spec: v1.PodSpec{
			SchedulerName: v1alpha1.SchedulerName, NodeName: "n",
			Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: two, Limits: two}}},
		},
		Status: v1.PodStatus{
			Phase:      v1.PodRunning,
			Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Unix(200, 0)}},
		},
	}
}

func TestTrimPod(t *testing.T) {
	o := TrimPod(onNode())
	if o.Name != "p" || o.Namespace != "ns" || o.UID != "u" || o.ResourceVersion != "7" || !o.Ours || o.Node != "n" {
		t.Errorf("it is %+v", o)
	}
	if o.ObjectMeta.Labels != nil || o.Annotations != nil || o.ManagedFields != nil {
		t.Errorf("it keeps more of its metadata than its name: %+v", o.ObjectMeta)
	}
	if !o.Started.Equal(time.Unix(200, 0)) || len(o.GPUs) != 2 || o.Request.GPU != 2*core.WholeGPU {
		t.Errorf("it started at %v, has GPUs %v and asks for %v", o.Started, o.GPUs, o.Request.GPU)
	}
}

// The annotation that says which GPUs a pod has counts on pods of Muster's alone: on another
// scheduler's, only its author can have written it.
func TestTrimPodOfAnotherScheduler(t *testing.T) {
	p := onNode()
	p.Spec.SchedulerName = "other"
	if o := TrimPod(p); o.Ours || o.GPUs != nil || o.Request.GPU != 0 || o.Amounts.GPUs != 2 || !o.HasGPUs() {
		t.Errorf("it is %+v", o)
	}
}

func TestOverAndEnded(t *testing.T) {
	for _, c := range []struct {
		phase       v1.PodPhase
		node        string
		deleting    bool
		over, ended bool
	}{
		{v1.PodPending, "", false, false, false},
		{v1.PodPending, "", true, false, true},
		{v1.PodRunning, "n", true, false, false}, // it holds its devices until its kubelet ends it
		{v1.PodSucceeded, "n", false, true, true},
		{v1.PodFailed, "n", true, true, true},
	} {
		p := &Pod{Phase: c.phase, Node: c.node, Deleting: c.deleting}
		if p.Over() != c.over || p.Ended() != c.ended {
			t.Errorf("%+v: over %t, ended %t", c, p.Over(), p.Ended())
		}
	}
}

// Only a toleration without an end, of the taint by its key or of all taints, keeps a pod on a
// lost node.
func TestBears(t *testing.T) {
	key, seconds := v1.TaintNodeNotReady, int64(300)
	for what, c := range map[string]struct {
		list []v1.Toleration
		want bool
	}{
		"none":              {nil, false},
		"the taint":         {[]v1.Toleration{{Key: key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}}, true},
		"all taints":        {[]v1.Toleration{{Operator: v1.TolerationOpExists}}, true},
		"for a while":       {[]v1.Toleration{{Key: key, Operator: v1.TolerationOpExists, TolerationSeconds: &seconds}}, false},
		"another":           {[]v1.Toleration{{Key: "x", Operator: v1.TolerationOpExists}}, false},
		"another effect":    {[]v1.Toleration{{Key: key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}}, false},
		"one of both ends":  {[]v1.Toleration{{Operator: v1.TolerationOpExists}, {Key: key, Operator: v1.TolerationOpExists, TolerationSeconds: &seconds}}, false},
		"no key, and equal": {[]v1.Toleration{{Operator: v1.TolerationOpEqual}}, false},
	} {
		if got := bears(&v1.Pod{Spec: v1.PodSpec{Tolerations: c.list}}, key); got != c.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}

// A pod that is known by what it takes alone has no job and no owner that moves it. Devices of
// its claims are the claims' and are not counted twice.
func TestStranded(t *testing.T) {
	o := TrimPod(onNode())
	o.Move, o.Membership = &translate.Move{}, translate.Membership{Min: 2}
	s := o.Stranded()
	if s.Ours || s.Move != nil || s.Membership.Min != 0 || s.Request.GPU != 2*core.WholeGPU || !o.Ours {
		t.Errorf("it is %+v", s)
	}
	o.DeviceClaims = []devices.ClaimRef{{}}
	if s := o.Stranded(); s.Request.GPU != 0 {
		t.Errorf("it asks for %v beside its claims", s.Request.GPU)
	}
}

// What is known of a pod that cannot be read is where it stands and what it takes, so that no
// other gets that; one that was read before is as it was then, where it stands now.
func TestBarePod(t *testing.T) {
	o := BarePod(onNode())
	if !o.Unread || o.Ours || o.Node != "n" || o.Amounts.GPUs != 2 || len(o.GPUs) != 2 {
		t.Errorf("it is %+v", o)
	}
	before := TrimPod(onNode())
	before.Node, before.Phase = "", v1.PodPending
	if x := o.AsBefore(before); !x.Ours || x.Node != "n" || x.Phase != v1.PodRunning || before.Node != "" {
		t.Errorf("it is %+v", x)
	}
}

func TestTimeOf(t *testing.T) {
	for at, want := range map[time.Time]core.Time{
		{}:                                1,
		time.Unix(0, 5):                   1,
		time.Unix(1, 5):                   core.Second + 5,
		time.Unix(1<<40, 0):               core.MaxTime,
		time.Unix(-1<<40, 0).In(time.UTC): 1,
	} {
		if got := TimeOf(at); got != want {
			t.Errorf("%v is %d, want %d", at, got, want)
		}
	}
}
