package console

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/internal/hostlist"
	"github.com/muster-sched/muster/kube/health"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/translate"
)

// NodeState is the state of a node, in the words of sinfo.
type NodeState string

// The states of nodes.
const (
	// Idle: no GPU is used; Mixed: some are; Allocated: all are. A node without
	// GPUs is idle or mixed.
	Idle      NodeState = "idle"
	Mixed     NodeState = "mix"
	Allocated NodeState = "alloc"
	// Drained: closed to new pods, and no pod with GPUs is left; Draining: some
	// are left.
	Drained  NodeState = "drain"
	Draining NodeState = "drng"
	// Down: not ready.
	Down NodeState = "down"
)

var nodeStates = []NodeState{Allocated, Mixed, Idle, Draining, Drained, Down}

// Node is a node and what its pods use. Its fields are what -o json prints.
type Node struct {
	Name string `json:"name"`
	// Model is the GPU model, empty without GPUs.
	Model string    `json:"model"`
	State NodeState `json:"state"`
	// Cordoned says that the node is closed to new pods.
	Cordoned bool `json:"cordoned"`
	// GPUs counts the devices, Unhealthy those that the device plugin does not
	// offer or, of those published by DRA, that a taint keeps pods off, or all that a
	// condition of the node may mean. Used is what pods of any scheduler hold, Free the
	// healthy rest.
	GPUs      int           `json:"gpus"`
	Unhealthy int           `json:"unhealthy"`
	Used      v1alpha1.GPUs `json:"used"`
	Free      v1alpha1.GPUs `json:"free"`
	// Overcommitted says that pods hold more GPUs than there are, or that a device was
	// given to several pods which have more than all of it together.
	Overcommitted bool `json:"overcommitted"`
	// CPU is in thousandths of a core, memory in MiB: what there is and what
	// pods ask for.
	CPUMilli     int64 `json:"cpu_milli"`
	CPUUsedMilli int64 `json:"cpu_used_milli"`
	MemMiB       int64 `json:"mem_mib"`
	MemUsedMiB   int64 `json:"mem_used_mib"`
	Pods         int   `json:"pods"`
	// Leaf is the node's domain at the narrowest level of the topology in use,
	// HBD its scale-up domain.
	Leaf string `json:"leaf,omitempty"`
	HBD  string `json:"hbd,omitempty"`

	ready, closed bool
	published     *published // nil where a device plugin offers the GPUs
	labelled      string     // the GPU model that its labels name
	fault         health.Fault
	// given is how much of each device pods have, as far as they say which they have.
	given []core.Milli
	// lent are the devices of pods on standby; parts the pods whose GPUs the kubelet does not
	// count. Those that are on lent devices have nothing of their own.
	lent  uint64
	parts []*v1.Pod
	spec  core.Node // without GPUs that are published and without domains
}

// fragmented reports whether some of the GPUs are used and some are not.
func (n *Node) fragmented() bool { return n.Used > 0 && n.Free > 0 }

// Nodes lists the nodes by model and name.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	return c.listNodes(ctx, live+",spec.nodeName!=", func() {}, func(*v1.Pod) {})
}

