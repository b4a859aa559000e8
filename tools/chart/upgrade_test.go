package main

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"sigs.k8s.io/yaml"
)

// An upgrade from the first chart takes its values where they are put over the present chart's own, as
// --reset-then-reuse-values does. In their place, as with --reuse-values, they lack some, and Helm says which.
func TestUpgradeValues(t *testing.T) {
	text, err := os.ReadFile("testdata/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]any{}
	if err := yaml.Unmarshal(text, &last); err != nil {
		t.Fatal(err)
	}
	over, err := render(chartDir, last)
	if err != nil {
		t.Fatal(err)
	}
	own, err := render(chartDir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(over, own) {
		t.Error("with the values of the first chart over its own, the chart renders something else")
	}
	chart, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	chart.Values = last
	if _, err := renderChart(chart, nil); err == nil || !strings.Contains(err.Error(), "missing properties") {
		t.Errorf("with the values of the first chart in place of its own: %v", err)
	}
}

// Whatever templates read the fields of is required, so that no template fails at a value that is not there.
func TestGroupsOfValuesAreRequired(t *testing.T) {
	chart, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	var schema struct{ Required []string }
	if err := yaml.Unmarshal(chart.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	for name, value := range chart.Values {
		if fields, group := value.(map[string]any); group && len(fields) > 0 && name != "resources" && name != "nodeSelector" && !slices.Contains(schema.Required, name) {
			t.Errorf("values.schema.json does not require %s", name)
		}
	}
	for _, name := range schema.Required {
		if kind := reflect.TypeOf(chart.Values[name]); kind == nil || kind.Kind() != reflect.Map {
			t.Errorf("values.schema.json requires %s, which is no group of values", name)
		}
	}
}
