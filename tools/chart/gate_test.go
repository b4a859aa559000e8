package main

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
)

// The policy of the chart, run as the API server runs it, gives the gate to the
// pods that should have it, once, and changes nothing else.
func TestQuotaGate(t *testing.T) {
	policy := find[*admissionv1.MutatingAdmissionPolicy](t,
		renderObjects(t, map[string]any{"quotaGate": map[string]any{"enabled": true}}), "muster-quota-gate")
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	options := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	var conditions []plugincel.ExpressionAccessor
	for _, c := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&c))
	}
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(conditions, options, environment.StoredExpressions),
		policy.Spec.FailurePolicy, "policy", "validate", policy.Name)
	options.HasPatchTypes = true
	if len(policy.Spec.Mutations) != 1 {
		t.Fatalf("%d mutations", len(policy.Spec.Mutations))
	}
	apply := patch.ApplyConfigurationCondition{Expression: policy.Spec.Mutations[0].ApplyConfiguration.Expression}
	patcher := patch.NewApplyConfigurationPatcher(compiler.CompileMutatingEvaluator(&apply, options, environment.StoredExpressions))

	const gate = "muster.sh/quota"
	for _, test := range []struct {
		name      string
		scheduler string
		node      string
		gates     []string
		want      []string
	}{
		{name: "of muster", scheduler: "muster", want: []string{gate}},
		{name: "with another gate", scheduler: "muster", gates: []string{"example.com/x"}, want: []string{"example.com/x", gate}},
		{name: "with the gate", scheduler: "muster", gates: []string{gate}, want: []string{gate}},
		{name: "of another scheduler", scheduler: "default-scheduler"},
		{name: "with a node", scheduler: "muster", node: "n1"},
	} {
		pod := &corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"},
			Spec: corev1.PodSpec{SchedulerName: test.scheduler, NodeName: test.node,
				Containers: []corev1.Container{{Name: "main", Image: "example.com/image"}}},
		}
		for _, g := range test.gates {
			pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: g})
		}
		kind, resource := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
		request := &admission.VersionedAttributes{
			Attributes: admission.NewAttributesRecord(pod, nil, kind, pod.Namespace, pod.Name, resource, "",
				admission.Create, &metav1.CreateOptions{}, false, nil),
			VersionedKind:      kind,
			VersionedObject:    admission.NewLazyObject(pod),
			VersionedOldObject: admission.NewLazyObject(nil),
		}
		ctx := compiler.CreateContext(t.Context())
		match := matcher.Match(ctx, request, nil, nil)
		if match.Error != nil {
			t.Fatalf("%s: %v", test.name, match.Error)
		}
		got := pod
		if match.Matches {
			changed, err := patcher.Patch(ctx, patch.Request{
				MatchedResource: resource, VersionedAttributes: request,
				ObjectInterfaces: admission.NewObjectInterfacesFromScheme(scheme.Scheme),
				TypeConverter:    applyconfigurations.NewTypeConverter(scheme.Scheme),
			}, celconfig.RuntimeCELCostBudget)
			if err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			got = &corev1.Pod{}
			if err := scheme.Scheme.Convert(changed, got, nil); err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
		}
		var gates []string
		for _, g := range got.Spec.SchedulingGates {
			gates = append(gates, g.Name)
		}
		if len(gates) != len(test.want) {
			t.Errorf("%s: gates %q, want %q", test.name, gates, test.want)
			continue
		}
		for i := range gates {
			if gates[i] != test.want[i] {
				t.Errorf("%s: gates %q, want %q", test.name, gates, test.want)
			}
		}
		if len(got.Spec.Containers) != 1 || got.Spec.Containers[0].Image != "example.com/image" || got.Spec.NodeName != test.node {
			t.Errorf("%s: the pod is now %+v", test.name, got.Spec)
		}
	}
}
