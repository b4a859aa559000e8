package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const docsDir = "../../docs/"

// examples returns the YAML documents in a page, without their indentation.
func examples(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(docsDir + page)
	if err != nil {
		t.Fatal(err)
	}
	var docs []string
	for _, block := range regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```$").FindAllStringSubmatch(string(text), -1) {
		body := regexp.MustCompile("(?m)^"+block[1]).ReplaceAllString(block[2], "")
		docs = append(docs, strings.Split(body, "---\n")...)
	}
	return docs
}

// What the pages show is taken by the API server: no field is unknown, and
// Muster's own objects are as their definitions ask.
func TestExamplesAreTaken(t *testing.T) {
	kinds := definitions(t)
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for page, least := range map[string]int{"kubernetes.md": 12, "migrate.md": 3} {
		judged := 0
		for _, doc := range examples(t, page) {
			data, err := yaml.YAMLToJSONStrict([]byte(doc))
			if err != nil {
				t.Errorf("%s: %v\n%s", page, err, doc)
				continue
			}
			var o map[string]any
			if err := utiljson.Unmarshal(data, &o); err != nil {
				t.Fatal(err)
			}
			version, _ := o["apiVersion"].(string)
			kind, _ := o["kind"].(string)
			gv, err := schema.ParseGroupVersion(version)
			switch {
			case err != nil || kind == "":
				t.Errorf("%s: no object: %v\n%s", page, err, doc)
			case gv.Group == "kind.x-k8s.io":
				continue
			case gv.Group == "muster.sh":
				d := kinds[kind]
				if d == nil {
					t.Errorf("%s: there is no %s\n%s", page, kind, doc)
					continue
				}
				if errs := d.admit(t, o, nil); len(errs) > 0 {
					t.Errorf("%s: %q\n%s", page, errs, doc)
				}
			default:
				if _, _, err := decoder.Decode([]byte(doc), nil, nil); err != nil {
					t.Errorf("%s: %v\n%s", page, err, doc)
				}
			}
			judged++
		}
		if judged < least {
			t.Errorf("%s: found %d examples, expected at least %d", page, judged, least)
		}
	}
}

// The page has every name that people or Muster write on objects.
func TestNamesAreDocumented(t *testing.T) {
	source, err := os.ReadFile("../../api/v1alpha1/names.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(docsDir + "kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`= "((?:muster\.sh|nvidia\.com)/[A-Za-z-]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(names) < 20 {
		t.Fatalf("found %d names", len(names))
	}
	for _, name := range names {
		if !strings.Contains(string(page), name[1]) {
			t.Errorf("docs/kubernetes.md does not have %s", name[1])
		}
	}
}
