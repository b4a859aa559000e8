package rules

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// planned are fields that the engine is told and that decide nothing yet. Every row
// of a table in docs/ that is about one says so, by the word "planned".
var planned = map[string]string{}

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

// A format is what Muster reads or writes: the section of a page that describes it, and
// what of the code has its fields. That is a struct with the structs in it that are no
// format of their own, or the declaration of the columns.
type format struct{ page, section, folder, name string }

var formats = []format{
	{"policies.md", "A policy file", "api/v1alpha1", "SchedulingPolicySpec"},
	{"policies.md", "Queues", "snapshot", "queue"},
	{"policies.md", "Queues", "api/v1alpha1", "QueueSpec"},
	{"kubernetes.md", "Queues", "api/v1alpha1", "QueueSpec"},
	{"kubernetes.md", "Topology", "api/v1alpha1", "TopologySpec"},
	{"decide.md", "The snapshot", "snapshot", "file"},
	{"decide.md", "nodes", "snapshot", "node"},
	{"decide.md", "jobs; tasks", "snapshot", "job"},
	{"decide.md", "jobs; tasks", "snapshot", "task"},
	{"files.md", "A cluster: a row a node", "workload", "musterCluster"},
	{"files.md", "A workload: a row a task", "workload", "musterJobs"},
	{"files.md", "Output: the run folder", "runlog", "queueFile"},
	{"files.md", "Output: the run folder", "runlog", "nodesHeader"},
	{"files.md", "Output: the run folder", "runlog", "seriesHeader"},
	{"files.md", "jobs.csv", "runlog", "jobsHeader"},
	{"files.md", "frames.json.gz", "runlog", "framesFile"},
	{"files.md", "waits.csv", "runlog", "waitsHeader"},
	{"files.md", "Output: the run folder", "runlog", "fairHeader"},
	{"metrics.md", "", "metrics", "Summary"},
	{"metrics.md", "Fairness", "metrics", "Fairness"},
	{"metrics.md", "Fairness", "metrics", "TenantFairness"},
	{"metrics.md", "Fairness", "metrics", "JobFairness"},
	{"metrics.md", "Fairness", "metrics", "QueueFairness"},
}

// Fields and columns: each that the code has stands in the section about its format,
// and each that a table of the section is about is one that the code has, and uses.
func TestFieldsAreReadAndDocumented(t *testing.T) {
	declared, used := map[string]ast.Node{}, map[string]bool{}
	for _, f := range sources(t) {
		if strings.HasPrefix(filepath.Base(f.name), "zz_") {
			continue // what is generated uses every field
		}
		for _, d := range f.file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				switch x := spec.(type) {
				case *ast.TypeSpec:
					declared[f.folder+"."+x.Name.Name] = x.Type
				case *ast.ValueSpec:
					declared[f.folder+"."+x.Names[0].Name] = x
				}
			}
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			if x, ok := n.(*ast.SelectorExpr); ok {
				used[x.Sel.Name] = true
			}
			return true
		})
	}
	pages := documents(t)
	word := regexp.MustCompile(`[A-Za-z][A-Za-z0-9_]*`)
	tables := map[string]map[string]bool{} // by section: the names that the code has
	for _, f := range formats {
		names := map[string]string{} // and the Go field of each
		fieldsOf(declared, f.folder, declared[f.folder+"."+f.name], names)
		text := section(pages["../../docs/"+f.page], f.section)
		if len(names) == 0 || text == "" {
			t.Fatalf("%s, %q: %d names in %s.%s: is this test looking in the wrong place?", f.page, f.section, len(names), f.folder, f.name)
		}
		at := f.page + ", " + f.section
		if tables[at] == nil {
			tables[at] = map[string]bool{}
		}
		said := word.FindAllString(strings.Join(code.FindAllString(text, -1), " "), -1)
		for name, field := range names {
			tables[at][name] = true
			if !slices.Contains(said, name) {
				t.Errorf("%s: %s of %s.%s is not there", at, name, f.folder, f.name)
			}
			if field != "" && !used[field] {
				t.Errorf("%s.%s: no code uses %s", f.folder, f.name, field)
			}
		}
	}
	for at, names := range tables {
		page, headings, _ := strings.Cut(at, ", ")
		for _, name := range promised(section(pages["../../docs/"+page], headings)) {
			if !names[name] {
				t.Errorf("%s: a table names %s, which no code has", at, name)
			}
		}
	}
}

