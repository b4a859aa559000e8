package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/muster-sched/muster/"

// mayImport says which of Muster's packages each folder, and those below it
// that are not named, may import beside its tests. "core/" is core and all
// below it. docs/architecture.md says the same in a picture.
var mayImport = map[string][]string{
	"core/cluster":     {},
	"core/frag":        {"core/cluster"},
	"core/goodput":     {},
	"core/gputime":     {"core/cluster"},
	"core/quota":       {"core/cluster", "internal/fit"},
	"core/place":       {"core/cluster", "core/frag"},
	"core/place/joint": {"core/place"},
	"core/defrag":      {"core/cluster", "core/place"},
	"core":             {"core/cluster", "core/frag", "core/goodput", "core/gputime", "core/quota", "core/place", "core/defrag", "internal/fit"},
	"core/policy":      {"core", "core/place", "core/policy/"},

	"workload":    {"core", "core/cluster", "core/quota"},
	"sim":         {"core", "workload", "sim/elastic"},
	"sim/elastic": {"core", "core/goodput", "workload"},
	"eventlog":    {"core", "core/cluster", "core/place", "workload", "internal/durable"},
	"replay":      {"core", "core/cluster", "core/quota", "eventlog", "workload"},
	"metrics":     {"core", "core/frag", "core/place", "workload", "sim"},
	"report":      {"core", "core/cluster", "core/frag", "workload", "metrics", "internal/table"},
	"runlog":      {"core", "core/cluster", "core/frag", "core/quota", "workload", "sim", "metrics", "report", "internal/durable"},
	"api":         {"core", "core/cluster", "core/place", "core/quota", "workload", "api/"},
	"snapshot":    {"core", "core/cluster", "core/frag", "workload", "api/"},
	"advisor":     {"core", "workload", "runlog", "semantic/estimate", "semantic/extract", "semantic/history", "semantic/metadata", "semantic/redact", "internal/spelling"}, // jobs as the semantic layer's
	"reproduce":   {"core/", "workload", "sim", "metrics", "report", "runlog", "advisor", "semantic/estimate", "semantic/history", "semantic/metadata", "disagg", "disagg/", "internal/optimum"},
	"bench":       {"core/"},
	"migrate":     {"api/"},

	// What reads logs and code. It imports nothing of the engine, nor the engine anything of it.
	"semantic/logtext":   {},
	"semantic/metadata":  {},
	"semantic/llm":       {},
	"semantic/redact":    {},
	"semantic/numeral":   {},
	"semantic/agent":     {"semantic/llm", "semantic/metadata", "semantic/numeral", "semantic/redact"},
	"semantic/consult":   {"semantic/diagnose", "semantic/embed", "semantic/llm", "semantic/logtext", "semantic/numeral", "semantic/redact", "semantic/track"},
	"semantic/embed":     {},
	"semantic/history":   {"semantic/embed", "semantic/metadata"},
	"semantic/estimate":  {"semantic/history"},
	"semantic/track":     {"semantic/logtext"},
	"semantic/diagnose":  {"semantic/logtext"},
	"semantic/strikes":   {"semantic/diagnose"},
	"semantic/python":    {},
	"semantic/shell":     {},
	"semantic/interpret": {"semantic/python"},
	"semantic/extract":   {"semantic/interpret", "semantic/metadata", "semantic/python", "semantic/shell"},

	"coretest":       {"core/"},
	"coretest/audit": {"workload"}, // and nothing of the engine's accounting

	// The scheduler's packages in the order of their layers: a layer imports those below.
	"kube":           {"core", "api/", "kube/journey", "kube/mirror", "kube/advise", "kube/pause", "kube/recovery", "kube/tables", "kube/objects", "kube/act", "kube/feed", "kube/lease", "kube/lost", "kube/standby", "kube/stats", "kube/translate"},
	"kube/mirror":    {"core", "core/cluster", "core/frag", "api/", "kube/guard", "kube/journey", "kube/queues", "kube/standby", "kube/tables", "kube/objects", "kube/owners", "kube/reports", "kube/act", "kube/feed", "kube/devices", "kube/lease", "kube/lost", "kube/peers", "kube/settings", "kube/stats", "kube/storage", "kube/translate"},
	"kube/standby":   {"core", "api/v1alpha1", "kube/act", "kube/objects", "kube/stats", "kube/tables", "kube/translate"},
	"kube/guard":     {"core", "kube/translate"},
	"kube/journey":   {},
	"kube/reports":   {"internal/fit", "core", "core/frag", "api/v1alpha1", "kube/tables", "kube/act", "kube/fair", "kube/stats", "kube/translate"},
	"kube/fair":      {"core"}, // only its clock
	"kube/selector":  {"kube/translate"},
	"kube/tables":    {"internal/fit", "kube/journey", "kube/queues", "core", "core/cluster", "core/frag", "core/quota", "api/v1alpha1", "kube/exclude", "kube/objects", "kube/owners", "kube/act", "kube/devices", "kube/done", "kube/lease", "kube/lost", "kube/peers", "kube/settings", "kube/stats", "kube/storage", "kube/translate", "kube/sharing", "kube/after", "internal/spelling"},
	"kube/objects":   {"core", "api/v1alpha1", "kube/act", "kube/devices", "kube/health", "kube/prefer", "kube/sharing", "kube/translate"},
	"kube/prefer":    {"core", "core/cluster", "kube/translate"},
	"kube/health":    {},
	"kube/sharing":   {"core", "core/cluster", "api/v1alpha1"},
	"kube/recovery":  {"core", "api/v1alpha1", "kube/objects", "semantic/diagnose", "semantic/strikes"},
	"kube/pause":     {"core", "agent", "agent/agentpb", "api/v1alpha1", "checkpoint", "checkpoint/pause", "kube/act", "kube/objects", "kube/tables", "kube/translate"},
	"kube/publish":   {"agent/agentpb", "api/v1alpha1", "core/cluster", "kube/translate"}, // the agent writes by it
	"kube/access":    {},
	"kube/advise":    {"core", "api/v1alpha1", "kube/translate", "semantic/metadata"},
	"kube/feed":      {}, // it knows neither the tables nor the objects
	"kube/follow":    {"kube/translate"},
	"kube/act":       {"internal/fit", "api/", "kube/after", "kube/fair", "kube/follow", "kube/owners", "kube/translate"}, // it writes what it is given, and decides nothing
	"kube/lease":     {"api/"},
	"kube/stats":     {"internal/fit", "core", "core/cluster", "core/frag", "core/quota", "kube/act"}, // act has metrics of its own
	"kube/owners":    {"core", "api/v1alpha1", "kube/translate", "kube/keys"},
	"kube/translate": {"core", "core/cluster", "api/", "kube/keys", "kube/sharing"},
	"kube/exclude":   {"core", "core/cluster", "api/v1alpha1", "internal/spelling"},
	"kube/keys":      {"api/v1alpha1", "internal/spelling"},                                                                                    // a table, and nothing that reads objects
	"kube/devices":   {"internal/fit", "core", "core/cluster", "api/v1alpha1", "kube/fair", "kube/selector", "kube/translate", "kube/sharing"}, // this and those below are indexes: they know nothing about the tables that ask them
	"kube/lost":      {"core"},
	"kube/queues":    {"core", "api/v1alpha1", "kube/settings"},
	"kube/done":      {"kube/translate"},
	"kube/peers":     {"internal/fit", "core", "core/cluster", "kube/fair", "kube/translate"},
	"kube/settings":  {"core", "core/cluster", "api/v1alpha1", "kube/translate"},
	"kube/storage":   {"core", "core/cluster", "kube/translate"},
	"kube/console":   {"kube/queues", "core", "core/frag", "api/", "kube", "kube/recovery", "kube/feed", "kube/health", "kube/mirror", "kube/objects", "kube/tables", "kube/translate", "internal/hostlist", "internal/table", "kube/after", "kube/slurm", "kube/exclude", "internal/spelling"},
	"kube/slurm":     {"core", "api/v1alpha1", "kube/after", "kube/translate", "semantic/shell"},
	"kube/after":     {"api/v1alpha1"},
	"kube/trace":     {"kube/journey"},
	"kube/bench":     {"api/", "core", "kube/translate"},
	"kube/local":     {"core", "api/", "kube", "kube/stats", "kube/translate", "workload", "deploy"},

	// What pauses processes on a node. The engine knows nothing about it.
	"gpu":         {},
	"gpu/gputest": {},
	"gpu/check":   {},
	"gpu/driver":  {},

	"gpu/fake/interpreter": {"disagg/ptx", "disagg/ptx/interp"},

	"checkpoint":       {"gpu"},
	"checkpoint/pause": {"checkpoint", "gpu"},

	"checkpoint/image":     {}, // it reads and writes files of the shim's, and asks no process
	"checkpoint/criu":      {},
	"checkpoint/supervise": {"checkpoint", "checkpoint/image", "checkpoint/offload", "gpu"},
	"checkpoint/offload":   {"checkpoint", "checkpoint/criu", "checkpoint/image", "gpu"},
	"agent":                {"agent/agentpb", "agent/hardware", "checkpoint", "checkpoint/image", "checkpoint/offload", "checkpoint/pause", "gpu"},
	"agent/agentpb":        {},
	"agent/hardware":       {"agent/agentpb", "internal/durable", "semantic/diagnose"},

	// Which kernel runs on which of several unlike GPUs. The planner computes, and nothing else.
	"disagg":             {"api/strict", "core", "disagg/monitor", "disagg/pipeline", "disagg/plan", "internal/table", "workload"}, // workload for errors about files
	"disagg/monitor":     {},
	"disagg/pipeline":    {"disagg/monitor", "disagg/plan"},
	"disagg/analyze":     {"api/strict", "disagg", "disagg/instrument", "disagg/ptx", "disagg/ptx/interp", "disagg/roofline", "internal/table", "workload"},
	"disagg/instrument":  {"disagg/ptx"},
	"disagg/ptx":         {},
	"disagg/ptx/corpus":  {},
	"disagg/ptx/interp":  {"disagg/ptx"},
	"disagg/ptx/ptxtest": {"disagg/ptx", "disagg/ptx/interp"},
	"disagg/plan":        {},
	"disagg/roofline":    {"disagg"},
	"disagg/worker":      {"disagg", "disagg/analyze", "disagg/monitor", "disagg/plan", "gpu/driver", "workload"},

	// Modules of their own.
	"devcluster": {"core", "workload", "agent", "agent/agentpb", "checkpoint", "checkpoint/pause", "gpu", "devcluster/"},

	"cmd":      {"kube/", "deploy", "core/", "workload", "sim", "eventlog", "replay", "metrics", "report", "runlog", "api/", "snapshot", "migrate", "reproduce", "advisor", "bench", "coretest/audit", "semantic/", "gpu", "gpu/driver", "checkpoint", "checkpoint/criu", "checkpoint/image", "checkpoint/offload", "checkpoint/pause", "checkpoint/supervise", "agent/", "disagg/", "disagg", "internal/hostlist", "internal/spelling", "internal/table"},
	"deploy":   {},
	"tools":    {},
	"internal": {},
}