// listNodes lists the nodes and what pods use of them: those that the selector of
// fields picks, with which it calls each, after reset when it begins again.
func (c *Client) listNodes(ctx context.Context, fields string, reset func(), each func(*v1.Pod)) ([]Node, error) {
	levels, err := c.levels(ctx)
	if err != nil {
		return nil, c.say("list topologies", err)
	}
	nodes := []Node{}
	err = pages(ctx, metav1.ListOptions{}, c.kube.CoreV1().Nodes().List, func() { nodes = nodes[:0] }, func(l *v1.NodeList) {
		for i := range l.Items {
			nodes = append(nodes, newNode(&l.Items[i], levels))
		}
	})
	if err != nil {
		return nil, c.say("list nodes", err)
	}
	if err := c.publish(ctx, nodes); err != nil {
		return nil, err
	}
	slices.SortFunc(nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	byName := make(map[string]*Node, len(nodes))
	for i := range nodes {
		byName[nodes[i].Name] = &nodes[i]
	}
	err = c.listPods(ctx, "", fields, func() { empty(nodes); reset() }, func(p *v1.Pod) {
		hold(byName, p)
		each(p)
	})
	if err != nil {
		return nil, err
	}
	settle(nodes)
	return nodes, nil
}

func newNode(o *v1.Node, levels []string) Node {
	n, missing, err := translate.Node(o)
	if err != nil { // too many GPUs: it is there, but cannot be used
		n.Name, n.Cordoned = o.Name, true
	}
	out := Node{
		Name: o.Name, Model: n.Model, Cordoned: o.Spec.Unschedulable, GPUs: n.GPUs, Unhealthy: missing,
		CPUMilli: n.CPUMilli, MemMiB: n.MemMiB, HBD: n.HBD, closed: n.Cordoned, labelled: translate.Model(o.Labels),
		spec: n,
	}
	if out.fault = health.Of(o); out.fault.Why != "" {
		out.Unhealthy = out.GPUs
	}
	for i := range o.Status.Conditions {
		if k := &o.Status.Conditions[i]; k.Type == v1.NodeReady {
			out.ready = k.Status == v1.ConditionTrue
		}
	}
	if len(levels) > 0 {
		out.Leaf = o.Labels[levels[len(levels)-1]]
	}
	return out
}

// empty takes all pods off their nodes.
func empty(nodes []Node) {
	for i := range nodes {
		n := &nodes[i]
		n.Used, n.CPUUsedMilli, n.MemUsedMiB, n.Pods, n.given, n.lent, n.parts = 0, 0, 0, 0, nil, 0, nil
		if n.published != nil {
			n.published.pods = 0
		}
	}
}

// hold counts a pod on its node.
func hold(nodes map[string]*Node, p *v1.Pod) {
	n := nodes[p.Spec.NodeName]
	if n == nil {
		return
	}
	need := translate.Requests(p)
	switch {
	case n.published != nil:
		n.published.hold(p)
	case need.GPUs > 0:
		n.Used += v1alpha1.GPUs(core.Milli(need.GPUs) * core.WholeGPU)
		n.give(p, need.GPUs, core.WholeGPU)
	default:
		n.parts = append(n.parts, p)
	}
	if s := objects.StandbyOf(p); s != nil && s.Lends {
		n.lent |= devicesOf(p)
	}
	n.CPUUsedMilli += need.CPUMilli
	n.MemUsedMiB += need.MemMiB
	n.Pods++
}

// give counts what a pod has of each device, if it says this many devices.
func (n *Node) give(p *v1.Pod, devices int64, share core.Milli) {
	list, err := translate.ParseDevices(p.Annotations[v1alpha1.GPUsAnnotation])
	if err != nil || int64(len(list)) != devices {
		return
	}
	if n.given == nil {
		n.given = make([]core.Milli, n.GPUs)
	}
	for _, d := range list {
		if d < len(n.given) {
			n.given[d] += share
		}
	}
}

// share counts the pods whose GPUs the kubelet does not count.
func (n *Node) share() {
	for _, p := range n.parts {
		s := objects.StandbyOf(p)
		if devicesOf(p)&n.lent != 0 && (s == nil || !s.Lends) {
			continue
		}
		if count := translate.Held(p); count >= core.WholeGPU {
			n.Used += v1alpha1.GPUs(count)
			n.give(p, int64(count/core.WholeGPU), core.WholeGPU)
			continue
		}
		n.Used += v1alpha1.GPUs(part(p))
		n.give(p, 1, part(p))
	}
}

// devicesOf is the set of GPUs that a pod has.
func devicesOf(p *v1.Pod) (set uint64) {
	list, err := translate.ParseDevices(p.Annotations[v1alpha1.GPUsAnnotation])
	if err != nil {
		return 0
	}
	for _, d := range list {
		set |= 1 << d
	}
	return set
}

// part is what a pod has of a GPU that it shares with others; 0 when it has
// none.
func part(p *v1.Pod) core.Milli {
	if devices, err := translate.ParseDevices(p.Annotations[v1alpha1.GPUsAnnotation]); err == nil && len(devices) == 1 {
		return translate.Share(p)
	}
	var a translate.Attributes
	if p.Spec.SchedulerName == v1alpha1.SchedulerName {
		_ = a.Read(p)
	}
	return a.Fraction
}

// settle fills in what follows from what pods use.
func settle(nodes []Node) {
	for i := range nodes {
		n := &nodes[i]
		n.share()
		if n.published != nil {
			n.Used = n.published.used()
		}
		healthy := v1alpha1.GPUs(core.Milli(n.GPUs-n.Unhealthy) * core.WholeGPU)
		n.Free = max(0, healthy-n.Used)
		n.Overcommitted = n.Used > v1alpha1.GPUs(core.Milli(n.GPUs)*core.WholeGPU) ||
			slices.ContainsFunc(n.given, func(given core.Milli) bool { return given > core.WholeGPU })
		busy := n.Used > 0 || n.GPUs == 0 && n.Pods > 0
		switch {
		case !n.ready:
			n.State = Down
		case n.closed && busy:
			n.State = Draining
		case n.closed:
			n.State = Drained
		case !busy:
			n.State = Idle
		case n.Free > 0 || n.GPUs == 0:
			n.State = Mixed
		default:
			n.State = Allocated
		}
	}
}

// ParseNodeStates reads a list such as "idle,mix".
func ParseNodeStates(list []string) ([]NodeState, error) {
	var out []NodeState
	for _, word := range list {
		if i := slices.IndexFunc(nodeStates, func(s NodeState) bool { return strings.EqualFold(string(s), word) }); i >= 0 {
			out = append(out, nodeStates[i])
			continue
		}
		return nil, fmt.Errorf("expected states such as %s; found %q", NodeStates(), word)
	}
	return out, nil
}

// NodeStates lists the states of nodes, for help texts.
func NodeStates() string {
	var all []string
	for _, s := range nodeStates {
		all = append(all, string(s))
	}
	return strings.Join(all, ", ")
}

// pool is the nodes of a model in a state.
type pool struct {
	model string
	state NodeState
	nodes []*Node
	sum   Node
	over  int // how many nodes are overcommitted
}

// Pools writes nodes by model and state, as sinfo does.
func Pools(w io.Writer, v *View, nodes []Node) error {
	var pools []*pool
	by := map[[2]string]*pool{}
	for i := range nodes {
		n := &nodes[i]
		key := [2]string{n.Model, string(n.State)}
		p := by[key]
		if p == nil {
			p = &pool{model: n.Model, state: n.State}
			by[key], pools = p, append(pools, p)
		}
		p.nodes = append(p.nodes, n)
		p.sum.GPUs, p.sum.Unhealthy = p.sum.GPUs+n.GPUs, p.sum.Unhealthy+n.Unhealthy
		p.sum.Used, p.sum.Free = p.sum.Used+n.Used, p.sum.Free+n.Free
		p.sum.Pods += n.Pods
		if n.Overcommitted {
			p.over++
		}
	}
	slices.SortFunc(pools, func(a, b *pool) int {
		return cmp.Or(cmp.Compare(a.model, b.model), cmp.Compare(slices.Index(nodeStates, a.state), slices.Index(nodeStates, b.state)))
	})
	return list(w, v, []column[*pool]{
		{name: "MODEL", text: func(p *pool) string { return cmp.Or(p.model, "-") }},
		{name: "STATE", text: func(p *pool) string { return string(p.state) }},
		{name: "NODES", right: true, text: func(p *pool) string { return fmt.Sprint(len(p.nodes)) }},
		{name: "GPUS", right: true, text: func(p *pool) string { return fmt.Sprint(p.sum.GPUs) }},
		{name: "USED", right: true, text: func(p *pool) string { return p.sum.Used.String() }},
		{name: "FREE", right: true, text: func(p *pool) string { return p.sum.Free.String() }},
		{name: "UNHEALTHY", right: true, text: func(p *pool) string { return fmt.Sprint(p.sum.Unhealthy) }},
		{name: "OVERCOMMITTED", right: true, text: func(p *pool) string { return fmt.Sprint(p.over) }, when: func(*View) bool { return overcommitted(nodes) }},
		{name: "PODS", right: true, text: func(p *pool) string { return fmt.Sprint(p.sum.Pods) }, when: wide},
		{name: "NODELIST", text: func(p *pool) string {
			var names []string
			for _, n := range p.nodes {
				names = append(names, n.Name)
			}
			return hostlist.Format(names)
		}},
	}, pools)
}

// NodeLines writes a line for each node, as sinfo -N does.
func NodeLines(w io.Writer, v *View, nodes []Node) error {
	leaves := slices.ContainsFunc(nodes, func(n Node) bool { return n.Leaf != "" })
	hbds := v.Wide && slices.ContainsFunc(nodes, func(n Node) bool { return n.HBD != "" })
	return list(w, v, []column[*Node]{
		{name: "NODE", text: func(n *Node) string { return n.Name }},
		{name: "STATE", text: func(n *Node) string { return string(n.State) }},
		{name: "MODEL", text: func(n *Node) string { return cmp.Or(n.Model, "-") }},
		{name: "GPUS", right: true, text: func(n *Node) string { return fmt.Sprint(n.GPUs) }},
		{name: "USED", right: true, text: func(n *Node) string { return n.Used.String() }},
		{name: "FREE", right: true, text: func(n *Node) string { return n.Free.String() }},
		{name: "UNHEALTHY", right: true, text: func(n *Node) string { return fmt.Sprint(n.Unhealthy) }},
		{name: "OVERCOMMITTED", text: func(n *Node) string { return yesNo(n.Overcommitted) }, when: func(*View) bool { return overcommitted(nodes) }},
		{name: "CPU", right: true, text: func(n *Node) string { return fmt.Sprintf("%s/%d", cores(n.CPUUsedMilli), n.CPUMilli/1000) }},
		{name: "MEMORY", right: true, text: func(n *Node) string { return fmt.Sprintf("%d/%dGi", n.MemUsedMiB>>10, n.MemMiB>>10) }},
		{name: "PODS", right: true, text: func(n *Node) string { return fmt.Sprint(n.Pods) }, when: wide},
		{name: "CORDONED", text: func(n *Node) string { return yesNo(n.Cordoned) }},
		{name: "LEAF", text: func(n *Node) string { return cmp.Or(n.Leaf, "-") }, when: func(*View) bool { return leaves }},
		{name: "HBD", text: func(n *Node) string { return cmp.Or(n.HBD, "-") }, when: func(*View) bool { return hbds }},
	}, pointers(nodes))
}

// overcommitted reports whether any node is: there is a column for it then.
func overcommitted(nodes []Node) bool {
	return slices.ContainsFunc(nodes, func(n Node) bool { return n.Overcommitted })
}

func yesNo(yes bool) string { return map[bool]string{false: "no", true: "yes"}[yes] }

// cores writes thousandths of a core.
func cores(milli int64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.1f", float64(milli)/1000), "0"), ".")
}
