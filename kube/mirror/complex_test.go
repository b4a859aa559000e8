package mirror

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
)

// A pod that says more than the scheduler should work through for one pod waits and says what
// it has too much of. It is in its queue, and others run.
func TestTooComplexPods(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r")
	keys := func(n int) map[string]string {
		table := map[string]string{}
		for i := range n {
			table[fmt.Sprint("key", i)] = "v"
		}
		return table
	}
	w.pod("labels", func(p *v1.Pod) { p.Labels = keys(30_000) })
	w.waits("labels", tables.ReasonTooComplex, "30000 labels: expected at most 500")
	w.pod("annotations", func(p *v1.Pod) { p.Annotations = keys(objects.MaxKeys + 1) })
	w.waits("annotations", tables.ReasonTooComplex, "501 annotations")
	w.pod("terms", func(p *v1.Pod) {
		for i := range 10_000 {
			apart(host, fmt.Sprintf("a=%d", i))(p)
		}
	})
	w.waits("terms", tables.ReasonTooComplex, "10000 affinity terms")
	w.pod("values", func(p *v1.Pod) {
		near(host, "app=x")(p)
		p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchExpressions =
			[]metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: make([]string, objects.MaxValues)}}
	})
	w.waits("values", tables.ReasonTooComplex, "values and expressions")
	w.pod("tolerations", func(p *v1.Pod) { p.Spec.Tolerations = make([]v1.Toleration, objects.MaxLists+1) })
	w.waits("tolerations", tables.ReasonTooComplex, "501 tolerations")
	w.pod("value", func(p *v1.Pod) {
		p.Annotations = map[string]string{v1alpha1.GangLabel: strings.Repeat("g", 200_000), v1alpha1.QueueLabel: "none"}
	})
	w.waits("value", tables.ReasonTooComplex, "muster.sh/gang has 200000 bytes: expected at most 8192")
	w.pod("quoted", func(p *v1.Pod) {
		p.Annotations = map[string]string{v1alpha1.WalltimeAnnotation: strings.Repeat("x", 200_000)}
	})
	w.waits("quoted", tables.ReasonMisconfigured, "muster.sh/walltime")
	if n := len(w.m.Pods[w.pods["default/quoted"].UID].Object.Wrong); n > 1100 {
		t.Errorf("its error has %d bytes", n)
	}
	if n := w.m.Peers.Len(); n > 3 { // the pods differ in their queues and gangs at most
		t.Errorf("%d kinds of pods and selectors are kept", n)
	}
	w.pod("simple")
	w.pod("at the bound", func(p *v1.Pod) { p.Annotations = keys(objects.MaxKeys) })
	w.on("simple>n", "at the bound>n")
}

// A job whose pods are of too many kinds waits; of one that runs, the pods wait that are of
// one kind too many, and their places are counted if they have any.
func TestTooManyKindsOfPods(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r")
	kind := func(i int) change[*v1.Pod] { return asking("cpu", fmt.Sprintf("%dm", i+1)) }
	for i := range tables.MaxTasks + 50 {
		w.pod(fmt.Sprint("kinds-", i), gang("kinds", 2), kind(i))
	}
	w.waits("kinds-0", tables.ReasonTooComplex, "more than 100 different things")
	w.waits("kinds-149", tables.ReasonTooComplex, "several jobs")
	for i := range tables.MaxTasks {
		w.pod(fmt.Sprint("grows-", i), gang("grows", 1), kind(i))
	}
	w.on("grows-0>n", "grows-99>n")
	w.pod("grows-alike", gang("grows", 1), kind(7))
	w.pod("grows-other", gang("grows", 1), kind(1000))
	w.on("grows-alike>n", "grows-other>")
	w.pod("grows-placed", gang("grows", 1), kind(1001), func(p *v1.Pod) { p.Spec.NodeName = "n" })
	w.settle()
	if p := w.m.Pods[w.pods["default/grows-placed"].UID]; p.Group != nil {
		t.Error("a pod that its author placed is of a kind too many, and joined the job")
	}
}
