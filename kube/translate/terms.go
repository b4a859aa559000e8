package translate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// What a pod requires of the pods around it: affinity, anti-affinity, topology
// spread, host ports. The engine knows labels of jobs where Kubernetes selects
// pods, so the pods that a term means have a name, by which they are labelled.

// Peers are the pods that a term means.
type Peers struct {
	// Name tells those who mean the same pods from those who do not. It goes by
	// the words of the selectors.
	Name string
	// Namespaces lists where the pods are; ByLabel says that they may be
	// elsewhere too, by the labels of their namespaces.
	Namespaces []string
	ByLabel    bool

	all []peer // all of which a pod must match
}

// peer is one selector of pods.
type peer struct {
	namespaces []string
	by         labels.Selector // of namespaces; nil for none
	pods       labels.Selector
}

// Match reports whether a pod in a namespace, with the labels that both have, is among them.
func (p *Peers) Match(namespace string, of map[string]string, pod labels.Labels) bool {
	for i := range p.all {
		o := &p.all[i]
		if !slices.Contains(o.namespaces, namespace) && (o.by == nil || !o.by.Matches(labels.Set(of))) || !o.pods.Matches(pod) {
			return false
		}
	}
	return true
}

// Pair returns a label that each of them has, and the values of which it has one, nil for any; false when they need have none.
func (p *Peers) Pair() (key string, values []string, ok bool) {
	for i := range p.all {
		requirements, _ := p.all[i].pods.Requirements()
		for _, r := range requirements {
			switch r.Operator() {
			case selection.In, selection.Equals, selection.DoubleEquals:
				return r.Key(), r.Values().UnsortedList(), true
			case selection.Exists:
				key, ok = r.Key(), true
			}
		}
	}
	return key, nil, ok
}

// newPeers names the pods that match all of the selectors.
func newPeers(all []peer) *Peers {
	p := &Peers{all: all}
	var names []string
	for _, o := range all {
		name := strings.Join(o.namespaces, "|")
		if o.by != nil {
			name += "{" + o.by.String() + "}"
			p.ByLabel = true
		}
		pods := o.pods.String()
		if pods == "" && !o.pods.Empty() {
			pods = "none"
		}
		names = append(names, name+"/"+pods)
		p.Namespaces = append(p.Namespaces, o.namespaces...)
	}
	slices.Sort(names)
	p.Name = strings.Join(slices.Compact(names), " & ")
	slices.Sort(p.Namespaces)
	p.Namespaces = slices.Compact(p.Namespaces)
	return p
}

// Term is one thing that a pod requires of others.
type Term struct {
	Peers *Peers
	// Key is the node label that makes nodes one domain.
	Key string
	// These are as in [core.Term].
	Anti                bool
	MaxSkew, MinDomains int
	AnyTaint, AnyLabel  bool
	// Weight is not 0 if the pod merely prefers to be near those pods, or below 0 away from them: see [core.Preference].
	Weight int32
	Group  bool // of a Weight above 0: [core.Preference.Group]
}

// Terms returns what a pod requires of the pods around it: what it merely
// prefers is left out. An error says, in the words of the pod's author, what
// cannot be used.
func Terms(p *v1.Pod) ([]Term, error) {
	var out []Term
	if a := p.Spec.Affinity; a != nil && a.PodAffinity != nil {
		// A pod counts that all terms mean, whatever their keys.
		var all []peer
		terms := a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		for i := range terms {
			o, err := peerOf(p, &terms[i])
			if err != nil {
				return nil, fmt.Errorf("pod affinity: %w", err)
			}
			all = append(all, o)
		}
		peers := newPeers(all)
		for i := range terms {
			out = append(out, Term{Peers: peers, Key: terms[i].TopologyKey})
		}
	}
	anti, err := AntiTerms(p)
	if err != nil {
		return nil, err
	}
	out = append(out, anti...)
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		if c.WhenUnsatisfiable != v1.DoNotSchedule {
			continue
		}
		t, err := spread(p, c)
		if err != nil {
			return nil, fmt.Errorf("topologySpreadConstraints[%d]: %w", i, err)
		}
		out = append(out, t)
	}
	return out, nil
}

// AntiTerms returns the required anti-affinities of a pod, which hold for others
// against it too.
func AntiTerms(p *v1.Pod) ([]Term, error) {
	var out []Term
	if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		terms := a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		for i := range terms {
			o, err := peerOf(p, &terms[i])
			if err != nil {
				return nil, fmt.Errorf("pod anti-affinity: %w", err)
			}
			out = append(out, Term{Peers: newPeers([]peer{o}), Key: terms[i].TopologyKey, Anti: true})
		}
	}
	return out, nil
}

// PeersOf returns the pods that a term means.
func PeersOf(p *v1.Pod, t *v1.PodAffinityTerm) (*Peers, error) {
	o, err := peerOf(p, t)
	if err != nil {
		return nil, err
	}
	return newPeers([]peer{o}), nil
}

// SpreadPeers returns the pods that a constraint on spread counts.
func SpreadPeers(p *v1.Pod, c *v1.TopologySpreadConstraint) (*Peers, error) {
	s, err := selector(p, c.LabelSelector, c.MatchLabelKeys, nil)
	if err != nil {
		return nil, err
	}
	return newPeers([]peer{{namespaces: []string{p.Namespace}, pods: s}}), nil
}

