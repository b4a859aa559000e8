package core

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The tables at the top of changes.go are complete: one has a row for each fact that can be
// said, the other one for each event, which names known facts only. Engine.apply takes each
// event of event.go, and no other.
func TestTablesOfFacts(t *testing.T) {
	facts, events := tables(t)
	var said []string
	for _, f := range methods(t, "changes.go", "changes") {
		if f != "begin" && f != "all" {
			said = append(said, f)
		}
	}
	var listed []string
	for name := range facts {
		listed = append(listed, name)
	}
	same(t, "facts in the table and methods of changes", listed, said)

	var rows []string
	for name, of := range events {
		rows = append(rows, name)
		for _, word := range regexp.MustCompile(`\w+`).FindAllString(of, -1) {
			if camel := strings.ToLower(word[:1]) == word[:1] && strings.ToLower(word) != word; camel && !slices.Contains(said, word) {
				t.Errorf("the row of %s names %s, which is no fact", name, word)
			}
		}
	}
	declared := declaredEvents(t)
	same(t, "events in the table and in event.go", rows, declared)
	same(t, "events that apply takes and in event.go", applied(t), declared)
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s differ:\n%v\n%v", what, got, want)
	}
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// tables returns the rows of the two tables at the top of changes.go, by their first word.
func tables(t *testing.T) (facts, events map[string]string) {
	facts, events = map[string]string{}, map[string]string{}
	into := map[string]map[string]string{"fact": facts, "event": events}
	var table map[string]string
	for _, line := range strings.Split(parse(t, "changes.go").Comments[0].Text(), "\n") {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case !strings.HasPrefix(line, "\t"):
			table = nil
		case into[name] != nil:
			table = into[name]
		case table != nil:
			table[name] = rest
		}
	}
	return facts, events
}

// methods returns the names of the methods of a type in a file.
func methods(t *testing.T, file, of string) []string {
	var names []string
	for _, d := range parse(t, file).Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil && receiver(f) == of {
			names = append(names, f.Name.Name)
		}
	}
	return names
}

func receiver(f *ast.FuncDecl) string {
	typ := f.Recv.List[0].Type
	if p, ok := typ.(*ast.StarExpr); ok {
		typ = p.X
	}
	return typ.(*ast.Ident).Name
}

// declaredEvents returns the types of event.go that are events.
func declaredEvents(t *testing.T) []string {
	var names []string
	for _, d := range parse(t, "event.go").Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "event" {
			names = append(names, receiver(f))
		}
	}
	return names
}

// applied returns the events of which Engine.apply has a case.
func applied(t *testing.T) []string {
	var names []string
	ast.Inspect(parse(t, "engine.go"), func(n ast.Node) bool {
		if c, ok := n.(*ast.CaseClause); ok {
			for _, e := range c.List {
				if id, ok := e.(*ast.Ident); ok {
					names = append(names, id.Name)
				}
			}
		}
		return true
	})
	return names
}
