package mirror

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/muster-sched/muster/kube/tables"
)

func TestVolumesThatAreBound(t *testing.T) {
	w := twoRacks(t)
	w.pod("p", using("data"))
	w.waits("p", tables.ReasonVolume, "volume claim data does not exist")
	w.claim("data", "fast")
	w.waits("p", tables.ReasonVolume, "storage class fast of claim data does not exist")
	w.class("fast", false)
	w.waits("p", tables.ReasonVolume, "claim data is not bound to a volume yet")
	w.volume("data", host, "c", "d")
	w.settle()
	if at := w.pods["default/p"].Spec.NodeName; at != "c" && at != "d" {
		t.Errorf("p is on %q, where its volume cannot be reached", at)
	}
	w.claim("disk", "fast")
	w.volume("disk", rack.Label, "2")
	w.claim("local", "fast")
	w.volume("local", host, "b", "d")
	w.pod("both", using("disk", "local"))
	w.on("both>d")
	w.pod("gone", using("disk"))
	w.claim("disk", "fast", func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: w.now} })
	w.waits("gone", tables.ReasonVolume, "being deleted")
}

// A job of which one pod waits for its volume starts the others, and says why.
func TestVolumesOfSomePods(t *testing.T) {
	w := twoRacks(t)
	owned := func(p *v1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "db", Controller: &yes}}
	}
	w.class("fast", false)
	w.claim("data-0", "fast")
	w.claim("data-1", "fast")
	w.volume("data-0", host, "b")
	w.pod("db-0", owned, using("data-0"))
	w.pod("db-1", owned, using("data-1"))
	w.on("db-0>b", "db-1>")
	w.waits("db-1", tables.ReasonVolume, "claim data-1 is not bound")
	w.volume("data-1", host, "a")
	w.on("db-1>a")
}

// A claim that becomes bound sends a waiting pod elsewhere.
func TestVolumesThatChange(t *testing.T) {
	w := twoRacks(t)
	w.class("late", true, func(c *storagev1.StorageClass) {
		c.AllowedTopologies = []v1.TopologySelectorTerm{{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{{Key: rack.Label, Values: []string{"3"}}}}}
	})
	w.claim("data", "late")
	w.pod("p", using("data"))
	w.waits("p", "NoNode", "")
	w.volume("data", host, "a")
	w.on("p>a")

	w.claim("more", "late")
	for _, name := range []string{"g0", "g1"} {
		w.pod(name, gang("g", 2), using("more"))
	}
	w.on("g0>", "g1>")
	w.volume("more", host, "d")
	w.on("g0,g1>d,d")
}

// Volumes that wait for their first consumer are made where it goes; it is bound
// when they are there.
func TestVolumesMadeLate(t *testing.T) {
	w := twoRacks(t)
	w.class("late", true)
	w.claim("data", "late")
	w.pod("p", using("data"), on("c"))
	w.on("p>")
	if got := w.claims["default/data"].Annotations[volume.AnnSelectedNode]; got != "c" {
		t.Fatalf("the claim was told node %q, expected c", got)
	}
	w.volume("data", host, "c")
	w.on("p>c")

	w.made = true
	w.claim("a", "late")
	w.claim("b", "late")
	w.pod("two", using("a", "b"))
	w.settle()
	if at := w.pods["default/two"].Spec.NodeName; at == "" || w.claims["default/a"].Annotations[volume.AnnSelectedNode] != at {
		t.Errorf("two is on %q", at)
	}

	// Pods that share a claim: the first to get a node decides.
	w.claim("shared", "late")
	for _, name := range []string{"g0", "g1"} {
		w.pod(name, gang("g", 2), using("shared"))
	}
	w.settle()
	at := w.claims["default/shared"].Annotations[volume.AnnSelectedNode]
	w.on("g0,g1>" + at + "," + at)
}

