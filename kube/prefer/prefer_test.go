package prefer

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// What a pod prefers, in the words of Kubernetes and in the engine's.
func TestOf(t *testing.T) {
	for text, want := range map[string]string{
		`containers: []`: "[] []",
		`affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 7, preference: {matchExpressions: [{key: disk, operator: In, values: [ssd, nvme]}, {key: old, operator: DoesNotExist}]}}, {weight: 2, preference: {}}]}}`:                        "[7:disk=ssd|nvme&!old] []",
		`affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 3, podAffinityTerm: {topologyKey: rack, labelSelector: {matchLabels: {app: db}}}}]}}`:                                                                                             "[] [3 rack ns/app=db]",
		`affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 3, podAffinityTerm: {topologyKey: rack, labelSelector: {matchLabels: {app: db}}, namespaces: [a]}}], requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone}]}}`: "[] [-3 rack a/app=db]",
		`topologySpreadConstraints: [{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: ScheduleAnyway, nodeTaintsPolicy: Ignore, labelSelector: {matchLabels: {app: x}}, matchLabelKeys: [v]}, {maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]`:            "[] [-100 rack ns/app=x,v in (1)]",
		`affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 7, preference: {matchExpressions: [{key: disk, operator: Like, values: [ssd]}]}}]}}`:                                                                                             `error: preferred node affinity: unknown operator "Like" of disk`,
		`affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 700, preference: {matchExpressions: [{key: disk, operator: Exists}]}}]}}`:                                                                                                        "error: preferred node affinity: a preference with weight 700, expected -100..100 and not 0",
		`affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 3, podAffinityTerm: {topologyKey: rack, labelSelector: {matchExpressions: [{key: a, operator: Like}]}}}]}}`:                                                                       `error: preferred pod affinity: labelSelector: "Like" is not a valid label selector operator`,
		`topologySpreadConstraints: [{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchExpressions: [{key: a, operator: Like}]}}]`:                                                                                                       `error: topologySpreadConstraints[0]: labelSelector: "Like" is not a valid label selector operator`,
	} {
		p := &v1.Pod{}
		if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
			t.Fatal(text, err)
		}
		p.Namespace, p.Labels = "ns", map[string]string{"v": "1"}
		nodes, terms, err := Of(p)
		var said []string
		for _, o := range terms {
			said = append(said, fmt.Sprint(o.Weight, " ", o.Key, " ", o.Peers.Name))
		}
		got := fmt.Sprint(slices.Collect(func(yield func(string) bool) {
			for i := range nodes {
				yield(nodes[i].String())
			}
		}), " ", said)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want {
			t.Errorf("%s:\n%s, want\n%s", text, got, want)
		}
		if n, _ := Count(p, func(*v1.PodAffinityTerm) int { return 1 }); err == nil && p.Spec.Affinity != nil && n != len(nodes)+len(terms) && n != len(nodes)+1 {
			t.Errorf("%s: %d terms are counted", text, n)
		}
	}
}

// What is written of a preference reads back the same.
func TestText(t *testing.T) {
	for _, text := range []string{"50:disk=ssd|nvme&zone&!old", "-1:a!=b", "100:n>5&m<7", "-100:near:leaf:among: ns/app=x"} {
		if p, err := cluster.ParsePreference(text); err != nil || p.String() != text {
			t.Errorf("%q reads as %q: %v", text, p.String(), err)
		}
	}
	for _, text := range []string{"", "disk=ssd", "0:disk=ssd", "101:disk", "x:disk", "5:", "5:near:leaf", "5:near::x", "5:a>b", "5:=x", "5:a&&b"} {
		if p, err := cluster.ParsePreference(text); err == nil {
			t.Errorf("%q reads as %v", text, core.Preference(p))
		}
	}
}
