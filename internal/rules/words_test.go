package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A word that a native reader stumbles over, and a better one. CONTRIBUTING.md asks for
// plain English; this is the part of it that a script can check.
type word struct {
	is     *regexp.Regexp
	better string
}

// everywhere has words that stand in no text and no comment.
var everywhere = []word{
	{regexp.MustCompile(`(?i)\banew\b`), `"again"`},
	{regexp.MustCompile(`(?i)\bparted by\b`), `"separated by"`},
	{regexp.MustCompile(`(?i)\bhears? of\b`), `"observes"`},
	{regexp.MustCompile(`(?i)\b(sees?|seen) to it\b`), `"ensures"`},
	{regexp.MustCompile(`(?i)\bhas not (the|as|enough)\b`), `"does not have"`},
	{regexp.MustCompile(`(?i)\bless than (its|their) least\b`), `"fewer than its minimum"`},
	{regexp.MustCompile(`(?i)\b(at most|bind|write|keep|for) so (many|much|long|often)\b`), `the number, as in "at most N"`},
	{regexp.MustCompile(`(?i)\bsuch a one\b`), `the noun`},
	{regexp.MustCompile(`(?i)\bcomes? to be\b`), `"becomes" or "may be"`},
	{regexp.MustCompile(`(?i)\bas good as nothing\b`), `"almost nothing"`},
	{regexp.MustCompile(`(?i)\bsays what time it is\b`), `"sets the time"`},
	{regexp.MustCompile(`(?i)\bknows? nothing of\b`), `"knows nothing about"`},
	{regexp.MustCompile(`(?i)\bsomebody\b`), `the subject, such as "a user"`},
}

// inGo has words that stand in no Go file, in comments neither.
var inGo = []word{
	{regexp.MustCompile(`(?i)\btakes? in that\b`), `"records", "handles" or "observes"`},
	{regexp.MustCompile(`(?i)\bis said of\b`), `what the object says or has, or "is reported"`},
}

// forUsers has words that stand in nothing that users read: pages, messages, help, and
// what is generated from api/.
var forUsers = []word{
	{regexp.MustCompile(`(?i)\bnobody\b`), `what there is none of, as in "no pod"`},
	{regexp.MustCompile(`(?i)\bwhom\b`), `"which"`},
	{regexp.MustCompile(`(?i)\btells? of\b`), `"reports", "contains" or "publishes"`},
	{regexp.MustCompile(`(?i)\bso (many|much|long|often) (nodes|pods|GPUs|MiB|bytes|seconds|CPUs|tasks|requests|conditions|times)\b`), `the number, as in "at most N"`},
	{regexp.MustCompile(`(?i)\bfalls? silent\b`), `"stops renewing its lease"`},
	{regexp.MustCompile(`(?i)\bmade[- ]up\b`), `"generated" or "built-in"`},
	{regexp.MustCompile(`(?i)\btold of\b`), `"observes", "receives" or the passive of "report"`},
	{regexp.MustCompile(`(?i)\b(is|are) (told|said) (to|that)\b`), `the subject, and "must" or "says"`},
	{regexp.MustCompile(`(?i)\bin vain\b`), `"without success", or "failed" before a noun`},
	{regexp.MustCompile(`(?i)\bdealt out\b`), `"distributed" or "assigned"`},
	{regexp.MustCompile(`(?i)\bany more\s*([.,;:)"]|$)`), `"no longer"`},
	{regexp.MustCompile(`(?i)\b(is|are|was|were) asked for\b`), `"requested"`},
	{regexp.MustCompile(`(?i)\blooked at again\b`), `"checked again"`},
	{regexp.MustCompile(`(?i)\bthere is none\b[;,)]?$`), `"not found", or what there is none of`},
}

func TestPlainWords(t *testing.T) {
	const root = "../.."
	n := 0
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(file, root+string(filepath.Separator)))
		if d.IsDir() {
			if file != root && strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"node_modules", "dist", "bin", "out", "rapid"}, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		isGo, isText := filepath.Ext(name) == ".go", slices.Contains([]string{".md", ".yaml", ".txt", ".ts"}, filepath.Ext(name)) || name == "Makefile" || name == "deploy/grafana/muster.json"
		if !isGo && !isText || name == "internal/rules/words_test.go" {
			return nil
		}
		n++
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		checkWords(t, name, 1, string(data), everywhere)
		if isGo {
			checkWords(t, name, 1, string(data), inGo)
		}
		testdata := strings.Contains(name, "testdata/")
		switch {
		case isText && !testdata:
			checkWords(t, name, 1, string(data), forUsers)
		case isGo && !testdata && !strings.HasSuffix(name, "_test.go"):
			return checkMessages(t, name, data)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 500 {
		t.Fatalf("found %d files: is this the repository?", n)
	}
}

// checkMessages checks what users read of a Go file: its strings and, in api/, its comments.
func checkMessages(t *testing.T, name string, source []byte) error {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Contains(lit.Value, " ") {
			checkWords(t, name, set.Position(lit.Pos()).Line, lit.Value, forUsers)
		}
		return true
	})
	if strings.HasPrefix(name, "api/") {
		for _, group := range f.Comments {
			checkWords(t, name, set.Position(group.Pos()).Line, group.Text(), forUsers)
		}
	}
	return nil
}

// checkWords reports each of the words in a text that begins in a line of a file.
func checkWords(t *testing.T, file string, line int, text string, words []word) {
	for i, l := range strings.Split(text, "\n") {
		for _, w := range words {
			if found := w.is.FindString(l); found != "" {
				t.Errorf("%s:%d: %q: better %s", file, line+i, found, w.better)
			}
		}
	}
}
