package translate

import (
	"reflect"
	"testing"

	"github.com/muster-sched/muster/api/v1alpha1"
)

func TestLevels(t *testing.T) {
	got := Levels(&v1alpha1.TopologySpec{Levels: []v1alpha1.TopologyLevel{
		{NodeLabel: "x/spine", Alias: "leaf"}, {NodeLabel: "x/rack", Alias: "rack"}, {NodeLabel: "leaf"}, {NodeLabel: v1alpha1.HostnameLabel, Alias: "host"},
	}})
	want := []Level{{"x/spine", "x/spine"}, {"rack", "x/rack"}, {"leaf", "leaf"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Each label is in one family, and all have a bit beside that of a node.
func TestFamilies(t *testing.T) {
	labels, all := map[string]string{}, 0
	for _, f := range LevelFamilies {
		names := map[string]bool{}
		for _, l := range f {
			if labels[l.Label] != "" || names[l.Name] {
				t.Errorf("%s or %s is there twice", l.Label, l.Name)
			}
			labels[l.Label], names[l.Name] = "v", true
			all++
		}
	}
	if got := FamilyLabels(labels); all > 63 || got != 1<<all-1 {
		t.Errorf("%d labels: bits %b", all, got)
	}
	if got := FamilyLabels(map[string]string{"topology.kubernetes.io/zone": "z", "fabric.topograph.run/tier-4": "", "fabric.topograph.run/tier-3": "x"}); got != 1<<(all-1)|1<<1 {
		t.Errorf("bits %b", got)
	}
}
