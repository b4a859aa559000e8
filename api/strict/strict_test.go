package strict_test

import (
	"strings"
	"testing"

	"github.com/muster-sched/muster/api/strict"
)

type inner struct {
	Size *int `json:"size,omitempty" max:"9"`
}

type outer struct {
	inner
	Labels map[string]string `json:"labels,omitempty"`
	List   []inner           `json:"list,omitempty"`
}

func decode(t *testing.T, file string) (outer, *strict.Source, error) {
	t.Helper()
	var o outer
	src, err := strict.Decode("f.yaml", []byte(file), &o)
	return o, src, err
}

func TestDecode(t *testing.T) {
	o, src, err := decode(t, "size: 3\nlabels:\n  a.b/c: x\nlist:\n- size:\n- {size: 9}\n")
	if err != nil {
		t.Fatal(err)
	}
	if *o.Size != 3 || o.Labels["a.b/c"] != "x" || o.List[0].Size != nil || *o.List[1].Size != 9 {
		t.Errorf("%+v", o)
	}
	if !src.Has("labels") || src.Has("a.b/c") {
		t.Error("Has is about the top of the document")
	}
}

// Errors found later stand on the line of their field, or of the nearest field
// around it.
func TestErrorf(t *testing.T) {
	_, src, err := decode(t, "size: 3\nlabels:\n  a: x\n  a.b: y\nlist:\n\n- size: 1\n- {size: 9}\n")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"size":         "f.yaml:1: size: why",
		"labels":       "f.yaml:2: labels: why",
		"labels.a":     "f.yaml:3: labels.a: why",
		"labels.a.b":   "f.yaml:4: labels.a.b: why",
		"labels.c":     "f.yaml:2: labels.c: why",
		"list[0].size": "f.yaml:7: list[0].size: why",
		"list[1]":      "f.yaml:8: list[1]: why",
		"list[2].size": "f.yaml:5: list[2].size: why",
		"other":        "f.yaml:1: other: why",
	} {
		if got := src.Errorf(path, "why").Error(); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func TestDecodeSaysWhatIsWrong(t *testing.T) {
	for file, want := range map[string]string{
		"size: 10\n":                            "f.yaml:1: size: a whole number, at most 9; found 10",
		"size: 1.5\n":                           "f.yaml:1: size: a whole number, at most 9; found 1.5",
		"size: 99999999999999999999\n":          "f.yaml:1: size: a whole number, at most 9; found \"99999999999999999999\"",
		"size: [1]\n":                           "f.yaml:1: size: a whole number, at most 9; found a list",
		"list:\n  size: 1\n":                    "f.yaml:2: list: a list; found an object",
		"list:\n- 7\n":                          "f.yaml:2: list[0]: an object; found 7",
		"labels:\n  a:\n":                       "f.yaml:2: labels.a: a string; found nothing",
		"labels: {a: true}\n":                   `f.yaml:1: labels.a: a string, in quotes ("true"); found true`,
		"? [a]\n: b\n":                          "f.yaml:2: YAML or JSON; found: found an invalid key for this map",
		"list: " + strings.Repeat("[", 1e5):     "f.yaml:1: at most 1000 levels of lists and objects; found more",
		"list:\n" + strings.Repeat("- ", 1e5):   "f.yaml:2: at most 1000 levels of lists and objects; found more",
		"list:\n\n" + strings.Repeat("? ", 1e5): "f.yaml:3: at most 1000 levels of lists and objects; found more",
		"{\n\t\"size\": 1,\n\t\"x\": 2\n}":      "f.yaml:3: x: one of size, labels, list; found an unknown field",
	} {
		if _, _, err := decode(t, file); err == nil || err.Error() != want {
			t.Errorf("%.99q:\ngot  %v\nwant %s", file, err, want)
		}
	}
}
