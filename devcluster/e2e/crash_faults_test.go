package e2e

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/devcluster/fleet"
)

// crashFaults is what is wrong with the nodes of the crash test. Nodes that are not ready or
// were removed come back before all has to run; GPUs that are broken then stay so until it
// does.
type crashFaults struct {
	away map[string]bool // nodes that are not ready, and those that were removed (true)
	sick map[string]int  // nodes that offer a GPU less: its number
	// shunned are nodes with a condition that says that a GPU is broken. Nobody knows which one a
	// device plugin would choose, so that none takes a pod.
	shunned map[string]bool
	counts  map[string]int // what failed how often
	// nodeAway is called before a node goes away.
	nodeAway func(name string)
}

func newCrashFaults() crashFaults {
	return crashFaults{away: map[string]bool{}, sick: map[string]int{}, shunned: map[string]bool{}, counts: map[string]int{}}
}

// mostAway are the nodes that may be away at a time.
const mostAway = 3

// nodeFails has a node go, or one come back.
func (l *crashLoad) nodeFails() {
	l.Helper()
	if len(l.away) == mostAway || len(l.away) > 0 && l.rng.IntN(2) == 0 {
		l.nodeReturns(one(l.rng, slices.Sorted(maps.Keys(l.away))...))
		return
	}
	n := one(l.rng, l.nodes...)
	if _, is := l.away[n]; is {
		return
	}
	l.nodeAway(n)
	if l.away[n] = l.rng.IntN(2) == 0; l.away[n] {
		l.counts["node removed"]++
		l.must(fleet.RemoveNode(ctx(), admin, n))
	} else {
		l.counts["node not ready"]++
		l.must(fleet.FailNode(ctx(), admin, n))
	}
}

func (l *crashLoad) nodeReturns(n string) {
	l.Helper()
	l.must(fleet.RepairNode(ctx(), admin, n))
	delete(l.away, n)
}

// gpuFails has a GPU of a node of east fail: the node offers one less, or a condition says so.
func (l *crashLoad) gpuFails() {
	l.Helper()
	n := fmt.Sprintf("east%d", l.rng.IntN(eastNodes))
	if _, is := l.away[n]; is {
		return
	}
	_, sick := l.sick[n]
	switch {
	case l.shunned[n]:
		l.noteGPU(n, false)
	case sick:
		l.gpuWorks(n)
	case l.rng.IntN(2) == 0 && len(l.shunned) == 0: // more than a node would leave too little
		l.counts["condition of a GPU"]++
		l.noteGPU(n, true)
	case len(l.sick) < 3:
		l.counts["GPU failed"]++
		l.sick[n] = l.rng.IntN(8)
		l.must(fleet.FailGPU(ctx(), admin, n, l.sick[n]))
	}
}

func (l *crashLoad) gpuWorks(n string) {
	l.Helper()
	l.must(fleet.RepairGPU(ctx(), admin, n, l.sick[n]))
	delete(l.sick, n)
}

// noteGPU gives a node a condition about its GPUs, as NVSentinel does, or takes it away.
func (l *crashLoad) noteGPU(node string, broken bool) {
	l.Helper()
	const kind v1.NodeConditionType = "GpuXidError"
	l.until("the condition of "+node+" is written", func() error {
		n, err := admin.CoreV1().Nodes().Get(ctx(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == kind })
		if broken {
			n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: kind, Status: v1.ConditionTrue, Message: "XID 79 on GPU:3"})
		}
		_, err = admin.CoreV1().Nodes().UpdateStatus(ctx(), n, metav1.UpdateOptions{})
		return err
	})
	if delete(l.shunned, node); broken {
		l.shunned[node] = true
	}
}

// nodesReturn has all nodes come back.
func (l *crashLoad) nodesReturn() {
	l.Helper()
	for _, n := range slices.Sorted(maps.Keys(l.away)) {
		l.nodeReturns(n)
	}
}

// gpusWork has all GPUs work.
func (l *crashLoad) gpusWork() {
	l.Helper()
	l.sickWork()
	for _, n := range slices.Sorted(maps.Keys(l.shunned)) {
		l.noteGPU(n, false)
	}
}

// sickWork has the GPUs work that nodes do not offer.
func (l *crashLoad) sickWork() {
	l.Helper()
	for _, n := range slices.Sorted(maps.Keys(l.sick)) {
		l.gpuWorks(n)
	}
}
