package kube

import (
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/pause"
)

// exposed returns the labels of each metric that a scheduler with all its features exposes.
func exposed(t *testing.T) map[string][]string {
	t.Helper()
	s, err := New(Config{
		API: &rest.Config{Host: "http://127.0.0.1:1"}, Policy: core.Policy{Name: "x"}, Log: slog.New(slog.DiscardHandler),
		Recording: func() bool { return true }, Agents: &pause.Network{},
	})
	if err != nil {
		t.Fatal(err)
	}
	descs := make(chan *prometheus.Desc)
	go func() {
		s.metrics.Registry.Describe(descs)
		close(descs)
	}()
	all := map[string][]string{}
	shape := regexp.MustCompile(`fqName: "([a-z_]+)".*constLabels: \{(.*?)\}, variableLabels: \{(.*?)\}\}`)
	for d := range descs {
		m := shape.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("a metric says %s", d)
		}
		labels := strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' })
		for _, pair := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(m[2], -1) {
			labels = append(labels, pair[1])
		}
		all[m[1]] = append(all[m[1]], labels...)
	}
	return all
}

// The alerts and the dashboard ask for metrics that the scheduler exposes, by labels that they have.
func TestAlertsAndDashboardAskForWhatThereIs(t *testing.T) {
	all := exposed(t)
	expressions := map[string]string{}
	data, err := os.ReadFile("../deploy/grafana/muster.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			expressions["panel "+p.Title+": "+target.Expr] = target.Expr
		}
	}
	if data, err = os.ReadFile("../deploy/prometheus/muster.yaml"); err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(data, &rules); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	alerts := 0
	for _, r := range rules.Groups[0].Rules {
		expressions["alert "+r.Alert] = r.Expr
		alerts++
		if !strings.Contains(string(page), "| `"+r.Alert+"` |") {
			t.Errorf("docs/kubernetes.md does not say what to do about %s", r.Alert)
		}
	}
	if alerts < 12 || len(expressions) < alerts+10 {
		t.Fatalf("%d alerts, %d expressions: is this test looking in the wrong place?", alerts, len(expressions))
	}
	metric := regexp.MustCompile(`\b(muster_[a-z_]+)(?:\{([^}]*)\})?`)
	for what, expr := range expressions {
		if !strings.Contains(expr, "muster_") {
			t.Errorf("%s asks for no metric of Muster's", what)
		}
		for _, m := range metric.FindAllStringSubmatch(expr, -1) {
			name := m[1]
			labels, ok := all[name]
			if base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, ""); !ok && base != name {
				labels, ok = all[base]
				labels = append(slices.Clone(labels), "le")
			}
			if !ok {
				t.Errorf("%s: the scheduler has no %s", what, name)
			}
			for _, pair := range regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`).FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(labels, pair[1]) {
					t.Errorf("%s: %s has no label %s, but %q", what, name, pair[1], labels)
				}
			}
		}
	}
}
