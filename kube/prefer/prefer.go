// Package prefer translates what pods prefer to the engine's vocabulary: preferred node affinity, preferred affinity to and from
// pods, and constraints on their spread that need not hold. It is pure.
package prefer

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/translate"
)

// Of returns what a pod prefers of the labels of nodes, and of the pods around it as terms with a weight. A constraint with
// ScheduleAnyway counts as if the pod preferred with the largest weight to be away from each pod that it selects. An error
// says what cannot be read.
func Of(p *v1.Pod) ([]core.Preference, []translate.Term, error) {
	var nodes []core.Preference
	var terms []translate.Term
	a := p.Spec.Affinity
	if a == nil {
		a = &v1.Affinity{}
	}
	if a.NodeAffinity != nil {
		for _, t := range a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			o := core.Preference{Weight: t.Weight}
			for _, e := range slices.Concat(t.Preference.MatchExpressions, t.Preference.MatchFields) {
				r, err := translate.Requirement(&e)
				if err != nil {
					return nil, nil, fmt.Errorf("preferred %w", err)
				}
				o.Selector = append(o.Selector, r)
			}
			if len(o.Selector) == 0 {
				continue // a term without conditions matches no node
			}
			if err := o.Check(); err != nil {
				return nil, nil, fmt.Errorf("preferred node affinity: %w", err)
			}
			nodes = append(nodes, o)
		}
	}
	add := func(t *v1.WeightedPodAffinityTerm, sign int32) error {
		peers, err := translate.PeersOf(p, &t.PodAffinityTerm)
		if err != nil {
			return fmt.Errorf("preferred pod affinity: %w", err)
		}
		terms = append(terms, translate.Term{Peers: peers, Key: t.PodAffinityTerm.TopologyKey, Weight: sign * t.Weight})
		return nil
	}
	if a.PodAffinity != nil {
		for i := range a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			if err := add(&a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i], 1); err != nil {
				return nil, nil, err
			}
		}
	}
	if a.PodAntiAffinity != nil {
		for i := range a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			if err := add(&a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i], -1); err != nil {
				return nil, nil, err
			}
		}
	}
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		if c.WhenUnsatisfiable != v1.ScheduleAnyway {
			continue
		}
		peers, err := translate.SpreadPeers(p, c)
		if err != nil {
			return nil, nil, fmt.Errorf("topologySpreadConstraints[%d]: %w", i, err)
		}
		terms = append(terms, translate.Term{Peers: peers, Key: c.TopologyKey, Weight: -cluster.MaxWeight})
	}
	return nodes, terms, nil
}

// Count returns how many terms of a pod, and values and expressions in their selectors, say what it prefers; values counts those
// of a selector of pods.
func Count(p *v1.Pod, values func(*v1.PodAffinityTerm) int) (terms, inThem int) {
	a := p.Spec.Affinity
	if a == nil {
		return 0, 0
	}
	if a.NodeAffinity != nil {
		for _, t := range a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			terms++
			for _, e := range slices.Concat(t.Preference.MatchExpressions, t.Preference.MatchFields) {
				inThem += 1 + len(e.Values)
			}
		}
	}
	var list []v1.WeightedPodAffinityTerm
	if a.PodAffinity != nil {
		list = append(list, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if a.PodAntiAffinity != nil {
		list = append(list, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	for i := range list {
		inThem += values(&list[i].PodAffinityTerm)
	}
	return terms + len(list), inThem
}
