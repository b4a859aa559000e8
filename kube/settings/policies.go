package settings

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// Policies are the SchedulingPolicy objects, and the policy in effect.
type Policies struct {
	// Name is that of the object to decide by, empty for none. Given is what to decide
	// by where there is no such object, without a name for nothing. Builtins finds the
	// policies from which objects start. All are set before the first observation.
	Name     string
	Given    core.Policy
	Builtins v1alpha1.Builtins

	objects map[string]*v1alpha1.SchedulingPolicy
	verdict map[string]Verdict
	policy  core.Policy
}

// NewPolicies returns policies without objects: the one that is given counts.
func NewPolicies(given core.Policy) *Policies {
	return &Policies{
		Given: given, policy: given, Builtins: func(string) (core.Policy, bool) { return core.Policy{}, false },
		objects: map[string]*v1alpha1.SchedulingPolicy{}, verdict: map[string]Verdict{},
	}
}

// Policy returns the policy to decide by; it has no name when there is none yet.
func (ps *Policies) Policy() *core.Policy { return &ps.policy }

// PolicyChange is what an observation of policies changed.
type PolicyChange struct {
	// Other is set if another policy is in effect.
	Other bool
	// Invalid says why the chosen policy is not valid, nil if it is; the last valid
	// policy then stays in effect.
	Invalid error
}

// Observe records the present state of a policy.
func (ps *Policies) Observe(p *v1alpha1.SchedulingPolicy) PolicyChange {
	old := ps.objects[p.Name]
	ps.objects[p.Name] = p
	if old != nil && reflect.DeepEqual(old.Spec, p.Spec) {
		return PolicyChange{}
	}
	return ps.judge()
}

// Forget records that a policy was deleted.
func (ps *Policies) Forget(p *v1alpha1.SchedulingPolicy) PolicyChange {
	delete(ps.objects, p.Name)
	return ps.judge()
}

// Replace replaces all known policies.
func (ps *Policies) Replace(list []*v1alpha1.SchedulingPolicy) PolicyChange {
	clear(ps.objects)
	for _, p := range list {
		ps.objects[p.Name] = p
	}
	return ps.judge()
}

// judge validates all policies again. The last valid policy stays in effect: neither a
// mistake in an object nor its deletion stops scheduling.
func (ps *Policies) judge() (c PolicyChange) {
	clear(ps.verdict)
	for name, o := range ps.objects {
		p, err := o.Policy(ps.Builtins)
		switch {
		case err != nil && name == ps.Name:
			c.Invalid = err
			ps.verdict[name] = Verdict{v1alpha1.PolicyInvalid, fmt.Sprintf("%v; the scheduler uses %s", err, cmp.Or(ps.policy.Name, "no policy"))}
		case err != nil:
			ps.verdict[name] = Verdict{v1alpha1.PolicyInvalid, err.Error()}
		case name == ps.Name:
			ps.verdict[name] = Verdict{v1alpha1.PolicyInUse, "the scheduler uses this policy"}
			c.Other = ps.use(&p)
		default:
			ps.verdict[name] = Verdict{v1alpha1.PolicyAccepted, "another policy is in use"}
		}
	}
	if ps.Name != "" && ps.objects[ps.Name] == nil && ps.Given.Name != "" {
		c.Other = ps.use(&ps.Given)
	}
	return c
}

func (ps *Policies) use(p *core.Policy) (changed bool) {
	if reflect.DeepEqual(ps.policy, *p) {
		return false
	}
	ps.policy = *p
	return true
}

// Settle makes sure, once all objects were listed, that there is a policy to decide by.
func (ps *Policies) Settle() error {
	if ps.Name == "" || ps.policy.Name != "" {
		return nil
	}
	if ps.objects[ps.Name] == nil {
		return fmt.Errorf("policy %s: expected a SchedulingPolicy of that name; found none", ps.Name)
	}
	// It is wrong, and there has been none before it. One that was not chosen is better
	// than a scheduler that does not start.
	p, ok := ps.Builtins("default")
	if !ok {
		return fmt.Errorf("policy %s: %s", ps.Name, ps.verdict[ps.Name].Message)
	}
	ps.policy = p
	ps.judge()
	return nil
}

// Verdict returns the verdict on a policy.
func (ps *Policies) Verdict(name string) Verdict { return ps.verdict[name] }

// Statuses returns the objects of which the status changed, sorted by name.
func (ps *Policies) Statuses(now metav1.Time) []*v1alpha1.SchedulingPolicy {
	var out []*v1alpha1.SchedulingPolicy
	for _, name := range slices.Sorted(maps.Keys(ps.objects)) {
		p := *ps.objects[name]
		old, v := p.Status, ps.verdict[name]
		p.Status = v1alpha1.SchedulingPolicyStatus{Conditions: v.On(old.Conditions, v.Reason != v1alpha1.PolicyInvalid, p.Generation, now)}
		if !equality.Semantic.DeepEqual(p.Status, old) {
			out = append(out, &p)
		}
	}
	return out
}
