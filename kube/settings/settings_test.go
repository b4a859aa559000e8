package settings

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
)

func builtins(name string) (core.Policy, bool) {
	d, ok := policy.ByName(name)
	return d.Policy, ok
}

func policyObject(name, base string, mode v1alpha1.QueueingMode) *v1alpha1.SchedulingPolicy {
	p := &v1alpha1.SchedulingPolicy{Spec: v1alpha1.SchedulingPolicySpec{Base: base, Queueing: &v1alpha1.Queueing{Mode: &mode}}}
	p.Name = name
	return p
}

// A mistake in the policy to decide by, or its deletion, changes nothing.
func TestPolicies(t *testing.T) {
	ps := NewPolicies(core.Policy{})
	ps.Name, ps.Builtins = "night", builtins
	if err := ps.Settle(); err == nil || !strings.Contains(err.Error(), "expected a SchedulingPolicy of that name") {
		t.Errorf("there is no policy: %v", err)
	}
	if c := ps.Observe(policyObject("day", "default", "Backfill")); c.Other || c.Invalid != nil {
		t.Errorf("another was named: %+v", c)
	}
	if c := ps.Observe(policyObject("night", "default", "StrictFIFO")); !c.Other || ps.Policy().Name != "night" {
		t.Errorf("it was named: %+v, %q", c, ps.Policy().Name)
	}
	if c := ps.Observe(policyObject("night", "default", "StrictFIFO")); c.Other {
		t.Error("it is as it was")
	}
	c := ps.Observe(policyObject("night", "none", "StrictFIFO"))
	if v := ps.Verdict("night"); c.Other || c.Invalid == nil || v.Reason != v1alpha1.PolicyInvalid || !strings.Contains(v.Message, "the scheduler uses night") {
		t.Errorf("it is wrong: %+v, %+v", c, v)
	}
	if ps.Forget(policyObject("night", "", "")); ps.Policy().Name != "night" || ps.Settle() != nil {
		t.Errorf("the last that was valid counts, not %q", ps.Policy().Name)
	}
	if c := ps.Replace([]*v1alpha1.SchedulingPolicy{policyObject("night", "default", "Backfill")}); !c.Other || ps.Verdict("day") != (Verdict{}) {
		t.Errorf("it is there again, and day is not: %+v, %+v", c, ps.Verdict("day"))
	}
}

// With nothing valid before, the built-in default counts.
func TestPolicyThatWasNeverValid(t *testing.T) {
	ps := NewPolicies(core.Policy{})
	ps.Name, ps.Builtins = "night", builtins
	ps.Observe(policyObject("night", "none", "StrictFIFO"))
	if err := ps.Settle(); err != nil || ps.Policy().Name != "default" || !strings.Contains(ps.Verdict("night").Message, "uses default") {
		t.Errorf("%v, %q, %+v", err, ps.Policy().Name, ps.Verdict("night"))
	}
	ps = NewPolicies(core.Policy{})
	ps.Name = "night"
	ps.Observe(policyObject("night", "none", "StrictFIFO"))
	if err := ps.Settle(); err == nil {
		t.Error("there is no default")
	}
}

func TestPolicyStatuses(t *testing.T) {
	ps := NewPolicies(core.Policy{})
	ps.Name, ps.Builtins = "b", builtins
	ps.Replace([]*v1alpha1.SchedulingPolicy{policyObject("c", "none", "Backfill"), policyObject("b", "default", "Backfill"), policyObject("a", "default", "Backfill")})
	now := metav1.NewTime(time.Unix(1000, 0))
	var got []string
	for _, p := range ps.Statuses(now) {
		x := p.Status.Conditions[0]
		got = append(got, fmt.Sprint(p.Name, " ", x.Status, " ", x.Reason))
		ps.Observe(p) // as the API shows it
	}
	if want := []string{"a True Accepted", "b True InUse", "c False Invalid"}; !slices.Equal(got, want) {
		t.Errorf("statuses %q, expected %q", got, want)
	}
	if list := ps.Statuses(now); len(list) > 0 {
		t.Errorf("%d statuses are written again", len(list))
	}
}

func topologyObject(name string, created int64, labels ...string) *v1alpha1.Topology {
	t := &v1alpha1.Topology{}
	t.Name, t.CreationTimestamp = name, metav1.NewTime(time.Unix(created, 0))
	for _, l := range labels {
		_, alias, _ := strings.Cut(l, "/")
		t.Spec.Levels = append(t.Spec.Levels, v1alpha1.TopologyLevel{NodeLabel: l, Alias: alias})
	}
	return t
}