// peerOf reads the selectors of a term.
func peerOf(p *v1.Pod, t *v1.PodAffinityTerm) (peer, error) {
	o := peer{namespaces: slices.Sorted(slices.Values(t.Namespaces))}
	var err error
	if o.pods, err = selector(p, t.LabelSelector, t.MatchLabelKeys, t.MismatchLabelKeys); err != nil {
		return o, err
	}
	switch {
	case t.NamespaceSelector != nil:
		if o.by, err = metav1.LabelSelectorAsSelector(t.NamespaceSelector); err != nil {
			return o, fmt.Errorf("namespaceSelector: %w", err)
		}
	case len(o.namespaces) == 0:
		o.namespaces = []string{p.Namespace}
	}
	return o, nil
}

// selector reads a selector of pods. Of the labels with the given keys the pods
// must have, or must not have, the pod's own values.
func selector(p *v1.Pod, s *metav1.LabelSelector, same, other []string) (labels.Selector, error) {
	if s == nil {
		return labels.Nothing(), nil
	}
	if len(same)+len(other) > 0 {
		s = s.DeepCopy()
		for op, keys := range map[metav1.LabelSelectorOperator][]string{metav1.LabelSelectorOpIn: same, metav1.LabelSelectorOpNotIn: other} {
			for _, k := range keys {
				if v, ok := p.Labels[k]; ok {
					s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: k, Operator: op, Values: []string{v}})
				}
			}
		}
	}
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, fmt.Errorf("labelSelector: %w", err)
	}
	return out, nil
}

// spread reads a constraint on how pods are spread. Without policies, nodes that the pod's selectors do not accept do
// not count, and those whose taints it does not tolerate do, as in Kubernetes.
func spread(p *v1.Pod, c *v1.TopologySpreadConstraint) (Term, error) {
	affinity, taints := ptr.Deref(c.NodeAffinityPolicy, v1.NodeInclusionPolicyHonor), ptr.Deref(c.NodeTaintsPolicy, v1.NodeInclusionPolicyIgnore)
	for name, policy := range map[string]v1.NodeInclusionPolicy{"nodeAffinityPolicy": affinity, "nodeTaintsPolicy": taints} {
		if policy != v1.NodeInclusionPolicyHonor && policy != v1.NodeInclusionPolicyIgnore {
			return Term{}, fmt.Errorf("%s %s is unknown: expected %s or %s", name, policy, v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyIgnore)
		}
	}
	peers, err := SpreadPeers(p, c)
	if err != nil {
		return Term{}, err
	}
	t := Term{Peers: peers, Key: c.TopologyKey, MaxSkew: int(c.MaxSkew)}
	t.AnyTaint, t.AnyLabel = taints == v1.NodeInclusionPolicyIgnore, affinity == v1.NodeInclusionPolicyIgnore
	if c.MinDomains != nil {
		t.MinDomains = int(*c.MinDomains)
	}
	return t, nil
}

// Port is a port of its node that a pod takes.
type Port struct {
	Protocol v1.Protocol
	Number   int32
	// Address is empty for all addresses of the node.
	Address string
}

// Ports returns the ports of its node that a pod takes, in order, each once.
func Ports(p *v1.Pod) []Port {
	var out []Port
	add := func(c *v1.Container) {
		for _, q := range c.Ports {
			if q.HostPort == 0 {
				continue
			}
			port := Port{cmp.Or(q.Protocol, v1.ProtocolTCP), q.HostPort, q.HostIP}
			if port.Address == "0.0.0.0" {
				port.Address = ""
			}
			out = append(out, port)
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	slices.SortFunc(out, func(a, b Port) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Number, b.Number), cmp.Compare(a.Address, b.Address))
	})
	return slices.Compact(out)
}

// String names the port at whatever address, such as "port TCP/80".
func (p Port) String() string {
	return "port " + string(p.Protocol) + "/" + strconv.Itoa(int(p.Number))
}

func (p Port) at(address string) string { return p.String() + " at " + cmp.Or(address, "all") }

// Labels are what the engine is told of a pod that takes the port.
func (p Port) Labels() []string { return []string{p.String(), p.at(p.Address)} }

// Terms keep a pod off the nodes where the port is taken: at its address or at all
// of them.
func (p Port) Terms() []core.Term {
	if p.Address == "" {
		return []core.Term{{Level: cluster.NodeLevel, Label: p.String(), Anti: true}}
	}
	return []core.Term{
		{Level: cluster.NodeLevel, Label: p.at(p.Address), Anti: true}, {Level: cluster.NodeLevel, Label: p.at(""), Anti: true},
	}
}

// Labels are the labels of a pod as text, which takes little where many pods have
// the same: "app=a,role=b", sorted.
type Labels string

// LabelsOf writes labels as text.
func LabelsOf(l map[string]string) Labels { return Labels(labels.Set(l).String()) }

// Set returns the labels.
func (l Labels) Set() labels.Set {
	out := labels.Set{}
	if l != "" {
		for pair := range strings.SplitSeq(string(l), ",") {
			k, v, _ := strings.Cut(pair, "=")
			out[k] = v
		}
	}
	return out
}
