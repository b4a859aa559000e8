package translate

import (
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-sched/muster/core"
)

func affine(terms ...v1.PodAffinityTerm) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: map[string]string{"app": "a", "rev": "7"}}}
	p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	return p
}

func TestPeers(t *testing.T) {
	app := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	for _, c := range []struct {
		name string
		term v1.PodAffinityTerm
		as   string
		yes  []string // namespace env labels
		no   []string
	}{
		{"own namespace", v1.PodAffinityTerm{LabelSelector: app}, "ns/app=a", []string{"ns - app=a"}, []string{"other - app=a", "ns - app=b"}},
		{"nobody", v1.PodAffinityTerm{}, "ns/none", nil, []string{"ns - app=a", "ns -"}},
		{"everybody", v1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{}}, "ns/", []string{"ns - app=a", "ns -"}, []string{"other -"}},
		{"namespaces", v1.PodAffinityTerm{LabelSelector: app, Namespaces: []string{"z", "b"}}, "b|z/app=a", []string{"z - app=a", "b - app=a"}, []string{"ns - app=a"}},
		{"by label", v1.PodAffinityTerm{LabelSelector: app, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "x"}}},
			"{env=x}/app=a", []string{"ns x app=a", "b x app=a"}, []string{"ns - app=a"}},
		{"both", v1.PodAffinityTerm{LabelSelector: app, Namespaces: []string{"b"}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "x"}}},
			"b{env=x}/app=a", []string{"b - app=a", "z x app=a"}, []string{"ns - app=a"}},
		{"all namespaces", v1.PodAffinityTerm{LabelSelector: app, NamespaceSelector: &metav1.LabelSelector{}}, "{}/app=a", []string{"q - app=a"}, []string{"q - app=b"}},
		{"same and other keys", v1.PodAffinityTerm{LabelSelector: app, MatchLabelKeys: []string{"rev", "missing"}, MismatchLabelKeys: []string{"app"}},
			"ns/app=a,app notin (a),rev in (7)", nil, []string{"ns - app=a,rev=7"}},
	} {
		terms, err := Terms(affine(c.term))
		if err != nil || len(terms) != 1 {
			t.Fatalf("%s: %v, %v", c.name, terms, err)
		}
		p := terms[0].Peers
		if p.Name != c.as {
			t.Errorf("%s: named %q, expected %q", c.name, p.Name, c.as)
		}
		match := func(s string) bool {
			w := append(strings.Fields(s), "")
			return p.Match(w[0], labels.Set{"env": w[1]}, Labels(w[2]).Set())
		}
		for _, s := range c.yes {
			if !match(s) {
				t.Errorf("%s: %s is not among them", c.name, s)
			}
		}
		for _, s := range c.no {
			if match(s) {
				t.Errorf("%s: %s is among them", c.name, s)
			}
		}
	}
}

func TestTermsOfSpread(t *testing.T) {
	honor, three := v1.NodeInclusionPolicyHonor, int32(3)
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{"rev": "7"}}}
	p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{
		{MaxSkew: 2, TopologyKey: "zone", WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: []string{"rev"}, MinDomains: &three, NodeAffinityPolicy: &honor},
		{MaxSkew: 1, TopologyKey: "host", WhenUnsatisfiable: v1.ScheduleAnyway},
	}
	terms, err := Terms(p)
	if err != nil || len(terms) != 1 {
		t.Fatalf("%v, %v", terms, err)
	}
	if got := terms[0]; got.Key != "zone" || got.MaxSkew != 2 || got.MinDomains != 3 || got.Anti || !got.AnyTaint || got.AnyLabel || got.Peers.Name != "ns/rev in (7)" {
		t.Errorf("%+v of %s", got, got.Peers.Name)
	}
	c := &p.Spec.TopologySpreadConstraints[0]
	ignore, honor, other := v1.NodeInclusionPolicyIgnore, v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicy("Prefer")
	c.NodeAffinityPolicy, c.NodeTaintsPolicy = &ignore, &honor
	if terms, err := Terms(p); err != nil || terms[0].AnyTaint || !terms[0].AnyLabel {
		t.Errorf("%+v, %v", terms, err)
	}
	c.NodeAffinityPolicy = &other
	if _, err := Terms(p); err == nil || err.Error() != "topologySpreadConstraints[0]: nodeAffinityPolicy Prefer is unknown: expected Honor or Ignore" {
		t.Errorf("error %v", err)
	}
}

func TestPorts(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	p := &v1.Pod{Spec: v1.PodSpec{
		Containers: []v1.Container{{Ports: []v1.ContainerPort{
			{HostPort: 80}, {HostPort: 80, Protocol: "TCP", HostIP: "0.0.0.0"}, {ContainerPort: 90}, {HostPort: 53, Protocol: "UDP", HostIP: "10.0.0.1"},
		}}},
		InitContainers: []v1.Container{{Ports: []v1.ContainerPort{{HostPort: 1}}}, {RestartPolicy: &always, Ports: []v1.ContainerPort{{HostPort: 2}}}},
	}}
	want := []Port{{"TCP", 2, ""}, {"TCP", 80, ""}, {"UDP", 53, "10.0.0.1"}}
	if got := Ports(p); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
	carries := func(a, b Port) bool { // whether a, where it is, keeps b off
		for _, l := range a.Labels() {
			for _, t := range b.Terms() {
				if t == (core.Term{Level: "node", Label: l, Anti: true}) {
					return true
				}
			}
		}
		return false
	}
	all, one, two, udp := Port{"TCP", 80, ""}, Port{"TCP", 80, "10.0.0.1"}, Port{"TCP", 80, "10.0.0.2"}, Port{"UDP", 80, ""}
	for _, c := range []struct {
		a, b Port
		want bool
	}{{all, all, true}, {all, one, true}, {one, all, true}, {one, one, true}, {one, two, false}, {all, udp, false}, {udp, one, false}} {
		if got := carries(c.a, c.b); got != c.want {
			t.Errorf("%v at %q and at %q clash: %v", c.a, c.a.Address, c.b.Address, got)
		}
	}
}
