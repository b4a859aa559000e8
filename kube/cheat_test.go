package kube

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/translate"
)

// What somebody may try who has nothing but the right to make, label and annotate
// pods in a namespace.

// ownedBy gives a pod a controller.
func ownedBy(apiVersion, kind, name string) change[*v1.Pod] {
	return func(p *v1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: "owner", Controller: &yes}}
	}
}

// queue makes a queue with so many GPUs, for the namespaces of a team; for all when
// team is empty.
func (w *world) queue(name string, gpus int, team string) {
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	q.Spec.Mode = "Isolated"
	q.Spec.Quota = []v1alpha1.Quota{{Model: "*", Nominal: v1alpha1.GPUs(gpus) * 1000}}
	if team != "" {
		q.Spec.NamespaceSelector = selecting("team=" + team)
	}
	w.m.queueSeen(q)
}

// inQueue has a pod name its queue.
func inQueue(name string) change[*v1.Pod] { return labelled(v1alpha1.QueueLabel + "=" + name) }

// Whoever made a pod, it is subject to the rules of its queue.
func TestOwnersKindIsNoPassport(t *testing.T) {
	for _, kind := range []string{"Foreign", "foreign", "FOREIGN", "PodGroup", "Gang", "Pod", "Application"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			w.node("n", "r")
			w.queue("mine", 0, "")
			w.queue("theirs", 8, "them")
			made := ownedBy("example.com/v1", kind, "x")
			w.pod("full", made, inQueue("mine"))
			w.pod("forbidden", ownedBy("example.com/v1", kind, "y"), inQueue("theirs"))
			w.pod("none", ownedBy("example.com/v1", kind, "z"), inQueue("nonexistent"))
			w.waits("full", "QuotaExceeded", "mine")
			w.waits("forbidden", ReasonQueueForbidden, "theirs")
			w.waits("none", ReasonQueueNotFound, "nonexistent")
		})
	}
}

// A pod whose owner is called as a PodGroup or a pod would be is not of theirs.
func TestOwnersKindIsNoMembership(t *testing.T) {
	w := newWorld(t)
	w.pod("x")
	w.pod("a", ownedBy("v1", "Pod", "x"))
	w.pod("b", ownedBy("batch/v1", "Job", "x"))
	w.pod("c", ownedBy("batch.volcano.sh/v1alpha1", "Job", "x"))
	w.pod("d", ownedBy("example.com/v1", "Job/x", "y"))
	w.pod("e", ownedBy("batch/v1", "Job", "x/y"))
	jobs := map[string]translate.Group{}
	for _, p := range w.m.pods {
		if id, ok := jobs[p.group.job]; ok {
			t.Errorf("%v and %v are both job %s", id, p.group.id, p.group.job)
		}
		jobs[p.group.job] = p.group.id
	}
	if len(jobs) != 6 {
		t.Errorf("six pods are the jobs %v", jobs)
	}
}

// What Muster writes of a group on its owner can be read, whatever a gang is called.
func TestMarkOfAnyName(t *testing.T) {
	for _, name := range []string{"train", "a b", "a/b", "100%", "ä+ö"} {
		mark := suspendMark{since: startOfTime, selector: "a=b"}
		id := translate.Group{Namespace: "ns", Kind: translate.ByGang, Name: name}
		mark.of(id)
		got, ok := readSuspendMark(mark.String())
		if back := (&suspended{namespace: "ns", mark: got}).group(); !ok || back != id {
			t.Errorf("%q is read as %v, %t", mark, back, ok)
		}
	}
}
