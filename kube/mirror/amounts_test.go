package mirror

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// having makes a node list these amounts too.
func having(list ...string) change[*v1.Node] {
	return func(n *v1.Node) { maps.Copy(n.Status.Allocatable, amounts(list...)) }
}

func TestNamedAmounts(t *testing.T) {
	w := newWorld(t)
	w.node("a", "", having(hca, "2", "ephemeral-storage", "10Gi"))
	w.node("b", "")
	w.pod("two", asking(hca, "1", "ephemeral-storage", "6Gi"))
	w.pod("disk", asking("ephemeral-storage", "6Gi"))
	w.on("two>a", "disk>")
	w.waits("disk", core.InsufficientOther.String(), "the nodes with room for them have 4294967296 of 10737418240 ephemeral-storage free, which hold 0")
	w.pod("fpga", asking("vendor.com/fpga", "1"))
	w.waits("fpga", core.NoNode.String(), "no node is large enough for a pod of 1 vendor.com/fpga")
	w.node("c", "", having("vendor.com/fpga", "1"))
	w.on("fpga>c")
	w.node("b", "", having("ephemeral-storage", "6Gi"))
	w.on("disk>b")
}

// What pods of other schedulers take is not there for ours, whether they are known
// by what they take or as jobs.
func TestNamedAmountsOfOthers(t *testing.T) {
	w := newWorld(t)
	w.node("a", "", having(hca, "4"))
	w.pod("agent", foreign("a"), asking(hca, "1"))
	w.pod("gpu", foreign("a"), asking(v1alpha1.GPUResource, "1", hca, "1"))
	w.pod("unlisted", foreign("a"), asking("vendor.com/fpga", "1"))
	for _, name := range []string{"ours", "ours2", "ours3"} {
		w.pod(name, gang("g", 3), asking(hca, "1"))
	}
	w.waits("ours", core.InsufficientOther.String(), "have 2 of 3 rdma/hca free")
	w.gone("agent")
	w.on("ours,ours2,ours3>a,a,a")
	w.pod("next", asking(hca, "1"))
	w.on("next>")
	w.gone("gpu")
	w.on("next>a")

	// A node that loses some keeps its pods, and one that is again has them too.
	w.node("a", "", having(hca, "1"))
	if err := w.m.rebuild(); err != nil {
		t.Fatal(err)
	}
	w.pod("last", asking(hca, "1"))
	for _, name := range []string{"ours", "ours2", "ours3"} {
		w.gone(name)
		w.on("next>a", "last>")
	}
	w.gone("next")
	w.on("last>a")
}
