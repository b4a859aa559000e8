package v1alpha1

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-sched/muster/api/strict"
	"github.com/muster-sched/muster/core"
)

// Builtins finds a built-in policy by its name.
//
// +kubebuilder:object:generate=false
type Builtins func(name string) (core.Policy, bool)

// Parse reads a policy file: a SchedulingPolicy, or its spec alone. A policy
// without a name gets that of the file. Errors are of type [*workload.Error].
func Parse(file string, data []byte, builtins Builtins) (core.Policy, error) {
	src, err := strict.Open(file, data)
	if err != nil {
		return core.Policy{}, err
	}
	name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	if !wrapped(src) {
		var spec SchedulingPolicySpec
		if err := src.Decode(&spec); err != nil {
			return core.Policy{}, err
		}
		return spec.Policy(name, builtins, src.Errorf)
	}
	var p SchedulingPolicy
	if err := src.Decode(&p); err != nil {
		return core.Policy{}, err
	}
	if err := checkType(src, "SchedulingPolicy", p.Kind, p.APIVersion); err != nil {
		return core.Policy{}, err
	}
	if given := p.Name; given != "" {
		// The name becomes that of a folder.
		if strings.ContainsAny(given, "/\\,") || strings.Trim(given, ".") == "" {
			return core.Policy{}, src.Errorf("metadata.name", "a name without slashes and commas; found %q", given)
		}
		name = given
	}
	return p.Spec.Policy(name, builtins, src.Below("spec"))
}

// wrapped reports whether the document is a whole object, not a spec alone.
func wrapped(src *strict.Source) bool {
	return src.Has("spec") || src.Has("metadata") || src.Has("kind") || src.Has("apiVersion")
}

func checkType(src *strict.Source, kind, gotKind, gotVersion string) error {
	if gotVersion != "" && gotVersion != Version {
		return src.Errorf("apiVersion", "%s; found %q", Version, gotVersion)
	}
	if gotKind != "" && gotKind != kind {
		return src.Errorf("kind", "%s; found %q", kind, gotKind)
	}
	return nil
}

// Policy returns the policy that the object describes. The error names the
// field that is wrong.
func (p *SchedulingPolicy) Policy(builtins Builtins) (core.Policy, error) {
	return p.Spec.Policy(p.Name, builtins, func(path, format string, args ...any) error {
		return fmt.Errorf("spec.%s: expected %s", path, fmt.Sprintf(format, args...))
	})
}

// Policy returns what s and its base say together. wrong makes the error that
// the field at path, such as "zone.share", is not what format describes.
func (s *SchedulingPolicySpec) Policy(name string, builtins Builtins, wrong func(path, format string, args ...any) error) (core.Policy, error) {
	base := s.Base
	if base == "" {
		base = "default"
	}
	p, ok := builtins(base)
	if !ok && s.Base != "" {
		return core.Policy{}, wrong("base", "the name of a built-in policy; found %q", s.Base)
	}
	s.apply(&p)
	p.Name = name
	return p, s.check(&p, wrong)
}

// check finds what no field alone shows to be wrong.
func (s *SchedulingPolicySpec) check(p *core.Policy, wrong func(path, format string, args ...any) error) error {
	if z := s.Zone; z != nil && z.Label != "" && z.Share != nil {
		return wrong("zone.share", "a label or a share, not both; found %v with label %q", *z.Share, z.Label)
	}
	if z := s.Zone; z != nil && z.Value != "" && z.Label == "" {
		return wrong("zone.value", "a label with the value; found only %q", z.Value)
	}
	if e := p.Preempt; e.Budget > 0 && e.Interval == 0 {
		return wrong("preemption.budget", "an interval with the budget; found only a budget of %d", e.Budget)
	}
	if err := p.Packing.Check(p); err != nil {
		return wrong("packing", "%v", err)
	}
	if err := p.Goodput.Check(p); err != nil {
		return wrong("goodput", "%v", err)
	}
	if l := p.Fairness.Lease; l > 0 && l < 60*core.Second {
		return wrong("fairness.lease", "at least 1m, or 0; found %s", Duration(l))
	}
	if h := p.Fairness.HalfLife; h > 0 && h < 3600*core.Second {
		return wrong("fairness.halfLife", "at least 1h, or 0; found %s", Duration(h))
	}
	for i, from := range p.Fairness.Levels {
		if i == 0 && from == 0 || i > 0 && from <= p.Fairness.Levels[i-1] {
			return wrong("fairness.levels", "GPU times above 0, each greater than the one before; found %s", Duration(from))
		}
	}
	for _, t := range p.Fairness.Distribution {
		if t < core.Second {
			return wrong("fairness.distribution", "GPU times of at least 1s; found %s", Duration(t))
		}
	}
	if n := len(p.Fairness.Distribution); n > core.MostServices {
		return wrong("fairness.distribution", "at most %d GPU times; found %d", core.MostServices, n)
	}
	if f := s.Fairness; f != nil {
		for i, r := range f.Rates {
			if r.Rate < 0.001 || r.Rate > 1000 { // the API server takes 0 for at least 0.001
				return wrong("fairness.rates", "a rate from 0.001 to 1000 of model %s; found %v", r.Model, r.Rate)
			}
			if slices.ContainsFunc(f.Rates[:i], func(o ModelRate) bool { return o.Model == r.Model }) {
				return wrong("fairness.rates", "one rate for each model; found two for %s", r.Model)
			}
		}
	}
	if r := p.Requeue; r.MaxBackoff < r.Backoff {
		return wrong("requeue.maxBackoff", "at least the backoff, %s; found %s", Duration(r.Backoff), Duration(r.MaxBackoff))
	}
	return nil
}
