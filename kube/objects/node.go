package objects

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/health"
	"github.com/muster-sched/muster/kube/sharing"
	"github.com/muster-sched/muster/kube/translate"
)

// Node is what the scheduler needs of a node.
type Node struct {
	metav1.ObjectMeta
	Node    core.Node         // as the engine gets it, before what pods of other schedulers take is subtracted
	GPUs    []v1.ResourceName // the resources of its device plugins
	Missing int               // GPUs that it has and does not offer
	Closed  bool              // it is cordoned
	Unready time.Time         // since when it is not ready, as the API says; zero when it is
	Befell  Trouble           // why it is not ready
	Fault   health.Fault      // what its conditions say about its GPUs
	Zone    string            // its region and zone
	Apart   bool              // it does not count for whether the others can be reached
	Wrong   string            // why it cannot be used
	// Drain is set while it must be emptied; Undrained says why a request to empty it has no
	// effect.
	Drain     *translate.Drain
	Undrained string
	// Misplaced says why what it says about the positions of its GPUs, or how they may be shared, has no effect.
	Misplaced string
	// Evictions is how many LP pods were evicted from it, as an instance counted that wrote it there;
	// Miscounted says why what is written there has no effect.
	Evictions  int
	Miscounted string
	Unread     bool // nothing is known of it: it could not be read
}

// Trouble is why a node is not ready.
type Trouble uint8

const (
	notReady    Trouble = iota // its kubelet says so
	unreachable                // its kubelet says nothing
	troubles
)

// Problems lists what of a node cannot be used, and why.
func (n *Node) Problems() (list [][2]string) {
	for _, p := range [][2]string{
		{"cannot use a node", n.Wrong}, {"cannot drain a node", n.Undrained}, {"cannot use what a node says of its GPUs", n.Misplaced}, {"GPUs of a node are broken", n.Fault.Why},
	} {
		if p[1] != "" {
			list = append(list, p)
		}
	}
	return list
}

// TrimNode cuts a node down.
func TrimNode(n *v1.Node) *Node {
	o := &Node{ObjectMeta: trimMeta(&n.ObjectMeta), Closed: n.Spec.Unschedulable}
	var err error
	if o.Node, o.Missing, err = translate.Node(n); err != nil {
		o.Wrong = err.Error()
	}
	if _, err := translate.Positions(n); err != nil && o.Wrong == "" {
		o.Misplaced = err.Error()
	} else if _, err := sharing.Blind(n.Labels); err != nil && o.Wrong == "" {
		o.Misplaced = err.Error()
	}
	if o.Evictions, err = translate.Evictions(n); err != nil {
		o.Miscounted = err.Error()
	}
	o.GPUs, o.Fault = translate.NodeGPUs(n), health.Of(n)
	if o.Drain, err = translate.DrainOf(n); err != nil {
		o.Undrained = err.Error()
	}
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == v1.NodeReady && c.Status != v1.ConditionTrue {
			o.Unready = c.LastTransitionTime.Time
			if o.Unready.IsZero() {
				o.Unready = time.Unix(0, 0)
			}
			if c.Status == v1.ConditionUnknown {
				o.Befell = unreachable
			}
		}
	}
	o.Zone = n.Labels[v1.LabelTopologyRegion] + "\x00" + n.Labels[v1.LabelTopologyZone]
	_, o.Apart = n.Labels[excludeDisruption]
	return o
}

// excludeDisruption is the label of nodes that do not count for whether the nodes of
// a zone can be reached, as for Kubernetes' node lifecycle controller.
const excludeDisruption = "node.kubernetes.io/exclude-disruption"

// BareNode is what is known of a node that cannot be read.
func BareNode(n *v1.Node) *Node {
	return &Node{ObjectMeta: trimMeta(&n.ObjectMeta), Wrong: "the scheduler failed while it read this node", Unread: true}
}