func TestVolumesThatAreNotMade(t *testing.T) {
	w := newWorld(t)
	w.node("a", "1")
	w.node("b", "1")
	w.class("late", true)
	w.claim("data", "late")
	w.pod("p", using("data"))
	w.on("p>")
	first := w.claims["default/data"].Annotations[volume.AnnSelectedNode]
	if first == "" {
		t.Fatal("the claim was told no node")
	}
	// The provisioner gives the node back: the pod is placed again.
	w.claim("data", "", func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, volume.AnnSelectedNode) })
	w.node(first, "", func(n *v1.Node) { n.Spec.Unschedulable = true })
	w.settle()
	w.now = w.now.Add(time.Hour) // its pause
	w.settle()
	second := w.claims["default/data"].Annotations[volume.AnnSelectedNode]
	if second == "" || second == first {
		t.Fatalf("the claim was told node %q, then %q", first, second)
	}
	// Nobody answers: it is given up, and the node is taken back.
	w.node(second, "", func(n *v1.Node) { n.Spec.Unschedulable = true })
	w.now = w.now.Add(time.Duration(volumePatience))
	w.settle()
	if got := w.claims["default/data"].Annotations[volume.AnnSelectedNode]; got != "" {
		t.Errorf("the claim still has node %q", got)
	}
	w.on("p>")
	w.node("c", "1")
	w.made = true
	w.now = w.now.Add(time.Hour)
	w.on("p>c")

	// A volume that is made elsewhere.
	w.made = false
	w.claim("odd", "late")
	w.pod("q", using("odd"))
	w.on("q>")
	w.volume("odd", host, "b")
	w.on("q>")
	w.node("b", "", func(n *v1.Node) { n.Spec.Unschedulable = false })
	w.now = w.now.Add(time.Hour)
	w.on("q>b")
}

// A pod that is evicted while its volume is being made is not bound.
func TestEvictedWhileVolumesAreMade(t *testing.T) {
	w := newWorld(t)
	w.node("a", "1")
	w.class("late", true)
	w.claim("data", "late")
	w.pod("low", using("data"), asking("nvidia.com/gpu", "8"))
	w.on("low>")
	w.now = w.now.Add(24 * time.Hour)
	w.m.Storage.Make(w.pods["default/low"].UID, "a", 1<<62) // it may take that long
	high := int32(9)
	w.pod("high", func(p *v1.Pod) { p.Spec.Priority = &high }, asking("nvidia.com/gpu", "8"))
	w.on("high>a", "low>")
	if len(w.m.Storage.Making()) != 0 {
		t.Error("its volume is still waited for")
	}
}

func TestVolumesForOnePod(t *testing.T) {
	w := twoRacks(t)
	w.class("fast", false)
	w.claim("one", "fast", func(c *v1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	})
	w.volume("one", "")
	w.pod("first", using("one"))
	w.pod("second", using("one"))
	w.settle()
	if w.pods["default/first"].Spec.NodeName == "" {
		t.Error("the first does not start")
	}
	w.waits("second", tables.ReasonVolume, "volume claim one can be used by one pod at a time, and pod first uses it")
	w.gone("first")
	w.settle()
	if w.pods["default/second"].Spec.NodeName == "" {
		t.Error("the second does not start")
	}
}

func TestEphemeralVolumes(t *testing.T) {
	w := twoRacks(t)
	w.made = true
	w.class("late", true)
	w.pod("p", func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}}
	})
	w.waits("p", tables.ReasonVolume, "volume claim p-scratch does not exist")
	w.claim("p-scratch", "late")
	w.waits("p", tables.ReasonVolume, "was not created for this pod")
	yes := true
	w.claim("p-scratch", "late", func(c *v1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: w.pods["default/p"].UID, Controller: &yes}}
	})
	w.settle()
	if w.pods["default/p"].Spec.NodeName == "" {
		t.Error("p does not start")
	}
}

// After a restart, a claim that was told a node keeps its pod to it.
func TestVolumesAfterRestart(t *testing.T) {
	w := twoRacks(t)
	w.class("late", true)
	w.claim("data", "late", func(c *v1.PersistentVolumeClaim) { c.Annotations[volume.AnnSelectedNode] = "d" })
	w.pod("p", using("data"))
	w.on("p>")
	w.volume("data", host, "d")
	w.on("p>d")
}
