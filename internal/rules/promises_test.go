package rules

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// planned are fields that the engine is told and that decide nothing yet. Every row
// of a table in docs/ that is about one says so, by the word "planned".
var planned = map[string]string{"Weight": "weight"}

// notOurs are names in the documents that look like keys of Muster's and are read by
// no code of this module: an API group's, a node label of the simulated nodes.
var notOurs = []string{"muster.sh/v1alpha1"}

// documents returns README.md and the pages of docs/, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	const root = "../.."
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		texts[page] = string(text)
	}
	return texts
}

// Labels, annotations, conditions and other keys: each that api/v1alpha1 names is used by code
// outside api/ and stands in a page, and each that a page names is in the code.
func TestKeysAreReadAndDocumented(t *testing.T) {
	used, constants, literals := map[string]bool{}, map[string]string{}, map[string]bool{}
	for _, f := range sources(t) {
		api := strings.HasPrefix(f.folder, "api/")
		ast.Inspect(f.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if i < len(n.Values) && api {
						if key := text(n.Values[i]); strings.HasPrefix(key, "muster.sh/") && key != "muster.sh/" {
							constants[name.Name] = key
						}
					}
				}
			case *ast.BasicLit:
				literals[text(n)] = true
			case *ast.SelectorExpr:
				if !api {
					used[n.Sel.Name] = true
				}
			}
			return true
		})
	}
	if len(constants) < 20 {
		t.Fatalf("api/v1alpha1 names %d keys: is this test looking in the wrong place?", len(constants))
	}
	inPages := map[string]bool{}
	key := regexp.MustCompile(`\b(?:[a-z]+\.)?muster\.sh/[A-Za-z][A-Za-z0-9-]*[a-z0-9]`)
	for page, text := range documents(t) {
		for _, k := range key.FindAllString(text, -1) {
			inPages[k] = true
			if !literals[k] && !slices.Contains(notOurs, k) {
				t.Errorf("%s names %s, which no code has", page, k)
			}
		}
	}
	for name, k := range constants {
		if !used[name] {
			t.Errorf("v1alpha1.%s (%s): no code outside api/ uses it", name, k)
		}
		if !inPages[k] {
			t.Errorf("v1alpha1.%s (%s): no page names it", name, k)
		}
	}
}

// text returns the value of a string literal, empty for all else.
func text(n ast.Expr) string {
	if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		s, _ := strconv.Unquote(lit.Value)
		return s
	}
	return ""
}

// Metrics: those of the code are those of the pages.
func TestMetricsAreDocumented(t *testing.T) {
	metric := regexp.MustCompile(`^muster_[a-z_]+$`)
	inCode, inPages := map[string]bool{}, map[string]bool{}
	for _, f := range sources(t) {
		ast.Inspect(f.file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && metric.MatchString(text(lit)) {
				inCode[text(lit)] = true
			}
			return true
		})
	}
	for page, text := range documents(t) {
		for _, name := range regexp.MustCompile(`\bmuster_[a-z_]+[a-z]\b`).FindAllString(text, -1) {
			name = regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			inPages[name] = true
			if !inCode[name] {
				t.Errorf("%s names the metric %s, which no code has", page, name)
			}
		}
	}
	for name := range inCode {
		if !inPages[name] {
			t.Errorf("no page names the metric %s", name)
		}
	}
}

// What the engine is told of queues, jobs and their pods decides something: code of
// core/ reads it, other than to check that it is in order. What does not is planned,
// and each row of a table about it says so.
func TestWhatTheEngineIsToldDecides(t *testing.T) {
	told := map[string]string{} // fields, and the type of each
	read := map[string]bool{}
	for _, f := range sources(t) {
		if !covers("core/", f.folder) && f.folder != "core" {
			continue
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				s, ok := n.Type.(*ast.StructType)
				if ok && slices.Contains([]string{"QueueSpec", "Queue", "Quota", "Job", "Task", "Request"}, n.Name.Name) {
					for _, f := range s.Fields.List {
						for _, name := range f.Names {
							if name.IsExported() {
								told[name.Name] = n.Name.Name
							}
						}
					}
				}
			case *ast.IfStmt:
				if refuses(n) {
					return false // a check is no use
				}
			case *ast.SelectorExpr:
				read[n.Sel.Name] = true
			}
			return true
		})
	}
	if told["Weight"] == "" || told["Estimate"] == "" {
		t.Fatalf("the engine is told %v: is this test looking in the wrong place?", told)
	}
	for field, of := range told {
		if _, isPlanned := planned[field]; isPlanned == read[field] {
			t.Errorf("%s.%s: read by the engine: %v, planned: %v", of, field, read[field], isPlanned)
		}
	}
	for page, text := range documents(t) {
		for i, line := range strings.Split(text, "\n") {
			for _, name := range planned {
				row := regexp.MustCompile("^\\|.*`([a-zA-Z]+\\.)?" + name + "`").MatchString(line)
				if row && !strings.Contains(strings.ToLower(line), "planned") {
					t.Errorf("%s:%d: %s decides nothing yet: say that it is planned", page, i+1, name)
				}
			}
		}
	}
}

// refuses reports whether all that an if statement does is to return an error.
func refuses(n *ast.IfStmt) bool {
	if len(n.Body.List) != 1 || n.Else != nil {
		return false
	}
	r, ok := n.Body.List[0].(*ast.ReturnStmt)
	if !ok || len(r.Results) == 0 {
		return false
	}
	call, ok := r.Results[len(r.Results)-1].(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	return ok && f.Sel.Name == "Errorf"
}