// code is what stands in a page as code, in a line or in a block.
var code = regexp.MustCompile("(?s)```.*?```|`[^`]+`")

// fieldsOf adds the names that a declaration of a folder gives to fields or columns, each
// with its Go field: of a struct, those of the structs in it too.
func fieldsOf(declared map[string]ast.Node, folder string, what ast.Node, names map[string]string) {
	_, columns := what.(*ast.ValueSpec)
	ast.Inspect(what, func(n ast.Node) bool {
		of, name := folder, ""
		switch n := n.(type) {
		case *ast.BasicLit: // the columns of a table
			for _, column := range regexp.MustCompile(`[a-z_]+`).FindAllString(text(n), -1) {
				names[column] = ""
			}
		case *ast.Field:
			if n.Tag != nil {
				tag, _, _ := strings.Cut(reflect.StructTag(text(n.Tag)).Get("json"), ",")
				if tag == "-" {
					return false
				}
				names[tag] = n.Names[0].Name
			}
			fieldsOf(declared, folder, n.Type, names)
			return false
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				of, name = "api/"+x.Name, n.Sel.Name
			}
		case *ast.Ident:
			name = n.Name
		}
		own := func(f format) bool { return f.folder == of && f.name == name }
		if s, ok := declared[of+"."+name].(*ast.StructType); ok && !columns && !slices.ContainsFunc(formats, own) {
			fieldsOf(declared, of, s, names)
		}
		return name == ""
	})
}

// section returns what stands under headings of a page until the next one; all of the
// page for none.
func section(page, headings string) string {
	if headings == "" {
		return page
	}
	all := ""
	for heading := range strings.SplitSeq(headings, "; ") {
		_, text, _ := strings.Cut(page, "# "+heading+"\n")
		text, _, _ = strings.Cut(text, "\n#")
		all += text + "\n"
	}
	return strings.TrimSpace(all)
}

// promised returns the fields and columns that the tables of a section are about: those
// in the first column, and the keys in braces beside them.
func promised(section string) []string {
	var names []string
	inside := false
	for line := range strings.Lines(section) {
		cells := strings.SplitN(line, "|", 4)
		switch {
		case len(cells) < 4:
			inside = false
		case !inside && !strings.HasPrefix(cells[1], "---"):
			inside = slices.Contains([]string{"field", "column", "key"}, strings.TrimSpace(cells[1]))
		}
		if !inside {
			continue
		}
		said := strings.Join(code.FindAllString(cells[1], -1), " ")
		for _, braces := range regexp.MustCompile(`\{[^{}/]*\}`).FindAllString(strings.Join(code.FindAllString(cells[2]+cells[3], -1), " "), -1) {
			said += " " + regexp.MustCompile(`:[^,}]*`).ReplaceAllString(braces, "")
		}
		names = append(names, regexp.MustCompile(`[A-Za-z][A-Za-z0-9_]*`).FindAllString(said, -1)...)
	}
	return names
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

// Flags of muster-devcluster, a module of its own: each stands in its page.
func TestDevclusterFlagsAreDocumented(t *testing.T) {
	page, n := documents(t)["../../docs/devcluster.md"], 0
	for _, f := range sources(t) {
		if f.folder != "devcluster" {
			continue
		}
		ast.Inspect(f.file, func(x ast.Node) bool {
			call, ok := x.(*ast.CallExpr)
			if !ok || len(call.Args) < 4 {
				return true
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); ok && strings.HasSuffix(f.Sel.Name, "Var") {
				n++
				if name := text(call.Args[1]); !regexp.MustCompile(`--` + name + `\b`).MatchString(page) {
					t.Errorf("docs/devcluster.md does not name --%s", name)
				}
			}
			return true
		})
	}
	if n < 10 {
		t.Errorf("%d flags: is this test looking in the wrong place?", n)
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