// pure is what the engine may import of the standard library: packages that
// compute, and nothing else. So it has no clock, chance, I/O, lock or logger.
var pure = []string{
	"bytes", "cmp", "container/heap", "encoding/binary", "errors", "fmt", "hash/fnv", "iter", "maps", "math", "math/bits",
	"slices", "sort", "strconv", "strings", "unicode",
}

func TestImports(t *testing.T) {
	for _, f := range sources(t) {
		allowed, ok := rule(f.folder)
		if !ok {
			t.Errorf("%s: no rule says what it may import", f.name)
		}
		for _, imported := range f.imports() {
			ours, isOurs := strings.CutPrefix(imported, module)
			switch {
			case isOurs && !slices.ContainsFunc(allowed, func(a string) bool { return covers(a, ours) }):
				t.Errorf("%s imports %s; it may import %q", f.name, ours, allowed)
			case !isOurs && covers("core/", f.folder) && !slices.Contains(pure, imported):
				t.Errorf("%s imports %s; the engine is pure", f.name, imported)
			}
		}
	}
}

// One caller owns an engine: it has no goroutines and channels of its own.
func TestEngineIsSequential(t *testing.T) {
	for _, f := range sources(t) {
		if !covers("core/", f.folder) {
			continue
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt, *ast.ChanType, *ast.SelectStmt:
				t.Errorf("%s: the engine has no goroutines and channels", f.set.Position(n.Pos()))
			}
			return true
		})
	}
}

