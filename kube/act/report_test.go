package act

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// A condition keeps the time of its status while reasons and numbers change, and does
// not keep the message of another status.
func TestConditionsOfPod(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"}}
	group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "g", UID: "g"}}
	start := time.Unix(1_000_000, 0)
	a := New(Config{Client: fake.NewClientset(pod, group), Now: func() time.Time { return start }})
	ctx := t.Context()
	write := func(reason, message string) (*v1.Pod, *schedulingv1beta1.PodGroup) {
		t.Helper()
		now, err := a.client.CoreV1().Pods("default").Get(ctx, "p", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		x := Report{Pod: podNamed("p"), Reason: reason, Message: message, Unschedulable: reason == "Resources"}
		for _, c := range now.Status.Conditions {
			if c.Type == v1alpha1.WaitingCondition && c.Status == v1.ConditionTrue {
				x.Since = c.LastTransitionTime.Time
			}
		}
		if err := a.reportPod(ctx, &x); err != nil {
			t.Fatal(err)
		}
		if err := a.reportPodGroup(ctx, &Report{Pod: podNamed("g"), PodGroup: true, Reason: reason, Message: message}); err != nil {
			t.Fatal(err)
		}
		p, err := a.client.CoreV1().Pods("default").Get(ctx, "p", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		g, err := a.client.SchedulingV1beta1().PodGroups("default").Get(ctx, "g", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p, g
	}
	p, _ := write("Resources", "needs 8")
	if c := p.Status.Conditions[1]; c.Type != v1.PodScheduled || c.Reason != v1.PodReasonUnschedulable || c.Message != "Resources: needs 8" {
		t.Errorf("autoscalers read %+v", c)
	}
	start = start.Add(time.Minute)
	p, g := write("QuotaExceeded", "needs 9")
	if c := p.Status.Conditions[1]; c.Reason != "QuotaExceeded" {
		t.Errorf("autoscalers read %+v", c)
	}
	if len(p.Status.Conditions) != 2 || len(g.Status.Conditions) != 2 {
		t.Fatalf("%+v %+v", p.Status.Conditions, g.Status.Conditions)
	}
	for _, c := range p.Status.Conditions {
		if !c.LastTransitionTime.Time.Equal(start.Add(-time.Minute)) {
			t.Errorf("%s has the time of the last writing", c.Type)
		}
	}
	for _, c := range g.Status.Conditions {
		if !c.LastTransitionTime.Time.Equal(start.Add(-time.Minute)) {
			t.Errorf("%s has the time of the last writing", c.Type)
		}
	}
	p, g = write("", "")
	for _, c := range p.Status.Conditions {
		if c.Type == v1alpha1.WaitingCondition && (c.Status != v1.ConditionFalse || c.Message != "the pod has a node" || !c.LastTransitionTime.Time.Equal(start)) {
			t.Errorf("%+v", c)
		}
	}
	for _, c := range g.Status.Conditions {
		if !c.LastTransitionTime.Time.Equal(start) || c.Message == "" {
			t.Errorf("%+v", c)
		}
	}
}

// Of one object the latest is written last, and what could not be written is
// written again unless there is something later.
func TestReports(t *testing.T) {
	v := newReports()
	say := func(reason string) { v.put(Report{Pod: Pod{UID: "p"}, Reason: reason}) }
	take := func(want string) *Report {
		t.Helper()
		x, ok := v.take()
		if !ok || x.Reason != want {
			t.Fatalf("%q (%t) is written; want %q", x.Reason, ok, want)
		}
		return &x
	}
	none := func() {
		t.Helper()
		if x, ok := v.take(); ok {
			t.Fatalf("%q is written beside what is being written", x.Reason)
		}
	}
	say("first")
	say("second")
	x := take("second")
	say("third")
	none()
	v.written(x, false)
	x = take("third")
	none()
	v.written(x, false)
	x = take("third")
	v.written(x, true)
	none()
	v.put(Report{Pod: Pod{UID: "p"}, Reason: "fourth", Ungate: true})
	say("fifth")
	if x := take("fifth"); !x.Ungate {
		t.Error("the gate is not taken off")
	}
}

// What is to be written of a shard that is given up is forgotten, and what is being
// written waited for.
func TestReportsOfAShardThatIsGivenUp(t *testing.T) {
	v := newReports()
	v.put(Report{Pod: Pod{UID: "a"}}, Report{Pod: Pod{UID: "b"}}, Report{Pod: Pod{UID: "c"}, Shard: 1})
	x, _ := v.take()
	over, end := context.WithCancel(context.Background())
	end()
	if v.drain(over, 0) {
		t.Error("what is being written is not waited for")
	}
	v.written(&x, true)
	if !v.drain(over, 0) {
		t.Error("it waits for nothing")
	}
	if x, ok := v.take(); !ok || x.UID != "c" {
		t.Errorf("%q is written next (%t); want c", x.UID, ok)
	}
	if x, ok := v.take(); ok {
		t.Errorf("%q is written of the shard that was given up", x.UID)
	}
}

// What counts of a pod is written into its status, and the end of that reported, whether
// it could be written or not.
func TestRecord(t *testing.T) {
	client, out := fake.NewClientset(newTestPod("p", 1)), &reported{}
	a := New(Config{Client: client, Outcomes: out})
	a.record(t.Context(), []Record{{Pod: podNamed("p"), Said: "queue=q"}, {Pod: podNamed("gone"), Said: "queue=q"}})
	out.expect(t, "p recorded", "gone recorded")
	p, err := client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil || len(p.Status.Conditions) != 1 {
		t.Fatalf("%+v, %v", p.Status, err)
	}
	if c := p.Status.Conditions[0]; c.Type != v1alpha1.AdmittedCondition || c.Status != v1.ConditionTrue || c.Message != "queue=q" {
		t.Errorf("it is recorded as %+v", c)
	}
}

// What a user wrote into a name or an annotation moves no cursor of those who read why it waits,
// and does not fill their screens.
func TestMessagesArePlain(t *testing.T) {
	client := fake.NewClientset(newTestPod("p", 1))
	a := New(Config{Client: client})
	message := "queue \x1b[31m\u202e\nx does not exist" + strings.Repeat("ä", 5000)
	if err := a.reportWaiting(t.Context(), &Report{Pod: podNamed("p"), Reason: "QueueNotFound", Message: message}); err != nil {
		t.Fatal(err)
	}
	p, err := client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Status.Conditions) != 2 {
		t.Errorf("it has %d conditions", len(p.Status.Conditions))
	}
	for _, c := range p.Status.Conditions {
		if !strings.Contains(c.Message, "queue  [31m  x does not exist") || len(c.Message) > 2030 || !strings.HasSuffix(c.Message, "ä…") {
			t.Errorf("%s has %d bytes: %q", c.Type, len(c.Message), c.Message)
		}
	}
}

// What is to be written about a tenant with many pods delays nothing of others.
func TestReportsOfNamespacesInTurn(t *testing.T) {
	r := newReports()
	report := func(namespace, name string) {
		x := Report{Pod: podNamed(name)}
		x.Namespace = namespace
		r.put(x)
	}
	for i := range 1000 {
		report("many", fmt.Sprint("p", i))
	}
	report("few", "mine")
	first, _ := r.take()
	second, _ := r.take()
	if first.Name != "p0" || second.Name != "mine" {
		t.Errorf("%s and %s are written first", first.Name, second.Name)
	}
	r.written(&second, false) // again
	third, _ := r.take()
	fourth, _ := r.take()
	if third.Name != "p1" || fourth.Name != "mine" {
		t.Errorf("then %s and %s", third.Name, fourth.Name)
	}
}
