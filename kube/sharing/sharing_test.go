package sharing

import (
	"testing"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

func TestOffered(t *testing.T) {
	for name, c := range map[string]struct {
		labels map[string]string
		want   bool
	}{
		"no labels":        {nil, false},
		"whole":            {map[string]string{product: "NVIDIA-H800", replicas: "1", strategy: "none"}, false},
		"by its product":   {map[string]string{product: "NVIDIA-H800-SHARED"}, true},
		"renamed":          {map[string]string{product: "NVIDIA-H800", replicas: "4"}, true},
		"by MPS":           {map[string]string{product: "NVIDIA-H800", strategy: "mps"}, true},
		"replicas of what": {map[string]string{replicas: "many"}, false},
	} {
		if got := Offered(c.labels); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestBlind(t *testing.T) {
	for value, want := range map[string]bool{"mixed": false, "": true, "parts": true} {
		if got, err := Blind(map[string]string{v1alpha1.GPUSharingLabel: value}); got != want || (err != nil) != want {
			t.Errorf("%q: %t, %v", value, got, err)
		}
	}
	if got, err := Blind(nil); !got || err != nil {
		t.Errorf("without a label: %t, %v", got, err)
	}
}

func TestAsked(t *testing.T) {
	is := func(key string, op cluster.Op, values ...string) []core.Requirement {
		return []core.Requirement{{Key: key, Op: op, Values: values}}
	}
	for name, c := range map[string]struct {
		r    core.Request
		want bool
	}{
		"nothing":               {core.Request{}, false},
		"the model":             {core.Request{Models: []string{"A", "H800-SHARED"}}, true},
		"another model":         {core.Request{Models: []string{"H800"}}, false},
		"the product":           {core.Request{Selector: is(product, cluster.In, "NVIDIA-H800-SHARED")}, true},
		"not the product":       {core.Request{Selector: is(product, cluster.NotIn, "NVIDIA-H800-SHARED")}, false},
		"another product":       {core.Request{Selector: is(product, cluster.In, "NVIDIA-H800")}, false},
		"replicas":              {core.Request{Selector: is(replicas, cluster.Gt, "3")}, true},
		"no replicas":           {core.Request{Selector: is(replicas, cluster.In, "1")}, false},
		"a strategy, perhaps":   {core.Request{AnyOf: [][]core.Requirement{is("x", cluster.Exists), is(strategy, cluster.In, "time-slicing")}}, true},
		"no strategy":           {core.Request{Selector: is(strategy, cluster.DoesNotExist)}, false},
		"the strategy is none":  {core.Request{Selector: is(strategy, cluster.In, "none")}, false},
		"not that it is shared": {core.Request{Selector: is(strategy, cluster.NotIn, "mps")}, false},
	} {
		if got := Asked(&c.r); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
