package translate

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// Claim is a volume claim that a pod uses.
type Claim struct {
	Name string
	// Ephemeral says that it is made for the pod, and belongs to it.
	Ephemeral bool
}

// Claims returns the volume claims of a pod, by name, each once.
func Claims(p *v1.Pod) []Claim {
	var out []Claim
	for i := range p.Spec.Volumes {
		switch v := &p.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			out = append(out, Claim{Name: v.PersistentVolumeClaim.ClaimName})
		case v.Ephemeral != nil:
			out = append(out, Claim{Name: p.Name + "-" + v.Name, Ephemeral: true})
		}
	}
	slices.SortFunc(out, func(a, b Claim) int { return strings.Compare(a.Name, b.Name) })
	return slices.Compact(out)
}

// VolumeNodes adds to a request the nodes from which a volume can be reached: by
// its node affinity, and by the zone and region in its labels.
func VolumeNodes(v *v1.PersistentVolume, r *core.Request) error {
	for _, k := range []string{
		v1.LabelTopologyZone, v1.LabelTopologyRegion, v1.LabelFailureDomainBetaZone, v1.LabelFailureDomainBetaRegion,
	} {
		if zones := v.Labels[k]; zones != "" {
			r.Selector = append(r.Selector, core.Requirement{Key: k, Op: cluster.In, Values: strings.Split(zones, "__")})
		}
	}
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
		return nil
	}
	return nodeTerms(v.Spec.NodeAffinity.Required, r)
}

// ClassNodes adds to a request the nodes for which a storage class makes volumes.
func ClassNodes(c *storagev1.StorageClass, r *core.Request) {
	var terms [][]core.Requirement
	for _, t := range c.AllowedTopologies {
		var must []core.Requirement
		for _, e := range t.MatchLabelExpressions {
			must = append(must, core.Requirement{Key: e.Key, Op: cluster.In, Values: e.Values})
		}
		terms = append(terms, must)
	}
	Require(r, &core.Request{AnyOf: terms})
}

// Require adds what another request asks of the labels of nodes.
func Require(r, also *core.Request) {
	r.Selector = slices.Concat(r.Selector, also.Selector)
	switch {
	case len(also.AnyOf) == 0:
	case len(also.AnyOf) == 1:
		r.Selector = append(r.Selector, also.AnyOf[0]...)
	default:
		AddAlternatives(r, also.AnyOf)
	}
}
