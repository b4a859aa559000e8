package mirror

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/storage"
)

func TestVolumesThatNodesAttach(t *testing.T) {
	w := newWorld(t)
	w.node("a", "")
	w.node("b", "")
	w.attaches("a", 2)
	w.attaches("b", 0)
	for _, name := range []string{"d0", "d1", "d2", "d3"} {
		w.claim(name, "")
		w.volume(name, "", "")
	}
	w.pod("two", using("d0", "d1"))
	w.pod("one", using("d2"))
	w.pod("none")
	w.on("two>a", "one>")
	if at := w.pods["default/none"].Spec.NodeName; at == "" {
		t.Error("a pod without volumes waits")
	}
	w.waits("one", core.InsufficientOther.String(), "have 0 of 2 attachable-volumes-csi-disks.example.com free")
	w.attaches("b", 1)
	w.on("one>b")
	w.pod("more", using("d3"))
	w.on("more>")
	w.node("c", "") // it has no limit
	w.on("more>c")
}

// Volumes that are yet to be made are those of their class's driver; volumes of pods
// of other schedulers are attached too.
func TestVolumesThatNodesAttachLateAndForOthers(t *testing.T) {
	w := newWorld(t)
	w.made = true
	w.node("a", "")
	w.class("late", true)
	w.claim("theirs", "")
	w.pod("agent", foreign("a"), using("theirs"))
	w.attaches("a", 2)
	w.claim("new", "late")
	w.claim("newer", "late")
	w.pod("p", using("new"))
	w.on("p>a")
	w.pod("q", using("newer"))
	w.on("q>a") // the agent's volume is not known yet
	w.volume("theirs", host, "a")
	w.claim("newest", "late")
	w.pod("r", using("newest"))
	w.on("r>")
	w.waits("r", core.InsufficientOther.String(), "have 0 of 1 attachable")
	w.gone("agent")
	w.on("r>") // two of two are attached
	w.gone("q")
	w.on("r>a")
}

// A driver that becomes limited while its volumes are in use: those count.
func TestVolumesThatNodesAttachLimitedLater(t *testing.T) {
	w := newWorld(t)
	w.node("a", "")
	for _, name := range []string{"d0", "d1", "d2"} {
		w.claim(name, "")
		w.volume(name, "", "")
	}
	w.pod("first", using("d0"))
	w.on("first>a")
	w.attaches("a", 1)
	w.pod("second", using("d1"))
	w.on("second>")
	inStorage((*storage.Index).ReplaceLimits)(w.m, nil) // the driver is gone from all nodes
	w.on("second>a")
	inStorage((*storage.Index).ReplaceLimits)(w.m, []*storage.Limits{storage.LimitsOf(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "a"}})})
	w.pod("third", using("d2"))
	w.on("third>a")
}
