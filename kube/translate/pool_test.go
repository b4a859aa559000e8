package translate

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
)

func TestNodePool(t *testing.T) {
	for _, c := range []struct {
		labels map[string]string
		model  string
		want   string
	}{
		{nil, "", ""},
		{nil, "H800", "H800"},
		{map[string]string{"kai.scheduler/node-pool": "west"}, "H800", "west"},
		{map[string]string{"kai.scheduler/node-pool": "west", v1alpha1.PoolLabel: "east"}, "H800", "east"},
		{map[string]string{v1alpha1.PoolLabel: "east"}, "", "east"},
	} {
		if got := NodePool(c.labels, c.model); got != c.want {
			t.Errorf("%v of model %q: pool %q; want %q", c.labels, c.model, got, c.want)
		}
	}
}

// poolOfPod is what a pod tells, after options.
func poolOfPod(t *testing.T, options ...func(*v1.Pod)) Pool {
	t.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}, Annotations: map[string]string{}}}
	for _, o := range options {
		o(p)
	}
	var a Attributes
	if err := a.Read(p); err != nil {
		t.Fatal(err)
	}
	r, err := Request(p, &a)
	if err != nil {
		t.Fatal(err)
	}
	return PodPool(p, &r)
}

func TestPodPool(t *testing.T) {
	label := func(k, v string) func(*v1.Pod) { return func(p *v1.Pod) { p.Labels[k] = v } }
	models := func(v string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Annotations[v1alpha1.GPUModelsAnnotation] = v }
	}
	selects := func(k, v string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{k: v} }
	}
	affine := func(k string, op v1.NodeSelectorOperator, values ...string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: k, Operator: op, Values: values}}}},
			}}}
		}
	}
	for name, c := range map[string]struct {
		options []func(*v1.Pod)
		want    string
	}{
		"nothing":          {nil, ""},
		"a label":          {[]func(*v1.Pod){label(v1alpha1.PoolLabel, "east"), models("H800"), selects(v1alpha1.PoolLabel, "west")}, "east"},
		"KAI's label":      {[]func(*v1.Pod){label("kai.scheduler/node-pool", "east")}, "east"},
		"a selector":       {[]func(*v1.Pod){models("A100"), selects("kai.scheduler/node-pool", "west")}, "west"},
		"another selector": {[]func(*v1.Pod){selects("kubernetes.io/os", "linux")}, ""},
		"a model":          {[]func(*v1.Pod){models("H800")}, "H800"},
		"models":           {[]func(*v1.Pod){models("H800|A100")}, "A100"},
		"a model by its selector": {
			[]func(*v1.Pod){selects(v1alpha1.ProductLabel, "NVIDIA-H800-SHARED")}, "H800-SHARED",
		},
		"models by affinity": {[]func(*v1.Pod){affine(v1alpha1.GPUModelLabel, v1.NodeSelectorOpIn, "H800", "A100")}, "A100"},
		"not a model":        {[]func(*v1.Pod){affine(v1alpha1.GPUModelLabel, v1.NodeSelectorOpNotIn, "A100")}, ""},
	} {
		if got := poolOfPod(t, c.options...).Name; got != c.want {
			t.Errorf("%s: pool %q; want %q", name, got, c.want)
		}
	}
}

// What is more explicit counts for more, whatever the order in which it is found.
func TestPoolOr(t *testing.T) {
	label := map[string]string{v1alpha1.PoolLabel: "z"}
	group := func(labels map[string]string, models ...string) Pool {
		return PodGroupPool(&metav1.ObjectMeta{Labels: labels}, models)
	}
	model := poolOfPod(t, func(p *v1.Pod) { p.Annotations[v1alpha1.GPUModelsAnnotation] = "b" })
	ranked := []Pool{
		{}, group(nil, "a"), model,
		poolOfPod(t, func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1alpha1.PoolLabel: "c"} }),
		NamespacePool(map[string]string{v1alpha1.PoolLabel: "d"}), group(label),
		poolOfPod(t, func(p *v1.Pod) { p.Labels[v1alpha1.PoolLabel] = "e" }),
	}
	for i, a := range ranked {
		for j, b := range ranked {
			if got, want := a.Or(b), ranked[max(i, j)]; got != want {
				t.Errorf("%v or %v: %v; want %v", a, b, got, want)
			}
		}
	}
	other := poolOfPod(t, func(p *v1.Pod) { p.Annotations[v1alpha1.GPUModelsAnnotation] = "a" })
	if model.Or(other).Name != "a" || other.Or(model).Name != "a" {
		t.Error("of two models the first by name counts")
	}
	if NamespacePool(nil) != (Pool{}) {
		t.Error("a namespace without a label tells a pool")
	}
}
