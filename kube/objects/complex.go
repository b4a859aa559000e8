package objects

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/kube/prefer"
	"github.com/muster-sched/muster/kube/translate"
)

// The API server bounds what a pod says by its size alone. The scheduler's work for a pod
// grows with the number of things that the pod says, and for some with its square; so
// these have bounds, far above what pods have.
const (
	// MaxKeys is the maximum number of labels, and of annotations, of a pod.
	MaxKeys = 500
	// MaxTerms is the maximum number of a pod's affinity and anti-affinity terms, spread
	// constraints, and alternatives in its node affinity.
	MaxTerms = 100
	// MaxValues is the maximum number of values and expressions in the selectors of one pod.
	MaxValues = 2000
	// MaxValue is the maximum length of a label or annotation that Muster reads, and of the name and kind of an
	// owner, in bytes.
	MaxValue = 8192
	// MaxLists is the maximum number of tolerations, ports and volumes of a pod.
	MaxLists = 500
)

// tooComplex says what a pod has too many of to be scheduled; "" for nothing.
func tooComplex(p *v1.Pod) string {
	terms, values := 0, len(p.Spec.NodeSelector)
	if a := p.Spec.Affinity; a != nil {
		if n := a.NodeAffinity; n != nil && n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			list := n.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			terms += len(list)
			for i := range list {
				for _, e := range list[i].MatchExpressions {
					values += 1 + len(e.Values)
				}
				for _, e := range list[i].MatchFields {
					values += 1 + len(e.Values)
				}
			}
		}
		var list []v1.PodAffinityTerm
		if a.PodAffinity != nil {
			list = append(list, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution...)
		}
		if a.PodAntiAffinity != nil {
			list = append(list, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution...)
		}
		terms += len(list)
		for i := range list {
			values += valuesOf(&list[i])
		}
	}
	preferred, valued := prefer.Count(p, valuesOf)
	terms, values = terms+preferred, values+valued
	terms += len(p.Spec.TopologySpreadConstraints)
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		values += len(c.MatchLabelKeys) + valuesIn(c.LabelSelector)
	}
	ports := 0
	for _, list := range [...][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			ports += len(list[i].Ports)
		}
	}
	for _, x := range [...]struct {
		what        string
		there, most int
	}{
		{"labels", len(p.Labels), MaxKeys},
		{"annotations", len(p.Annotations), MaxKeys},
		{"affinity terms and spread constraints", terms, MaxTerms},
		{"values and expressions in selectors", values, MaxValues},
		{"tolerations", len(p.Spec.Tolerations), MaxLists},
		{"ports", ports, MaxLists},
		{"volumes", len(p.Spec.Volumes), MaxLists},
		{"resource claims", len(p.Spec.ResourceClaims), MaxLists},
	} {
		if x.there > x.most {
			return fmt.Sprintf("the pod has %d %s: expected at most %d", x.there, x.what, x.most)
		}
	}
	for _, o := range p.OwnerReferences {
		if n := len(o.APIVersion) + len(o.Kind) + len(o.Name); n > MaxValue {
			return fmt.Sprintf("an owner of the pod has a name and kind of %d bytes: expected at most %d", n, MaxValue)
		}
	}
	return tooLong(translate.SaidBy(p))
}

// tooLong says which value that Muster reads is too long, the first by its key; "" for none.
func tooLong(said translate.Said) string {
	for _, table := range [...]map[string]string{said.Labels, said.Annotations} {
		for _, k := range slices.Sorted(maps.Keys(table)) {
			if n := len(table[k]); n > MaxValue {
				return fmt.Sprintf("%s has %d bytes: expected at most %d", k, n, MaxValue)
			}
		}
	}
	return ""
}

// short is a text that quotes what users wrote, cut to what people read.
func short(text string) string {
	const most = 1000
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// valuesOf is how many expressions and values the selectors of a term have.
func valuesOf(t *v1.PodAffinityTerm) int {
	return len(t.Namespaces) + len(t.MatchLabelKeys) + len(t.MismatchLabelKeys) + valuesIn(t.LabelSelector) + valuesIn(t.NamespaceSelector)
}

// valuesIn is how many expressions and values a selector has.
func valuesIn(s *metav1.LabelSelector) int {
	if s == nil {
		return 0
	}
	n := len(s.MatchLabels)
	for _, e := range s.MatchExpressions {
		n += 1 + len(e.Values)
	}
	return n
}

// plain returns a pod that is too complex without the lists that make it so: what it takes
// and who made it, with the keys that count from its binding until it ends.
func plain(p *v1.Pod) *v1.Pod {
	x := *p
	said := translate.SaidBy(p)
	maps.DeleteFunc(said.Annotations, func(_, v string) bool { return len(v) > MaxValue })
	x.OwnerReferences = slices.DeleteFunc(slices.Clone(p.OwnerReferences), func(o metav1.OwnerReference) bool {
		return len(o.APIVersion)+len(o.Kind)+len(o.Name) > MaxValue
	})
	x.Labels, x.Annotations = said.Labels, said.Annotations
	x.Spec.Affinity, x.Spec.TopologySpreadConstraints, x.Spec.Tolerations, x.Spec.Volumes, x.Spec.NodeSelector = nil, nil, nil, nil, nil
	return &x
}
