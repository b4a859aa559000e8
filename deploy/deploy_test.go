package deploy_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"testing"

	"github.com/goccy/go-yaml"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/deploy"
)

// schema is what the tests read of a definition's schema.
type schema struct {
	Properties map[string]schema `yaml:"properties"`
	Items      *schema           `yaml:"items"`
	Enum       []string          `yaml:"enum"`
	Pattern    string            `yaml:"pattern"`
}

// at follows the names of fields; "[]" is the entry of a list.
func (s schema) at(t *testing.T, fields ...string) schema {
	t.Helper()
	for _, f := range fields {
		if f == "[]" {
			s = *s.Items
			continue
		}
		next, ok := s.Properties[f]
		if !ok {
			t.Fatalf("there is no field %q of %q", f, fields)
		}
		s = next
	}
	return s
}

// specOf returns the schema of the spec of the definition called name.
func specOf(t *testing.T, name string) schema {
	t.Helper()
	for _, c := range deploy.CRDs() {
		if c.Name != name {
			continue
		}
		var d struct {
			Metadata struct{ Name string }
			Spec     struct {
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema schema `yaml:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal(c.YAML, &d); err != nil {
			t.Fatal(err)
		}
		if d.Metadata.Name != name || len(d.Spec.Versions) != 1 {
			t.Fatalf("%s: the object is called %s, and has %d versions", name, d.Metadata.Name, len(d.Spec.Versions))
		}
		return d.Spec.Versions[0].Schema.OpenAPIV3Schema.at(t, "spec")
	}
	t.Fatalf("there is no definition %s", name)
	panic("unreachable")
}

// A cluster and a file know the same words.
func TestEnumsAreThoseOfTheTypes(t *testing.T) {
	policy, queue := specOf(t, "schedulingpolicies.muster.sh"), specOf(t, "queues.muster.sh")
	for _, test := range []struct {
		schema schema
		want   []string
	}{
		{policy.at(t, "queueing", "mode"), v1alpha1.QueueingMode("").Values()},
		{policy.at(t, "queueing", "order"), v1alpha1.QueueingOrder("").Values()},
		{policy.at(t, "placement", "default"), v1alpha1.Strategy("").Values()},
		{policy.at(t, "placement", "inference"), v1alpha1.Strategy("").Values()},
		{queue.at(t, "mode"), v1alpha1.QueueMode("").Values()},
		{queue.at(t, "fairBetween"), v1alpha1.FairBetween("").Values()},
	} {
		if !slices.Equal(test.schema.Enum, test.want) {
			t.Errorf("the definition has %q, the type %q", test.schema.Enum, test.want)
		}
	}
}

// What the API server takes, a client can read: one object that it cannot would
// keep it from all others of the list.
func TestWhatMatchesIsRead(t *testing.T) {
	policy, queue := specOf(t, "schedulingpolicies.muster.sh"), specOf(t, "queues.muster.sh")
	for _, test := range []struct {
		name    string
		pattern string
		into    func() json.Unmarshaler
	}{
		{"duration", policy.at(t, "requeue", "backoff").Pattern, func() json.Unmarshaler { return new(v1alpha1.Duration) }},
		{"GPUs", queue.at(t, "quota", "[]", "nominal").Pattern, func() json.Unmarshaler { return new(v1alpha1.GPUs) }},
	} {
		t.Run(test.name, rapid.MakeCheck(func(t *rapid.T) {
			text := rapid.StringMatching(test.pattern).Filter(func(s string) bool { return s != "" }).Draw(t, "text")
			v := test.into()
			data, err := json.Marshal(text)
			if err == nil {
				err = v.UnmarshalJSON(data)
			}
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			// What is written of it is read again.
			written, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			again := test.into()
			if err := again.UnmarshalJSON(written); err != nil {
				t.Fatalf("%q is written as %s: %v", text, written, err)
			}
		}))
	}
	for _, text := range []string{"90", "1.5s", "30m", "1h30m", "7d", "250ms", "0s"} {
		if !regexp.MustCompile(policy.at(t, "requeue", "backoff").Pattern).MatchString(text) {
			t.Errorf("the definition does not take %q", text)
		}
	}
}
