package main

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/rulefmt"
	"sigs.k8s.io/yaml"
)

// The alerts are rules that Prometheus takes, the chart's too, and each says how bad it is and what it is about.
func TestAlerts(t *testing.T) {
	file, err := os.ReadFile(deployDir + "prometheus/muster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := render(chartDir, map[string]any{"metrics": map[string]any{"prometheusRule": map[string]any{"enabled": true, "labels": map[string]any{"role": "alerts"}}}})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(docs, func(doc string) bool { return bytes.Contains([]byte(doc), []byte("kind: PrometheusRule")) })
	if i < 0 {
		t.Fatal("the chart renders no PrometheusRule")
	}
	var object struct {
		Metadata struct{ Labels map[string]string }
		Spec     map[string]any
	}
	if err := yaml.Unmarshal([]byte(docs[i]), &object); err != nil {
		t.Fatal(err)
	}
	if object.Metadata.Labels["role"] != "alerts" {
		t.Errorf("labels %v", object.Metadata.Labels)
	}
	rendered, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	var counts []int
	for what, text := range map[string][]byte{"file": file, "chart": rendered} {
		groups, errs := rulefmt.Parse(text, false)
		if len(errs) > 0 {
			t.Fatalf("%s: %v", what, errs)
		}
		rules := groups.Groups[0].Rules
		counts = append(counts, len(rules))
		for _, r := range rules {
			if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s: %s has labels %v, annotations %v", what, r.Alert, r.Labels, r.Annotations)
			}
		}
	}
	if counts[0] != counts[1] || counts[0] < 12 {
		t.Errorf("numbers of alerts: %v", counts)
	}
}
