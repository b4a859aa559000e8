package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/quota"
)

// Files name all that the engine knows, in its order.
func TestNamesAreTheEngines(t *testing.T) {
	for _, test := range []struct {
		what   string
		values []string
		name   func(i int) string
	}{
		{"mode", v1alpha1.QueueingMode("").Values(), func(i int) string { return core.Mode(i).String() }},
		{"order", v1alpha1.QueueingOrder("").Values(), func(i int) string { return core.Order(i).String() }},
		{"recovery mode", v1alpha1.RecoveryMode("").Values(), func(i int) string { return core.RecoveryMode(i).String() }},
		{"queue mode", v1alpha1.QueueMode("").Values(), func(i int) string { return [...]string{quota.Shared: "Shared", quota.Isolated: "Isolated"}[i] }},
	} {
		var known []string
		for name, ok := nameOf(test.name, 0); ok; name, ok = nameOf(test.name, len(known)) {
			known = append(known, name)
		}
		if !slices.Equal(test.values, known) {
			t.Errorf("%s: files have %v, the engine %v", test.what, test.values, known)
		}
	}
}

// nameOf returns the i-th name, and false when there are not so many.
func nameOf(name func(int) string, i int) (s string, ok bool) {
	defer func() { ok = recover() == nil }()
	return name(i), true
}

// Every label and annotation of Muster's is among the keys, and nothing else is.
func TestKeysAreAll(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	ast.Inspect(file, func(n ast.Node) bool {
		if c, ok := n.(*ast.ValueSpec); ok && (strings.HasSuffix(c.Names[0].Name, "Label") || strings.HasSuffix(c.Names[0].Name, "Annotation")) {
			if key, err := strconv.Unquote(c.Values[0].(*ast.BasicLit).Value); err != nil || strings.HasPrefix(key, v1alpha1.Prefix) {
				want = append(want, key)
			}
		}
		return true
	})
	slices.Sort(want)
	want = slices.Compact(want)
	if got := slices.Sorted(slices.Values(v1alpha1.Keys)); !slices.Equal(got, want) || len(want) < 20 {
		t.Errorf("keys %q, names.go has %q", got, want)
	}
}