// The object that is named counts, else the oldest, else what labels of nodes suggest.
func TestTopologies(t *testing.T) {
	ts := NewTopologies(nil)
	names := func(want string) {
		t.Helper()
		if got := ts.Names(); got != want {
			t.Errorf("levels %q, expected %q", got, want)
		}
	}
	ts.ObserveNode("a", map[string]string{"topology.kubernetes.io/zone": "z", "x/leaf": "1"})
	ts.Choose(1)
	names("zone, node, hbd")
	if !ts.Observe(topologyObject("young", 9, "x/spine", "x/leaf")) || ts.Observe(topologyObject("young", 9, "x/spine", "x/leaf")) {
		t.Error("levels are to be chosen again when its spec changes, and not else")
	}
	if !ts.Choose(2) || ts.Used() != "young" {
		t.Errorf("%q is used, expected the one that there is", ts.Used())
	}
	names("spine, leaf, node, hbd")
	ts.Observe(topologyObject("old", 5, "x/leaf"))
	if !ts.Choose(3) || ts.Used() != "old" || ts.Choose(4) {
		t.Errorf("%q is used, expected the oldest", ts.Used())
	}
	names("leaf, node, hbd")
	for level, want := range map[string]string{"leaf": "leaf", "x/leaf": "leaf", "kubernetes.io/hostname": "node", "leaf,node": "node", "": "", "spine": "none", "leaf,spine": "none"} {
		if got, ok := ts.Level(level); ok != (want != "none") || ok && got != want {
			t.Errorf("level %q is %q, %v; expected %q", level, got, ok, want)
		}
	}
	now := metav1.NewTime(time.Unix(1000, 0))
	for _, o := range ts.Statuses(now) {
		if want := map[string]int32{"old": 1, "young": 0}[o.Name]; o.Status.Nodes != want {
			t.Errorf("%d nodes have the labels of %s, expected %d", o.Status.Nodes, o.Name, want)
		}
	}
	ts.ForgetNode("a")
	for _, o := range ts.Statuses(now) {
		if o.Name == "old" && (o.Status.Nodes != 0 || o.Status.Conditions[0].Reason != v1alpha1.TopologyNoNodes) {
			t.Errorf("no node has its labels: %+v", o.Status)
		}
	}
	ts.Name = "young"
	if !ts.Choose(5) || ts.Verdict("old").Reason != v1alpha1.TopologyAccepted || ts.Verdict("young").Reason != v1alpha1.TopologyInUse {
		t.Errorf("young was named: %+v, %+v", ts.Verdict("old"), ts.Verdict("young"))
	}
	if ts.Replace(nil); !ts.Choose(6) {
		t.Error("it is gone")
	}
	names("node, hbd")
	given := NewTopologies(ts.Levels())
	if again, at := given.Suggest(1); again || at != core.Never {
		t.Error("nothing has changed")
	}
}

// Levels that labels suggested stay for a while: more nodes may be to come.
func TestLevelsThatLabelsSuggest(t *testing.T) {
	ts := NewTopologies(nil)
	zone := map[string]string{"topology.kubernetes.io/zone": "z"}
	suggests := func(now core.Time, again bool, at core.Time) {
		t.Helper()
		if a, b := ts.Suggest(now); a != again || b != at {
			t.Errorf("choose again %v, at %d; expected %v, %d", a, b, again, at)
		}
	}
	suggests(0, false, core.Never)
	ts.ObserveNode("a", zone)
	suggests(1, true, core.Never)
	ts.Choose(1)
	ts.ObserveNode("a", zone)
	suggests(2, false, core.Never) // it is as it was
	for i := range 3 {
		ts.ObserveNode(fmt.Sprint("b", i), map[string]string{"cloud.provider.com/topology-rack": "r"})
	}
	suggests(2, false, 1+chooseAgain)
	suggests(1+chooseAgain, true, core.Never)
	if !ts.Choose(1+chooseAgain) || ts.Names() != "rack, node, hbd" {
		t.Errorf("levels %s: most nodes have a rack", ts.Names())
	}
}

func TestClasses(t *testing.T) {
	class := func(name string, value int32, policy *v1.PreemptionPolicy) *Class {
		return ClassOf(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, PreemptionPolicy: policy})
	}
	never := v1.PreemptNever
	cs := Classes{}
	says := func(got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("changed %q, expected %q", got, want)
		}
	}
	says(cs.Observe(class("a", 1, nil)), "a")
	says(cs.Observe(class("a", 1, nil)))
	says(cs.Observe(class("a", 1, &never)), "a")
	says(cs.Replace([]*Class{class("b", 2, nil), class("a", 1, &never)}), "b")
	if cs["a"] != (Priority{1, true}) || fmt.Sprint(cs.Names()) != "[a b]" {
		t.Errorf("classes %v", cs)
	}
	says(cs.Forget(class("a", 0, nil)), "a")
	says(cs.Replace(nil), "b")
}