// rule returns what a folder may import: its own rule, or that of the nearest
// folder above it.
func rule(folder string) (allowed []string, ok bool) {
	for ; folder != "."; folder = path.Dir(folder) {
		if allowed, ok = mayImport[folder]; ok {
			return allowed, true
		}
	}
	return nil, false
}

// covers reports whether an entry of a rule names a folder.
func covers(entry, folder string) bool {
	above, all := strings.CutSuffix(entry, "/")
	return folder == above || all && strings.HasPrefix(folder, entry)
}

// source is a Go file of the repository.
type source struct {
	name, folder string // from the repository's root, with slashes
	set          *token.FileSet
	file         *ast.File
}

func (s *source) imports() []string {
	var all []string
	for _, i := range s.file.Imports {
		name, _ := strconv.Unquote(i.Path.Value)
		all = append(all, name)
	}
	return all
}

// sources parses the Go files of the repository but tests.
func sources(t *testing.T) []source {
	t.Helper()
	const root = "../.."
	var all []source
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && file != root || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		s := source{name: filepath.ToSlash(name), set: token.NewFileSet()}
		s.folder = path.Dir(s.name)
		s.file, err = parser.ParseFile(s.set, file, nil, parser.SkipObjectResolution)
		all = append(all, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("found %d files: is this the repository?", len(all))
	}
	return all
}

// Commands are wiring: flags, and calls of what does the work. A function there that
// grows past a screen or two has logic in it that belongs elsewhere. One of the engine or
// of the scheduler does several things, each of which could have a name.
func TestFunctionsAreShort(t *testing.T) {
	const most = 80
	for _, f := range sources(t) {
		if !covers("cmd/", f.folder) && !covers("core/", f.folder+"/") && !covers("kube/", f.folder+"/") {
			continue
		}
		for _, d := range f.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				if n := f.set.Position(fn.End()).Line - f.set.Position(fn.Pos()).Line + 1; n > most {
					t.Errorf("%s: %s has %d lines, expected at most %d", f.set.Position(fn.Pos()), fn.Name.Name, n, most)
				}
			}
		}
	}
}
