package kube

import (
	"cmp"
	"fmt"
	"reflect"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// From SchedulingPolicy objects to the policy that the engine decides by.

// policies are the SchedulingPolicy objects, and what has become of them.
type policies struct {
	objects map[string]*v1alpha1.SchedulingPolicy
	// name is that of the object to decide by, empty for none; given is what to
	// decide by where there is no such object, without a name for nothing.
	name     string
	given    core.Policy
	builtins v1alpha1.Builtins
	verdict  map[string]verdict
}

func newPolicies(given core.Policy) policies {
	return policies{
		objects: map[string]*v1alpha1.SchedulingPolicy{}, verdict: map[string]verdict{}, given: given,
		builtins: func(string) (core.Policy, bool) { return core.Policy{}, false },
	}
}

func (m *mirror) policiesListed(list []*v1alpha1.SchedulingPolicy) {
	refill(m.policies.objects, list, nameOf)
	m.policiesChanged()
}

// policySeen takes in a policy as it is now.
func (m *mirror) policySeen(p *v1alpha1.SchedulingPolicy) {
	old := m.policies.objects[p.Name]
	m.policies.objects[p.Name] = p
	if old == nil || !reflect.DeepEqual(old.Spec, p.Spec) {
		m.policiesChanged()
	}
}

func (m *mirror) policyGone(name string) {
	delete(m.policies.objects, name)
	m.policiesChanged()
}

// policiesChanged judges all policies anew. The engine decides by the last
// policy that was right: a mistake in an object, or its deletion, stops nothing.
func (m *driver) policiesChanged() {
	ps := &m.policies
	clear(ps.verdict)
	for name, o := range ps.objects {
		p, err := o.Policy(ps.builtins)
		switch {
		case err != nil && name == ps.name:
			ps.verdict[name] = verdict{v1alpha1.PolicyInvalid, fmt.Sprintf("%v; the scheduler uses %s", err, cmp.Or(m.policy.Name, "no policy"))}
			m.log.Warn("the policy is invalid: the last valid policy stays in use", "policy", name, "error", err)
		case err != nil:
			ps.verdict[name] = verdict{v1alpha1.PolicyInvalid, err.Error()}
		case name == ps.name:
			ps.verdict[name] = verdict{v1alpha1.PolicyInUse, "the scheduler uses this policy"}
			m.decideBy(&p)
		default:
			ps.verdict[name] = verdict{v1alpha1.PolicyAccepted, "another policy is in use"}
		}
	}
	if ps.name != "" && ps.objects[ps.name] == nil && ps.given.Name != "" {
		m.decideBy(&ps.given)
	}
}

// decideBy has the engine built anew with another policy.
func (m *driver) decideBy(p *core.Policy) {
	if reflect.DeepEqual(m.policy, *p) {
		return
	}
	m.policy = *p
	if m.engine != nil {
		m.log.Info("another policy is in use", "policy", p.Name)
		m.outdated = true
	}
}

// settlePolicy makes sure, once all objects were listed, that there is a policy
// to decide by.
func (m *driver) settlePolicy() error {
	ps := &m.policies
	if ps.name == "" || m.policy.Name != "" {
		return nil
	}
	if ps.objects[ps.name] == nil {
		return fmt.Errorf("policy %s: expected a SchedulingPolicy of that name; found none", ps.name)
	}
	// It is wrong, and there has been none before it: what nobody chose is
	// better than a scheduler that does not start.
	p, ok := ps.builtins("default")
	if !ok {
		return fmt.Errorf("policy %s: %s", ps.name, ps.verdict[ps.name].message)
	}
	m.policy = p
	m.policiesChanged()
	return nil
}
